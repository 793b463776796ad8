//! Context of a call: what a service may read and write while it is called.

use super::Info;
use super::effects::Effect;
use crate::access::Access;
use crate::id::ServiceId;
use crate::output::Output;
use crate::peer::{Credentials, Peers, Traffic};
use poolcounter_core::id::ConnId;
use poolcounter_core::random::Random;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::OwnTimers;
use std::sync::Arc;

/// Everything that a service may use while it is called.
pub struct Context<'a> {
    /// Time of the call.
    pub time: CallTime,
    /// The service itself.
    pub called: Called,
    /// Timers of the service.
    pub timers: OwnTimers<'a>,
    /// Random numbers, which a simulation replays.
    pub random: &'a mut Random,
    /// Replies, by connection.
    pub output: &'a mut Output,
    /// Rules of access.
    pub access: &'a mut Access,
    /// Effects to carry out once the service returns.
    pub effects: &'a mut Vec<Effect>,
    /// Connections of the service, read only.
    pub conns: Conns<'a>,
}

/// Time of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallTime {
    /// Time after the request was received, so that a wait that starts now cannot end early.
    pub now: Time,
    /// Time of day at [`Time::START`], since 1970. It is read once: no change of the date disturbs a running server.
    pub epoch: Span,
}

/// Service that is called.
#[derive(Clone, Copy)]
pub struct Called {
    /// Its place in the list.
    pub id: ServiceId,
    /// Its static description.
    pub info: &'static Info,
}

/// Connections of a service: their peers and what happened to them.
#[derive(Clone, Copy)]
pub struct Conns<'a> {
    /// Peers of all connections.
    pub peers: &'a dyn Peers,
    /// Counts of the service's connections.
    pub traffic: &'a Traffic,
}

impl Conns<'_> {
    /// Returns the address of a connection's peer, as [`Peers::peer`] does.
    pub fn peer(&self, conn: ConnId) -> String {
        self.peers.peer(conn)
    }

    /// Returns true when a connection's peer is on this machine.
    pub fn is_local(&self, conn: ConnId) -> bool {
        self.peers.is_local(conn)
    }

    /// Returns the identity of the process at the other end of a Unix socket.
    pub fn credentials(&self, conn: ConnId) -> Option<Credentials> {
        self.peers.credentials(conn)
    }
}

impl Context<'_> {
    /// Ends the wait of a connection: it is served again, in this tick if this comes from
    /// [`Service::completed`](crate::contract::Service::completed), else in the next. A connection that does not wait gets a turn, perhaps
    /// with nothing to serve.
    pub fn resume(&mut self, conn: ConnId) {
        self.effects.push(Effect::Resume(conn));
    }

    /// Ends a connection of this service: nothing more of it is served, and it is closed once its output is sent. In this tick
    /// [`Service::close`](crate::contract::Service::close) is called for it.
    pub fn end(&mut self, conn: ConnId) {
        self.effects.push(Effect::End(conn));
    }

    /// Adds one reply, as [`Output::reply`] does, that leaves only once the commit with this number is done. Later replies to the
    /// connection leave behind it. Commits are numbered by the service, in the order in which they are done, and a reply never
    /// waits for one before that of the last reply: what is done earlier can be told at once or with the next. `about` is a number
    /// that the service gives to what it promises, for [`Context::reword`]; zero if to nothing.
    pub fn reply_after(&mut self, conn: ConnId, commit: u64, about: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.output.reply_after(conn, self.called.id, (commit, about), write);
    }

    /// Releases the replies that wait for this commit or one before it.
    pub fn release_up_to(&mut self, commit: u64) {
        self.output.release_up_to(self.called.id, commit);
    }

    /// Replaces those waiting replies for which `which` returns true by what `write` writes; `which` gets the commit that a reply waits
    /// for, and the number that it is about. They continue to wait.
    pub fn reword(&mut self, which: impl Fn(u64, u64) -> bool, write: impl Fn(&mut Vec<u8>)) {
        self.output.reword(self.called.id, which, write);
    }

    /// Replaces each reply that waits for this commit or one before it by what `write` writes, and releases it: the store has failed.
    pub fn replace_up_to(&mut self, commit: u64, write: impl Fn(&mut Vec<u8>)) {
        self.output.replace_up_to(self.called.id, commit, write);
    }
}

/// Handle that wakes the loop from another thread, on behalf of one service.
#[derive(Clone)]
pub struct Wake(Arc<dyn Fn() + Send + Sync>);

impl Wake {
    /// Returns a handle that calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Wake(Arc::new(wake))
    }

    /// Wakes the loop, which calls [`Service::completed`](crate::contract::Service::completed) soon. A second call, or one after the end, does
    /// no harm.
    pub fn wake(&self) {
        (self.0)();
    }
}
