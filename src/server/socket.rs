//! Socket of a connection, TCP or local.

use super::connection::Stream;
use super::id_maps;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{getsockopt, sockopt};
use poolcounter_core::Address;
use poolcounter_core::decimal::push_number;
use poolcounter_service::contract::Credentials;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Connected, non-blocking socket.
pub enum Socket {
    /// TCP connection.
    Tcp {
        /// The socket.
        stream: TcpStream,
        /// Address of the peer at the begin of the connection, because the system forgets it once the peer has reset
        /// the connection. An IPv4 address in IPv6 form is kept as IPv4. None if the system did not report it in time.
        peer: Option<PeerAddress>,
    },
    /// Connection over a path in the file system.
    Unix(UnixStream),
}

/// Address of a peer, in 24 bytes: a [`SocketAddr`] has 32, because it keeps a flow label, too.
#[derive(Clone, Copy)]
pub enum PeerAddress {
    /// IPv4 address.
    V4(SocketAddrV4),
    /// IPv6 address.
    V6 {
        /// The address.
        ip: Ipv6Addr,
        /// Port.
        port: u16,
        /// Network interface of a link-local address, else 0.
        scope: u32,
    },
}

impl From<SocketAddr> for PeerAddress {
    /// Converts an address; an IPv4 address in IPv6 form becomes IPv4.
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => PeerAddress::V4(address),
            SocketAddr::V6(address) => match address.ip().to_canonical() {
                IpAddr::V4(ip) => PeerAddress::V4(SocketAddrV4::new(ip, address.port())),
                IpAddr::V6(ip) => PeerAddress::V6 { ip, port: address.port(), scope: address.scope_id() },
            },
        }
    }
}

impl From<PeerAddress> for SocketAddr {
    fn from(address: PeerAddress) -> Self {
        match address {
            PeerAddress::V4(address) => address.into(),
            PeerAddress::V6 { ip, port, scope } => SocketAddrV6::new(ip, port, 0, scope).into(),
        }
    }
}

impl Socket {
    /// Returns a TCP connection with the address of its peer.
    pub fn tcp(stream: TcpStream, peer: Option<SocketAddr>) -> Socket {
        Socket::Tcp { stream, peer: peer.map(PeerAddress::from) }
    }

    /// Returns the socket with this descriptor, and the address of its peer if that was handed over.
    pub fn restore(fd: OwnedFd, is_unix: bool, peer: Option<SocketAddr>) -> Socket {
        if is_unix {
            return Socket::Unix(UnixStream::from_std(fd.into()));
        }
        let stream = TcpStream::from_std(fd.into());
        let peer = peer.or_else(|| stream.peer_addr().ok());
        Socket::tcp(stream, peer)
    }

    /// Starts to connect a socket to an address, and returns it at once.
    ///
    /// # Errors
    ///
    /// The system's error; `WouldBlock` if the backlog of a Unix socket is full.
    pub fn connect(address: &Address) -> io::Result<Socket> {
        match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(*address)?;
                stream.set_nodelay(true)?;
                Ok(Socket::tcp(stream, Some(*address)))
            }
            Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
            Address::Proxied(inner) => Socket::connect(inner),
        }
    }

    /// Returns the address of the peer, and the local address.
    ///
    /// # Errors
    ///
    /// Fails if the peer is unknown, or it is no TCP connection; else the system's error.
    pub fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let Socket::Tcp { stream, .. } = self else { return Err(io::ErrorKind::Unsupported.into()) };
        Ok((self.peer_address().ok_or(io::ErrorKind::NotConnected)?, stream.local_addr()?))
    }

    /// Limits the system's buffer of unread bytes to about `bytes`.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn bound_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        match self {
            Socket::Tcp { stream, .. } => SockRef::from(stream).set_recv_buffer_size(bytes),
            Socket::Unix(_) => Ok(()),
        }
    }

    /// Returns its descriptor, true if it is a Unix socket, and the address of its peer if that is known.
    pub fn descriptor(&self) -> (RawFd, bool, Option<SocketAddr>) {
        match self {
            Socket::Tcp { stream, .. } => (stream.as_raw_fd(), false, self.peer_address()),
            Socket::Unix(stream) => (stream.as_raw_fd(), true, None),
        }
    }

    /// Returns the address of the peer, if it is known and a TCP connection.
    fn peer_address(&self) -> Option<SocketAddr> {
        if let Socket::Tcp { peer, .. } = self { peer.map(SocketAddr::from) } else { None }
    }
}

/// Evaluates an expression on the stream of a socket, of whatever kind it is.
macro_rules! of_both {
    ($socket:expr, $stream:ident => $value:expr) => {
        match $socket {
            Socket::Tcp { stream: $stream, .. } => $value,
            Socket::Unix($stream) => $value,
        }
    };
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        of_both!(self, stream => stream.read(bytes))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        of_both!(self, stream => stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Socket {
    fn finish(&mut self) -> io::Result<()> {
        of_both!(self, stream => stream.shutdown(Shutdown::Write))
    }

    fn peer(&self) -> io::Result<String> {
        Ok(match self {
            Socket::Tcp { peer: Some(PeerAddress::V4(address)), .. } => text_of(address),
            Socket::Tcp { .. } => self.peer_address().ok_or(io::ErrorKind::NotConnected)?.to_string(),
            Socket::Unix(stream) => format!("unix:{}", getsockopt(stream, sockopt::PeerCredentials)?.pid()),
        })
    }

    fn is_local(&self) -> bool {
        self.ip().map_or(matches!(self, Socket::Unix(_)), |ip| ip.is_loopback())
    }

    fn ip(&self) -> Option<IpAddr> {
        self.peer_address().map(|address| address.ip())
    }

    fn is_known(&self) -> bool {
        !matches!(self, Socket::Tcp { peer: None, .. })
    }

    fn credentials(&self) -> Option<Credentials> {
        let Socket::Unix(stream) = self else { return None };
        let peer = getsockopt(stream, sockopt::PeerCredentials).ok()?;
        let ids = id_maps::here();
        Some(Credentials { uid: ids.uid(peer.uid()), gid: ids.gid(peer.gid()), pid: peer.pid() })
    }
}

/// Returns an address as text. The usual way of the library takes 800 instructions, and some requests need it.
fn text_of(address: &SocketAddrV4) -> String {
    let mut text = Vec::with_capacity("255.255.255.255:65535".len());
    for (octet, behind) in address.ip().octets().into_iter().zip(*b"...:") {
        push_number(&mut text, octet.into());
        text.push(behind);
    }
    push_number(&mut text, address.port().into());
    String::from_utf8(text).expect("digits, dots and a colon are text")
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        of_both!(self, stream => stream.register(registry, token, interests))
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        of_both!(self, stream => stream.reregister(registry, token, interests))
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        of_both!(self, stream => stream.deregister(registry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn address_stays_when_the_system_has_forgotten_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("is bound")).expect("connects");
        let (accepted, peer) = listener.accept().expect("somebody connects");
        accepted.set_nonblocking(true).expect("an option");
        SockRef::from(&client).set_linger(Some(Duration::ZERO)).expect("an option");
        drop(client);
        let deadline = Instant::now() + Duration::from_secs(10);
        while accepted.peer_addr().is_ok() {
            assert!(Instant::now() < deadline, "the reset does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
        let copy = || OwnedFd::from(accepted.try_clone().expect("a descriptor is free"));
        let known = Socket::restore(copy(), false, Some(peer));
        assert!(known.is_known() && known.is_local());
        assert_eq!((known.ip(), known.peer().ok()), (Some(peer.ip()), Some(peer.to_string())));
        let unknown = Socket::restore(copy(), false, None);
        assert!(!unknown.is_known() && !unknown.is_local() && unknown.ip().is_none() && unknown.peer().is_err());
    }

    #[test]
    fn ipv4_address_in_ipv6_form_is_one() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = mio::net::TcpStream::connect(listener.local_addr().expect("is bound")).expect("connects");
        let socket = Socket::tcp(stream, Some("[::ffff:127.0.0.2]:7".parse().expect("an address")));
        assert!(socket.is_local());
        assert_eq!(socket.peer().ok(), Some("127.0.0.2:7".into()));
    }
}
