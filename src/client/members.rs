//! Members of pools: the consumer's side of the members protocol.

use super::connection::Connection;
use super::error::{Error, Failure, Fault};
use super::fleet::{Fleet, Held};
use super::placement::Placement;
use super::{Said, Timeouts};
use crate::members::wire::asking::{self as wire, ListedMember, ListedPool, Notice, Reply};
use crate::members::{
    Attributes, Condition, Filter, From as Source, LeaseName, Lost, NoMembers, Request, Take, Taken, Token,
};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Where a server listens that is named without a port.
pub(super) const DEFAULT_PORT: u16 = 7532;
/// A member may be checked before it is handed out, even to a take that does not wait. The server answers within its
/// `check_timeout`, which is 5 seconds unless its operator has chosen otherwise.
const CHECK: Duration = Duration::from_secs(6);
/// A server has at most 2^20 members unless its operator has chosen otherwise. A list that is longer than ten times this is none.
const MOST_LISTED: usize = 10 << 20;

/// The rows of a list, or a refusal.
pub type Rows<T> = Result<Vec<T>, Error>;
/// The list of each server by its address, or what is wrong with the server.
pub type RowsOfEach<T> = Vec<(String, Result<Rows<T>, Failure>)>;

/// A client of the members of one or several servers. Servers, connections and threads are as with the
/// [`Client`](super::Client) of pools; the name of a pool or group takes the place of the key.
#[derive(Debug)]
pub struct Members {
    fleet: RefCell<Fleet>,
    placement: Placement,
    /// What is taken, and what became of it.
    leases: RefCell<Vec<Lease>>,
}

/// A lease of this client.
#[derive(Debug)]
struct Lease {
    held: Held,
    number: u64,
    /// Why it is lost, once the server has said so.
    lost: Option<Lost>,
}

/// What is wanted of a pool or group. The default is any one member, at once or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// How long to wait.
    pub timeout: Duration,
    /// Only members that have these attributes, as `(name, value)`.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Only the member of this name.
    pub member: Option<Vec<u8>>,
    /// So many members, all or none; None for one.
    pub count: Option<u32>,
    /// 0 to 9; waiters with a lower one are served first.
    pub priority: u8,
    /// How long the lease lasts, even without its connection, unless it is renewed; None for as long as the connection.
    pub lease: Option<Duration>,
}

/// What came of a take.
#[derive(Debug)]
#[must_use = "a member that is dropped is given back"]
pub enum TakeOutcome<'a> {
    /// The members, as many as were wanted.
    Taken(Vec<Member<'a>>),
    /// There are none.
    NoMembers(NoMembers),
    /// Too many wait already.
    QueueFull,
    /// The connection holds as many members of the pool as it may.
    Limit,
}

/// A member that is taken. When this is dropped it is given back: as it was, or as failed if the thread panics. What happens to
/// it when the connection or the process ends, is a setting of its pool; with a lease it stays taken until the lease runs out.
#[derive(Debug)]
#[must_use = "a member that is dropped is given back"]
pub struct Member<'a> {
    members: &'a Members,
    held: Held,
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
pub struct LeaseToken(Token);

impl Members {
    /// A client that asks for each pool or group the servers in this order. It connects when it is first used.
    pub fn new(placement: impl Into<Placement>) -> Self {
        Members::with(placement, Timeouts::default())
    }

    /// A client with other timeouts.
    pub fn with(placement: impl Into<Placement>, timeouts: Timeouts) -> Self {
        let placement = placement.into();
        let fleet = RefCell::new(Fleet::new(placement.servers(), DEFAULT_PORT, timeouts));
        Members { fleet, placement, leases: RefCell::default() }
    }

    /// Takes members of a pool, and waits for them as long as is wanted.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for a name or value that cannot be sent; [`Error::Unavailable`]; [`Error::Refused`], for one with
    /// `NO_POOL`, `NO_SUCH_MEMBER` or `TOO_MANY`.
    pub fn take(&self, pool: impl AsRef<[u8]>, wanted: &Wanted) -> Result<TakeOutcome<'_>, Error> {
        self.take_watched(pool, wanted, |_| {})
    }

    /// The same, for whoever shows that it waits: `watch` is called each second with the time since the call.
    ///
    /// # Errors
    ///
    /// Those of [`Members::take`].
    pub fn take_watched(
        &self,
        pool: impl AsRef<[u8]>,
        wanted: &Wanted,
        watch: impl FnMut(Duration),
    ) -> Result<TakeOutcome<'_>, Error> {
        self.take_from(Source::Pool(pool.as_ref()), wanted, watch)
    }

    /// Takes members of that pool of a group which has the most free ones, or else of the first to have enough.
    ///
    /// # Errors
    ///
    /// Those of [`Members::take`].
    pub fn take_from_group(&self, group: impl AsRef<[u8]>, wanted: &Wanted) -> Result<TakeOutcome<'_>, Error> {
        self.take_from(Source::Group(group.as_ref()), wanted, |_| {})
    }

    fn take_from(
        &self,
        source: Source<'_>,
        wanted: &Wanted,
        mut watch: impl FnMut(Duration),
    ) -> Result<TakeOutcome<'_>, Error> {
        let (Source::Pool(name) | Source::Group(name)) = source;
        let escaped = wire::escape_name(name).ok_or(Error::BadName)?;
        let from = match source {
            Source::Pool(_) => Source::Pool(&escaped),
            Source::Group(_) => Source::Group(&escaped),
        };
        let filter = wanted.filter()?;
        let (begun, mut notices, mut sent) = (Instant::now(), Vec::new(), Instant::now());
        let asked = self.fleet.borrow_mut().ask_first(&self.placement.order(name), |connection| {
            notices.clear();
            sent = Instant::now();
            let timeout = wanted.timeout.saturating_sub(begun.elapsed());
            let take = Request::Take(Take {
                from,
                timeout: timeout.into(),
                filter: filter.clone(),
                count: wanted.count,
                priority: wanted.priority,
                lease: wanted.lease.map(Into::into),
            });
            let wait = timeout.saturating_add(CHECK);
            let line = ask(connection, &take, wait, &mut || watch(begun.elapsed()), &mut notices)?;
            read_taken(connection, &line, wanted.count)
        });
        let (answer, held) = asked?;
        self.note(held, notices);
        Ok(match answer? {
            Verdict::Taken(taken) => {
                let member = |taken| self.guard(held, taken, wanted.lease, sent);
                TakeOutcome::Taken(taken.into_iter().map(member).collect())
            }
            Verdict::NoMembers(reason) => TakeOutcome::NoMembers(reason),
            Verdict::QueueFull => TakeOutcome::QueueFull,
            Verdict::Limit => TakeOutcome::Limit,
        })
    }

    fn guard(&self, held: Held, taken: Taken, lease: Option<Duration>, sent: Instant) -> Member<'_> {
        self.leases.borrow_mut().push(Lease { held, number: taken.lease, lost: None });
        let until = Cell::new(lease.and_then(|lease| sent.checked_add(lease)));
        Member { members: self, held, taken, is_taken: true, lease, until }
    }

    /// Has a lease last for `span` from now on, or as long as it was asked for. It is one of `pool`, or of a group that is named
    /// instead.
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] when there is no such lease, and those of [`Members::take`].
    pub fn renew(&self, pool: impl AsRef<[u8]>, token: LeaseToken, span: Option<Duration>) -> Result<(), Error> {
        let request = Request::Renew { token: token.0, span: span.map(Into::into) };
        self.ask_for_token(pool.as_ref(), &request, &Reply::Renewed)
    }

    /// Gives the member of a lease back, which is one of `pool`, or of a group that is named instead.
    ///
    /// # Errors
    ///
    /// Those of [`Members::renew`].
    pub fn give_back(&self, pool: impl AsRef<[u8]>, token: LeaseToken, condition: Condition) -> Result<(), Error> {
        let request = Request::Return { lease: LeaseName::Token(token.0), condition };
        self.ask_for_token(pool.as_ref(), &request, &Reply::Returned)
    }

    fn ask_for_token(&self, pool: &[u8], request: &Request<'_>, success: &Reply<'_>) -> Result<(), Error> {
        let mut notices = Vec::new();
        let (done, held) = self.fleet.borrow_mut().ask_first(&self.placement.order(pool), |connection| {
            notices.clear();
            read_done(&ask(connection, request, Duration::ZERO, &mut || {}, &mut notices)?, success)
        })?;
        self.note(held, notices);
        done
    }

    /// The pools of each server, by its address.
    pub fn pools(&self) -> RowsOfEach<ListedPool> {
        self.list(b"POOLS\n", wire::parse_pool)
    }

    /// The members of a pool at each server, by its address.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for a name that cannot be sent.
    pub fn members(&self, pool: impl AsRef<[u8]>) -> Result<RowsOfEach<ListedMember>, Error> {
        let pool = wire::escape_name(pool.as_ref()).ok_or(Error::BadName)?;
        Ok(self.list(&members_request(&pool), wire::parse_member))
    }

    fn list<T>(&self, request: &[u8], parse: fn(&[u8]) -> Option<T>) -> RowsOfEach<T> {
        let answers = self.fleet.borrow_mut().ask_each_on(|connection| {
            let mut notices = Vec::new();
            Ok((read_list(connection, request, parse, &mut notices)?, notices))
        });
        let noted = |(server, answer): (String, Result<_, Failure>)| {
            let rows = answer.map(|((rows, notices), held)| {
                self.note(held, notices);
                rows
            });
            (server, rows)
        };
        answers.into_iter().map(noted).collect()
    }

    /// Notes which leases of a connection are lost.
    fn note(&self, held: Held, notices: Vec<Notice>) {
        let mut leases = self.leases.borrow_mut();
        for notice in notices {
            let Notice::Lost(number, reason) = notice else { continue };
            let lease = leases.iter_mut().find(|lease| lease.held == held && lease.number == number);
            lease.into_iter().for_each(|lease| lease.lost = Some(reason));
        }
    }
}

impl Wanted {
    fn filter(&self) -> Result<Option<Box<Filter>>, Error> {
        let member = self.member.as_ref().map(|name| wire::escape_member(name).ok_or(Error::BadName)).transpose()?;
        let attributes = sendable_attributes(&self.attributes)?;
        let filter = Filter { member: member.map(|name| name.as_ref().into()), attributes };
        Ok((!filter.is_empty()).then(|| Box::new(filter)))
    }
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted { timeout: Duration::ZERO, attributes: Vec::new(), member: None, count: None, priority: 5, lease: None }
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
    /// [`Error::MemberLost`], [`Error::Lost`] or [`Error::Expired`] when somebody else may have had it too.
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
        let numbered = Request::Return { lease: LeaseName::Number(self.taken.lease), condition };
        let token = self.taken.token.map(LeaseName::Token);
        match (self.ask_holder(&numbered, &Reply::Returned), token) {
            (Err(Error::Lost), Some(lease)) => self.ask_anew(&Request::Return { lease, condition }, &Reply::Returned),
            (Err(Error::Expired), _) => Err(self.lost().map_or(Error::Expired, Error::MemberLost)),
            (answer, _) => answer,
        }
    }

    /// Has its lease last for as long as it was asked for, from now on. Without a lease there is nothing to renew.
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] when the member is lost; [`Error::Unavailable`].
    pub fn renew(&self) -> Result<(), Error> {
        let (Some(token), Some(lease)) = (self.taken.token, self.lease) else { return Ok(()) };
        let (request, sent) = (Request::Renew { token, span: Some(lease.into()) }, Instant::now());
        let renewed = match self.ask_holder(&request, &Reply::Renewed) {
            Err(Error::Lost) => self.ask_anew(&request, &Reply::Renewed),
            answer => answer,
        };
        match renewed {
            Ok(()) => self.until.set(sent.checked_add(lease)),
            Err(Error::Expired) => self.set_lost(Lost::Expired),
            Err(_) => {}
        }
        renewed
    }

    /// Why it is lost, if it is. Reads what the server has said meanwhile; does not wait, and so does not notice that the server's
    /// machine has just died.
    pub fn loss(&self) -> Option<MemberLoss> {
        if self.lost().is_none() {
            let lines = self.members.fleet.borrow_mut().pending_lines(self.held);
            let Some(lines) = lines else {
                return match self.until.get() {
                    None => Some(MemberLoss::Connection),
                    Some(until) => (until <= Instant::now()).then_some(MemberLoss::Expired),
                };
            };
            self.members.note(self.held, lines.iter().filter_map(|line| wire::parse_notice(line)).collect());
        }
        self.lost().map(MemberLoss::Told)
    }

    /// When its lease runs out unless it is renewed, if it has one that does.
    pub fn expiry(&self) -> Option<Instant> {
        self.until.get()
    }

    /// The descriptor of the connection, if there still is one: it is readable when there is news of the member.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.members.fleet.borrow().descriptor(self.held)
    }

    fn ask_holder(&self, request: &Request<'_>, success: &Reply<'_>) -> Result<(), Error> {
        let mut notices = Vec::new();
        let answer = self.members.fleet.borrow_mut().ask_holder(self.held, |connection| {
            read_done(&ask(connection, request, Duration::ZERO, &mut || {}, &mut notices)?, success)
        });
        self.members.note(self.held, notices);
        answer?
    }

    /// Asks the same server on another connection, as this one is gone.
    fn ask_anew(&self, request: &Request<'_>, success: &Reply<'_>) -> Result<(), Error> {
        let ((answer, notices), held) = self.members.fleet.borrow_mut().ask_same_server(self.held, |connection| {
            let mut notices = Vec::new();
            let line = ask(connection, request, Duration::ZERO, &mut || {}, &mut notices)?;
            Ok((read_done(&line, success)?, notices))
        })?;
        self.members.note(held, notices);
        answer
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
        lease.held == self.held && lease.number == self.taken.lease
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

/// What a take came to.
enum Verdict {
    Taken(Vec<Taken>),
    NoMembers(NoMembers),
    QueueFull,
    Limit,
}

/// Sends a request, and returns the first line of its reply. Notices that come before it are collected.
pub(super) fn ask(
    connection: &mut Connection,
    request: &Request<'_>,
    wait: Duration,
    watch: &mut dyn FnMut(),
    notices: &mut Vec<Notice>,
) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    wire::write_request(&mut bytes, request);
    connection.send_amid_notices(&bytes, wait)?;
    read_reply(connection, watch, notices)
}

fn read_reply(
    connection: &mut Connection,
    watch: &mut dyn FnMut(),
    notices: &mut Vec<Notice>,
) -> Result<Vec<u8>, Fault> {
    loop {
        let line = connection.line_watched(watch)?;
        if !wire::is_notice(&line) {
            return Ok(line);
        }
        notices.extend(wire::parse_notice(&line));
    }
}

/// Reads a reply that can only be `success`, a refusal, or that there is no such lease.
pub(super) fn read_done(line: &[u8], success: &Reply<'_>) -> Said<()> {
    match wire::parse_reply(line) {
        Some(reply) if reply == *success => Ok(Ok(())),
        Some(Reply::NotTaken) => Ok(Err(Error::Expired)),
        Some(Reply::Error(words)) => Ok(Err(refused(words))),
        _ => Err(Fault::Garbled),
    }
}

fn read_taken(connection: &mut Connection, line: &[u8], count: Option<u32>) -> Said<Verdict> {
    Ok(Ok(match (wire::parse_reply(line), count) {
        (Some(Reply::Member(taken)), None) => Verdict::Taken(vec![taken]),
        (Some(Reply::Members(told)), Some(count)) if told == count => {
            let mut taken = Vec::new();
            for _ in 0..count {
                match wire::parse_reply(&connection.line()?) {
                    Some(Reply::Member(one)) => taken.push(one),
                    _ => return Err(Fault::Garbled),
                }
                connection.renew();
            }
            Verdict::Taken(taken)
        }
        (Some(Reply::NoMembers(reason)), _) => Verdict::NoMembers(reason),
        (Some(Reply::QueueFull), _) => Verdict::QueueFull,
        (Some(Reply::Limit), _) => Verdict::Limit,
        (Some(Reply::Error(words)), _) => return Ok(Err(refused(words))),
        _ => return Err(Fault::Garbled),
    }))
}

/// Sends the request for a list, and reads it up to the empty line at its end.
pub(super) fn read_list<T>(
    connection: &mut Connection,
    request: &[u8],
    parse: fn(&[u8]) -> Option<T>,
    notices: &mut Vec<Notice>,
) -> Said<Vec<T>> {
    connection.send_amid_notices(request, Duration::ZERO)?;
    let mut line = read_reply(connection, &mut || {}, notices)?;
    if let Some(Reply::Error(words)) = wire::parse_reply(&line) {
        return Ok(Err(refused(words)));
    }
    let mut rows = Vec::new();
    while rows.len() < MOST_LISTED {
        if line.is_empty() {
            return Ok(Ok(rows));
        }
        rows.push(parse(&line).ok_or(Fault::Garbled)?);
        connection.renew();
        line = connection.line()?;
    }
    Err(Fault::Garbled)
}

/// Returns the request for the members of a pool, whose name can be sent.
pub(super) fn members_request(pool: &[u8]) -> Vec<u8> {
    [b"MEMBERS ", pool, b"\n"].concat()
}

pub(super) fn sendable_attributes(attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<Attributes, Error> {
    let pair = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let (name, value) = (wire::escape_name(name)?, wire::escape_name(value)?);
        Some([&*name, b"=", &*value].concat())
    };
    let pairs: Option<Vec<Vec<u8>>> = attributes.iter().map(pair).collect();
    pairs.and_then(|pairs| wire::parse_attribute_list(&pairs.join(&b' '))).ok_or(Error::BadName)
}

fn refused(words: &[u8]) -> Error {
    Error::Refused(String::from_utf8_lossy(words).into_owned())
}
