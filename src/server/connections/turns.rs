//! Turns of the connections: one read, and a limited number of requests.

use super::{Connections, LINGER, LOOP};
use crate::connection::{Phase, Stream};
use poolcounter_core::{ConnId, Id, Time};
use poolcounter_service::contract::{Input, Served, Then};
use poolcounter_service::report::Budget;

impl<S: Stream> Connections<S> {
    /// Gives a connection its turn, and returns the time at which its service served it; `None` if it did not.
    #[inline]
    pub(super) fn turn(&mut self, id: ConnId, clock: &impl Fn() -> Time) -> Option<Time> {
        let conn = &mut self.slab[id.index()];
        if conn.failed {
            return None;
        } else if let Phase::Closed | Phase::Lingering { .. } = conn.phase {
            self.discard_input(id, clock);
        } else if conn.is_unidentified() {
            self.read_header(id, clock);
        } else if !self.restoring.is_empty() && self.hold_turn(id) {
            return None;
        } else if let Then::Wait | Then::Close = self.slab[id.index()].then {
            self.check_unserved(id, clock());
        } else if self.dispatch.output.is_full(id) {
            self.park(id, clock());
        } else {
            return Some(self.serve_one(id, clock));
        }
        None
    }

    /// Lets the service of a connection serve it, and returns the time of that.
    fn serve_one(&mut self, id: ConnId, clock: &impl Fn() -> Time) -> Time {
        let conn = &mut self.slab[id.index()];
        let service = conn.service;
        self.read_buffer.load(&mut conn.unserved, self.dispatch.services[service].caps.request_bytes);
        let kept = self.read_buffer.len();
        let seen = if conn.then == Then::Read { kept } else { 0 };
        let received =
            if conn.readable && self.read_buffer.wants_more() { conn.read(&mut self.read_buffer) } else { Ok(()) };
        // The time is read after the request was received, so that a wait that begins with it cannot end early.
        let now = clock();
        self.dispatch.loop_stats.count_turn(now);
        let input = self.read_buffer.bytes();
        if let Err(error) = &received
            && input.len() == kept
        {
            self.fail(id, error, now);
            return now;
        }
        self.dispatch.services[service].traffic.received_bytes += (input.len() - kept) as u64;
        let input = Input { bytes: input, seen, may_show: conn.then == Then::Show };
        self.dispatch.output.begin_turn(id);
        let served = self.dispatch.call(service, now, &self.slab, |service, context| service.serve(id, input, context));
        if served.consumed > 0 {
            self.idle.note_activity(id, service, now);
        }
        let conn = &mut self.slab[id.index()];
        conn.then = served.then;
        conn.unserved = self.read_buffer.unserved(served.consumed);
        match received {
            // The usual case: it waits for its next request.
            Ok(()) if served.then == Then::Read && !conn.readable && !conn.eof => {}
            Ok(()) => self.after_serve(id, served, now),
            Err(error) => self.fail(id, &error, now),
        }
        if self.dispatch.output.end_turn(id) {
            self.write_to(id, now);
            self.dispatch.output.leave_turn(id);
        }
        self.note_usage(id, now);
        now
    }

    /// Decides the next step of a connection after it was served.
    fn after_serve(&mut self, id: ConnId, served: Served, now: Time) {
        let conn = &mut self.slab[id.index()];
        let is_over = served.then == Then::Close || served.then == Then::Read && conn.eof;
        if is_over {
            conn.then = Then::Close;
            self.check_unserved(id, now);
        } else if served.then == Then::Wait {
            if conn.hangup || conn.eof {
                self.check_unserved(id, now);
            }
        } else if conn.readable || matches!(served.then, Then::Serve | Then::Show) {
            let is_full = self.dispatch.output.is_full(id);
            if served.then == Then::Serve && conn.unserved.is_some() && !is_full {
                self.dispatch.loop_stats.count_spent(Budget::Requests);
            }
            self.make_ready(id);
        }
    }

    /// Checks a connection whose service waits or is done with it: it is closed if it failed or is drained, and a
    /// waiting service is notified of a hangup.
    pub(super) fn check_unserved(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        if conn.lost {
            self.fail(id, &"its peer has disconnected", now);
        } else if conn.then == Then::Close {
            if !self.dispatch.output.is_held_for(id) {
                self.close(id, now);
            }
        } else if conn.hangup || conn.eof {
            let service = conn.service;
            self.dispatch.call(service, now, &self.slab, |service, context| service.hangup(id, context));
        }
    }

    /// Reads and discards the input on a connection that is being closed, up to its end of file. If input were left
    /// unread, closing the socket would reset the connection and the last replies might be lost.
    fn discard_input(&mut self, id: ConnId, clock: &impl Fn() -> Time) {
        let conn = &mut self.slab[id.index()];
        self.read_buffer.load(&mut None, 0);
        match conn.read(&mut self.read_buffer) {
            Ok(()) if conn.eof => self.closing.push_back(id),
            Ok(()) if conn.readable => self.make_ready(id),
            Ok(()) => {}
            Err(error) => self.fail(id, &error, clock()),
        }
    }

    /// Parks a connection that does not read its replies: it is not served until it does. If the peer has closed its
    /// side, too, it may have died, so a timer releases its locks.
    fn park(&mut self, id: ConnId, now: Time) {
        self.dispatch.loop_stats.count_spent(Budget::Output);
        let conn = &mut self.slab[id.index()];
        conn.parked = true;
        if conn.hangup && matches!(conn.phase, Phase::Open) {
            conn.phase = Phase::HalfClosed { linger_timer: self.dispatch.wheel.of(LOOP).arm(now + LINGER, id) };
        }
    }
}
