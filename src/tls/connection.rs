//! One client's connection with the one to the server behind it: what comes on one goes out on the other, and so does the end.

use super::certificates::Credentials;
use super::common_name::Nameless;
use super::session::{MAX_MESSAGE, Session};
use super::side::Side;
use poolcounter_core::proxy::{self, Header};
use poolcounter_core::time::Time;
use poolcounter_core::wheel::TimerId;
use poolcounter_server::{ReadBuffer, Socket, Stream};
use std::fmt;
use std::io;
use std::sync::Arc;

/// The most that is kept of what one side does not take. The other side is not read meanwhile, so that it is one read; but a client
/// that has closed its side is read to the end, to see whether it is gone. What the system keeps of that is bounded, too.
const MAX_UNSENT: usize = 512 * 1024;

/// A connection.
pub struct Connection {
    session: Session,
    /// What its certificate was verified with last.
    credentials: Arc<Credentials>,
    /// The name that the server was told.
    name: Option<String>,
    client: Side,
    backend: Option<Side>,
    /// Ciphertext.
    to_client: Vec<u8>,
    /// Plaintext, and the header before it.
    to_backend: Vec<u8>,
    pub phase: Phase,
    /// It has a turn to come.
    pub is_queued: bool,
}

/// How far a connection is.
pub enum Phase {
    /// The client has not finished its handshake.
    Handshake { deadline: TimerId },
    /// The server has not taken the connection yet; if its backlog was full it is asked again when the timer fires.
    Connecting { timer: TimerId, until: Time },
    /// Both sides are there.
    Open,
    /// The server has ended its side, and the client has not.
    Lingering { deadline: TimerId },
    /// It is to be dropped in its next turn.
    Over,
}

/// Why a connection ends.
#[derive(Debug)]
pub enum End {
    /// Both sides have closed it.
    Closed,
    /// The client is gone, or takes nothing any more.
    Lost,
    /// Its client does not speak TLS as it should, or is not let in.
    Refused(rustls::Error),
    /// The first message of its client is too long.
    TooLong,
    /// The certificate of its client has no name.
    Nameless(Nameless),
    /// The server cannot be reached.
    Unreachable(io::Error),
}

/// What connections use in their turns, one after the other.
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
    /// A connection that has just been accepted, whose session is of these credentials.
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

    /// Returns the client's side.
    pub fn client(&mut self) -> &mut Side {
        &mut self.client
    }

    /// Returns the server's side, once there is one.
    pub fn backend(&mut self) -> Option<&mut Side> {
        self.backend.as_mut()
    }

    /// Returns true when the client has just finished its handshake.
    pub fn is_admitted(&self) -> bool {
        matches!(self.phase, Phase::Handshake { .. }) && self.session.is_established()
    }

    /// Returns true when the server has just taken the connection.
    pub fn is_taken(&self) -> bool {
        matches!(self.phase, Phase::Connecting { .. }) && self.backend.as_ref().is_some_and(|backend| backend.has_taken)
    }

    /// Returns true when the server has ended its side, and the client has as long as it likes.
    pub fn is_left(&self) -> bool {
        matches!(self.phase, Phase::Open) && self.backend.as_ref().is_some_and(|backend| backend.eof)
    }

    /// Returns true when another turn would do something, without anything happening.
    pub fn has_work(&self) -> bool {
        let from_backend = self.backend.as_ref().is_some_and(|backend| backend.readable);
        self.client.readable && self.may_read_client() || from_backend && self.to_client.is_empty()
    }

    /// Puts the header before all that the server will read.
    ///
    /// # Errors
    ///
    /// When the client's certificate has no name, or the client is gone.
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

    /// Verifies the client's certificate anew, unless that was done with these credentials. The client must still be known by the name
    /// that the server was told.
    ///
    /// # Errors
    ///
    /// When the client would not be let in now.
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

    /// Goes on with a connection to the server.
    pub fn attach(&mut self, backend: Socket) {
        self.backend = Some(Side::new(backend));
    }

    /// Passes on what has come on both sides, and their ends.
    ///
    /// # Errors
    ///
    /// When it is over. What was told to the client before that is sent.
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

    /// Tells the client that the connection ends, if it takes that at once.
    pub fn say_goodbye(&mut self, buffers: &mut Buffers) {
        let Buffers { out, .. } = buffers;
        out.clear();
        if self.session.is_established() && self.session.close(out).is_ok() {
            let _ = self.client.send(&mut self.to_client, out);
        }
    }

    /// Returns who the client is, for the log.
    pub fn peer(&self) -> String {
        self.client.socket.peer().unwrap_or_else(|error| error.to_string())
    }

    /// What one read brings stays within bounds. A client that has closed its side is read to the end in any case: if it has not said
    /// so in TLS it is gone, and the server must know at once, even if it reads nothing.
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
        // An alert that says what is wrong must go, too.
        self.client.send(&mut self.to_client, out).map_err(|_| End::Lost)?;
        self.send_to_server(plain)?;
        taken.map_err(End::Refused)?;
        let is_gone = self.client.eof && !self.session.has_peer_closed();
        if received.is_err() || is_gone || self.session.unserved.len() > MAX_MESSAGE { Err(End::Lost) } else { Ok(()) }
    }

    /// Sends to the server, or keeps it for when the server is there. What it cannot be told any more is nobody's.
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
        read.load(&mut Vec::new(), 0);
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

    /// A server that takes nothing more may have said something before that. One that has taken nothing at all is not there.
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
        if self.session.has_peer_closed() && self.to_backend.is_empty() && !backend.finished {
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
        if self.client.finished && (self.client.eof || self.session.has_peer_closed()) {
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
            End::Nameless(reason) => reason.fmt(f),
            End::Unreachable(error) => write!(f, "the server cannot be reached: {error}"),
        }
    }
}
