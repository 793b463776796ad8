//! Members of pools: the consumer's side of the members protocol.

pub(super) mod exchange;
mod member;
mod operator;

pub use member::{LeaseToken, Member, MemberLoss};
pub use operator::Operator;

use super::Timeouts;
use super::error::{Error, Failure, Fault};
use super::fleet::{Fleet, Greeting, HeldOn};
use super::placement::Placement;
use exchange::{
    TakeAnswer, ask, ask_figures, ask_line, pool_request, read_done, read_list, read_taken, sendable_attributes,
};
use poolcounter_protocol::members::pool_settings::Filter;
use poolcounter_protocol::members::request::{
    Condition, From as Source, LeaseName, Lost, NoMembers, Request, Take, Taken,
};
use poolcounter_protocol::members::wire::client::{
    self as wire, Figures, ListedMember, ListedPool, ListedWaiter, Notice, Reply,
};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Where a server listens that is named without a port.
pub(super) const DEFAULT_PORT: u16 = 7532;
/// A member may be checked before it is handed out, even to a take that does not wait. The server answers within its
/// `check_timeout`, which is 5 seconds unless its operator has chosen otherwise.
const CHECK: Duration = Duration::from_secs(6);

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
    held: HeldOn,
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

impl Members {
    /// A client that asks for each pool or group the servers in this order. It connects when it is first used.
    pub fn new(placement: impl Into<Placement>) -> Self {
        Members::with(placement, Timeouts::default())
    }

    /// A client with other timeouts.
    pub fn with(placement: impl Into<Placement>, timeouts: Timeouts) -> Self {
        let placement = placement.into();
        let fleet = RefCell::new(Fleet::new(&placement, DEFAULT_PORT, timeouts));
        Members { fleet, placement, leases: RefCell::default() }
    }

    /// The same client under a name: who looks at a pool sees it as the holder of what is taken from now on, in place of an
    /// address. It is told to each server when a connection is made.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for one that cannot be sent.
    pub fn named(self, name: impl AsRef<[u8]>) -> Result<Self, Error> {
        let name = wire::escape_name(name.as_ref()).ok_or(Error::BadName)?;
        let mut request = Vec::new();
        wire::write_request(&mut request, &Request::Identify { name: &name });
        self.fleet.borrow_mut().greet(Greeting { request, answer: b"OK" });
        Ok(self)
    }

    /// What operators may ask for.
    pub fn operator(&self) -> Operator<'_> {
        Operator::of(self)
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

    /// Takes members of that pool of a group which has the most free ones, or else of the first to have enough. A group is of one
    /// server: where several share the pools, it is that of the group's name, and only its pools are looked at.
    ///
    /// # Errors
    ///
    /// Those of [`Members::take`].
    pub fn take_from_group(&self, group: impl AsRef<[u8]>, wanted: &Wanted) -> Result<TakeOutcome<'_>, Error> {
        self.take_from_group_watched(group, wanted, |_| {})
    }

    /// The same, for whoever shows that it waits, as [`Members::take_watched`].
    ///
    /// # Errors
    ///
    /// Those of [`Members::take`].
    pub fn take_from_group_watched(
        &self,
        group: impl AsRef<[u8]>,
        wanted: &Wanted,
        watch: impl FnMut(Duration),
    ) -> Result<TakeOutcome<'_>, Error> {
        self.take_from(Source::Group(group.as_ref()), wanted, watch)
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
            TakeAnswer::Taken(taken) => {
                let member = |taken| self.guard(held, taken, wanted.lease, sent);
                TakeOutcome::Taken(taken.into_iter().map(member).collect())
            }
            TakeAnswer::NoMembers(reason) => TakeOutcome::NoMembers(reason),
            TakeAnswer::QueueFull => TakeOutcome::QueueFull,
            TakeAnswer::Limit => TakeOutcome::Limit,
        })
    }

    fn guard(&self, held: HeldOn, taken: Taken, lease: Option<Duration>, sent: Instant) -> Member<'_> {
        self.leases.borrow_mut().push(Lease { held, number: taken.lease, lost: None });
        Member::new(self, held, taken, lease.map(|lease| (lease, sent)))
    }

    /// Has a lease last for `span` from now on, or as long as it was asked for. It is one of `pool`, or of a group that is named
    /// instead.
    ///
    /// # Errors
    ///
    /// [`Error::NotTaken`] when there is no such lease, and those of [`Members::take`].
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
        let mut bytes = Vec::new();
        wire::write_request(&mut bytes, request);
        self.ask_server_of(pool, &bytes, success)
    }

    /// Asks the server of a pool or group something that it does at once.
    fn ask_server_of(&self, pool: &[u8], request: &[u8], success: &Reply<'_>) -> Result<(), Error> {
        let mut notices = Vec::new();
        let (done, held) = self.fleet.borrow_mut().ask_first(&self.placement.order(pool), |connection| {
            notices.clear();
            read_done(&ask_line(connection, request, Duration::ZERO, &mut || {}, &mut notices)?, success)
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
        Ok(self.list(&pool_request("MEMBERS", &pool), wire::parse_member))
    }

    /// The waiters of a pool at each server, by its address, in the order in which they are served.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for a name that cannot be sent.
    pub fn waiters(&self, pool: impl AsRef<[u8]>) -> Result<RowsOfEach<ListedWaiter>, Error> {
        let pool = wire::escape_name(pool.as_ref()).ok_or(Error::BadName)?;
        Ok(self.list(&pool_request("WAITERS", &pool), wire::parse_waiter))
    }

    /// Returns the figures of a pool at the server that is asked for its members.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; [`Error::Unavailable`]; [`Error::Refused`], for one with `NO_POOL`.
    pub fn utilization(&self, pool: impl AsRef<[u8]>) -> Result<Figures, Error> {
        let pool = pool.as_ref();
        let request = pool_request("UTILIZATION", &wire::escape_name(pool).ok_or(Error::BadName)?);
        let mut notices = Vec::new();
        let (figures, held) = self.fleet.borrow_mut().ask_first(&self.placement.order(pool), |connection| {
            notices.clear();
            match ask_figures(connection, &request, &mut notices)? {
                Ok(line) => wire::parse_utilization(&line).ok_or(Fault::Garbled).map(Ok),
                Err(error) => Ok(Err(error)),
            }
        })?;
        self.note(held, notices);
        figures
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
    fn note(&self, held: HeldOn, notices: Vec<Notice>) {
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
