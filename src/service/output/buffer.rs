//! Unsent output of one connection.

use std::collections::VecDeque;

/// Commit that a reply waits for, and its subject.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promise {
    /// Commit after which the reply may be sent.
    pub commit: u64,
    /// Subject of the reply, as numbered by the service; zero for none. It is for [`Output::reword`](super::Output::reword).
    pub about: u64,
    /// True if it answers the same request as the reply to the connection before it, which is held, too.
    pub follows: bool,
}

/// Unsent bytes, with the replies in them.
#[derive(Default)]
pub struct Buffer {
    pub bytes: Vec<u8>,
    /// Number of leading `bytes` that were sent.
    pub sent: usize,
    /// Number of replies in `bytes`.
    pub replies: u32,
    /// Replies held until a commit, in order.
    pub held: VecDeque<HeldReply>,
}

/// Unsent output of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Unsent<'a> {
    /// Bytes that may be sent now.
    pub bytes: &'a [u8],
    /// Number of all unsent bytes, including held bytes.
    pub len: usize,
    /// True if a reply waits for a commit.
    pub is_held: bool,
}

/// Reply in a buffer that is held until a commit.
#[derive(Clone, Copy)]
pub struct HeldReply {
    /// Number, unique among all held replies.
    pub number: u64,
    /// True if it answers the same request as the held reply before it.
    pub follows: bool,
    /// Range in the buffer.
    pub start: usize,
    pub end: usize,
}

impl Buffer {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sent = 0;
        self.replies = 0;
        // Most services hold no replies.
        if !self.held.is_empty() {
            self.held.clear();
        }
    }

    /// Returns true if nothing is left of an earlier use.
    pub fn is_clear(&self) -> bool {
        (self.bytes.len(), self.sent, self.replies, self.held.len()) == (0, 0, 0, 0)
    }

    /// Returns the number of bytes that may be sent: all before the first held reply.
    pub fn sendable(&self) -> usize {
        self.held.front().map_or(self.bytes.len(), |held| held.start)
    }

    /// Returns the bytes that are not sent.
    #[inline]
    pub fn unsent(&self) -> Unsent<'_> {
        let (bytes, is_held) = (&self.bytes[self.sent..self.sendable()], !self.held.is_empty());
        Unsent { bytes, len: self.bytes.len() - self.sent, is_held }
    }

    /// Removes the bytes that were sent.
    pub fn drop_sent(&mut self) {
        self.bytes.drain(..self.sent);
        for held in &mut self.held {
            held.start -= self.sent;
            held.end -= self.sent;
        }
        self.sent = 0;
    }

    /// Replaces the held replies with these numbers (ascending) by `text`, and releases them. With `whole`, one `text`
    /// takes the place of all replies to the same request.
    pub fn reword(&mut self, numbers: &[u64], text: &[u8], whole: bool) {
        let (rest, held) = (std::mem::take(&mut self.bytes), Vec::from(std::mem::take(&mut self.held)));
        let mut copied = 0;
        for replies in held.chunk_by(|_, next| whole && next.follows) {
            if replies.iter().any(|reply| numbers.binary_search(&reply.number).is_ok()) {
                self.bytes.extend_from_slice(&rest[copied..replies[0].start]);
                self.bytes.extend_from_slice(text);
                copied = replies[replies.len() - 1].end;
                // Lossless: a request has a thousand replies at most.
                self.replies -= (replies.len() - 1) as u32;
                continue;
            }
            for reply in replies {
                self.bytes.extend_from_slice(&rest[copied..reply.end]);
                copied = reply.end;
                let end = self.bytes.len();
                self.held.push_back(HeldReply { start: end - (reply.end - reply.start), end, ..*reply });
            }
        }
        self.bytes.extend_from_slice(&rest[copied..]);
    }

    /// Checks that the places of sent bytes and held replies are in order.
    ///
    /// # Panics
    ///
    /// Panics if they are not.
    pub fn check(&self) {
        assert!(self.sent <= self.sendable() && self.sendable() <= self.bytes.len(), "more was sent than may be");
        let ends = self.held.iter().flat_map(|held| [held.start, held.end]).chain([self.bytes.len()]);
        assert!(ends.is_sorted(), "held replies do not overlap");
    }
}
