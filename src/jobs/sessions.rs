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
    /// Bytes that are kept of a request of which not all is there.
    pub kept_bytes: usize,
    /// What it asked about very many tubes, jobs or connections, as far as the answer is there.
    pub query: Option<Query>,
    /// What its output had no room for, in order.
    pub unsent: VecDeque<Message>,
}

impl Session {
    /// Returns how many bytes are kept for the connection. A body that is not sent yet is its job's.
    pub fn bytes(&self) -> usize {
        let answer = self.query.as_ref().map_or(0, |query| query.text.capacity());
        self.kept_bytes + answer + self.unsent.iter().map(|message| message.head.len()).sum::<usize>()
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
        let kept = self.stream.kept_bytes();
        *sum = *sum - self.kept_bytes + kept;
        self.kept_bytes = kept;
    }

    /// Forgets the first message, which was written.
    pub fn pop(&mut self) {
        self.unsent.pop_front();
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
        let mut unsent = VecDeque::new();
        for _ in 0..messages {
            let rest: Box<[u8]> = saved.take_bytes()?.into();
            // The end of its body is among the bytes, so it counts as written behind them.
            let (head, ending) = rest.split_at(rest.len().saturating_sub(CRLF.len()));
            if ending != CRLF {
                return Err(Unreadable("the handover is damaged: a reply has no end".into()));
            }
            unsent.push_back(Message { head: Vec::new(), body: Some(Arc::new(head.into())), written: 0, after: None });
        }
        Ok(Session {
            is_open: true,
            waits,
            held_since: None,
            put: Commit(0),
            is_lost: false,
            kept_bytes: stream.kept_bytes(),
            stream,
            query: None,
            unsent,
        })
    }
}

impl Message {
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
