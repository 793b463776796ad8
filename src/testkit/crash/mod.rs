//! Checks that a store of jobs keeps its promises: random clients, their replies, the state found after a crash, and
//! whether that state is possible.

#![allow(dead_code, reason = "each test uses its own part")]

pub mod actor;
pub mod history;
pub mod registers;
pub mod shape;
pub mod speakers;
pub mod survey;

/// One reply: its line, and the body behind it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    pub line: String,
    pub body: Vec<u8>,
}

impl Response {
    /// Returns a reply without a body.
    pub fn line(line: &str) -> Response {
        Response { line: line.into(), body: Vec::new() }
    }

    /// Returns a received reply.
    pub fn of(reply: &[u8]) -> Response {
        let text = String::from_utf8_lossy(reply);
        let line = text.split("\r\n").next().unwrap_or_default().to_string();
        let body = reply.get(line.len() + 2..).unwrap_or_default().to_vec();
        Response { line, body }
    }

    /// Returns the number behind `word`, if the line begins with that.
    pub fn number(&self, word: &str) -> Option<u64> {
        self.line.strip_prefix(word)?.strip_prefix(' ')?.split(' ').next()?.parse().ok()
    }

    /// Returns the length of the body that follows a line.
    pub fn body_len(line: &str) -> Option<usize> {
        let mut words = line.split(' ');
        let has_body = matches!(words.next(), Some("OK" | "RESERVED" | "FOUND"));
        words.next_back().filter(|_| has_body)?.parse().ok()
    }
}
