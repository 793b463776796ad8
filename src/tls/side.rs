//! One of the two sockets of a connection, with what the poll has said of it.

use poolcounter_server::{Left, ReadBuffer, Readiness, Socket, Stream};
use std::io::{self, ErrorKind, Write};

/// A socket.
pub struct Side {
    pub socket: Socket,
    /// A read may bring something.
    pub readable: bool,
    /// A write may take something.
    pub writable: bool,
    /// The peer has said that it will send no more, though some of what it sent may be unread.
    pub hangup: bool,
    /// The connection is gone in both directions.
    pub lost: bool,
    /// Everything that the peer sent has been read.
    pub eof: bool,
    /// Nothing more is sent: that was said, or failed.
    pub finished: bool,
    /// It has taken something.
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

    /// Notes what the poll says.
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
    /// The system's, when the connection is lost.
    pub fn read(&mut self, read_buffer: &mut ReadBuffer) -> io::Result<()> {
        let left = read_buffer.read_turn(&mut self.socket, self.hangup)?;
        self.readable = left == Left::Something;
        self.eof |= left == Left::Ended;
        Ok(())
    }

    /// Sends `bytes` behind what is unsent; what does not go is unsent then.
    ///
    /// # Errors
    ///
    /// The system's, when the connection is lost.
    pub fn send(&mut self, unsent: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
        if !unsent.is_empty() || !self.writable {
            unsent.extend_from_slice(bytes);
            return self.flush(unsent);
        }
        let sent = self.write(bytes)?;
        unsent.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends what is unsent, as far as there is room.
    ///
    /// # Errors
    ///
    /// The system's, when the connection is lost.
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

    /// Writes once, and returns how many bytes went. If not all did, an event will say when there is room.
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
                // One that is not connected yet says so in either way.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    self.writable = false;
                    return Ok(0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self) {
        self.finished = true;
        // It may be gone.
        let _ = self.socket.finish();
    }
}
