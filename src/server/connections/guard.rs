//! Rules of access at the begin of connections, and at their use of resources.

use super::{Connections, Dispatch, LINGER, LOOP};
use crate::connection::{Connection, Phase, Place, Stream};
use log::warn;
use poolcounter_core::{ConnId, Id, Time};
use poolcounter_service::access::{Access, Denial, Rule};
use poolcounter_service::container::{PerService, ServiceId};
use poolcounter_service::contract::{Peers as _, Service};
use poolcounter_service::output::Output;
use std::fmt;

/// Most refused connections that are kept for a while, all services together, so that the end of the connection does
/// not overtake the refusal. Few, as each takes a descriptor; more are closed at once.
const MOST_REFUSED: usize = 64;

impl<S: Stream> Connections<S> {
    /// Sets the most connections of each service.
    pub fn limit(&mut self, places: PerService<u64>) {
        self.places = places;
    }

    /// Sets the rules of access, with connections open or not; None if they could not be read. A proxy's client is
    /// checked once the proxy has sent its header.
    pub fn guard(&mut self, rules: Option<Vec<Rule>>) {
        self.dispatch.access = Access::after(&std::mem::take(&mut self.denied), rules);
        if self.dispatch.access.is_on {
            for (index, conn) in self.slab.iter().filter(|(_, conn)| conn.is_open()) {
                let Some(identity) = conn.identity() else { continue };
                let id = ConnId::from_index(index);
                let Dispatch { access, services, output, .. } = &mut self.dispatch;
                access.restore(id, &identity);
                let service = &services[conn.service].service;
                access.note_holds(id, service.usage_of(id));
                // A connection beyond the limit of its rule ends when another one of the rule needs memory.
                access.note_bytes(id, bytes_of(id, conn, &**service, output));
            }
            for (rule, leases) in self.dispatch.services.leases_of_rules() {
                self.dispatch.access.note_leases(&rule, leases);
            }
        }
    }

    /// Drops waits and providers of a service that no rule includes any more, unless the rules could not be read.
    pub(super) fn recheck(&mut self, service: ServiceId, now: Time) {
        if !self.dispatch.access.are_known() {
            return;
        }
        let of_service = self.slab.iter().filter(|(_, conn)| conn.service == service && conn.is_open());
        let known = of_service.filter(|(_, conn)| conn.identity().is_some());
        let known: Vec<_> = known.map(|(index, _)| ConnId::from_index(index)).collect();
        for id in known {
            self.dispatch.call(service, now, &self.slab, |service, context| service.recheck(id, context));
        }
    }

    /// Opens an accepted connection, if a rule admits it and its service has a place for it. With `is_proxied` that is
    /// checked once the proxy has sent its header. Returns the connection to be polled; it may be a refused connection
    /// whose client may read the refusal.
    pub fn admit(&mut self, stream: S, service: ServiceId, is_proxied: bool, now: Time) -> Option<ConnId> {
        if is_proxied {
            return self.admit_proxy(stream, service, now);
        }
        let conn = Connection::new(stream, service);
        match self.dispatch.access.rule_of_new(service, conn.identity().as_ref()) {
            Err(denial) => {
                let id = ConnId::from_index(self.slab.insert(conn));
                self.refuse(id, denial, now).then_some(id)
            }
            Ok(rule) if self.has_place(service, now) => {
                let id = self.open(conn.stream, service, now);
                self.dispatch.access.enter(id, rule);
                Some(id)
            }
            Ok(_) => None,
        }
    }

    /// Opens a connection of a proxy. A service has at most as many connections without a header as open connections.
    fn admit_proxy(&mut self, stream: S, service: ServiceId, now: Time) -> Option<ConnId> {
        if self.awaited[service] >= self.places[service] {
            self.note_full(service, now);
            return None;
        }
        let id = ConnId::from_index(self.slab.insert(Connection::new(stream, service)));
        self.await_header(id, now);
        Some(id)
    }

    /// Opens a connection whose proxy has sent its header, as [`Connections::admit`] does.
    pub(super) fn admit_client(&mut self, id: ConnId, now: Time) {
        let conn = &mut self.slab[id.index()];
        let service = conn.service;
        match self.dispatch.access.rule_of_new(service, conn.identity().as_ref()) {
            Err(denial) => {
                self.awaited[service] -= 1;
                if self.refuse(id, denial, now) {
                    self.make_ready(id);
                }
            }
            Ok(rule) if self.has_place(service, now) => {
                self.slab[id.index()].place = Place::Open;
                self.awaited[service] -= 1;
                self.note_open(id, now);
                self.dispatch.access.enter(id, rule);
                self.make_ready(id);
            }
            Ok(_) => self.fail(id, &"the limit of connections is reached", now),
        }
    }

    /// Refuses a new connection. Returns whether it lingers, to read the refusal, which is written at once: a new one has
    /// room for so few bytes, or else gets none. It ends now if too many linger: a client that waits for a descriptor
    /// should not wait for the end of this connection.
    fn refuse(&mut self, id: ConnId, denial: Denial, now: Time) -> bool {
        let (peer, conn) = (self.slab.peer(id), &mut self.slab[id.index()]);
        conn.place = Place::Refused;
        self.refused += 1;
        let (service, info) = (conn.service, self.dispatch.services[conn.service].info);
        let rule = conn.identity().and_then(|identity| self.dispatch.access.rule_for(&identity));
        self.log_denial(rule, denial, now, &peer, || format!("is refused by the {}", info.name));
        self.count_error(service);
        let conn = &mut self.slab[id.index()];
        let told = conn.stream.write(info.refusal).and_then(|_| conn.stream.finish());
        let lingers = told.is_ok() && self.refused <= MOST_REFUSED;
        if lingers {
            conn.phase = Phase::Lingering { linger_timer: self.dispatch.wheel.of(LOOP).arm(now + LINGER, id) };
        } else {
            self.drop(id);
        }
        lingers
    }

    /// Returns whether a service may have one more connection. With a limit of idle time, the connection idle for
    /// longest makes room.
    fn has_place(&mut self, service: ServiceId, now: Time) -> bool {
        if self.dispatch.services[service].traffic.open < self.places[service] {
            return true;
        }
        let longest = self.idle.longest(service);
        match longest {
            Some(id) => self.fail(id, &"it was idle for longest, and a new connection needs its place", now),
            None => self.note_full(service, now),
        }
        longest.is_some()
    }

    /// Notes that a service has reached its limit of connections.
    fn note_full(&mut self, service: ServiceId, now: Time) {
        self.count_accept_failure(service, &"the limit of connections is reached", now);
    }

    /// Counts a connection that is lost before it is served, and logs the reason, if that was not done lately.
    pub fn count_accept_failure(&mut self, service: ServiceId, reason: &dyn fmt::Display, now: Time) {
        self.count_error(service);
        self.log_accept_failure(reason, now);
    }

    /// Notes that the system cannot give a connection to the process. The connection waits.
    pub fn note_waiting(&mut self, reason: &dyn fmt::Display, now: Time) {
        self.dispatch.health.accept_failure = Some((now, reason.to_string()));
        self.log_accept_failure(reason, now);
    }

    /// Logs the reason for which a connection is not accepted, if that was not done lately.
    fn log_accept_failure(&mut self, reason: &dyn fmt::Display, now: Time) {
        if let Some(more) = self.accept_log.due(now) {
            warn!("cannot accept more than {} connections now: {reason}{more}", self.slab.len());
        }
    }

    fn log_denial(&mut self, rule: Option<usize>, denial: Denial, now: Time, who: &str, what: impl FnOnce() -> String) {
        let line = self.dispatch.access.denial_line(rule, denial, (who, what), now);
        line.into_iter().for_each(|line| warn!("{line}"));
    }

    /// Notes the locks and waits of a connection, if some rule limits them.
    #[inline]
    pub(super) fn note_holds(&mut self, id: ConnId) {
        if self.dispatch.access.counts_holds
            && let Some(conn) = self.slab.get(id.index()).filter(|conn| conn.is_open())
        {
            let holds = self.dispatch.services[conn.service].service.usage_of(id);
            self.dispatch.access.note_holds(id, holds);
        }
    }

    /// Notes the locks, waits and memory of a connection, if some rule limits them. The largest connections of a rule
    /// beyond its memory limit end. What is sent in the tick of its request is not noted as memory.
    #[inline]
    pub(super) fn note_usage(&mut self, id: ConnId, now: Time) {
        self.note_holds(id);
        if self.dispatch.access.counts_memory && !self.dispatch.output.is_dirty_for(id) {
            self.note_memory(id, now);
        }
    }

    fn note_memory(&mut self, id: ConnId, now: Time) {
        let Some(conn) = self.slab.get(id.index()).filter(|conn| conn.is_open()) else { return };
        let Dispatch { access, services, output, .. } = &mut self.dispatch;
        if access.note_bytes(id, bytes_of(id, conn, &*services[conn.service].service, output)) {
            self.end_largest(id, now);
        }
    }

    /// Ends the connections of this one's rule that take the most memory, until the rule is within its limit.
    #[cold]
    fn end_largest(&mut self, id: ConnId, now: Time) {
        let Some(rule) = self.dispatch.access.rule_at(id) else { return };
        while let Some((largest, bytes)) = self.dispatch.access.largest_beyond(rule) {
            let peer = self.slab.peer(largest);
            self.log_denial(Some(rule), Denial::Memory, now, &peer, || format!("ends with {bytes} bytes of its own"));
            self.fail(largest, &"its rule allows no more memory", now);
        }
    }
}

/// Returns the number of bytes that a connection takes.
fn bytes_of<S>(id: ConnId, conn: &Connection<S>, service: &dyn Service, output: &Output) -> u64 {
    (conn.unserved.as_ref().map_or(0, |bytes| bytes.len()) + output.len(id) + service.kept_bytes(id)) as u64
}
