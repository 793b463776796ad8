//! Events of the poll: they mark connections, and nothing is read or written yet.

use super::Connections;
use crate::connection::{Readiness, Stream};
use poolcounter_core::id::{ConnId, Id};

impl<S: Stream> Connections<S> {
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
        let ready: Vec<ConnId> = std::iter::from_fn(|| self.ready.pop_front()).collect();
        let (left, others): (Vec<_>, Vec<_>) = events.into_iter().partition(|(_, readiness)| readiness.hangup);
        left.into_iter().for_each(|(id, readiness)| self.mark(id, readiness));
        ready.into_iter().for_each(|id| self.make_ready(id));
        others.into_iter().for_each(|(id, readiness)| self.mark(id, readiness));
    }
}
