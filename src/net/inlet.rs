//! The one buffer into which every connection is read. What a connection leaves in it unserved goes into a box of its own
//! until the connection's next turn, so an idle connection owns no buffer.

use std::io::{self, Read};

/// How much of a connection is read in one turn: many requests of a pipelining client, a millisecond's work at most.
const READ_BYTES: usize = 64 * 1024;

/// The shared read buffer, filled for one connection at a time.
pub struct Inlet {
    buffer: Box<[u8]>,
    filled: usize,
    /// The longest request of the connection whose turn it is.
    request_bytes: usize,
}

/// What one read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// As much as was asked for: there may be more.
    Filled,
    /// Less than was asked for: the socket is drained.
    Short,
    /// Nothing, because nothing is there.
    Nothing,
    /// Nothing, because the peer has closed its side.
    End,
}

impl Inlet {
    /// A buffer for services whose longest request has `request_bytes`.
    pub fn new(request_bytes: usize) -> Self {
        Inlet { buffer: vec![0; request_bytes + READ_BYTES].into(), filled: 0, request_bytes: 0 }
    }

    /// Begins a connection's turn with what it left unserved. Its longest request has `request_bytes`.
    pub fn load(&mut self, unserved: &mut Box<[u8]>, request_bytes: usize) {
        self.request_bytes = request_bytes;
        self.filled = unserved.len();
        self.buffer[..self.filled].copy_from_slice(unserved);
        *unserved = Box::default();
    }

    /// Whether there is so little that more should be read: beyond a request's length, there is one to serve.
    pub fn wants_more(&self) -> bool {
        self.filled <= self.request_bytes
    }

    /// Reads once, behind what is there.
    pub fn read(&mut self, stream: &mut impl Read) -> io::Result<Received> {
        let room = &mut self.buffer[self.filled..self.request_bytes + READ_BYTES];
        let len = match stream.read(room) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Received::Filled),
            Err(error) => return Err(error),
        };
        let received = match len {
            0 => Received::End,
            len if len == room.len() => Received::Filled,
            _ => Received::Short,
        };
        self.filled += len;
        Ok(received)
    }

    /// What the connection has to be served.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Ends the turn: what was not consumed, for the connection to keep.
    pub fn unserved(&mut self, consumed: usize) -> Box<[u8]> {
        let rest = self.buffer[consumed..self.filled].into();
        self.filled = 0;
        rest
    }
}
