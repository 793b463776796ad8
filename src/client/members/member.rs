//! A member that is taken, up to its return.

use super::exchange::{ask, read_done};
use super::{Lease, Members};
use crate::error::Error;
use crate::fleet::HeldOn;
use poolcounter_protocol::members::request::{Condition, LeaseName, Lost, Request, Taken, Token};
use poolcounter_protocol::members::wire::client::{self as wire, Reply};
use std::cell::Cell;
use std::fmt;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// A member that is taken. When this is dropped it is given back: as it was, or as failed if the thread panics. What happens to
/// it when the connection or the process ends, is a setting of its pool; with a lease it stays taken until the lease runs out.
#[derive(Debug)]
#[must_use = "a member that is dropped is given back"]
pub struct Member<'a> {
    members: &'a Members,
    /// The connection that the server counts the lease for: a renewal over another one moves it there.
    held: Cell<HeldOn>,
    taken: Taken,
    /// Whether it is to be given back.
    is_taken: bool,
    lease: Option<Duration>,
    /// When the lease runs out, as far as this side knows: not later than the server has it.
    until: Cell<Option<Instant>>,
}

/// Why a member that was taken is no longer held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberLoss {
    /// The server has said so.
    Told(Lost),
    /// The connection is gone, and there is no lease that outlives it.
    Connection,
    /// The connection is gone, and the lease was not renewed in time.
    Expired,
}

/// What names a lease to any connection that knows it: 128 random bits, written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseToken(pub(super) Token);

impl<'a> Member<'a> {
    /// A member that was taken on this connection, with the time of its lease and when that was asked for.
    pub(super) fn new(members: &'a Members, held: HeldOn, taken: Taken, lease: Option<(Duration, Instant)>) -> Self {
        let until = Cell::new(lease.and_then(|(lease, sent)| sent.checked_add(lease)));
        Member { members, held: Cell::new(held), taken, is_taken: true, lease: lease.map(|(lease, _)| lease), until }
    }
}

impl Member<'_> {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.taken.member
    }

    /// The pool that it belongs to.
    pub fn pool(&self) -> &[u8] {
        &self.taken.pool
    }

    /// The number of its lease: never used again, and higher than that of any lease before. What the member works on can refuse
    /// who comes with a lower one.
    pub fn lease(&self) -> u64 {
        self.taken.lease
    }

    /// What names its lease to other connections, if it was taken with one that outlives this connection.
    pub fn token(&self) -> Option<LeaseToken> {
        self.taken.token.map(LeaseToken)
    }

    /// Its attributes, as names and values.
    pub fn attributes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.taken.attributes.iter().flat_map(|pairs| pairs.iter()).map(|(name, value)| (&**name, &**value))
    }

    /// Gives it back, and tells whether it was held until now.
    ///
    /// # Errors
    ///
    /// [`Error::MemberLost`], [`Error::Lost`] or [`Error::NotTaken`] when somebody else may have had it too.
    pub fn give_back(mut self, condition: Condition) -> Result<(), Error> {
        self.is_taken = false;
        self.send_return(condition)
    }

    /// Leaves it taken: from now on only its token gives it back. None, and it is given back, if it has no token.
    pub fn keep(mut self) -> Option<LeaseToken> {
        self.is_taken = self.taken.token.is_none();
        self.token()
    }

    fn send_return(&self, condition: Condition) -> Result<(), Error> {
        if let Some(reason) = self.lost() {
            return Err(Error::MemberLost(reason));
        }
        // The number is good on one connection, and an older server keeps it where it was taken.
        let lease = self.taken.token.map_or(LeaseName::Number(self.taken.lease), LeaseName::Token);
        let returning = Request::Return { lease, condition };
        let answer = match self.ask_holder(&returning, &Reply::Returned) {
            Err(Error::Lost) if self.taken.token.is_some() => self.ask_anew(&returning, &Reply::Returned).map(drop),
            answer => answer,
        };
        match answer {
            Err(Error::NotTaken) => Err(self.lost().map_or(Error::NotTaken, Error::MemberLost)),
            answer => answer,
        }
    }

    /// Has its lease last for as long as it was asked for, from now on. Without a lease there is nothing to renew.
    ///
    /// # Errors
    ///
    /// [`Error::NotTaken`] when the member is lost; [`Error::Unavailable`].
    pub fn renew(&self) -> Result<(), Error> {
        let (Some(token), Some(lease)) = (self.taken.token, self.lease) else { return Ok(()) };
        let (request, sent) = (Request::Renew { token, span: Some(lease.into()) }, Instant::now());
        let renewed = match self.ask_holder(&request, &Reply::Renewed) {
            Err(Error::Lost) => self.ask_anew(&request, &Reply::Renewed).map(|held| self.move_to(held)),
            answer => answer,
        };
        match renewed {
            Ok(()) => self.until.set(sent.checked_add(lease)),
            Err(Error::NotTaken) => self.set_lost(Lost::Expired),
            Err(_) => {}
        }
        renewed
    }

    /// Why it is lost, if it is. Reads what the server has said meanwhile; does not wait, and so does not notice that the server's
    /// machine has just died.
    pub fn loss(&self) -> Option<MemberLoss> {
        if self.lost().is_none() {
            let lines = self.members.fleet.borrow_mut().pending_lines(self.held.get());
            let Some(lines) = lines else {
                return match self.until.get() {
                    None => Some(MemberLoss::Connection),
                    Some(until) => (until <= Instant::now()).then_some(MemberLoss::Expired),
                };
            };
            self.members.note(self.held.get(), lines.iter().filter_map(|line| wire::parse_notice(line)).collect());
        }
        self.lost().map(MemberLoss::Told)
    }

    /// When its lease runs out unless it is renewed, if it has one that does.
    pub fn expiry(&self) -> Option<Instant> {
        self.until.get()
    }

    /// The descriptor of the connection, if there still is one: it is readable when there is news of the member. It is another, even
    /// with the same number, once [`Member::renew`] had to connect anew.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.members.fleet.borrow().descriptor(self.held.get())
    }

    /// The number of that connection among those of this client.
    pub fn connection(&self) -> u64 {
        self.held.get().number()
    }

    fn ask_holder(&self, request: &Request<'_>, success: &Reply<'_>) -> Result<(), Error> {
        let mut notices = Vec::new();
        let answer = self.members.fleet.borrow_mut().ask_holder(self.held.get(), |connection| {
            read_done(&ask(connection, request, Duration::ZERO, &mut || {}, &mut notices)?, success)
        });
        self.members.note(self.held.get(), notices);
        answer?
    }

    /// Asks the same server on another connection, as this one is gone, and returns which.
    fn ask_anew(&self, request: &Request<'_>, success: &Reply<'_>) -> Result<HeldOn, Error> {
        let ((answer, notices), held) =
            self.members.fleet.borrow_mut().ask_same_server(self.held.get(), |connection| {
                let mut notices = Vec::new();
                let line = ask(connection, request, Duration::ZERO, &mut || {}, &mut notices)?;
                Ok((read_done(&line, success)?, notices))
            })?;
        self.members.note(held, notices);
        answer.map(|()| held)
    }

    fn move_to(&self, held: HeldOn) {
        let mut leases = self.members.leases.borrow_mut();
        leases.iter_mut().filter(|lease| self.is(lease)).for_each(|lease| lease.held = held);
        self.held.set(held);
    }

    fn lost(&self) -> Option<Lost> {
        let leases = self.members.leases.borrow();
        leases.iter().find(|lease| self.is(lease))?.lost
    }

    fn set_lost(&self, reason: Lost) {
        let mut leases = self.members.leases.borrow_mut();
        leases.iter_mut().filter(|lease| self.is(lease)).for_each(|lease| lease.lost = Some(reason));
    }

    fn is(&self, lease: &Lease) -> bool {
        lease.held == self.held.get() && lease.number == self.taken.lease
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            let condition = if std::thread::panicking() { Condition::Fail } else { Condition::Ok };
            // If this fails the connection is closed, and the server takes the member back by itself.
            let _ = self.send_return(condition);
        }
        self.members.leases.borrow_mut().retain(|lease| !self.is(lease));
    }
}

impl LeaseToken {
    /// Reads a token as it is written; None when it is none.
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
            MemberLoss::Told(reason) => wire::describe_loss(*reason),
            MemberLoss::Connection => "the connection is gone",
            MemberLoss::Expired => "the connection is gone and the lease was not renewed",
        })
    }
}
