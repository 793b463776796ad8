//! Buffer into which every connection is read. Bytes that are left unserved are kept for the connection's next turn, so
//! an idle connection owns no buffer. A long rest stays in its own buffer, and new bytes are appended there: a long
//! request that comes byte by byte is not copied again with each byte.

use std::io::{self, ErrorKind, Read};

/// Bytes of a connection that are read in one turn: many requests of a pipelining client, at most a millisecond's work.
const READ_BYTES: usize = 64 * 1024;

/// Reads in a turn in which the peer has closed its side: its last data, and the end of file. A third is for data that
/// one read cannot take.
const READS_TO_EOF: usize = 3;

/// Longest rest that is copied into the shared buffer and back, within a microsecond or two. A longer one stays in its
/// own buffer.
const COPIED_BYTES: usize = 16 * 1024;

/// Bytes of a connection that wait for its next turn. A pointer, because few connections have any.
pub type Unserved = Option<Box<Vec<u8>>>;

/// Shared read buffer, filled for one connection at a time.
pub struct ReadBuffer {
    buffer: Box<[u8]>,
    /// Number of bytes to serve, in either buffer.
    len: usize,
    /// Rest of the connection with all later bytes, if that is too long to be copied; else empty.
    kept: Vec<u8>,
    /// Longest request of the connection whose turn it is, in bytes.
    request_bytes: usize,
}

/// State of a stream after a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// There may be more bytes.
    Something,
    /// There are no more bytes at present.
    Nothing,
    /// There will be no more bytes: the peer has closed its side.
    Ended,
}

impl ReadBuffer {
    /// Returns a buffer for services whose longest request has `request_bytes`.
    pub fn new(request_bytes: usize) -> Self {
        ReadBuffer { buffer: vec![0; request_bytes + READ_BYTES].into(), len: 0, kept: Vec::new(), request_bytes: 0 }
    }

    /// Starts a connection's turn with its unserved bytes. Its longest request has `request_bytes`.
    #[inline(always)]
    pub fn load(&mut self, unserved: &mut Unserved, request_bytes: usize) {
        self.request_bytes = request_bytes;
        self.len = 0;
        if !self.kept.is_empty() {
            // The previous connection has failed in the middle of its turn.
            self.kept = Vec::new();
        }
        if let Some(unserved) = unserved.take() {
            self.continue_with(*unserved);
        }
    }

    fn continue_with(&mut self, unserved: Vec<u8>) {
        self.len = unserved.len();
        if self.len > COPIED_BYTES {
            self.kept = unserved;
        } else {
            self.buffer[..self.len].copy_from_slice(&unserved);
        }
    }

    /// Returns true while there may be no whole request: up to the length of the longest one.
    pub fn wants_more(&self) -> bool {
        self.len <= self.request_bytes
    }

    /// Reads once, behind the present bytes. If the peer has closed its side, the end of file behind its last data is read
    /// too, so that it takes effect in this turn and not in a later one.
    #[inline]
    pub fn read_turn(&mut self, stream: &mut impl Read, has_peer_closed: bool) -> io::Result<Left> {
        for _ in 0..READS_TO_EOF {
            let room = self.request_bytes + READ_BYTES - self.len;
            let start = if self.kept.is_empty() { self.len } else { 0 };
            let room = &mut self.buffer[start..start + room];
            let len = match stream.read(room) {
                Ok(0) => return Ok(Left::Ended),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Left::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(Left::Something),
                Err(error) => return Err(error),
            };
            let is_filled = len == room.len();
            if !self.kept.is_empty() {
                self.kept.extend_from_slice(&room[..len]);
            }
            self.len += len;
            // Data and the end that arrive together are announced together: then the end must still be read.
            if is_filled || !has_peer_closed {
                return Ok(if is_filled { Left::Something } else { Left::Nothing });
            }
        }
        Ok(Left::Something)
    }

    /// Returns the number of bytes to serve.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no bytes to serve.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes to serve.
    pub fn bytes(&self) -> &[u8] {
        if self.kept.is_empty() { &self.buffer[..self.len] } else { &self.kept }
    }

    /// Returns the bytes to serve, for decryption in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.kept.is_empty() { &mut self.buffer[..self.len] } else { &mut self.kept }
    }

    /// Ends the turn, and returns the unconsumed bytes, for the connection to keep.
    #[inline(always)]
    pub fn unserved(&mut self, consumed: usize) -> Unserved {
        if consumed == self.len {
            self.len = 0;
            if !self.kept.is_empty() {
                self.kept = Vec::new();
            }
            return None;
        }
        Some(self.rest(consumed).into())
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

    /// Bytes in pieces of any size come together, whether they are copied or stay in their own buffer.
    #[test]
    fn unserved_bytes_stand_before_new_ones() {
        const LONGEST: usize = 4 * COPIED_BYTES;
        let sent: Vec<u8> = (0..LONGEST).map(|n| (n % 251) as u8).collect();
        for piece in [1_000, COPIED_BYTES, COPIED_BYTES + 1] {
            let mut read_buffer = ReadBuffer::new(LONGEST);
            let mut unserved = None;
            let mut arrived = 0;
            while arrived < sent.len() {
                let mut stream = &sent[arrived..sent.len().min(arrived + piece)];
                arrived += stream.len();
                read_buffer.load(&mut unserved, LONGEST);
                assert!(read_buffer.wants_more());
                assert_eq!(read_buffer.read_turn(&mut stream, false).expect("a slice can be read"), Left::Nothing);
                assert_eq!(read_buffer.bytes(), &sent[..arrived]);
                unserved = read_buffer.unserved(0);
            }
            read_buffer.load(&mut unserved, LONGEST);
            assert_eq!(read_buffer.unserved(7).as_deref(), Some(&sent[7..].to_vec()));
            assert_eq!(read_buffer.bytes(), b"");
        }
    }

    /// The cost of a long line is that of the new byte: the bytes before it are not even moved.
    #[test]
    fn much_is_not_copied() {
        let mut read_buffer = ReadBuffer::new(1 << 20);
        let mut bytes = Vec::with_capacity(1 << 20);
        bytes.resize(COPIED_BYTES + 1, b'x');
        let address = bytes.as_ptr();
        let mut unserved = Some(Box::new(bytes));
        for _ in 0..1_000 {
            read_buffer.load(&mut unserved, 1 << 20);
            read_buffer.read_turn(&mut &b"y"[..], false).expect("a slice can be read");
            unserved = read_buffer.unserved(0);
        }
        let bytes = unserved.expect("nothing is consumed");
        assert_eq!((bytes.as_ptr(), bytes.len()), (address, COPIED_BYTES + 1_001));
    }
}
