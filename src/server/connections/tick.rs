//! The tick: the phases of the loop, in their order. The server, the simulator and the test of allocations share it.

use super::{Connections, Dispatch, LOOP};
use crate::connection::{Phase, Stream};
use poolcounter_core::{ConnId, Id, Span, Time};
use poolcounter_service::container::{Entry, ServiceId};
use poolcounter_service::contract::Then;
use poolcounter_service::output::Unsent;
use poolcounter_service::report::Budget;
use std::cell::Cell;
use std::io::{self, ErrorKind};

/// Time for which a tick serves before timers and output, at any number of pipelining clients.
const SERVE_TIME: Span = Span::from_millis(2);
/// Most timers fired, connections written to, and connections dropped in a tick: about a millisecond of each.
const TIMERS_PER_TICK: usize = 1024;
const WRITES_PER_TICK: usize = 256;
const REAPS_PER_TICK: usize = 64;

/// Surroundings of the connections: the system with its sockets and its clock, or a test.
pub trait Host {
    /// Stream of a connection.
    type Stream: Stream;

    /// Returns the connections.
    fn connections(&mut self) -> &mut Connections<Self::Stream>;

    /// Returns a function that returns the time.
    fn clock(&self) -> impl Fn() -> Time + use<Self>;

    /// Returns a function that returns the time of day at [`Time::START`], by the clock as it is set now; None for that
    /// of the start.
    fn wall(&self) -> impl Fn() -> Option<Span> + use<Self> {
        || None
    }

    /// Sleeps from `now` until an event, and marks the connections of the events.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot wait.
    fn wait(&mut self, now: Time) -> io::Result<()>;

    /// Accepts new connections.
    fn accept(&mut self);
}

impl<S: Stream> Connections<S> {
    /// Runs the phases once, on the connections of `host`.
    ///
    /// # Errors
    ///
    /// Fails if the host cannot wait any more, or a service cannot read what the process before has saved.
    pub fn tick<H: Host<Stream = S>>(host: &mut H) -> io::Result<()> {
        let (clock, wall) = (host.clock(), host.wall());
        let now = clock();
        host.connections().loop_stats().end_tick(now);
        host.wait(now)?;
        host.accept();
        let connections = host.connections();
        connections.complete(&clock);
        let served = if connections.is_paused { None } else { connections.serve(&clock) };
        let now = served.unwrap_or_else(&clock);
        connections.loop_stats().begin_tick(now);
        if !connections.is_paused {
            if !connections.restoring.is_empty() {
                connections.continue_restoring(now);
            }
            connections.expire(now);
            if let Some(unreadable) = connections.dispatch.unreadable.take() {
                return Err(io::Error::other(format!("cannot take over: {unreadable}")));
            }
        }
        connections.dispatch.look_at_clock(now, wall);
        connections.commit(now);
        connections.dispatch.look_if_due(now, &connections.slab);
        connections.flush(now);
        connections.resume(now);
        connections.reap(now);
        Ok(())
    }

    /// Calls the services whose stores have finished work.
    fn complete(&mut self, clock: &impl Fn() -> Time) {
        if self.completed.is_empty() {
            return;
        }
        while let Some(service) = self.completed.pop() {
            self.dispatch.call(service, clock(), &self.slab, |service, context| service.completed(context));
        }
        self.resume(clock());
    }

    /// Gives each ready connection one turn: one read, and a limited number of requests. Connections for which the tick
    /// has no time left are the first of the next one. Turns for snapshots follow, at least one. Returns the last time
    /// that was read from the clock: the rest of the tick is not earlier.
    pub(super) fn serve(&mut self, clock: &impl Fn() -> Time) -> Option<Time> {
        let last = Cell::new(None);
        let clock = &|| {
            let now = clock();
            last.set(Some(now));
            now
        };
        let mut end = None;
        for _ in 0..self.ready.len() {
            if end.is_some_and(|end| last.get() > Some(end)) {
                self.dispatch.loop_stats.count_spent(Budget::Serving);
                break;
            }
            let Some(id) = self.ready.pop_front() else { break };
            if let Some(now) = self.turn(id, clock) {
                end.get_or_insert(now + SERVE_TIME);
            }
        }
        for shown in 0..self.showing.len() {
            // A snapshot takes long, so its end is looked at.
            if shown > 0 && end.is_some_and(|end| clock() > end) {
                self.dispatch.loop_stats.count_spent(Budget::Serving);
                break;
            }
            let Some(id) = self.showing.pop_front() else { break };
            if let Some(now) = self.turn(id, clock) {
                end.get_or_insert(now + SERVE_TIME);
            }
        }
        if let Some(last) = last.get() {
            self.resume(last);
        }
        last.get()
    }

    /// Fires the timers that are due.
    fn expire(&mut self, now: Time) {
        if !self.idle.is_empty() {
            self.end_idle(now);
        }
        for _ in 0..TIMERS_PER_TICK {
            let Some(due) = self.dispatch.wheel.expire(now) else {
                if self.dispatch.wheel.has_work() {
                    self.dispatch.loop_stats.count_spent(Budget::Slices);
                }
                return;
            };
            match due.owner {
                LOOP => self.expire_own(due.key(), now),
                owner => {
                    let service = ServiceId::of(owner);
                    if self.dispatch.services[service].is_restoring {
                        // Its timer refers to what it may not have read.
                        self.restore_rest(now);
                    }
                    self.dispatch.call(service, now, &self.slab, |service, context| service.expire(due, context));
                }
            }
        }
        self.dispatch.wheel.end_tick();
        self.dispatch.loop_stats.count_spent(Budget::Timers);
    }

    #[inline(never)]
    fn end_idle(&mut self, now: Time) {
        while let Some(id) = self.idle.overdue(now) {
            self.fail(id, &"it was idle for too long", now);
        }
    }

    /// Commits the changes that the services with a store have collected.
    #[inline]
    pub(super) fn commit(&mut self, now: Time) {
        if self.dispatch.uncommitted != 0 {
            self.dispatch.commit(now, &self.slab);
            self.resume(now);
        }
    }

    /// Writes once to each connection with output, including connections that are granted the locks of a connection
    /// that fails now. Half of the writes of a tick are kept for connections without a request in it.
    #[inline(always)]
    pub(super) fn flush(&mut self, now: Time) {
        for n in 0..WRITES_PER_TICK {
            let output = &mut self.dispatch.output;
            let fresh = if n < WRITES_PER_TICK / 2 { output.pop_fresh() } else { None };
            let Some(id) = fresh.or_else(|| output.pop_oldest()) else { return output.end_tick() };
            self.write_to(id, now);
            self.note_usage(id, now);
        }
        self.dispatch.output.end_tick();
        self.dispatch.loop_stats.count_spent(Budget::Writes);
    }

    /// Drops closed connections that their services have forgotten, once all is sent. No other function does that.
    fn reap(&mut self, now: Time) {
        if self.closing.is_empty() {
            return;
        }
        for _ in 0..REAPS_PER_TICK.min(self.closing.len() as usize) {
            let Some(id) = self.closing.pop_front() else { break };
            let conn = &mut self.slab[id.index()];
            let drained = self.dispatch.output.unsent(id).is_empty();
            if !conn.failed && !(drained && (conn.eof || conn.stream.finish().is_err())) {
                self.linger(id, now);
            } else if self.dispatch.services[conn.service].has_forgotten(id) {
                self.drop(id);
            } else {
                self.closing.push_back(id);
            }
        }
        if !self.closing.is_empty() {
            self.dispatch.loop_stats.count_spent(Budget::Ends);
        }
    }

    /// Resumes, and ends, the connections that their services have resumed and ended.
    #[inline]
    pub(super) fn resume(&mut self, now: Time) {
        if !self.dispatch.resumed.is_empty() {
            self.resume_all();
        }
        if !self.dispatch.ended.is_empty() {
            self.end_all(now);
        }
    }

    fn end_all(&mut self, now: Time) {
        while let Some(id) = self.dispatch.ended.pop() {
            // It may be closed by now.
            if let Some(conn) = self.slab.get_mut(id.index()).filter(|conn| conn.is_open()) {
                conn.then = Then::Close;
                self.check_unserved(id, now);
            }
        }
    }

    fn resume_all(&mut self) {
        let mut resumed = std::mem::take(&mut self.dispatch.resumed);
        for id in resumed.drain(..) {
            // It may be closed by now.
            if let Some(conn) = self.slab.get_mut(id.index()).filter(|conn| conn.is_open()) {
                if conn.then == Then::Wait {
                    conn.then = Then::Serve;
                }
                self.make_ready(id);
            }
        }
        self.dispatch.resumed = resumed;
    }

    /// Writes once to a connection.
    pub(super) fn write_to(&mut self, id: ConnId, now: Time) {
        if self.slab.get(id.index()).is_some_and(|conn| conn.then == Then::Close) {
            self.close_drained(id, now);
        }
        let Some(conn) = self.slab.get_mut(id.index()) else {
            // A service has replied to a connection that has ended.
            self.dispatch.output.discard(id);
            return;
        };
        let Dispatch { output, services, .. } = &mut self.dispatch;
        let Some(unsent) = output.unsent_of(id).filter(|_| !conn.failed) else { return };
        let Entry { caps, traffic, .. } = &mut services[conn.service];
        if unsent.len > caps.output_bytes {
            return self.fail(id, &"it does not read its replies", now);
        }
        if conn.blocked {
            return;
        }
        // All of the output may wait for a commit.
        let written = if unsent.bytes.is_empty() { Ok(0) } else { conn.stream.write(unsent.bytes) };
        match written {
            Ok(len) => {
                conn.blocked = len < unsent.bytes.len();
                traffic.sent_bytes += len as u64;
                output.consume(id, len);
                if conn.is_served() {
                    self.idle.note_activity(id, conn.service, now);
                }
                if conn.parked || !matches!(conn.phase, Phase::Open) {
                    self.after_write(id);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => conn.blocked = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => output.touch(id),
            Err(error) => self.fail(id, &error, now),
        }
    }

    /// Closes a connection that its service is done with, if all of its output may be sent, and is not too much.
    #[cold]
    fn close_drained(&mut self, id: ConnId, now: Time) {
        let conn = &self.slab[id.index()];
        let most = self.dispatch.services[conn.service].caps.output_bytes;
        let is_sendable = |unsent: Unsent<'_>| !unsent.is_held && unsent.len <= most;
        if !conn.failed && conn.is_open() && self.dispatch.output.unsent_of(id).is_none_or(is_sendable) {
            self.close(id, now);
        }
    }
}
