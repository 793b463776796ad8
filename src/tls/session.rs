//! TLS session of one client: ciphertext in, plaintext out, and the other way round. It knows no sockets.

use super::certificates::Chain;
use poolcounter_server::Unserved;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{Error, ServerConfig};
use std::sync::Arc;

/// Longest first message of a client, with the headers of its records. A certificate, later, may be longer.
const MAX_FIRST_MESSAGE: usize = 16 * 1024;
/// Longest message of a handshake, with the headers of its records. No more bytes are read before it is served.
pub const MAX_MESSAGE: usize = 72 * 1024;
/// Most plaintext in a record, and the most that a record adds to it: header, nonce, tag and type.
const RECORD: usize = 16 * 1024;
const RECORD_OVERHEAD: usize = 64;
/// Room for a message of a handshake; rustls asks for more if this is too little.
const HANDSHAKE_ROOM: usize = 4096;

/// One side of a TLS connection.
pub struct Session {
    tls: UnbufferedServerConnection,
    /// Ciphertext without a whole record or message.
    pub unserved: Unserved,
    /// True once bytes were sent to the peer.
    has_answered: bool,
    pub is_established: bool,
    pub has_peer_closed: bool,
    /// True after a failure, with an alert; no more bytes are sent.
    has_failed: bool,
}

/// Content for the peer, sent when possible.
#[derive(Clone, Copy)]
enum Outgoing<'a> {
    Nothing,
    Plaintext(&'a [u8]),
    CloseNotify,
}

impl Session {
    /// Returns the server's side of a new connection.
    ///
    /// # Errors
    ///
    /// Fails if rustls rejects the settings.
    pub fn new(config: Arc<ServerConfig>) -> Result<Session, Error> {
        let tls = UnbufferedServerConnection::new(config)?;
        Ok(Session {
            tls,
            unserved: None,
            has_answered: false,
            is_established: false,
            has_peer_closed: false,
            has_failed: false,
        })
    }

    /// Returns the certificates of the peer, which were verified in the handshake.
    pub fn peer_certificates(&self) -> Chain<'_> {
        self.tls.peer_certificates()
    }

    /// Returns whether `bytes` are more than the peer may have sent.
    pub fn is_too_much(&self, bytes: usize) -> bool {
        !self.has_answered && bytes > MAX_FIRST_MESSAGE
    }

    /// Returns the negotiated version of TLS, by OpenSSL's name.
    pub fn version(&self) -> &'static str {
        match self.tls.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "",
        }
    }

    /// Processes bytes of the peer. Appends the plaintext to `plain`, and bytes for the peer to `out`, which may be an
    /// alert after a failure. Returns the number of bytes taken; the rest must be passed again, with more behind it.
    ///
    /// # Errors
    ///
    /// Fails if the peer violates the protocol, or is not admitted.
    pub fn receive(&mut self, input: &mut [u8], plain: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<usize, Error> {
        let driven = drive(&mut self.tls, input, plain, out, Outgoing::Nothing);
        self.has_failed |= driven.is_err();
        self.has_answered |= !out.is_empty();
        let Driven { taken, may_send, has_peer_closed } = driven?;
        self.is_established |= may_send && !self.tls.is_handshaking();
        self.has_peer_closed |= has_peer_closed;
        Ok(if self.has_peer_closed { input.len() } else { taken })
    }

    /// Encrypts for the peer, and appends to `out`. To be called once the handshake is over.
    ///
    /// # Errors
    ///
    /// Fails if the keys are used up, which cannot be renewed with TLS 1.2.
    pub fn encrypt(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        self.send(Outgoing::Plaintext(plaintext), out)
    }

    /// Appends the end of the TLS connection to `out`.
    ///
    /// # Errors
    ///
    /// As for [`Session::encrypt`].
    pub fn close(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.send(Outgoing::CloseNotify, out)
    }

    fn send(&mut self, outgoing: Outgoing<'_>, out: &mut Vec<u8>) -> Result<(), Error> {
        if self.has_failed {
            return Ok(());
        }
        // The unserved bytes are no whole record, so there is no plaintext in them.
        let mut unserved = self.unserved.take().unwrap_or_default();
        let driven = drive(&mut self.tls, &mut unserved, &mut Vec::new(), out, outgoing)?;
        unserved.drain(..driven.taken);
        self.unserved = (!unserved.is_empty()).then_some(unserved);
        Ok(())
    }
}

/// Progress of a session.
struct Driven {
    taken: usize,
    may_send: bool,
    has_peer_closed: bool,
}

/// Lets rustls take from `input` until it needs more, and then sends the outgoing content. After a failure, an alert is
/// sent first. Invariant: bytes that were not taken are passed again in the next call, at the front, as rustls
/// remembers its position.
fn drive(
    tls: &mut UnbufferedServerConnection,
    input: &mut [u8],
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
    outgoing: Outgoing<'_>,
) -> Result<Driven, Error> {
    let mut driven = Driven { taken: 0, may_send: false, has_peer_closed: false };
    loop {
        let UnbufferedStatus { mut discard, state } = tls.process_tls_records(&mut input[driven.taken..]);
        let mut is_done = false;
        let state = match state {
            Ok(state) => state,
            Err(error) => {
                // The fault may be queued as an alert, which comes before all else.
                let UnbufferedStatus { state, .. } = tls.process_tls_records(&mut input[driven.taken + discard..]);
                if let Ok(ConnectionState::EncodeTlsData(alert)) = state {
                    encode(alert, out)?;
                }
                return Err(error);
            }
        };
        match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    plain.extend_from_slice(record.payload);
                    discard += record.discard;
                }
            }
            ConnectionState::EncodeTlsData(message) => encode(message, out)?,
            // The caller sends it from `out`.
            ConnectionState::TransmitTlsData(message) => message.done(),
            ConnectionState::PeerClosed => driven.has_peer_closed = true,
            ConnectionState::WriteTraffic(traffic) => {
                send(traffic, outgoing, out)?;
                (driven.may_send, is_done) = (true, true);
            }
            ConnectionState::BlockedHandshake | ConnectionState::Closed => is_done = true,
            _ => return Err(Error::General("a state that was not asked for".into())),
        }
        driven.taken += discard;
        if is_done {
            return Ok(driven);
        }
    }
}

fn encode(mut message: EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) -> Result<(), Error> {
    append(out, HANDSHAKE_ROOM, |room| {
        message.encode(room).map_err(|error| match error {
            EncodeError::InsufficientSize(size) => Some(size.required_size),
            EncodeError::AlreadyEncoded => None,
        })
    })
}

fn send(
    mut traffic: WriteTraffic<'_, ServerConnectionData>,
    outgoing: Outgoing<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let missing = |error| match error {
        EncryptError::InsufficientSize(size) => Some(size.required_size),
        EncryptError::EncryptExhausted => None,
    };
    match outgoing {
        Outgoing::Nothing => Ok(()),
        Outgoing::Plaintext(plaintext) => {
            let room = plaintext.len() + (plaintext.len() / RECORD + 1) * RECORD_OVERHEAD;
            append(out, room, |room| traffic.encrypt(plaintext, room).map_err(missing))
        }
        Outgoing::CloseNotify => append(out, RECORD_OVERHEAD, |room| traffic.queue_close_notify(room).map_err(missing)),
    }
}

/// Appends the bytes that `write` writes into its room. Its error is the room it needs, if more would help.
fn append(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), Error> {
    let len = out.len();
    out.resize(len + room, 0);
    let mut written = write(&mut out[len..]);
    if let Err(Some(needed)) = written {
        out.resize(len + needed, 0);
        written = write(&mut out[len..]);
    }
    out.truncate(len + written.unwrap_or(0));
    written.map(drop).map_err(|_| Error::EncryptError)
}
