//! The unsent output of one connection.

use std::collections::VecDeque;

/// What is unsent, and which replies it has.
#[derive(Default)]
pub struct Buffer {
    pub bytes: Vec<u8>,
    /// How many of `bytes` were sent.
    pub sent: usize,
    /// Replies in `bytes`.
    pub replies: u32,
    /// The replies that are held until a commit, in order.
    pub held: VecDeque<HeldReply>,
}

/// A reply in a buffer that is held until a commit.
pub struct HeldReply {
    /// Unique among all held replies.
    pub number: u64,
    /// Its range in the buffer.
    pub start: usize,
    pub end: usize,
}

impl Buffer {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.replies = 0;
        self.held.clear();
    }

    /// Returns how many of the bytes may be sent: all before the first held reply.
    pub fn sendable(&self) -> usize {
        self.held.front().map_or(self.bytes.len(), |held| held.start)
    }

    /// Has the held replies with these numbers, which are in order, say `text` instead. They are held as before.
    pub fn reword(&mut self, numbers: &[u64], text: &[u8]) {
        let rest = std::mem::take(&mut self.bytes);
        let mut copied = 0;
        for held in &mut self.held {
            self.bytes.extend_from_slice(&rest[copied..held.start]);
            copied = held.end;
            let is_other = numbers.binary_search(&held.number).is_ok();
            let said = if is_other { text } else { &rest[held.start..held.end] };
            held.start = self.bytes.len();
            self.bytes.extend_from_slice(said);
            held.end = self.bytes.len();
        }
        self.bytes.extend_from_slice(&rest[copied..]);
    }
}
