//! Connection setup: tries the addresses of a server one after the other, blocking or in the background of later calls.
//! Independent of the protocol and of the handling of unreachable servers.

use super::connection::{ClientConnection, SHORTEST};
use super::error::{Failure, Fault};
use super::stream::ClientStream;
use super::{Timeouts, Tls};
use poolcounter_core::text::plain;
use socket2::{SockAddr, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use std::vec;

/// Time that a new background attempt blocks; within one data centre, a running server connects sooner.
const GRACE: Duration = Duration::from_millis(1);
/// Time limit of a background attempt, unless the caller's timeout is longer. The system repeats a lost connection
/// request after one second, and again after two more.
const PATIENCE: Duration = Duration::from_secs(4);
/// Keepalive: a crashed machine sends nothing. A lock holder notices it after this silence and that many probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Time after which a client notices that the machine of its server is gone, also while bytes that it sent are not
/// acknowledged. A server should give back the locks of a silent client later than that.
pub const SILENCE_LIMIT: Duration = KEEPALIVE_IDLE.saturating_add(KEEPALIVE_INTERVAL.saturating_mul(KEEPALIVE_PROBES));
/// The prefix of a server's name that is a path.
const UNIX: &str = "unix:";
/// Prefix of a server's name for TLS.
const TLS: &str = "tls:";

/// Connection attempt in progress, over all addresses of a server.
#[derive(Debug)]
pub(super) struct Dial {
    /// Addresses not yet tried.
    rest: vec::IntoIter<Peer>,
    /// Attempt in the background.
    attempt: Option<Attempt>,
    timeouts: Timeouts,
    /// Port of the service, unless a server has another.
    default_port: u16,
    /// TLS settings and host name to verify; None without TLS.
    tls: Option<(Tls, String)>,
    /// Failure of the last address tried.
    failure: Failure,
}

/// An address of a server.
#[derive(Debug)]
struct Peer {
    address: SockAddr,
    /// Text of the address.
    name: String,
}

#[derive(Debug)]
struct Attempt {
    peer: Peer,
    socket: Socket,
    begun: Instant,
}

impl Dial {
    /// Resolves `HOST`, `HOST:PORT`, `IP6`, `[IP6]:PORT`, one of these with the prefix `tls:`, or `unix:PATH`. A host
    /// name blocks until the resolver replies.
    pub fn begin(server: &str, default_port: u16, timeouts: &Timeouts, tls: Option<&Tls>) -> Result<Dial, Failure> {
        let (server, tls) = match (server.strip_prefix(TLS), tls.cloned()) {
            (None, _) => (server, None),
            (Some(inner), Some(tls)) => (inner, Some((tls, host_and_port(inner, default_port).0.to_string()))),
            (Some(_), None) => {
                let fault = Fault::Unresolved("it is not said which authorities are trusted for TLS".into());
                return Err(Failure { address: server.into(), fault });
            }
        };
        let (named, found) = match server.strip_prefix(UNIX) {
            Some(path) => {
                (server.into(), SockAddr::unix(path).map(|address| vec![Peer { address, name: server.into() }]))
            }
            None => look_up(server, default_port),
        };
        let unresolved = |words| Failure { address: named.clone(), fault: Fault::Unresolved(words) };
        let peers = found.map_err(|error| unresolved(plain(&error.to_string()).into_owned()))?;
        let failure = unresolved("the name has no address".into());
        Ok(Dial { rest: peers.into_iter(), attempt: None, timeouts: *timeouts, default_port, tls, failure })
    }

    /// Tries each address in turn and waits, until one is connected.
    pub fn finish(mut self) -> Result<ClientConnection, Failure> {
        while let Some(peer) = self.rest.next() {
            let connected = peer.connect(self.timeouts.connect).and_then(|(socket, is_connected)| match is_connected {
                true => Ok(socket),
                false => Err(timed_out()),
            });
            match self.prepared(peer.name, connected) {
                Ok(connection) => return Ok(connection),
                Err(failure) => self.failure = failure,
            }
        }
        Err(self.failure)
    }

    /// Continues in the background and returns the connection once it is made. Waits at most [`GRACE`] for each new
    /// attempt, and not at all for earlier attempts.
    pub fn advance(&mut self) -> Result<Option<ClientConnection>, Failure> {
        loop {
            let Some(Attempt { peer, socket, begun }) = self.attempt.take().or_else(|| self.next_attempt()) else {
                return Err(self.failure.clone());
            };
            match progress(&socket) {
                Ok(false) if begun.elapsed() < PATIENCE.max(self.timeouts.connect) => {
                    self.attempt = Some(Attempt { peer, socket, begun });
                    return Ok(None);
                }
                progress => {
                    let connected =
                        progress.and_then(|is_connected| is_connected.then_some(socket).ok_or_else(timed_out));
                    match self.prepared(peer.name, connected) {
                        Ok(connection) => return Ok(Some(connection)),
                        Err(failure) => self.failure = failure,
                    }
                }
            }
        }
    }

    /// Starts to connect to the next address that does not refuse at once.
    fn next_attempt(&mut self) -> Option<Attempt> {
        loop {
            let peer = self.rest.next()?;
            let begun = Instant::now();
            match peer.connect(GRACE) {
                Ok((socket, _)) => return Some(Attempt { peer, socket, begun }),
                Err(error) => self.failure = self.failure_of(peer.name, &error),
            }
        }
    }

    fn prepared(&self, name: String, connected: io::Result<Socket>) -> Result<ClientConnection, Failure> {
        let prepared = connected.and_then(|socket| {
            if !socket.local_addr()?.is_unix() {
                socket.set_tcp_nodelay(true)?;
                socket.set_tcp_keepalive(&keepalive())?;
                #[cfg(target_os = "linux")]
                socket.set_tcp_user_timeout(Some(SILENCE_LIMIT))?;
            }
            socket.set_write_timeout(Some(self.timeouts.answer.max(SHORTEST)))?;
            match &self.tls {
                None => Ok(ClientStream::Plain(socket)),
                Some((tls, host)) => secure(socket, tls, host, self.timeouts.connect),
            }
        });
        match prepared {
            Ok(stream) => Ok(ClientConnection::new(stream, name, self.timeouts.answer)),
            Err(error) => Err(self.failure_of(name, &error)),
        }
    }

    fn failure_of(&self, address: String, error: &io::Error) -> Failure {
        Failure { address, fault: Fault::unconnected(error, self.default_port) }
    }
}

impl Peer {
    fn of(address: SocketAddr) -> Peer {
        Peer { address: address.into(), name: address.to_string() }
    }

    /// Starts to connect and waits up to `wait`. Returns true if the socket is connected; otherwise the attempt
    /// continues.
    fn connect(&self, wait: Duration) -> io::Result<(Socket, bool)> {
        if self.address.is_unix() {
            return Ok((connect_local(&self.address, wait)?, true));
        }
        let socket = Socket::new(self.address.domain(), Type::STREAM, None)?;
        match socket.connect_timeout(&self.address, wait) {
            Ok(()) => Ok((socket, true)),
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok((socket, false)),
            Err(error) => Err(error),
        }
    }
}

/// Connects to a Unix socket, and waits for a place in its backlog up to `wait`.
///
/// # Errors
///
/// `TimedOut` if the backlog stays full; else the system's error.
pub fn connect_unix(path: &Path, wait: Duration) -> io::Result<UnixStream> {
    connect_local(&SockAddr::unix(path)?, wait).map(Into::into)
}

fn connect_local(address: &SockAddr, wait: Duration) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    // Limits the wait for a place in the backlog, too.
    socket.set_write_timeout(Some(wait.max(SHORTEST)))?;
    socket.connect(address).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "it accepts no connections: its backlog is full"),
        _ => error,
    })?;
    Ok(socket)
}

/// Performs the TLS handshake; blocks up to `within`.
#[cfg(feature = "tls")]
fn secure(socket: Socket, tls: &Tls, host: &str, within: Duration) -> io::Result<ClientStream> {
    let stream = super::tls::TlsStream::shake_hands(socket, tls, host, within)?;
    Ok(ClientStream::Tls(stream.into()))
}

#[cfg(not(feature = "tls"))]
fn secure(_: Socket, tls: &Tls, _: &str, _: Duration) -> io::Result<ClientStream> {
    match *tls {}
}

/// Returns true if the socket is connected, false while it is still connecting.
fn progress(socket: &Socket) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "connection timed out")
}

fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES)
}

/// Returns the server as host and port, and its addresses.
fn look_up(server: &str, default_port: u16) -> (String, io::Result<Vec<Peer>>) {
    let (host, port) = host_and_port(server, default_port);
    let named = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    (named, (host, port).to_socket_addrs().map(|addresses| addresses.map(Peer::of).collect()))
}

/// Returns the host, without brackets, and the port of a server.
pub fn host_and_port(server: &str, default_port: u16) -> (&str, u16) {
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
    use socket2::Domain;
    #[cfg(target_os = "linux")]
    use socket2::SockRef;

    #[test]
    fn server_is_a_host_and_perhaps_a_port() {
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

    /// Returns a listener with a full backlog, and the sockets that fill it.
    fn full() -> (Socket, SocketAddr, Vec<Socket>) {
        let new_socket = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("there are sockets");
        let listener = new_socket();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port is free");
        listener.listen(0).expect("it is bound");
        let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound");
        let mut waiting = vec![new_socket()];
        while waiting[waiting.len() - 1].connect_timeout(&address.into(), Duration::from_millis(300)).is_ok() {
            waiting.push(new_socket());
        }
        (listener, address, waiting)
    }

    fn dial(addresses: [SocketAddr; 2], connect: Duration) -> Dial {
        let peers: Vec<Peer> = addresses.map(Peer::of).into();
        let failure = Failure { address: String::new(), fault: Fault::Closed };
        let timeouts = Timeouts { connect, ..Timeouts::default() };
        Dial { rest: peers.into_iter(), attempt: None, timeouts, default_port: 7531, tls: None, failure }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn dead_machine_is_noticed_in_half_a_minute() {
        let alive = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = alive.local_addr().expect("it is bound");
        let connection = dial([address; 2], Duration::from_secs(5)).finish().expect("it is there");
        let descriptor = connection.as_fd();
        let socket = SockRef::from(&descriptor);
        let (idle, interval) = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval());
        assert_eq!((idle.ok(), interval.ok()), (Some(KEEPALIVE_IDLE), Some(KEEPALIVE_INTERVAL)));
        assert_eq!(socket.tcp_keepalive_retries().ok(), Some(KEEPALIVE_PROBES));
        assert_eq!(socket.tcp_user_timeout().ok(), Some(Some(SILENCE_LIMIT)));
    }

    #[test]
    fn dead_address_is_followed_by_the_next() {
        let (_listener, dead, _waiting) = full();
        let alive = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let alive = alive.local_addr().map(|address| (alive, address)).expect("it is bound");
        let connection = dial([dead, alive.1], Duration::from_millis(50)).finish().expect("the second is there");
        assert_eq!(connection.address(), alive.1.to_string());

        let mut dial = dial([dead, alive.1], Duration::ZERO);
        for _ in 0..3 {
            assert!(dial.advance().expect("nothing has failed").is_none(), "the first does not answer");
        }
        // Simulates an attempt that began [`PATIENCE`] ago.
        let attempt = dial.attempt.as_mut().expect("it is under way");
        attempt.begun = Instant::now().checked_sub(PATIENCE).expect("the machine is up for longer");
        let deadline = Instant::now() + Duration::from_secs(10);
        let connection = loop {
            match dial.advance().expect("the second is there") {
                Some(connection) => break connection,
                None => assert!(Instant::now() < deadline, "it does not connect"),
            }
        };
        assert_eq!(connection.address(), alive.1.to_string());
    }

    #[test]
    fn wait_for_a_paths_full_backlog_is_limited() {
        let path = std::env::temp_dir().join(format!("poolcounter-dial-{}", std::process::id()));
        let address = SockAddr::unix(&path).expect("is short");
        let new_socket = || Socket::new(Domain::UNIX, Type::STREAM, None).expect("there are sockets");
        let listener = new_socket();
        listener.bind(&address).expect("is free");
        listener.listen(0).expect("it is bound");
        let is_waiting = |socket: &Socket| {
            socket.set_nonblocking(true).expect("is open");
            socket.connect(&address).is_ok()
        };
        let waiting: Vec<Socket> = std::iter::repeat_with(new_socket).take_while(is_waiting).collect();
        let begun = Instant::now();
        for wait in [Duration::ZERO, Duration::from_millis(200)] {
            let error = connect_unix(&path, wait).expect_err("is full");
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        }
        let timeouts = Timeouts { connect: Duration::from_millis(200), ..Timeouts::default() };
        let dial = || Dial::begin(&format!("unix:{}", path.display()), 1, &timeouts, None).expect("is a path");
        for failed in [dial().finish().err(), dial().advance().err()] {
            assert!(failed.expect("is full").to_string().ends_with("its backlog is full"));
        }
        assert!((200..5_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
        drop(waiting);
        std::fs::remove_file(&path).expect("is there");
    }

    #[test]
    fn failure_of_the_last_address_is_reported() {
        let free =
            || std::net::TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port is free");
        let (one, other) = (free(), free());
        let refused = |result: Option<Failure>| {
            let failure = result.expect("nobody listens");
            assert_eq!(failure.address, other.to_string());
            assert!(matches!(failure.fault, Fault::Unreachable(ErrorKind::ConnectionRefused, _)), "{failure}");
        };
        refused(dial([one, other], Duration::from_secs(10)).finish().err());
        let mut dial = dial([one, other], Duration::from_secs(10));
        refused(loop {
            if let Err(failure) = dial.advance() {
                break Some(failure);
            }
        });
    }
}
