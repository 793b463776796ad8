//! What is to be sent to each connection, kept until the end of the tick. It knows no sockets.
//!
//! A connection owns a buffer only while something is unsent; emptied buffers are used again, so that the steady state
//! allocates nothing. Connections are flushed in the order of their last reply: whoever was told last is written to last.

use crate::id::{ConnId, Id};
use crate::list::{Links, List};

/// From this much unsent output on, a connection's requests are left unread until it drains.
pub const FULL_BYTES: usize = 64 * 1024;
/// A connection with more unsent output than this is closed: a service went on talking to somebody who does not listen.
pub const MAX_BYTES: usize = 1024 * 1024;
/// How many emptied buffers are kept for the next replies, and how large one may be: at most 4 MiB rest here.
const SPARE_BUFFERS: usize = 1024;
const SPARE_BYTES: usize = 4096;

const NO_BUFFER: u32 = u32::MAX;

#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// How much of `bytes` the peer has been sent.
    sent: usize,
    /// Replies in `bytes`.
    replies: u32,
}

/// Unsent replies by connection.
#[derive(Default)]
pub struct Output {
    /// Which buffer each connection owns, or `NO_BUFFER`.
    owned: Vec<u32>,
    buffers: Vec<Buffer>,
    /// Buffers that nobody owns.
    free: Vec<u32>,
    /// Connections with news to send in this tick.
    dirty: List<ConnId>,
    links: Links,
    /// Connections that went beyond `MAX_BYTES`.
    overflown: Vec<ConnId>,
}

impl Output {
    /// Adds one reply, whose bytes `write` appends.
    pub fn reply(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
        let buffer = self.buffer_of(conn);
        let before = buffer.bytes.len() - buffer.sent;
        write(&mut buffer.bytes);
        buffer.replies += 1;
        let after = buffer.bytes.len() - buffer.sent;
        if before <= MAX_BYTES && after > MAX_BYTES {
            self.overflown.push(conn);
        }
        self.touch(conn);
    }

    /// Gives back to a connection what another process left unsent, with how many replies that was.
    pub fn restore(&mut self, conn: ConnId, unsent: &[u8], replies: u32) {
        if !unsent.is_empty() {
            self.reply(conn, |bytes| bytes.extend_from_slice(unsent));
            self.buffer_of(conn).replies = replies;
        }
    }

    /// How many replies are in the connection's output, those partly sent among them.
    pub fn replies(&self, conn: ConnId) -> u32 {
        self.owned_by(conn).map_or(0, |buffer| buffer.replies)
    }

    /// Puts the connection at the end of those to be written to in this tick.
    pub fn touch(&mut self, conn: ConnId) {
        if self.dirty.back() == Some(conn) {
            return;
        }
        if self.links.is_linked(conn) {
            self.dirty.remove(&mut self.links, conn);
        }
        self.dirty.push_back(&mut self.links, conn);
    }

    /// The next connection to be written to.
    pub fn pop_dirty(&mut self) -> Option<ConnId> {
        self.dirty.pop_front(&mut self.links)
    }

    /// Whether some connection is to be written to.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// What the connection has not been sent yet.
    pub fn unsent(&self, conn: ConnId) -> &[u8] {
        self.owned_by(conn).map_or(&[], |buffer| &buffer.bytes[buffer.sent..])
    }

    /// Whether the connection must drain before it is served again.
    pub fn is_full(&self, conn: ConnId) -> bool {
        self.unsent(conn).len() >= FULL_BYTES
    }

    /// Notes that the first `len` unsent bytes are sent.
    pub fn consume(&mut self, conn: ConnId, len: usize) {
        let buffer = self.buffer_of(conn);
        buffer.sent += len;
        if buffer.sent == buffer.bytes.len() {
            self.discard(conn);
        } else if buffer.sent >= FULL_BYTES {
            buffer.bytes.drain(..buffer.sent);
            buffer.sent = 0;
        }
    }

    /// Forgets what the connection has not been sent, and tells how many replies were in the sends that failed.
    pub fn discard(&mut self, conn: ConnId) -> u32 {
        if self.links.is_linked(conn) {
            self.dirty.remove(&mut self.links, conn);
        }
        self.overflown.retain(|other| *other != conn);
        let Some(owned) = self.owned.get_mut(conn.index()).filter(|owned| **owned != NO_BUFFER) else { return 0 };
        let index = std::mem::replace(owned, NO_BUFFER);
        let buffer = &mut self.buffers[index as usize];
        let replies = if buffer.sent < buffer.bytes.len() { buffer.replies } else { 0 };
        let keep = self.free.len() < SPARE_BUFFERS && buffer.bytes.capacity() <= SPARE_BYTES;
        let mut bytes = if keep { std::mem::take(&mut buffer.bytes) } else { Vec::new() };
        bytes.clear();
        *buffer = Buffer { bytes, sent: 0, replies: 0 };
        self.free.push(index);
        replies
    }

    /// Takes a connection that went beyond the cap.
    pub fn pop_overflown(&mut self) -> Option<ConnId> {
        self.overflown.pop()
    }

    /// Whether nobody has anything unsent.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.buffers.len() && self.dirty.is_empty() && self.overflown.is_empty()
    }

    fn owned_by(&self, conn: ConnId) -> Option<&Buffer> {
        let index = *self.owned.get(conn.index())?;
        self.buffers.get(index as usize)
    }

    fn buffer_of(&mut self, conn: ConnId) -> &mut Buffer {
        if self.owned.len() <= conn.index() {
            self.owned.resize(conn.index() + 1, NO_BUFFER);
        }
        let owned = &mut self.owned[conn.index()];
        if *owned == NO_BUFFER {
            *owned = self.free.pop().unwrap_or_else(|| {
                self.buffers.push(Buffer::default());
                self.buffers.len() as u32 - 1
            });
        }
        &mut self.buffers[*owned as usize]
    }

    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        let mut owners = vec![0; self.buffers.len()];
        for index in self.owned.iter().filter(|index| **index != NO_BUFFER).chain(&self.free) {
            owners[*index as usize] += 1;
        }
        assert!(owners.iter().all(|owners| *owners == 1), "each buffer belongs to one connection or to nobody");
        assert!(self.buffers.iter().all(|buffer| buffer.sent <= buffer.bytes.len()), "more was sent than there is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: usize) -> ConnId {
        ConnId::from_index(n)
    }

    fn say(output: &mut Output, conn: usize, text: &str) {
        output.reply(id(conn), |bytes| bytes.extend_from_slice(text.as_bytes()));
        output.check();
    }

    #[test]
    fn is_flushed_in_the_order_of_the_last_reply() {
        let mut output = Output::default();
        say(&mut output, 1, "first\n");
        say(&mut output, 2, "DONE\n");
        say(&mut output, 1, "RELEASED\n");
        assert_eq!(output.unsent(id(1)), b"first\nRELEASED\n");
        assert_eq!([output.pop_dirty(), output.pop_dirty(), output.pop_dirty()], [Some(id(2)), Some(id(1)), None]);
    }

    #[test]
    fn keeps_what_a_partial_send_left() {
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
    fn a_buffer_is_used_again() {
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
    fn tells_who_is_full_and_who_overflows() {
        let mut output = Output::default();
        say(&mut output, 0, &"x".repeat(FULL_BYTES - 1));
        assert!(!output.is_full(id(0)));
        say(&mut output, 0, "x");
        assert!(output.is_full(id(0)));
        assert_eq!(output.pop_overflown(), None);
        say(&mut output, 0, &"x".repeat(MAX_BYTES - FULL_BYTES + 1));
        say(&mut output, 0, "x");
        assert_eq!([output.pop_overflown(), output.pop_overflown()], [Some(id(0)), None]);
        output.consume(id(0), MAX_BYTES);
        assert_eq!(output.unsent(id(0)), b"xx");
        assert!(!output.is_full(id(0)));
        output.discard(id(0));
        assert!(output.buffers.iter().all(|buffer| buffer.bytes.capacity() <= SPARE_BYTES));
    }
}
