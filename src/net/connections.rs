//! Every connection, and the phases of the tick that work on them: serve, expire, flush, reap. It knows streams that read
//! and write, but neither sockets nor the clock, so that the simulator runs the very same code.
//!
//! Invariant: a connection with work that no event will announce (bytes not read, requests not served) stands in `ready`,
//! unless it is parked, and then the flush that drains its output puts it there.
//! Invariant: a service knows a connection from its first turn until [`Service::close`](crate::service::Service::close), and never after.
//! That is called where the end is found, so that what the connection held is free for every connection served later; `reap`
//! only drops the socket.

use super::connection::{Client, Connection, Phase, Readiness, Stream};
use super::dispatch::Dispatch;
use super::idle::IdleQueues;
use super::read_buffer::ReadBuffer;
use crate::access::SavedCounts;
use crate::id::{ConnId, Id, ServiceId};
use crate::list::{Links, List};
use crate::loop_stats::LoopStats;
use crate::proxy::MAX_HEADER;
use crate::random::Random;
use crate::registry::Services;
use crate::service::{Credentials, GONE, Peers, Process};
use crate::time::{Span, Time, earliest};
use crate::wheel::Owner;
use log::debug;
use slab::Slab;

mod guard;
mod saved;
mod tick;

pub use saved::rehearse;
pub(super) use saved::{ConnectionsHead, SavedClient, SavedConnection};
pub use tick::Host;

/// How long a connection that is to be closed may take to read its last replies, and to notice.
const LINGER: Span = Span::from_secs(5);
/// How long a proxy may take to say who its client is.
const HEADER_TIME: Span = Span::from_secs(10);
/// The loop's own timers; the services' owners count up from zero.
const LOOP: Owner = Owner(u8::MAX);

/// The connections of all services, with everything they share.
pub struct Connections<S> {
    slab: Slab<Connection<S>>,
    /// The connections that are to be served in the next tick, in order.
    ready: List<ConnId>,
    links: Links,
    idle: IdleQueues,
    /// The connections that `reap` is to look at; may name one twice.
    closing: Vec<ConnId>,
    /// Services whose stores have finished something.
    completed: Vec<ServiceId>,
    read_buffer: ReadBuffer,
    /// What another process has denied, until there are rules to count it by.
    denied: Vec<SavedCounts>,
    /// True while an upgrade waits until the services are quiet: nothing is served.
    is_paused: bool,
    dispatch: Dispatch,
}

impl<S: Stream> Peers for Slab<Connection<S>> {
    fn peer(&self, conn: ConnId) -> String {
        let peer = self.get(conn.index()).and_then(|conn| conn.address().ok());
        peer.unwrap_or_else(|| GONE.into())
    }

    fn is_local(&self, conn: ConnId) -> bool {
        self.get(conn.index()).is_some_and(Connection::is_local)
    }

    fn credentials(&self, conn: ConnId) -> Option<Credentials> {
        self.get(conn.index())?.credentials()
    }
}

impl<S: Stream> Connections<S> {
    /// Returns an empty set of connections. `epoch` is the time of day at [`Time::START`], since 1970.
    pub fn new(services: Services, epoch: Span, random: Random) -> Self {
        Connections {
            slab: Slab::new(),
            ready: List::default(),
            links: Links::default(),
            idle: IdleQueues::new(services.ids().map(|service| services[service].caps.idle)),
            closing: Vec::new(),
            completed: Vec::new(),
            read_buffer: ReadBuffer::new(services.longest_request().max(MAX_HEADER)),
            denied: Vec::new(),
            is_paused: false,
            dispatch: Dispatch::new(services, epoch, random),
        }
    }

    /// Has what the operator has set take effect, as [`Service::configure`](crate::service::Service::configure) says.
    pub fn configure(&mut self, now: Time) {
        for id in self.dispatch.services.ids() {
            self.dispatch.call(id, now, &self.slab, |service, context| service.configure(context));
        }
    }

    /// Has every service open what it keeps, as [`Service::begin`](crate::service::Service::begin) says. `listens` says of which
    /// there are clients to come.
    ///
    /// # Errors
    ///
    /// The first sentence of a service that cannot.
    pub fn begin(&mut self, listens: impl Fn(ServiceId) -> bool, now: Time) -> Result<(), String> {
        self.dispatch.services.ids().try_for_each(|id| {
            self.dispatch.call(id, now, &self.slab, |service, context| service.begin(listens(id), context))
        })
    }

    /// Returns how many connections there are.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns the services.
    pub fn services(&mut self) -> &mut Services {
        &mut self.dispatch.services
    }

    /// Returns the service of that name.
    pub fn named(&self, service: &str) -> Option<ServiceId> {
        self.dispatch.services.named(service)
    }

    /// Stops serving connections, or starts it again.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Has nothing served, and the services bring to an end what an upgrade could not wait for. What that changes is committed.
    pub fn quiesce(&mut self, now: Time) {
        self.is_paused = true;
        for id in self.dispatch.services.ids() {
            self.dispatch.call(id, now, &self.slab, |service, context| service.quiesce(context));
        }
        // What that changed need not wait for a tick, which nothing may begin.
        self.commit(now);
    }

    /// Has the services take nothing new, those of them that know what that means.
    pub fn drain(&mut self, now: Time) {
        for id in self.dispatch.services.ids() {
            self.dispatch.call(id, now, &self.slab, |service, context| service.drain(context));
        }
    }

    /// Returns true when a service has asked that the daemon ends, and nothing is under way that would be lost with it.
    pub fn may_end(&self) -> bool {
        self.dispatch.is_end_asked && self.is_quiet()
    }

    /// Returns true when no service has something under way that a process which takes over could not continue.
    pub fn is_quiet(&self) -> bool {
        self.dispatch.services.is_quiet() && !self.dispatch.output.is_held()
    }

    /// Returns true when there are no connections, and nothing is left of any.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty() && self.ready.is_empty() && self.closing.is_empty() && self.dispatch.is_empty()
    }

    /// Adds a new connection, and returns its id.
    pub fn open(&mut self, stream: S, service: ServiceId, now: Time) -> ConnId {
        let id = ConnId::from_index(self.slab.insert(Connection::new(stream, service)));
        self.idle.note_activity(id, service, now);
        debug!("{id} opened: {} ({})", self.slab.peer(id), self.dispatch.services[service].info.name);
        let traffic = &mut self.dispatch.services[service].traffic;
        traffic.open += 1;
        traffic.opened += 1;
        id
    }

    /// Has a new connection begin with what its proxy says of the client.
    pub fn await_header(&mut self, id: ConnId, now: Time) {
        let header_timer = self.dispatch.wheel.of(LOOP).arm(now + HEADER_TIME, id);
        self.slab[id.index()].client = Client::Unknown { header_timer };
    }

    /// Closes the longest idle connection of a service. Returns false when the service limits no connection's idle time, or has
    /// none.
    pub fn make_room(&mut self, service: ServiceId, now: Time) -> bool {
        let longest = self.idle.longest(service);
        if let Some(id) = longest {
            self.fail(id, &"it was idle for longest, and a new connection needs its place", now);
        }
        longest.is_some()
    }

    /// Returns the stream of a connection; None if it is gone.
    pub fn stream(&mut self, id: ConnId) -> Option<&mut S> {
        self.slab.get_mut(id.index()).map(|conn| &mut conn.stream)
    }

    /// Closes a connection that was just opened and cannot be polled.
    pub fn abandon(&mut self, id: ConnId, now: Time) {
        self.fail(id, &"it cannot be polled", now);
    }

    /// Counts a connection that could not be accepted or served.
    pub fn count_error(&mut self, service: ServiceId) {
        self.dispatch.services[service].traffic.connect_errors += 1;
    }

    /// Notes what an event of the poll says. Nothing is read or written yet.
    pub fn mark(&mut self, id: ConnId, readiness: Readiness) {
        let Some(conn) = self.slab.get_mut(id.index()) else { return };
        // What is unsent of a connection that is not blocked is to be flushed in any case.
        if readiness.writable && std::mem::take(&mut conn.blocked) && !self.dispatch.output.unsent(id).is_empty() {
            self.dispatch.output.touch(id);
        }
        if readiness.readable || readiness.hangup {
            conn.readable = true;
            conn.hangup |= readiness.hangup;
            conn.lost |= readiness.lost;
            // A peer that has closed its side without reading is parked again, this time with a timer.
            conn.parked &= !conn.hangup;
            self.make_ready(id);
        }
    }

    /// Notes events that came while no process polled, so that their order is lost. Connections that were closed come before all
    /// others, so that no request is refused because of what they held.
    pub fn mark_unordered(&mut self, events: Vec<(ConnId, Readiness)>) {
        let ready: Vec<ConnId> = std::iter::from_fn(|| self.ready.pop_front(&mut self.links)).collect();
        let (left, others): (Vec<_>, Vec<_>) = events.into_iter().partition(|(_, readiness)| readiness.hangup);
        left.into_iter().for_each(|(id, readiness)| self.mark(id, readiness));
        ready.into_iter().for_each(|id| self.make_ready(id));
        others.into_iter().for_each(|(id, readiness)| self.mark(id, readiness));
    }

    /// Notes that the store of a service has finished something.
    pub fn mark_completed(&mut self, service: ServiceId) {
        self.completed.push(service);
    }

    /// Returns when there is work that no event will announce: at once if some is left over, else when the next timer is due.
    pub fn next_work(&self) -> Option<Time> {
        let unserved = !self.is_paused && !self.ready.is_empty();
        let left_over = unserved || self.dispatch.output.is_dirty() || !self.closing.is_empty();
        match left_over {
            true => Some(Time::START),
            false if self.is_paused => None,
            false => earliest(self.dispatch.wheel.next(), self.idle.next_deadline()),
        }
    }

    /// Sets what the services know the process by.
    pub fn measure(&mut self, process: Box<dyn Process>) {
        self.dispatch.process = process;
    }

    /// Returns the loop's own figures.
    pub fn loop_stats(&mut self) -> &mut LoopStats {
        &mut self.dispatch.loop_stats
    }

    #[inline]
    fn make_ready(&mut self, id: ConnId) {
        if !self.slab[id.index()].parked && !self.links.is_linked(id) {
            self.ready.push_back(&mut self.links, id);
        }
    }

    /// Continues after some of the connection's output was sent, or replaced by less: it may be served again, or reaped.
    fn after_write(&mut self, id: ConnId) {
        let conn = &mut self.slab[id.index()];
        if let Phase::Closed | Phase::Lingering { .. } = conn.phase {
            if !conn.blocked {
                self.closing.push(id);
            }
        } else if !self.dispatch.output.is_full(id) {
            if let Phase::HalfClosed { linger_timer } = std::mem::replace(&mut conn.phase, Phase::Open) {
                self.dispatch.wheel.of::<ConnId>(LOOP).cancel(linger_timer);
            }
            if std::mem::take(&mut conn.parked) {
                self.make_ready(id);
            }
        }
    }

    fn fail(&mut self, id: ConnId, why: &dyn std::fmt::Display, now: Time) {
        debug!("{id} failed: {why}");
        self.slab[id.index()].failed = true;
        self.close(id, now);
    }

    /// Calls the service's `close` unless that was done before, and has `reap` look at the connection.
    fn close(&mut self, id: ConnId, now: Time) {
        self.closing.push(id);
        let conn = &mut self.slab[id.index()];
        self.idle.remove(id, conn.service);
        if let Some(timer) = conn.take_header_timer() {
            self.dispatch.wheel.of::<ConnId>(LOOP).cancel(timer);
        }
        if self.dispatch.access.is_on() {
            self.dispatch.access.leave(id);
        }
        match std::mem::replace(&mut conn.phase, Phase::Closed) {
            Phase::Open => {}
            Phase::HalfClosed { linger_timer } => self.dispatch.wheel.of::<ConnId>(LOOP).cancel(linger_timer),
            closed => return conn.phase = closed,
        }
        let service = conn.service;
        self.dispatch.call(service, now, &self.slab, |service, context| service.close(id, context));
    }

    /// Arms the linger timer of a connection that is not drained, and reads on until the peer closes its side.
    fn linger(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        if let Phase::Closed = conn.phase {
            conn.parked = false;
            conn.phase = Phase::Lingering { linger_timer: self.dispatch.wheel.of(LOOP).arm(now + LINGER, id) };
        }
        if conn.readable {
            self.make_ready(id);
        }
    }

    /// Ends a connection whose time is over: to say whose it is, or to read what is left for it.
    fn expire_own(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        if let Some(timer) = conn.take_header_timer() {
            timer.fired();
            return self.fail(id, &"its proxy has not said in time who its client is", now);
        }
        conn.phase = match std::mem::replace(&mut conn.phase, Phase::Closed) {
            Phase::HalfClosed { linger_timer } => {
                linger_timer.fired();
                if self.dispatch.output.is_held_for(id) {
                    // It cannot read what waits for a commit.
                    let linger_timer = self.dispatch.wheel.of(LOOP).arm(now + LINGER, id);
                    conn.phase = Phase::HalfClosed { linger_timer };
                    return;
                }
                Phase::Open
            }
            Phase::Lingering { linger_timer } => {
                linger_timer.fired();
                Phase::Closed
            }
            other => other,
        };
        self.fail(id, &"it took too long to read its last replies", now);
    }

    fn drop(&mut self, id: ConnId) {
        let service = self.slab[id.index()].service;
        debug!("{id} closed: {} ({})", self.slab.peer(id), self.dispatch.services[service].info.name);
        let conn = self.slab.remove(id.index());
        if self.links.is_linked(id) {
            self.ready.remove(&mut self.links, id);
        }
        if let Phase::Lingering { linger_timer } = conn.phase {
            self.dispatch.wheel.of::<ConnId>(LOOP).cancel(linger_timer);
        }
        let lost = self.dispatch.output.discard(id);
        let traffic = &mut self.dispatch.services[service].traffic;
        traffic.failed_sends += u64::from(lost);
        traffic.open -= 1;
    }

    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        self.dispatch.check();
        assert_eq!(self.dispatch.services.open(), self.slab.len() as u64, "each connection is counted for its service");
        for (index, conn) in &self.slab {
            let id = ConnId::from_index(index);
            let waits = conn.parked || conn.waiting || conn.draining;
            let waits_for_turn = waits || self.links.is_linked(id) || self.closing.contains(&id);
            assert!(waits_for_turn || !conn.readable, "{id} may have something to read, and has no turn");
            let can_drain = self.dispatch.output.unsent(id).is_empty() || conn.blocked || conn.failed;
            assert!(
                can_drain || self.dispatch.output.is_dirty(),
                "{id} has something unsent, and is not to be flushed"
            );
        }
        assert!(self.ready.iter(&self.links).all(|id| self.slab.contains(id.index())), "only connections are served");
    }
}
