//! Locks in pools: the client of the PoolCounter protocol.

use super::connection::ClientConnection;
use super::error::{Error, Failure, Fault};
use super::fleet::{Fleet, HeldOn};
use super::members::{Rows, RowsOfEach};
use super::placement::Placement;
use super::who::{own_name, sendable};
use super::{Said, Timeouts};
use poolcounter_core::stats::Figures;
use poolcounter_core::time::Span;
use poolcounter_protocol::line::escape_key;
use poolcounter_protocol::pools::request::{AcquireLock, KeyLimits, MOST_LIMITS, Purpose, Reply};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use poolcounter_protocol::pools::wire::MAX_WHO;
use poolcounter_protocol::pools::wire::client as wire;
pub use poolcounter_protocol::pools::wire::client::ToldClaim;
use std::cell::RefCell;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// The port of a server that is named without one.
const DEFAULT_PORT: u16 = 7531;
/// The most lines of an answer: `STATS FULL` has 21, the lists have a thousand and two, a report has two thousand, and a later
/// server may have more.
const MOST_LINES: usize = 10_000;

/// The lines of an answer, or a refusal.
pub type Lines = Result<Vec<Vec<u8>>, Error>;

/// A client of one or several servers, with one connection to each that it had to ask.
///
/// Its methods take `&self`, and a [`Lock`] borrows the client. So locks nest, on one connection where their keys have
/// the same server, and the compiler sees to it that none outlives its client. A client may move between threads but not
/// be used by two at a time, because it blocks while it waits for a lock. Give each thread its own.
#[derive(Debug)]
pub struct Client {
    fleet: RefCell<Fleet>,
    placement: Placement,
    who: String,
}

/// How much of a kind of work may be done at a time. All clients that share a key should use the same limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many may hold a lock at a time. At least 1.
    pub workers: u32,
    /// How many may hold a lock or wait for one. At least 1.
    pub max_queue: u32,
    /// How long to wait. Where it is whole seconds the C daemon understands it too.
    pub timeout: Duration,
    /// The longest time to hold the lock before the server takes it back; None or zero sets no limit. The C daemon has no such
    /// limit.
    pub hold: Option<Duration>,
}

/// What came of an acquire.
#[derive(Debug)]
#[must_use = "a lock that is dropped is released"]
pub enum Outcome<'a> {
    /// Do the work.
    Locked(Lock<'a>),
    /// Another client has finished the work meanwhile, so read the result. Only for [`Purpose::Anyone`].
    Done,
    /// Too many hold or wait already.
    QueueFull,
    /// No lock came free in time.
    Timeout,
}

/// A lock in a pool. It is released when this is dropped, or when the connection or the process ends.
///
/// Locks may be released in any order. Only the C daemon gives back the newest of the connection, whatever the key: with it,
/// release the newest first, as the compiler does at the end of a block.
#[derive(Debug)]
#[must_use = "a lock that is dropped is released"]
pub struct Lock<'a> {
    client: &'a Client,
    /// None once it was released.
    held: Option<HeldOn>,
    /// The key as it went over the wire.
    key: Vec<u8>,
}

impl Client {
    /// Returns a client that asks the servers in the order that `placement` has for each key. It connects when it is first used.
    pub fn new(placement: impl Into<Placement>) -> Self {
        Client::with(placement, Timeouts::default())
    }

    /// Returns a client with other timeouts.
    pub fn with(placement: impl Into<Placement>, timeouts: Timeouts) -> Self {
        let placement = placement.into();
        let fleet = RefCell::new(Fleet::new(&placement, DEFAULT_PORT, timeouts));
        Client { fleet, placement, who: own_name() }
    }

    /// Returns the client, which says to be somebody else than `user@host:pid`, or nobody if the name is empty. What cannot be sent
    /// is left out, and what is behind 64 characters.
    pub fn named(self, who: &str) -> Self {
        Client { who: sendable(who, MAX_WHO), ..self }
    }

    /// Asks for a lock in the pool `key`, and waits until there is an outcome.
    ///
    /// The servers are asked in the order of the placement until one answers. When the server is lost during the wait, so
    /// are its pools: the next one is asked, for the rest of the timeout. (A timeout in whole seconds has its rest rounded
    /// up to these.)
    ///
    /// A space in the key goes over the wire as `%20`; the placement sees the key as it is.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for an empty key or one with a line feed, a carriage return or a NUL; [`Error::Unavailable`],
    /// [`Error::LockHeld`] or [`Error::Refused`].
    pub fn acquire(&self, purpose: Purpose, key: impl AsRef<[u8]>, limits: &Limits) -> Result<Outcome<'_>, Error> {
        self.acquire_watched(purpose, key, limits, |_| {})
    }

    /// The same, for a caller that shows that it waits: `watch` is called each second with the time since the call. The client is
    /// busy meanwhile: what uses it, or one of its locks, panics in there.
    ///
    /// # Errors
    ///
    /// Those of [`Client::acquire`].
    pub fn acquire_watched(
        &self,
        purpose: Purpose,
        key: impl AsRef<[u8]>,
        limits: &Limits,
        watch: impl FnMut(Duration),
    ) -> Result<Outcome<'_>, Error> {
        self.acquire_several(purpose, key, limits, &[], watch)
    }

    /// The same, for a lock under further keys as well, four at most: all of them or none, and none is held while another is waited
    /// for. So work can be limited by its kind and by its user at once. The purpose and the rest of the limits are about the first
    /// key, which is also the one that the placement sees: with several servers, each counts for itself what it has granted under a
    /// further key. The C daemon does not know of further keys, and grants the first.
    ///
    /// # Errors
    ///
    /// Those of [`Client::acquire`], for each key; [`Error::BadName`] also for too many keys.
    pub fn acquire_several(
        &self,
        purpose: Purpose,
        key: impl AsRef<[u8]>,
        limits: &Limits,
        also: &[KeyLimits<'_>],
        mut watch: impl FnMut(Duration),
    ) -> Result<Outcome<'_>, Error> {
        let order = self.placement.order(key.as_ref());
        let key = escape_key(key.as_ref()).ok_or(Error::BadName)?;
        let names = also.iter().map(|other| escape_key(other.key));
        let names: Vec<_> = names.collect::<Option<_>>().ok_or(Error::BadName)?;
        let also: Vec<_> = also.iter().zip(&names).map(|(other, key)| KeyLimits { key, ..*other }).collect();
        if also.len() > MOST_LIMITS {
            return Err(Error::BadName);
        }
        let begun = Instant::now();
        let (outcome, held) = self.fleet.borrow_mut().ask_first(&order, |connection| {
            let timeout = remaining(limits.timeout, begun.elapsed());
            connection.send(&limits.request(purpose, &key, timeout, &self.who, &also), timeout)?;
            outcome_of(&connection.line_with_progress(&mut || watch(begun.elapsed()))?)
        })?;
        let locked = || Outcome::Locked(Lock { client: self, held: Some(held), key: key.to_vec() });
        Ok(outcome?.unwrap_or_else(locked))
    }

    /// Returns the statistics of each server, by its address.
    pub fn stats(&self) -> Vec<(String, Result<Figures<Stat>, Failure>)> {
        self.fleet.borrow_mut().ask_each(read_stats)
    }

    /// Returns what each server answers to `STATS` with these words, by its address: the lines as they are, but for the empty one
    /// that ends a list.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for words that a server does not know, and [`Error::BadName`] for what cannot be sent.
    pub fn query(&self, words: impl AsRef<[u8]>) -> Vec<(String, Result<Lines, Failure>)> {
        let words = words.as_ref();
        let is_sendable = !words.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0));
        self.fleet.borrow_mut().ask_each(|connection| match is_sendable {
            true => read_lines(connection, words),
            false => Ok(Err(Error::BadName)),
        })
    }

    /// Returns who holds a lock in the pool `key`, oldest first, and then who waits for one, in the order of service. The first
    /// server of the placement that answers is asked.
    ///
    /// # Errors
    ///
    /// Those of [`Client::acquire`]; [`Error::Refused`] from the C daemon, which cannot tell.
    pub fn claims(&self, key: impl AsRef<[u8]>) -> Result<Vec<ToldClaim>, Error> {
        let order = self.placement.order(key.as_ref());
        let words = holders_of(key.as_ref())?;
        let (claims, _) = self.fleet.borrow_mut().ask_first(&order, |connection| read_claims(connection, &words))?;
        claims
    }

    /// The same of each server, by its address.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`].
    pub fn claims_of_each(&self, key: impl AsRef<[u8]>) -> Result<RowsOfEach<ToldClaim>, Error> {
        let words = holders_of(key.as_ref())?;
        Ok(self.fleet.borrow_mut().ask_each(|connection| read_claims(connection, &words)))
    }

    fn release(&self, held: HeldOn, key: &[u8]) -> Result<(), Error> {
        let mut request = Vec::new();
        wire::write_release(&mut request, key);
        self.fleet.borrow_mut().ask_holder(held, |connection| {
            connection.send(&request, Duration::ZERO)?;
            let line = connection.line()?;
            match wire::parse_reply(&line) {
                Some(Reply::Released) => Ok(Ok(())),
                Some(Reply::NotLocked) => Ok(Err(Error::Expired)),
                _ => refusal(&line),
            }
        })?
    }
}

impl Limits {
    fn request(&self, purpose: Purpose, key: &[u8], timeout: Duration, who: &str, also: &[KeyLimits<'_>]) -> Vec<u8> {
        let Limits { workers, max_queue, hold, .. } = *self;
        let who = who.as_bytes();
        let (timeout, hold) = (timeout.into(), hold.map_or(Span::FOREVER, Span::from));
        let mut request = Vec::new();
        let also = also.to_vec();
        wire::write_acquire(&mut request, &AcquireLock { key, purpose, workers, max_queue, timeout, hold, who, also });
        request
    }
}

impl Lock<'_> {
    /// Releases the lock. Succeeds when it was held until now.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::Expired`] when another client may have held the lock, too, and done the same work.
    pub fn release(mut self) -> Result<(), Error> {
        let held = self.held.take().ok_or(Error::Lost)?;
        self.client.release(held, &self.key)
    }

    /// Releases the lock by closing the connection: the work was not done. Clients that wait with [`Purpose::Anyone`] are not
    /// told that it is, but get the lock in turn. What else is held on this connection is released, too.
    pub fn abandon(mut self) {
        if let Some(held) = self.held.take() {
            self.client.fleet.borrow_mut().close(held);
        }
    }

    /// Returns true when the connection, and so the lock, is lost. Does not wait, and so does not notice that the longest time to
    /// hold it is over, or that the server's machine has just died.
    pub fn is_lost(&self) -> bool {
        self.held.is_none_or(|held| self.client.fleet.borrow().is_lost(held))
    }

    /// Returns the descriptor of the connection, if there still is one: it is readable when the connection may be lost.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.client.fleet.borrow().descriptor(self.held?)
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // If this fails the connection is closed, so the lock is released in any case.
            let _ = self.client.release(held, &self.key);
        }
    }
}

/// Returns what is left of a timeout: in whole seconds, rounded up, if the timeout is in whole seconds.
fn remaining(timeout: Duration, elapsed: Duration) -> Duration {
    let rest = timeout.saturating_sub(elapsed);
    match (timeout.subsec_nanos(), rest.subsec_nanos()) {
        (0, 1..) => Duration::from_secs(rest.as_secs() + 1),
        _ => rest,
    }
}

/// Returns the outcome in the answer to an acquire; None is a lock.
fn outcome_of(line: &[u8]) -> Said<Option<Outcome<'static>>> {
    Ok(Ok(match wire::parse_reply(line) {
        Some(Reply::Locked) => None,
        Some(Reply::Done) => Some(Outcome::Done),
        Some(Reply::QueueFull) => Some(Outcome::QueueFull),
        Some(Reply::Timeout) => Some(Outcome::Timeout),
        Some(Reply::LockHeld) => return Ok(Err(Error::LockHeld)),
        _ => return refusal(line),
    }))
}

/// Returns the server's refusal, if the line is one.
fn refusal<T>(line: &[u8]) -> Said<T> {
    let words = wire::parse_error(line).ok_or(Fault::Garbled)?;
    Ok(Err(Error::Refused(String::from_utf8_lossy(words).into_owned())))
}

fn read_stats(connection: &mut ClientConnection) -> Result<Figures<Stat>, Fault> {
    connection.send(wire::STATS_FULL, Duration::ZERO)?;
    let mut figures = Figures::default();
    for _ in 0..MOST_LINES {
        let line = connection.line()?;
        if line.is_empty() {
            return Ok(figures);
        }
        if wire::parse_error(&line).is_some() {
            break;
        }
        if let Some((stat, value)) = wire::parse_figure(&line) {
            figures.set(stat, value);
        }
    }
    Err(Fault::Garbled)
}

/// Returns the words that ask who has the claims on a key.
fn holders_of(key: &[u8]) -> Result<Vec<u8>, Error> {
    let key = escape_key(key).ok_or(Error::BadName)?;
    Ok([b"HOLDERS ", &*key].concat())
}

fn read_claims(connection: &mut ClientConnection, words: &[u8]) -> Result<Rows<ToldClaim>, Fault> {
    let lines = read_lines(connection, words)?;
    Ok(lines.map(|lines| lines.iter().filter_map(|line| wire::parse_claim(line)).collect()))
}

fn read_lines(connection: &mut ClientConnection, words: &[u8]) -> Result<Lines, Fault> {
    connection.send(&[b"STATS ", words, b"\n"].concat(), Duration::ZERO)?;
    let first = connection.line_or(wire::WRONG_STAT_UNENDED)?;
    if wire::parse_error(&first).is_some() {
        return refusal(&first);
    }
    let mut lines = vec![first];
    if !wire::is_list(words) {
        return Ok(Ok(lines));
    }
    for _ in 0..MOST_LINES {
        if lines.pop_if(|last| last.is_empty()).is_some() {
            return Ok(Ok(lines));
        }
        lines.push(connection.line()?);
    }
    Err(Fault::Garbled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_timeout_has_its_unit() {
        let ms = Duration::from_millis;
        for (timeout, elapsed, rest) in [
            (5_000, 0, 5_000),
            (5_000, 1, 5_000),
            (5_000, 4_001, 1_000),
            (5_000, 4_000, 1_000),
            (5_000, 5_000, 0),
            (5_000, 6_000, 0),
            (0, 1, 0),
            (1_500, 1, 1_499),
            (1_500, 2_000, 0),
        ] {
            assert_eq!(remaining(ms(timeout), ms(elapsed)), ms(rest), "{elapsed} of {timeout} ms");
        }
        assert_eq!(remaining(Duration::MAX, ms(1)), Duration::MAX - ms(1));
    }
}
