//! Every connection, and the phases of the tick that work on them: serve, expire, flush, reap. It knows streams that read
//! and write, but neither sockets nor the clock, so that the simulator runs the very same code.
//!
//! Invariant: a connection with work that no event will announce (bytes not read, requests not served) stands in `ready`,
//! unless it is parked, and then the flush that drains its output puts it there.
//! Invariant: a service knows a connection from its first turn until it is told that it is gone, and never after. It is told
//! where that is met, so that whatever is served later finds given back what was held; `reap` only drops the connection.

use super::connection::{Connection, News, Stage, Stream};
use super::core::Core;
use super::inlet::Inlet;
use crate::id::{ConnId, Id};
use crate::list::{Links, List};
use crate::pulse::{Budget, Pulse};
use crate::service::{GONE, Input, Peers, Then};
use crate::services::{ByKind, Kind, Services};
use crate::time::{Span, Time};
use crate::wheel::{Due, Owner};
use log::debug;
use slab::Slab;
use std::io::ErrorKind;

mod saved;
pub use saved::Saved;

/// How long a tick serves before it looks after timers and output, however many clients pipeline.
const SERVING_TIME: Span = Span::from_millis(10);
/// How long a connection that is to be closed may take to read its last replies, and to notice.
const LINGER: Span = Span::from_secs(5);
/// The loop's own timers; the services' owners count up from zero.
const LINGERING: Owner = Owner(u8::MAX);

/// The connections of all services, with everything they share.
pub struct Connections<S> {
    slab: Slab<Connection<S>>,
    /// Whoever is to be served in the next tick, in order.
    ready: List<ConnId>,
    links: Links,
    /// How long connections of each kind may be idle, and those that may not for ever, the longest idle first.
    idle: ByKind<(Option<Span>, List<ConnId>)>,
    idle_links: Links,
    /// Whoever `reap` is to look at; may name a connection twice.
    closing: Vec<ConnId>,
    inlet: Inlet,
    core: Core,
}

impl<S: Stream> Peers for Slab<Connection<S>> {
    fn peer(&self, conn: ConnId) -> String {
        let peer = self.get(conn.index()).and_then(|conn| conn.stream.peer().ok());
        peer.unwrap_or_else(|| GONE.into())
    }
}

impl<S: Stream> Connections<S> {
    /// No connections yet. `epoch` is the time of day at [`Time::START`], since 1970.
    pub fn new(mut services: Services, epoch: Span) -> Self {
        Connections {
            slab: Slab::new(),
            ready: List::default(),
            links: Links::default(),
            idle: ByKind::each(|kind| (services.with(kind, |service, _| service.idle_limit()), List::default())),
            idle_links: Links::default(),
            closing: Vec::new(),
            inlet: Inlet::new(services.longest_request()),
            core: Core::new(services, epoch),
        }
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// How many connections of one kind there are.
    pub fn open_of(&mut self, kind: Kind) -> u64 {
        self.core.services.traffic(kind).open
    }

    /// Whether there are none, and nothing is left of any.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty() && self.ready.is_empty() && self.closing.is_empty() && self.core.is_empty()
    }

    /// Takes a new connection in.
    pub fn open(&mut self, stream: S, kind: Kind, now: Time) -> ConnId {
        let id = ConnId::from_index(self.slab.insert(Connection::new(stream, kind, now)));
        self.note_activity(id, now);
        let traffic = self.core.services.traffic(kind);
        traffic.open += 1;
        traffic.opened += 1;
        debug!("{id} opened");
        id
    }

    /// Closes the longest idle connection of one kind, and tells whether there was any that may not be idle for ever.
    pub fn make_room(&mut self, kind: Kind, now: Time) -> bool {
        let longest = self.idle[kind].1.front();
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
    pub fn count_error(&mut self, kind: Kind) {
        self.core.services.traffic(kind).connect_errors += 1;
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
        let left_over = !self.ready.is_empty() || self.core.output.is_dirty() || !self.closing.is_empty();
        let idle_until = Kind::ALL.into_iter().filter_map(|kind| self.longest_idle(kind)).map(|(_, until)| until);
        if left_over { Some(Time::START) } else { self.core.wheel.next().into_iter().chain(idle_until).min() }
    }

    /// Which connection of a kind is the next to have been idle for too long, and when.
    fn longest_idle(&self, kind: Kind) -> Option<(ConnId, Time)> {
        let (limit, idle) = &self.idle[kind];
        let id = idle.front()?;
        Some((id, self.slab[id.index()].active + (*limit)?))
    }

    /// Begins anew to reckon how long a connection is idle.
    fn note_activity(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        let (limit, idle) = &mut self.idle[conn.kind];
        if limit.is_some() {
            conn.active = now;
            if self.idle_links.is_linked(id) {
                idle.remove(&mut self.idle_links, id);
            }
            idle.push_back(&mut self.idle_links, id);
        }
    }

    /// What the loop notes of itself.
    pub fn pulse(&mut self) -> &mut Pulse {
        &mut self.core.pulse
    }

    /// Gives each ready connection one turn: one read, and a bounded number of requests. Those for whom the tick has no
    /// time left are the first of the next one. Tells when the last turn began.
    pub fn serve(&mut self, clock: impl Fn() -> Time) -> Option<Time> {
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
                self.read_to_the_end(id, &clock);
            } else if self.core.output.is_full(id) {
                self.park(id, clock());
            } else {
                let now = self.serve_one(id, &clock);
                end.get_or_insert(now + SERVING_TIME);
                last = Some(now);
            }
        }
        last
    }

    /// Fires every timer that is due.
    pub fn expire(&mut self, now: Time) {
        while let Some(Due { owner, key }) = self.core.wheel.expire(now) {
            match Kind::of(owner) {
                Some(kind) => self.core.call(kind, now, &self.slab, |service, context| service.expire(key, context)),
                None => self.end_patience(ConnId::from_index(key), now),
            }
        }
        for kind in Kind::ALL {
            while let Some((id, _)) = self.longest_idle(kind).filter(|(_, until)| *until <= now) {
                self.break_off(id, &"it was idle for too long", now);
            }
        }
    }

    /// Writes to each connection that has news, once; and to those who get what others held that turn out to be gone.
    pub fn flush(&mut self, now: Time) {
        loop {
            while let Some(id) = self.core.output.pop_dirty() {
                self.write_to(id, now);
            }
            let Some(id) = self.core.output.pop_overflown() else { break };
            self.break_off(id, &"it does not read what it is told", now);
        }
    }

    /// The only place where connections are dropped: those of which their services know nothing any more, once they have
    /// been sent everything.
    pub fn reap(&mut self, now: Time) {
        for n in 0..self.closing.len() {
            let id = self.closing[n];
            let Some(conn) = self.slab.get_mut(id.index()) else { continue };
            let drained = self.core.output.unsent(id).is_empty();
            if conn.broken || drained && (conn.ended || conn.stream.finish().is_err()) {
                self.drop(id);
            } else {
                self.linger(id, now);
            }
        }
        self.closing.clear();
    }

    /// Gives a connection its turn, and tells when that began to be served.
    fn serve_one(&mut self, id: ConnId, clock: &impl Fn() -> Time) -> Time {
        let conn = &mut self.slab[id.index()];
        let longest = self.core.services.with(conn.kind, |service, _| service.longest_request());
        self.inlet.load(&mut conn.unserved, longest);
        let kept = self.inlet.bytes().len();
        let seen = if conn.partial { kept } else { 0 };
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
        let kind = conn.kind;
        self.core.services.traffic(kind).received_bytes += (input.len() - kept) as u64;
        let served = self.core.call(kind, now, &self.slab, |service, context| {
            let input = Input { bytes: input, seen };
            service.serve(id, input, context)
        });
        let conn = &mut self.slab[id.index()];
        conn.partial = served.then == Then::Read;
        if served.consumed > 0 {
            self.note_activity(id, now);
        }
        let conn = &mut self.slab[id.index()];
        conn.unserved = self.inlet.unserved(served.consumed);
        if served.then == Then::Serve && !conn.unserved.is_empty() && !self.core.output.is_full(id) {
            self.core.pulse.count_spent(Budget::Requests);
        }
        let is_over = conn.ended && served.then == Then::Read;
        if let Err(error) = received {
            self.break_off(id, &error, now);
        } else if is_over || served.then == Then::Close {
            self.close(id, now);
        } else if conn.readable || served.then == Then::Serve {
            self.make_ready(id);
        }
        now
    }

    /// What a peer still sends after it was told that the connection ends is of no interest, except for its end. If it were
    /// left unread, closing the socket would reset the connection and the last replies might be lost.
    fn read_to_the_end(&mut self, id: ConnId, clock: &impl Fn() -> Time) {
        let conn = &mut self.slab[id.index()];
        self.inlet.load(&mut Vec::new(), 0);
        match conn.read(&mut self.inlet) {
            Ok(()) if conn.ended => self.closing.push(id),
            Ok(()) if conn.readable => self.make_ready(id),
            Ok(()) => {}
            Err(error) => self.break_off(id, &error, clock()),
        }
    }

    fn write_to(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        if conn.blocked || conn.broken {
            return;
        }
        let unsent = self.core.output.unsent(id);
        match conn.stream.write(unsent) {
            Ok(len) => {
                conn.blocked = len < unsent.len();
                self.core.services.traffic(conn.kind).sent_bytes += len as u64;
                self.core.output.consume(id, len);
                if let Stage::Open | Stage::Leaving { .. } = conn.stage {
                    self.note_activity(id, now);
                }
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
            conn.stage = Stage::Leaving { patience: self.core.wheel.of(LINGERING).arm(now + LINGER, id) };
        }
    }

    fn make_ready(&mut self, id: ConnId) {
        if !self.slab[id.index()].parked && !self.links.is_linked(id) {
            self.ready.push_back(&mut self.links, id);
        }
    }

    /// Some of the connection's output was sent: a reason to serve it again, or to be done with it.
    fn note_progress(&mut self, id: ConnId) {
        let conn = &mut self.slab[id.index()];
        if let Stage::Closed | Stage::Lingering { .. } = conn.stage {
            if !conn.blocked {
                self.closing.push(id);
            }
        } else if !self.core.output.is_full(id) {
            if let Stage::Leaving { patience } = std::mem::replace(&mut conn.stage, Stage::Open) {
                self.core.wheel.of(LINGERING).cancel(patience);
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
        if self.idle_links.is_linked(id) {
            self.idle[conn.kind].1.remove(&mut self.idle_links, id);
        }
        match std::mem::replace(&mut conn.stage, Stage::Closed) {
            Stage::Open => {}
            Stage::Leaving { patience } => self.core.wheel.of(LINGERING).cancel(patience),
            closed => return conn.stage = closed,
        }
        let kind = conn.kind;
        self.core.call(kind, now, &self.slab, |service, context| service.close(id, context));
    }

    fn linger(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        if let Stage::Closed = conn.stage {
            conn.parked = false;
            conn.stage = Stage::Lingering { patience: self.core.wheel.of(LINGERING).arm(now + LINGER, id) };
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
            self.core.wheel.of(LINGERING).cancel(patience);
        }
        let lost = self.core.output.discard(id);
        let traffic = self.core.services.traffic(conn.kind);
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
            let waits_for_turn = self.links.is_linked(id) || conn.parked || self.closing.contains(&id);
            assert!(waits_for_turn || !conn.readable, "{id} may have something to read, and nobody will look");
            let can_drain = self.core.output.unsent(id).is_empty() || conn.blocked || conn.broken;
            assert!(can_drain || self.core.output.is_dirty(), "{id} has something unsent, and nobody will send it");
        }
        assert!(self.ready.iter(&self.links).all(|id| self.slab.contains(id.index())), "only connections are served");
    }
}
