//! The server's part in an upgrade: when to rehearse, when to be replaced, and how to go on in a new process.

use super::{Policy, Server};
use crate::id::{ConnId, ServiceId};
use crate::net::connections::Connections;
use crate::net::handover::{Handover, Program, Rehearsal, SavedPort, SavedSocket, adopt};
use crate::net::listener::Listener;
use crate::net::socket::Socket;
use crate::net::supervisor::Status;
use crate::random::Random;
use crate::registry::{SERVICES, Services};
use crate::time::{Span, Time};
use log::{info, warn};
use mio::{Interest, Token};
use std::collections::HashMap;
use std::io;

/// How long the new program may take to read a handover before it counts as broken.
const PATIENCE: Span = Span::from_secs(10);
/// The token of the rehearsal's verdict; the one above is the signals'.
pub(super) const VERDICT: Token = Token(usize::MAX - 1);

/// How far an upgrade is.
#[derive(Default)]
pub(super) struct Upgrade {
    /// The program that would take over; None when the system does not tell where its file is.
    pub program: Option<Program>,
    /// The child that tries it out, and when it has taken too long.
    pub rehearsal: Option<(Rehearsal, Time)>,
    /// The child has something to say.
    pub has_news: bool,
}

impl Server {
    /// Goes on where the process that left `handover` stopped.
    ///
    /// # Errors
    ///
    /// One sentence that says what is missing. The connections are lost then.
    pub fn take_over(handover: Handover, services: Services, policy: Policy) -> Result<Server, String> {
        let Handover { clock, ports, sockets, connections, .. } = handover;
        let mut sockets: HashMap<ConnId, SavedSocket> = sockets.into_iter().map(|socket| (socket.id, socket)).collect();
        let ids: Vec<ConnId> = sockets.keys().copied().collect();
        let stream_of = |id| {
            let SavedSocket { fd, is_unix, .. } = sockets.remove(&id).ok_or(io::ErrorKind::NotFound)?;
            Ok(Socket::restore(adopt(fd)?, is_unix))
        };
        let random = Random::from_system().map_err(|error| format!("cannot take over: {error}"))?;
        let connections = Connections::restore(services, connections, clock.now(), clock.epoch(), random, stream_of)
            .map_err(|error| format!("cannot take over: {error}"))?;
        let restore = || -> io::Result<Server> {
            let mut server = Server::with(connections, clock, policy)?;
            server.poll_all(&ids)?;
            for SavedPort { service, listener } in ports {
                let service = ServiceId::named(&service).ok_or(io::ErrorKind::InvalidData)?;
                server.listen(Listener::restore(adopt(listener.fd)?, listener)?, service)?;
            }
            Ok(server)
        };
        restore().map_err(|error| format!("cannot take over: {error}"))
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// SIGUSR1 came: has the program on disk try what it would take over.
    pub(super) fn begin_upgrade(&mut self) {
        if self.upgrade.rehearsal.is_some() {
            return;
        }
        let handover = self.save();
        let Some(program) = &self.upgrade.program else {
            return warn!("no upgrade: the system does not tell which program this is");
        };
        let begin = || {
            let mut rehearsal = program.rehearse(&handover)?;
            self.poll.registry().register(rehearsal.source(), VERDICT, Interest::READABLE)?;
            io::Result::Ok(rehearsal)
        };
        match begin() {
            Ok(rehearsal) => {
                info!("an upgrade begins: {} is tried out", program.path().display());
                self.upgrade.rehearsal = Some((rehearsal, self.clock.now() + PATIENCE));
                self.tell_supervisor(Status::Reloading);
            }
            Err(error) => warn!("no upgrade: {} cannot be run: {error}", program.path().display()),
        }
    }

    /// Looks at the rehearsal that is under way; after a good one, this process is replaced and nothing here returns.
    pub(super) fn go_on_with_upgrade(&mut self) {
        let has_news = std::mem::take(&mut self.upgrade.has_news);
        let Some((rehearsal, deadline)) = &mut self.upgrade.rehearsal else { return };
        let verdict = if has_news { rehearsal.verdict() } else { None };
        let verdict = match verdict {
            Some(verdict) => verdict,
            None if self.clock.now() < *deadline => return,
            None => {
                rehearsal.end();
                Err("it took too long".into())
            }
        };
        self.upgrade.rehearsal = None;
        let handover = verdict.map(|()| self.save());
        let Some(program) = &self.upgrade.program else { return };
        let path = program.path().display();
        match handover {
            Ok(handover) => warn!("no upgrade: {path} cannot be run: {}", program.take_over(&handover)),
            Err(reason) => warn!("no upgrade: {path} cannot take over: {reason}"),
        }
        self.tell_supervisor(Status::Ready);
    }

    /// Everything that a process needs to go on from here.
    fn save(&mut self) -> Handover {
        let connections = self.connections.save(self.clock.now());
        let sockets = connections.ids().filter_map(|id| {
            let (fd, is_unix) = self.connections.stream(id)?.descriptor();
            Some(SavedSocket { id, fd, is_unix })
        });
        Handover {
            clock: self.clock,
            sockets: sockets.collect(),
            ports: self
                .ports
                .iter()
                .map(|p| SavedPort { service: SERVICES[p.service.index()].name.into(), listener: p.listener.save() })
                .collect(),
            connections,
        }
    }
}
