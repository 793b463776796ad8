//! Comparison of all tables of the loop with the connections, for tests and rehearsals.

use super::{Connections, LOOP};
use crate::connection::{Connection, Phase, Place, Stream};
use poolcounter_core::{ConnId, Id};
use poolcounter_service::contract::Then;

impl<S: Stream> Connections<S> {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        self.dispatch.check();
        self.check_counts();
        self.check_restoring();
        self.slab.iter().for_each(|(index, conn)| self.check_one(ConnId::from_index(index), conn));
        let is_there = |id: ConnId| self.slab.contains(id.index());
        assert!(self.ready.iter().chain(self.showing.iter()).all(is_there), "each connection in the ready list exists");
        let is_ending = |id: ConnId| self.slab.get(id.index()).is_some_and(|conn| !conn.is_open());
        assert!(self.closing.iter().all(is_ending), "each connection in the closing list has ended");
        let has_effects = !self.dispatch.resumed.is_empty() || !self.dispatch.ended.is_empty();
        assert!(!has_effects, "effects of a call are carried out at once");
        assert!(self.dispatch.output.owners().all(is_there), "output belongs to existing connections");
        self.idle.check(|id| self.slab.get(id.index()).filter(|conn| conn.is_served()).map(|conn| conn.service));
        let is_admitted = |conn: &Connection<S>| conn.is_open() && !conn.is_unidentified();
        self.dispatch.access.check_standings(|id| self.slab.get(id.index()).is_some_and(is_admitted));
    }

    fn check_counts(&self) {
        let services = &self.dispatch.services;
        for service in services.ids() {
            let has_place = |conn: &Connection<S>| conn.service == service && conn.place == Place::Open;
            let open = self.slab.iter().filter(|(_, conn)| has_place(conn)).count() as u64;
            assert_eq!(services[service].traffic.open, open, "open connections of {service:?} are counted");
            let is_awaited = |conn: &Connection<S>| conn.service == service && conn.place == Place::Awaited;
            let awaited = self.slab.iter().filter(|(_, conn)| is_awaited(conn)).count() as u64;
            assert_eq!(self.awaited[service], awaited, "connections without a header are counted");
        }
        let refused = self.slab.iter().filter(|(_, conn)| conn.place == Place::Refused).count();
        assert_eq!(self.refused, refused, "refused connections are counted");
        let has_timer = |conn: &&Connection<S>| {
            conn.is_unidentified() || matches!(conn.phase, Phase::HalfClosed { .. } | Phase::Lingering { .. })
        };
        // A parked connection has had its turn, so its proxy has sent its header.
        let timers = self.slab.iter().filter(|(_, conn)| has_timer(conn)).count();
        assert_eq!(self.dispatch.wheel.armed(LOOP), timers, "each timer of the loop is a connection's");
    }

    fn check_one(&self, id: ConnId, conn: &Connection<S>) {
        let waits = conn.parked || matches!(conn.then, Then::Wait | Then::Close) || self.is_held(id);
        let is_ready = if conn.then == Then::Show { self.showing.contains(id) } else { self.ready.contains(id) };
        let waits_for_turn = waits || is_ready || self.closing.contains(id);
        assert!(waits_for_turn || !conn.readable, "{id} may have something to read, and has no turn");
        assert!(conn.then == Then::Show || !self.showing.contains(id), "{id} has a turn of its kind");
        let can_drain = self.dispatch.output.unsent(id).is_empty() || conn.blocked || conn.failed;
        assert!(can_drain || self.dispatch.output.is_dirty(), "{id} has something unsent, and is not to be flushed");
        let is_limited = self.dispatch.services[conn.service].caps.idle.is_some();
        assert_eq!(self.idle.contains(id), is_limited && conn.is_served(), "{id} ends once it was idle for too long");
        let has_ended = matches!(conn.phase, Phase::Closed);
        assert!(!has_ended || self.closing.contains(id), "{id} has ended, and will never be closed");
    }
}
