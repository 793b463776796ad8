//! The rules of access where connections begin, and where they hold something.

use super::{Connections, Dispatch};
use crate::access::{Access, Rule};
use crate::id::{ConnId, Id};
use crate::net::connection::Stream;
use crate::service::Peers as _;
use crate::time::Time;
use log::warn;

impl<S: Stream> Connections<S> {
    /// Sets who may ask for what, whoever is connected.
    pub fn guard(&mut self, rules: Vec<Rule>) {
        self.dispatch.access = Access::new(rules);
        self.dispatch.access.restore_counts(&std::mem::take(&mut self.denied));
        if self.dispatch.access.is_on() {
            for (index, conn) in self.slab.iter().filter(|(_, conn)| conn.is_open()) {
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
            let (info, peer) = (self.dispatch.services[service].info, self.slab.peer(id));
            if let Some(more) = self.dispatch.access.should_log(id, now) {
                let why = denial.name();
                warn!("{peer} is not let in to the {} ({why}){more}", info.name);
            }
            self.count_error(service);
            self.dispatch.output.reply(id, |bytes| bytes.extend_from_slice(info.refusal));
            self.check_unserved(id, now);
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
        if access.note_bytes(id, bytes as u64).is_some() {
            self.fail(id, &"its rule allows no more memory", now);
        }
    }
}
