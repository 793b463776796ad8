//! Many connections to one server, driven by one loop: the load of every case.

use super::protocol::Protocol;
use super::server::Server;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::IpBindAddressNoPort;
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// Connections made before the server gets time to accept them: fewer than the C daemon's backlog holds.
const CONNECTS_AT_ONCE: usize = 16;
const EVENTS: usize = 1024;
/// Number of source addresses of short connections.
const SOURCES: usize = 64;
/// Longest silence of a server before the run fails.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Connections by number.
pub struct Clients {
    address: SocketAddr,
    protocol: Protocol,
    epoll: Epoll,
    streams: Vec<Option<TcpStream>>,
    events: Vec<EpollEvent>,
    buffer: Vec<u8>,
}

impl Clients {
    /// Returns `count` clients that are not connected yet.
    pub fn new(server: &Server, count: usize) -> io::Result<Clients> {
        Ok(Clients {
            address: server.address,
            protocol: server.protocol,
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            streams: (0..count).map(|_| None).collect(),
            events: vec![EpollEvent::empty(); EVENTS],
            buffer: vec![0; 64 * 1024],
        })
    }

    /// Returns `count` connected clients, which the server has accepted.
    pub fn connect(server: &Server, count: usize) -> io::Result<Clients> {
        let mut clients = Clients::new(server, count)?;
        let greeting = server.greeting();
        for client in 0..count {
            let stream = TcpStream::connect(server.address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            clients.epoll.add(&stream, event(EpollFlags::EPOLLIN, client))?;
            clients.streams[client] = Some(stream);
            if client % CONNECTS_AT_ONCE == 0 || client == count - 1 {
                clients.ask(client, &greeting)?;
            }
        }
        Ok(clients)
    }

    /// Returns the number of clients.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Starts to connect a client. When that is done, the client is ready, and [`Clients::is_connected`].
    pub fn open(&mut self, client: usize) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking().cloexec(), None)?;
        socket.set_tcp_nodelay(true)?;
        // Each source address has ports of its own. With one for all, the system would soon search for a free one.
        setsockopt(&socket, IpBindAddressNoPort, &true)?;
        let source = Ipv4Addr::new(127, 0, 1, (client % SOURCES) as u8 + 1);
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        match socket.connect(&self.address.into()) {
            Err(error) if error.raw_os_error() != Some(nix::errno::Errno::EINPROGRESS as i32) => return Err(error),
            _ => {}
        }
        let stream = TcpStream::from(socket);
        self.epoll.add(&stream, event(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT, client))?;
        self.streams[client] = Some(stream);
        Ok(())
    }

    /// Closes a client's connection.
    pub fn close(&mut self, client: usize) {
        self.streams[client] = None;
    }

    /// Sends all of `bytes`. The socket's buffer must have room for them.
    pub fn send(&mut self, client: usize, bytes: &[u8]) -> io::Result<()> {
        let sent = self.stream(client)?.write(bytes)?;
        if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
    }

    /// Returns the bytes that a client has received; empty if there are none.
    pub fn receive(&mut self, client: usize) -> io::Result<&[u8]> {
        let stream = self.streams[client].as_mut().ok_or(ErrorKind::NotConnected)?;
        match stream.read(&mut self.buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => Ok(&self.buffer[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(&[]),
            Err(error) => Err(error),
        }
    }

    /// Sends a request and waits for one reply, apart from everything else.
    pub fn ask(&mut self, client: usize, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut reply = Vec::new();
        self.ask_for(client, request, 1, |answer| reply = answer.to_vec())?;
        Ok(reply)
    }

    /// Sends requests that have this number of replies, and waits for these, apart from everything else.
    pub fn ask_for(
        &mut self,
        client: usize,
        requests: &[u8],
        replies: usize,
        mut hear: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        self.send(client, requests)?;
        let (protocol, buffer) = (self.protocol, &mut self.buffer);
        let stream = self.streams[client].as_mut().ok_or(ErrorKind::NotConnected)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (mut filled, mut heard) = (0, 0);
        for _ in 0..replies {
            let len = loop {
                if let Some(len) = protocol.len(&buffer[heard..filled]) {
                    break len;
                }
                match stream.read(&mut buffer[filled..])? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    len => filled += len,
                }
            };
            hear(&buffer[heard..heard + len]);
            heard += len;
        }
        stream.set_nonblocking(true)
    }

    /// Sends a request to which the reply must be the line `wanted`.
    pub fn expect(&mut self, client: usize, request: &[u8], wanted: &str) -> io::Result<()> {
        let reply = self.ask(client, request)?;
        if reply.trim_ascii_end() == wanted.as_bytes() {
            return Ok(());
        }
        Err(io::Error::other(format!("{} instead of {wanted}", reply.escape_ascii())))
    }

    /// Waits until some clients are ready, and returns their number; [`Clients::ready`] returns each.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout = EpollTimeout::try_from(timeout).map_err(io::Error::other)?;
        Ok(self.epoll.wait(&mut self.events, timeout)?)
    }

    /// Waits like [`Clients::wait`], but fails if the server is silent for too long.
    pub fn wait_for_some(&mut self) -> io::Result<usize> {
        match self.wait(PATIENCE)? {
            0 => Err(io::Error::other("the server is silent")),
            count => Ok(count),
        }
    }

    /// Returns a client that is ready, and whether it is readable.
    pub fn ready(&self, n: usize) -> (usize, bool) {
        let event = &self.events[n];
        (event.data() as usize, !(event.events() & !EpollFlags::EPOLLOUT).is_empty())
    }

    fn stream(&mut self, client: usize) -> io::Result<&mut TcpStream> {
        self.streams[client].as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

fn event(interest: EpollFlags, client: usize) -> EpollEvent {
    EpollEvent::new(interest | EpollFlags::EPOLLET, client as u64)
}
