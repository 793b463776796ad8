//! State of a connection beyond its jobs: incomplete requests and unsent replies. A long body is written in pieces, as
//! the output drains, and is never copied whole.

use super::state::queries::Summary;
use super::state::{Commit, Listing, SumBy, Watchers};
use poolcounter_core::{ConnId, Id, Reader, Time, Writer};
use poolcounter_protocol::jobs::wire::stream::Stream;
use poolcounter_service::contract::Unreadable;
use poolcounter_service::output::{FULL_BYTES, Output, Promise};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

/// Longest body that is copied behind its line even when it must wait: to share it would take as much memory.
pub(super) const COPIED_BYTES: usize = 256;
/// Bytes of a body that are written at a time: as many as make an output full.
pub(super) const PIECE_BYTES: usize = FULL_BYTES;
/// Most messages for which an empty queue keeps memory. A reserve-many can have a thousand.
const KEPT_MESSAGES: usize = 16;

pub(super) const CRLF: &[u8] = b"\r\n";

/// Position of the table of sessions. A connection has a session from its first request on.
#[derive(Default)]
pub(super) struct Slot {
    /// True while the state knows the connection.
    pub is_open: bool,
    session: Option<Box<Session>>,
}

/// Session of each connection without a request.
static SILENT: LazyLock<Session> = LazyLock::new(Session::default);

impl Slot {
    /// Returns an open connection with this session.
    pub fn open(session: Session) -> Slot {
        Slot { is_open: true, session: (!session.is_idle()).then(|| Box::new(session)) }
    }

    /// Returns whether the next request can be served without a look at the session.
    #[inline]
    pub fn is_plain(&self) -> bool {
        let is_idle = |session: &Session| session.is_idle() && session.charged == 0;
        self.is_open && self.session.as_deref().is_none_or(is_idle)
    }

    /// Returns the session, if it has begun.
    pub fn begun(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut()
    }
}

impl Deref for Slot {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_deref().unwrap_or_else(|| &SILENT)
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.get_or_insert_default()
    }
}

/// State of a connection beside its jobs.
#[derive(Default)]
pub(super) struct Session {
    /// True while the loop serves nothing of it, until it is resumed.
    pub waits: bool,
    /// Time since which its next request, and all behind it, has been held back.
    pub held_since: Option<Time>,
    /// Commit of the last job that it has put.
    pub put: Commit,
    /// True once its jobs belong to another daemon: it is closed in its next turn.
    pub is_lost: bool,
    /// True once a reply was dropped of which a part may have been written.
    pub is_torn: bool,
    /// Parser of its input.
    pub stream: Stream,
    /// Bytes that it is charged for since the last [`Session::note_kept`].
    pub charged: usize,
    /// Answer under way about very many tubes, jobs or connections.
    pub query: Option<Query>,
    /// Replies for which its output had no room, in order.
    pub unsent: VecDeque<Message>,
    /// Bytes of these.
    unsent_bytes: usize,
}

impl Session {
    /// Returns the number of bytes that are kept for the connection: of an incomplete request, of an answer under way,
    /// and of unsent replies with the bodies of jobs, as these jobs may be deleted before.
    pub fn bytes(&self) -> usize {
        self.stream.kept_bytes() + self.query.as_ref().map_or(0, Query::bytes) + self.unsent_bytes
    }
}

impl Query {
    /// Returns the number of bytes that are kept for the answer.
    fn bytes(&self) -> usize {
        /// Bytes of a runner beside its name.
        const RUNNER_BYTES: usize = size_of::<Summary>() + 64;
        let gathered = match &self.question {
            Question::RunnerSummary(runners) | Question::Runners(runners) => runners.len() * RUNNER_BYTES,
            Question::Jobs(listing) => listing.bytes(),
            Question::Tubes
            | Question::Settings(_)
            | Question::Tube(_)
            | Question::TubeSummary
            | Question::SumSummary(_) => 0,
        };
        gathered + self.text.capacity()
    }
}

/// Answer in slices about very many entries.
pub(super) struct Query {
    pub question: Question,
    /// Position of the next entry in its table.
    pub next: usize,
    /// The answer so far.
    pub text: Vec<u8>,
}

/// Subject of an answer.
pub(super) enum Question {
    /// The names of all tubes.
    Tubes,
    /// All settings, or the settings that apply to a pattern.
    Settings(Option<Box<[u8]>>),
    /// Statistics of a tube.
    Tube(Watchers),
    /// Summary of all tubes.
    TubeSummary,
    /// Summary of all sums, with the ages of their ready jobs.
    SumSummary(SumBy),
    /// Summary of all runners, as gathered so far.
    RunnerSummary(BTreeMap<Vec<u8>, Summary>),
    /// Runners not yet written to the answer.
    Runners(BTreeMap<Vec<u8>, Summary>),
    /// The jobs of a tube.
    Jobs(Listing),
}

/// Reply that waits for room in the output.
pub(super) struct Message {
    /// Line of the reply, perhaps with a short body; empty once it is written.
    pub head: Vec<u8>,
    /// Body that follows the line.
    pub body: Option<Arc<Box<[u8]>>>,
    /// Bytes of the body, with its end, that are written.
    pub written: usize,
    /// Commit before which it must not be sent, and the number of the job whose change it promises.
    pub after: Option<Promise>,
    /// Bytes that its connection is charged for.
    bytes: usize,
}

/// Record before the stream and the messages of a session.
#[derive(Serialize, Deserialize)]
struct SessionHead {
    waits: bool,
    /// Number of messages that follow, each as bytes.
    messages: usize,
}

impl Session {
    /// Returns whether the session has no state to hand over.
    pub fn is_idle(&self) -> bool {
        !self.waits && self.stream.is_between() && self.query.is_none() && self.unsent.is_empty()
    }

    /// Updates a sum of kept bytes with the change of this session.
    pub fn note_kept(&mut self, sum: &mut usize) {
        let kept = self.bytes();
        *sum = *sum - self.charged + kept;
        self.charged = kept;
    }

    /// Adds a message at the end.
    pub fn push(&mut self, message: Message) {
        self.unsent_bytes += message.bytes;
        self.unsent.push_back(message);
    }

    /// Removes the first message, which was written.
    pub fn pop(&mut self) {
        self.unsent_bytes -= self.unsent.pop_front().map_or(0, |message| message.bytes);
        if self.unsent.is_empty() {
            self.unsent.shrink_to(KEPT_MESSAGES);
        }
    }

    /// Replaces replies for which `which` returns true, as [`Output::reword`] does. An empty reply is skipped.
    pub fn reword(&mut self, which: impl Fn(u64, u64) -> bool, write: impl Fn(&mut Vec<u8>)) {
        let is_meant = |message: &Message| {
            !message.head.is_empty() && message.after.is_some_and(|promise| which(promise.commit, promise.about))
        };
        let unsent = self.unsent.make_contiguous();
        for replies in unsent.chunk_by_mut(|_, next| next.follows()) {
            if replies.iter().any(is_meant) {
                replies.iter_mut().for_each(|reply| (reply.head, reply.after) = (Vec::new(), None));
                write(&mut replies[0].head);
            }
        }
    }

    /// Writes the session, for a process that takes over.
    pub fn save(&self, out: &mut Writer<'_>) -> io::Result<()> {
        out.put(&SessionHead { waits: self.waits, messages: self.unsent.len() })?;
        self.stream.save(out)?;
        self.unsent.iter().try_for_each(|message| out.put_bytes(&message.rest()))
    }

    /// Reads a session that another process saved.
    pub fn restore(saved: &mut Reader<'_>) -> Result<Session, Unreadable> {
        let SessionHead { waits, messages } = saved.take()?;
        let stream = Stream::restore(saved)?;
        let mut session = Session { waits, stream, ..Session::default() };
        for _ in 0..messages {
            let rest: Box<[u8]> = saved.take_bytes()?.into();
            // The end of a body is in the saved bytes, so the body counts as written.
            let (head, ending) = rest.split_at(rest.len().saturating_sub(CRLF.len()));
            if ending != CRLF {
                return Err(Unreadable("the handover is damaged: a reply has no end".into()));
            }
            session.push(Message::new(Vec::new(), Some(Arc::new(head.into())), None));
        }
        Ok(session)
    }
}

impl Message {
    /// Returns a reply of which no byte is written.
    pub fn new(head: Vec<u8>, body: Option<Arc<Box<[u8]>>>, after: Option<Promise>) -> Message {
        let bytes = size_of::<Message>() + head.len() + body.as_ref().map_or(0, |body| body.len());
        Message { head, body, written: 0, after, bytes }
    }

    /// Returns whether it answers the same request as the message before it.
    pub fn follows(&self) -> bool {
        self.after.is_some_and(|promise| promise.follows)
    }

    /// Writes the next piece of the body, and returns whether that was the last.
    pub fn write_piece(&mut self, conn: ConnId, output: &mut Output) -> bool {
        let Some(body) = &self.body else { return true };
        let rest = body.len().saturating_sub(self.written);
        let piece = rest.min(PIECE_BYTES);
        let is_last = piece == rest;
        output.reply(conn, |bytes| {
            bytes.extend_from_slice(&body[body.len() - rest..][..piece]);
            if is_last {
                bytes.extend_from_slice(CRLF);
            }
        });
        self.written += piece;
        is_last
    }

    /// Returns the bytes that are not written.
    fn rest(&self) -> Vec<u8> {
        let body = self.body.as_ref().map_or(&[][..], |body| &body[self.written..]);
        let end = if self.body.is_some() { CRLF } else { &[] };
        [&self.head, body, end].concat()
    }
}

/// Returns the session of a connection, and creates it if there is none.
pub(super) fn session_of(sessions: &mut Vec<Slot>, conn: ConnId) -> &mut Slot {
    if sessions.len() <= conn.index() {
        sessions.resize_with(conn.index() + 1, Slot::default);
    }
    &mut sessions[conn.index()]
}
