//! A client's connection with its connection to the server: bytes that come on one leave on the other, and so does the
//! end.

use super::certificates::Credentials;
use super::common_name::Nameless;
use super::session::{MAX_MESSAGE, Session};
use super::side::Side;
use poolcounter_core::proxy::Header;
use poolcounter_core::{Time, TimerId, proxy};
use poolcounter_server::{ReadBuffer, Socket, Stream};
use std::sync::Arc;
use std::{fmt, io};

/// Most unsent bytes of one side. The other side is not read meanwhile, so that it is one read; but a client that has
/// closed its side is read to the end, to see if it has disconnected. The system's buffers are limited, too.
const MAX_UNSENT: usize = 512 * 1024;

/// Connection of a client.
pub struct Connection {
    session: Session,
    /// Credentials with which its certificate was verified last.
    credentials: Arc<Credentials>,
    /// Name of the client that was sent to the server.
    name: Option<String>,
    pub client: Side,
    pub backend: Option<Side>,
    /// Ciphertext.
    to_client: Vec<u8>,
    /// Plaintext, and the header before it.
    to_backend: Vec<u8>,
    pub phase: Phase,
    /// True if it has a turn to come.
    pub is_queued: bool,
}

/// Phase of a connection.
pub enum Phase {
    /// The client has not finished its handshake.
    Handshake { deadline: TimerId },
    /// The server has not accepted the connection yet; if its backlog was full it is tried again when the timer fires.
    Connecting { timer: TimerId, until: Time },
    /// Both sides are connected.
    Open,
    /// The server has ended its side, and the client has not.
    Lingering { deadline: TimerId },
    /// The connection must be dropped in its next turn.
    Over,
}

/// Reason for the end of a connection.
#[derive(Debug)]
pub enum End {
    /// Both sides have closed it.
    Closed,
    /// The client has disconnected, or takes no more bytes.
    Lost,
    /// The client violates the TLS protocol, or is not admitted.
    Refused(rustls::Error),
    /// The first message of the client is too long.
    TooLong,
    /// The certificate of the client has no name.
    Nameless(Nameless),
    /// The server cannot be reached.
    Unreachable(io::Error),
}

/// Buffers that connections use in their turns, one after the other.
pub struct Buffers {
    read: ReadBuffer,
    plain: Vec<u8>,
    out: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers { read: ReadBuffer::new(MAX_MESSAGE), plain: Vec::new(), out: Vec::new() }
    }
}

impl Connection {
    /// Returns a newly accepted connection, whose session is of these credentials.
    pub fn new(socket: Socket, session: Session, credentials: &Arc<Credentials>, deadline: TimerId) -> Connection {
        Connection {
            session,
            credentials: credentials.clone(),
            name: None,
            client: Side::new(socket),
            backend: None,
            to_client: Vec::new(),
            to_backend: Vec::new(),
            phase: Phase::Handshake { deadline },
            is_queued: false,
        }
    }

    /// Returns true if the client has just finished its handshake.
    pub fn is_admitted(&self) -> bool {
        matches!(self.phase, Phase::Handshake { .. }) && self.session.is_established
    }

    /// Returns true if the server has just accepted the connection.
    pub fn is_taken(&self) -> bool {
        matches!(self.phase, Phase::Connecting { .. }) && self.backend.as_ref().is_some_and(|backend| backend.has_taken)
    }

    /// Returns true if the server has just ended its side, and the client has no time limit yet.
    pub fn is_left(&self) -> bool {
        matches!(self.phase, Phase::Open) && self.backend.as_ref().is_some_and(|backend| backend.eof)
    }

    /// Returns true if another turn would do something, even without an event.
    pub fn has_work(&self) -> bool {
        let from_backend = self.backend.as_ref().is_some_and(|backend| backend.readable);
        self.client.readable && self.may_read_client() || from_backend && self.to_client.is_empty()
    }

    /// Returns the number of bytes that it keeps between its turns.
    pub fn kept_bytes(&self) -> usize {
        let unserved = self.session.unserved.as_ref().map_or(0, |bytes| bytes.capacity());
        unserved + self.to_client.capacity() + self.to_backend.capacity()
    }

    /// Puts the header before all bytes for the server.
    ///
    /// # Errors
    ///
    /// Fails if the client's certificate has no name, or the client has disconnected.
    pub fn introduce(&mut self) -> Result<(), End> {
        self.name = self.credentials.name_of(self.session.peer_certificates()).map_err(End::Nameless)?;
        let tls = proxy::Tls { version: self.session.version().into(), common_name: self.name.clone() };
        let (source, destination) = self.client.socket.ends().map_err(|_| End::Lost)?;
        let mut bytes = Vec::new();
        Header { source: Some(source), destination: Some(destination), tls: Some(tls) }.write(&mut bytes);
        bytes.append(&mut self.to_backend);
        self.to_backend = bytes;
        Ok(())
    }

    /// Verifies the client's certificate again, unless that was done with these credentials. The client must still have
    /// the name that the server was sent.
    ///
    /// # Errors
    ///
    /// Fails if the client would not be admitted now.
    pub fn confirm(&mut self, credentials: &Arc<Credentials>) -> Result<(), End> {
        if Arc::ptr_eq(&self.credentials, credentials) {
            return Ok(());
        }
        let chain = self.session.peer_certificates();
        credentials.verify(chain).map_err(End::Refused)?;
        let name = credentials.name_of(chain).map_err(End::Nameless)?;
        if self.name.is_some() && self.name != name {
            return Err(End::Nameless(Nameless::Constrained));
        }
        self.credentials = credentials.clone();
        Ok(())
    }

    /// Passes on the bytes of both sides, and their ends.
    ///
    /// # Errors
    ///
    /// Fails if the connection is over. Bytes for the client from before that are sent.
    pub fn turn(&mut self, buffers: &mut Buffers) -> Result<(), End> {
        if self.client.lost || matches!(self.phase, Phase::Over) {
            return Err(End::Lost);
        }
        self.serve_client(buffers)?;
        self.serve_backend(buffers)?;
        self.pass_on_ends(buffers)?;
        let is_flooded = self.to_client.len().max(self.to_backend.len()) > MAX_UNSENT;
        if is_flooded { Err(End::Lost) } else { Ok(()) }
    }

    /// Sends the client the end of the TLS connection, if the socket takes that at once.
    pub fn say_goodbye(&mut self, buffers: &mut Buffers) {
        let Buffers { out, .. } = buffers;
        out.clear();
        if self.session.is_established && self.session.close(out).is_ok() {
            let _ = self.client.send(&mut self.to_client, out);
        }
    }

    /// Returns the client's address, for the log.
    pub fn peer(&self) -> String {
        self.client.socket.peer().unwrap_or_else(|error| error.to_string())
    }

    /// Returns whether the client may be read, so that the bytes of one read stay within limits. A client that has
    /// closed its side is read to the end in any case: without a TLS close it has disconnected, and the server must
    /// know at once, even if it reads nothing.
    fn may_read_client(&self) -> bool {
        self.to_backend.is_empty() || self.client.hangup
    }

    fn serve_client(&mut self, Buffers { read, plain, out }: &mut Buffers) -> Result<(), End> {
        self.client.flush(&mut self.to_client).map_err(|_| End::Lost)?;
        if !self.client.readable || !self.may_read_client() {
            return Ok(());
        }
        read.load(&mut self.session.unserved, MAX_MESSAGE);
        let received = self.client.read(read);
        if self.session.is_too_much(read.len()) {
            return Err(End::TooLong);
        }
        plain.clear();
        out.clear();
        let taken = self.session.receive(read.bytes_mut(), plain, out);
        self.session.unserved = read.unserved(taken.as_ref().map_or(0, |taken| *taken));
        // An alert with the fault must be sent, too.
        self.client.send(&mut self.to_client, out).map_err(|_| End::Lost)?;
        self.send_to_server(plain)?;
        taken.map_err(End::Refused)?;
        let is_gone = self.client.eof && !self.session.has_peer_closed;
        if received.is_err() || is_gone || self.session.unserved.as_ref().is_some_and(|bytes| bytes.len() > MAX_MESSAGE)
        {
            Err(End::Lost)
        } else {
            Ok(())
        }
    }

    /// Sends bytes to the server, or keeps them until it is connected. Bytes for a server that takes no more are
    /// dropped.
    fn send_to_server(&mut self, plain: &[u8]) -> Result<(), End> {
        match &mut self.backend {
            Some(backend) if backend.finished => Ok(()),
            Some(backend) => {
                let sent = backend.send(&mut self.to_backend, plain);
                self.or_failed(sent)
            }
            None => {
                self.to_backend.extend_from_slice(plain);
                Ok(())
            }
        }
    }

    fn serve_backend(&mut self, Buffers { read, out, .. }: &mut Buffers) -> Result<(), End> {
        let Some(backend) = &mut self.backend else { return Ok(()) };
        let flushed = backend.flush(&mut self.to_backend);
        self.or_failed(flushed)?;
        let Some(backend) = self.backend.as_mut().filter(|backend| backend.readable && self.to_client.is_empty())
        else {
            return Ok(());
        };
        read.load(&mut None, 0);
        let received = backend.read(read);
        if received.is_err() {
            (backend.eof, backend.readable) = (true, false);
        }
        out.clear();
        let encrypted = if !read.is_empty() { self.session.encrypt(read.bytes(), out) } else { Ok(()) };
        drop(read.unserved(read.len()));
        encrypted.map_err(End::Refused)?;
        self.client.send(&mut self.to_client, out).map_err(|_| End::Lost)?;
        self.or_failed(received)
    }

    /// Handles a failed write to the server, which may have sent something before that. If it has accepted nothing yet,
    /// it is unreachable.
    fn or_failed(&mut self, result: io::Result<()>) -> Result<(), End> {
        match (result, &self.phase, &mut self.backend) {
            (Ok(()), ..) => Ok(()),
            (Err(error), Phase::Connecting { .. }, _) => Err(End::Unreachable(error)),
            (Err(_), _, backend) => {
                self.to_backend = Vec::new();
                backend.iter_mut().for_each(|backend| (backend.finished, backend.hangup) = (true, true));
                backend.iter_mut().for_each(|backend| backend.readable |= !backend.eof);
                Ok(())
            }
        }
    }

    fn pass_on_ends(&mut self, Buffers { out, .. }: &mut Buffers) -> Result<(), End> {
        let Some(backend) = &mut self.backend else { return Ok(()) };
        if self.session.has_peer_closed && self.to_backend.is_empty() && !backend.finished {
            backend.finish();
        }
        if backend.eof && self.to_client.is_empty() && !self.client.finished {
            out.clear();
            self.session.close(out).map_err(End::Refused)?;
            self.client.send(&mut self.to_client, out).map_err(|_| End::Lost)?;
            if self.to_client.is_empty() {
                self.client.finish();
            }
        }
        if self.client.finished && (self.client.eof || self.session.has_peer_closed) {
            Err(End::Closed)
        } else {
            Ok(())
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed => f.write_str("it was closed"),
            End::Lost => f.write_str("it is lost"),
            End::Refused(error) => error.fmt(f),
            End::TooLong => f.write_str("its first message is too long"),
            End::Nameless(reason) => f.write_str(reason.text()),
            End::Unreachable(error) => write!(f, "the server cannot be reached: {error}"),
        }
    }
}
