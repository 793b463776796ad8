//! Protocols of conversations: the encoding of the text of a step, and the end of a reply. Everything else is the same
//! for all.

use super::pattern::Pattern;
use super::{frames, jobs_text, lines};
use std::collections::VecDeque;

/// Protocol of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Lines.
    Pools,
    /// Frames: a header that tells the length of the body.
    Counters,
    /// Lines that end in CR LF, some with a body behind them.
    Jobs,
    /// Lines of another kind.
    Members,
}

impl Protocol {
    /// Every protocol.
    pub const ALL: [Protocol; 4] = [Protocol::Pools, Protocol::Counters, Protocol::Members, Protocol::Jobs];

    /// Returns the service that speaks it.
    pub fn kind(self) -> &'static str {
        match self {
            Protocol::Pools => "pools",
            Protocol::Counters => "counters",
            Protocol::Jobs => "jobs",
            Protocol::Members => "members",
        }
    }

    /// Returns the request that a text describes.
    pub fn request(self, text: &str) -> Result<Vec<u8>, String> {
        match self {
            Protocol::Pools | Protocol::Members => lines::line(text),
            Protocol::Counters => frames::request(text),
            Protocol::Jobs => jobs_text::request(text),
        }
    }

    /// Returns the bytes that a text describes, which may be any part of a request or several.
    pub fn bytes(self, text: &str) -> Result<Vec<u8>, String> {
        match self {
            Protocol::Pools | Protocol::Members | Protocol::Jobs => lines::unescape(text),
            Protocol::Counters => frames::request(text),
        }
    }

    /// Returns the reply that a text describes.
    pub fn reply(self, text: &str) -> Result<Pattern, String> {
        match self {
            Protocol::Pools | Protocol::Members => lines::pattern(text),
            Protocol::Counters => frames::reply(text),
            Protocol::Jobs => jobs_text::reply(text),
        }
    }

    /// Takes the first whole reply from the received bytes.
    pub fn take_reply(self, received: &mut VecDeque<u8>) -> Option<Vec<u8>> {
        match self {
            Protocol::Pools | Protocol::Members => {
                let end = received.iter().position(|byte| *byte == b'\n')?;
                let line = received.drain(..end).collect();
                received.pop_front();
                Some(line)
            }
            Protocol::Counters => {
                let len = frames::first_len(received.make_contiguous())?;
                Some(received.drain(..len).collect())
            }
            Protocol::Jobs => jobs_text::take_reply(received),
        }
    }

    /// Returns whether a reply is the last of several.
    pub fn ends_list(self, reply: &[u8]) -> bool {
        match self {
            Protocol::Pools | Protocol::Members => reply.is_empty(),
            Protocol::Counters => reply.len() == frames::HEADER_BYTES,
            Protocol::Jobs => reply == b"END",
        }
    }

    /// Returns whether the script must list all replies before the next step.
    pub fn is_written_in_full(self) -> bool {
        self == Protocol::Members
    }

    /// Returns bytes as people read them.
    pub fn describe(self, bytes: &[u8]) -> String {
        match self {
            Protocol::Pools | Protocol::Members | Protocol::Jobs => format!("\"{}\"", bytes.escape_ascii()),
            Protocol::Counters => frames::describe(bytes),
        }
    }

    /// Returns a request that every server answers at once with one reply, and that changes nothing.
    pub fn probe(self) -> &'static [u8] {
        match self {
            Protocol::Members => b"?\n",
            Protocol::Pools => b"STATS uptime\n",
            Protocol::Counters => b"\x90\0\0\0\0\0\0\0what",
            Protocol::Jobs => b"list-tube-used\r\n",
        }
    }
}
