//! TLS to servers: trusted authorities, client certificate, and the stream of one connection.

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

/// TLS settings for servers named `tls:HOST:PORT`: the trusted authorities and the client's certificate. Clones share
/// them.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Loads the settings from PEM files: the trusted authorities, and optionally the client's certificate and its key.
    ///
    /// # Errors
    ///
    /// Error text that names the file and the fault.
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

/// Gives a client the method that sets its TLS settings.
macro_rules! with_tls {
    ($client:ident, $($place:tt)+) => {
        impl $client {
            /// Sets the TLS settings for servers `tls:HOST:PORT`.
            pub fn with_tls(mut self, tls: impl Into<Option<Tls>>) -> Self {
                self.$($place)+ = tls.into();
                self
            }
        }
    };
}
with_tls!(MediaWiki, tls);
with_tls!(Ring, tls);
with_tls!(Producer, session.get_mut().dial.tls);
with_tls!(Runner, session.dial.tls);

/// Equal only to its clones.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Tls {
    /// Hides the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// TLS over a socket.
#[derive(Debug)]
pub(super) struct TlsStream {
    socket: Socket,
    /// TLS state; in a cell because [`TlsStream::has_news`] also processes records of the session itself, such as
    /// tickets.
    tls: RefCell<ClientConnection>,
}

impl TlsStream {
    /// Performs the TLS handshake on a connected socket, with a certificate check for `host`, within `within`.
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

    /// Sends all bytes.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let tls = self.tls.get_mut();
        let mut rest = bytes;
        loop {
            // Takes as many bytes as there is room for, 64 KiB at most.
            let taken = tls.writer().write(rest)?;
            rest = &rest[taken..];
            while tls.wants_write() {
                tls.write_tls(&mut &self.socket)?;
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Appends all available bytes to `input`, and waits up to the socket's timeout if there are none. Returns their
    /// number; 0 at the end.
    pub fn read_to(&mut self, input: &mut Vec<u8>) -> io::Result<usize> {
        let before = input.len();
        loop {
            // Reads everything, because bytes left in the TLS buffer do not make the socket readable.
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

    /// Returns true if there is unread input, or the end. Waits only if the socket is blocking.
    pub fn has_news(&self) -> io::Result<bool> {
        loop {
            // Records read by an earlier check are no longer in the socket.
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
