//! One connection: its stream, and what is known of it. It knows nothing of the others.

use super::read_buffer::{Left, ReadBuffer};
use poolcounter_core::proxy::Header;
use poolcounter_core::wheel::TimerId;
use poolcounter_service::access::Identity;
use poolcounter_service::container::ServiceId;
use poolcounter_service::contract::Credentials;
use std::io::{self, Read, Write};
use std::net::IpAddr;

/// A non-blocking stream of bytes.
pub trait Stream: Read + Write {
    /// Closes the sending side, so that the peer reads an end of file.
    ///
    /// # Errors
    ///
    /// When the peer is gone.
    fn finish(&mut self) -> io::Result<()>;

    /// Returns the address of the peer, without spaces.
    ///
    /// # Errors
    ///
    /// When the peer is gone.
    fn peer(&self) -> io::Result<String>;

    /// Returns whether the peer is on this machine.
    fn is_local(&self) -> bool {
        false
    }

    /// Returns where the peer is, if that is on a network.
    fn ip(&self) -> Option<IpAddr> {
        None
    }

    /// Returns false if the peer is on a network and its address is not known.
    fn is_known(&self) -> bool {
        true
    }

    /// Returns as whom the peer has connected, where the system tells.
    fn credentials(&self) -> Option<Credentials> {
        None
    }
}

/// What an event of the poll says of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// There is something to read.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The peer has closed its sending side or is gone: a short read is not the end of what can be read.
    pub hangup: bool,
    /// The connection is gone in both directions.
    pub lost: bool,
}

pub(super) struct Connection<S> {
    pub stream: S,
    pub service: ServiceId,
    pub phase: Phase,
    /// A read may bring something.
    pub readable: bool,
    /// The peer has said that it will send no more, though some of what it sent may be unread.
    pub hangup: bool,
    /// Everything that the peer sent has been read.
    pub eof: bool,
    /// The last write did not take all: an event will come when there is room.
    pub blocked: bool,
    /// Its output was full at its turn: it has no other turn until that drains.
    pub parked: bool,
    /// Its service has answered [`Then::Wait`](poolcounter_service::contract::Then::Wait) and not resumed it yet.
    pub waiting: bool,
    /// Its service is done with it, and it ends once the replies have left that wait for a commit.
    pub draining: bool,
    /// The system has said that the connection is gone.
    pub lost: bool,
    /// Reading or writing failed, or its time is over: what is unsent is never sent.
    pub failed: bool,
    /// Whole or partial requests that were read and not served.
    pub unserved: Vec<u8>,
    /// Its service has seen what is unserved, and waits for more.
    pub partial: bool,
    /// Whose requests come over it.
    pub client: Client,
    /// Where it is counted.
    pub place: Place,
}

/// Where a connection is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Among those that its service has open.
    Open,
    /// Among those of which a proxy is to say who the client is.
    Awaited,
    /// Among those that were not let in, and may read that.
    Refused,
}

/// Whose requests come over a connection.
pub(super) enum Client {
    /// Those of whoever has connected.
    Peer,
    /// Those of the client of a proxy, which has not said yet who that is.
    Unknown { header_timer: TimerId },
    /// Those of the client of a proxy, which has said this.
    Behind(Box<Header>),
}

/// How far a connection is on the way to its end.
pub(super) enum Phase {
    /// Its service serves it.
    Open,
    /// The service serves it, but it is parked: the peer has closed its side and does not read its replies.
    HalfClosed { linger_timer: TimerId },
    /// The service has forgotten it; `reap` decides what follows.
    Closed,
    /// The service has forgotten it, but the last replies are not sent, or the peer has not closed its side yet.
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
            waiting: false,
            draining: false,
            lost: false,
            failed: false,
            unserved: Vec::new(),
            partial: false,
            client: Client::Peer,
            place: Place::Open,
        }
    }

    /// Returns true while its service has not been told that it is over.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::HalfClosed { .. })
    }

    /// Returns what a proxy has said of its client; None if no proxy has connected.
    pub fn header(&self) -> Option<&Header> {
        match &self.client {
            Client::Behind(header) => Some(header),
            Client::Peer | Client::Unknown { .. } => None,
        }
    }

    /// Returns the timer that ends the wait for what a proxy says, and ends that wait; None if it is over.
    pub fn take_header_timer(&mut self) -> Option<TimerId> {
        match std::mem::replace(&mut self.client, Client::Peer) {
            Client::Unknown { header_timer } => Some(header_timer),
            known => {
                self.client = known;
                None
            }
        }
    }

    /// Returns the address of the client, without spaces.
    pub fn address(&self) -> io::Result<String> {
        match self.header().and_then(|header| header.source) {
            Some(source) => Ok(source.to_string()),
            None => self.stream.peer(),
        }
    }

    /// Returns whether the client is on this machine. That of a proxy is not, unless the proxy says so.
    pub fn is_local(&self) -> bool {
        match &self.client {
            Client::Peer => self.stream.is_local(),
            Client::Unknown { .. } => false,
            Client::Behind(header) => header.source.is_some_and(|source| source.ip().is_loopback()),
        }
    }

    /// Returns as whom the client has connected, where the system tells: not of one behind a proxy.
    pub fn credentials(&self) -> Option<Credentials> {
        matches!(self.client, Client::Peer).then(|| self.stream.credentials())?
    }

    /// Returns the properties of the client by which rules of access know it. None while they are not known: then no rule is for the client,
    /// not even one for all.
    pub fn identity(&self) -> Option<Identity<'_>> {
        match &self.client {
            Client::Peer => self.stream.is_known().then(|| Identity {
                ip: self.stream.ip(),
                credentials: self.stream.credentials(),
                certificate: None,
            }),
            Client::Unknown { .. } => None,
            Client::Behind(header) => Some(Identity {
                ip: header.source.map(|source| source.ip()),
                credentials: None,
                certificate: header.tls.as_ref().and_then(|tls| tls.common_name.as_deref()),
            }),
        }
    }

    /// Reads as [`ReadBuffer::read_turn`] does, and notes whether another read may bring more.
    #[inline]
    pub fn read(&mut self, read_buffer: &mut ReadBuffer) -> io::Result<()> {
        let left = read_buffer.read_turn(&mut self.stream, self.hangup)?;
        self.readable = left == Left::Something;
        self.eof |= left == Left::Ended;
        Ok(())
    }
}
