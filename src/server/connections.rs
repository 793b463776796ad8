//! Table of all connections, and the phases of the tick that work on them: serve, expire, flush, reap. It knows streams
//! that read and write, but neither sockets nor the clock, so that the simulator runs the very same code.
//!
//! Invariant: a connection with work that no event will announce (bytes not read, requests not served) is in `ready` or
//! `showing`, unless it is parked, and then the flush that drains its output puts it there.
//! Invariant: a service knows a connection from its first turn until
//! [`Service::close`](poolcounter_service::contract::Service::close), and never after. That is called as soon as the
//! end is found, so that the locks of the connection are free at once; `reap` only drops the socket.

use super::connection::{Connection, Phase, Place, Stream};
use super::dispatch::Dispatch;
use super::idle::IdleQueues;
use super::read_buffer::ReadBuffer;
use log::{debug, info};
use poolcounter_core::proxy::MAX_HEADER;
use poolcounter_core::time::earliest;
use poolcounter_core::{ConnId, Id, LogLimit, Owner, Queue, Random, Span, Time};
use poolcounter_service::access::SavedCounts;
use poolcounter_service::container::{PerService, ServiceId, Services};
use poolcounter_service::contract::{Context, OperationResult, Peers, Service, Then};
use poolcounter_service::health::{HealthLine, HealthSettings};
use poolcounter_service::report::LoopStats;

mod check;
mod events;
mod finish;
mod guard;
mod header;
mod rest;
mod restoring;
mod saved;
mod table;
mod tick;
mod turns;

use restoring::Restoring;
pub use saved::rehearse;
use table::Table;
pub use tick::Host;

/// Time that a connection to be closed has for reading its last replies, and for closing its side.
const LINGER: Span = Span::from_secs(5);
/// The loop's own timers; the services' owners count up from zero.
const LOOP: Owner = Owner(u8::MAX);

/// Connections of all services, with everything they share.
pub struct Connections<S> {
    slab: Table<S>,
    /// Connections that are served in the next tick, in order.
    ready: Queue<ConnId>,
    /// Connections whose next turn is for snapshots, in order.
    showing: Queue<ConnId>,
    idle: IdleQueues,
    /// Connections for the next `reap`.
    closing: Queue<ConnId>,
    /// Services whose stores have finished work.
    completed: Vec<ServiceId>,
    read_buffer: ReadBuffer,
    /// Most connections of each service; None without limits.
    places: PerService<u64>,
    /// Number of connections of each service whose proxies have not sent a header. They have no place.
    awaited: PerService<u64>,
    /// Number of refused connections that may still read the refusal. They have no place either.
    refused: usize,
    accept_log: LogLimit,
    /// Denials of the previous process, until there are rules to count them by.
    denied: Vec<SavedCounts>,
    /// True while an upgrade waits until the services are quiet: no connection is served.
    is_paused: bool,
    /// Services that have not read all that the previous process has saved.
    restoring: Vec<Restoring>,
    pub(crate) dispatch: Dispatch,
}

impl<S: Stream> Connections<S> {
    /// Returns an empty set of connections. `epoch` is the time of day at [`Time::START`], since 1970.
    pub fn new(services: Services, epoch: Span, random: Random) -> Self {
        Connections {
            slab: Table::default(),
            ready: Queue::default(),
            showing: Queue::default(),
            idle: IdleQueues::new(services.ids().map(|service| services[service].caps.idle)),
            closing: Queue::default(),
            completed: Vec::new(),
            read_buffer: ReadBuffer::new(services.longest_request().max(MAX_HEADER)),
            places: services.for_each(u64::MAX),
            awaited: services.for_each(0),
            refused: 0,
            accept_log: LogLimit::default(),
            denied: Vec::new(),
            is_paused: false,
            restoring: Vec::new(),
            dispatch: Dispatch::new(services, epoch, random),
        }
    }

    /// Sets the thresholds of conditions.
    pub fn watch_over(&mut self, settings: HealthSettings) {
        self.dispatch.health.board.settings = settings;
    }

    /// Returns the health of the services at the last look.
    pub fn health(&self) -> Vec<HealthLine> {
        self.dispatch.health.board.lines()
    }

    /// Applies the settings of every service: [`configure`](poolcounter_service::contract::Lifecycle::configure).
    pub fn configure(&mut self, now: Time) {
        for id in self.dispatch.services.ids() {
            if !self.dispatch.services[id].is_restoring {
                self.configure_one(id, now);
            }
        }
        self.resume(now);
    }

    fn configure_one(&mut self, id: ServiceId, now: Time) {
        self.dispatch.call(id, now, &self.slab, |service, context| service.configure(context));
        self.recheck(id, now);
    }

    /// Opens the stores: [`Lifecycle::begin`](poolcounter_service::contract::Lifecycle::begin) of every service.
    /// `listens` returns true for services with listeners.
    ///
    /// # Errors
    ///
    /// The first sentence of a service that fails.
    pub fn begin(&mut self, listens: impl Fn(ServiceId) -> bool, now: Time) -> Result<(), String> {
        self.dispatch.services.ids().try_for_each(|id| {
            self.dispatch.services[id].is_enabled = listens(id);
            self.dispatch.call(id, now, &self.slab, |service, context| service.begin(listens(id), context))
        })
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Returns the services.
    pub fn services(&mut self) -> &mut Services {
        &mut self.dispatch.services
    }

    /// Returns the service with this name.
    pub fn named(&self, service: &str) -> Option<ServiceId> {
        self.dispatch.services.named(service)
    }

    /// Makes the services refuse new work, if they can be drained.
    pub fn drain(&mut self, now: Time) {
        self.call_all(now, |service, context| service.drain(context));
        self.resume(now);
    }

    /// Returns true if a service has asked for the end of the daemon, and nothing is under way that would be lost.
    pub fn may_end(&self) -> bool {
        self.dispatch.is_end_asked && self.is_quiet()
    }

    /// Notes that a reload begins.
    pub fn begin_reload(&mut self) {
        self.dispatch.is_reload_asked = false;
        for id in self.dispatch.services.ids() {
            self.dispatch.services[id].service.reload_begins();
        }
    }

    /// Passes on the result of a reload.
    pub fn end_reload(&mut self, result: &OperationResult, now: Time) {
        self.call_all(now, |service, context| service.reload_ended(result, context));
        self.resume(now);
    }

    /// Returns true if there are no connections, and no traces of any.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
            && !self.has_ready()
            && self.closing.is_empty()
            && self.idle.is_empty()
            && self.dispatch.is_empty()
    }

    /// Adds a new connection, without a check of rules, and returns its id.
    pub fn open(&mut self, stream: S, service: ServiceId, now: Time) -> ConnId {
        let id = ConnId::from_index(self.slab.insert(Connection::new(stream, service)));
        self.note_open(id, now);
        id
    }

    /// Counts a connection as an open one of its service, and notifies the service.
    fn note_open(&mut self, id: ConnId, now: Time) {
        let service = self.slab[id.index()].service;
        if self.accept_log.is_over(now) {
            info!("connections are accepted again");
        }
        self.idle.note_activity(id, service, now);
        debug!("{id} opened: {} ({})", self.slab.peer(id), self.dispatch.services[service].info.name);
        let traffic = &mut self.dispatch.services[service].traffic;
        traffic.open += 1;
        traffic.opened.bump();
        self.dispatch.call(service, now, &self.slab, |service, context| service.open(id, context));
    }

    /// Returns the stream of a connection; None if it has ended.
    pub fn stream(&mut self, id: ConnId) -> Option<&mut S> {
        self.slab.get_mut(id.index()).map(|conn| &mut conn.stream)
    }

    /// Counts a connection that was refused, or lost before it was served.
    pub fn count_error(&mut self, service: ServiceId) {
        self.dispatch.services[service].traffic.connect_errors.bump();
    }

    /// Notes that the store of a service has finished work.
    pub fn mark_completed(&mut self, service: ServiceId) {
        self.completed.push(service);
    }

    /// Returns the time of work that no event will announce: at once if some is left over, else when the next timer is
    /// due.
    pub fn next_work(&self) -> Option<Time> {
        let unserved = !self.is_paused && self.has_ready();
        let unserved = unserved || !self.is_paused && !self.restoring.is_empty();
        let left_over = unserved || self.dispatch.output.is_dirty() || !self.closing.is_empty();
        match left_over {
            true => Some(Time::START),
            false if self.is_paused => None,
            false => earliest(self.dispatch.wheel.next(), self.idle.next_deadline()),
        }
    }

    /// Returns the loop's own figures.
    pub fn loop_stats(&mut self) -> &mut LoopStats {
        &mut self.dispatch.loop_stats
    }

    /// Calls each service.
    fn call_all(&mut self, now: Time, mut call: impl FnMut(&mut dyn Service, &mut Context<'_>)) {
        for id in self.dispatch.services.ids() {
            self.dispatch.call(id, now, &self.slab, &mut call);
        }
    }

    /// Gives a connection a turn, unless it is parked.
    fn make_ready(&mut self, id: ConnId) {
        let conn = &self.slab[id.index()];
        enqueue(conn, id, &mut self.ready, &mut self.showing);
    }

    fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.showing.is_empty()
    }

    /// Continues after some of the connection's output was sent, or replaced by less: it may be served again, or
    /// reaped.
    fn after_write(&mut self, id: ConnId) {
        let conn = &mut self.slab[id.index()];
        if let Phase::Closed | Phase::Lingering { .. } = conn.phase {
            if !conn.blocked {
                self.closing.push_back(id);
            }
        } else if !self.dispatch.output.is_full(id) {
            conn.phase = match std::mem::replace(&mut conn.phase, Phase::Open) {
                Phase::HalfClosed { linger_timer } => {
                    self.dispatch.wheel.of::<ConnId>(LOOP).cancel(linger_timer);
                    Phase::Open
                }
                other => other,
            };
            if std::mem::take(&mut conn.parked) {
                self.make_ready(id);
            }
        }
    }

    pub(crate) fn fail(&mut self, id: ConnId, why: &dyn std::fmt::Display, now: Time) {
        debug!("{id} failed: {why}");
        self.slab[id.index()].failed = true;
        self.close(id, now);
    }

    /// Calls the service's `close` unless that was done before, and queues the connection for `reap`.
    fn close(&mut self, id: ConnId, now: Time) {
        self.closing.push_back(id);
        if !self.slab[id.index()].is_open() {
            return;
        }
        self.forget(id);
        let conn = &mut self.slab[id.index()];
        conn.phase = Phase::Closed;
        let service = conn.service;
        if !self.hold_end(id) {
            self.dispatch.call(service, now, &self.slab, |service, context| service.close(id, context));
        }
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

    /// Ends a connection whose time limit is over: for the header of its proxy, or for reading its last replies.
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
                    // The peer cannot read replies that wait for a commit.
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

    /// Removes a connection that ends from each table but `closing`, and from the output once its replies are sent.
    fn forget(&mut self, id: ConnId) {
        let conn = &mut self.slab[id.index()];
        let phase = std::mem::replace(&mut conn.phase, Phase::Closed);
        match phase {
            Phase::Unidentified { header_timer: timer }
            | Phase::HalfClosed { linger_timer: timer }
            | Phase::Lingering { linger_timer: timer } => self.dispatch.wheel.of::<ConnId>(LOOP).cancel(timer),
            Phase::Open | Phase::Closed => {}
        }
        self.idle.remove(id, conn.service);
        if self.dispatch.access.is_on {
            self.dispatch.access.leave(id);
        }
    }

    fn drop(&mut self, id: ConnId) {
        let service = self.slab[id.index()].service;
        debug!("{id} closed: {} ({})", self.slab.peer(id), self.dispatch.services[service].info.name);
        self.forget(id);
        self.ready.remove(id);
        self.showing.remove(id);
        self.closing.remove(id);
        let conn = self.slab.remove(id.index());
        let lost = self.dispatch.output.discard(id);
        let traffic = &mut self.dispatch.services[service].traffic;
        traffic.failed_sends += u64::from(lost);
        match conn.place {
            Place::Open => traffic.open -= 1,
            Place::Awaited => self.awaited[service] -= 1,
            Place::Refused => self.refused -= 1,
        }
    }
}

/// Queues a connection for its next turn, unless it is parked.
#[inline(always)]
fn enqueue<S>(conn: &Connection<S>, id: ConnId, ready: &mut Queue<ConnId>, showing: &mut Queue<ConnId>) {
    match conn.then {
        _ if conn.parked => {}
        Then::Show => showing.push_back(id),
        _ => ready.push_back(id),
    }
}
