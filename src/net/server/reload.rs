//! The server's part in a reload: listeners that come and go while connections live on, and what came of it.

use super::Server;
use crate::id::ServiceId;
use crate::loop_stats::Reload;
use crate::net::listener::Listener;
use std::io::{self, ErrorKind};

/// Connections accepted from a listener that is closed for good: as many as its backlog can hold, unless that was set very high.
const RETIRING_ACCEPTS: usize = 65_536;

impl Server {
    /// Takes every listener out, for whoever knows which of them are to stay, and puts these in again with [`Server::listen`].
    ///
    /// # Errors
    ///
    /// When the system cannot leave one alone.
    pub fn take_listeners(&mut self) -> io::Result<Vec<(Listener, ServiceId)>> {
        let registry = self.poll.registry();
        self.ports.iter_mut().try_for_each(|port| port.listener.deregister(registry))?;
        Ok(self.ports.drain(..).map(|port| (port.listener, port.service)).collect())
    }

    /// Closes a listener that was taken out. Those who have connected to it already are served.
    pub fn retire(&mut self, listener: Listener, service: ServiceId) {
        for _ in 0..RETIRING_ACCEPTS {
            match listener.accept().map_err(|error| error.kind()) {
                Ok(socket) => self.admit(socket, service),
                Err(ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
                Err(_) => break,
            }
        }
        listener.retire();
    }

    /// Notes that a reload was asked for, or what came of it.
    pub fn note_reload(&mut self, has_worked: bool) {
        self.connections.loop_stats().reload = Some(Reload { at: self.clock.now(), has_worked });
    }
}
