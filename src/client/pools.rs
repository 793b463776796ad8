//! Client of the PoolCounter protocol: locks in pools.

use super::connection::{ClientConnection, Probe};
use super::error::{Error, Fault, Stop};
use super::fleet::{Fleet, HeldOn};
use super::placement::Placement;
use super::who::{own_name, sendable};
use super::{OfEach, Said, Timeouts};
use poolcounter_core::{Figures, Span};
use poolcounter_protocol::line::escape_key;
use poolcounter_protocol::pools::DEFAULT_PORT;
use poolcounter_protocol::pools::request::{AcquireLock, KeyLimits, MOST_LIMITS, Purpose, Reply};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use poolcounter_protocol::pools::wire::MAX_WHO;
use poolcounter_protocol::pools::wire::client as wire;
pub use poolcounter_protocol::pools::wire::client::ListedClaim;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Probe of a server at which a request waits. The client may lack the right to it, which is a reply, too.
const PROBE: Probe = Probe { request: b"STATS UPTIME\n", is_reply: |line| wire::parse_reply(line).is_none() };

/// Client of one or several servers, with at most one connection to each.
///
/// Its methods take `&self`, and a [`Lock`] borrows the client: locks nest, on one connection where their keys have the
/// same server, and no lock outlives its client. A client can move between threads but not be shared by them, because
/// it blocks while it waits for a lock. Use one client per thread.
#[derive(Debug)]
pub struct Client {
    fleet: RefCell<Fleet>,
    placement: Placement,
    who: String,
}

/// Limits of one kind of work. All clients that share a key should use the same limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Number of clients that may hold a lock at a time. At least 1.
    pub workers: u32,
    /// Number of clients that may hold a lock or wait for one. At least 1.
    pub max_queue: u32,
    /// Time limit of the wait. The C daemon supports only whole seconds.
    pub timeout: Duration,
    /// Time limit of a lock before the server revokes it; None or zero for no limit. The C daemon does not support it.
    pub hold: Option<Duration>,
    /// Least time for which the server keeps the key occupied from the grant on, also after the lock is released or
    /// lost; zero for none. So the work is done at most once in that time. It cannot be longer than the hold, and not
    /// be used with further keys. The C daemon does not support it.
    pub at_least: Duration,
}

/// Result of an acquire.
#[derive(Debug)]
#[must_use = "a lock that is dropped is released"]
pub enum Outcome<'a> {
    /// The lock is held: do the work.
    Locked(Lock<'a>),
    /// Another client has finished the work during the wait: read its result. Only for [`Purpose::Anyone`].
    Done,
    /// The queue of the pool is full.
    QueueFull,
    /// No lock became free in time.
    Timeout,
}

/// Lock in a pool. Released on drop, and by the server when the connection or the process ends.
///
/// Locks can be released in any order, except with the C daemon: it always releases the newest of the connection,
/// whatever the key. With it, release the newest first, as the compiler does at the end of a block.
#[derive(Debug)]
#[must_use = "a lock that is dropped is released"]
pub struct Lock<'a> {
    client: &'a Client,
    /// None after the release.
    held: Option<HeldOn>,
    /// Key in its escaped form.
    key: Vec<u8>,
    /// True once the server has reported that it took the lock.
    is_taken_back: Cell<bool>,
}

/// Reason for which a lock is no longer held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockLoss {
    /// The server has reported that it took the lock: for an operator, or because of a limit of the time to hold it.
    TakenBack,
    /// The connection is gone.
    Connection,
}

impl Client {
    /// Returns a client that tries the servers in the order that `placement` gives for each key. Connects on first use.
    pub fn new(placement: impl Into<Placement>) -> Self {
        Client::with(placement, Timeouts::default())
    }

    /// Returns a client with other timeouts.
    pub fn with(placement: impl Into<Placement>, timeouts: Timeouts) -> Self {
        let placement = placement.into();
        let fleet = RefCell::new(Fleet::new(&placement, DEFAULT_PORT, timeouts));
        Client { fleet, placement, who: own_name() }
    }

    /// Sets the `who=` field (default `user@host:pid`; empty: none). A space is sent as `%20`, control characters are
    /// left out, and it is cut at 64 bytes.
    pub fn named(self, who: &str) -> Self {
        Client { who: sendable(who, MAX_WHO), ..self }
    }

    /// Requests a lock in the pool `key`, and waits for the outcome.
    ///
    /// Tries the servers in the order of the placement until one replies. If the connection is lost during the wait,
    /// the server's locks are lost with it: the next server is asked, with the rest of the timeout (rounded up to whole
    /// seconds if the timeout is in whole seconds).
    ///
    /// A space in the key is sent as `%20`; the placement uses the key as given.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for an empty key, or a key with a line feed, a carriage return or a NUL;
    /// [`Error::Unavailable`], [`Error::LockHeld`] or [`Error::Refused`].
    pub fn acquire(&self, purpose: Purpose, key: impl AsRef<[u8]>, limits: &Limits) -> Result<Outcome<'_>, Error> {
        self.acquire_several(purpose, key, limits, &[], |_| {})
    }

    /// Acquires like [`Client::acquire`], under up to four further keys as well: all of them or none, and none is held
    /// during the wait for another. So work can be limited by its kind and by its user at once. The purpose and the other
    /// limits apply to the first key, which also determines the server: with several servers, each counts a further key
    /// for itself. The C daemon ignores further keys.
    ///
    /// Calls `watch` every second of the wait with the time since the call. Using the client or one of its locks in
    /// `watch` panics.
    ///
    /// # Errors
    ///
    /// The errors of [`Client::acquire`], for each key; [`Error::BadName`] also for too many keys.
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
            outcome_of(&connection.awaited_line(PROBE, &mut || watch(begun.elapsed()))?)
        })?;
        let is_taken_back = Cell::new(false);
        let locked = || Outcome::Locked(Lock { client: self, held: Some(held), key: key.to_vec(), is_taken_back });
        Ok(outcome.unwrap_or_else(locked))
    }

    /// Returns the statistics of each server, by its address.
    pub fn stats(&self) -> OfEach<Figures<Stat>> {
        self.fleet.borrow_mut().ask_each(read_stats)
    }

    /// Returns the reply of each server to `STATS` with these words, by its address: the lines as sent, without the
    /// empty line that ends a list.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for words unknown to a server, and [`Error::BadName`] for a line feed, a carriage return or a
    /// NUL.
    pub fn query(&self, words: impl AsRef<[u8]>) -> OfEach<Vec<Vec<u8>>> {
        let words = words.as_ref();
        let is_sendable = !words.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0));
        self.fleet.borrow_mut().ask_each(|connection| match is_sendable {
            true => read_lines(connection, words),
            false => Err(Error::BadName.into()),
        })
    }

    /// Returns the holders of locks in the pool `key`, oldest first, followed by the waiters in the order of service,
    /// at the first server of the placement that replies.
    ///
    /// # Errors
    ///
    /// The errors of [`Client::acquire`]; [`Error::Refused`] from the C daemon, which does not support it.
    pub fn claims(&self, key: impl AsRef<[u8]>) -> Result<Vec<ListedClaim>, Error> {
        let order = self.placement.order(key.as_ref());
        let words = holders_of(key.as_ref())?;
        let claims = self.fleet.borrow_mut().ask_first(&order, |connection| read_claims(connection, &words));
        Ok(claims?.0)
    }

    /// Returns the holders and waiters as [`Client::claims`] does, of each server by its address.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`].
    pub fn claims_of_each(&self, key: impl AsRef<[u8]>) -> Result<OfEach<Vec<ListedClaim>>, Error> {
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
                Some(Reply::Released) => Ok(()),
                Some(Reply::NotLocked) => Err(Error::Expired.into()),
                _ => Err(refusal(&line)),
            }
        })
    }
}

impl Limits {
    fn request(&self, purpose: Purpose, key: &[u8], timeout: Duration, who: &str, also: &[KeyLimits<'_>]) -> Vec<u8> {
        let Limits { workers, max_queue, hold, at_least, .. } = *self;
        let who = who.as_bytes();
        let (timeout, hold, keep) = (timeout.into(), hold.map_or(Span::FOREVER, Span::from), at_least.into());
        let mut request = Vec::new();
        let also = also.to_vec();
        let acquire = AcquireLock { key, purpose, workers, max_queue, timeout, hold, keep, who, also };
        wire::write_acquire(&mut request, &acquire);
        request
    }
}

impl Lock<'_> {
    /// Releases the lock. Succeeds if it was held until now.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::Expired`] if another client may have held the lock, too, and done the same work.
    pub fn release(mut self) -> Result<(), Error> {
        let held = self.held.take().ok_or(Error::Lost)?;
        if self.is_taken_back.get() {
            return Err(Error::Expired);
        }
        self.client.release(held, &self.key)
    }

    /// Releases the lock of unfinished work by closing the connection: waiters with [`Purpose::Anyone`] get the lock in
    /// turn instead of [`Outcome::Done`]. Releases all other locks on the connection, too.
    pub fn abandon(mut self) {
        if let Some(held) = self.held.take() {
            self.client.fleet.borrow_mut().close(held);
        }
    }

    /// Returns the reason of its loss, if it is lost. Does not wait, so it does not notice a crash of the server's
    /// machine until keepalive fails. The end of [`Limits::hold`] is for the caller to watch.
    pub fn loss(&self) -> Option<LockLoss> {
        let Some(held) = self.held else { return Some(LockLoss::Connection) };
        let mut fleet = self.client.fleet.borrow_mut();
        let (lines, is_open) = fleet.pending_lines(held);
        if lines.iter().any(|line| wire::parse_reply(line) == Some(Reply::NotLocked)) {
            self.is_taken_back.set(true);
        }
        if !lines.is_empty() {
            // The server sends nothing else unasked, and closes the connection.
            fleet.close(held);
        }
        match self.is_taken_back.get() {
            true => Some(LockLoss::TakenBack),
            false => (!is_open || !lines.is_empty()).then_some(LockLoss::Connection),
        }
    }

    /// Returns the descriptor of the connection, if it is open; it is readable when the connection may be lost.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.client.fleet.borrow().descriptor(self.held?)
    }
}

impl fmt::Display for LockLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockLoss::TakenBack => "an operator or a limit of the daemon took it",
            LockLoss::Connection => "the connection is gone",
        })
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            // A failure closes the connection, which releases the lock as well.
            let _ = self.client.release(held, &self.key);
        }
    }
}

/// Returns the rest of a timeout, rounded up to whole seconds if the timeout is in whole seconds.
fn remaining(timeout: Duration, elapsed: Duration) -> Duration {
    let rest = timeout.saturating_sub(elapsed);
    match (timeout.subsec_nanos(), rest.subsec_nanos()) {
        (0, 1..) => Duration::from_secs(rest.as_secs() + 1),
        _ => rest,
    }
}

/// Parses the reply to an acquire; None for a lock.
fn outcome_of(line: &[u8]) -> Said<Option<Outcome<'static>>> {
    Ok(match wire::parse_reply(line) {
        Some(Reply::Locked) => None,
        Some(Reply::Done) => Some(Outcome::Done),
        Some(Reply::QueueFull) => Some(Outcome::QueueFull),
        Some(Reply::Timeout) => Some(Outcome::Timeout),
        Some(Reply::LockHeld) => return Err(Error::LockHeld.into()),
        Some(Reply::Draining) => return Err(Fault::Draining.into()),
        _ => return Err(refusal(line)),
    })
}

/// Returns the server's refusal as an error; any other line is a fault.
fn refusal(line: &[u8]) -> Stop {
    wire::parse_error(line).map_or(Fault::Garbled.into(), Stop::refused)
}

fn read_stats(connection: &mut ClientConnection) -> Said<Figures<Stat>> {
    connection.send(wire::STATS_FULL, Duration::ZERO)?;
    let mut figures = Figures::default();
    loop {
        let line = connection.line()?;
        if line.is_empty() {
            return Ok(figures);
        }
        if wire::parse_error(&line).is_some() {
            return Err(refusal(&line));
        }
        if let Some((stat, value)) = wire::parse_figure(&line) {
            figures.set(stat, value);
        }
    }
}

/// Returns the words of `STATS` for the claims on a key.
fn holders_of(key: &[u8]) -> Result<Vec<u8>, Error> {
    let key = escape_key(key).ok_or(Error::BadName)?;
    Ok([b"HOLDERS ", &*key].concat())
}

fn read_claims(connection: &mut ClientConnection, words: &[u8]) -> Said<Vec<ListedClaim>> {
    Ok(read_lines(connection, words)?.iter().filter_map(|line| wire::parse_claim(line)).collect())
}

fn read_lines(connection: &mut ClientConnection, words: &[u8]) -> Said<Vec<Vec<u8>>> {
    connection.send(&[b"STATS ", words, b"\n"].concat(), Duration::ZERO)?;
    let first = connection.line_or(wire::WRONG_STAT_UNENDED)?;
    if wire::parse_error(&first).is_some() {
        return Err(refusal(&first));
    }
    let mut lines = vec![first];
    if !wire::is_list(words) {
        return Ok(lines);
    }
    loop {
        if lines.pop_if(|last| last.is_empty()).is_some() {
            return Ok(lines);
        }
        lines.push(connection.line()?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_of_a_timeout_has_its_unit() {
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
