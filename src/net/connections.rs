//! Every connection, and the phases of the tick that work on them: serve, expire, flush, reap. It knows streams that read
//! and write, but neither sockets nor the clock, so that the simulator runs the very same code.
//!
//! Invariant: a connection with work that no event will announce (bytes not read, requests not served) stands in `ready`,
//! unless it is parked, and then the flush that drains its output puts it there.
//! Invariant: a service knows a connection from its first turn until it is told that it is gone, and never after. It is told
//! where that is met, so that whatever is served later finds given back what was held; `reap` only drops the connection.

use super::connection::{Connection, News, Stage, Stream};
use super::dispatch::Dispatch;
use super::idle::Idle;
use super::inlet::Inlet;
use crate::id::{ConnId, Id, ServiceId};
use crate::list::{Links, List};
use crate::pulse::Pulse;
use crate::random::Random;
use crate::registry::Services;
use crate::service::{GONE, Peers};
use crate::time::{Span, Time};
use crate::wheel::Owner;
use log::debug;
use slab::Slab;

mod saved;
mod tick;

pub use saved::rehearse;
pub(super) use saved::{Head, SavedConnection};
pub use tick::Host;

/// How long a connection that is to be closed may take to read its last replies, and to notice.
const LINGER: Span = Span::from_secs(5);
/// The loop's own timers; the services' owners count up from zero.
const LOOP: Owner = Owner(u8::MAX);

/// The connections of all services, with everything they share.
pub struct Connections<S> {
    slab: Slab<Connection<S>>,
    /// Whoever is to be served in the next tick, in order.
    ready: List<ConnId>,
    links: Links,
    idle: Idle,
    /// Whoever `reap` is to look at; may name a connection twice.
    closing: Vec<ConnId>,
    /// Services whose stores have finished something.
    completed: Vec<ServiceId>,
    inlet: Inlet,
    /// Nothing is served: an upgrade waits until the services are quiet.
    is_paused: bool,
    core: Dispatch,
}

impl<S: Stream> Peers for Slab<Connection<S>> {
    fn peer(&self, conn: ConnId) -> String {
        let peer = self.get(conn.index()).and_then(|conn| conn.stream.peer().ok());
        peer.unwrap_or_else(|| GONE.into())
    }

    fn is_local(&self, conn: ConnId) -> bool {
        self.get(conn.index()).is_some_and(|conn| conn.stream.is_local())
    }
}

impl<S: Stream> Connections<S> {
    /// No connections yet. `epoch` is the time of day at [`Time::START`], since 1970.
    pub fn new(services: Services, epoch: Span, random: Random) -> Self {
        Connections {
            slab: Slab::new(),
            ready: List::default(),
            links: Links::default(),
            idle: Idle::new(services.ids().map(|service| services[service].caps.idle)),
            closing: Vec::new(),
            completed: Vec::new(),
            inlet: Inlet::new(services.longest_request()),
            is_paused: false,
            core: Dispatch::new(services, epoch, random),
        }
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// The services.
    pub fn services(&mut self) -> &mut Services {
        &mut self.core.services
    }

    /// Returns the service of that name.
    pub fn named(&self, service: &str) -> Option<ServiceId> {
        self.core.services.named(service)
    }

    /// Has nothing served, or everything served again.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Whether no service has something under way that a process which takes over could not go on with.
    pub fn is_quiet(&self) -> bool {
        self.core.services.is_quiet() && !self.core.output.is_held()
    }

    /// Whether there are none, and nothing is left of any.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty() && self.ready.is_empty() && self.closing.is_empty() && self.core.is_empty()
    }

    /// Takes a new connection in.
    pub fn open(&mut self, stream: S, service: ServiceId, now: Time) -> ConnId {
        let id = ConnId::from_index(self.slab.insert(Connection::new(stream, service)));
        self.idle.note_activity(id, service, now);
        debug!("{id} opened: {} ({})", self.slab.peer(id), self.core.services[service].info.name);
        let traffic = &mut self.core.services[service].traffic;
        traffic.open += 1;
        traffic.opened += 1;
        id
    }

    /// Closes the longest idle connection of a service, and returns whether there was any that may not be idle for ever.
    pub fn make_room(&mut self, service: ServiceId, now: Time) -> bool {
        let longest = self.idle.longest(service);
        if let Some(id) = longest {
            self.break_off(id, &"it makes room for another", now);
        }
        longest.is_some()
    }

    /// The stream of a connection that is not gone yet.
    pub fn stream(&mut self, id: ConnId) -> Option<&mut S> {
        self.slab.get_mut(id.index()).map(|conn| &mut conn.stream)
    }

    /// Gives a connection up that was just opened and cannot be polled.
    pub fn abandon(&mut self, id: ConnId, now: Time) {
        self.break_off(id, &"no event will tell of it", now);
    }

    /// Counts a connection that could not be accepted or served.
    pub fn count_error(&mut self, service: ServiceId) {
        self.core.services[service].traffic.connect_errors += 1;
    }

    /// Notes what an event said. Nothing is read or written yet.
    pub fn mark(&mut self, id: ConnId, news: News) {
        let Some(conn) = self.slab.get_mut(id.index()) else { return };
        if news.writable {
            conn.blocked = false;
            if !self.core.output.unsent(id).is_empty() {
                self.core.output.touch(id);
            }
        }
        if news.readable || news.hangup {
            conn.readable = true;
            conn.hangup |= news.hangup;
            conn.lost |= news.lost;
            // Whoever leaves without reading is parked anew, and not for ever.
            conn.parked &= !conn.hangup;
            self.make_ready(id);
        }
    }

    /// Notes what came while nobody looked, which has no order: those that have left come before all others, so that nobody is
    /// refused what they held.
    pub fn mark_at_once(&mut self, news: Vec<(ConnId, News)>) {
        let waiting: Vec<ConnId> = std::iter::from_fn(|| self.ready.pop_front(&mut self.links)).collect();
        let (left, others): (Vec<_>, Vec<_>) = news.into_iter().partition(|(_, news)| news.hangup);
        left.into_iter().for_each(|(id, news)| self.mark(id, news));
        waiting.into_iter().for_each(|id| self.make_ready(id));
        others.into_iter().for_each(|(id, news)| self.mark(id, news));
    }

    /// Notes that the store of a service has finished something.
    pub fn mark_completed(&mut self, service: ServiceId) {
        self.completed.push(service);
    }

    /// When there is work that no event will announce: at once if some is left over, else when the next timer is due.
    pub fn next_work(&self) -> Option<Time> {
        let unserved = !self.is_paused && !self.ready.is_empty();
        let left_over = unserved || self.core.output.is_dirty() || !self.closing.is_empty();
        match left_over {
            true => Some(Time::START),
            false if self.is_paused => None,
            false => self.core.wheel.next().into_iter().chain(self.idle.next()).min(),
        }
    }

    /// What the loop notes of itself.
    pub fn pulse(&mut self) -> &mut Pulse {
        &mut self.core.pulse
    }

    fn make_ready(&mut self, id: ConnId) {
        if !self.slab[id.index()].parked && !self.links.is_linked(id) {
            self.ready.push_back(&mut self.links, id);
        }
    }

    /// Some of the connection's output was sent, or replaced by less: a reason to serve it again, or to be done with it.
    fn note_progress(&mut self, id: ConnId) {
        let conn = &mut self.slab[id.index()];
        if let Stage::Closed | Stage::Lingering { .. } = conn.stage {
            if !conn.blocked {
                self.closing.push(id);
            }
        } else if !self.core.output.is_full(id) {
            if let Stage::Leaving { patience } = std::mem::replace(&mut conn.stage, Stage::Open) {
                self.core.wheel.of::<ConnId>(LOOP).cancel(patience);
            }
            if std::mem::take(&mut conn.parked) {
                self.make_ready(id);
            }
        }
    }

    fn break_off(&mut self, id: ConnId, why: &dyn std::fmt::Display, now: Time) {
        debug!("{id} breaks off: {why}");
        self.slab[id.index()].broken = true;
        self.close(id, now);
    }

    /// Has the service forget the connection and give back what it held, there and then, unless it has; and has `reap` look at it.
    fn close(&mut self, id: ConnId, now: Time) {
        self.closing.push(id);
        let conn = &mut self.slab[id.index()];
        self.idle.remove(id, conn.service);
        match std::mem::replace(&mut conn.stage, Stage::Closed) {
            Stage::Open => {}
            Stage::Leaving { patience } => self.core.wheel.of::<ConnId>(LOOP).cancel(patience),
            closed => return conn.stage = closed,
        }
        let service = conn.service;
        self.core.call(service, now, &self.slab, |service, context| service.close(id, context));
    }

    fn linger(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        if let Stage::Closed = conn.stage {
            conn.parked = false;
            conn.stage = Stage::Lingering { patience: self.core.wheel.of(LOOP).arm(now + LINGER, id) };
        }
        if conn.readable {
            self.make_ready(id);
        }
    }

    fn end_patience(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        conn.stage = match std::mem::replace(&mut conn.stage, Stage::Closed) {
            Stage::Leaving { patience } => {
                patience.fired();
                if self.core.output.is_held_for(id) {
                    // It cannot read what waits for a commit.
                    conn.stage = Stage::Leaving { patience: self.core.wheel.of(LOOP).arm(now + LINGER, id) };
                    return;
                }
                Stage::Open
            }
            Stage::Lingering { patience } => {
                patience.fired();
                Stage::Closed
            }
            other => other,
        };
        self.break_off(id, &"it took too long to read its last replies", now);
    }

    fn drop(&mut self, id: ConnId) {
        let service = self.slab[id.index()].service;
        debug!("{id} closed: {} ({})", self.slab.peer(id), self.core.services[service].info.name);
        let conn = self.slab.remove(id.index());
        if self.links.is_linked(id) {
            self.ready.remove(&mut self.links, id);
        }
        if let Stage::Lingering { patience } = conn.stage {
            self.core.wheel.of::<ConnId>(LOOP).cancel(patience);
        }
        let lost = self.core.output.discard(id);
        let traffic = &mut self.core.services[service].traffic;
        traffic.failed_sends += u64::from(lost);
        traffic.open -= 1;
    }

    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        self.core.check();
        assert_eq!(self.core.services.open(), self.slab.len() as u64, "each connection is counted for its service");
        for (index, conn) in &self.slab {
            let id = ConnId::from_index(index);
            let waits = conn.parked || conn.waiting || conn.draining;
            let waits_for_turn = waits || self.links.is_linked(id) || self.closing.contains(&id);
            assert!(waits_for_turn || !conn.readable, "{id} may have something to read, and nobody will look");
            let can_drain = self.core.output.unsent(id).is_empty() || conn.blocked || conn.broken;
            assert!(can_drain || self.core.output.is_dirty(), "{id} has something unsent, and nobody will send it");
        }
        assert!(self.ready.iter(&self.links).all(|id| self.slab.contains(id.index())), "only connections are served");
    }
}
