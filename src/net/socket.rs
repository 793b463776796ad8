//! A connection's socket, TCP or local.

use super::connection::Stream;
use crate::address::Address;
use crate::service::Credentials;
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{getsockopt, sockopt};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A connected, non-blocking socket.
pub enum Socket {
    /// From a TCP port.
    Tcp(TcpStream),
    /// From a path in the file system.
    Unix(UnixStream),
}

impl Socket {
    /// Returns the socket with this descriptor.
    pub fn restore(fd: OwnedFd, is_unix: bool) -> Socket {
        if is_unix {
            Socket::Unix(UnixStream::from_std(fd.into()))
        } else {
            Socket::Tcp(TcpStream::from_std(fd.into()))
        }
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
                Ok(Socket::Tcp(stream))
            }
            Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
            Address::Proxied(inner) => Socket::connect(inner),
        }
    }

    /// Returns the address of the peer, and that to which the peer has connected.
    ///
    /// # Errors
    ///
    /// When the peer is gone, or it is no TCP connection.
    pub fn ends(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match self {
            Socket::Tcp(stream) => Ok((stream.peer_addr()?, stream.local_addr()?)),
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
            Socket::Tcp(stream) => SockRef::from(stream).set_recv_buffer_size(bytes),
            Socket::Unix(_) => Ok(()),
        }
    }

    /// Returns its descriptor, and true if it is a Unix socket.
    pub fn descriptor(&self) -> (RawFd, bool) {
        match self {
            Socket::Tcp(stream) => (stream.as_raw_fd(), false),
            Socket::Unix(stream) => (stream.as_raw_fd(), true),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(bytes),
            Socket::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(bytes),
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
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    fn peer(&self) -> io::Result<String> {
        Ok(match self {
            Socket::Tcp(stream) => {
                let address = stream.peer_addr()?;
                SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
            }
            Socket::Unix(stream) => format!("unix:{}", getsockopt(stream, sockopt::PeerCredentials)?.pid()),
        })
    }

    fn is_local(&self) -> bool {
        match self {
            Socket::Tcp(stream) => stream.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback()),
            Socket::Unix(_) => true,
        }
    }

    fn ip(&self) -> Option<IpAddr> {
        match self {
            Socket::Tcp(stream) => stream.peer_addr().ok().map(|address| address.ip().to_canonical()),
            Socket::Unix(_) => None,
        }
    }

    fn credentials(&self) -> Option<Credentials> {
        match self {
            Socket::Tcp(_) => None,
            Socket::Unix(stream) => {
                let peer = getsockopt(stream, sockopt::PeerCredentials).ok()?;
                Some(Credentials { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() })
            }
        }
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.register(registry, token, interests),
            Socket::Unix(stream) => stream.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.reregister(registry, token, interests),
            Socket::Unix(stream) => stream.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.deregister(registry),
            Socket::Unix(stream) => stream.deregister(registry),
        }
    }
}
