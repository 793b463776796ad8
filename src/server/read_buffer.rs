//! The one buffer into which every connection is read. What a connection leaves in it unserved is kept for the connection's
//! next turn, so an idle connection owns no buffer. A long rest stays where it is kept, and what comes is put behind it: a long
//! request that comes byte by byte is not copied again with each byte.

use std::io::{self, Read};

/// How much of a connection is read in one turn: many requests of a pipelining client, a millisecond's work at most.
const READ_BYTES: usize = 64 * 1024;

/// Reads in a turn in which the peer has closed its side: its last data, and the end of file. A third is for data that one read
/// cannot take.
const READS_TO_EOF: usize = 3;

/// The longest rest that is copied into the shared buffer and back: a microsecond or two. A longer one stays where it is.
const COPIED_BYTES: usize = 16 * 1024;

/// The shared read buffer, filled for one connection at a time.
pub struct ReadBuffer {
    buffer: Box<[u8]>,
    /// How much there is to be served, wherever it stands.
    len: usize,
    /// What the connection had left unserved and all that came after it, if that is too long to be copied; else empty.
    kept: Vec<u8>,
    /// The longest request of the connection whose turn it is.
    request_bytes: usize,
}

/// What one read brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadOutcome {
    /// As much as was asked for: there may be more.
    Filled,
    /// Less than was asked for: the socket is drained.
    Short,
    /// Nothing is there.
    Nothing,
    /// The end of file: the peer has closed its side.
    End,
}

/// What a turn has left in a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// Perhaps something.
    Something,
    /// Nothing, for now.
    Nothing,
    /// Nothing: the peer has closed its side.
    Ended,
}

impl ReadBuffer {
    /// Returns a buffer for services whose longest request has `request_bytes`.
    pub fn new(request_bytes: usize) -> Self {
        ReadBuffer { buffer: vec![0; request_bytes + READ_BYTES].into(), len: 0, kept: Vec::new(), request_bytes: 0 }
    }

    /// Begins a connection's turn with what it left unserved. Its longest request has `request_bytes`.
    #[inline]
    pub fn load(&mut self, unserved: &mut Vec<u8>, request_bytes: usize) {
        self.request_bytes = request_bytes;
        self.len = unserved.len();
        if !self.kept.is_empty() {
            // The connection before has failed in the middle of its turn.
            self.kept = Vec::new();
        }
        if self.len > COPIED_BYTES {
            self.kept = std::mem::take(unserved);
        } else if self.len > 0 {
            self.buffer[..self.len].copy_from_slice(unserved);
            *unserved = Vec::new();
        }
    }

    /// Returns true when more should be read: beyond a request's length, there is one to serve.
    pub fn wants_more(&self) -> bool {
        self.len <= self.request_bytes
    }

    /// Reads once, behind what is there.
    fn read(&mut self, stream: &mut impl Read) -> io::Result<ReadOutcome> {
        let room = self.request_bytes + READ_BYTES - self.len;
        let start = if self.kept.is_empty() { self.len } else { 0 };
        let room = &mut self.buffer[start..start + room];
        let len = match stream.read(room) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(ReadOutcome::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(ReadOutcome::Filled),
            Err(error) => return Err(error),
        };
        let received = match len {
            0 => ReadOutcome::End,
            len if len == room.len() => ReadOutcome::Filled,
            _ => ReadOutcome::Short,
        };
        if !self.kept.is_empty() {
            self.kept.extend_from_slice(&room[..len]);
        }
        self.len += len;
        Ok(received)
    }

    /// Reads once. If the peer has closed its side, the end of file behind its last data is read too, so that it takes effect in this turn
    /// and not in a later one.
    #[inline]
    pub fn read_turn(&mut self, stream: &mut impl Read, has_peer_closed: bool) -> io::Result<Left> {
        for _ in 0..READS_TO_EOF {
            match self.read(stream)? {
                // Data and the end that arrive together are announced together: then the end is still to be read.
                ReadOutcome::Short if has_peer_closed => {}
                ReadOutcome::Filled => break,
                ReadOutcome::Short | ReadOutcome::Nothing => return Ok(Left::Nothing),
                ReadOutcome::End => return Ok(Left::Ended),
            }
        }
        Ok(Left::Something)
    }

    /// Returns how much the connection has to be served, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true when there is nothing to be served.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns what the connection has to be served.
    pub fn bytes(&self) -> &[u8] {
        if self.kept.is_empty() { &self.buffer[..self.len] } else { &self.kept }
    }

    /// Returns the same, to be decrypted where it stands.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.kept.is_empty() { &mut self.buffer[..self.len] } else { &mut self.kept }
    }

    /// Ends the turn, and returns what was not consumed, for the connection to keep.
    #[inline]
    pub fn unserved(&mut self, consumed: usize) -> Vec<u8> {
        if self.kept.is_empty() && consumed == self.len {
            self.len = 0;
            return Vec::new();
        }
        self.rest(consumed)
    }

    fn rest(&mut self, consumed: usize) -> Vec<u8> {
        if consumed == 0 && !self.kept.is_empty() {
            return std::mem::take(&mut self.kept);
        }
        let rest = self.bytes()[consumed..].to_vec();
        self.kept = Vec::new();
        self.len = 0;
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes in pieces of any size stands there whole, whether it is copied or stays where it is.
    #[test]
    fn unserved_bytes_stand_before_new_ones() {
        const LONGEST: usize = 4 * COPIED_BYTES;
        let sent: Vec<u8> = (0..LONGEST).map(|n| (n % 251) as u8).collect();
        for piece in [1_000, COPIED_BYTES, COPIED_BYTES + 1] {
            let mut read_buffer = ReadBuffer::new(LONGEST);
            let mut unserved = Vec::new();
            let mut arrived = 0;
            while arrived < sent.len() {
                let mut stream = &sent[arrived..sent.len().min(arrived + piece)];
                arrived += stream.len();
                read_buffer.load(&mut unserved, LONGEST);
                assert!(read_buffer.wants_more());
                assert_eq!(read_buffer.read(&mut stream).expect("a slice can be read"), ReadOutcome::Short);
                assert_eq!(read_buffer.bytes(), &sent[..arrived]);
                unserved = read_buffer.unserved(0);
            }
            read_buffer.load(&mut unserved, LONGEST);
            assert_eq!(read_buffer.unserved(7), sent[7..]);
            assert_eq!(read_buffer.bytes(), b"");
        }
    }

    /// A long line costs the byte that comes, and not the bytes before it: they are not even moved.
    #[test]
    fn much_is_not_copied() {
        let mut read_buffer = ReadBuffer::new(1 << 20);
        let mut unserved = Vec::with_capacity(1 << 20);
        unserved.resize(COPIED_BYTES + 1, b'x');
        let address = unserved.as_ptr();
        for _ in 0..1_000 {
            read_buffer.load(&mut unserved, 1 << 20);
            read_buffer.read(&mut &b"y"[..]).expect("a slice can be read");
            unserved = read_buffer.unserved(0);
        }
        assert_eq!((unserved.as_ptr(), unserved.len()), (address, COPIED_BYTES + 1_001));
    }
}
