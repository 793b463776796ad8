//! New connections: as many as a tick takes, from the listeners that have some.

use super::{Port, Server};
use crate::reserve::is_lack;
use crate::socket::Socket;
use log::debug;
use poolcounter_core::Span;
use poolcounter_service::container::ServiceId;
use poolcounter_service::report::Budget;
use std::io::{self, ErrorKind};

/// Most connections accepted from one port in one tick, so that a flood of new connections does not starve open
/// connections.
const ACCEPTS_PER_TICK: usize = 256;
/// Time for which no connection is accepted after the system refused one for lack of descriptors or memory.
const ACCEPT_PAUSE: Span = Span::from_millis(100);

/// Descriptors that are kept for connections of operators over private listeners, if clients have taken
/// all the rest.
const OPERATORS: u64 = 8;

impl Server {
    /// Accepts connections from the listeners that are ready, until these have no more or the tick's budget is spent.
    #[inline(never)]
    pub(super) fn accept_ready(&mut self) {
        let now = self.clock.now();
        self.connections.loop_stats().begin_tick(now);
        self.reserve_for_operators();
        for port in 0..self.ports.len() {
            let is_private = self.connections.services()[self.ports[port].service].info.is_private;
            if self.accept_paused_until.is_some_and(|until| now < until) && (!is_private || self.operators.is_empty()) {
                continue;
            }
            let mut budget = ACCEPTS_PER_TICK;
            while self.ports[port].ready && budget > 0 {
                budget -= 1;
                let Port { listener, service, .. } = &self.ports[port];
                let (service, is_proxied) = (*service, listener.is_proxied());
                match listener.accept() {
                    Ok(socket) => self.admit(socket, service, is_proxied),
                    Err(error) => match error.kind() {
                        ErrorKind::WouldBlock => self.ports[port].ready = false,
                        ErrorKind::Interrupted => {}
                        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset => {
                            self.connections.count_error(service);
                        }
                        _ if is_private && self.operators.release_one() => {}
                        _ => {
                            self.pause_accepting(service, &error);
                            break;
                        }
                    },
                }
            }
            if self.ports[port].ready {
                self.connections.loop_stats().count_spent(Budget::Accepts);
            }
        }
        self.has_backlog = self.ports.iter().any(|port| port.ready);
    }

    /// Opens an accepted connection, if it is admitted and its service has a place. A proxy must send its header first.
    pub(super) fn admit(&mut self, socket: Socket, service: ServiceId, is_proxied: bool) {
        let now = self.clock.now();
        let Some(id) = self.connections.admit(socket, service, is_proxied, now) else { return };
        if let Err(error) = self.register_connection(id) {
            debug!("{id} cannot be polled: {error}");
            self.connections.count_error(service);
            self.connections.fail(id, &"it cannot be polled", now);
        }
    }

    /// Keeps descriptors for the connections that operators may still open.
    fn reserve_for_operators(&mut self) {
        let services = self.connections.services();
        let private = self.ports.iter().map(|port| port.service).find(|service| services[*service].info.is_private);
        if let Some(service) = private {
            let open = services[service].traffic.open;
            self.operators.fill(OPERATORS.saturating_sub(open) as usize);
        }
    }

    /// Pauses accepting: the system has no descriptors or memory for another connection, and the loop must not spin.
    fn pause_accepting(&mut self, service: ServiceId, error: &io::Error) {
        let now = self.clock.now();
        self.accept_paused_until = Some(now + ACCEPT_PAUSE);
        if is_lack(error) {
            self.connections.note_waiting(error, now);
        } else {
            self.connections.count_accept_failure(service, error, now);
        }
    }
}
