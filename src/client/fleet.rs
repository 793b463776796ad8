//! The servers of a client: which are connected, and which have failed lately. It knows no protocol.

use super::Timeouts;
use super::connection::ClientConnection;
use super::error::{Error, Failure, Fault};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Servers, by index.
#[derive(Debug)]
pub(super) struct Fleet {
    servers: Vec<FleetServer>,
    default_port: u16,
    timeouts: Timeouts,
    /// How many connections were opened, so that each has a number of its own.
    opened: u64,
    greeting: Option<Greeting>,
}

/// What each new connection begins with.
#[derive(Debug)]
pub(super) struct Greeting {
    /// The line that is sent.
    pub request: Vec<u8>,
    /// The line that comes back, without its end.
    pub answer: &'static [u8],
}

/// One server.
#[derive(Debug)]
struct FleetServer {
    address: String,
    /// None before the first use, and after a failure.
    connection: Option<NumberedConnection>,
    /// Its last failure, and until when it is not asked again.
    dead: Option<(Failure, Instant)>,
}

/// A connection with a number, which an earlier or later one to the same server does not have.
#[derive(Debug)]
struct NumberedConnection {
    connection: ClientConnection,
    number: u64,
}

/// The connection on which a lock or units are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeldOn {
    /// The index of the server.
    server: usize,
    number: u64,
}

/// What a server answered, and on which connection.
type Asked<T> = Result<(T, HeldOn), Failure>;

impl Fleet {
    pub fn new(addresses: &[String], default_port: u16, timeouts: Timeouts) -> Self {
        let server = |address: &String| FleetServer { address: address.clone(), connection: None, dead: None };
        let servers = addresses.iter().map(server).collect();
        Fleet { servers, default_port, timeouts: timeouts.cut(), opened: 0, greeting: None }
    }

    /// Has each connection from now on begin with this.
    pub fn greet(&mut self, greeting: Greeting) {
        self.greeting = Some(greeting);
    }

    /// Asks the servers in `order` until one answers, and returns the answer and the connection.
    pub fn ask_first<T>(
        &mut self,
        order: &[usize],
        mut ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Result<(T, HeldOn), Error> {
        let mut failures = Vec::new();
        for server in order {
            match self.ask(*server, &mut ask) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failures.push((self.servers[*server].address.clone(), failure)),
            }
        }
        Err(Error::Unavailable(failures))
    }

    /// Asks each server, and returns the answers by address.
    pub fn ask_each<T>(
        &mut self,
        ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Vec<(String, Result<T, Failure>)> {
        let without_connection = |(server, answer): (String, Asked<T>)| (server, answer.map(|(answer, _)| answer));
        self.ask_each_on(ask).into_iter().map(without_connection).collect()
    }

    /// The same, and tells on which connection each was asked.
    pub fn ask_each_on<T>(
        &mut self,
        mut ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Vec<(String, Asked<T>)> {
        let servers = 0..self.servers.len();
        servers.map(|index| (self.servers[index].address.clone(), self.ask(index, &mut ask))).collect()
    }

    /// Asks one server, unless it has failed lately.
    fn ask<T>(&mut self, server: usize, mut ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>) -> Asked<T> {
        if let Some((failure, until)) = &self.servers[server].dead
            && Instant::now() < *until
        {
            return Err(failure.clone());
        }
        let result = self.ask_again_if_closed(server, &mut ask);
        let retry_at = || Instant::now() + self.timeouts.retry;
        self.servers[server].dead = result.as_ref().err().map(|failure| (failure.clone(), retry_at()));
        result
    }

    /// Asks one server on the open connection, or a new one. If the server has closed the open one, it may have been restarted
    /// since, so it is asked once more.
    fn ask_again_if_closed<T>(
        &mut self,
        server: usize,
        ask: &mut impl FnMut(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Asked<T> {
        if let Some(kept) = self.servers[server].connection.take() {
            match self.ask_on(server, kept, &mut *ask) {
                Err(Failure { fault: Fault::Closed, .. }) => {}
                result => return result,
            }
        }
        let mut connection = ClientConnection::open(&self.servers[server].address, self.default_port, &self.timeouts)?;
        if let Some(greeting) = &self.greeting {
            let greeted = greeting.exchange(&mut connection);
            greeted.map_err(|fault| Failure { address: connection.address().into(), fault })?;
        }
        self.opened += 1;
        let number = self.opened;
        self.ask_on(server, NumberedConnection { connection, number }, ask)
    }

    /// Asks on the connection where something is held. After a failure nothing is held there any more.
    pub fn ask_holder<T>(
        &mut self,
        held: HeldOn,
        ask: impl FnOnce(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Result<T, Error> {
        let holder = self.servers[held.server].connection.take_if(|kept| kept.number == held.number);
        let answer = holder.and_then(|holder| self.ask_on(held.server, holder, ask).ok());
        answer.map(|(answer, _)| answer).ok_or(Error::Lost)
    }

    /// Asks the server where something was held, on whatever connection there is to it, and tells which.
    pub fn ask_same_server<T>(
        &mut self,
        held: HeldOn,
        ask: impl FnMut(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Result<(T, HeldOn), Error> {
        self.ask(held.server, ask)
            .map_err(|failure| Error::Unavailable(vec![(self.servers[held.server].address.clone(), failure)]))
    }

    /// Returns the lines that have come by themselves on the connection where something is held; None when it is lost. Does not
    /// wait.
    pub fn pending_lines(&mut self, held: HeldOn) -> Option<Vec<Vec<u8>>> {
        let mut holder = self.servers[held.server].connection.take_if(|kept| kept.number == held.number)?;
        let lines = holder.connection.pending_lines().ok()?;
        self.servers[held.server].connection = Some(holder);
        Some(lines)
    }

    /// Returns true when the connection where something is held is lost. Does not wait.
    pub fn is_lost(&self, held: HeldOn) -> bool {
        self.holder(held).is_none_or(ClientConnection::is_closed)
    }

    /// Returns the descriptor of the connection where something is held, if it has not failed since.
    pub fn descriptor(&self, held: HeldOn) -> Option<RawFd> {
        self.holder(held).map(ClientConnection::descriptor)
    }

    fn holder(&self, held: HeldOn) -> Option<&ClientConnection> {
        let kept = self.servers[held.server].connection.as_ref()?;
        (kept.number == held.number).then_some(&kept.connection)
    }

    /// Closes the connection where something is held.
    pub fn close(&mut self, held: HeldOn) {
        self.servers[held.server].connection.take_if(|kept| kept.number == held.number);
    }

    /// Asks on this connection, and keeps it if it does not fail.
    fn ask_on<T>(
        &mut self,
        server: usize,
        mut numbered: NumberedConnection,
        ask: impl FnOnce(&mut ClientConnection) -> Result<T, Fault>,
    ) -> Asked<T> {
        let failed = |fault, address: &str| Failure { address: address.into(), fault };
        let answer = ask(&mut numbered.connection).map_err(|fault| failed(fault, numbered.connection.address()))?;
        let held = HeldOn { server, number: numbered.number };
        self.servers[server].connection = Some(numbered);
        Ok((answer, held))
    }
}

impl Greeting {
    fn exchange(&self, connection: &mut ClientConnection) -> Result<(), Fault> {
        connection.send(&self.request, Duration::ZERO)?;
        if connection.line()? == self.answer { Ok(()) } else { Err(Fault::Garbled) }
    }
}
