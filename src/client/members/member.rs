//! Member that was taken, until its return.

use super::exchange::{ask, line_of, read_done};
use super::{Lease, Members};
use crate::error::Error;
use crate::fleet::HeldOn;
use poolcounter_protocol::members::request::{Condition, LeaseName, Lost, Request, Taken, Token};
use poolcounter_protocol::members::wire::client::{self as wire, Reply};
use std::cell::Cell;
use std::fmt;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Time for which a member whose connection was cut may be had back: the default of the server's `restart_grace`.
const GRACE: Duration = Duration::from_secs(60);

/// Member that was taken. On drop it is returned, as unchanged, or as failed during a panic. If the connection or the
/// process ends, a setting of the pool decides; with a lease it stays taken until the lease ends.
#[derive(Debug)]
#[must_use = "a member that is dropped is given back"]
pub struct Member<'a> {
    members: &'a Members,
    /// Connection to which the server assigns the lease; a renewal on another one moves it there.
    held: Cell<HeldOn>,
    taken: Taken,
    /// True until it is returned or kept.
    is_taken: bool,
    lease: Option<Duration>,
    /// End of the lease as known here, never later than the server's.
    until: Cell<Option<Instant>>,
    /// Time at which the cut of the connection was seen, of a lease without a duration that can be resumed.
    cut: Cell<Option<Instant>>,
    /// True once the server does not know such a lease any more.
    is_gone: Cell<bool>,
}

/// Reason for which a member is no longer held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberLoss {
    /// The server has reported it as lost.
    Reported(Lost),
    /// The connection is gone, and the member has no lease.
    Connection,
    /// The connection is gone, and the lease was not renewed in time.
    Expired,
}

/// Token of a lease, valid on any connection: 128 random bits, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseToken(pub(super) Token);

impl<'a> Member<'a> {
    /// Returns a member that was taken on this connection; `lease` is the duration of its lease and the time of the
    /// request.
    pub(super) fn new(members: &'a Members, held: HeldOn, taken: Taken, lease: Option<(Duration, Instant)>) -> Self {
        let until = Cell::new(lease.and_then(|(lease, sent)| sent.checked_add(lease)));
        let (lease, cut, is_gone) = (lease.map(|(lease, _)| lease), Cell::default(), Cell::default());
        Member { members, held: Cell::new(held), taken, is_taken: true, lease, until, cut, is_gone }
    }
}

impl Member<'_> {
    /// Returns the name of the member.
    pub fn name(&self) -> &[u8] {
        &self.taken.member
    }

    /// Returns the name of its pool.
    pub fn pool(&self) -> &[u8] {
        &self.taken.pool
    }

    /// Returns the number of its lease: unique, and higher than that of any earlier lease. The resource behind the
    /// member can use it as a fencing token and refuse lower numbers.
    pub fn lease(&self) -> u64 {
        self.taken.lease
    }

    /// Returns the token of its lease, if the lease outlives the connection.
    pub fn token(&self) -> Option<LeaseToken> {
        self.taken.token.filter(|_| self.lease.is_some()).map(LeaseToken)
    }

    /// Returns its attributes, as names and values.
    pub fn attributes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.taken.attributes.iter().flat_map(|pairs| pairs.iter()).map(|(name, value)| (&**name, &**value))
    }

    /// Returns the member to the pool. Succeeds if it was held until now.
    ///
    /// # Errors
    ///
    /// [`Error::MemberLost`], [`Error::Lost`] or [`Error::NotTaken`] if another client may have had it, too.
    pub fn give_back(mut self, condition: Condition) -> Result<(), Error> {
        self.is_taken = false;
        self.send_return(condition)
    }

    /// Leaves the member taken: from now on only its token returns it. Returns None, and returns the member, if it has
    /// no token.
    pub fn keep(mut self) -> Option<LeaseToken> {
        self.is_taken = self.token().is_none();
        self.token()
    }

    fn send_return(&self, condition: Condition) -> Result<(), Error> {
        if let (Some(reason), _) = self.reported() {
            return Err(Error::MemberLost(reason));
        }
        // The number is valid on one connection.
        let lease = self.taken.token.map_or(LeaseName::Number(self.taken.lease), LeaseName::Token);
        let returning = line_of(&Request::Return { lease, condition });
        let answer = match self.ask_holder(&returning, &Reply::Returned) {
            Err(Error::Lost) if self.taken.token.is_some() => self.ask_anew(&returning, &Reply::Returned).map(drop),
            answer => answer,
        };
        match answer {
            Err(Error::NotTaken) => Err(self.reported().0.map_or(Error::NotTaken, Error::MemberLost)),
            answer => answer,
        }
    }

    /// Renews the lease for its original duration from now on. A lease without a duration that can be resumed moves to
    /// another connection if its own was cut. Without either it does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::NotTaken`] if the member is lost; [`Error::Unavailable`].
    pub fn renew(&self) -> Result<(), Error> {
        let Some(token) = self.taken.token.filter(|_| self.lease.is_some() || self.descriptor().is_none()) else {
            return Ok(());
        };
        let sent = Instant::now();
        let request = line_of(&Request::Renew { token, span: self.lease.map(Into::into) });
        let renewed = match self.ask_holder(&request, &Reply::Renewed) {
            Err(Error::Lost) => self.ask_anew(&request, &Reply::Renewed).map(|held| {
                self.with_lease(|lease| lease.held = held);
                self.held.set(held);
            }),
            answer => answer,
        };
        match renewed {
            Ok(()) => {
                self.until.set(self.lease.and_then(|lease| sent.checked_add(lease)));
                self.cut.set(None);
            }
            Err(Error::NotTaken) if self.lease.is_none() => self.is_gone.set(true),
            Err(Error::NotTaken) => _ = self.with_lease(|lease| lease.lost = Some(Lost::Expired)),
            Err(_) => {}
        }
        renewed
    }

    /// Returns the reason of its loss, if it is lost. Reads pending notices of the server; does not wait, so a crash of
    /// the server's machine goes unnoticed until keepalive fails.
    pub fn loss(&self) -> Option<MemberLoss> {
        match (self.reported(), self.until.get()) {
            ((Some(reason), _), _) => Some(MemberLoss::Reported(reason)),
            ((None, true), _) => None,
            ((None, false), None) if self.taken.token.is_some() && !self.is_gone.get() => {
                let now = Instant::now();
                let cut = self.cut.get().unwrap_or(now);
                self.cut.set(Some(cut));
                (now.duration_since(cut) >= GRACE).then_some(MemberLoss::Connection)
            }
            ((None, false), None) => Some(MemberLoss::Connection),
            ((None, false), Some(until)) => (until <= Instant::now()).then_some(MemberLoss::Expired),
        }
    }

    /// Returns the operator who has taken it back, and the note, if there is one: `ann@desk: for a look`.
    pub fn taken_back_by(&self) -> Option<String> {
        let by = self.with_lease(|lease| lease.lost_by.clone())??;
        let [name, note] = [&by.name, &by.note].map(|text| String::from_utf8_lossy(text));
        Some(if note.is_empty() { name.into() } else { format!("{name}: {note}") })
    }

    /// Returns the end of its lease unless renewed, if it has one.
    pub fn expiry(&self) -> Option<Instant> {
        self.until.get()
    }

    /// Returns the descriptor of the connection, if it is open; it is readable when the server has sent notices. After
    /// [`Member::renew`] had to reconnect it is a different one, even if the number is the same.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.members.fleet.borrow().descriptor(self.held.get())
    }

    fn ask_holder(&self, request: &[u8], success: &Reply<'_>) -> Result<(), Error> {
        let ask = |connection: &mut _| read_done(&ask(connection, request)?, success);
        self.members.with_fleet(|fleet| fleet.ask_holder(self.held.get(), ask))
    }

    /// Sends a request to the same server on another connection, because the old one is gone, and returns the
    /// connection.
    fn ask_anew(&self, request: &[u8], success: &Reply<'_>) -> Result<HeldOn, Error> {
        let ask = |connection: &mut _| read_done(&ask(connection, request)?, success);
        Ok(self.members.with_fleet(|fleet| fleet.ask_first(&[self.held.get().server], ask))?.1)
    }

    /// Returns the reason of its loss, if the server has reported one, and whether the connection is open.
    fn reported(&self) -> (Option<Lost>, bool) {
        let (lines, is_open) = self.members.fleet.borrow_mut().pending_lines(self.held.get());
        self.members.note(self.held.get(), &lines);
        (self.with_lease(|lease| lease.lost).flatten(), is_open)
    }

    fn with_lease<T>(&self, call: impl FnOnce(&mut Lease) -> T) -> Option<T> {
        self.members.leases.borrow_mut().iter_mut().find(|lease| self.is(lease)).map(call)
    }

    fn is(&self, lease: &Lease) -> bool {
        lease.held == self.held.get() && lease.number == self.taken.lease
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            let condition = if std::thread::panicking() { Condition::Fail } else { Condition::Ok };
            // A failure closes the connection, and the server then returns the member by itself.
            let _ = self.send_return(condition);
        }
        self.members.leases.borrow_mut().retain(|lease| !self.is(lease));
    }
}

impl LeaseToken {
    /// Parses a token; None if it is invalid.
    pub fn parse(text: &str) -> Option<LeaseToken> {
        wire::read_token(text.as_bytes()).map(LeaseToken)
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for MemberLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemberLoss::Reported(reason) => wire::describe_loss(*reason),
            MemberLoss::Connection => "the connection is gone",
            MemberLoss::Expired => "the connection is gone and the lease was not renewed",
        })
    }
}
