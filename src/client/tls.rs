//! TLS to servers: whom a client trusts, what it shows, and the stream of one connection.

use super::{MediaWiki, Producer, Ring, Runner};
use poolcounter_core::pem::{authorities_in, certificates_in, key_in, wrong};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::Socket;
use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a client speaks to servers that are named `tls:HOST:PORT`: the authorities that it trusts, and the certificate that it shows.
/// Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Returns it from files in PEM: the authorities whose servers are trusted, and if there is one the client's certificate with its key.
    ///
    /// # Errors
    ///
    /// One sentence that names the file and what is wrong with it.
    pub fn from_files(ca: &Path, certificate: Option<(&Path, &Path)>) -> Result<Tls, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder =
            builder.with_safe_default_protocol_versions().map_err(|error| format!("TLS cannot be used: {error}"))?;
        let builder = builder.with_root_certificates(authorities_in(ca)?);
        Ok(Tls(Arc::new(match certificate {
            None => builder.with_no_client_auth(),
            Some((path, key)) => builder
                .with_client_auth_cert(certificates_in(path)?, key_in(key)?)
                .map_err(|error| wrong(path, &error))?,
        })))
    }
}

impl MediaWiki {
    /// Returns the placement, whose servers `tls:HOST:PORT` are spoken to so.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }
}

impl Ring {
    /// Returns the placement, whose servers `tls:HOST:PORT` are spoken to so.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }
}

impl Producer {
    /// Returns the producer, which speaks so to servers `tls:HOST:PORT`.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.session.get_mut().tls = Some(tls);
        self
    }
}

impl Runner {
    /// Returns the runner, which speaks so to servers `tls:HOST:PORT`.
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.session.tls = Some(tls);
        self
    }
}

/// It is itself and its clones.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Tls {
    /// There is a key in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// TLS over a socket.
#[derive(Debug)]
pub(super) struct TlsStream {
    socket: Socket,
    /// What the server says of the session, such as a ticket, is taken when one only looks for news.
    tls: RefCell<ClientConnection>,
}

impl TlsStream {
    /// Shakes hands on a connected socket with the server of this name, within the time.
    pub fn shake_hands(socket: Socket, tls: &Tls, host: &str, within: Duration) -> io::Result<TlsStream> {
        let name =
            ServerName::try_from(host.to_string()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let mut tls = ClientConnection::new(tls.0.clone(), name).map_err(io::Error::other)?;
        let deadline = Instant::now() + within;
        while tls.is_handshaking() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(ErrorKind::TimedOut, "the handshake of TLS takes too long"));
            }
            socket.set_read_timeout(Some(left))?;
            match tls.complete_io(&mut &socket) {
                Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Err(error);
                }
                _ => {}
            }
        }
        Ok(TlsStream { socket, tls: RefCell::new(tls) })
    }

    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Sends all of it.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let tls = self.tls.get_mut();
        tls.writer().write_all(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut &self.socket)?;
        }
        Ok(())
    }

    /// Appends all that is there to `input`, and waits for the socket's timeout if there is nothing. Returns how many bytes they were; 0
    /// is the end.
    pub fn read_to(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let before = input.len();
        loop {
            // All of it, as no event of the socket tells of what is in here.
            match self.tls.get_mut().reader().read_to_end(input) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
                _ => return Ok(input.len() - before),
            }
            if input.len() > before {
                return Ok(input.len() - before);
            }
            self.receive()?;
        }
    }

    /// Returns true when there is something to be read, or the end. Does not wait where the socket does not.
    pub fn has_news(&self) -> io::Result<bool> {
        loop {
            // What an earlier look has found is not in the socket any more.
            let state = self.tls.borrow_mut().process_new_packets().map_err(io::Error::other)?;
            if state.peer_has_closed() || state.plaintext_bytes_to_read() > 0 || self.receive()? {
                return Ok(true);
            }
        }
    }

    /// Reads from the socket once, and returns true at its end.
    fn receive(&self) -> io::Result<bool> {
        let mut tls = self.tls.borrow_mut();
        let len = tls.read_tls(&mut &self.socket)?;
        tls.process_new_packets().map_err(io::Error::other)?;
        Ok(len == 0)
    }
}
