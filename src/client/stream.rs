//! Stream of a connection: a socket, or TLS over one. Independent of the protocol within.
//!
//! Invariant: between two calls all unread input is still in the socket, so a poll of the descriptor misses nothing.

#[cfg(feature = "tls")]
use super::tls::TlsStream;
use socket2::Socket;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Stream of bytes in both directions.
#[derive(Debug)]
pub(super) enum ClientStream {
    Plain(Socket),
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
}

impl ClientStream {
    fn socket(&self) -> &Socket {
        match self {
            ClientStream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            ClientStream::Tls(stream) => stream.socket(),
        }
    }

    /// Sends all bytes.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            ClientStream::Plain(socket) => socket.write_all(bytes),
            #[cfg(feature = "tls")]
            ClientStream::Tls(stream) => stream.write_all(bytes),
        }
    }

    /// Appends received bytes to `input`, about one `chunk` at most, and waits up to the socket's timeout. Returns
    /// their number; 0 at the end.
    pub fn read_to(&mut self, input: &mut Vec<u8>, chunk: &mut [u8]) -> io::Result<usize> {
        match self {
            ClientStream::Plain(socket) => {
                let len = socket.read(chunk)?;
                input.extend_from_slice(&chunk[..len]);
                Ok(len)
            }
            #[cfg(feature = "tls")]
            ClientStream::Tls(stream) => stream.read_to(input),
        }
    }

    /// Returns true if there is unread input, an end or an error. Does not wait.
    pub fn has_news(&self) -> bool {
        let peek = || {
            self.set_nonblocking(true)?;
            let peeked = match self {
                ClientStream::Plain(socket) => socket.peek(&mut [MaybeUninit::uninit()]).map(|_| true),
                #[cfg(feature = "tls")]
                ClientStream::Tls(stream) => stream.has_news(),
            };
            self.set_nonblocking(false)?;
            peeked
        };
        match peek() {
            Ok(has_news) => has_news,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    pub fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        self.socket().set_nonblocking(is_nonblocking)
    }

    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket().set_read_timeout(Some(timeout))
    }
}

impl AsFd for ClientStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}
