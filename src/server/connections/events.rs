//! Events of the poll: they mark connections, without reading or writing.

use super::{Connections, enqueue};
use crate::connection::{Readiness, Stream};
use poolcounter_core::{ConnId, Id};

impl<S: Stream> Connections<S> {
    /// Notes an event of the poll, without reading or writing.
    pub fn mark(&mut self, id: ConnId, readiness: Readiness) {
        let Some(conn) = self.slab.get_mut(id.index()) else { return };
        // Unsent output of a connection that is not blocked is flushed in any case.
        if readiness.writable && std::mem::take(&mut conn.blocked) && !self.dispatch.output.unsent(id).is_empty() {
            self.dispatch.output.touch(id);
        }
        if readiness.readable || readiness.hangup {
            conn.readable = true;
            conn.hangup |= readiness.hangup;
            conn.lost |= readiness.lost;
            // A peer that has closed its side without reading is parked again, this time with a timer.
            conn.parked &= !conn.hangup;
            enqueue(conn, id, &mut self.ready, &mut self.showing);
        }
    }

    /// Notes events that came while no process polled, so that their order is lost. Closed connections come first, so
    /// that no request is refused because of their locks.
    pub fn mark_unordered(&mut self, events: Vec<(ConnId, Readiness)>) {
        let ready: Vec<ConnId> = std::iter::from_fn(|| self.ready.pop_front()).collect();
        let (left, others): (Vec<_>, Vec<_>) = events.into_iter().partition(|(_, readiness)| readiness.hangup);
        left.into_iter().for_each(|(id, readiness)| self.mark(id, readiness));
        ready.into_iter().for_each(|id| self.make_ready(id));
        others.into_iter().for_each(|(id, readiness)| self.mark(id, readiness));
    }
}
