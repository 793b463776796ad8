//! One connection to a server: sends a request and waits for the answer, within a deadline. It knows no protocol.
//!
//! Invariant: whoever gets a [`Fault`] drops the connection. An answer that comes late can so never be taken for that to
//! the next question.

use super::error::{Failure, Fault};
use super::{LONGEST, Timeouts};
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

/// The longest line that a server sends is one of `STATS`. What goes on for so long is none.
const LONGEST_LINE: usize = 64 * 1024;
/// A server that sends more than this by itself, while nobody reads it, is none. A provider of a thousand members can be asked to
/// stop and check each of them while a command of its own takes its time: 600 bytes a line, at most.
const MOST_PENDING: usize = 4 << 20;
/// How often whoever watches a wait is told that it goes on.
const TICK: Duration = Duration::from_secs(1);
/// A server whose machine died says nothing, not even that. A holder is told after so much silence and as many probes.
const IDLE: Duration = Duration::from_secs(15);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// Read at once.
const CHUNK: usize = 4096;
/// The shortest timeout of a socket: what is shorter counts as none at all, and would last for ever.
const SHORTEST: Duration = Duration::from_micros(1);
/// What the name of a server begins with that is a path.
const UNIX: &str = "unix:";

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Socket,
    /// Where the server was found, with the port.
    address: String,
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
    /// Connects to `HOST`, `HOST:PORT`, `IP6`, `[IP6]:PORT` or `unix:PATH`. Each address of a host is tried.
    pub fn open(server: &str, default_port: u16, timeouts: &Timeouts) -> Result<Connection, Failure> {
        if let Some(path) = server.strip_prefix(UNIX) {
            return Connection::of(connect_unix(path, timeouts), server.into(), timeouts);
        }
        let (host, port) = host_and_port(server, default_port);
        let named = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let unresolved = |words| Failure { address: named.clone(), fault: Fault::Unresolved(words) };
        let mut failure = unresolved("the name has no address".into());
        for address in (host, port).to_socket_addrs().map_err(|error| unresolved(error.to_string()))? {
            match Connection::of(connect_tcp(&address, timeouts), address.to_string(), timeouts) {
                Ok(connection) => return Ok(connection),
                Err(one) => failure = one,
            }
        }
        Err(failure)
    }

    fn of(connected: io::Result<Socket>, address: String, timeouts: &Timeouts) -> Result<Connection, Failure> {
        let patience = timeouts.answer;
        let prepared = connected.and_then(|stream| {
            stream.set_write_timeout(Some(patience.max(SHORTEST)))?;
            Ok(stream)
        });
        match prepared {
            Ok(stream) => {
                let deadline = Instant::now();
                Ok(Connection { stream, address, input: Vec::new(), read: 0, patience, deadline })
            }
            Err(error) => Err(Failure { address, fault: Fault::unreachable(&error) }),
        }
    }

    /// Where the server was found.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request that the server may think about for as long as `wait`.
    pub fn send(&mut self, request: &[u8], wait: Duration) -> Result<(), Fault> {
        if self.read < self.input.len() {
            // It answered what nobody had asked.
            return Err(Fault::Garbled);
        }
        self.send_amid_notices(request, wait)
    }

    /// Sends a request like [`Connection::send`] to a server that also sends lines by itself, some of which may not be read yet.
    pub fn send_amid_notices(&mut self, request: &[u8], wait: Duration) -> Result<(), Fault> {
        self.stream.write_all(request)?;
        self.deadline = Instant::now() + wait.min(LONGEST) + self.patience;
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

    /// The answer is in many parts, of which one has come: there is as much time for the next.
    pub fn renew(&mut self) {
        self.deadline = Instant::now() + self.patience;
    }

    /// The next line of the answer, without its line feed.
    pub fn line(&mut self) -> Result<Vec<u8>, Fault> {
        self.line_watched(&mut || {})
    }

    /// The same, with a call about each second until it is here.
    pub fn line_watched(&mut self, watch: &mut dyn FnMut()) -> Result<Vec<u8>, Fault> {
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
                return Err(Fault::Garbled);
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

    /// Its descriptor, for as long as it is borrowed.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether the server has closed it, or the network has failed. Does not wait.
    pub fn is_closed(&self) -> bool {
        let peek = || {
            self.stream.set_nonblocking(true)?;
            let peeked = self.stream.peek(&mut [MaybeUninit::uninit()]);
            self.stream.set_nonblocking(false)?;
            peeked
        };
        match peek() {
            Ok(len) => len == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// The next bytes of the answer, so many.
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
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Fault::Closed),
                Ok(len) => self.input.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Fault::Garbled)
    }

    /// Forgets the bytes that were read, and waits for more, but not longer than a tick. Tells whether some came.
    fn receive(&mut self) -> Result<bool, Fault> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::Silent);
        }
        self.stream.set_read_timeout(Some(left.min(TICK).max(SHORTEST)))?;
        self.input.drain(..self.read);
        self.read = 0;
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Fault::Closed),
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

fn connect_tcp(address: &SocketAddr, timeouts: &Timeouts) -> io::Result<Socket> {
    let stream = TcpStream::connect_timeout(address, timeouts.connect)?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(PROBE_INTERVAL).with_retries(PROBES);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream.into())
}

/// Here a connection waits for room in the backlog as long as a send may wait for room.
fn connect_unix(path: &str, timeouts: &Timeouts) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
    socket.set_write_timeout(Some(timeouts.connect.max(SHORTEST)))?;
    socket.connect(&SockAddr::unix(path)?)?;
    Ok(socket)
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
