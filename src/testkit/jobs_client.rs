//! A client of the jobs service, or of a beanstalkd, that awaits each reply.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a reply, longer than any takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// One connection.
pub struct JobsClient {
    reader: BufReader<TcpStream>,
}

impl JobsClient {
    /// Connects to a server.
    pub fn to(address: SocketAddr) -> JobsClient {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        JobsClient { reader: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("the connection is open");
    }

    /// Closes one side of the connection, or both.
    pub fn shut_down(&mut self, how: Shutdown) {
        self.reader.get_mut().shutdown(how).expect("the connection is open");
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
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line comes in time");
        line.trim_end_matches("\r\n").into()
    }

    /// Returns a body of this length, without its end.
    pub fn body(&mut self, len: usize) -> Vec<u8> {
        let mut body = vec![0; len + 2];
        self.reader.read_exact(&mut body).expect("a body comes in time");
        assert!(body.ends_with(b"\r\n"), "a body ends");
        body.truncate(len);
        body
    }

    /// Returns the value of a statistic in the reply to `question`.
    pub fn stat(&mut self, question: &str, name: &str) -> String {
        let head = self.ask(question);
        let len = head.strip_prefix("OK ").unwrap_or_else(|| panic!("{question}: {head}"));
        let text = String::from_utf8(self.body(len.parse().expect("a length"))).expect("is text");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("{name} is not in {text}")).into()
    }
}
