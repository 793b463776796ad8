//! A client of the jobs service, or of a beanstalkd, that awaits each reply.

use super::daemon::{Client, derefs_to_client};
use std::net::SocketAddr;

/// One connection.
pub struct JobsClient(Client);

derefs_to_client!(JobsClient);

impl JobsClient {
    /// Connects to a server.
    pub fn to(address: SocketAddr) -> JobsClient {
        JobsClient(Client::to(address))
    }

    /// Sends a line and returns the line of the reply, without its end.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        self.line()
    }

    /// Puts a job, and returns the reply.
    pub fn put(&mut self, how: &str, body: &[u8]) -> String {
        self.send(format!("put {how} {}\r\n", body.len()).as_bytes());
        self.send(body);
        self.send(b"\r\n");
        self.line()
    }

    /// Returns the next line, without its end.
    pub fn line(&mut self) -> String {
        self.0.line().trim_end_matches('\r').into()
    }

    /// Returns a body of this length, without its end.
    pub fn body(&mut self, len: usize) -> Vec<u8> {
        let mut body = self.bytes(len + 2);
        assert!(body.ends_with(b"\r\n"), "a body ends");
        body.truncate(len);
        body
    }

    /// Asks a question, and returns the line of the reply and the text behind it, if there is one.
    pub fn text(&mut self, question: &str) -> (String, String) {
        let head = self.ask(question);
        let announced = ["OK ", "FOUND "].iter().find_map(|word| head.strip_prefix(word)?.split(' ').next_back());
        let Some(len) = announced else { return (head, String::new()) };
        let text = String::from_utf8(self.body(len.parse().expect("a length"))).expect("is text");
        (head, text)
    }

    /// Returns the value of a statistic in the reply to `question`.
    pub fn stat(&mut self, question: &str, name: &str) -> String {
        let (head, text) = self.text(question);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("{name} is not in {head}, {text}")).into()
    }
}
