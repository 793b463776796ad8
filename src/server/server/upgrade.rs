//! Upgrade of the server: the rehearsal, the replacement, and the continuation in a new process.

use super::{Policy, Port, SIGNALS, Server};
use crate::connections::Connections;
use crate::handover::{Handover, Preamble, Program, Rehearsal, SavedPort, SavedSocket, StateFile, adopt};
use crate::listener::Listener;
use crate::reserve::Reserve;
use crate::sd_notify::{DaemonState, Notifier};
use crate::signals::Signals;
use crate::socket::Socket;
use log::{info, warn};
use poolcounter_core::{ConnId, Random, Reader, Span, Time};
use poolcounter_service::container::Services;
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;

/// Longest time that the services have for finishing work under way, such as a commit. Only requests that would need
/// another wait meanwhile.
const QUIESCE_TIME: Span = Span::from_secs(5);
/// Descriptors that are kept for an upgrade when clients have taken all the rest: for the handover, the program, the
/// verdict's two ends, and what the system needs to run a child.
const RESERVED: usize = 10;

/// Progress of an upgrade.
#[derive(Default)]
pub(super) struct Upgrade {
    /// Program that would take over; None if the system does not know the path of its file.
    pub program: Option<Program>,
    /// True if SIGUSR1 may be pending. It is read when an upgrade can begin: once the services have read all of the
    /// last one, and none is under way. A signal that comes after the configuration was read is for the next upgrade.
    pub is_asked: bool,
    /// Child that rehearses the takeover. Once it has succeeded, the services come to rest until its deadline.
    pub rehearsal: Option<Rehearsal>,
    /// True once the child has written something or has exited.
    pub is_readable: bool,
    /// Descriptors that are closed when an upgrade needs some.
    reserve: Reserve,
}

impl Upgrade {
    /// Opens descriptors to be kept for the next upgrade, if there are any left.
    pub fn reserve(&mut self) {
        self.reserve.fill(RESERVED);
    }
}

impl Server {
    /// Returns a server that continues from the `handover` of the previous process.
    ///
    /// # Errors
    ///
    /// One sentence with the missing part. The connections are lost then.
    pub fn take_over(handover: Handover, services: Services, policy: Policy) -> Result<Server, String> {
        let Handover { preamble, mut rest } = handover;
        let Preamble { clock, ports, sockets, program, .. } = preamble;
        let clock = clock.taken_over();
        let mut sockets: HashMap<ConnId, SavedSocket> = sockets.into_iter().map(|socket| (socket.id, socket)).collect();
        let ids: Vec<ConnId> = sockets.keys().copied().collect();
        let stream_of = |id| {
            let SavedSocket { fd, is_unix, peer, .. } = sockets.remove(&id).ok_or(io::ErrorKind::NotFound)?;
            Ok(Socket::restore(adopt(fd)?, is_unix, peer))
        };
        let random = Random::from_system().map_err(|error| format!("cannot take over: {error}"))?;
        let mut rest = Reader::new(&mut rest);
        let connections =
            Connections::restore(services, &mut rest, (clock.now(), clock.epoch()), random, stream_of, false)
                .map_err(|error| format!("cannot take over: {error}"))?;
        let restore = || -> io::Result<Server> {
            let mut server = Server::with(connections, clock, policy)?;
            server.upgrade.program = program.map(Program::at);
            server.register_all(&ids)?;
            for SavedPort { service, listener } in ports {
                let service = server.connections.services().named(&service).ok_or(io::ErrorKind::InvalidData)?;
                server.listen(Listener::restore(adopt(listener.fd)?, listener)?, service)?;
            }
            Ok(server)
        };
        restore().map_err(|error| format!("cannot take over: {error}"))
    }

    /// Handles signals: SIGTERM and SIGINT end [`Server::run`], SIGUSR1 begins an upgrade, SIGUSR2 drains the services,
    /// and SIGHUP is ignored. From now on the supervisor that started the process is notified of the server's state.
    /// Threads that were started before must block these signals.
    ///
    /// # Errors
    ///
    /// Fails if no descriptors are left.
    pub fn handle_signals(&mut self) -> io::Result<()> {
        self.signals = Some(Signals::listen(self.poll.registry(), SIGNALS)?);
        // A successor has the path from the handover, as its file may have been replaced again by now.
        self.upgrade.program = self.upgrade.program.take().or_else(|| Program::current().ok());
        self.notifier = Notifier::from_environment();
        Ok(())
    }

    /// Returns the number of connections.
    #[doc(hidden)]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Starts an upgrade if one was asked for, once the services can be saved, and the upgrade before has ended.
    pub(super) fn begin_asked_upgrade(&mut self) {
        let is_idle = !self.is_stopping && self.upgrade_deadline().is_none();
        if !is_idle || !self.connections.services().are_restored() {
            return;
        }
        let is_signalled = std::mem::take(&mut self.upgrade.is_asked)
            && self.signals.as_mut().is_some_and(|signals| signals.upgrade.has_come());
        if is_signalled || self.connections.dispatch.is_reload_asked {
            self.connections.begin_reload();
            self.begin_upgrade();
        }
    }

    /// Starts an upgrade: the program on disk rehearses the takeover.
    fn begin_upgrade(&mut self) {
        self.upgrade.reserve.release_all();
        let begun = self.save(None).map(|(state, _)| state);
        let Some(program) = &self.upgrade.program else {
            return self.refuse_upgrade("the system does not say which program this is");
        };
        match begun.and_then(|state| program.rehearse(state, self.poll.registry(), self.clock)) {
            Ok(rehearsal) => {
                info!("an upgrade begins: {} rehearses the takeover", program.path().display());
                self.upgrade.rehearsal = Some(rehearsal);
                self.notify_supervisor(DaemonState::Reloading);
            }
            Err(error) => return self.refuse_upgrade(&format!("{} cannot be run: {error}", program.path().display())),
        }
        self.upgrade.reserve();
    }

    /// Continues the upgrade under way; once all is ready, this process is replaced and the call does not return. If it
    /// ends without effect, the next one begins that was asked for meanwhile.
    pub(super) fn continue_upgrade(&mut self) {
        if self.upgrade_deadline().is_some() {
            self.continue_begun_upgrade();
        }
        if self.upgrade.is_asked || self.connections.dispatch.is_reload_asked {
            self.begin_asked_upgrade();
        }
    }

    fn continue_begun_upgrade(&mut self) {
        let (is_readable, now) = (std::mem::take(&mut self.upgrade.is_readable), self.clock.now());
        let Some(mut rehearsal) = self.upgrade.rehearsal.take() else { return };
        if !rehearsal.has_succeeded {
            match rehearsal.verdict(is_readable, now) {
                Some(Ok(())) => rehearsal.deadline = now + QUIESCE_TIME,
                Some(Err(reason)) => return self.abort_upgrade(&format!("cannot take over: {reason}")),
                None => return self.upgrade.rehearsal = Some(rehearsal),
            }
        }
        if self.connections.come_to_rest(now) {
            self.replace_process(rehearsal);
        } else if now < rehearsal.deadline {
            self.upgrade.rehearsal = Some(rehearsal);
        } else {
            self.abort_upgrade("is not run: a commit that is under way takes too long");
        }
    }

    /// Returns the deadline of the upgrade under way.
    pub(super) fn upgrade_deadline(&self) -> Option<Time> {
        self.upgrade.rehearsal.as_ref().map(|rehearsal| rehearsal.deadline)
    }

    /// Ends the upgrade without effect, and logs the reason.
    fn abort_upgrade(&mut self, why: &str) {
        let path = self.upgrade.program.as_ref().map(|program| program.path().display().to_string());
        self.refuse_upgrade(&format!("{} {why}", path.unwrap_or_default()));
        self.connections.go_on(self.clock.now());
        self.notify_supervisor(DaemonState::Ready);
    }

    /// Logs the reason for which there is no upgrade, and tells it to every connection that has asked for one.
    fn refuse_upgrade(&mut self, why: &str) {
        warn!("no upgrade: {why}");
        self.note_reload(Err(format!("no upgrade: {why}")));
        self.upgrade.reserve();
    }

    /// Replaces this process. Signals that it has not read are pending, and the new program reads them.
    fn replace_process(&mut self, mut rehearsal: Rehearsal) {
        self.upgrade.reserve.release_all();
        let saved = rehearsal.rehearsed().and_then(|rehearsed| self.save(rehearsed.config));
        let error = match (saved, &self.upgrade.program) {
            (Ok((state, preamble)), Some(program)) => {
                rehearsal.take_over(program, &state, &preamble.descriptors().collect::<Vec<_>>())
            }
            (Err(error), _) => error,
            (_, None) => io::ErrorKind::NotFound.into(),
        };
        self.abort_upgrade(&format!("cannot be run: {error}"));
    }

    /// Writes the handover: everything that a successor needs to continue from here.
    fn save(&mut self, config: Option<String>) -> io::Result<(StateFile, Preamble)> {
        let ids: Vec<ConnId> = self.connections.ids().collect();
        let socket_of = |id| {
            let (fd, is_unix, peer) = self.connections.stream(id)?.descriptor();
            Some(SavedSocket { id, fd, is_unix, peer })
        };
        let sockets = ids.into_iter().filter_map(socket_of).collect();
        let services = self.connections.services();
        let save_port = |port: &Port| SavedPort {
            service: services[port.service].info.name.into(),
            listener: port.listener.save(),
        };
        let preamble = Preamble {
            clock: self.clock,
            sockets,
            ports: self.ports.iter().map(save_port).collect(),
            program: self.upgrade.program.as_ref().map(|program| OsString::from(program.path())),
            config,
        };
        let now = self.clock.now();
        let state = preamble.write(|out| self.connections.save(out, now))?;
        Ok((state, preamble))
    }
}
