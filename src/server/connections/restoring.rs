//! Services that read the state of the process before in slices. Their connections wait meanwhile; other connections
//! are served.

use super::{Connections, Dispatch};
use crate::connection::Stream;
use poolcounter_core::{ConnId, Id, Queue, Span, Time};
use poolcounter_service::container::ServiceId;

/// Time after which the timers of such a service may be due: usually it has read all by then.
const READING_TIME: Span = Span::from_millis(500);

/// Service that has not read all.
pub(super) struct Restoring {
    service: ServiceId,
    /// Earliest deadline of timers that it arms. A timer that is due before all is read makes it read the rest at once.
    timers_from: Time,
    /// Connections that would have had a turn.
    held: Queue<ConnId>,
    /// Connections that have ended, and are not closed for the service.
    ended: Vec<ConnId>,
}

impl<S: Stream> Connections<S> {
    /// Notes which services have not read all, after the first slice of each.
    pub(super) fn begin_restoring(&mut self, now: Time) {
        let (services, timers_from) = (&self.dispatch.services, now + READING_TIME);
        let left = services.ids().filter(|id| services[*id].is_restoring);
        let begin = |service| Restoring { service, timers_from, held: Queue::default(), ended: Vec::new() };
        self.restoring = left.map(begin).collect();
    }

    /// Puts off the turn of a connection if its service has not read all. Returns true if so.
    pub(super) fn hold_turn(&mut self, id: ConnId) -> bool {
        let service = self.slab[id.index()].service;
        let restoring = self.restoring.iter_mut().find(|restoring| restoring.service == service);
        restoring.map(|restoring| restoring.held.push_back(id)).is_some()
    }

    /// Puts off the end of a connection for its service if that has not read all. Returns true if so.
    pub(super) fn hold_end(&mut self, id: ConnId) -> bool {
        let service = self.slab[id.index()].service;
        let restoring = self.restoring.iter_mut().find(|restoring| restoring.service == service);
        let Some(restoring) = restoring else { return false };
        restoring.held.remove(id);
        restoring.ended.push(id);
        true
    }

    /// Returns true if the turn of a connection is put off.
    pub(super) fn is_held(&self, id: ConnId) -> bool {
        self.restoring.iter().any(|restoring| restoring.held.contains(id))
    }

    /// Checks that each waiting connection exists, and that its service is restored.
    pub(super) fn check_restoring(&self) {
        for Restoring { service, held, ended, .. } in &self.restoring {
            let is_restoring = self.dispatch.services[*service].is_restoring;
            assert!(is_restoring, "only a service that is restored has waiting connections");
            let conns = held.iter().map(|id| (id, true)).chain(ended.iter().map(|id| (*id, false)));
            for (id, is_open) in conns {
                let conn = self.slab.get(id.index());
                let is_right = conn.is_some_and(|conn| conn.service == *service && conn.is_open() == is_open);
                assert!(is_right, "{id} waits for the service that restores it");
            }
        }
    }

    /// Gives each of these services a slice.
    pub(super) fn continue_restoring(&mut self, now: Time) {
        for n in 0..self.restoring.len() {
            let Restoring { service, timers_from, .. } = self.restoring[n];
            self.dispatch.wheel.arm_from(timers_from);
            self.dispatch.restore_more(service, now, &self.slab);
            self.dispatch.wheel.arm_from(Time::START);
        }
        self.end_restoring(now);
    }

    /// Lets these services read all that is left.
    pub(super) fn restore_rest(&mut self, now: Time) {
        for n in 0..self.restoring.len() {
            self.dispatch.restore_rest(self.restoring[n].service, now, &self.slab);
        }
        self.end_restoring(now);
    }

    /// Serves the connections of the services that have read all.
    fn end_restoring(&mut self, now: Time) {
        if self.dispatch.unreadable.is_some() {
            // The tick fails, and no service is called with a part of its state.
            return;
        }
        let is_over = |restoring: &mut Restoring| !self.dispatch.services[restoring.service].is_restoring;
        let over: Vec<Restoring> = self.restoring.extract_if(.., is_over).collect();
        for Restoring { service, held, ended, .. } in over {
            self.count_holdings(service);
            for id in ended {
                self.dispatch.call(service, now, &self.slab, |service, context| service.close(id, context));
            }
            self.configure_one(service, now);
            held.iter().for_each(|id| self.make_ready(id));
            self.resume(now);
        }
    }

    /// Notes what the connections of a service hold for the rules of access.
    fn count_holdings(&mut self, service: ServiceId) {
        let Dispatch { access, services, .. } = &mut self.dispatch;
        if access.counts_holds {
            let state = &services[service].service;
            let of_service = self.slab.iter().filter(|(_, conn)| conn.service == service && conn.is_open());
            let ids = of_service.map(|(index, _)| ConnId::from_index(index));
            ids.for_each(|id| access.note_holds(id, state.usage_of(id)));
            state.leases_of_rules().iter().for_each(|(rule, leases)| access.note_leases(rule, *leases));
        }
    }
}
