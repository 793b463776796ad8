//! State of connections beyond their leases: a list under way, and lines that follow later. It knows nothing of pools.
//!
//! Lines that the daemon sends without a request come in crowds: a provider may lose a million members at once. Beyond
//! some room in the connection's output such lines are kept here and follow as it drains, so that a provider that reads
//! is not taken for one that does not. Replies do not wait for them, except while a list is written, whose lines must
//! be together.

use super::state::{Event, Rank, Refusal, What};
use crate::wire;
use poolcounter_core::{ConnId, Reader, Span, Unreadable, Writer};
use poolcounter_protocol::members::wire::Query;
use poolcounter_service::contract::Context;
use poolcounter_service::output::{FULL_BYTES, Output, Promise};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;

/// Time between two attempts to send owed lines: some megabytes a second go to each connection.
pub const PACE: Span = Span::from_millis(5);
/// Bytes of unsent output beyond which lines without a request wait. The rest of the room is for replies.
const PACED_BYTES: usize = FULL_BYTES / 2;
/// Most owed bytes of a connection. With more it ends, as one that does not read: it is more than the `!STOP` of a
/// million members with names of thirty bytes.
const MOST_OWED_BYTES: usize = 64 << 20;

/// State of connections, by connection.
#[derive(Default)]
pub struct Sessions {
    sessions: BTreeMap<ConnId, Session>,
    /// Connections that are owed lines, in the order of the first of these.
    owing: Vec<ConnId>,
}

impl Sessions {
    /// Returns the number of bytes that are kept for a connection.
    pub fn kept_bytes(&self, conn: ConnId) -> usize {
        self.sessions.get(&conn).map_or(0, |session| session.behind_list.capacity() + session.owed.capacity())
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Session {
    listing: Option<Listing>,
    /// Replies that came during a list, and the batch of changes that they wait for.
    behind_list: Vec<u8>,
    #[serde(skip)]
    behind_batch: Option<u64>,
    /// Lines without a request that were not sent.
    owed: Vec<u8>,
    /// Number of the first bytes of `owed` that were sent.
    paid: usize,
}

/// Progress of a list.
#[derive(Serialize, Deserialize)]
pub struct Listing {
    /// Name after which the list continues.
    pub after: Option<Box<[u8]>>,
    /// Place and rank of the waiter after which the list continues.
    pub last: Option<(u64, Rank)>,
    /// Maximum number of lines still to be written.
    pub left: u32,
    /// True when its pool was found.
    is_begun: bool,
}

impl Listing {
    /// Returns a list at its beginning.
    pub fn new(query: Query<'_>) -> Self {
        let (after, limit) = match query {
            Query::Members { after, limit, .. } => (after, limit),
            Query::Waiters { limit, .. } => (None, limit),
            Query::Pools | Query::Utilization { .. } | Query::History { .. } => (None, None),
        };
        let (after, left) = (after.map(Box::from), limit.unwrap_or(u32::MAX));
        Listing { after, last: None, left, is_begun: false }
    }

    /// Begins or continues a list with the found thing. Returns None if that has gone since the list began.
    ///
    /// # Errors
    ///
    /// Fails if the thing does not exist when the list begins.
    pub fn begin<T>(&mut self, found: Result<T, Refusal>) -> Result<Option<T>, Refusal> {
        match found {
            Err(refusal) if !self.is_begun => Err(refusal),
            found => {
                self.is_begun = true;
                Ok(found.ok())
            }
        }
    }
}

impl Sessions {
    /// Returns whether an event can be written now; otherwise it is kept, and written later.
    pub fn admit(&mut self, event: &Event, batch: Option<u64>, output: &mut Output) -> bool {
        let is_reply = is_reply(&event.what);
        let session = self.sessions.get_mut(&event.conn);
        let must_wait = match &session {
            Some(session) if is_reply => session.listing.is_some(),
            Some(session) => session.listing.is_some() || session.is_owed() || output.len(event.conn) >= PACED_BYTES,
            None => !is_reply && output.len(event.conn) >= PACED_BYTES,
        };
        if !must_wait {
            return true;
        }
        let session = self.sessions.entry(event.conn).or_default();
        if is_reply {
            wire::write_event(&mut session.behind_list, event);
            session.behind_batch = session.behind_batch.max(batch);
            return false;
        }
        let was_owed = session.is_owed();
        wire::write_event(&mut session.owed, event);
        if session.owed.len() - session.paid > MOST_OWED_BYTES {
            let owed = std::mem::take(&mut session.owed);
            let paid = std::mem::take(&mut session.paid);
            output.reply(event.conn, |bytes| bytes.extend_from_slice(&owed[paid..]));
            self.owing.retain(|conn| *conn != event.conn);
        } else if !was_owed {
            self.owing.push(event.conn);
        }
        false
    }

    /// Returns whether some connection is owed lines.
    pub fn owe(&self) -> bool {
        !self.owing.is_empty()
    }

    /// Sends owed lines, as far as there is room.
    pub fn pay(&mut self, output: &mut Output) {
        let mut owing = std::mem::take(&mut self.owing);
        owing.retain(|conn| self.pay_one(*conn, output));
        self.owing = owing;
    }

    /// Sends owed lines of one connection, and returns whether it is owed more.
    fn pay_one(&mut self, conn: ConnId, output: &mut Output) -> bool {
        let Some(session) = self.sessions.get_mut(&conn) else { return false };
        if session.listing.is_some() {
            return session.is_owed();
        }
        while session.is_owed() && output.len(conn) < PACED_BYTES {
            let rest = &session.owed[session.paid..];
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            output.reply(conn, |bytes| bytes.extend_from_slice(&rest[..end]));
            session.paid += end;
        }
        if session.is_owed() {
            return true;
        }
        self.sessions.remove(&conn);
        false
    }

    /// Returns whether a list is under way.
    pub fn is_listing(&self, conn: ConnId) -> bool {
        self.sessions.get(&conn).is_some_and(|session| session.listing.is_some())
    }

    /// Takes the list under way. It is kept or ended in the same step.
    pub fn take_listing(&mut self, conn: ConnId) -> Option<Listing> {
        self.sessions.get_mut(&conn)?.listing.take()
    }

    /// Keeps a list to go on later.
    pub fn keep_listing(&mut self, conn: ConnId, listing: Listing) {
        self.sessions.entry(conn).or_default().listing = Some(listing);
    }

    /// Ends a list: replies that have waited for its end follow.
    pub fn end_listing(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        session.listing = None;
        let behind = std::mem::take(&mut session.behind_list);
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(&behind);
        match session.behind_batch.take() {
            _ if behind.is_empty() => {}
            Some(commit) => context.reply_after(conn, Promise { commit, about: 0, follows: false }, write),
            None => context.output.reply(conn, write),
        }
        if !self.pay_one(conn, context.output) {
            self.owing.retain(|other| *other != conn);
        }
    }

    /// Removes a connection.
    pub fn close(&mut self, conn: ConnId) {
        if self.sessions.remove(&conn).is_some_and(|session| session.is_owed()) {
            self.owing.retain(|other| *other != conn);
        }
    }

    /// Returns whether there is no state of any connection.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Writes all sessions, for a successor.
    pub fn save(&self, out: &mut Writer<'_>) -> io::Result<()> {
        for session in &self.sessions {
            out.put(&Some(session))?;
        }
        out.put(&None::<(ConnId, Session)>)?;
        out.put(&self.owing)
    }

    /// Returns the sessions of a handover.
    pub fn restore(saved: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let mut sessions = Sessions::default();
        while let Some((conn, session)) = saved.take::<Option<(ConnId, Session)>>()? {
            if session.paid > session.owed.len() {
                return Err(Unreadable("members: more was sent than there was".into()));
            }
            sessions.sessions.insert(conn, session);
        }
        sessions.owing = saved.take()?;
        Ok(sessions)
    }
}

impl Session {
    fn is_owed(&self) -> bool {
        self.paid < self.owed.len()
    }
}

/// Returns whether a message is the reply to a request, sooner or later.
pub fn is_reply(what: &What) -> bool {
    !matches!(
        what,
        What::Start { .. } | What::Stop { .. } | What::Check { .. } | What::Clean { .. } | What::Lost { .. }
    )
}
