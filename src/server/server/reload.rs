//! Reload of the server: listeners are replaced while connections live on, and the result is noted.

use super::Server;
use crate::listener::Listener;
use crate::socket::Socket;
use poolcounter_service::container::ServiceId;
use poolcounter_service::contract::OperationError;
use poolcounter_service::loop_stats::Reload;
use std::io::{self, ErrorKind};

/// Most connections that are accepted from a listener before it is closed: as many as its backlog can hold, unless that
/// was set very high.
const RETIRING_ACCEPTS: usize = 65_536;

impl Server {
    /// Removes and returns every listener. The caller adds the remaining listeners again with [`Server::listen`].
    ///
    /// # Errors
    ///
    /// Fails if the system cannot deregister one.
    #[doc(hidden)]
    pub fn take_listeners(&mut self) -> io::Result<Vec<(Listener, ServiceId)>> {
        let registry = self.poll.registry();
        let mut open = self.ports.iter_mut().filter(|port| port.listener.is_open());
        open.try_for_each(|port| port.listener.deregister(registry))?;
        Ok(self.ports.drain(..).map(|port| (port.listener, port.service)).collect())
    }

    /// Closes a listener that was removed. Connections in its backlog are accepted and served.
    #[doc(hidden)]
    pub fn retire(&mut self, listener: Listener, service: ServiceId) {
        self.accept_backlog(|_| listener.accept(), service, listener.is_proxied());
        listener.retire();
    }

    /// Accepts the connections in the backlog of a listener that is about to be closed.
    pub(super) fn accept_backlog(
        &mut self,
        accept: impl Fn(&Server) -> io::Result<Socket>,
        service: ServiceId,
        is_proxied: bool,
    ) {
        for _ in 0..RETIRING_ACCEPTS {
            match accept(self).map_err(|error| error.kind()) {
                Ok(socket) => self.admit(socket, service, is_proxied),
                Err(ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
                Err(_) => break,
            }
        }
    }

    /// Notes the result of a reload or an upgrade that has ended, in a few words, for the status and for the operators
    /// who wait for it.
    pub fn note_reload(&mut self, result: Result<String, String>) {
        let (at, has_worked) = (self.clock.now(), result.is_ok());
        self.connections.loop_stats().reload = Some(Reload { at, has_worked });
        self.connections.end_reload(&result.map_err(OperationError::Refused), at);
    }
}
