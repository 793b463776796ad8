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

    /// Replaces the held replies up to this one by `text`.
    pub fn replace(&mut self, last: u64, text: &[u8]) {
        let rest = std::mem::take(&mut self.bytes);
        let mut copied = 0;
        while let Some(HeldReply { start, end, .. }) = self.held.front().filter(|held| held.number <= last) {
            let (start, end) = (*start, *end);
            self.held.pop_front();
            self.bytes.extend_from_slice(&rest[copied..start]);
            self.bytes.extend_from_slice(text);
            copied = end;
        }
        let (before, now) = (copied, self.bytes.len());
        self.bytes.extend_from_slice(&rest[copied..]);
        for held in &mut self.held {
            held.start = held.start - before + now;
            held.end = held.end - before + now;
        }
    }
}
