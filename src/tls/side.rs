//! One of the two sockets of a connection, with its state in the poll.

use poolcounter_server::{Left, ReadBuffer, Readiness, Socket, Stream};
use std::io::{self, ErrorKind, Write};

/// A socket with its state.
pub struct Side {
    pub socket: Socket,
    /// True if a read may return bytes.
    pub readable: bool,
    /// True if a write may take bytes.
    pub writable: bool,
    /// True if the peer has closed its sending side, though its last bytes may be unread.
    pub hangup: bool,
    /// True if the connection is closed in both directions.
    pub lost: bool,
    /// True once everything that the peer sent has been read.
    pub eof: bool,
    /// True once no more is sent: the sending side was closed, or failed.
    pub finished: bool,
    /// True once it has taken bytes.
    pub has_taken: bool,
}

impl Side {
    pub fn new(socket: Socket) -> Side {
        Side {
            socket,
            readable: false,
            writable: true,
            hangup: false,
            lost: false,
            eof: false,
            finished: false,
            has_taken: false,
        }
    }

    /// Notes an event of the poll.
    pub fn note(&mut self, Readiness { readable, writable, hangup, lost }: Readiness) {
        self.readable |= (readable || hangup) && !self.eof;
        self.writable |= writable;
        self.hangup |= hangup;
        self.lost |= lost;
    }

    /// Reads once, or until the end of file if the peer has closed its side.
    ///
    /// # Errors
    ///
    /// The system's error: the connection is lost.
    pub fn read(&mut self, read_buffer: &mut ReadBuffer) -> io::Result<()> {
        let left = read_buffer.read_turn(&mut self.socket, self.hangup)?;
        self.readable = left == Left::Something;
        self.eof |= left == Left::Ended;
        Ok(())
    }

    /// Sends `bytes` behind the unsent bytes; bytes that cannot be sent now are appended to these.
    ///
    /// # Errors
    ///
    /// The system's error: the connection is lost.
    pub fn send(&mut self, unsent: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
        if !unsent.is_empty() || !self.writable {
            unsent.extend_from_slice(bytes);
            return self.flush(unsent);
        }
        let sent = self.write(bytes)?;
        unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends unsent bytes, as far as there is room.
    ///
    /// # Errors
    ///
    /// The system's error: the connection is lost.
    pub fn flush(&mut self, unsent: &mut Vec<u8>) -> io::Result<()> {
        if unsent.is_empty() || !self.writable {
            return Ok(());
        }
        let sent = self.write(unsent)?;
        if sent == unsent.len() {
            *unsent = Vec::new();
        } else {
            unsent.drain(..sent);
        }
        Ok(())
    }

    /// Writes once, and returns the number of bytes written. If not all were, an event will come when there is room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            match self.socket.write(bytes) {
                Ok(sent) => {
                    self.writable = sent == bytes.len();
                    self.has_taken = true;
                    return Ok(sent);
                }
                // A socket that is not connected yet returns either error.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    self.writable = false;
                    return Ok(0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Closes the sending side.
    pub fn finish(&mut self) {
        self.finished = true;
        // The peer may have disconnected.
        let _ = self.socket.finish();
    }
}
