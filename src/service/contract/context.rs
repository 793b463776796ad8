//! Context of a call: everything a service may read and write during a call.

use super::Info;
use super::effects::Effect;
use crate::access::Access;
use crate::id::ServiceId;
use crate::output::{Output, Promise};
use crate::peer::{Peers, Traffic};
use poolcounter_core::{ConnId, OwnTimers, Random, Span, Time};
use std::sync::Arc;

/// Everything that a service may use during a call.
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
    /// Current time, read after the request was received, so that a wait that starts now cannot end early.
    pub now: Time,
    /// Time at which the server was started, perhaps by a process before this one.
    pub started: Time,
    /// Time of day at [`Time::START`], since 1970. Read at the start and at a take-over, so that changes of the
    /// system's date do not affect a running server.
    pub epoch: Span,
    /// The same by the clock as it is set now, exact to a second. Times that outlive the process are stored by it.
    pub wall: Span,
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

impl Context<'_> {
    /// Ends the wait of a connection: it is served again, in this tick if called from
    /// [`Service::completed`](crate::contract::Service::completed), else in the next. A connection that does not wait
    /// gets a turn, possibly without input.
    pub fn resume(&mut self, conn: ConnId) {
        self.effects.push(Effect::Resume(conn));
    }

    /// Ends a connection of this service: nothing more of it is served, and it is closed once its output is sent. In
    /// this tick [`Service::close`](crate::contract::Service::close) is called for it.
    pub fn end(&mut self, conn: ConnId) {
        self.effects.push(Effect::End(conn));
    }

    /// Adds one reply, as [`Output::reply`] does, that is sent only after the commit of its promise is done. Later
    /// replies to the connection are sent after it. The service numbers its commits in the order in which they are done,
    /// and the numbers of successive replies never decrease.
    pub fn reply_after(&mut self, conn: ConnId, promise: Promise, write: impl FnOnce(&mut Vec<u8>)) {
        self.output.reply_after(conn, self.called.id, promise, write);
    }

    /// Releases the replies that wait for this commit or one before it.
    pub fn release_up_to(&mut self, commit: u64) {
        self.output.release_up_to(self.called.id, commit);
    }

    /// Replaces each waiting reply for which `which` returns true by the bytes that `write` appends, and releases it;
    /// `which` gets the reply's commit and its `about`. With `whole`, all replies to the same request become one.
    pub fn reword(&mut self, which: impl Fn(u64, u64) -> bool, whole: bool, write: impl Fn(&mut Vec<u8>)) {
        self.output.reword(self.called.id, which, whole, write);
    }

    /// Replaces each reply that waits for this commit or an earlier one by the bytes that `write` appends, and releases
    /// it. For use after a failure of the store.
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

    /// Wakes the loop, which soon calls [`Service::completed`](crate::contract::Service::completed). Repeated calls,
    /// and calls after the end of the loop, do no harm.
    pub fn wake(&self) {
        (self.0)();
    }
}
