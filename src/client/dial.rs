//! Connection setup: tries the addresses of a server one after the other, blocking or in the background of later calls.
//! Independent of the protocol and of the handling of unreachable servers.

use super::connection::{ClientConnection, SHORTEST};
use super::error::{Error, Failure, Fault, Stop};
use super::stream::ClientStream;
use super::{Said, Timeouts, Tls};
use poolcounter_core::text::plain;
use socket2::{SockAddr, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use std::vec;

/// Time that a background attempt blocks for each new address; within one data centre, a running server connects sooner.
const GRACE: Duration = Duration::from_millis(1);
/// Time limit of a background attempt for each address, unless the caller's timeout is longer. The system repeats a lost
/// connection request after one second, and again after two more.
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

/// Settings of the connections of a client.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    /// Port of the service, unless a server has another.
    default_port: u16,
    pub timeouts: Timeouts,
    /// TLS settings for servers with the prefix `tls:`.
    pub tls: Option<Tls>,
}

/// Address of a server, and its text.
type Peer = (SockAddr, String);

/// Attempt to connect to a server, over its addresses.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Addresses not yet tried.
    rest: vec::IntoIter<Peer>,
    /// Connect that continues in the background: its address, begin and socket.
    open: Option<(String, Instant, Socket)>,
    /// TLS settings and host name to verify; None without TLS.
    tls: Option<(Tls, String)>,
    /// Failure of the last address tried.
    failure: Failure,
}

impl Dial {
    pub fn new(default_port: u16, timeouts: Timeouts, tls: Option<&Tls>) -> Dial {
        Dial { default_port, timeouts: timeouts.cut(), tls: tls.cloned() }
    }

    /// Connects to the first of these servers that answers `begin`, and returns its place, the connection and the answer.
    pub fn first<'s, T>(
        &self,
        servers: impl IntoIterator<Item = &'s String>,
        mut begin: impl FnMut(&mut ClientConnection) -> Said<T>,
    ) -> Result<(usize, ClientConnection, T), Error> {
        let mut failures = Vec::new();
        for (place, server) in servers.into_iter().enumerate() {
            let begun = self.connect(server).and_then(|mut connection| match Stop::split(begin(&mut connection)) {
                Err(fault) => Err(Failure { address: connection.address, fault }),
                Ok(answer) => Ok(answer.map(|answer| (place, connection, answer))),
            });
            match begun {
                Ok(answer) => return answer,
                Err(failure) => failures.push((server.clone(), failure)),
            }
        }
        Err(Error::of_failures(failures))
    }

    /// Connects to `HOST`, `HOST:PORT`, `IP6`, `[IP6]:PORT`, one of these with the prefix `tls:`, or `unix:PATH`. Tries
    /// each address in turn and waits, until one is connected. A host name blocks until the resolver replies.
    pub fn connect(&self, server: &str) -> Result<ClientConnection, Failure> {
        let connected = self.go_on(&mut self.begin(server)?, self.timeouts.connect, Duration::ZERO)?;
        Ok(connected.expect("no address outlasts a patience of zero"))
    }

    /// Continues an attempt in the background, or begins one, and returns the connection once it is made. Waits at most
    /// [`GRACE`] for each new address, and not at all for earlier ones.
    pub fn advance(&self, server: &str, attempt: &mut Option<Attempt>) -> Result<Option<ClientConnection>, Failure> {
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => attempt.insert(self.begin(server)?),
        };
        self.go_on(attempt, GRACE, PATIENCE.max(self.timeouts.connect))
    }

    fn begin(&self, server: &str) -> Result<Attempt, Failure> {
        let unresolved = |address: &str, words| Failure { address: address.into(), fault: Fault::Unresolved(words) };
        let (server, tls) = match (server.strip_prefix(TLS), self.tls.clone()) {
            (None, _) => (server, None),
            (Some(inner), Some(tls)) => (inner, Some((tls, host_and_port(inner, self.default_port).0.to_string()))),
            (Some(_), None) => {
                return Err(unresolved(server, "it is not said which authorities are trusted for TLS".into()));
            }
        };
        let (named, found) = match server.strip_prefix(UNIX) {
            Some(path) => (server.into(), SockAddr::unix(path).map(|address| vec![(address, server.into())])),
            None => look_up(server, self.default_port),
        };
        let peers = found.map_err(|error| unresolved(&named, plain(&error.to_string()).into_owned()))?;
        let failure = unresolved(&named, "the name has no address".into());
        Ok(Attempt { rest: peers.into_iter(), open: None, tls, failure })
    }

    /// Tries the addresses in turn, and waits up to `wait` for each new one. Returns None while one is connecting that
    /// was begun less than `patience` ago.
    fn go_on(
        &self,
        attempt: &mut Attempt,
        wait: Duration,
        patience: Duration,
    ) -> Result<Option<ClientConnection>, Failure> {
        loop {
            let (name, begun, connecting) = match attempt.open.take() {
                Some((name, begun, socket)) => (name, begun, is_connected(&socket).map(|is| (socket, is))),
                None => {
                    let (address, name) = attempt.rest.next().ok_or_else(|| attempt.failure.clone())?;
                    (name, Instant::now(), connect(&address, wait))
                }
            };
            let connected = match connecting {
                Ok((socket, false)) if begun.elapsed() < patience => {
                    attempt.open = Some((name, begun, socket));
                    return Ok(None);
                }
                Ok((_, false)) => Err(io::Error::new(ErrorKind::TimedOut, "connection timed out")),
                connecting => connecting.map(|(socket, _)| socket),
            };
            match connected.and_then(|socket| self.prepared(socket, attempt.tls.as_ref())) {
                Ok(stream) => return Ok(Some(ClientConnection::new(stream, name, self.timeouts.answer))),
                Err(error) => {
                    let fault = Fault::unconnected(&error, self.default_port);
                    attempt.failure = Failure { address: name, fault };
                }
            }
        }
    }

    fn prepared(&self, socket: Socket, tls: Option<&(Tls, String)>) -> io::Result<ClientStream> {
        if !socket.local_addr()?.is_unix() {
            socket.set_tcp_nodelay(true)?;
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
            socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))?;
            #[cfg(target_os = "linux")]
            socket.set_tcp_user_timeout(Some(SILENCE_LIMIT))?;
        }
        socket.set_write_timeout(Some(self.timeouts.answer.max(SHORTEST)))?;
        match tls {
            None => Ok(ClientStream::Plain(socket)),
            Some((tls, host)) => secure(socket, tls, host, self.timeouts.connect),
        }
    }
}

/// Connects to a Unix socket, and waits for a place in its backlog up to `wait`.
///
/// # Errors
///
/// `TimedOut` if the backlog stays full; else the system's error.
pub fn connect_unix(path: &Path, wait: Duration) -> io::Result<UnixStream> {
    connect(&SockAddr::unix(path)?, wait).map(|(socket, _)| socket.into())
}

/// Begins to connect and waits up to `wait`. Returns true if the socket is connected; otherwise it goes on connecting.
fn connect(address: &SockAddr, wait: Duration) -> io::Result<(Socket, bool)> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    if !address.is_unix() {
        return match socket.connect_timeout(address, wait) {
            Err(error) if error.kind() == ErrorKind::TimedOut => Ok((socket, false)),
            connected => connected.map(|()| (socket, true)),
        };
    }
    // Limits the wait for a place in the backlog, too.
    socket.set_write_timeout(Some(wait.max(SHORTEST)))?;
    match socket.connect(address) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            Err(io::Error::new(ErrorKind::TimedOut, "it accepts no connections: its backlog is full"))
        }
        connected => connected.map(|()| (socket, true)),
    }
}

/// Returns true if the socket is connected, false while it is still connecting.
fn is_connected(socket: &Socket) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        address => address.map(|_| true),
    }
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

/// Returns the server as host and port, and its addresses.
fn look_up(server: &str, default_port: u16) -> (String, io::Result<Vec<Peer>>) {
    let (host, port) = host_and_port(server, default_port);
    let named = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let peer = |address: SocketAddr| (address.into(), address.to_string());
    (named, (host, port).to_socket_addrs().map(|addresses| addresses.map(peer).collect()))
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
    use std::time::Instant;

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

    fn dial(connect: Duration) -> Dial {
        Dial::new(7531, Timeouts { connect, ..Timeouts::default() }, None)
    }

    /// Returns an attempt with these addresses.
    fn attempt(addresses: [SocketAddr; 2]) -> Attempt {
        let peers = Vec::from(addresses.map(|address| (address.into(), address.to_string())));
        let failure = Failure { address: String::new(), fault: Fault::Closed };
        Attempt { rest: peers.into_iter(), open: None, tls: None, failure }
    }

    /// Connects to the first of these addresses that accepts it.
    fn connected(addresses: [SocketAddr; 2], connect: Duration) -> Result<ClientConnection, Failure> {
        let connection = dial(connect).go_on(&mut attempt(addresses), connect, Duration::ZERO)?;
        Ok(connection.expect("it is waited for"))
    }

    /// Continues the attempt in the background until it ends.
    fn advanced(mut attempt: Option<Attempt>) -> Result<ClientConnection, Failure> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match dial(Duration::ZERO).advance("", &mut attempt)? {
                Some(connection) => return Ok(connection),
                None => assert!(Instant::now() < deadline, "it does not end"),
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn dead_machine_is_noticed_in_half_a_minute() {
        let alive = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = alive.local_addr().expect("it is bound");
        let connection = connected([address; 2], Duration::from_secs(5)).expect("it is there");
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
        let connection = connected([dead, alive.1], Duration::from_millis(50)).expect("the second is there");
        assert_eq!(connection.address, alive.1.to_string());

        let mut background = Some(attempt([dead, alive.1]));
        for _ in 0..3 {
            let advanced = dial(Duration::ZERO).advance("", &mut background).expect("nothing has failed");
            assert!(advanced.is_none(), "the first does not answer");
        }
        // Simulates an attempt that began [`PATIENCE`] ago.
        let (_, begun, _) = background.as_mut().and_then(|attempt| attempt.open.as_mut()).expect("it is under way");
        *begun = Instant::now().checked_sub(PATIENCE).expect("the machine is up for longer");
        let connection = advanced(background).expect("the second is there");
        assert_eq!(connection.address, alive.1.to_string());
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
        let (dial, server) = (dial(Duration::from_millis(200)), format!("unix:{}", path.display()));
        for failed in [dial.connect(&server).err(), dial.advance(&server, &mut None).err()] {
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
        for failed in [connected([one, other], Duration::from_secs(10)), advanced(Some(attempt([one, other])))] {
            let failure = failed.expect_err("nobody listens");
            assert_eq!(failure.address, other.to_string());
            assert!(matches!(failure.fault, Fault::Unreachable(ErrorKind::ConnectionRefused, _)), "{failure}");
        }
    }
}
