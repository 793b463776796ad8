//! Every connection, and the phases of the tick that work on them: serve, expire, flush, reap. It knows streams that read
//! and write, but neither sockets nor the clock, so that the simulator runs the very same code.
//!
//! Invariant: a connection with work that no event will announce (bytes not read, requests not served) stands in `ready`,
//! unless it is parked, and then the flush that drains its output puts it there.
//! Invariant: a service knows a connection from its first turn until it is told that it is gone, and never after. It is told
//! where that is met, so that whatever is served later finds given back what was held; `reap` only drops the connection.

use super::connection::{Connection, News, Stage, Stream};
use super::dispatch::Dispatch;
use super::inlet::Inlet;
use crate::id::{ConnId, Id, ServiceId};
use crate::list::{Links, List};
use crate::pulse::{Budget, Pulse};
use crate::random::Random;
use crate::registry::Services;
use crate::service::{GONE, Peers, Served, Then};
use crate::time::{Span, Time};
use crate::wheel::Owner;
use log::debug;
use slab::Slab;
use std::io::{self, ErrorKind};

mod saved;
pub use saved::Saved;

/// How long a tick serves before it looks after timers and output, however many clients pipeline.
const SERVING_TIME: Span = Span::from_millis(10);
/// How long a connection that is to be closed may take to read its last replies, and to notice.
const LINGER: Span = Span::from_secs(5);
/// How many timers fire in a tick, how many connections are written to, and how many dropped: some milliseconds of each, so that
/// a crowd that is woken together does not keep others waiting.
const TIMERS_PER_TICK: usize = 4096;
const WRITES_PER_TICK: usize = 1024;
const ENDS_PER_TICK: usize = 1024;
/// The loop's own timers; the services' owners count up from zero.
const LOOP: Owner = Owner(u8::MAX);

/// What surrounds the connections: the system with its sockets and its clock, or a test.
pub trait Host {
    /// What the connections read and write.
    type Stream: Stream;

    /// Returns the connections.
    fn connections(&mut self) -> &mut Connections<Self::Stream>;

    /// Returns what tells the time.
    fn clock(&self) -> impl Fn() -> Time + use<Self>;

    /// Sleeps from `now` until something happens, and marks the connections that it happens to.
    ///
    /// # Errors
    ///
    /// When it cannot.
    fn wait(&mut self, now: Time) -> io::Result<()>;

    /// Takes new connections in.
    fn accept(&mut self);
}

/// The connections of all services, with everything they share.
pub struct Connections<S> {
    slab: Slab<Connection<S>>,
    /// Whoever is to be served in the next tick, in order.
    ready: List<ConnId>,
    links: Links,
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
}

impl<S: Stream> Connections<S> {
    /// No connections yet. `epoch` is the time of day at [`Time::START`], since 1970.
    pub fn new(services: Services, epoch: Span, random: Random) -> Self {
        Connections {
            slab: Slab::new(),
            ready: List::default(),
            links: Links::default(),
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
    pub fn open(&mut self, stream: S, service: ServiceId) -> ConnId {
        let id = ConnId::from_index(self.slab.insert(Connection::new(stream, service)));
        let traffic = &mut self.core.services[service].traffic;
        traffic.open += 1;
        traffic.opened += 1;
        debug!("{id} opened");
        id
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

    /// When there is work that no event will announce: at once if some is left over, else when the next timer is due.
    pub fn next_work(&self) -> Option<Time> {
        let unserved = !self.is_paused && !self.ready.is_empty();
        let left_over = unserved || self.core.output.is_dirty() || !self.closing.is_empty();
        match left_over {
            true => Some(Time::START),
            false if self.is_paused => None,
            false => self.core.wheel.next(),
        }
    }

    /// What the loop notes of itself.
    pub fn pulse(&mut self) -> &mut Pulse {
        &mut self.core.pulse
    }

    /// One turn of the loop, within what `host` is.
    ///
    /// # Errors
    ///
    /// When the host cannot wait any more.
    pub fn tick<H: Host<Stream = S>>(host: &mut H) -> io::Result<()> {
        let clock = host.clock();
        let now = clock();
        host.connections().pulse().end_tick(now);
        host.wait(now)?;
        host.accept();
        let connections = host.connections();
        connections.complete(&clock);
        let served = if connections.is_paused { None } else { connections.serve(&clock) };
        let now = served.unwrap_or_else(&clock);
        connections.pulse().begin_tick(now);
        if !connections.is_paused {
            connections.expire(now);
        }
        connections.commit(now);
        connections.flush(now);
        connections.reap(now);
        Ok(())
    }

    /// Notes that the store of a service has finished something.
    pub fn mark_completed(&mut self, service: ServiceId) {
        self.completed.push(service);
    }

    /// Tells the services whose stores have finished something.
    fn complete(&mut self, clock: &impl Fn() -> Time) {
        while let Some(service) = self.completed.pop() {
            self.core.call(service, clock(), &self.slab, |service, context| service.completed(context));
        }
        self.resume();
    }

    /// Gives each ready connection one turn: one read, and a bounded number of requests. Those for whom the tick has no
    /// time left are the first of the next one. Tells when the last turn began.
    fn serve(&mut self, clock: &impl Fn() -> Time) -> Option<Time> {
        let mut end = None;
        let mut last = None;
        for _ in 0..self.ready.len() {
            if last > end {
                self.core.pulse.count_spent(Budget::Serving);
                break;
            }
            let Some(id) = self.ready.pop_front(&mut self.links) else { break };
            let conn = &mut self.slab[id.index()];
            if conn.broken {
                continue;
            } else if let Stage::Closed | Stage::Lingering { .. } = conn.stage {
                self.read_to_the_end(id, clock);
            } else if conn.waiting || conn.draining {
                self.look_after(id, clock());
            } else if self.core.output.is_full(id) {
                self.park(id, clock());
            } else {
                let now = self.serve_one(id, clock);
                end.get_or_insert(now + SERVING_TIME);
                last = Some(now);
            }
        }
        self.resume();
        last
    }

    /// Fires the timers that are due.
    fn expire(&mut self, now: Time) {
        for _ in 0..TIMERS_PER_TICK {
            let Some(due) = self.core.wheel.expire(now) else { return self.resume() };
            match due.owner {
                LOOP => self.end_patience(due.key(), now),
                owner => {
                    let service = ServiceId::of(owner);
                    self.core.call(service, now, &self.slab, |service, context| service.expire(due, context));
                }
            }
        }
        self.core.pulse.count_spent(Budget::Timers);
        self.resume();
    }

    /// Has the services with a store hand over what they have collected.
    fn commit(&mut self, now: Time) {
        self.core.commit(now, &self.slab);
        self.resume();
    }

    /// Writes to each connection that has news, once; and to those who get what others held that turn out to be gone.
    fn flush(&mut self, now: Time) {
        for _ in 0..WRITES_PER_TICK {
            let Some(id) = self.core.output.pop_dirty() else { return self.resume() };
            self.write_to(id, now);
        }
        self.core.pulse.count_spent(Budget::Writes);
        self.resume();
    }

    /// The only place where connections are dropped: those of which their services know nothing any more, once they have
    /// been sent everything.
    fn reap(&mut self, now: Time) {
        let some = self.closing.len().min(ENDS_PER_TICK);
        for n in 0..some {
            let id = self.closing[n];
            // Named twice and dropped at the first time, its number may be that of a new connection.
            let Some(conn) = self.slab.get_mut(id.index()).filter(|conn| !conn.is_open()) else { continue };
            let drained = self.core.output.unsent(id).is_empty();
            if conn.broken || drained && (conn.ended || conn.stream.finish().is_err()) {
                self.drop(id);
            } else {
                self.linger(id, now);
            }
        }
        self.closing.drain(..some);
        if !self.closing.is_empty() {
            self.core.pulse.count_spent(Budget::Ends);
        }
    }

    /// Gives a connection its turn, and tells when that began to be served.
    fn serve_one(&mut self, id: ConnId, clock: &impl Fn() -> Time) -> Time {
        let conn = &mut self.slab[id.index()];
        let service = conn.service;
        self.inlet.load(&mut conn.unserved, self.core.services[service].caps.request_bytes);
        let kept = self.inlet.bytes().len();
        let received = if conn.readable && self.inlet.wants_more() { conn.read(&mut self.inlet) } else { Ok(()) };
        // After the request was received, so that a wait that begins with it cannot end early.
        let now = clock();
        self.core.pulse.count_turn(now);
        let input = self.inlet.bytes();
        if let Err(error) = &received
            && input.len() == kept
        {
            self.break_off(id, error, now);
            return now;
        }
        self.core.services[service].traffic.received_bytes += (input.len() - kept) as u64;
        let served = self.core.call(service, now, &self.slab, |service, context| service.serve(id, input, context));
        self.slab[id.index()].unserved = self.inlet.unserved(served.consumed);
        match received {
            Ok(()) => self.go_on(id, served, now),
            Err(error) => self.break_off(id, &error, now),
        }
        now
    }

    /// What becomes of a connection after it was served.
    fn go_on(&mut self, id: ConnId, served: Served, now: Time) {
        let conn = &mut self.slab[id.index()];
        let is_over = served.then == Then::Close || served.then == Then::Read && conn.ended;
        if is_over {
            conn.draining = true;
            self.look_after(id, now);
        } else if served.then == Then::Wait {
            conn.waiting = true;
            if conn.hangup || conn.ended {
                self.look_after(id, now);
            }
        } else if conn.readable || served.then == Then::Serve {
            let is_full = self.core.output.is_full(id);
            if served.then == Then::Serve && !conn.unserved.is_empty() && !is_full {
                self.core.pulse.count_spent(Budget::Requests);
            }
            self.make_ready(id);
        }
    }

    /// The turn of a connection that is not served: whether it is over, or its peer has left.
    fn look_after(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        if conn.lost {
            self.break_off(id, &"its peer is gone", now);
        } else if conn.draining {
            if !self.core.output.is_held_for(id) {
                self.close(id, now);
            }
        } else if conn.hangup || conn.ended {
            let service = conn.service;
            self.core.call(service, now, &self.slab, |service, context| service.hangup(id, context));
        }
    }

    /// Has those served whose wait is over.
    fn resume(&mut self) {
        let mut resumed = std::mem::take(&mut self.core.resumed);
        for id in resumed.drain(..) {
            // It may be gone, or not have waited.
            if let Some(conn) = self.slab.get_mut(id.index())
                && std::mem::take(&mut conn.waiting)
            {
                self.make_ready(id);
            }
        }
        self.core.resumed = resumed;
    }

    /// What a peer still sends after it was told that the connection ends is of no interest, except for its end. If it were
    /// left unread, closing the socket would reset the connection and the last replies might be lost.
    fn read_to_the_end(&mut self, id: ConnId, clock: &impl Fn() -> Time) {
        let conn = &mut self.slab[id.index()];
        self.inlet.load(&mut Box::default(), 0);
        match conn.read(&mut self.inlet) {
            Ok(()) if conn.ended => self.closing.push(id),
            Ok(()) if conn.readable => self.make_ready(id),
            Ok(()) => {}
            Err(error) => self.break_off(id, &error, clock()),
        }
    }

    fn write_to(&mut self, id: ConnId, now: Time) {
        let Some(conn) = self.slab.get_mut(id.index()) else {
            // A service has told something to a connection that is gone.
            self.core.output.discard(id);
            return;
        };
        if conn.broken {
            return;
        }
        if self.core.output.len(id) > self.core.services[conn.service].caps.output_bytes {
            return self.break_off(id, &"it does not read what it is told", now);
        }
        if conn.draining && conn.is_open() && !self.core.output.is_held_for(id) {
            self.close(id, now);
        }
        let conn = &mut self.slab[id.index()];
        if conn.blocked {
            return;
        }
        let unsent = self.core.output.unsent(id);
        // All that there is may wait for a commit.
        let written = if unsent.is_empty() { Ok(0) } else { conn.stream.write(unsent) };
        match written {
            Ok(len) => {
                conn.blocked = len < unsent.len();
                self.core.services[conn.service].traffic.sent_bytes += len as u64;
                self.core.output.consume(id, len);
                self.note_progress(id);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => conn.blocked = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => self.core.output.touch(id),
            Err(error) => self.break_off(id, &error, now),
        }
    }

    /// A client that does not read has no turn. If it has closed its side too, it may just have died, and what it holds
    /// must come back.
    fn park(&mut self, id: ConnId, now: Time) {
        self.core.pulse.count_spent(Budget::Output);
        let conn = &mut self.slab[id.index()];
        conn.parked = true;
        if conn.hangup && matches!(conn.stage, Stage::Open) {
            conn.stage = Stage::Leaving { patience: self.core.wheel.of(LOOP).arm(now + LINGER, id) };
        }
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
        let conn = self.slab.remove(id.index());
        if self.links.is_linked(id) {
            self.ready.remove(&mut self.links, id);
        }
        if let Stage::Lingering { patience } = conn.stage {
            self.core.wheel.of::<ConnId>(LOOP).cancel(patience);
        }
        let lost = self.core.output.discard(id);
        let traffic = &mut self.core.services[conn.service].traffic;
        traffic.failed_sends += u64::from(lost);
        traffic.open -= 1;
        debug!("{id} closed");
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
