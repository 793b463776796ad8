//! The tick: the phases in which the loop works, in their order. The server, the simulator and the test of allocations run this
//! very function.

use super::{Connections, LINGER, LOOP};
use crate::id::{ConnId, Id, ServiceId};
use crate::net::connection::{Stage, Stream};
use crate::pulse::Budget;
use crate::service::{Input, Served, Then};
use crate::time::{Span, Time};
use std::io::{self, ErrorKind};

/// How long a tick serves before it looks after timers and output, however many clients pipeline.
const SERVING_TIME: Span = Span::from_millis(10);
/// How many timers fire in a tick, how many connections are written to, and how many dropped: some milliseconds of each, so that
/// a crowd that is woken together does not keep others waiting.
const TIMERS_PER_TICK: usize = 4096;
const WRITES_PER_TICK: usize = 1024;
const ENDS_PER_TICK: usize = 1024;
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

impl<S: Stream> Connections<S> {
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

    /// Tells the services whose stores have finished something.
    fn complete(&mut self, clock: &impl Fn() -> Time) {
        while let Some(service) = self.completed.pop() {
            self.core.call(service, clock(), &self.slab, |service, context| service.completed(context));
        }
        self.resume();
    }

    /// Gives each ready connection one turn: one read, and a bounded number of requests. Those for whom the tick has no
    /// time left are the first of the next one. Tells when the last turn began.
    pub(super) fn serve(&mut self, clock: &impl Fn() -> Time) -> Option<Time> {
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
        while let Some(id) = self.idle.overdue(now) {
            self.break_off(id, &"it was idle for too long", now);
        }
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
    pub(super) fn flush(&mut self, now: Time) {
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
        self.core.services[service].traffic.received_bytes += (input.len() - kept) as u64;
        let input = Input { bytes: input, seen };
        let served = self.core.call(service, now, &self.slab, |service, context| service.serve(id, input, context));
        if served.consumed > 0 {
            self.idle.note_activity(id, service, now);
        }
        let conn = &mut self.slab[id.index()];
        conn.partial = served.then == Then::Read;
        conn.unserved = self.inlet.unserved(served.consumed);
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
        if !self.core.resumed.is_empty() {
            self.resume_all();
        }
    }

    fn resume_all(&mut self) {
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
        self.inlet.load(&mut Vec::new(), 0);
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
                if let Stage::Open | Stage::Leaving { .. } = conn.stage {
                    self.idle.note_activity(id, conn.service, now);
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
            conn.stage = Stage::Leaving { patience: self.core.wheel.of(LOOP).arm(now + LINGER, id) };
        }
    }
}
