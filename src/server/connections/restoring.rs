//! Services that read the state of the process before in slices. Their connections wait meanwhile, and those of the others
//! are served.

use super::{Connections, Dispatch};
use crate::connection::Stream;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::Time;
use poolcounter_service::container::ServiceId;

/// Service that has not read all.
pub(super) struct Restoring {
    service: ServiceId,
    /// Connections that would have had a turn.
    held: Vec<ConnId>,
    /// Connections that have ended, and are not closed for the service.
    ended: Vec<ConnId>,
}

impl<S: Stream> Connections<S> {
    /// Notes which services have not read all, after the first slice of each.
    pub(super) fn begin_restoring(&mut self) {
        let services = &self.dispatch.services;
        let left = services.ids().filter(|id| services[*id].is_restoring);
        self.restoring = left.map(|service| Restoring { service, held: Vec::new(), ended: Vec::new() }).collect();
    }

    /// Puts off the turn of a connection if its service has not read all. Returns true if so.
    pub(super) fn hold_turn(&mut self, id: ConnId) -> bool {
        let service = self.slab[id.index()].service;
        let restoring = self.restoring.iter_mut().find(|restoring| restoring.service == service);
        restoring.map(|restoring| restoring.held.push(id)).is_some()
    }

    /// Puts off the end of a connection for its service if that has not read all. Returns true if so.
    pub(super) fn hold_end(&mut self, id: ConnId) -> bool {
        let service = self.slab[id.index()].service;
        let restoring = self.restoring.iter_mut().find(|restoring| restoring.service == service);
        restoring.map(|restoring| restoring.ended.push(id)).is_some()
    }

    /// Gives each of these services a slice.
    pub(super) fn continue_restoring(&mut self, now: Time) {
        for n in 0..self.restoring.len() {
            self.dispatch.restore_more(self.restoring[n].service, now, &self.slab);
        }
        self.end_restoring(now);
    }

    /// Has these services read all that is left.
    pub(super) fn restore_rest(&mut self, now: Time) {
        for n in 0..self.restoring.len() {
            self.dispatch.restore_rest(self.restoring[n].service, now, &self.slab);
        }
        self.end_restoring(now);
    }

    /// Serves the connections of the services that have read all.
    fn end_restoring(&mut self, now: Time) {
        let is_over = |restoring: &mut Restoring| !self.dispatch.services[restoring.service].is_restoring;
        let over: Vec<Restoring> = self.restoring.extract_if(.., is_over).collect();
        for Restoring { service, held, ended } in over {
            self.count_holdings(service);
            for id in ended {
                self.dispatch.call(service, now, &self.slab, |service, context| service.close(id, context));
            }
            self.configure_one(service, now);
            // A connection may have ended while it was held.
            for id in held {
                if self.slab.contains(id.index()) {
                    self.make_ready(id);
                }
            }
            self.resume(now);
        }
    }

    /// Notes what the connections of a service hold for the rules of access.
    fn count_holdings(&mut self, service: ServiceId) {
        let Dispatch { access, services, .. } = &mut self.dispatch;
        if access.counts_holds() {
            let state = &services[service].service;
            let of_service = self.slab.iter().filter(|(_, conn)| conn.service == service && conn.is_open());
            let ids = of_service.map(|(index, _)| ConnId::from_index(index));
            ids.for_each(|id| access.note_holds(id, state.usage_of(id)));
            state.leases_of_rules().iter().for_each(|(rule, leases)| access.note_leases(rule, *leases));
        }
    }
}
