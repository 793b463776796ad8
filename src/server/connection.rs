//! One connection: its stream, and its state. It knows no other connection.

use super::read_buffer::{Left, ReadBuffer, Unserved};
use poolcounter_core::TimerId;
use poolcounter_core::proxy::Header;
use poolcounter_service::access::Identity;
use poolcounter_service::container::ServiceId;
use poolcounter_service::contract::{Credentials, Then};
use std::io::{self, Read, Write};
use std::net::IpAddr;

/// Non-blocking stream of bytes.
pub trait Stream: Read + Write {
    /// Closes the sending side, so that the peer reads an end of file.
    ///
    /// # Errors
    ///
    /// Fails if the peer has disconnected.
    fn finish(&mut self) -> io::Result<()>;

    /// Returns the address of the peer, without spaces.
    ///
    /// # Errors
    ///
    /// Fails if the peer has disconnected.
    fn peer(&self) -> io::Result<String>;

    /// Returns whether the peer is on this machine.
    fn is_local(&self) -> bool {
        false
    }

    /// Returns the IP address of the peer, if it is on a network.
    fn ip(&self) -> Option<IpAddr> {
        None
    }

    /// Returns false if the peer is on a network and its address is unknown.
    fn is_known(&self) -> bool {
        true
    }

    /// Returns the user and group of the peer, if the system provides them.
    fn credentials(&self) -> Option<Credentials> {
        None
    }
}

/// State of a connection in an event of the poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// True if there are bytes to read.
    pub readable: bool,
    /// True if there is room to write.
    pub writable: bool,
    /// True if the peer has closed its sending side or disconnected: a short read is not the end of the data.
    pub hangup: bool,
    /// True if the connection is closed in both directions.
    pub lost: bool,
}

pub(super) struct Connection<S> {
    pub stream: S,
    pub service: ServiceId,
    pub phase: Phase,
    /// True if a read may return bytes.
    pub readable: bool,
    /// True if the peer has closed its sending side, though its last bytes may be unread.
    pub hangup: bool,
    /// True once everything that the peer sent has been read.
    pub eof: bool,
    /// True after an incomplete write: an event will come when there is room.
    pub blocked: bool,
    /// True if its output was full at its turn: it has no other turn until that drains.
    pub parked: bool,
    /// Answer of its service to its last turn. [`Then::Wait`] becomes [`Then::Serve`] when the service resumes it. With
    /// [`Then::Close`] the service is done with it: it ends once the replies that wait for a commit have left.
    pub then: Then,
    /// True once the system has reported the connection as lost.
    pub lost: bool,
    /// True if reading or writing failed, or its time is over: unsent bytes are never sent.
    pub failed: bool,
    /// Whole or partial requests that were read and not served; None if there are none, as of every idle connection.
    pub unserved: Unserved,
    /// Header of the proxy about the client whose requests come over it; None if that is the peer.
    pub header: Option<Box<Header>>,
    /// Counter that includes it.
    pub place: Place,
}

/// Counter that includes a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The open connections of its service.
    Open,
    /// The connections whose proxies have not sent a header yet.
    Awaited,
    /// The refused connections that may still read the refusal.
    Refused,
}

/// Phase of a connection on the way to its end.
pub(super) enum Phase {
    /// The peer is a proxy, and its header about the client is awaited.
    Unidentified { header_timer: TimerId },
    /// Its service serves it.
    Open,
    /// Its service serves it, but it is parked: the peer has closed its side and does not read its replies.
    HalfClosed { linger_timer: TimerId },
    /// Its service has closed it; `reap` decides the next phase.
    Closed,
    /// Its service has closed it, but the last replies are not sent, or the peer has not closed its side yet.
    Lingering { linger_timer: TimerId },
}

impl<S: Stream> Connection<S> {
    pub fn new(stream: S, service: ServiceId) -> Self {
        Connection {
            stream,
            service,
            phase: Phase::Open,
            readable: false,
            hangup: false,
            eof: false,
            blocked: false,
            parked: false,
            then: Then::Serve,
            lost: false,
            failed: false,
            unserved: None,
            header: None,
            place: Place::Open,
        }
    }

    /// Returns true until its service has closed it.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Unidentified { .. } | Phase::Open | Phase::HalfClosed { .. })
    }

    /// Returns true while its service knows it: its client has a place, and the service has not closed it.
    pub fn is_served(&self) -> bool {
        self.is_open() && self.place == Place::Open
    }

    /// Returns true while the header of its proxy is awaited.
    pub fn is_unidentified(&self) -> bool {
        matches!(self.phase, Phase::Unidentified { .. })
    }

    /// Takes the timer that limits the wait for a proxy's header, and ends that wait; None if it is over.
    pub fn take_header_timer(&mut self) -> Option<TimerId> {
        match std::mem::replace(&mut self.phase, Phase::Open) {
            Phase::Unidentified { header_timer } => Some(header_timer),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Returns the address of the client, without spaces.
    pub fn address(&self) -> io::Result<String> {
        match self.header.as_ref().and_then(|header| header.source) {
            Some(source) => Ok(source.to_string()),
            None => self.stream.peer(),
        }
    }

    /// Returns whether the client is on this machine. A proxy's client is not, unless the header says so.
    pub fn is_local(&self) -> bool {
        match &self.header {
            Some(header) => header.source.is_some_and(|source| source.ip().is_loopback()),
            None => !self.is_unidentified() && self.stream.is_local(),
        }
    }

    /// Returns the user and group of the client, if the system provides them; None for the client of a proxy.
    pub fn credentials(&self) -> Option<Credentials> {
        if self.header.is_some() || self.is_unidentified() { None } else { self.stream.credentials() }
    }

    /// Returns the properties of the client for rules of access. None while they are unknown: then no rule admits the
    /// client, not even a rule for all.
    pub fn identity(&self) -> Option<Identity<'_>> {
        match &self.header {
            Some(header) => Some(Identity {
                ip: header.source.map(|source| source.ip()),
                credentials: None,
                certificate: header.tls.as_ref().and_then(|tls| tls.common_name.as_deref()),
            }),
            None if self.is_unidentified() || !self.stream.is_known() => None,
            None => {
                let (ip, credentials) = (self.stream.ip(), self.stream.credentials());
                Some(Identity { ip, credentials, certificate: None })
            }
        }
    }

    /// Reads as [`ReadBuffer::read_turn`] does, and notes if another read may bring more.
    #[inline]
    pub fn read(&mut self, read_buffer: &mut ReadBuffer) -> io::Result<()> {
        let left = read_buffer.read_turn(&mut self.stream, self.hangup)?;
        self.readable = left == Left::Something;
        self.eof |= left == Left::Ended;
        Ok(())
    }
}
