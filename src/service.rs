//! The contract between the loop and a service. The loop brings bytes, the time and the news that a connection is gone;
//! the service answers through [`Context::output`], to any connection.
//!
//! A service is called in the middle of a tick and never calls back. For each connection the order is: [`Service::serve`]
//! any number of times, then [`Service::close`] once, after which the service must not know the connection any more.

use crate::id::ConnId;
use crate::output::Output;
use crate::pulse::Pulse;
use crate::time::{Span, Time};
use crate::wheel::Timers;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What one port of the daemon speaks.
pub trait Service {
    /// Serves requests from the front of `input`, in order, [`REQUESTS_PER_TURN`] at most, and stops when the connection's
    /// output is full. Bytes that it does not consume are brought again, with more behind them: so a request whose answer is
    /// too long for one turn stays in the input until all of the answer is given.
    fn serve(&mut self, conn: ConnId, input: Input<'_>, context: &mut Context<'_>) -> Served;

    /// The longest request in bytes: as much is read and kept of a connection before it is served.
    fn longest_request(&self) -> usize;

    /// How long a connection may go on without a request served or a reply read. None: as long as its peer is there, for it may hold
    /// something.
    fn idle_limit(&self) -> Option<Span> {
        None
    }

    /// The timer that was armed for `key` is due.
    fn expire(&mut self, key: usize, context: &mut Context<'_>);

    /// The connection is gone: forgets it, and gives back all that it held; bit by bit, if that is very much.
    fn close(&mut self, conn: ConnId, context: &mut Context<'_>);

    /// Everything that it knows, for a process that takes over. Connections keep their ids.
    fn save(&self, context: &mut Context<'_>) -> Vec<u8>;

    /// Goes on from what another process saved. Called once, before anything else.
    ///
    /// # Errors
    ///
    /// When this is not what [`Service::save`] writes.
    fn restore(&mut self, saved: &[u8], context: &mut Context<'_>) -> Result<(), Unreadable>;

    /// Compares every table with every other, and panics when they contradict each other.
    fn check(&self);

    /// Whether nothing is held, waited for or remembered of any connection.
    fn is_empty(&self) -> bool;

    /// How many of its timers are armed on no connection's behalf, and so may outlast them all.
    fn own_timers(&self) -> usize {
        0
    }
}

/// How many requests of one connection are served before it is another's turn. A few microseconds each, so that the
/// greediest client delays the others by less than a millisecond.
pub const REQUESTS_PER_TURN: usize = 512;

/// What a connection has to be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input<'a> {
    /// Everything that was received and not consumed.
    pub bytes: &'a [u8],
    /// How many of the first bytes the service has seen before, when it found them to be no whole request: it need not look for the
    /// end of one among them again.
    pub seen: usize,
}

/// What a service may use while it is called.
pub struct Context<'a> {
    /// The time after the request was received, so that a wait that starts now cannot end early.
    pub now: Time,
    /// The time of day at [`Time::START`], since 1970. It is read once: no change of the date disturbs a running server.
    pub epoch: Span,
    /// The service's timers.
    pub timers: Timers<'a>,
    /// Replies, by connection.
    pub output: &'a mut Output,
    /// What happened to the service's connections.
    pub traffic: &'a Traffic,
    /// Who is at the other end of each.
    pub peers: &'a dyn Peers,
    /// What the loop knows of itself.
    pub pulse: &'a Pulse,
}

/// Who is at the other end of connections. The system is asked at each call, so that nothing is kept that nobody wants to know.
pub trait Peers {
    /// The address of a connection's peer, without spaces: `192.0.2.7:40112`, `[2001:db8::7]:40112`, or `unix:` and the id
    /// of its process. `gone` if the connection was lost a moment ago.
    fn peer(&self, conn: ConnId) -> String;
}

/// No connections at all: every peer is gone.
pub struct Nobody;

impl Peers for Nobody {
    fn peer(&self, _: ConnId) -> String {
        GONE.into()
    }
}

/// The address of a peer that is not there any more.
pub const GONE: &str = "gone";

/// What came of a call to [`Service::serve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// How many bytes of the input are done with.
    pub consumed: usize,
    /// What to do next.
    pub then: Then,
}

/// What the loop does with a connection after it was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The rest of the input is no whole request: wait for more bytes.
    Read,
    /// The rest may hold whole requests: serve again in the next tick.
    Serve,
    /// Send what is unsent, then close.
    Close,
}

/// Something that another process saved and this one cannot read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable(pub String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The connections of a service, and what happened to them since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Connections that there are now.
    pub open: u64,
    /// Connections that there ever were.
    pub opened: u64,
    /// Connections that could not be accepted or served.
    pub connect_errors: u64,
    /// Replies that could not be delivered.
    pub failed_sends: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Bytes written.
    pub sent_bytes: u64,
}
