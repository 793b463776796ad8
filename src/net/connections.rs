//! Every connection, and the phases of the tick that work on them: serve, expire, flush, reap. It knows streams that read
//! and write, but neither sockets nor the clock, so that the simulator runs the very same code.
//!
//! Invariant: a connection with work that no event will announce (bytes not read, requests not served) stands in `ready`,
//! unless it is parked, and then the flush that drains its output puts it there.
//! Invariant: a service knows a connection from its first turn until `reap` closes it, and never after.

use super::connection::{Connection, News, Stage, Stream};
use super::core::Core;
use super::inlet::Inlet;
use crate::id::{ConnId, Id};
use crate::list::{Links, List};
use crate::pulse::{Budget, Pulse};
use crate::service::{GONE, Peers, Then};
use crate::services::{Kind, Services};
use crate::time::{Span, Time};
use crate::wheel::{Due, Owner};
use log::debug;
use slab::Slab;
use std::io::ErrorKind;

mod saved;
pub use saved::rehearse;
pub(super) use saved::{Head, SavedConnection};

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
    pub fn open(&mut self, stream: S, kind: Kind) -> ConnId {
        let id = ConnId::from_index(self.slab.insert(Connection::new(stream, kind)));
        let traffic = self.core.services.traffic(kind);
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
    pub fn abandon(&mut self, id: ConnId) {
        self.break_off(id, &"no event will tell of it");
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

    /// When there is work that no event will announce: at once if some is left over, else when the next timer is due.
    pub fn next_work(&self) -> Option<Time> {
        let left_over = !self.ready.is_empty() || self.core.output.is_dirty() || !self.closing.is_empty();
        if left_over { Some(Time::START) } else { self.core.wheel.next() }
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
                self.read_to_the_end(id);
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
                None => self.end_patience(ConnId::from_index(key)),
            }
        }
    }

    /// Writes to each connection that has news, once.
    pub fn flush(&mut self) {
        while let Some(id) = self.core.output.pop_dirty() {
            let conn = &mut self.slab[id.index()];
            if conn.blocked || conn.broken {
                continue;
            }
            let unsent = self.core.output.unsent(id);
            match conn.stream.write(unsent) {
                Ok(len) => {
                    conn.blocked = len < unsent.len();
                    self.core.services.traffic(conn.kind).sent_bytes += len as u64;
                    self.core.output.consume(id, len);
                    self.note_progress(id);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => conn.blocked = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => self.core.output.touch(id),
                Err(error) => self.break_off(id, &error),
            }
        }
    }

    /// Closes: the only place where services learn that a connection is gone, and where it is dropped. What they then
    /// have to say to others is written in the next tick, which follows at once.
    pub fn reap(&mut self, now: Time) {
        while let Some(id) = self.core.output.pop_overflown() {
            self.break_off(id, &"it does not read what it is told");
        }
        for n in 0..self.closing.len() {
            let id = self.closing[n];
            let Some(conn) = self.slab.get_mut(id.index()) else { continue };
            if let Stage::Open | Stage::Leaving { .. } = conn.stage {
                if let Stage::Leaving { patience } = std::mem::replace(&mut conn.stage, Stage::Closed) {
                    self.core.wheel.of(LINGERING).cancel(patience);
                }
                let kind = conn.kind;
                self.core.call(kind, now, &self.slab, |service, context| service.close(id, context));
            }
            let conn = &mut self.slab[id.index()];
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
        let received = if conn.readable && self.inlet.wants_more() { conn.read(&mut self.inlet) } else { Ok(()) };
        // After the request was received, so that a wait that begins with it cannot end early.
        let now = clock();
        self.core.pulse.count_turn(now);
        if let Err(error) = received {
            self.break_off(id, &error);
            return now;
        }
        let input = self.inlet.bytes();
        let kind = conn.kind;
        self.core.services.traffic(kind).received_bytes += (input.len() - kept) as u64;
        let served = self.core.call(kind, now, &self.slab, |service, context| service.serve(id, input, context));
        let conn = &mut self.slab[id.index()];
        conn.unserved = self.inlet.unserved(served.consumed);
        if served.then == Then::Serve && !conn.unserved.is_empty() && !self.core.output.is_full(id) {
            self.core.pulse.count_spent(Budget::Requests);
        }
        let is_over = conn.ended && served.then == Then::Read;
        if is_over || served.then == Then::Close {
            self.closing.push(id);
        } else if conn.readable || served.then == Then::Serve {
            self.make_ready(id);
        }
        now
    }

    /// What a peer still sends after it was told that the connection ends is of no interest, except for its end. If it were
    /// left unread, closing the socket would reset the connection and the last replies might be lost.
    fn read_to_the_end(&mut self, id: ConnId) {
        let conn = &mut self.slab[id.index()];
        self.inlet.load(&mut Box::default(), 0);
        match conn.read(&mut self.inlet) {
            Ok(()) if conn.ended => self.closing.push(id),
            Ok(()) if conn.readable => self.make_ready(id),
            Ok(()) => {}
            Err(error) => self.break_off(id, &error),
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

    fn break_off(&mut self, id: ConnId, why: &dyn std::fmt::Display) {
        debug!("{id} breaks off: {why}");
        self.slab[id.index()].broken = true;
        self.closing.push(id);
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

    fn end_patience(&mut self, id: ConnId) {
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
        self.break_off(id, &"it took too long to read its last replies");
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
