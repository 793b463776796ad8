//! Rest of the services before an upgrade: work under way is finished, and no other work begins.

use super::Connections;
use crate::connection::{Connection, Stream};
use poolcounter_core::{ConnId, Id, Time};
use poolcounter_service::contract::Then;

impl<S: Stream> Connections<S> {
    /// Stops serving connections, or starts it again.
    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Brings the services to rest for an upgrade, and returns whether they are: then no connection is served any more.
    /// Until then only requests that would need a commit wait.
    pub fn come_to_rest(&mut self, now: Time) -> bool {
        self.settle(true, now);
        if !self.dispatch.services.is_settled() || self.dispatch.output.is_held() {
            return false;
        }
        self.quiesce(now);
        self.is_paused = self.is_quiet();
        self.is_paused
    }

    /// Serves all connections again, after an upgrade was given up.
    pub fn go_on(&mut self, now: Time) {
        self.is_paused = false;
        self.settle(false, now);
    }

    fn settle(&mut self, settles: bool, now: Time) {
        self.call_all(now, |service, context| service.settle(settles, context));
        self.commit(now);
        self.resume(now);
    }

    /// Pauses serving, and makes the services finish and commit work that an upgrade could not wait for.
    pub fn quiesce(&mut self, now: Time) {
        self.is_paused = true;
        self.restore_rest(now);
        self.end_drained(now);
        self.call_all(now, |service, context| service.quiesce(context));
        // These changes need not wait for a tick, which nothing may start.
        self.commit(now);
        self.resume(now);
    }

    /// Ends the connections that wait only for a flush to end: a handover cannot tell them from open connections.
    fn end_drained(&mut self, now: Time) {
        let is_drained = |id: &ConnId, conn: &Connection<S>| {
            conn.then == Then::Close && conn.is_open() && !self.dispatch.output.is_held_for(*id)
        };
        let all = self.slab.iter().map(|(index, conn)| (ConnId::from_index(index), conn));
        let drained: Vec<ConnId> = all.filter(|(id, conn)| is_drained(id, conn)).map(|(id, _)| id).collect();
        drained.into_iter().for_each(|id| self.close(id, now));
    }

    /// Returns true if nothing is under way that a successor could not continue: no call, no end of a connection.
    pub fn is_quiet(&self) -> bool {
        let is_ending = self.slab.iter().any(|(_, conn)| conn.then == Then::Close && conn.is_open());
        self.dispatch.services.is_quiet() && !self.dispatch.output.is_held() && !is_ending
    }
}
