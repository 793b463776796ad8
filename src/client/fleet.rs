//! Servers of a client, and the connections to them. Independent of the protocol.

use super::connection::ClientConnection;
use super::dial::{Attempt, Dial};
use super::error::{Error, Failure, Fault, Stop};
use super::placement::Placement;
use super::{OfEach, Said, Timeouts};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Limit of the pause after repeated failures, in units of [`Timeouts::retry`]; each pause is twice as long as the one
/// before. Longer pauses would save little: with the default timeouts, a server that accepts connections without
/// replying costs its callers one [`Timeouts::answer`] in 16 seconds. And until all clients have noticed that a server
/// is back, some lock its keys there and some at the next server.
const LONGEST_PAUSE: u32 = 8;

/// Servers of a client, by index.
#[derive(Debug)]
pub(super) struct Fleet {
    servers: Vec<FleetServer>,
    dial: Dial,
    /// First exchange on every new connection.
    pub greeting: Option<Greeting>,
}

/// Line to send, and the check of its reply.
type Greeting = (Vec<u8>, fn(&[u8]) -> Result<(), Fault>);

/// A server and its connection.
#[derive(Debug)]
struct FleetServer {
    /// Address as configured.
    address: String,
    /// Failure state; None unless it has failed since its last reply. No request waits for a dead server.
    dead: Option<Dead>,
    /// None before the first use and after a failure.
    connection: Option<ClientConnection>,
    /// Lines that came unasked on the last connection that failed with some, and its number.
    last_lines: (u64, Vec<Vec<u8>>),
}

#[derive(Debug)]
struct Dead {
    /// Last failure.
    failure: Failure,
    /// Pause after the last failure.
    pause: Duration,
    until: Instant,
    /// Connection attempt in the background.
    attempt: Option<Attempt>,
}

/// Identifies the connection on which a lock or units are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeldOn {
    /// Index of the server.
    pub server: usize,
    number: u64,
}

/// Reply or refusal of a server, with its connection.
type Asked<T> = Result<Result<(T, HeldOn), Error>, Failure>;

impl Fleet {
    pub fn new(placement: &Placement, default_port: u16, timeouts: Timeouts) -> Self {
        let server = |address: &String| FleetServer {
            address: address.clone(),
            dead: None,
            connection: None,
            last_lines: (0, Vec::new()),
        };
        let servers = placement.servers().iter().map(server).collect();
        let dial = Dial::new(default_port, timeouts, placement.tls());
        Fleet { servers, dial, greeting: None }
    }

    /// Asks the servers in `order` until one replies, and returns the reply and the connection.
    pub fn ask_first<T>(
        &mut self,
        order: &[usize],
        mut ask: impl FnMut(&mut ClientConnection) -> Said<T>,
    ) -> Result<(T, HeldOn), Error> {
        let mut failures = Vec::new();
        for server in order {
            match self.ask(*server, &mut ask) {
                Ok(answer) => return answer,
                Err(failure) => failures.push((self.servers[*server].address.clone(), failure)),
            }
        }
        Err(Error::of_failures(failures))
    }

    /// Asks each server, and returns the replies by address.
    pub fn ask_each<T>(&mut self, mut ask: impl FnMut(&mut ClientConnection) -> Said<T>) -> OfEach<T> {
        let servers = 0..self.servers.len();
        let answer = |server: usize| {
            let answer = self.ask_first(&[server], &mut ask).map(|(answer, _)| answer);
            (self.servers[server].address.clone(), answer)
        };
        servers.map(answer).collect()
    }

    /// Asks one server on the open connection, or on a new one. If the open one has ended, perhaps by a restart of the
    /// server, it is asked once more.
    fn ask<T>(&mut self, server: usize, mut ask: impl FnMut(&mut ClientConnection) -> Said<T>) -> Asked<T> {
        if let Some(kept) = self.servers[server].connection.take() {
            match self.ask_on(server, kept, &mut ask) {
                Err(Failure { fault: Fault::Closed | Fault::Unreachable(..), .. }) => {}
                result => return result,
            }
        }
        let mut connection = self.connect(server)?;
        let greeted = self.greeting.as_ref().map_or(Ok(()), |(request, check)| {
            connection.send(request, Duration::ZERO)?;
            check(&connection.line()?)
        });
        let asked = self.ask_on(server, connection, |connection| {
            greeted?;
            ask(connection)
        });
        if let Err(failure @ Failure { fault: Fault::Closed | Fault::Unreachable(..), .. }) = &asked {
            self.has_failed(server, failure);
        }
        asked
    }

    /// Returns a new connection. A dead server is not waited for: returns the connection if the background attempt has
    /// made one, else the last failure.
    fn connect(&mut self, server: usize) -> Result<ClientConnection, Failure> {
        let FleetServer { address, dead, .. } = &mut self.servers[server];
        let connected = match dead {
            None => self.dial.connect(address),
            Some(Dead { failure, until, attempt: None, .. }) if Instant::now() < *until => return Err(failure.clone()),
            Some(Dead { failure, attempt, .. }) => match self.dial.advance(address, attempt).transpose() {
                None => return Err(failure.clone()),
                Some(connected) => connected,
            },
        };
        connected.inspect_err(|failure| self.has_failed(server, failure))
    }

    /// Records a failure: the server is unreachable or does not reply correctly.
    fn has_failed(&mut self, server: usize, failure: &Failure) {
        let (dead, retry) = (&mut self.servers[server].dead, self.dial.timeouts.retry);
        let pause = dead.as_ref().map_or(retry, |dead| (2 * dead.pause).min(LONGEST_PAUSE * retry));
        *dead = Some(Dead { failure: failure.clone(), pause, until: Instant::now() + pause, attempt: None });
    }

    /// Asks on the connection of `held`. A failure closes it, so that nothing is held there any more.
    pub fn ask_holder<T>(
        &mut self,
        held: HeldOn,
        ask: impl FnOnce(&mut ClientConnection) -> Said<T>,
    ) -> Result<T, Error> {
        let holder = self.servers[held.server].connection.take_if(|kept| kept.number == held.number);
        let answer = self.ask_on(held.server, holder.ok_or(Error::Lost)?, ask).map_err(|_| Error::Lost)?;
        answer.map(|(answer, _)| answer)
    }

    /// Returns the lines that the server has sent unasked on the connection of `held`, and whether it is still open.
    /// Does not wait.
    pub fn pending_lines(&mut self, held: HeldOn) -> (Vec<Vec<u8>>, bool) {
        let FleetServer { connection: kept, last_lines, .. } = &mut self.servers[held.server];
        let Some(mut holder) = kept.take_if(|kept| kept.number == held.number) else {
            let is_last = last_lines.0 == held.number;
            return (if is_last { std::mem::take(&mut last_lines.1) } else { Vec::new() }, false);
        };
        let (lines, received) = holder.pending_lines();
        *kept = received.is_ok().then_some(holder);
        (lines, received.is_ok())
    }

    /// Returns the lines that came before replies on each open connection.
    pub fn notices(&mut self) -> impl Iterator<Item = (HeldOn, Vec<Vec<u8>>)> {
        self.servers.iter_mut().enumerate().filter_map(|(server, its)| {
            let connection = its.connection.as_mut()?;
            Some((HeldOn { server, number: connection.number }, std::mem::take(&mut connection.notices)))
        })
    }

    /// Returns true if the connection of `held` is lost. Does not wait.
    pub fn is_lost(&self, held: HeldOn) -> bool {
        self.holder(held).is_none_or(ClientConnection::is_closed)
    }

    /// Returns the descriptor of the connection of `held`, unless that has failed.
    pub fn descriptor(&self, held: HeldOn) -> Option<RawFd> {
        self.holder(held).map(|connection| connection.as_fd().as_raw_fd())
    }

    fn holder(&self, held: HeldOn) -> Option<&ClientConnection> {
        self.servers[held.server].connection.as_ref().filter(|kept| kept.number == held.number)
    }

    /// Closes the connection of `held`.
    pub fn close(&mut self, held: HeldOn) {
        self.servers[held.server].connection.take_if(|kept| kept.number == held.number);
    }

    /// Asks on this connection, and keeps it unless it has failed, also if the server drains: locks may be held on it.
    fn ask_on<T>(
        &mut self,
        server: usize,
        mut connection: ClientConnection,
        ask: impl FnOnce(&mut ClientConnection) -> Said<T>,
    ) -> Asked<T> {
        let number = connection.number;
        let said = Stop::split(ask(&mut connection));
        let said = said.map_err(|fault| Failure { address: connection.address.clone(), fault });
        let its = &mut self.servers[server];
        match &said {
            Ok(_) | Err(Failure { fault: Fault::Draining, .. }) => {
                (its.dead, its.connection) = (None, Some(connection));
            }
            Err(_) => {
                let (lines, _) = connection.pending_lines();
                if !lines.is_empty() {
                    its.last_lines = (number, lines);
                }
            }
        }
        let asked = said.map(|answer| answer.map(|answer| (answer, HeldOn { server, number })));
        asked.inspect_err(|failure| match failure.fault {
            // The end of a connection is not always that of its server: it may have been started again.
            Fault::Draining | Fault::Closed | Fault::Unreachable(..) => {}
            _ => self.has_failed(server, failure),
        })
    }
}
