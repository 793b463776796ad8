//! The bare limit: the cost of an event loop that does nothing but answer. One `recv` and one `send` for each wake of a
//! connection, one `accept` for each wake of the listener, and no state but the unfinished line's first letter.

use super::protocol::{self, Protocol};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

const LISTENER: u64 = u64::MAX;

struct Limit {
    epoll: Epoll,
    /// Connections by descriptor.
    peers: Vec<Option<Peer>>,
    /// Connections that sent `W` or `Q`, in that order.
    waiting: VecDeque<usize>,
    /// True between the LOCKED for a `Q` and the following `H`.
    is_held: bool,
    /// Reply to `S`.
    stats: Vec<u8>,
    buffer: Vec<u8>,
    replies: Vec<u8>,
}

struct Peer {
    /// Blocking socket: it is read once for each event and its send buffer never fills, which saves a system call.
    stream: TcpStream,
    /// First letter of an incomplete line, or zero.
    letter: u8,
    /// Incomplete request of a protocol whose requests are not single lines.
    partial: Vec<u8>,
}

/// Serves the socket on the standard input until the process is killed. `A` is answered with LOCKED, `T` with a member,
/// `R` with RELEASED, `S` with one line of statistics; `W` waits for the DONE that `D` sends to all. `Q` gets LOCKED in
/// turn, after the `H` of the one before. In frames and of jobs, every request is granted.
pub fn serve(protocol: Protocol) -> io::Result<()> {
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
    let stats = b"waiting_workers: 0\n".to_vec();
    let (buffer, replies) = (vec![0; 64 * 1024], Vec::with_capacity(64 * 1024));
    let mut limit =
        Limit { epoll, peers: Vec::new(), waiting: VecDeque::new(), is_held: false, stats, buffer, replies };
    let mut events = vec![EpollEvent::empty(); 1024];
    loop {
        let count = limit.epoll.wait(&mut events, EpollTimeout::NONE)?;
        for event in &events[..count] {
            match event.data() {
                LISTENER => limit.accept(&listener)?,
                slot if matches!(protocol, Protocol::Lines | Protocol::Members) => limit.answer(slot as usize),
                slot => limit.answer_requests(slot as usize, protocol),
            }
        }
    }
}

impl Limit {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        let (stream, _) = listener.accept()?;
        let slot = stream.as_raw_fd() as usize;
        self.epoll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, slot as u64))?;
        if self.peers.len() <= slot {
            self.peers.resize_with(slot + 1, || None);
        }
        self.peers[slot] = Some(Peer { stream, letter: 0, partial: Vec::new() });
        Ok(())
    }

    fn answer(&mut self, slot: usize) {
        let Some(peer) = &mut self.peers[slot] else { return };
        let Ok(len @ 1..) = peer.stream.read(&mut self.buffer) else {
            self.peers[slot] = None;
            return;
        };
        self.replies.clear();
        let mut last = 0;
        for piece in self.buffer[..len].split_inclusive(|byte| *byte == b'\n') {
            if peer.letter == 0 {
                peer.letter = piece[0];
            }
            if !piece.ends_with(b"\n") {
                break;
            }
            match std::mem::take(&mut peer.letter) {
                b'A' => self.replies.extend_from_slice(b"LOCKED\n"),
                b'T' => self.replies.extend_from_slice(b"MEMBER 1795275600000000 p member-0\n"),
                b'S' => self.replies.extend_from_slice(&self.stats),
                b'Q' if !self.is_held => {
                    self.is_held = true;
                    self.replies.extend_from_slice(b"LOCKED\n");
                }
                b'Q' => self.waiting.push_back(slot),
                b'W' => {
                    self.waiting.push_back(slot);
                    self.stats = format!("waiting_workers: {}\n", self.waiting.len()).into_bytes();
                }
                letter => {
                    last = letter;
                    self.replies.extend_from_slice(b"RELEASED\n");
                }
            }
        }
        match last {
            b'D' => self.wake_everyone(),
            b'H' => self.wake_one(),
            _ => {}
        }
        self.send(slot);
    }

    fn answer_requests(&mut self, slot: usize, protocol: Protocol) {
        let Some(peer) = &mut self.peers[slot] else { return };
        let Ok(len @ 1..) = peer.stream.read(&mut self.buffer) else {
            self.peers[slot] = None;
            return;
        };
        self.replies.clear();
        let received = &self.buffer[..len];
        let joined = if peer.partial.is_empty() { Vec::new() } else { [&peer.partial, received].concat() };
        let mut rest = if joined.is_empty() { received } else { &joined };
        while let Some(len) = protocol.request_len(rest) {
            match protocol {
                Protocol::Jobs => protocol::answer_job(&rest[..len], &mut self.replies),
                Protocol::Frames | Protocol::Lines | Protocol::Members => {
                    protocol::answer(&rest[..len], &mut self.replies);
                }
            }
            rest = &rest[len..];
        }
        peer.partial = rest.to_vec();
        self.send(slot);
    }

    fn wake_one(&mut self) {
        let next = self.waiting.pop_front();
        self.is_held = next.is_some();
        if let Some(peer) = next.and_then(|slot| self.peers[slot].as_mut()) {
            // A closed connection needs no reply.
            let _ = peer.stream.write(b"LOCKED\n");
        }
    }

    /// Sends DONE to all waiters, in a bare loop.
    fn wake_everyone(&mut self) {
        for slot in self.waiting.drain(..) {
            if let Some(peer) = &mut self.peers[slot] {
                // A closed connection needs no reply.
                let _ = peer.stream.write(b"DONE\n");
            }
        }
        self.stats = b"waiting_workers: 0\n".to_vec();
    }

    fn send(&mut self, slot: usize) {
        if let Some(peer) = self.peers[slot].as_mut().filter(|_| !self.replies.is_empty()) {
            // An error is followed by an end of file, which closes the connection.
            let _ = peer.stream.write(&self.replies);
        }
    }
}
