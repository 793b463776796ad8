//! The contract between the loop and a service. The loop brings bytes, the time and the news that a connection is gone;
//! the service answers through [`Context::output`], to any connection.
//!
//! A service is called in the middle of a tick and never calls back. For each connection the order is: [`Service::serve`]
//! any number of times, then [`Service::close`] once, after which the service must not know the connection any more.

use crate::id::ConnId;
use crate::output::Output;
use crate::pulse::Pulse;
use crate::record::{Reader, Writer};
use crate::time::{Span, Time};
use crate::wheel::Timers;
use serde::{Deserialize, Serialize};
use std::io;

pub use crate::record::Unreadable;

/// What one port of the daemon speaks.
pub trait Service {
    /// Serves requests from the front of `input`, in order, [`REQUESTS_PER_TURN`] at most, and stops when the connection's
    /// output is full. Bytes that it does not consume are brought again, with more behind them: so a request whose answer is
    /// too long for one turn stays in the input until all of the answer is given.
    fn serve(&mut self, conn: ConnId, input: &[u8], context: &mut Context<'_>) -> Served;

    /// The longest request in bytes: as much is read and kept of a connection before it is served.
    fn longest_request(&self) -> usize;

    /// The timer that was armed for `key` is due.
    fn expire(&mut self, key: usize, context: &mut Context<'_>);

    /// The connection is gone: forgets it, and gives back all that it held; bit by bit, if that is very much.
    fn close(&mut self, conn: ConnId, context: &mut Context<'_>);

    /// The version of what [`Service::save`] writes. What is written cannot change without another.
    fn saved_version(&self) -> u16;

    /// Writes everything that it knows, for a process that takes over. Connections keep their ids.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()>;

    /// Goes on from what another process saved. Called once, before anything else.
    ///
    /// # Errors
    ///
    /// When this is not what [`Service::save`] writes in this version, nor what it wrote in the version before.
    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable>;

    /// Fails wherever [`Service::restore`] would. What it knows afterwards does not matter, so it need not take as much memory.
    ///
    /// # Errors
    ///
    /// The same.
    fn rehearse(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore(version, saved, context)
    }

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

/// The version of a service's part in the handovers of version 0.9.0, where each was one piece.
pub const IN_ONE_PIECE: u16 = 0;

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
