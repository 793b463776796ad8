//! One connection to a server: sends a request and waits for the answer, within a deadline. It knows no protocol.
//!
//! Invariant: whoever gets a [`Failure`] drops the connection. An answer that comes late can so never be taken for that to
//! the next question.

use super::error::Failure;
use super::{LONGEST, Timeouts};
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// The longest line that a server sends is one of `STATS`. What goes on for so long is none.
const LONGEST_LINE: usize = 64 * 1024;
/// How often whoever watches a wait is told that it goes on.
const TICK: Duration = Duration::from_secs(1);
/// A server whose machine died says nothing, not even that. A holder is told after so much silence and as many probes.
const IDLE: Duration = Duration::from_secs(15);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// Read at once.
const CHUNK: usize = 4096;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    /// What was received.
    input: Vec<u8>,
    /// How much of it was read.
    read: usize,
    /// How long an answer may take that has nothing to wait for.
    patience: Duration,
    /// When the present answer must be here.
    deadline: Instant,
}

impl Connection {
    /// Connects to `HOST`, `HOST:PORT`, `IP6` or `[IP6]:PORT`. Each address of the host is tried.
    pub fn open(server: &str, default_port: u16, timeouts: &Timeouts) -> Result<Connection, Failure> {
        let unreachable = |error: io::Error| Failure::Unreachable(error.kind());
        let mut failure = Failure::Unreachable(ErrorKind::NotFound);
        for address in host_and_port(server, default_port).to_socket_addrs().map_err(unreachable)? {
            match TcpStream::connect_timeout(&address, timeouts.connect) {
                Ok(stream) => return Connection::of(stream, timeouts.answer).map_err(unreachable),
                Err(error) => failure = unreachable(error),
            }
        }
        Err(failure)
    }

    fn of(stream: TcpStream, patience: Duration) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(PROBE_INTERVAL).with_retries(PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream, input: Vec::new(), read: 0, patience, deadline: Instant::now() })
    }

    /// Sends a request that the server may think about for as long as `wait`.
    pub fn send(&mut self, request: &[u8], wait: Duration) -> Result<(), Failure> {
        if self.read < self.input.len() {
            // It answered what nobody had asked.
            return Err(Failure::Garbled);
        }
        self.stream.write_all(request)?;
        self.deadline = Instant::now() + wait.min(LONGEST) + self.patience;
        Ok(())
    }

    /// The answer is in many parts, of which one has come: there is as much time for the next.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + self.patience;
    }

    /// The next line of the answer, without its line feed.
    pub fn line(&mut self) -> Result<Vec<u8>, Failure> {
        self.line_watched(&mut || {})
    }

    /// The same, with a call about each second until it is here.
    pub fn line_watched(&mut self, watch: &mut dyn FnMut()) -> Result<Vec<u8>, Failure> {
        let mut searched = 0;
        loop {
            let unread = &self.input[self.read..];
            if let Some(len) = unread[searched..].iter().position(|byte| *byte == b'\n') {
                let line = unread[..searched + len].to_vec();
                self.read += line.len() + 1;
                return Ok(line);
            }
            searched = unread.len();
            if searched > LONGEST_LINE {
                return Err(Failure::Garbled);
            }
            if !self.receive()? {
                watch();
            }
        }
    }

    /// Its descriptor, for whoever waits for news of it.
    pub fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Whether the server has closed it, or the network has failed. Does not wait.
    pub fn is_closed(&self) -> bool {
        let peek = || {
            self.stream.set_nonblocking(true)?;
            let peeked = self.stream.peek(&mut [0]);
            self.stream.set_nonblocking(false)?;
            peeked
        };
        match peek() {
            Ok(len) => len == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// The next bytes of the answer, so many.
    pub fn bytes(&mut self, len: usize) -> Result<Vec<u8>, Failure> {
        while self.input.len() - self.read < len {
            self.receive()?;
        }
        let bytes = self.input[self.read..][..len].to_vec();
        self.read += len;
        Ok(bytes)
    }

    /// Forgets the bytes that were read, and waits for more, but not longer than a tick. Tells whether some came.
    fn receive(&mut self) -> Result<bool, Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::Silent);
        }
        self.stream.set_read_timeout(Some(left.min(TICK)))?;
        self.input.drain(..self.read);
        self.read = 0;
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Failure::Closed),
            Ok(len) => {
                self.input.extend_from_slice(&chunk[..len]);
                Ok(true)
            }
            // The deadline is looked at before the next read.
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn host_and_port(server: &str, default_port: u16) -> (&str, u16) {
    let split = || {
        let (host, port) = server.rsplit_once(':')?;
        // An IPv6 address without brackets has no port, but colons.
        let is_host = !host.contains(':') || host.ends_with(']');
        is_host.then_some((host, port.parse().ok()?))
    };
    let (host, port) = split().unwrap_or((server, default_port));
    (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_perhaps_a_port() {
        for (server, want) in [
            ("10.0.0.5", ("10.0.0.5", 7531)),
            ("10.0.0.5:99", ("10.0.0.5", 99)),
            ("pool.example.org:99", ("pool.example.org", 99)),
            ("::1", ("::1", 7531)),
            ("[::1]", ("::1", 7531)),
            ("[::1]:99", ("::1", 99)),
            ("host:x", ("host:x", 7531)),
            ("", ("", 7531)),
        ] {
            assert_eq!(host_and_port(server, 7531), want, "{server}");
        }
    }
}
