//! One connection to a server: sends a request and reads the reply, within a deadline and a budget for the whole reply.
//! Independent of the protocol.
//!
//! Invariant: a caller that gets a [`Fault`] drops the connection, so that a late reply is never taken for the reply to
//! the next request.

use super::LONGEST;
use super::error::Fault;
use super::stream::ClientStream;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest line of a server, in bytes; a longer line is garbage. The longest line in use is of `STATS`.
const LONGEST_LINE: usize = 64 * 1024;
/// Budget of a reply, in bytes with [`LINE_COST`] for each line: a reply without an end must not use up the memory. A
/// list of 2^20 members, the default limit of a server, has 128 bytes for each row.
const LARGEST_REPLY: usize = 256 << 20;
/// Bytes that a line costs besides its own: about what its reader keeps for it.
const LINE_COST: usize = 128;
/// Bytes of a reply that extend its deadline by another reply timeout. Slower replies are given up.
pub(super) const PART: usize = 1 << 20;
/// Limit of the buffer for lines that a server sends unasked, in bytes. A provider of a thousand members can receive a
/// stop and a check for each while one of its own commands runs, of at most 600 bytes a line.
const MOST_PENDING: usize = 4 << 20;
/// Interval of progress callbacks during a wait.
const TICK: Duration = Duration::from_secs(1);
/// Interval of probes during a wait. A server that has not answered one by the time of the next hangs.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// Bytes of one read.
const CHUNK: usize = 4096;
/// Shortest timeout of a socket; zero would mean no timeout.
pub(super) const SHORTEST: Duration = Duration::from_micros(1);

/// Number of the next connection.
static OPENED: AtomicU64 = AtomicU64::new(1);

/// Connection to a server, blocking.
#[derive(Debug)]
pub(super) struct ClientConnection {
    stream: ClientStream,
    /// Number that no other connection of this process has had.
    pub number: u64,
    /// The server's address, with the port.
    pub address: String,
    /// Received bytes.
    input: Vec<u8>,
    /// Number of bytes of `input` already read.
    read: usize,
    /// Time limit of a reply, without the wait that the request asks for.
    answer_timeout: Duration,
    /// Deadline of the current reply.
    deadline: Instant,
    /// Rest of the budget of the current reply.
    budget: usize,
    /// Lines that the server has sent unasked, which came before a reply.
    pub notices: Vec<Vec<u8>>,
    /// Probe that was sent and not answered.
    unanswered: Option<Probe>,
    probe_every: Duration,
}

/// Request that a server answers with one line at once, while another request waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub request: &'static [u8],
    /// Returns true for its reply, and false for that of the request that waits.
    pub is_reply: fn(&[u8]) -> bool,
}

impl ClientConnection {
    /// Returns the connection on a connected stream.
    pub fn new(stream: ClientStream, address: String, answer_timeout: Duration) -> ClientConnection {
        ClientConnection {
            stream,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            address,
            input: Vec::new(),
            read: 0,
            answer_timeout,
            deadline: Instant::now(),
            budget: 0,
            notices: Vec::new(),
            unanswered: None,
            probe_every: PROBE_EVERY,
        }
    }

    /// Sends a request that may wait at the server for as long as `wait`.
    pub fn send(&mut self, request: &[u8], wait: Duration) -> Result<(), Fault> {
        if self.read < self.input.len() && self.unanswered.is_none() {
            // The server has sent more than one reply.
            return Err(Fault::Garbled);
        }
        self.send_amid_notices(request, wait)
    }

    /// Sends a request like [`ClientConnection::send`], but allows unread input: the server also sends lines unasked.
    pub fn send_amid_notices(&mut self, request: &[u8], wait: Duration) -> Result<(), Fault> {
        self.stream.write_all(request)?;
        self.begin_reply(wait.min(LONGEST) + self.answer_timeout);
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
        let mut lines = std::mem::take(&mut self.notices);
        while let Some(len) = self.input[self.read..].iter().position(|byte| *byte == b'\n') {
            let line = self.input[self.read..][..len].to_vec();
            self.read += len + 1;
            if !self.is_probe_reply(&line) {
                lines.push(line);
            }
        }
        (lines, received)
    }

    /// Returns the next line that the server sends unasked, which may begin a reply; None after `timeout`.
    pub fn line_within(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, Fault> {
        self.begin_reply(timeout.min(LONGEST));
        match self.line() {
            Ok(line) => {
                self.next_reply();
                Ok(Some(line))
            }
            Err(Fault::Silent) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Returns the next line of the reply, without its line feed.
    pub fn line(&mut self) -> Result<Vec<u8>, Fault> {
        self.next_line(None, &mut |_| Ok(()))
    }

    /// Returns the next line, for which the request may wait at the server: calls `on_tick` about every second, and
    /// probes the server, so that a wait at a server that hangs ends with [`Fault::Silent`].
    pub fn awaited_line(&mut self, probe: Probe, on_tick: &mut dyn FnMut()) -> Result<Vec<u8>, Fault> {
        let mut next = Instant::now() + self.probe_every;
        self.next_line(None, &mut |connection| {
            on_tick();
            if Instant::now() < next {
                return Ok(());
            }
            if connection.unanswered.is_some() {
                return Err(Fault::Silent);
            }
            next = Instant::now() + connection.probe_every;
            connection.unanswered = Some(probe);
            Ok(connection.stream.write_all(probe.request)?)
        })
    }

    /// Returns the next line, or `unended` as soon as the input equals it: some servers send that line without a line
    /// feed.
    pub fn line_or(&mut self, unended: &[u8]) -> Result<Vec<u8>, Fault> {
        self.next_line(Some(unended), &mut |_| Ok(()))
    }

    fn next_line(
        &mut self,
        unended: Option<&[u8]>,
        on_tick: &mut dyn FnMut(&mut Self) -> Result<(), Fault>,
    ) -> Result<Vec<u8>, Fault> {
        let mut searched = 0;
        loop {
            let unread = &self.input[self.read..];
            if let Some(len) = unread[searched..].iter().position(|byte| *byte == b'\n') {
                let line = unread[..searched + len].to_vec();
                self.read += line.len() + 1;
                if self.is_probe_reply(&line) {
                    searched = 0;
                    continue;
                }
                self.spend(line.len() + LINE_COST)?;
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
                on_tick(self)?;
            }
        }
    }

    /// Returns true if this line is the reply to the probe, once.
    fn is_probe_reply(&mut self, line: &[u8]) -> bool {
        self.unanswered.take_if(|probe| (probe.is_reply)(line)).is_some()
    }

    /// Returns the descriptor, for polling.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns true if the connection has unread input (as when a server revokes a lock), is closed or has failed. For
    /// use between requests. Does not wait.
    pub fn is_closed(&self) -> bool {
        self.stream.has_news()
    }

    /// Adds bytes to the budget of the reply: it has announced them, and the caller accepts so many.
    pub fn accept(&mut self, len: usize) {
        self.budget = self.budget.saturating_add(len);
    }

    fn spend(&mut self, cost: usize) -> Result<(), Fault> {
        self.budget = self.budget.checked_sub(cost).ok_or(Fault::Garbled)?;
        Ok(())
    }

    /// Returns the next `len` bytes of the reply.
    pub fn bytes(&mut self, len: usize) -> Result<Vec<u8>, Fault> {
        self.spend(len)?;
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
            Ok(len) => {
                self.deadline += self.answer_timeout.mul_f64(len as f64 / PART as f64);
                Ok(true)
            }
            // The deadline is checked before the next read.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::Socket;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::thread::{sleep, spawn};

    const ANSWER: Duration = Duration::from_millis(100);
    /// Time that no test uses up.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Returns a connection to a server that sends these bytes over and over, with this pause. It waits `answer` for a
    /// reply.
    fn endless(line: &'static [u8], pause: Duration, answer: Duration) -> ClientConnection {
        let (ours, mut theirs) = UnixStream::pair().expect("there are sockets");
        spawn(move || {
            while theirs.write_all(line).is_ok() {
                sleep(pause);
            }
        });
        let mut connection = ClientConnection::new(ClientStream::Plain(Socket::from(ours)), String::new(), answer);
        connection.send_amid_notices(b"list\n", Duration::ZERO).expect("is open");
        connection
    }

    #[test]
    fn endless_reply_uses_up_its_budget() {
        let mut connection = endless(b"row\n", Duration::ZERO, PATIENCE);
        connection.budget = 100 * (3 + LINE_COST) + 1;
        let rows = std::iter::from_fn(|| connection.line().ok()).count();
        assert_eq!((rows, connection.line()), (100, Err(Fault::Garbled)));
    }

    #[test]
    fn parts_of_a_slow_reply_share_its_timeout() {
        let mut connection = endless(b"row\n", ANSWER / 5, ANSWER);
        let begun = Instant::now();
        let fault = loop {
            if let Err(fault) = connection.line() {
                break fault;
            }
        };
        assert_eq!(fault, Fault::Silent);
        assert!(begun.elapsed() < 50 * ANSWER, "{:?}", begun.elapsed());
    }

    const PROBE: Probe = Probe { request: b"probe\n", is_reply: |line| line == b"alive" };

    /// Returns a connection that probes often, and the other side.
    fn probing() -> (ClientConnection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("there are sockets");
        let mut connection = ClientConnection::new(ClientStream::Plain(Socket::from(ours)), String::new(), PATIENCE);
        connection.probe_every = ANSWER;
        connection.send(b"wait\n", PATIENCE).expect("is open");
        (connection, theirs)
    }

    #[test]
    fn wait_at_a_server_that_hangs_ends() {
        let (mut connection, _theirs) = probing();
        assert_eq!(connection.awaited_line(PROBE, &mut || {}), Err(Fault::Silent));
    }

    #[test]
    fn replies_to_probes_are_no_replies() {
        let (mut connection, mut theirs) = probing();
        let mut reader = BufReader::new(theirs.try_clone().expect("a second handle"));
        let server = spawn(move || {
            let lines: Vec<String> = (0..3)
                .map(|n| {
                    let mut line = String::new();
                    reader.read_line(&mut line).expect("is open");
                    if n == 1 {
                        theirs.write_all(b"alive\n").expect("is open");
                    }
                    line
                })
                .collect();
            theirs.write_all(b"granted\nalive\n").expect("is open");
            let mut line = String::new();
            reader.read_line(&mut line).expect("is open");
            theirs.write_all(b"released\nnotice\n").expect("is open");
            (lines.concat() + &line, theirs)
        });
        assert_eq!(connection.awaited_line(PROBE, &mut || {}), Ok(b"granted".to_vec()));
        connection.send(b"release\n", Duration::ZERO).expect("is open");
        assert_eq!(connection.line(), Ok(b"released".to_vec()));
        let (said, _theirs) = server.join().expect("does not panic");
        assert_eq!(said, "wait\nprobe\nprobe\nrelease\n");
        assert_eq!(connection.pending_lines(), (vec![b"notice".to_vec()], Ok(())));
    }

    #[test]
    fn announced_bytes_are_beside_the_budget() {
        let mut connection = endless(&[b'x'; 4096], Duration::ZERO, PATIENCE);
        connection.budget = 8;
        connection.accept(PART);
        assert_eq!(connection.bytes(PART).map(|bytes| bytes.len()), Ok(PART));
        assert_eq!(connection.bytes(9), Err(Fault::Garbled));
    }

    #[test]
    fn last_lines_are_read_before_the_end() {
        let (ours, mut theirs) = UnixStream::pair().expect("there are sockets");
        let mut connection = ClientConnection::new(ClientStream::Plain(Socket::from(ours)), String::new(), ANSWER);
        theirs.write_all(b"NOT_LOCKED\n").expect("is open");
        drop(theirs);
        assert_eq!(connection.pending_lines(), (vec![b"NOT_LOCKED".to_vec()], Err(Fault::Closed)));
    }
}
