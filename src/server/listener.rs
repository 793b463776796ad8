//! Listening sockets and their addresses.

use super::socket::Socket;
use mio::net::{TcpListener, UnixListener};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::stat::{Mode, umask};
use poolcounter_core::Address;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, SockRef, TcpKeepalive, Type};
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Limits after which the connection of a peer that does not answer is closed: its machine may be dead, and it may hold
/// a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Unanswered probes after which the connection is closed.
    pub probes: u32,
}

/// Options of listening sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Most connections that may wait to be accepted. The kernel's own limit is `net.core.somaxconn`.
    pub backlog: i32,
    /// Probes of silent peers; None sends no probes: a dead peer is not noticed as long as it gets no data.
    pub keepalive: Option<Keepalive>,
    /// Permissions of a socket in the file system; None leaves them to the umask.
    pub mode: Option<u32>,
}

/// Size of the kernel's buffer for unacknowledged data of a TCP peer; Linux takes twice as much for it, and much more
/// without a limit. The output at which a connection is not served any more fits in, so that a page or a Dump goes on
/// without a pause.
const SEND_BUFFER: usize = 128 * 1024;

/// Listening socket.
pub struct Listener {
    socket: ListeningSocket,
    /// Address of the settings that it has bound; None for an inherited socket.
    bound: Option<Address>,
    /// File that is removed when the daemon stops: of a Unix socket that it bound itself.
    made: Option<SocketFile>,
    /// True while clients can connect.
    is_open: bool,
    /// Connections that may wait to be accepted.
    backlog: i32,
}

/// File that this daemon made, by inode: another file at the same path belongs to another process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct SocketFile {
    path: OsString,
    device: u64,
    inode: u64,
}

enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Handover of a listener.
#[derive(Serialize, Deserialize)]
pub struct SavedListener {
    /// Descriptor.
    pub fd: RawFd,
    bound: Option<Address>,
    made: Option<SocketFile>,
}

impl Default for Keepalive {
    fn default() -> Self {
        Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 6 }
    }
}

/// Longest time that Linux accepts between probes and before the first, and the most probes.
const LONGEST_PAUSE: Duration = Duration::from_secs(32_767);
const MOST_PROBES: u32 = 127;
/// Longest wait of Linux for an acknowledgement: milliseconds in an `int`, three weeks and a half.
const LONGEST_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);

impl Keepalive {
    /// Returns the time after which a peer that is gone has lost its connection.
    pub fn total(self) -> Duration {
        let Keepalive { idle, interval, probes } = self.within_limits();
        idle + interval * probes
    }

    /// Returns the nearest values that the system accepts: whole seconds, at least one.
    fn within_limits(self) -> Keepalive {
        let pause = |pause: Duration| Duration::from_secs(pause.as_secs()).clamp(Duration::from_secs(1), LONGEST_PAUSE);
        Keepalive { idle: pause(self.idle), interval: pause(self.interval), probes: self.probes.clamp(1, MOST_PROBES) }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options { backlog: 4096, keepalive: Some(Keepalive::default()), mode: None }
    }
}

impl Listener {
    /// Listens on `address`. A socket file that no process listens on any more is replaced.
    ///
    /// # Errors
    ///
    /// The system's error, such as an address in use.
    pub fn bind(address: &Address, options: &Options) -> io::Result<Listener> {
        Listener::bind_beside(address, options, &[])
    }

    /// Listens on `address`, even if it overlaps with an old listener's address, as 0.0.0.0 does with 127.0.0.1 on the
    /// same port. So replacements are open before the old listeners are closed.
    ///
    /// # Errors
    ///
    /// The system's error, such as an address in use by another process.
    pub fn bind_beside(address: &Address, options: &Options, others: &[&Listener]) -> io::Result<Listener> {
        let listener = match address {
            Address::Proxied(inner) => Listener::bind_beside(inner, options, others),
            Address::Unix(path) => bind_unix(path, options),
            Address::Tcp(address) if others.is_empty() => bind_tcp(*address, options, false),
            Address::Tcp(address) => {
                others.iter().try_for_each(|other| other.share_port(true))?;
                let bound = bind_tcp(*address, options, true);
                others.iter().copied().chain(&bound).try_for_each(|listener| listener.share_port(false))?;
                bound
            }
        }?;
        Ok(Listener { bound: Some(address.clone()), backlog: options.backlog, ..listener })
    }

    /// Returns the address of the settings that it has bound; None for an inherited socket.
    pub fn bound(&self) -> Option<&Address> {
        self.bound.as_ref()
    }

    /// Returns whether only proxies connect, each with a header about its client.
    pub fn is_proxied(&self) -> bool {
        self.bound.as_ref().is_some_and(Address::is_proxied)
    }

    /// Returns false if the path of its socket no longer leads to it: clients cannot reach it any more.
    pub fn is_reachable(&self) -> bool {
        self.made.as_ref().is_none_or(SocketFile::is_there)
    }

    /// Sets the form of the address in the settings, which says if proxies connect there.
    pub fn rename(&mut self, address: &Address) {
        self.bound = Some(address.clone());
    }

    /// Applies other options. Connections that were accepted before keep theirs, an inherited socket keeps its backlog
    /// and permissions, and a file of another process at its path is left alone.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn adjust(&mut self, options: &Options) -> io::Result<()> {
        self.backlog = options.backlog;
        let socket = self.socket();
        if self.is_tcp() {
            prepare_tcp(&socket, options)?;
            let is_ours = self.bound.is_some() && self.is_open;
            return if is_ours { socket.listen(options.backlog) } else { Ok(()) };
        }
        let Some(SocketFile { path, .. }) = self.made.as_ref().filter(|made| made.is_there()) else { return Ok(()) };
        let mode = options.mode.unwrap_or_else(mode_by_umask);
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        socket.listen(options.backlog)
    }

    /// Sets whether another socket of this user may be bound to the same port.
    fn share_port(&self, is_shared: bool) -> io::Result<()> {
        if self.is_tcp() { self.socket().set_reuse_port(is_shared) } else { Ok(()) }
    }

    /// Returns a listener for a socket that another process has bound; None if the descriptor is no listening socket.
    pub fn inherit(fd: OwnedFd, options: &Options) -> Option<Listener> {
        let listener = Listener::of(fd, None, None).ok().filter(Listener::is_open)?;
        if listener.is_tcp()
            && let Err(error) = prepare_tcp(&listener.socket(), options)
        {
            log::warn!("cannot set the options of the inherited socket: {error}");
        }
        Some(listener)
    }

    /// Returns the handover of the listener.
    pub fn save(&self) -> SavedListener {
        SavedListener { fd: self.fd(), bound: self.bound.clone(), made: self.made.clone() }
    }

    /// Returns the listener of a handover, with its descriptor. In a drain the socket is closed.
    ///
    /// # Errors
    ///
    /// Fails if the descriptor is no socket.
    pub fn restore(fd: OwnedFd, saved: SavedListener) -> io::Result<Listener> {
        Listener::of(fd, saved.bound, saved.made)
    }

    fn of(fd: OwnedFd, bound: Option<Address>, made: Option<SocketFile>) -> io::Result<Listener> {
        let socket = socket2::Socket::from(fd);
        let is_open = socket.is_listener()?;
        socket.set_nonblocking(true)?;
        let socket = match socket.local_addr()?.domain() {
            Domain::UNIX => ListeningSocket::Unix(UnixListener::from_std(socket.into())),
            _ => ListeningSocket::Tcp(TcpListener::from_std(socket.into())),
        };
        Ok(Listener { socket, bound, made, is_open, backlog: Options::default().backlog })
    }

    fn is_tcp(&self) -> bool {
        matches!(self.socket, ListeningSocket::Tcp(_))
    }

    fn socket(&self) -> SockRef<'_> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => listener.into(),
            ListeningSocket::Unix(listener) => listener.into(),
        }
    }

    fn fd(&self) -> RawFd {
        self.socket().as_raw_fd()
    }

    /// Returns whether clients can connect.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Refuses connections from now on, in every process that has the socket; connections in the backlog should be
    /// accepted before. A Unix socket stays open, as its system could not open it again.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn close(&mut self) -> io::Result<()> {
        if self.is_tcp() {
            self.socket().shutdown(Shutdown::Read)?;
            self.is_open = false;
        }
        Ok(())
    }

    /// Accepts connections again, at the same address.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn reopen(&mut self) -> io::Result<()> {
        if self.is_tcp() && !self.is_open {
            self.socket().listen(self.backlog)?;
            self.is_open = true;
        }
        Ok(())
    }

    /// Closes the socket, and removes the file that was made for it, unless another daemon has put its own there.
    pub fn retire(mut self) {
        if self.bound.is_none() {
            // The supervisor still uses the socket.
            let _ = self.reopen();
        }
        if let Some(made) = self.made.filter(SocketFile::is_there) {
            // It may have been removed before.
            let _ = fs::remove_file(made.path);
        }
    }

    /// Accepts one connection from the backlog. The socket does not block, and is closed by exec.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no connection waits; else the system's error.
    pub fn accept(&self) -> io::Result<Socket> {
        match &self.socket {
            ListeningSocket::Tcp(listener) => listener.accept().map(|(stream, peer)| Socket::tcp(stream, Some(peer))),
            ListeningSocket::Unix(listener) => listener.accept().map(|(stream, _)| Socket::Unix(stream)),
        }
    }

    /// Returns the address, with the port that the system chose.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn address(&self) -> io::Result<Address> {
        let socket = match &self.socket {
            ListeningSocket::Tcp(listener) => Address::Tcp(listener.local_addr()?),
            ListeningSocket::Unix(listener) => {
                let path = listener.local_addr()?.as_pathname().map(Path::to_path_buf);
                Address::Unix(path.unwrap_or_else(|| "(unnamed)".into()))
            }
        };
        Ok(if self.is_proxied() { Address::Proxied(socket.into()) } else { socket })
    }

    /// Registers it with the poll: an event with `token` means that connections wait.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.fd()), token, Interest::READABLE)
    }

    /// Removes it from the poll.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(&mut SourceFd(&self.fd()))
    }
}

fn bind_tcp(address: SocketAddr, options: &Options, shares_port: bool) -> io::Result<Listener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    if address.is_ipv6() {
        // Makes it possible to listen on both 0.0.0.0 and [::], whatever the system's default is.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shares_port)?;
    prepare_tcp(&SockRef::from(&socket), options)?;
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    Listener::of(socket.into(), None, None)
}

/// Sets the options that Linux copies to every accepted connection, so that accepting one takes no further system call.
fn prepare_tcp(socket: &SockRef<'_>, options: &Options) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    match options.keepalive {
        None => {
            socket.set_tcp_user_timeout(None)?;
            socket.set_keepalive(false)
        }
        Some(keepalive) => {
            let Keepalive { idle, interval, probes } = keepalive.within_limits();
            // There are no probes while data are unacknowledged, and the kernel would send these again for a quarter of
            // an hour: a waiter that died just before it was granted the lock would hold it as long.
            socket.set_tcp_user_timeout(Some(keepalive.total().min(LONGEST_TIMEOUT)))?;
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(probes))
        }
    }
}

fn bind_unix(path: &Path, options: &Options) -> io::Result<Listener> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    let address = SockAddr::unix(path)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse && is_stale(path, &address) => {
            fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        result => result?,
    }
    if let Some(mode) = options.mode {
        // No client can connect before `listen`, so none is admitted under the old permissions.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let made = SocketFile::at(path)?;
    socket.listen(options.backlog)?;
    Listener::of(socket.into(), None, Some(made))
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<SocketFile> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(SocketFile { path: path.into(), device: metadata.dev(), inode: metadata.ino() })
    }

    fn is_there(&self) -> bool {
        SocketFile::at(self.path.as_ref()).is_ok_and(|file| file == *self)
    }
}

/// Returns the permissions of a new socket file. The mask can only be read by setting it.
fn mode_by_umask() -> u32 {
    let mask = umask(Mode::from_bits_truncate(0o777));
    umask(mask);
    0o777 & !mask.bits()
}

/// Returns true if the path is a socket on which no process listens, left behind by a process that died.
fn is_stale(path: &Path, address: &SockAddr) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    let refuses = || {
        let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
        probe.connect(address)
    };
    is_socket && refuses().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::time::Instant;

    #[test]
    fn listener_can_be_adjusted() {
        let address = Address::parse("127.0.0.1", 0).expect("an address");
        let mut listener = Listener::bind(&address, &Options::default()).expect("a free port");
        let idle = Duration::from_secs(5);
        let other = Keepalive { idle, ..Keepalive::default() };
        for (keepalive, idle, user_timeout) in [
            (Some(other), idle, Some(Duration::from_secs(65))),
            (None, idle, None),
            (Some(Keepalive::default()), Duration::from_secs(60), Some(Duration::from_secs(120))),
        ] {
            listener.adjust(&Options { keepalive, backlog: 1, mode: None }).expect("is still there");
            let ListeningSocket::Tcp(socket) = &listener.socket else { panic!("no TCP socket") };
            let socket = SockRef::from(socket);
            assert_eq!(socket.keepalive().expect("an option"), keepalive.is_some());
            assert_eq!(socket.tcp_keepalive_time().expect("an option"), idle);
            assert_eq!(socket.tcp_user_timeout().expect("an option"), user_timeout);
        }
    }

    /// Accepting sets no options, because Linux copies the listener's.
    #[test]
    fn accepted_connection_has_the_options_of_its_listener() {
        let address = Address::parse("127.0.0.1", 0).expect("an address");
        let listener = Listener::bind(&address, &Options::default()).expect("a free port");
        let Ok(Address::Tcp(address)) = listener.address() else { panic!("no TCP address") };
        let _client = TcpStream::connect(address).expect("connects");
        let deadline = Instant::now() + Duration::from_secs(10);
        let socket = loop {
            match listener.accept() {
                Ok(Socket::Tcp { stream, .. }) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {}
                _ => panic!("not accepted"),
            }
        };
        let socket = SockRef::from(&socket);
        assert!(socket.tcp_nodelay().expect("an option"));
        assert_eq!(socket.send_buffer_size().expect("an option"), 2 * SEND_BUFFER);
        assert!(socket.keepalive().expect("an option"));
        let keepalive = Keepalive::default();
        assert_eq!(socket.tcp_keepalive_time().expect("an option"), keepalive.idle);
        assert_eq!(socket.tcp_keepalive_interval().expect("an option"), keepalive.interval);
        assert_eq!(socket.tcp_keepalive_retries().expect("an option"), keepalive.probes);
        assert_eq!(socket.tcp_user_timeout().expect("an option"), Some(Duration::from_secs(120)));
    }

    #[test]
    fn every_keepalive_is_taken() {
        let longest =
            Keepalive { idle: Duration::from_secs(32_767), interval: Duration::from_secs(32_767), probes: 127 };
        let beyond = Keepalive { idle: Duration::MAX, interval: Duration::MAX, probes: u32::MAX };
        let least = Keepalive { idle: Duration::ZERO, interval: Duration::from_millis(1), probes: 0 };
        let one = Duration::from_secs(1);
        for (keepalive, taken) in
            [(longest, longest), (beyond, longest), (least, Keepalive { idle: one, interval: one, probes: 1 })]
        {
            let options = Options { keepalive: Some(keepalive), ..Options::default() };
            let address = Address::parse("127.0.0.1:0", 0).expect("an address");
            let listener = Listener::bind(&address, &options).expect("the system takes it");
            let ListeningSocket::Tcp(socket) = &listener.socket else { panic!("no TCP socket") };
            let socket = SockRef::from(socket);
            assert_eq!(socket.tcp_keepalive_time().expect("an option"), taken.idle);
            assert_eq!(socket.tcp_keepalive_interval().expect("an option"), taken.interval);
            assert_eq!(socket.tcp_keepalive_retries().expect("an option"), taken.probes);
            let timeout = (taken.idle + taken.interval * taken.probes).min(LONGEST_TIMEOUT);
            assert_eq!(socket.tcp_user_timeout().expect("an option"), Some(timeout));
        }
    }

    /// Another process that has the socket does not change this, and connections live on.
    #[test]
    fn closed_listener_refuses_until_it_is_opened_again() {
        let free = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], 1)));
        assert!(free.is_err(), "nothing listens on port 1");
        // A port that was named stays the socket's own while it is closed.
        let port = (20_000..30_000).find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
        let address = format!("127.0.0.1:{}", port.expect("one is free"));
        let parsed = Address::parse(&address, 0).expect("an address");
        let mut listener = Listener::bind(&parsed, &Options::default()).expect("is free");
        let ListeningSocket::Tcp(socket) = &listener.socket else { panic!("no TCP socket") };
        let _in_another_process = SockRef::from(socket).try_clone().expect("is copied");
        let early = TcpStream::connect(&address).expect("is open");
        while listener.accept().is_err() {}
        listener.close().expect("can be closed");
        let refused = TcpStream::connect(&address).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused));
        listener.adjust(&Options::default()).expect("it stays closed");
        assert!(TcpStream::connect(&address).is_err() && !listener.is_open());
        listener.reopen().expect("can be opened");
        assert!(TcpStream::connect(&address).is_ok() && listener.is_open());
        assert_eq!(early.take_error().expect("is asked").map(|error| error.kind()), None);
    }

    /// `retire` removes the file of its own socket, but not the socket that another daemon has put at that path.
    #[test]
    fn only_the_own_socket_file_is_removed() {
        let path = std::env::temp_dir().join(format!("poolcounter-listener-{}", std::process::id()));
        let address = Address::Unix(path.clone());
        let bind = || Listener::bind(&address, &Options::default()).expect("can be made");
        let first = bind();
        fs::remove_file(&path).expect("is there");
        let second = bind();
        first.retire();
        assert!(path.exists(), "it is the second one's");
        second.retire();
        assert!(!path.exists(), "it was made for it");
    }
}
