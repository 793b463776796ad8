//! A connection's socket, TCP or local.

use super::connection::Stream;
use super::id_maps;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{getsockopt, sockopt};
use poolcounter_core::address::Address;
use poolcounter_service::contract::Credentials;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A connected, non-blocking socket.
pub enum Socket {
    /// From a TCP port.
    Tcp {
        /// The socket.
        stream: TcpStream,
        /// The peer's address as it was when the connection began, because the system forgets it once the peer has reset the connection.
        /// An IPv4 address in IPv6 form stands as IPv4. None if the system did not tell it in time.
        peer: Option<SocketAddr>,
    },
    /// From a path in the file system.
    Unix(UnixStream),
}

impl Socket {
    /// Returns a TCP connection with the address of its peer.
    pub fn tcp(stream: TcpStream, peer: Option<SocketAddr>) -> Socket {
        let canonical = |peer: SocketAddr| SocketAddr::new(peer.ip().to_canonical(), peer.port());
        Socket::Tcp { stream, peer: peer.map(canonical) }
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

    /// Returns a socket that is being connected to an address, which goes on in the background.
    ///
    /// # Errors
    ///
    /// The system's; `WouldBlock` when the backlog of a Unix socket is full.
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

    /// Returns the address of the peer, and that to which the peer has connected.
    ///
    /// # Errors
    ///
    /// When the peer is not known, or it is no TCP connection; else the system's.
    pub fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match self {
            Socket::Tcp { stream, peer } => Ok((peer.ok_or(io::ErrorKind::NotConnected)?, stream.local_addr()?)),
            Socket::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Has the system keep about so many bytes of what was not read.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn bound_receive_buffer(&self, bytes: usize) -> io::Result<()> {
        match self {
            Socket::Tcp { stream, .. } => SockRef::from(stream).set_recv_buffer_size(bytes),
            Socket::Unix(_) => Ok(()),
        }
    }

    /// Returns its descriptor, true if it is a Unix socket, and the address of its peer if that is known.
    pub fn descriptor(&self) -> (RawFd, bool, Option<SocketAddr>) {
        match self {
            Socket::Tcp { stream, peer } => (stream.as_raw_fd(), false, *peer),
            Socket::Unix(stream) => (stream.as_raw_fd(), true, None),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp { stream, .. } => stream.read(bytes),
            Socket::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp { stream, .. } => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Socket {
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Socket::Tcp { stream, .. } => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    fn peer(&self) -> io::Result<String> {
        Ok(match self {
            Socket::Tcp { peer, .. } => peer.ok_or(io::ErrorKind::NotConnected)?.to_string(),
            Socket::Unix(stream) => format!("unix:{}", getsockopt(stream, sockopt::PeerCredentials)?.pid()),
        })
    }

    fn is_local(&self) -> bool {
        match self {
            Socket::Tcp { peer, .. } => peer.is_some_and(|peer| peer.ip().is_loopback()),
            Socket::Unix(_) => true,
        }
    }

    fn ip(&self) -> Option<IpAddr> {
        match self {
            Socket::Tcp { peer, .. } => peer.map(|peer| peer.ip()),
            Socket::Unix(_) => None,
        }
    }

    fn is_known(&self) -> bool {
        !matches!(self, Socket::Tcp { peer: None, .. })
    }

    fn credentials(&self) -> Option<Credentials> {
        match self {
            Socket::Tcp { .. } => None,
            Socket::Unix(stream) => {
                let peer = getsockopt(stream, sockopt::PeerCredentials).ok()?;
                let ids = id_maps::here();
                Some(Credentials { uid: ids.uid(peer.uid()), gid: ids.gid(peer.gid()), pid: peer.pid() })
            }
        }
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Socket::Tcp { stream, .. } => stream.register(registry, token, interests),
            Socket::Unix(stream) => stream.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Socket::Tcp { stream, .. } => stream.reregister(registry, token, interests),
            Socket::Unix(stream) => stream.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Socket::Tcp { stream, .. } => stream.deregister(registry),
            Socket::Unix(stream) => stream.deregister(registry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn the_address_stays_when_the_system_has_forgotten_it() {
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
    fn an_ipv4_address_in_ipv6_form_is_one() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = mio::net::TcpStream::connect(listener.local_addr().expect("is bound")).expect("connects");
        let socket = Socket::tcp(stream, Some("[::ffff:127.0.0.2]:7".parse().expect("an address")));
        assert!(socket.is_local());
        assert_eq!(socket.peer().ok(), Some("127.0.0.2:7".into()));
    }
}
