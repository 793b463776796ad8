//! Unsent output of each connection, collected until the end of the tick. Independent of sockets.
//!
//! A connection owns a buffer only while it has unsent output; empty buffers are reused, so that the steady state
//! allocates nothing. The connection that has the turn writes into a buffer of the turn, unless it has unsent output
//! already: most replies are sent from there, at the end of the turn, if no other connection has output. All further
//! connections are flushed in the order of their latest turns, so that the new holder of a lock is written to before the
//! releaser. But connections with requests in this tick come before a crowd that was woken in it or earlier.
//!
//! A reply may be held until a commit of its service. All later replies to the connection wait behind it.

mod buffer;
mod held;

pub use buffer::{Promise, Unsent};

use buffer::Buffer;
use held::PendingReply;
use log::{Level, log_enabled, trace};
use poolcounter_core::text::escaped;
use poolcounter_core::{ConnId, Id, Links, List};
use std::collections::VecDeque;

/// Limit of unsent bytes from which a connection is not served until it drains.
pub const FULL_BYTES: usize = 64 * 1024;
/// Default limit of unsent bytes above which a connection is closed: replies keep coming, and the peer does not read.
pub const MAX_BYTES: usize = 1024 * 1024;
/// Limits of the empty buffers that are kept for reuse: their number, and the size of each in bytes. At most 4 MiB.
const SPARE_BUFFERS: usize = 1024;
const SPARE_BYTES: usize = 4096;
/// Limit of connections woken in one tick; further connections are a crowd, written to after connections with requests.
const CROWD: usize = 64;
/// Number of held replies for which an empty buffer keeps room; usually there are a few at a time.
const SPARE_HELD: usize = 16;

const NO_BUFFER: u32 = u32::MAX;
/// The buffer of the turn.
const TURN: u32 = u32::MAX - 1;

/// Unsent replies by connection.
#[derive(Default)]
pub struct Output {
    /// Buffer of each connection, `TURN` or `NO_BUFFER`.
    owned: Vec<u32>,
    /// Buffer of the connection that has the turn, until its end.
    turn: Buffer,
    buffers: Vec<Buffer>,
    /// Buffers that no connection owns.
    free: Vec<u32>,
    /// Connections with output to send. The fresh connections come last: connections with requests in this tick, and
    /// connections woken in it unless they are a crowd.
    dirty: List<ConnId>,
    /// First of the fresh connections.
    fresh: Option<ConnId>,
    /// Number of fresh connections that were woken.
    woken: usize,
    /// Connection that has the turn.
    asking: Option<ConnId>,
    /// True if it got output in its turn.
    is_answered: bool,
    links: Links,
    /// Held replies of all connections, for each service in the order of its commits.
    pending: VecDeque<PendingReply>,
    /// Number of replies held so far.
    numbers: u64,
}

impl Output {
    /// Adds one reply, with the bytes that `write` appends.
    pub fn reply(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
        let buffer = self.buffer_of(conn);
        write(&mut buffer.bytes);
        buffer.replies += 1;
        self.touch(conn);
    }

    /// Adds one reply of lines, and logs each at level trace.
    pub fn reply_lines(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
        self.reply_all_lines(conn, |bytes| {
            write(bytes);
            1
        });
    }

    /// Adds several replies of lines, as many as `write` returns, and logs each line at level trace.
    pub fn reply_all_lines(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>) -> u32) {
        let buffer = self.buffer_of(conn);
        let start = buffer.bytes.len();
        buffer.replies += write(&mut buffer.bytes);
        if log_enabled!(Level::Trace) {
            let lines = buffer.bytes[start..].split_inclusive(|byte| *byte == b'\n');
            lines.for_each(|line| trace!("{conn} < {}", escaped(line.strip_suffix(b"\n").unwrap_or(line))));
        }
        self.touch(conn);
    }

    /// Restores the unsent output of a connection after a handover, with its number of replies.
    pub fn restore(&mut self, conn: ConnId, unsent: &[u8], replies: u32) {
        if !unsent.is_empty() {
            self.reply(conn, |bytes| bytes.extend_from_slice(unsent));
            self.buffer_of(conn).replies = replies;
        }
    }

    /// Returns the number of replies in the connection's output, including a partly sent reply.
    pub fn replies(&self, conn: ConnId) -> u32 {
        self.owned_by(conn).map_or(0, |buffer| buffer.replies)
    }

    /// Records which connection has the turn.
    #[inline]
    pub fn begin_turn(&mut self, conn: ConnId) {
        (self.asking, self.is_answered) = (Some(conn), false);
        match self.owned.get_mut(conn.index()) {
            Some(owned) if *owned != NO_BUFFER => {}
            Some(owned) => *owned = TURN,
            None => self.own(conn, TURN),
        }
    }

    /// Ends a turn. Returns true if its connection alone has output to send: then it can be written to at once, and
    /// nothing else knows of that; [`Output::leave_turn`] must follow. Else it is written to after all connections that
    /// have output so far.
    #[inline]
    pub fn end_turn(&mut self, conn: ConnId) -> bool {
        self.asking = None;
        if self.is_answered && self.dirty.is_empty() {
            return true;
        }
        self.leave_turn(conn);
        if self.is_answered {
            self.unlink(conn);
            self.dirty.push_back(&mut self.links, conn);
            self.fresh.get_or_insert(conn);
        }
        false
    }

    /// Takes the buffer of the turn from the connection that had it, which gets one of its own for what is not sent.
    #[inline]
    pub fn leave_turn(&mut self, conn: ConnId) {
        if self.owned[conn.index()] == TURN {
            self.keep_unsent(conn);
        }
    }

    #[inline(never)]
    fn keep_unsent(&mut self, conn: ConnId) {
        self.owned[conn.index()] = NO_BUFFER;
        if !self.turn.bytes.is_empty() {
            let index = self.give_buffer(conn);
            std::mem::swap(&mut self.turn, &mut self.buffers[index as usize]);
        }
    }

    /// Marks a connection as having output to send.
    #[inline]
    pub fn touch(&mut self, conn: ConnId) {
        if self.asking == Some(conn) {
            self.is_answered = true;
        } else {
            self.touch_other(conn);
        }
    }

    fn touch_other(&mut self, conn: ConnId) {
        if !self.links.is_linked(conn) {
            match self.fresh {
                Some(fresh) if self.woken >= CROWD => return self.dirty.insert_before(&mut self.links, fresh, conn),
                _ => self.dirty.push_back(&mut self.links, conn),
            }
            if self.woken < CROWD {
                self.woken += 1;
                self.fresh.get_or_insert(conn);
            }
        }
    }

    /// Removes and returns the next of the fresh connections.
    #[inline]
    pub fn pop_fresh(&mut self) -> Option<ConnId> {
        let conn = self.fresh?;
        self.unlink(conn);
        Some(conn)
    }

    /// Removes and returns the connection that has waited longest for a write.
    #[inline]
    pub fn pop_oldest(&mut self) -> Option<ConnId> {
        let conn = self.dirty.front()?;
        self.unlink(conn);
        Some(conn)
    }

    /// Ends a tick: the connections left over come after connections with requests in the next tick.
    pub fn end_tick(&mut self) {
        (self.fresh, self.asking, self.woken) = (None, None, 0);
    }

    #[inline]
    fn unlink(&mut self, conn: ConnId) {
        if self.links.is_linked(conn) {
            if self.fresh == Some(conn) {
                self.fresh = self.links.after(conn);
            }
            self.dirty.remove(&mut self.links, conn);
        }
    }

    /// Returns the connections with unsent output.
    pub fn owners(&self) -> impl Iterator<Item = ConnId> {
        (0..self.owned.len()).filter(|index| self.owned[*index] != NO_BUFFER).map(ConnId::from_index)
    }

    /// Returns true if some connection has output to send.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Returns true if a connection has output to send.
    #[inline]
    pub fn is_dirty_for(&self, conn: ConnId) -> bool {
        self.links.is_linked(conn)
    }

    /// Returns the unsent output of a connection; None if it has none.
    #[inline]
    pub fn unsent_of(&self, conn: ConnId) -> Option<Unsent<'_>> {
        self.owned_by(conn).map(Buffer::unsent)
    }

    /// Returns the bytes that may be sent to the connection now.
    pub fn unsent(&self, conn: ConnId) -> &[u8] {
        self.owned_by(conn).map_or(&[], |buffer| &buffer.bytes[buffer.sent..buffer.sendable()])
    }

    /// Returns the number of unsent bytes of a connection, including held bytes.
    pub fn len(&self, conn: ConnId) -> usize {
        self.owned_by(conn).map_or(0, |buffer| buffer.bytes.len() - buffer.sent)
    }

    /// Returns true if the connection must drain before it is served again.
    pub fn is_full(&self, conn: ConnId) -> bool {
        self.len(conn) >= FULL_BYTES
    }

    /// Removes the first `len` unsent bytes, which were sent.
    #[inline]
    pub fn consume(&mut self, conn: ConnId, len: usize) {
        let Some(buffer) = self.buffer_mut(conn) else { return };
        buffer.sent += len;
        if buffer.sent == buffer.bytes.len() {
            self.take_back(conn);
        } else if buffer.sent >= FULL_BYTES {
            buffer.drop_sent();
        }
    }

    /// Discards the unsent output of the connection, and returns the number of lost replies, including a partly sent
    /// one.
    pub fn discard(&mut self, conn: ConnId) -> u32 {
        let Some(buffer) = self.owned_by(conn) else { return 0 };
        let replies = if buffer.sent < buffer.bytes.len() { buffer.replies } else { 0 };
        self.take_back(conn);
        replies
    }

    /// Takes the buffer from a connection, for reuse.
    #[inline]
    fn take_back(&mut self, conn: ConnId) {
        self.unlink(conn);
        let index = std::mem::replace(&mut self.owned[conn.index()], NO_BUFFER);
        let buffer = if index == TURN { &mut self.turn } else { &mut self.buffers[index as usize] };
        let is_spare = index == TURN || self.free.len() < SPARE_BUFFERS;
        if !is_spare || buffer.bytes.capacity() > SPARE_BYTES {
            *buffer = Buffer::default();
        } else if buffer.held.capacity() > SPARE_HELD {
            buffer.held = VecDeque::new();
        }
        buffer.clear();
        if index != TURN {
            self.free.push(index);
        }
    }

    /// Returns true if no connection has unsent output, and no reply waits for a commit.
    pub fn is_empty(&self) -> bool {
        self.owners().next().is_none() && self.dirty.is_empty() && self.pending.is_empty()
    }

    fn owned_by(&self, conn: ConnId) -> Option<&Buffer> {
        match *self.owned.get(conn.index())? {
            TURN => Some(&self.turn),
            index => self.buffers.get(index as usize),
        }
    }

    #[inline]
    fn buffer_mut(&mut self, conn: ConnId) -> Option<&mut Buffer> {
        match *self.owned.get(conn.index())? {
            TURN => Some(&mut self.turn),
            index => self.buffers.get_mut(index as usize),
        }
    }

    #[inline]
    fn buffer_of(&mut self, conn: ConnId) -> &mut Buffer {
        match self.owned.get(conn.index()).copied().unwrap_or(NO_BUFFER) {
            TURN => &mut self.turn,
            index => self.buffer_beside_turn(conn, index),
        }
    }

    #[inline(never)]
    fn buffer_beside_turn(&mut self, conn: ConnId, index: u32) -> &mut Buffer {
        let index = if index == NO_BUFFER { self.give_buffer(conn) } else { index };
        &mut self.buffers[index as usize]
    }

    fn give_buffer(&mut self, conn: ConnId) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Buffer::default());
            self.buffers.len() as u32 - 1
        });
        self.own(conn, index);
        index
    }

    fn own(&mut self, conn: ConnId, index: u32) {
        if self.owned.len() <= conn.index() {
            self.owned.resize(conn.index() + 1, NO_BUFFER);
        }
        self.owned[conn.index()] = index;
    }

    /// Checks the tables against each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        let mut owners = vec![0; self.buffers.len()];
        for index in self.owned.iter().filter(|index| **index < TURN).chain(&self.free) {
            owners[*index as usize] += 1;
        }
        let in_turn = self.owned.iter().filter(|index| **index == TURN).count();
        assert!(in_turn == 0 && self.turn.is_clear() || in_turn == 1, "one connection at most has the turn");
        assert!(owners.iter().all(|owners| *owners == 1), "each buffer belongs to one connection or is free");
        let has_output = |conn: ConnId| self.owned_by(conn).is_some();
        assert!(self.dirty.iter(&self.links).all(has_output), "only what has output is to be written to");
        assert!(self.fresh.is_none_or(|conn| self.links.is_linked(conn)), "what is fresh is to be written to");
        self.buffers.iter().chain([&self.turn]).for_each(Buffer::check);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ServiceId;
    use poolcounter_core::wheel::Owner;

    fn id(n: usize) -> ConnId {
        ConnId::from_index(n)
    }

    fn say(output: &mut Output, conn: usize, text: &str) {
        output.reply(id(conn), |bytes| bytes.extend_from_slice(text.as_bytes()));
        output.check();
    }

    #[test]
    fn connections_are_flushed_by_their_last_reply() {
        let mut output = Output::default();
        output.begin_turn(id(1));
        say(&mut output, 1, "first\n");
        say(&mut output, 2, "DONE\n");
        say(&mut output, 1, "RELEASED\n");
        assert!(!output.end_turn(id(1)), "others come first");
        assert_eq!(output.unsent(id(1)), b"first\nRELEASED\n");
        assert_eq!([(); 3].map(|()| output.pop_fresh()), [Some(id(2)), Some(id(1)), None]);
    }

    #[test]
    fn connection_that_is_answered_alone_is_written_to_at_once() {
        let mut output = Output::default();
        output.begin_turn(id(1));
        assert!(!output.end_turn(id(1)), "there is no reply");
        output.begin_turn(id(1));
        say(&mut output, 1, "LOCKED\n");
        assert!(output.end_turn(id(1)) && !output.is_dirty());
        say(&mut output, 1, "DONE\n");
        assert_eq!((output.pop_fresh(), output.unsent(id(1))), (Some(id(1)), &b"LOCKED\nDONE\n"[..]));
    }

    #[test]
    fn usual_reply_needs_no_buffer_of_its_own() {
        let mut output = Output::default();
        let ask = |output: &mut Output, conn, sent| {
            output.begin_turn(id(conn));
            say(output, conn, "LOCKED\n");
            assert!(output.end_turn(id(conn)));
            output.consume(id(conn), sent);
            output.leave_turn(id(conn));
            output.check();
        };
        (0..100).for_each(|conn| ask(&mut output, conn, 7));
        assert!(output.buffers.is_empty() && output.is_empty());
        ask(&mut output, 1, 3);
        ask(&mut output, 2, 7);
        assert_eq!((output.unsent(id(1)), output.unsent(id(2)), output.buffers.len()), (&b"KED\n"[..], &b""[..], 1));
    }

    #[test]
    fn single_reply_is_sent_before_a_crowd() {
        let mut output = Output::default();
        let ask = |output: &mut Output, conn| {
            output.begin_turn(id(conn));
            say(output, conn, "LOCKED\n");
            assert!(!output.end_turn(id(conn)), "others come first");
        };
        output.begin_turn(id(0));
        (0..CROWD + 5).for_each(|conn| say(&mut output, 1000 + conn, "DONE\n"));
        assert!(!output.end_turn(id(0)), "there is no reply");
        ask(&mut output, 6);
        ask(&mut output, 3);
        output.discard(id(6));
        ask(&mut output, 7);
        say(&mut output, 8, "DONE\n");
        (0..CROWD).for_each(|conn| assert_eq!(output.pop_fresh(), Some(id(1000 + conn)), "a few are no crowd"));
        assert_eq!(output.pop_oldest(), Some(id(1000 + CROWD)));
        assert_eq!([(); 3].map(|()| output.pop_fresh()), [Some(id(3)), Some(id(7)), None]);
        output.end_tick();
        ask(&mut output, 8);
        assert_eq!(output.pop_fresh(), Some(id(8)), "also the last of those left over");
        (1..5).for_each(|conn| assert_eq!(output.pop_oldest(), Some(id(1000 + CROWD + conn))));
        assert_eq!(output.pop_oldest(), None);
        output.check();
    }

    #[test]
    fn partial_send_keeps_the_rest() {
        let mut output = Output::default();
        say(&mut output, 7, "LOCKED\nRELEASED\n");
        output.consume(id(7), 9);
        assert_eq!(output.unsent(id(7)), b"LEASED\n");
        say(&mut output, 7, "DONE\n");
        assert_eq!(output.discard(id(7)), 2);
        assert!(output.is_empty());
        output.check();
    }

    #[test]
    fn buffer_is_used_again() {
        let mut output = Output::default();
        for conn in 0..100 {
            say(&mut output, conn, "LOCKED\n");
            output.consume(id(conn), 7);
        }
        assert!(!output.is_dirty());
        assert_eq!(output.buffers.len(), 1);
        assert_eq!(output.discard(id(3)), 0);
    }

    #[test]
    fn connection_with_much_output_is_full() {
        let mut output = Output::default();
        say(&mut output, 0, &"x".repeat(FULL_BYTES - 1));
        assert!(!output.is_full(id(0)));
        say(&mut output, 0, "x");
        assert!(output.is_full(id(0)));
        output.consume(id(0), FULL_BYTES - 2);
        assert_eq!(output.unsent(id(0)), b"xx");
        assert!(!output.is_full(id(0)));
        output.discard(id(0));
        assert!(output.buffers.iter().all(|buffer| buffer.bytes.capacity() <= SPARE_BYTES));
    }

    fn say_after(output: &mut Output, conn: usize, commit: u64, text: &str) {
        say_held(output, conn, Promise { commit, about: commit, follows: false }, text);
    }

    fn say_held(output: &mut Output, conn: usize, promise: Promise, text: &str) {
        output.reply_after(id(conn), service(), promise, |bytes| bytes.extend_from_slice(text.as_bytes()));
        output.check();
    }

    fn service() -> ServiceId {
        ServiceId::of(Owner(0))
    }

    #[test]
    fn reply_and_its_followers_wait_for_its_commit() {
        let mut output = Output::default();
        say(&mut output, 1, "a");
        say_after(&mut output, 1, 5, "b");
        say(&mut output, 1, "c");
        say_after(&mut output, 1, 6, "d");
        say_after(&mut output, 2, 6, "e");
        assert_eq!((output.unsent(id(1)), output.unsent(id(2)), output.len(id(1))), (&b"a"[..], &b""[..], 4));
        output.consume(id(1), 1);
        output.release_up_to(service(), 4);
        assert_eq!(output.unsent(id(1)), b"");
        output.release_up_to(service(), 5);
        assert_eq!(output.unsent(id(1)), b"bc");
        // Another connection reuses the id of a closed one, and waits for a commit of its own.
        output.discard(id(2));
        say_after(&mut output, 2, 7, "f");
        output.release_up_to(service(), 6);
        assert_eq!((output.unsent(id(1)), output.unsent(id(2))), (&b"bcd"[..], &b""[..]));
        output.release_up_to(service(), 7);
        assert_eq!(output.unsent(id(2)), b"f");
        assert!(!output.is_held() && output.pending.is_empty());
    }

    #[test]
    fn waiting_replies_can_be_replaced() {
        let mut output = Output::default();
        say_after(&mut output, 1, 1, "INSERTED 1\n");
        say(&mut output, 1, "RESERVED\n");
        say_after(&mut output, 1, 2, "DELETED\n");
        say_after(&mut output, 1, 3, "BURIED\n");
        say(&mut output, 1, "OK\n");
        output.replace_up_to(service(), 2, |bytes| bytes.extend_from_slice(b"ERROR\n"));
        output.check();
        assert_eq!(output.unsent(id(1)), b"ERROR\nRESERVED\nERROR\n");
        output.release_up_to(service(), 3);
        assert_eq!(output.unsent(id(1)), b"ERROR\nRESERVED\nERROR\nBURIED\nOK\n");
    }

    #[test]
    fn waiting_reply_can_be_replaced() {
        let mut output = Output::default();
        (1..=3).for_each(|commit| say_after(&mut output, 1, commit, "INSERTED\n"));
        say_after(&mut output, 2, 4, "DELETED\n");
        let is_meant = |_, about| about == 2 || about == 4;
        output.reword(service(), is_meant, false, |bytes| bytes.extend_from_slice(b"ERROR\n"));
        output.check();
        assert_eq!((output.unsent(id(1)), output.unsent(id(2))), (&b""[..], &b"ERROR\n"[..]), "the first still waits");
        output.release_up_to(service(), 2);
        assert_eq!(output.unsent(id(1)), b"INSERTED\nERROR\n");
        output.release_up_to(service(), 4);
        assert_eq!(output.unsent(id(1)), b"INSERTED\nERROR\nINSERTED\n");
        assert!(output.pending.is_empty());
    }

    #[test]
    fn one_reply_can_replace_all_of_a_request() {
        let mut output = Output::default();
        say_after(&mut output, 1, 1, "DELETED\n");
        for (about, follows) in [(0, false), (7, true), (8, true), (9, false)] {
            say_held(&mut output, 1, Promise { commit: 2, about, follows }, "INSERTED\n");
        }
        say(&mut output, 1, "OK\n");
        output.reword(service(), |_, about| about == 8, true, |bytes| bytes.extend_from_slice(b"FULL\n"));
        output.check();
        output.release_up_to(service(), 1);
        assert_eq!((output.unsent(id(1)), output.replies(id(1))), (&b"DELETED\nFULL\n"[..], 4));
        output.release_up_to(service(), 2);
        assert_eq!(output.unsent(id(1)), b"DELETED\nFULL\nINSERTED\nOK\n");
    }
}
