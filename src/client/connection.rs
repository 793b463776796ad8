//! One connection to a server: sends a request and waits for the answer, within a deadline. It knows no protocol.
//!
//! Invariant: a caller that gets a [`Fault`] drops the connection. So an answer that comes late is never taken for that to the
//! next request.

use super::LONGEST;
use super::error::Fault;
use super::stream::ClientStream;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// The longest line of a server is one of `STATS`. Anything longer is garbage.
const LONGEST_LINE: usize = 64 * 1024;
/// The most that is kept of what a server sends by itself. A provider of a thousand members can be asked to stop and check each of
/// them while a command of its own takes its time: 600 bytes a line, at most.
const MOST_PENDING: usize = 4 << 20;
/// How often a caller is called back during a wait.
const TICK: Duration = Duration::from_secs(1);
/// How much is read at a time.
const CHUNK: usize = 4096;
/// The shortest timeout of a socket: zero would mean none.
pub(super) const SHORTEST: Duration = Duration::from_micros(1);

/// A connection.
#[derive(Debug)]
pub(super) struct ClientConnection {
    stream: ClientStream,
    /// The server's address, with the port.
    address: String,
    /// What was received.
    input: Vec<u8>,
    /// How much of it was read.
    read: usize,
    /// How long the server may take to answer, without the wait that the request asks for.
    answer_timeout: Duration,
    /// The deadline of the present answer.
    deadline: Instant,
}

impl ClientConnection {
    /// Returns the connection on a stream that is connected to this address.
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
            // It has sent more than one answer.
            return Err(Fault::Garbled);
        }
        self.send_amid_notices(request, wait)
    }

    /// Sends a request like [`ClientConnection::send`] to a server that also sends lines by itself, some of which may not be read yet.
    pub fn send_amid_notices(&mut self, request: &[u8], wait: Duration) -> Result<(), Fault> {
        self.stream.write_all(request)?;
        self.deadline = Instant::now() + wait.min(LONGEST) + self.answer_timeout;
        Ok(())
    }

    /// Returns the lines that have come without being asked for. Does not wait.
    pub fn pending_lines(&mut self) -> Result<Vec<Vec<u8>>, Fault> {
        self.stream.set_nonblocking(true)?;
        let received = self.receive_pending();
        self.stream.set_nonblocking(false)?;
        received?;
        let mut lines = Vec::new();
        while let Some(len) = self.input[self.read..].iter().position(|byte| *byte == b'\n') {
            lines.push(self.input[self.read..][..len].to_vec());
            self.read += len + 1;
        }
        Ok(lines)
    }

    /// Returns the next line that comes without being asked for; None when none comes within the time.
    pub fn line_within(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, Fault> {
        self.deadline = Instant::now() + timeout.min(LONGEST);
        match self.line() {
            Ok(line) => Ok(Some(line)),
            Err(Fault::Silent) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Renews the deadline for the next part of an answer in many parts.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + self.answer_timeout;
    }

    /// Returns the next line of the answer, without its line feed.
    pub fn line(&mut self) -> Result<Vec<u8>, Fault> {
        self.line_with_progress(&mut || {})
    }

    /// The same, and calls `on_tick` about each second until it is here.
    pub fn line_with_progress(&mut self, on_tick: &mut dyn FnMut()) -> Result<Vec<u8>, Fault> {
        self.next_line(None, on_tick)
    }

    /// Returns the next line, or `unended` when that is all that has come: some servers end it with nothing.
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

    /// Returns its descriptor, to be polled.
    pub fn descriptor(&self) -> RawFd {
        self.stream.as_fd().as_raw_fd()
    }

    /// Its descriptor, for as long as it is borrowed.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns true when the server has closed it or said something that was not asked for, as one does that takes a lock away, or the
    /// network has failed. To be called between requests. Does not wait.
    pub fn is_closed(&self) -> bool {
        self.stream.has_news()
    }

    /// Returns the next `len` bytes of the answer.
    pub fn bytes(&mut self, len: usize) -> Result<Vec<u8>, Fault> {
        while self.input.len() - self.read < len {
            self.receive()?;
        }
        let bytes = self.input[self.read..][..len].to_vec();
        self.read += len;
        Ok(bytes)
    }

    /// Receives all that is there, so that the next to come is news to whoever polls the descriptor.
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

    /// Discards the bytes that were read, and waits for more, but not longer than a tick. Returns true when some came.
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
