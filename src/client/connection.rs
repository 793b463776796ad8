//! One connection to a server: sends a request and waits for the reply, within a deadline. Independent of the protocol.
//!
//! Invariant: a caller that gets a [`Fault`] drops the connection, so that a late reply is never taken for the reply to
//! the next request.

use super::LONGEST;
use super::error::Fault;
use super::stream::ClientStream;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// Longest line of a server, in bytes; longer ones are garbage. The longest in use is one of `STATS`.
const LONGEST_LINE: usize = 64 * 1024;
/// Limit of the buffer for lines that a server sends unasked, in bytes. A provider of a thousand members can receive a
/// stop and a check for each while one of its own commands runs, of at most 600 bytes a line.
const MOST_PENDING: usize = 4 << 20;
/// Interval of progress callbacks during a wait.
const TICK: Duration = Duration::from_secs(1);
/// Bytes of one read.
const CHUNK: usize = 4096;
/// Shortest timeout of a socket; zero would mean no timeout.
pub(super) const SHORTEST: Duration = Duration::from_micros(1);

/// Connection to a server, blocking.
#[derive(Debug)]
pub(super) struct ClientConnection {
    stream: ClientStream,
    /// The server's address, with the port.
    address: String,
    /// Received bytes.
    input: Vec<u8>,
    /// Number of bytes of `input` already read.
    read: usize,
    /// Time limit of a reply, without the wait that the request asks for.
    answer_timeout: Duration,
    /// Deadline of the current reply.
    deadline: Instant,
}

impl ClientConnection {
    /// Returns the connection on a connected stream.
    pub fn new(stream: ClientStream, address: String, answer_timeout: Duration) -> ClientConnection {
        ClientConnection { stream, address, input: Vec::new(), read: 0, answer_timeout, deadline: Instant::now() }
    }

    /// Returns the server's address, with the port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request that may wait at the server for as long as `wait`.
    pub fn send(&mut self, request: &[u8], wait: Duration) -> Result<(), Fault> {
        if self.read < self.input.len() {
            // The server has sent more than one reply.
            return Err(Fault::Garbled);
        }
        self.send_amid_notices(request, wait)
    }

    /// Sends a request like [`ClientConnection::send`], but allows unread input: the server also sends lines unasked.
    pub fn send_amid_notices(&mut self, request: &[u8], wait: Duration) -> Result<(), Fault> {
        self.stream.write_all(request)?;
        self.deadline = Instant::now() + wait.min(LONGEST) + self.answer_timeout;
        Ok(())
    }

    /// Begins the next reply, to one of several requests that were sent together.
    pub fn next_reply(&mut self) {
        self.begin_reply(self.answer_timeout);
    }

    fn begin_reply(&mut self, within: Duration) {
        self.deadline = Instant::now() + within;
        self.budget = LARGEST_REPLY;
    }

    /// Returns the complete lines that the server has sent unasked, and the fault that ended the connection behind
    /// them, if any. Does not wait.
    pub fn pending_lines(&mut self) -> (Vec<Vec<u8>>, Result<(), Fault>) {
        let received = self.stream.set_nonblocking(true).map_err(Fault::from).and_then(|()| self.receive_pending());
        let received = received.and(self.stream.set_nonblocking(false).map_err(Fault::from));
        let mut lines = Vec::new();
        while let Some(len) = self.input[self.read..].iter().position(|byte| *byte == b'\n') {
            lines.push(self.input[self.read..][..len].to_vec());
            self.read += len + 1;
        }
        (lines, received)
    }

    /// Returns the next line that the server sends unasked; None after `timeout`.
    pub fn line_within(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, Fault> {
        self.deadline = Instant::now() + timeout.min(LONGEST);
        match self.line() {
            Ok(line) => Ok(Some(line)),
            Err(Fault::Silent) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Renews the deadline for the next part of a reply in many parts.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + self.answer_timeout;
    }

    /// Returns the next line of the reply, without its line feed.
    pub fn line(&mut self) -> Result<Vec<u8>, Fault> {
        self.line_with_progress(&mut || {})
    }

    /// Returns the next line like [`ClientConnection::line`], and calls `on_tick` about every second until then.
    pub fn line_with_progress(&mut self, on_tick: &mut dyn FnMut()) -> Result<Vec<u8>, Fault> {
        self.next_line(None, on_tick)
    }

    /// Returns the next line, or `unended` as soon as the input equals it: some servers send that line without a line
    /// feed.
    pub fn line_or(&mut self, unended: &[u8]) -> Result<Vec<u8>, Fault> {
        self.next_line(Some(unended), &mut || {})
    }

    fn next_line(&mut self, unended: Option<&[u8]>, on_tick: &mut dyn FnMut()) -> Result<Vec<u8>, Fault> {
        let mut searched = 0;
        loop {
            let unread = &self.input[self.read..];
            if let Some(len) = unread[searched..].iter().position(|byte| *byte == b'\n') {
                let line = unread[..searched + len].to_vec();
                self.read += line.len() + 1;
                return Ok(line);
            }
            searched = unread.len();
            if Some(unread) == unended {
                self.read += searched;
                return Ok(unended.unwrap_or_default().to_vec());
            }
            if searched > LONGEST_LINE {
                return Err(Fault::Garbled);
            }
            if !self.receive()? {
                on_tick();
            }
        }
    }

    /// Returns the descriptor, for polling.
    pub fn descriptor(&self) -> RawFd {
        self.stream.as_fd().as_raw_fd()
    }

    /// Returns the borrowed descriptor.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns true if the connection has unread input (as when a server revokes a lock), is closed or has failed. For
    /// use between requests. Does not wait.
    pub fn is_closed(&self) -> bool {
        self.stream.has_news()
    }

    /// Returns the next `len` bytes of the reply.
    pub fn bytes(&mut self, len: usize) -> Result<Vec<u8>, Fault> {
        while self.input.len() - self.read < len {
            self.receive()?;
        }
        let bytes = self.input[self.read..][..len].to_vec();
        self.read += len;
        Ok(bytes)
    }

    /// Receives everything available, so that a poll of the descriptor reports only new input.
    fn receive_pending(&mut self) -> Result<(), Fault> {
        self.input.drain(..self.read);
        self.read = 0;
        let mut chunk = [0; CHUNK];
        while self.input.len() <= MOST_PENDING {
            match self.stream.read_to(&mut self.input, &mut chunk) {
                Ok(0) => return Err(Fault::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Fault::Garbled)
    }

    /// Discards the bytes already read and waits for more, at most one [`TICK`]. Returns true if some were received.
    fn receive(&mut self) -> Result<bool, Fault> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::Silent);
        }
        self.stream.set_read_timeout(left.min(TICK).max(SHORTEST))?;
        self.input.drain(..self.read);
        self.read = 0;
        let mut chunk = [0; CHUNK];
        match self.stream.read_to(&mut self.input, &mut chunk) {
            Ok(0) => Err(Fault::Closed),
            Ok(_) => Ok(true),
            // The deadline is checked before the next read.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
