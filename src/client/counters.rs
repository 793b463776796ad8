//! Units of counters: the client of the yrmcds counter protocol.

use super::connection::Connection;
use super::error::{Error, Failure, Fault};
use super::fleet::{Fleet, Held};
use super::placement::Placement;
use super::{Said, Timeouts};
use crate::counters::stats::CounterStat as Stat;
use crate::counters::wire::asking::{self as wire, Answer, ReplyHeader};
use crate::counters::wire::{HEADER_BYTES, Request};
use crate::counters::{Acquire, Refusal, Release};
use crate::stats::Figures;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::time::Duration;

/// Where a server listens that is named without a port.
const DEFAULT_PORT: u16 = 11215;
/// A dump of more bytes is given up: a server that never ends it must not take all memory.
const LONGEST_DUMP: usize = 1 << 30;

/// A client of the counters of one or several servers. Servers, connections and threads are as with the
/// [`Client`](super::Client) of pools.
#[derive(Debug)]
pub struct Counters {
    fleet: RefCell<Fleet>,
    placement: Placement,
}

/// Units of a counter. They are given back when this is dropped, or when the connection or the process ends.
#[derive(Debug)]
#[must_use = "units that are dropped are given back"]
pub struct Units<'a> {
    counters: &'a Counters,
    /// None once they were given back.
    held: Option<Held>,
    name: Vec<u8>,
    resources: u32,
}

/// How much of a counter is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usage {
    /// The counter's name.
    pub name: Vec<u8>,
    /// How many units are held.
    pub consumption: u32,
    /// The most that were held at a time in the server's present interval, a day unless its operator has chosen otherwise.
    pub peak: u32,
}

impl Counters {
    /// A client that asks for each counter the servers in this order. It connects when it is first used.
    pub fn new(placement: impl Into<Placement>) -> Self {
        Counters::with(placement, Timeouts::default())
    }

    /// A client with other timeouts.
    pub fn with(placement: impl Into<Placement>, timeouts: Timeouts) -> Self {
        let placement = placement.into();
        Counters { fleet: RefCell::new(Fleet::new(placement.servers(), DEFAULT_PORT, timeouts)), placement }
    }

    /// Takes `resources` units of a counter, unless more than `maximum` would be held then; None if so. It never waits.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for a name that is empty or longer than 65535 bytes; [`Error::Unavailable`]; [`Error::Refused`],
    /// for one when `resources` is zero or more than `maximum`.
    pub fn acquire(&self, name: impl AsRef<[u8]>, resources: u32, maximum: u32) -> Result<Option<Units<'_>>, Error> {
        let name = checked(name.as_ref())?;
        let request = Request::Acquire(Acquire { name, resources, maximum });
        let (granted, held) = self.ask(name, &request, |answer| match answer {
            Answer::Success(_) => Ok(Ok(true)),
            Answer::Refusal(Refusal::NotAvailable) => Ok(Ok(false)),
            other => refusal(other),
        })?;
        let units = || Units { counters: self, held: Some(held), name: name.to_vec(), resources };
        Ok(granted.then(units))
    }

    /// Gives units back that are not [`Units`]. A server takes back only what was acquired on the same connection, so this is
    /// for those who want to hear what it says.
    ///
    /// # Errors
    ///
    /// As [`Counters::acquire`].
    pub fn release(&self, name: impl AsRef<[u8]>, resources: u32) -> Result<Result<(), Refusal>, Error> {
        let name = checked(name.as_ref())?;
        let (released, _) = self.ask(name, &Request::Release(Release { name, resources }), |answer| match answer {
            Answer::Success(_) => Ok(Ok(Ok(()))),
            Answer::Refusal(refusal) => Ok(Ok(Err(refusal))),
            other => refusal(other),
        })?;
        Ok(released)
    }

    /// How many units of a counter are held; None when there is no such counter.
    ///
    /// # Errors
    ///
    /// As [`Counters::acquire`].
    pub fn get(&self, name: impl AsRef<[u8]>) -> Result<Option<u32>, Error> {
        let name = checked(name.as_ref())?;
        let (consumption, _) = self.ask(name, &Request::Get(name), |answer| match answer {
            Answer::Success(body) => Ok(Ok(Some(wire::parse_number(body).ok_or(Fault::Garbled)?))),
            Answer::Refusal(Refusal::NotFound) => Ok(Ok(None)),
            other => refusal(other),
        })?;
        Ok(consumption)
    }

    /// Whether each server answers, by its address.
    pub fn noop(&self) -> Vec<(String, Result<(), Failure>)> {
        self.ask_each(&Request::Noop, |connection| receive(connection, &Request::Noop, |_| Some(())))
    }

    /// The statistics of each server, by its address.
    pub fn stats(&self) -> Vec<(String, Result<Figures<Stat>, Failure>)> {
        self.ask_each(&Request::Stats, |connection| receive(connection, &Request::Stats, wire::parse_stats))
    }

    /// Every counter of each server, by its address.
    pub fn dump(&self) -> Vec<(String, Result<Vec<Usage>, Failure>)> {
        self.ask_each(&Request::Dump, receive_dump)
    }

    /// Asks the first server that answers.
    fn ask<T>(
        &self,
        name: &[u8],
        request: &Request<'_>,
        read: impl Fn(Answer<'_>) -> Said<T>,
    ) -> Result<(T, Held), Error> {
        let order = self.placement.order(name);
        let (said, held) = self.fleet.borrow_mut().ask_first(&order, |connection| {
            send(connection, request)?;
            receive_answer(connection, request, &read)
        })?;
        Ok((said?, held))
    }

    fn ask_each<T>(
        &self,
        request: &Request<'_>,
        receive: impl Fn(&mut Connection) -> Result<T, Fault>,
    ) -> Vec<(String, Result<T, Failure>)> {
        self.fleet.borrow_mut().ask_each(|connection| {
            send(connection, request)?;
            receive(connection)
        })
    }

    fn give_back(&self, held: Held, name: &[u8], resources: u32) -> Result<(), Error> {
        let request = Request::Release(Release { name, resources });
        self.fleet.borrow_mut().ask_holder(held, |connection| {
            send(connection, &request)?;
            receive_answer(connection, &request, |answer| match answer {
                Answer::Success(_) => Ok(Ok(())),
                Answer::Refusal(Refusal::NotAcquired | Refusal::NotFound) => Ok(Err(Error::Expired)),
                other => refusal(other),
            })
        })?
    }
}

impl Units<'_> {
    /// Gives the units back, and tells whether they were held until now.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], or [`Error::Expired`] if the server counts them as nobody's: somebody else may have had them too.
    pub fn release(mut self) -> Result<(), Error> {
        let held = self.held.take().ok_or(Error::Lost)?;
        self.counters.give_back(held, &self.name, self.resources)
    }

    /// Whether the connection, and so the units, are lost already. Does not wait, and so does not notice that the server's
    /// machine has just died.
    pub fn is_lost(&self) -> bool {
        self.held.is_none_or(|held| self.counters.fleet.borrow().is_lost(held))
    }

    /// The descriptor of the connection, if there still is one: it is readable when the connection may be lost.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.counters.fleet.borrow().descriptor(self.held?)
    }
}

impl Drop for Units<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // If this fails the connection is closed, so the units are given back in any case.
            let _ = self.counters.give_back(held, &self.name, self.resources);
        }
    }
}

/// A name that a request can carry.
fn checked(name: &[u8]) -> Result<&[u8], Error> {
    let fits = !name.is_empty() && name.len() <= usize::from(u16::MAX);
    fits.then_some(name).ok_or(Error::BadName)
}

fn send(connection: &mut Connection, request: &Request<'_>) -> Result<(), Fault> {
    let mut bytes = Vec::new();
    wire::write_request(&mut bytes, request);
    connection.send(&bytes, Duration::ZERO)
}

/// Receives one reply, and reads what it says.
fn receive_answer<T>(
    connection: &mut Connection,
    request: &Request<'_>,
    read: impl FnOnce(Answer<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let header = connection.bytes(HEADER_BYTES)?;
    let header = header.first_chunk().and_then(|header| ReplyHeader::parse(header, request)).ok_or(Fault::Garbled)?;
    let body = connection.bytes(header.body_bytes)?;
    read(header.answer(&body))
}

/// Receives one reply that can only be a success.
fn receive<T>(
    connection: &mut Connection,
    request: &Request<'_>,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, Fault> {
    receive_answer(connection, request, |answer| match answer {
        Answer::Success(body) => read(body).ok_or(Fault::Garbled),
        Answer::Refusal(_) | Answer::Malformed(..) => Err(Fault::Garbled),
    })
}

fn receive_dump(connection: &mut Connection) -> Result<Vec<Usage>, Fault> {
    let mut dumped = Vec::new();
    let mut bytes = 0;
    while bytes < LONGEST_DUMP {
        let body = receive(connection, &Request::Dump, |body| Some(body.to_vec()))?;
        if body.is_empty() {
            return Ok(dumped);
        }
        let record = wire::parse_record(&body).ok_or(Fault::Garbled)?;
        dumped.push(Usage { name: record.name.to_vec(), consumption: record.consumption, peak: record.peak });
        bytes += HEADER_BYTES + body.len();
        connection.renew();
    }
    Err(Fault::Garbled)
}

/// What the server refuses for a reason that the request did not count on.
fn refusal<T>(answer: Answer<'_>) -> Said<T> {
    match answer {
        Answer::Refusal(Refusal::OutOfMemory) => Ok(Err(Error::Refused(wire::describe(Refusal::OutOfMemory)))),
        Answer::Malformed(status, words) => Ok(Err(Error::Refused(wire::describe_status(status, words)))),
        Answer::Success(_) | Answer::Refusal(_) => Err(Fault::Garbled),
    }
}
