//! The servers of a client: which are connected, and which were found dead not long ago. It knows no protocol.

use super::Timeouts;
use super::connection::Connection;
use super::error::{Error, Failure, Fault};
use std::os::fd::RawFd;
use std::time::Instant;

/// Servers, by index.
#[derive(Debug)]
pub(super) struct Fleet {
    servers: Vec<Server>,
    default_port: u16,
    timeouts: Timeouts,
    /// How many connections were opened, so that each has a number of its own.
    opened: u64,
}

/// One server.
#[derive(Debug)]
struct Server {
    address: String,
    /// None before the first use, and after a failure.
    connection: Option<Numbered>,
    /// What was wrong with it, and until when it is not asked again.
    dead: Option<(Failure, Instant)>,
}

/// A connection that can be told from an earlier one to the same server.
#[derive(Debug)]
struct Numbered {
    connection: Connection,
    number: u64,
}

/// The connection on which something is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Held {
    /// The index of the server.
    server: usize,
    number: u64,
}

/// What a server answered, and on which connection.
type Asked<T> = Result<(T, Held), Failure>;

impl Fleet {
    pub fn new(addresses: &[String], default_port: u16, timeouts: Timeouts) -> Self {
        let server = |address: &String| Server { address: address.clone(), connection: None, dead: None };
        Fleet { servers: addresses.iter().map(server).collect(), default_port, timeouts: timeouts.cut(), opened: 0 }
    }

    /// Asks the first server of `order` that answers, and tells on which connection that was.
    pub fn ask_first<T>(
        &mut self,
        order: &[usize],
        mut ask: impl FnMut(&mut Connection) -> Result<T, Fault>,
    ) -> Result<(T, Held), Error> {
        let mut failures = Vec::new();
        for server in order {
            match self.ask(*server, &mut ask) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failures.push((self.servers[*server].address.clone(), failure)),
            }
        }
        Err(Error::Unavailable(failures))
    }

    /// Asks each server, and tells what it says by its address.
    pub fn ask_each<T>(
        &mut self,
        ask: impl FnMut(&mut Connection) -> Result<T, Fault>,
    ) -> Vec<(String, Result<T, Failure>)> {
        let without_connection = |(server, answer): (String, Asked<T>)| (server, answer.map(|(answer, _)| answer));
        self.ask_each_on(ask).into_iter().map(without_connection).collect()
    }

    /// The same, and tells on which connection each was asked.
    pub fn ask_each_on<T>(
        &mut self,
        mut ask: impl FnMut(&mut Connection) -> Result<T, Fault>,
    ) -> Vec<(String, Asked<T>)> {
        let servers = 0..self.servers.len();
        servers.map(|index| (self.servers[index].address.clone(), self.ask(index, &mut ask))).collect()
    }

    /// Asks one server, unless it was dead not long ago.
    fn ask<T>(&mut self, server: usize, mut ask: impl FnMut(&mut Connection) -> Result<T, Fault>) -> Asked<T> {
        if let Some((failure, until)) = &self.servers[server].dead
            && Instant::now() < *until
        {
            return Err(failure.clone());
        }
        let result = self.ask_anew_if_closed(server, &mut ask);
        let retry_at = || Instant::now() + self.timeouts.retry;
        self.servers[server].dead = result.as_ref().err().map(|failure| (failure.clone(), retry_at()));
        result
    }

    /// That a kept connection is closed says only that the server was restarted since: it is asked once more.
    fn ask_anew_if_closed<T>(
        &mut self,
        server: usize,
        ask: &mut impl FnMut(&mut Connection) -> Result<T, Fault>,
    ) -> Asked<T> {
        if let Some(kept) = self.servers[server].connection.take() {
            match self.ask_on(server, kept, &mut *ask) {
                Err(Failure { fault: Fault::Closed, .. }) => {}
                result => return result,
            }
        }
        let connection = Connection::open(&self.servers[server].address, self.default_port, &self.timeouts)?;
        self.opened += 1;
        let number = self.opened;
        self.ask_on(server, Numbered { connection, number }, ask)
    }

    /// Asks on the connection where something is held. After a failure nothing is held there any more.
    pub fn ask_holder<T>(
        &mut self,
        held: Held,
        ask: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let holder = self.servers[held.server].connection.take_if(|kept| kept.number == held.number);
        let answer = holder.and_then(|holder| self.ask_on(held.server, holder, ask).ok());
        answer.map(|(answer, _)| answer).ok_or(Error::Lost)
    }

    /// Asks the server where something was held, on whatever connection there is to it, and tells which.
    pub fn ask_same_server<T>(
        &mut self,
        held: Held,
        ask: impl FnMut(&mut Connection) -> Result<T, Fault>,
    ) -> Result<(T, Held), Error> {
        self.ask(held.server, ask)
            .map_err(|failure| Error::Unavailable(vec![(self.servers[held.server].address.clone(), failure)]))
    }

    /// Returns the lines that have come by themselves on the connection where something is held; None when it is lost. Does not
    /// wait.
    pub fn pending_lines(&mut self, held: Held) -> Option<Vec<Vec<u8>>> {
        let mut holder = self.servers[held.server].connection.take_if(|kept| kept.number == held.number)?;
        let lines = holder.connection.pending_lines().ok()?;
        self.servers[held.server].connection = Some(holder);
        Some(lines)
    }

    /// Whether the connection where something is held is lost already. Does not wait.
    pub fn is_lost(&self, held: Held) -> bool {
        self.holder(held).is_none_or(Connection::is_closed)
    }

    /// The descriptor of the connection where something is held, if it has not failed since.
    pub fn descriptor(&self, held: Held) -> Option<RawFd> {
        self.holder(held).map(Connection::descriptor)
    }

    fn holder(&self, held: Held) -> Option<&Connection> {
        let kept = self.servers[held.server].connection.as_ref()?;
        (kept.number == held.number).then_some(&kept.connection)
    }

    /// Closes the connection where something is held.
    pub fn close(&mut self, held: Held) {
        self.servers[held.server].connection.take_if(|kept| kept.number == held.number);
    }

    /// Asks on this connection, and keeps it if that went well.
    fn ask_on<T>(
        &mut self,
        server: usize,
        mut numbered: Numbered,
        ask: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> Asked<T> {
        let failed = |fault, address: &str| Failure { address: address.into(), fault };
        let answer = ask(&mut numbered.connection).map_err(|fault| failed(fault, numbered.connection.address()))?;
        let held = Held { server, number: numbered.number };
        self.servers[server].connection = Some(numbered);
        Ok((answer, held))
    }
}
