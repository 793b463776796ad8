//! Client of the yrmcds counter protocol: acquires and releases units of counters.

use super::connection::ClientConnection;
use super::error::{Error, Fault, Stop};
use super::fleet::{Fleet, HeldOn};
use super::placement::Placement;
use super::{OfEach, Said, Timeouts};
use poolcounter_core::Figures;
use poolcounter_protocol::counters::DEFAULT_PORT;
use poolcounter_protocol::counters::request::{AcquireUnits, CounterRefusal, ReleaseUnits};
use poolcounter_protocol::counters::stats::CounterStat as Stat;
use poolcounter_protocol::counters::wire::client::{self as wire, CounterReply, ReplyHeader};
use poolcounter_protocol::counters::wire::{CounterRequest, HEADER_BYTES};
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::time::Duration;

/// A client of the counters of one or several servers. Servers, connections and threads are as with the
/// [`Client`](super::Client) of pools.
#[derive(Debug)]
pub struct Counters {
    fleet: RefCell<Fleet>,
    placement: Placement,
}

/// Units of a counter. Released on drop, and by the server when the connection or the process ends.
#[derive(Debug)]
#[must_use = "units that are dropped are given back"]
pub struct Units<'a> {
    counters: &'a Counters,
    /// None after the release.
    held: Option<HeldOn>,
    name: Vec<u8>,
    resources: u32,
}

/// Usage of a counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Name of the counter.
    pub name: Vec<u8>,
    /// Number of units held.
    pub consumption: u32,
    /// Largest number of units held at a time in the server's current interval (one day by default).
    pub peak: u32,
}

impl Counters {
    /// Returns a client that tries the servers in the order that `placement` gives for each counter. Connects on first
    /// use.
    pub fn new(placement: impl Into<Placement>) -> Self {
        Counters::with(placement, Timeouts::default())
    }

    /// Returns a client with other timeouts.
    pub fn with(placement: impl Into<Placement>, timeouts: Timeouts) -> Self {
        let placement = placement.into();
        Counters { fleet: RefCell::new(Fleet::new(&placement, DEFAULT_PORT, timeouts)), placement }
    }

    /// Takes `resources` units of a counter. Returns None if more than `maximum` would be held. Never waits.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for a name that is empty or longer than 65535 bytes; [`Error::Unavailable`];
    /// [`Error::Refused`], for example when `resources` is zero or more than `maximum`.
    pub fn acquire(&self, name: impl AsRef<[u8]>, resources: u32, maximum: u32) -> Result<Option<Units<'_>>, Error> {
        let name = checked(name.as_ref())?;
        let request = CounterRequest::Acquire(AcquireUnits { name, resources, maximum });
        let (granted, held) = self.ask(name, &request, |answer| match answer {
            CounterReply::Success(_) => Ok(true),
            CounterReply::Refusal(CounterRefusal::NotAvailable) => Ok(false),
            other => Err(refusal(other)),
        })?;
        let units = || Units { counters: self, held: Some(held), name: name.to_vec(), resources };
        Ok(granted.then(units))
    }

    /// Releases units without [`Units`], and returns the server's refusal if it refuses: the server accepts only units
    /// that were acquired on the same connection.
    ///
    /// # Errors
    ///
    /// As [`Counters::acquire`].
    pub fn release(&self, name: impl AsRef<[u8]>, resources: u32) -> Result<Result<(), CounterRefusal>, Error> {
        let name = checked(name.as_ref())?;
        let request = CounterRequest::Release(ReleaseUnits { name, resources });
        let released = self.ask(name, &request, |answer| match answer {
            CounterReply::Success(_) => Ok(Ok(())),
            CounterReply::Refusal(refusal) => Ok(Err(refusal)),
            other => Err(refusal(other)),
        });
        Ok(released?.0)
    }

    /// Returns the number of units held of a counter; None if the counter does not exist.
    ///
    /// # Errors
    ///
    /// As [`Counters::acquire`].
    pub fn get(&self, name: impl AsRef<[u8]>) -> Result<Option<u32>, Error> {
        let name = checked(name.as_ref())?;
        let consumption = self.ask(name, &CounterRequest::Get(name), |answer| match answer {
            CounterReply::Success(body) => Ok(Some(wire::parse_number(body).ok_or(Fault::Garbled)?)),
            CounterReply::Refusal(CounterRefusal::NotFound) => Ok(None),
            other => Err(refusal(other)),
        });
        Ok(consumption?.0)
    }

    /// Pings each server.
    pub fn noop(&self) -> OfEach<()> {
        self.ask_each(&CounterRequest::Noop, |_| Some(()))
    }

    /// Returns the statistics of each server, by its address.
    pub fn stats(&self) -> OfEach<Figures<Stat>> {
        self.ask_each(&CounterRequest::Stats, wire::parse_stats)
    }

    /// Returns every counter of each server, by its address.
    pub fn dump(&self) -> OfEach<Vec<Usage>> {
        self.fleet.borrow_mut().ask_each(receive_dump)
    }

    /// Asks the servers in the order of the name until one replies.
    fn ask<T>(
        &self,
        name: &[u8],
        request: &CounterRequest<'_>,
        read: impl Fn(CounterReply<'_>) -> Said<T>,
    ) -> Result<(T, HeldOn), Error> {
        self.fleet.borrow_mut().ask_first(&self.placement.order(name), |connection| {
            send(connection, request)?;
            receive_answer(connection, request, &read)
        })
    }

    fn ask_each<T>(&self, request: &CounterRequest<'_>, read: fn(&[u8]) -> Option<T>) -> OfEach<T> {
        self.fleet.borrow_mut().ask_each(|connection| {
            send(connection, request)?;
            receive(connection, request, read)
        })
    }

    fn give_back(&self, held: HeldOn, name: &[u8], resources: u32) -> Result<(), Error> {
        let request = CounterRequest::Release(ReleaseUnits { name, resources });
        self.fleet.borrow_mut().ask_holder(held, |connection| {
            send(connection, &request)?;
            receive_answer(connection, &request, |answer| match answer {
                CounterReply::Success(_) => Ok(()),
                CounterReply::Refusal(CounterRefusal::NotAcquired | CounterRefusal::NotFound) => {
                    Err(Error::Expired.into())
                }
                other => Err(refusal(other)),
            })
        })
    }
}

impl Units<'_> {
    /// Releases the units. Succeeds if they were held until now.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::Expired`] if the server had already freed them, so that another client may have held
    /// them.
    pub fn release(mut self) -> Result<(), Error> {
        let held = self.held.take().ok_or(Error::Lost)?;
        self.counters.give_back(held, &self.name, self.resources)
    }

    /// Returns true if the connection, and with it the units, is lost. Does not wait, so a crash of the server's
    /// machine goes unnoticed until keepalive fails.
    pub fn is_lost(&self) -> bool {
        self.held.is_none_or(|held| self.counters.fleet.borrow().is_lost(held))
    }

    /// Returns the descriptor of the connection, if it is open; it is readable when the connection may be lost.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.counters.fleet.borrow().descriptor(self.held?)
    }
}

impl Drop for Units<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // A failure closes the connection, which releases the units as well.
            let _ = self.counters.give_back(held, &self.name, self.resources);
        }
    }
}

/// Returns the name if it fits into a request.
fn checked(name: &[u8]) -> Result<&[u8], Error> {
    let fits = !name.is_empty() && name.len() <= usize::from(u16::MAX);
    fits.then_some(name).ok_or(Error::BadName)
}

fn send(connection: &mut ClientConnection, request: &CounterRequest<'_>) -> Result<(), Fault> {
    let mut bytes = Vec::new();
    wire::write_request(&mut bytes, request);
    connection.send(&bytes, Duration::ZERO)
}

/// Receives one reply and parses it with `read`.
fn receive_answer<T>(
    connection: &mut ClientConnection,
    request: &CounterRequest<'_>,
    read: impl FnOnce(CounterReply<'_>) -> Said<T>,
) -> Said<T> {
    let header = connection.bytes(HEADER_BYTES)?;
    let header = header.first_chunk().and_then(|header| ReplyHeader::parse(header, request)).ok_or(Fault::Garbled)?;
    let body = connection.bytes(header.body_bytes)?;
    read(header.answer(&body))
}

/// Receives one reply that may only be a success, or a refusal that any request can get.
fn receive<T>(
    connection: &mut ClientConnection,
    request: &CounterRequest<'_>,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Said<T> {
    receive_answer(connection, request, |answer| match answer {
        CounterReply::Success(body) => Ok(read(body).ok_or(Fault::Garbled)?),
        other => Err(refusal(other)),
    })
}

fn receive_dump(connection: &mut ClientConnection) -> Said<Vec<Usage>> {
    send(connection, &CounterRequest::Dump)?;
    let mut dumped = Vec::new();
    loop {
        let body = receive(connection, &CounterRequest::Dump, |body| Some(body.to_vec()))?;
        if body.is_empty() {
            return Ok(dumped);
        }
        let record = wire::parse_record(&body).ok_or(Fault::Garbled)?;
        dumped.push(Usage { name: record.name.to_vec(), consumption: record.consumption, peak: record.peak });
    }
}

/// Returns the refusals that any request can get as an error; other replies are a fault.
fn refusal(answer: CounterReply<'_>) -> Stop {
    match answer {
        CounterReply::Refusal(CounterRefusal::OutOfMemory) => {
            Error::Refused(wire::describe(CounterRefusal::OutOfMemory)).into()
        }
        CounterReply::Malformed(status, words) => Error::Refused(wire::describe_status(status, words)).into(),
        CounterReply::Success(_) | CounterReply::Refusal(_) => Fault::Garbled.into(),
    }
}
