//! The rules of access where connections begin, and where they hold something.

use super::{Connections, Dispatch};
use crate::access::{Access, Denial, Rule};
use crate::id::{ConnId, Id};
use crate::net::connection::{Client, Connection, Stream};
use crate::service::Peers as _;
use crate::time::Time;
use log::warn;

impl<S: Stream> Connections<S> {
    /// Sets who may ask for what, whoever is connected: None where that could not be read. A proxy's client is looked at when the proxy
    /// has said who it is.
    pub fn guard(&mut self, rules: Option<Vec<Rule>>) {
        self.dispatch.access = Access::after(&std::mem::take(&mut self.denied), rules);
        if self.dispatch.access.is_on() {
            let is_known = |conn: &Connection<S>| conn.is_open() && !matches!(conn.client, Client::Unknown { .. });
            for (index, conn) in self.slab.iter().filter(|(_, conn)| is_known(conn)) {
                let id = ConnId::from_index(index);
                self.dispatch.access.restore(id, &conn.identity());
                self.dispatch.access.note_holds(id, self.dispatch.services[conn.service].service.holds(id));
            }
        }
    }

    /// Lets a new connection in if a rule allows that, or else has it told so and closed.
    pub fn admit(&mut self, id: ConnId, now: Time) {
        if !self.dispatch.access.is_on() {
            return;
        }
        let conn = &mut self.slab[id.index()];
        let service = conn.service;
        if let Err(denial) = self.dispatch.access.admit(id, service, &conn.identity()) {
            conn.draining = true;
            let info = self.dispatch.services[service].info;
            self.log_denial(id, denial, now, || format!("is not let in to the {}", info.name));
            self.count_error(service);
            self.dispatch.output.reply(id, |bytes| bytes.extend_from_slice(info.refusal));
            self.check_unserved(id, now);
        }
    }

    fn log_denial(&mut self, id: ConnId, denial: Denial, now: Time, what: impl FnOnce() -> String) {
        let access = &mut self.dispatch.access;
        if let Some(more) = access.should_log(id, now) {
            let (peer, rule) = (self.slab.peer(id), access.rule_of(id).unwrap_or("none"));
            warn!("{peer} (rule {rule}) {} ({}){more}", what(), denial.name());
        }
    }

    /// Notes what a connection has, where some rule limits that. It ends if it may not have as much.
    #[inline]
    pub(super) fn note_usage(&mut self, id: ConnId, now: Time) {
        if self.dispatch.access.counts_holds() || self.dispatch.access.counts_memory() {
            self.note_limited(id, now);
        }
    }

    fn note_limited(&mut self, id: ConnId, now: Time) {
        let conn = &self.slab[id.index()];
        if !conn.is_open() {
            return;
        }
        let Dispatch { access, services, output, .. } = &mut self.dispatch;
        access.note_holds(id, services[conn.service].service.holds(id));
        let bytes = conn.unserved.len() + output.len(id);
        if let Some(denial) = access.note_bytes(id, bytes as u64) {
            self.log_denial(id, denial, now, || format!("ends with {bytes} bytes of its own"));
            self.fail(id, &"its rule allows no more memory", now);
        }
    }
}
