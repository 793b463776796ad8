//! What is known of a connection beyond its jobs: a request that is not all there yet, and what the connection is still to
//! be told. A long body is told in pieces, as the output drains, and is never copied whole.

use super::state::queries::Summary;
use super::state::{Commit, Listing, SumBy};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::time::Time;
use poolcounter_protocol::jobs::wire::stream::Stream;
use poolcounter_service::contract::Unreadable;
use poolcounter_service::output::{FULL_BYTES, Output};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

/// The commit that a reply waits for, and the number of the job whose change it promises; zero if it is none of one job.
#[derive(Clone, Copy)]
pub(super) struct Promise {
    pub commit: Commit,
    pub about: u64,
}

/// A body up to this length is copied behind its line even when it must wait: to share it would take as much.
pub(super) const COPIED_BYTES: usize = 256;
/// How much of a body is written at a time: what makes an output full.
pub(super) const PIECE_BYTES: usize = FULL_BYTES;
/// Room for so many messages is kept. A reserve-many can have a thousand.
const KEPT_MESSAGES: usize = 16;

pub(super) const CRLF: &[u8] = b"\r\n";

/// A connection.
#[derive(Default)]
pub(super) struct Session {
    /// The state knows the connection.
    pub is_open: bool,
    /// The loop serves nothing of it before it is resumed.
    pub waits: bool,
    /// Since when its next request has been held back, with all that came behind it.
    pub held_since: Option<Time>,
    /// Commit of the last job that it has put.
    pub put: Commit,
    /// What it had is another's now: it is closed when it has its turn.
    pub is_lost: bool,
    /// What it sends.
    pub stream: Stream,
    /// Bytes that it is charged for, as of the last [`Session::note_kept`].
    pub charged: usize,
    /// What it asked about very many tubes, jobs or connections, as far as the answer is there.
    pub query: Option<Query>,
    /// Replies for which its output had no room, in order.
    pub unsent: VecDeque<Message>,
    /// Bytes of these.
    unsent_bytes: usize,
}

impl Session {
    /// Returns how many bytes are kept for the connection: of a request that is not all there, of an answer under way, and of replies
    /// that are not sent, with the bodies of jobs among them, as the jobs may be gone before.
    pub fn bytes(&self) -> usize {
        self.stream.kept_bytes() + self.query.as_ref().map_or(0, Query::bytes) + self.unsent_bytes
    }
}

impl Query {
    /// Returns how many bytes are kept for the answer.
    fn bytes(&self) -> usize {
        /// Bytes of a runner beside its name.
        const RUNNER_BYTES: usize = size_of::<Summary>() + 64;
        let gathered = match &self.question {
            Question::RunnerSummary(runners) | Question::Runners(runners) => runners.len() * RUNNER_BYTES,
            Question::Jobs(listing) => listing.bytes(),
            Question::Tubes | Question::TubeSummary | Question::SumSummary(_) => 0,
        };
        gathered + self.text.capacity()
    }
}

/// A question about very many that is answered bit by bit.
pub(super) struct Query {
    pub question: Question,
    /// What is before this place in its table is looked at.
    pub next: usize,
    /// The answer so far.
    pub text: Vec<u8>,
}

/// What is asked.
pub(super) enum Question {
    /// The names of all tubes.
    Tubes,
    /// What there is to know of all tubes.
    TubeSummary,
    /// Survey of all sums, with how long jobs have been ready there.
    SumSummary(SumBy),
    /// What there is to know of all runners, as far as it is gathered.
    RunnerSummary(BTreeMap<Vec<u8>, Summary>),
    /// Those runners of whom is not told yet.
    Runners(BTreeMap<Vec<u8>, Summary>),
    /// The jobs of a tube.
    Jobs(Listing),
}

/// Something that a connection is to be told.
pub(super) struct Message {
    /// The line, perhaps with a short body; empty once it is written.
    pub head: Vec<u8>,
    /// A body behind it.
    pub body: Option<Arc<Box<[u8]>>>,
    /// How much of the body, with its end, is written.
    pub written: usize,
    /// Without which it must not be told.
    pub after: Option<Promise>,
    /// Bytes that its connection is charged for.
    bytes: usize,
}

/// What stands before the stream and the messages of a session.
#[derive(Serialize, Deserialize)]
struct SessionHead {
    waits: bool,
    /// How many messages follow, each as bytes.
    messages: usize,
}

impl Session {
    /// Returns whether there is nothing to know.
    pub fn is_idle(&self) -> bool {
        !self.waits && self.stream.is_between() && self.query.is_none() && self.unsent.is_empty()
    }

    /// Brings a sum of what is kept up to date.
    pub fn note_kept(&mut self, sum: &mut usize) {
        let kept = self.bytes();
        *sum = *sum - self.charged + kept;
        self.charged = kept;
    }

    /// Adds a message behind the others.
    pub fn push(&mut self, message: Message) {
        self.unsent_bytes += message.bytes;
        self.unsent.push_back(message);
    }

    /// Forgets the first message, which was written.
    pub fn pop(&mut self) {
        self.unsent_bytes -= self.unsent.pop_front().map_or(0, |message| message.bytes);
        if self.unsent.is_empty() {
            self.unsent.shrink_to(KEPT_MESSAGES);
        }
    }

    /// Writes what there is to know, for a process that takes over.
    pub fn save(&self, out: &mut Writer<'_>) -> io::Result<()> {
        out.put(&SessionHead { waits: self.waits, messages: self.unsent.len() })?;
        self.stream.save(out)?;
        self.unsent.iter().try_for_each(|message| out.put_bytes(&message.rest()))
    }

    /// Reads what another process saved.
    pub fn restore(saved: &mut Reader<'_>) -> Result<Session, Unreadable> {
        let SessionHead { waits, messages } = saved.take()?;
        let stream = Stream::restore(saved)?;
        let mut session = Session { is_open: true, waits, stream, ..Session::default() };
        for _ in 0..messages {
            let rest: Box<[u8]> = saved.take_bytes()?.into();
            // The end of its body is among the bytes, so it counts as written behind them.
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
    /// Returns a reply of which nothing is written.
    pub fn new(head: Vec<u8>, body: Option<Arc<Box<[u8]>>>, after: Option<Promise>) -> Message {
        let bytes = size_of::<Message>() + head.len() + body.as_ref().map_or(0, |body| body.len());
        Message { head, body, written: 0, after, bytes }
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

    /// Returns all of it that is not written.
    fn rest(&self) -> Vec<u8> {
        let body = self.body.as_ref().map_or(&[][..], |body| &body[self.written..]);
        let end = if self.body.is_some() { CRLF } else { &[] };
        [&self.head, body, end].concat()
    }
}

/// Returns the session of a connection, which is made if there is none.
pub(super) fn session_of(sessions: &mut Vec<Session>, conn: ConnId) -> &mut Session {
    if sessions.len() <= conn.index() {
        sessions.resize_with(conn.index() + 1, Session::default);
    }
    &mut sessions[conn.index()]
}
