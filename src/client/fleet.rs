//! Servers of a client, and the connections to them. Independent of the protocol.

use super::Timeouts;
use super::connection::ClientConnection;
use super::error::{Error, Failure, Fault};
use super::placement::Placement;
use super::remote::Remote;
use std::os::fd::RawFd;
use std::time::Duration;

/// Servers of a client, by index.
#[derive(Debug)]
pub(super) struct Fleet {
    servers: Vec<FleetServer>,
    /// Number of connections opened so far; the source of their numbers.
    opened: u64,
    /// First exchange on every new connection.
    pub greeting: Option<Greeting>,
}

/// First exchange on every new connection.
#[derive(Debug)]
pub(super) struct Greeting {
    /// Line to send.
    pub request: Vec<u8>,
    /// Expected reply, without its line end.
    pub answer: &'static [u8],
    /// Beginning of a refusal, before its text.
    pub refusal: &'static [u8],
}

/// A server and its connection.
#[derive(Debug)]
struct FleetServer {
    remote: Remote,
    /// None before the first use and after a failure.
    connection: Option<NumberedConnection>,
    /// Lines that came unasked on the last connection that failed with some, and its number.
    last_lines: (u64, Vec<Vec<u8>>),
}

/// Connection with a number that no other connection of the fleet has had.
#[derive(Debug)]
struct NumberedConnection {
    connection: ClientConnection,
    number: u64,
}

/// Identifies the connection on which a lock or units are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeldOn {
    /// Index of the server.
    server: usize,
    number: u64,
}

impl HeldOn {
    /// Returns the number of the connection; later connections have higher numbers.
    pub fn number(self) -> u64 {
        self.number
    }
}

/// Reply of a server, with its connection.
type Asked<T> = Result<(T, HeldOn), Failure>;

impl Fleet {
    pub fn new(placement: &Placement, default_port: u16, timeouts: Timeouts) -> Self {
        let tls = || placement.tls().cloned();
        let remote = |address: &String| Remote::new(address, default_port, timeouts.cut(), tls());
        let servers = placement.servers().iter().map(|address| FleetServer {
            remote: remote(address),
            connection: None,
            last_lines: (0, Vec::new()),
        });
        Fleet { servers: servers.collect(), opened: 0, greeting: None }
    }

    /// Asks the servers in `order` until one replies, and returns the reply and the connection.
    pub fn ask_first<T>(
        &mut self,
        order: &[usize],
        mut ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Result<(T, HeldOn), Error> {
        let mut failures = Vec::new();
        for server in order {
            match self.ask(*server, &mut ask) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failures.push((self.address(*server), failure)),
            }
        }
        Err(Error::of_failures(failures))
    }

    /// Asks each server, and returns the replies by address.
    pub fn ask_each<T>(
        &mut self,
        mut ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Vec<(String, Result<T, Failure>)> {
        let servers = 0..self.servers.len();
        servers.map(|server| (self.address(server), self.ask(server, &mut ask).map(|(answer, _)| answer))).collect()
    }

    fn address(&self, server: usize) -> String {
        self.servers[server].remote.address().into()
    }

    /// Asks one server on the open connection, or on a new one. If the open one has ended, perhaps by a restart of the
    /// server, it is asked once more.
    fn ask<T>(&mut self, server: usize, mut ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>) -> Asked<T> {
        if let Some(kept) = self.servers[server].connection.take() {
            match self.ask_on(server, kept, &mut ask) {
                Err(Failure { fault: Fault::Closed | Fault::Unreachable(..), .. }) => {}
                result => return result,
            }
        }
        let mut connection = self.servers[server].remote.connect()?;
        self.opened += 1;
        let number = self.opened;
        let greeted = self.greeting.as_ref().map_or(Ok(()), |greeting| greeting.exchange(&mut connection));
        let asked = self.ask_on(server, NumberedConnection { connection, number }, |connection| {
            greeted.and_then(|()| ask(connection))
        });
        if let Err(failure @ Failure { fault: Fault::Closed | Fault::Unreachable(..), .. }) = &asked {
            self.servers[server].remote.has_failed(failure);
        }
        asked
    }

    /// Asks on the connection of `held`. A failure closes it, so that nothing is held there any more.
    pub fn ask_holder<T>(
        &mut self,
        held: HeldOn,
        ask: impl FnOnce(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let holder = self.servers[held.server].connection.take_if(|kept| kept.number == held.number);
        let answer = holder.and_then(|holder| self.ask_on(held.server, holder, ask).ok());
        answer.map(|(answer, _)| answer).ok_or(Error::Lost)
    }

    /// Asks the server of `held` on its current connection or a new one, and returns which.
    pub fn ask_same_server<T>(
        &mut self,
        held: HeldOn,
        ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Result<(T, HeldOn), Error> {
        self.ask(held.server, ask).map_err(|failure| Error::of_failures(vec![(self.address(held.server), failure)]))
    }

    /// Returns the lines that the server has sent unasked on the connection of `held`, and whether it is still open.
    /// Does not wait.
    pub fn pending_lines(&mut self, held: HeldOn) -> (Vec<Vec<u8>>, bool) {
        let FleetServer { connection: kept, last_lines, .. } = &mut self.servers[held.server];
        let Some(mut holder) = kept.take_if(|kept| kept.number == held.number) else {
            let is_last = last_lines.0 == held.number;
            return (if is_last { std::mem::take(&mut last_lines.1) } else { Vec::new() }, false);
        };
        let (lines, received) = holder.connection.pending_lines();
        *kept = received.is_ok().then_some(holder);
        (lines, received.is_ok())
    }

    /// Returns the lines that came before replies on the connection of `held`.
    pub fn notices(&mut self, held: HeldOn) -> Vec<Vec<u8>> {
        let kept = self.servers[held.server].connection.as_mut().filter(|kept| kept.number == held.number);
        kept.map_or(Vec::new(), |kept| kept.connection.notices())
    }

    /// Returns true if the connection of `held` is lost. Does not wait.
    pub fn is_lost(&self, held: HeldOn) -> bool {
        self.holder(held).is_none_or(ClientConnection::is_closed)
    }

    /// Returns the descriptor of the connection of `held`, unless that has failed.
    pub fn descriptor(&self, held: HeldOn) -> Option<RawFd> {
        self.holder(held).map(ClientConnection::descriptor)
    }

    fn holder(&self, held: HeldOn) -> Option<&ClientConnection> {
        let kept = self.servers[held.server].connection.as_ref()?;
        (kept.number == held.number).then_some(&kept.connection)
    }

    /// Closes the connection of `held`.
    pub fn close(&mut self, held: HeldOn) {
        self.servers[held.server].connection.take_if(|kept| kept.number == held.number);
    }

    /// Asks on this connection, and keeps it on success, and if the server drains: locks may be held on it.
    fn ask_on<T>(
        &mut self,
        server: usize,
        mut numbered: NumberedConnection,
        ask: impl FnOnce(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Asked<T> {
        let FleetServer { remote, connection, last_lines } = &mut self.servers[server];
        match ask(&mut numbered.connection) {
            Ok(answer) => {
                remote.has_answered();
                let held = HeldOn { server, number: numbered.number };
                *connection = Some(numbered);
                Ok((answer, held))
            }
            Err(fault) => {
                let failure = Failure { address: numbered.connection.address().into(), fault };
                if failure.fault == Fault::Draining {
                    remote.has_answered();
                    *connection = Some(numbered);
                    return Err(failure);
                }
                let (lines, _) = numbered.connection.pending_lines();
                if !lines.is_empty() {
                    *last_lines = (numbered.number, lines);
                }
                // The end of a connection is not always that of its server: it may have been started again.
                if !matches!(failure.fault, Fault::Closed | Fault::Unreachable(..)) {
                    remote.has_failed(&failure);
                }
                Err(failure)
            }
        }
    }
}

impl Greeting {
    fn exchange(&self, connection: &mut ClientConnection) -> Result<(), Fault> {
        connection.send(&self.request, Duration::ZERO)?;
        let line = connection.line()?;
        match line.strip_prefix(self.refusal) {
            _ if line == self.answer => Ok(()),
            // The C daemon does not know the request.
            None | Some(b"BAD_COMMAND") => Err(Fault::Garbled),
            Some(words) => Err(Fault::Refused(String::from_utf8_lossy(words).into_owned())),
        }
    }
}
