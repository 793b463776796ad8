//! Client of the members protocol: takes and returns members of pools.

pub(super) mod exchange;
mod member;
mod operator;

pub use exchange::Offered;
pub use member::{LeaseToken, Member, MemberLoss};
pub use operator::Operator;

use super::connection::ClientConnection;
use super::error::{Error, Fault, Stop};
use super::fleet::{Fleet, HeldOn};
use super::placement::Placement;
use super::{OfEach, Said, Timeouts};
use exchange::{
    ask, ask_watched, line_of, pool_request, read_done, read_list, read_taken, sendable_attributes, sendable_member,
    sendable_name,
};
use poolcounter_protocol::members::DEFAULT_PORT;
use poolcounter_protocol::members::pool_settings::Filter;
use poolcounter_protocol::members::request::{
    Condition, From as Source, LeaseName, Lost, LostBy, NoMembers, Request, Take, Taken,
};
use poolcounter_protocol::members::wire::client::{
    self as wire, Figures, ListedHolder, ListedMember, ListedPool, ListedWaiter, Notice, Reply,
};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Extra wait for a check of the member before it is handed out, which even a take without timeout may need. The
/// server's `check_timeout` is 5 seconds by default.
const CHECK: Duration = Duration::from_secs(6);

/// Client of the members of one or several servers. Servers, connections and threads behave as with the
/// [`Client`](super::Client) of pools; the name of a pool or group takes the place of the key.
#[derive(Debug)]
pub struct Members {
    fleet: RefCell<Fleet>,
    placement: Placement,
    /// Current leases, with the loss of each.
    leases: RefCell<Vec<Lease>>,
}

/// Lease of this client.
#[derive(Debug)]
struct Lease {
    held: HeldOn,
    number: u64,
    /// Reason of its loss, once the server has reported one.
    lost: Option<Lost>,
    /// Operator who has taken it back.
    lost_by: Option<Box<LostBy>>,
}

/// Request for members of a pool or group. The default is any one member, without waiting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Time limit of the wait.
    pub timeout: Duration,
    /// Attributes that the members must have, as `(name, value)`.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Name of the member, if only that one will do.
    pub member: Option<Vec<u8>>,
    /// Number of members, all or none; None for one.
    pub count: Option<u32>,
    /// Priority, 0 to 9; waiters with a lower one are served first.
    pub priority: u8,
    /// Duration of the lease, renewable and independent of the connection; None: the lease ends with the connection.
    pub lease: Option<Duration>,
    /// True if a lease that ends with its connection is to survive a cut of the connection and a restart of the server:
    /// [`Member::renew`] moves it to another connection.
    pub resume: bool,
}

/// Result of a take.
#[derive(Debug)]
#[must_use = "a member that is dropped is given back"]
pub enum TakeOutcome<'a> {
    /// The members, as many as requested.
    Taken(Vec<Member<'a>>),
    /// No members are available.
    NoMembers(NoMembers),
    /// The queue of the pool is full.
    QueueFull,
    /// The connection holds as many members of the pool as the server allows.
    Limit,
}

impl Members {
    /// Returns a client that tries the servers in the order that `placement` gives for each pool or group. Connects on
    /// first use.
    pub fn new(placement: impl Into<Placement>) -> Self {
        Members::with(placement, Timeouts::default())
    }

    /// Returns a client with other timeouts.
    pub fn with(placement: impl Into<Placement>, timeouts: Timeouts) -> Self {
        let placement = placement.into();
        let fleet = RefCell::new(Fleet::new(&placement, DEFAULT_PORT, timeouts));
        Members { fleet, placement, leases: RefCell::default() }
    }

    /// Sets the name that lists show as the holder of members taken from now on, instead of an address. Sent to each
    /// server at the start of a connection.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for an invalid name.
    pub fn named(self, name: impl AsRef<[u8]>) -> Result<Self, Error> {
        let request = line_of(&Request::Identify { name: &sendable_name(name.as_ref())? });
        self.fleet.borrow_mut().greeting = Some((request, |line| match wire::parse_reply(line) {
            Some(Reply::Ok) => Ok(()),
            // The C daemon does not know the request.
            Some(Reply::Error(words)) if words != b"BAD_COMMAND" => {
                Err(Fault::Refused(String::from_utf8_lossy(words).into_owned()))
            }
            _ => Err(Fault::Garbled),
        }));
        Ok(self)
    }

    /// Returns the requests of operators.
    pub fn operator(&self) -> Operator<'_> {
        Operator::of(self)
    }

    /// Takes members of a pool, and waits for them up to the requested timeout.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for an invalid name or value; [`Error::BadArgument`] for attributes that no member can have;
    /// [`Error::Unavailable`]; [`Error::Refused`], for example with `NO_POOL`, `NO_SUCH_MEMBER` or `TOO_MANY`.
    pub fn take(&self, pool: impl AsRef<[u8]>, wanted: &Wanted) -> Result<TakeOutcome<'_>, Error> {
        self.take_from(Source::Pool(pool.as_ref()), wanted, |_| {})
    }

    /// Takes members like [`Members::take`], of a pool, or of the pool in a group that has the most free members, or else
    /// of the first pool in it that has enough. Only the pools of one server are considered: with several servers, the
    /// server that the placement gives for the group's name. Calls `watch` every second of the wait with the time since
    /// the call.
    ///
    /// # Errors
    ///
    /// The errors of [`Members::take`].
    pub fn take_from(
        &self,
        source: Source<'_>,
        wanted: &Wanted,
        mut watch: impl FnMut(Duration),
    ) -> Result<TakeOutcome<'_>, Error> {
        let (Source::Pool(name) | Source::Group(name)) = source;
        let escaped = sendable_name(name)?;
        let from = match source {
            Source::Pool(_) => Source::Pool(&escaped),
            Source::Group(_) => Source::Group(&escaped),
        };
        let filter = wanted.filter()?;
        let (begun, mut sent) = (Instant::now(), Instant::now());
        let (answer, held) = self.ask_server_of(name, |connection| {
            sent = Instant::now();
            let timeout = wanted.timeout.saturating_sub(begun.elapsed());
            let take = line_of(&Request::Take(Take {
                from,
                timeout: timeout.into(),
                filter: filter.clone(),
                count: wanted.count,
                priority: wanted.priority,
                lease: wanted.lease.or(wanted.resume.then_some(Duration::ZERO)).map(Into::into),
            }));
            let wait = timeout.saturating_add(CHECK);
            let line = ask_watched(connection, &take, wait, &mut || watch(begun.elapsed()))?;
            read_taken(connection, &line, wanted.count)
        })?;
        let member = |taken: Taken| {
            self.leases.borrow_mut().push(Lease { held, number: taken.lease, lost: None, lost_by: None });
            Member::new(self, held, taken, wanted.lease.map(|lease| (lease, sent)))
        };
        let taken = answer.map(|taken| TakeOutcome::Taken(taken.into_iter().map(member).collect()));
        Ok(taken.unwrap_or_else(|outcome| outcome))
    }

    /// Renews a lease for `span` from now on, or for its original duration. `pool` is its pool, or the group it was
    /// taken from.
    ///
    /// # Errors
    ///
    /// [`Error::NotTaken`] if the lease does not exist, and the errors of [`Members::take`].
    pub fn renew(&self, pool: impl AsRef<[u8]>, token: LeaseToken, span: Option<Duration>) -> Result<(), Error> {
        let request = line_of(&Request::Renew { token: token.0, span: span.map(Into::into) });
        self.ask_once(pool.as_ref(), &request, &Reply::Renewed)
    }

    /// Returns the member of a lease. `pool` is its pool, or the group it was taken from.
    ///
    /// # Errors
    ///
    /// The errors of [`Members::renew`].
    pub fn give_back(&self, pool: impl AsRef<[u8]>, token: LeaseToken, condition: Condition) -> Result<(), Error> {
        let request = line_of(&Request::Return { lease: LeaseName::Token(token.0), condition });
        self.ask_once(pool.as_ref(), &request, &Reply::Returned)
    }

    /// Asks the server of a pool or group, and returns the connection with its reply.
    fn ask_server_of<T>(
        &self,
        pool: &[u8],
        ask: impl FnMut(&mut ClientConnection) -> Said<T>,
    ) -> Result<(T, HeldOn), Error> {
        self.with_fleet(|fleet| fleet.ask_first(&self.placement.order(pool), ask))
    }

    /// Makes a request, and records the losses reported before its reply, so that no notices pile up.
    fn with_fleet<T>(&self, request: impl FnOnce(&mut Fleet) -> T) -> T {
        let mut fleet = self.fleet.borrow_mut();
        let answer = request(&mut fleet);
        fleet.notices().for_each(|(held, lines)| self.note(held, &lines));
        answer
    }

    /// Sends a request that needs no wait to the server of a pool or group.
    fn ask_once(&self, pool: &[u8], request: &[u8], success: &Reply<'_>) -> Result<(), Error> {
        self.ask_server_of(pool, |connection| read_done(&ask(connection, request)?, success)).map(|(done, _)| done)
    }

    /// Returns the pools of each server, by its address.
    pub fn pools(&self) -> OfEach<Vec<ListedPool>> {
        self.list(b"POOLS\n", wire::parse_pool)
    }

    /// Returns the members of a pool at each server, by its address.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for an invalid name.
    pub fn members(&self, pool: impl AsRef<[u8]>) -> Result<OfEach<Vec<ListedMember>>, Error> {
        Ok(self.list(&pool_request("MEMBERS", &sendable_name(pool.as_ref())?), wire::parse_member))
    }

    /// Returns the waiters of a pool at each server, by its address, in the order in which they are served.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for an invalid name.
    pub fn waiters(&self, pool: impl AsRef<[u8]>) -> Result<OfEach<Vec<ListedWaiter>>, Error> {
        Ok(self.list(&pool_request("WAITERS", &sendable_name(pool.as_ref())?), wire::parse_waiter))
    }

    /// Returns the figures of a pool at the server of the pool.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; [`Error::Unavailable`]; [`Error::Refused`], for example with `NO_POOL`.
    pub fn utilization(&self, pool: impl AsRef<[u8]>) -> Result<Figures, Error> {
        let pool = pool.as_ref();
        let request = pool_request("UTILIZATION", &sendable_name(pool)?);
        let figures = self.ask_server_of(pool, |connection| {
            let line = ask(connection, &request)?;
            match wire::parse_reply(&line) {
                Some(Reply::Error(words)) => Err(Stop::refused(words)),
                _ => Ok(wire::parse_utilization(&line).ok_or(Fault::Garbled)?),
            }
        });
        Ok(figures?.0)
    }

    fn list_at_server_of<T>(
        &self,
        pool: &[u8],
        request: &[u8],
        parse: fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        Ok(self.ask_server_of(pool, |connection| read_list(connection, request, parse))?.0)
    }

    /// Returns the last holders of a fixed member at the server of its pool, the last one first.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; [`Error::Unavailable`]; [`Error::Refused`], with `NO_POOL` or `NO_SUCH_MEMBER`.
    pub fn history(&self, pool: impl AsRef<[u8]>, member: impl AsRef<[u8]>) -> Result<Vec<ListedHolder>, Error> {
        let (name, member) = (sendable_name(pool.as_ref())?, sendable_member(member.as_ref())?);
        let request = pool_request("HISTORY", &[&*name, b" ", &member].concat());
        self.list_at_server_of(pool.as_ref(), &request, wire::parse_holder)
    }

    fn list<T>(&self, request: &[u8], parse: fn(&[u8]) -> Option<T>) -> OfEach<Vec<T>> {
        self.with_fleet(|fleet| fleet.ask_each(|connection| read_list(connection, request, parse)))
    }

    /// Records the leases of a connection that these lines report as lost.
    fn note(&self, held: HeldOn, lines: &[Vec<u8>]) {
        let mut leases = self.leases.borrow_mut();
        for notice in lines.iter().filter_map(|line| wire::parse_notice(line)) {
            let Notice::Lost(number, reason, by) = notice else { continue };
            let lease = leases.iter_mut().find(|lease| lease.held == held && lease.number == number);
            lease.into_iter().for_each(|lease| (lease.lost, lease.lost_by) = (Some(reason), by.clone()));
        }
    }
}

impl Wanted {
    fn filter(&self) -> Result<Option<Arc<Filter>>, Error> {
        let member = self.member.as_deref().map(sendable_member).transpose()?;
        let attributes = sendable_attributes(&self.attributes)?;
        let filter = Filter { member: member.map(|name| name.as_ref().into()), attributes };
        Ok((!filter.is_empty()).then(|| Arc::new(filter)))
    }
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted {
            timeout: Duration::ZERO,
            attributes: Vec::new(),
            member: None,
            count: None,
            priority: 5,
            lease: None,
            resume: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread::spawn;

    #[test]
    fn each_request_drains_the_notices_before_its_reply() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("is bound").to_string();
        let server = spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client connects");
            let mut requests = BufReader::new(stream.try_clone().expect("a descriptor is free")).lines();
            let token = "7".repeat(32);
            for reply in [
                format!("MEMBER 1 p a token={token}\n"),
                format!("!LOST 1 expired\nMEMBER 2 p b token={token}\n"),
                "!LOST 2 taken_back by=ann for a look\nERROR NO_POOL\n".into(),
            ] {
                requests.next().expect("it asks").expect("is text");
                stream.write_all(reply.as_bytes()).expect("is sent");
            }
        });
        let members = Members::new(crate::MediaWiki::new([address]));
        let has_notices = || members.fleet.borrow_mut().notices().any(|(_, lines)| !lines.is_empty());
        let take = || match members.take("p", &Wanted { lease: Some(Duration::from_secs(60)), ..Wanted::default() }) {
            Ok(TakeOutcome::Taken(taken)) => taken.into_iter().next().expect("is one"),
            other => panic!("{other:?}"),
        };
        assert!(take().keep().is_some());
        let member = take();
        assert!(!has_notices(), "the end of the kept lease");
        assert_eq!(members.utilization("p"), Err(Error::Refused("NO_POOL".into())));
        assert!(!has_notices(), "the loss of the member");
        assert_eq!(member.taken_back_by().as_deref(), Some("ann: for a look"));
        server.join().expect("it has answered");
    }
}
