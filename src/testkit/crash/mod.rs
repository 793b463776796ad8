//! Whether a store of jobs keeps its promises: clients at random, what they were told, what stands after a crash, and whether
//! that can be.

#![allow(dead_code, reason = "each test uses its own part")]

pub mod actor;
pub mod history;
pub mod kept_rows;
pub mod registers;
pub mod shape;
pub mod sim;
pub mod speakers;
pub mod survey;

/// What one reply was: its line, and the body behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    pub line: String,
    pub body: Vec<u8>,
}

impl Told {
    /// A reply without a body.
    pub fn line(line: &str) -> Told {
        Told { line: line.into(), body: Vec::new() }
    }

    /// A reply as it came.
    pub fn of(reply: &[u8]) -> Told {
        let text = String::from_utf8_lossy(reply);
        let line = text.split("\r\n").next().unwrap_or_default().to_string();
        let body = reply.get(line.len() + 2..).unwrap_or_default().to_vec();
        Told { line, body }
    }

    /// The number behind `word`, if the line begins with that.
    pub fn number(&self, word: &str) -> Option<u64> {
        self.line.strip_prefix(word)?.strip_prefix(' ')?.split(' ').next()?.parse().ok()
    }

    /// The length of the body that follows a line.
    pub fn body_len(line: &str) -> Option<usize> {
        let mut words = line.split(' ');
        let has_body = matches!(words.next(), Some("OK" | "RESERVED" | "FOUND"));
        words.next_back().filter(|_| has_body)?.parse().ok()
    }
}
