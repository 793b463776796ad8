//! Client library of the PoolCounter daemon: locks, counters, members of pools and jobs. Calls block. The library
//! starts no threads and has few dependencies. It is tested on Linux, and compiles for macOS and FreeBSD.
//!
//! | to | use | of a server |
//! |---|---|---|
//! | do a piece of work once, however many processes need it | [`Client`] | [PoolCounter](#pools) |
//! | bound how much is done at a time, over many machines | [`Counters`] | [yrmcds](#counters), too |
//! | use something that only one process may use | [`Members`], [`Provider`] | [the daemon](#members-of-pools) |
//! | queue work and have it done | [`Producer`], [`Runner`] | [beanstalkd](#jobs), too |
//!
//! [`MediaWiki`] and [`Ring`] define which of several servers has a key; the end of this page describes [failures of
//! servers](#when-servers-fail). Each example starts its own server, which is hidden after the first.
//!
//! # Pools
//!
//! ```
//! use poolcounter_client::{Client, Error, Limits, MediaWiki, Outcome, Purpose};
//! use poolcounter::Server;
//! use std::time::Duration;
//!
//! // A server for this example; yours is the daemon.
//! let mut server = Server::bind("127.0.0.1:0", "pools")?;
//! let (address, stopper) = (server.addresses("pools")[0].to_string(), server.stopper());
//! let thread = std::thread::spawn(move || server.run());
//!
//! const RENDERING: Limits =
//!     Limits { workers: 2, max_queue: 100, timeout: Duration::from_secs(15), hold: None, at_least: Duration::ZERO };
//! # let (mut rendered, mut read_the_cache, mut served_stale) = (0, 0, 0);
//! # let mut render = || rendered += 1;
//! # let mut read_the_cache = || read_the_cache += 1;
//! # let mut serve_stale = || served_stale += 1;
//!
//! let client = Client::new(MediaWiki::new([address]));
//! match client.acquire(Purpose::Anyone, "ArticleView:Michael Jackson", &RENDERING) {
//!     Ok(Outcome::Locked(lock)) => {
//!         render();
//!         lock.release()?;
//!     }
//!     Ok(Outcome::Done) => read_the_cache(),
//!     Ok(Outcome::QueueFull | Outcome::Timeout) => serve_stale(),
//!     // An outage of the locks must not become an outage of the site.
//!     Err(Error::Unavailable(_)) => render(),
//!     Err(error) => return Err(error.into()),
//! }
//! # assert_eq!(rendered, 1);
//!
//! stopper.stop()?;
//! thread.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A lock is released when it is dropped. Locks nest, on one connection to each server:
//!
//! ```
//! # use poolcounter_client::{Client, Error, Limits, MediaWiki, Outcome, Purpose};
//! # use poolcounter::Server;
//! # use poolcounter_client::PoolStat;
//! # use std::time::Duration;
//! # let mut server = Server::bind("127.0.0.1:0", "pools")?;
//! # let (address, stopper) = (server.addresses("pools")[0].to_string(), server.stopper());
//! # let thread = std::thread::spawn(move || server.run());
//! # let client = Client::new(MediaWiki::new([address]));
//! # let limits = Limits { workers: 1, max_queue: 100, timeout: Duration::ZERO, hold: None, at_least: Duration::ZERO };
//! let page = client.acquire(Purpose::Me, "page", &limits)?;
//! {
//!     let image = client.acquire(Purpose::Me, "image", &limits)?;
//!     assert!(matches!((&page, &image), (Outcome::Locked(_), Outcome::Locked(_))));
//! }
//! for (server, stats) in client.stats() {
//!     let locks = stats?.of(PoolStat::ProcessingWorkers);
//!     assert_eq!(locks, 1, "at {server} the image is given back, the page is not");
//! }
//! # stopper.stop()?;
//! # thread.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Counters
//!
//! ```
//! # use poolcounter::Server;
//! use poolcounter_client::{Counters, MediaWiki};
//!
//! # let mut server = Server::bind("127.0.0.1:0", "counters")?;
//! # let (address, stopper) = (server.addresses("counters")[0].to_string(), server.stopper());
//! # let thread = std::thread::spawn(move || server.run());
//! let counters = Counters::new(MediaWiki::new([address]));
//! match counters.acquire("transcoders", 3, 10)? {
//!     Some(units) => {
//!         assert_eq!(counters.get("transcoders")?, Some(3));
//!         units.release()?;
//!     }
//!     None => println!("at most 10 run at a time; come again later"),
//! }
//! assert_eq!(counters.get("transcoders")?, Some(0));
//! # stopper.stop()?;
//! # thread.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Members of pools
//!
//! [`Members`] takes members of pools for exclusive use, and returns them. Pools and their fixed members are declared
//! by an [`Operator`] or in the configuration of the server.
//!
//! ```
//! # use poolcounter::Server;
//! use poolcounter_client::{Condition, MediaWiki, Members, Offered, TakeOutcome, Wanted};
//! use std::time::Duration;
//!
//! # let mut server = Server::bind("127.0.0.1:0", "members")?;
//! # let (address, stopper) = (server.addresses("members")[0].to_string(), server.stopper());
//! # let thread = std::thread::spawn(move || server.run());
//! let members = Members::new(MediaWiki::new([address])).named("ci-job-7")?;
//!
//! // Once: two phones, which may be held for an hour.
//! members.operator().declare("phones", 0, 2, &[("max_hold", "3600")])?;
//! for (name, system) in [("phone-1", "android"), ("phone-2", "ios")] {
//!     let attributes = vec![("os".into(), system.into())];
//!     members.operator().add("phones", &Offered { name: name.into(), attributes })?;
//! }
//!
//! let android = Wanted {
//!     timeout: Duration::from_secs(600),
//!     attributes: vec![("os".into(), "android".into())],
//!     ..Wanted::default()
//! };
//! match members.take("phones", &android)? {
//!     TakeOutcome::Taken(mut taken) => {
//!         let phone = taken.remove(0);
//!         assert_eq!(phone.name(), b"phone-1");
//!         // Long work checks from time to time that the phone is still held.
//!         assert_eq!(phone.loss(), None);
//!         phone.give_back(Condition::Ok)?;
//!     }
//!     TakeOutcome::NoMembers(reason) => println!("none is free: {reason:?}"),
//!     other => println!("come again later: {other:?}"),
//! }
//! # stopper.stop()?;
//! # thread.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Provider`] starts and stops members, here named after their start requests; they leave the pool when it ends. With
//! [`Role::Cleaner`] it cleans members between two uses instead.
//!
//! ```
//! # use poolcounter::Server;
//! use poolcounter_client::{
//!     MediaWiki, Members, Offered, Provider, Role, TakeOutcome, Task, TaskResult, Timeouts, Wanted,
//! };
//! use std::time::Duration;
//!
//! # let mut server = Server::bind("127.0.0.1:0", "members")?;
//! # let (address, stopper) = (server.addresses("members")[0].to_string(), server.stopper());
//! # let thread = std::thread::spawn(move || server.run());
//! # let members = Members::new(MediaWiki::new([&*address]));
//! members.operator().declare("browsers", 0, 2, &[])?;
//! let (placement, role) = (MediaWiki::new([&*address]), Role::Provider(None));
//! let mut provider = Provider::connect(placement, Timeouts::default(), "browsers", role)?;
//! std::thread::spawn(move || {
//!     provider.serve(|task| match task {
//!         Task::Start(id) => TaskResult::Started(Offered {
//!             name: format!("10.0.0.5:{}", 9000 + id).into(),
//!             attributes: vec![("kind".into(), "firefox".into())],
//!         }),
//!         _ => TaskResult::Done,
//!     })
//! });
//!
//! let wanted = Wanted { timeout: Duration::from_secs(10), ..Wanted::default() };
//! if let TakeOutcome::Taken(taken) = members.take("browsers", &wanted)? {
//!     let browser = &taken[0];
//!     assert_eq!(browser.name(), b"10.0.0.5:9001");
//!     assert_eq!(browser.attributes().next(), Some((&b"kind"[..], &b"firefox"[..])));
//! }
//! # stopper.stop()?;
//! # thread.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With [`Wanted::lease`] a member stays taken after its connection, until the lease ends or its token returns it, from
//! any process:
//!
//! ```
//! # use poolcounter::Server;
//! # use poolcounter_client::{Condition, LeaseToken, MediaWiki, Members, Offered, TakeOutcome, Wanted};
//! # use std::time::Duration;
//! # let mut server = Server::bind("127.0.0.1:0", "members")?;
//! # let (address, stopper) = (server.addresses("members")[0].to_string(), server.stopper());
//! # let thread = std::thread::spawn(move || server.run());
//! # let members = Members::new(MediaWiki::new([&*address]));
//! # members.operator().declare("accounts", 0, 1, &[])?;
//! # members.operator().add("accounts", &Offered { name: "account-1".into(), attributes: vec![] })?;
//! let for_an_hour = Wanted { lease: Some(Duration::from_secs(3600)), ..Wanted::default() };
//! let TakeOutcome::Taken(mut taken) = members.take("accounts", &for_an_hour)? else { return Ok(()) };
//! let token = taken.remove(0).keep().expect("it was taken with a lease").to_string();
//!
//! // Another step of the work, in another process:
//! let members = Members::new(MediaWiki::new([address]));
//! let token = LeaseToken::parse(&token).expect("is written so");
//! members.renew("accounts", token, Some(Duration::from_secs(600)))?;
//! members.give_back("accounts", token, Condition::Ok)?;
//! # stopper.stop()?;
//! # thread.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Jobs
//!
//! A [`Producer`] puts jobs, a [`Runner`] runs them. A plain beanstalkd also works as the server; requests that need an
//! extension then fail with [`Error::NoExtension`] before anything is sent.
//!
//! ```
//! # use poolcounter::Server;
//! use poolcounter_client::{JobExtras, NewJob, Producer, PutOutcome, Reservation, Runner, Timeouts};
//! use std::time::Duration;
//!
//! # let mut server = Server::bind("127.0.0.1:0", "jobs")?;
//! # let (address, stopper) = (server.addresses("jobs")[0].to_string(), server.stopper());
//! # let thread = std::thread::spawn(move || server.run());
//! let producer = Producer::new([&*address], Timeouts::default());
//! let job = NewJob {
//!     tube: Some("enwiki/refreshLinks".into()),
//!     extras: JobExtras { key: Some(b"page:42".into()), ..JobExtras::default() },
//!     ..NewJob::new("42")
//! };
//! let PutOutcome::Inserted(id) = producer.put(&job)? else { panic!("no such job waits") };
//! assert_eq!(producer.put(&job)?, PutOutcome::Duplicate(id));
//!
//! let mut runner = Runner::new([&*address], Timeouts::default());
//! runner.watch("*/refreshLinks", None)?;
//! if let Reservation::Reserved(job) = runner.reserve(Some(Duration::from_secs(10)))? {
//!     match std::str::from_utf8(&job.body) {
//!         Ok("42") => runner.delete(&job)?,
//!         other => drop(runner.fail(&job, None, Duration::from_secs(60), format!("what is {other:?}?"))?),
//!     }
//! }
//! assert_eq!(producer.peek(id)?, None);
//! # stopper.stop()?;
//! # thread.join().expect("the server does not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # TLS
//!
//! With the feature `tls`, the client uses TLS for servers named `tls:HOST:PORT`, which must present a certificate for
//! that host. `with_tls` of a placement, a producer or a runner sets the trusted authorities and the client's
//! certificate. The handshake blocks for up to [`Timeouts::connect`] once more, even if the connection was made in the
//! background.
//!
//! # When servers fail
//!
//! - A server is dead if it does not accept a connection within [`Timeouts::connect`], does not reply within
//!   [`Timeouts::answer`], closes the connection or sends garbage. The client then tries the next one of the
//!   [`Placement`]. When none is left, the request fails with [`Error::Unavailable`]: at once while all are known to be
//!   dead.
//! - A server that drains and refuses a lock or a job for that is not dead. The next one is asked in the same way, and
//!   the connection is kept, with the locks on it.
//! - A dead server is skipped for [`Timeouts::retry`], which doubles with each further failure up to eight times that.
//!   The next request after that starts to connect in the background: it waits at most a millisecond for each address
//!   and goes on to the next server. Later requests check whether the connection is made. So a machine that is down
//!   costs [`Timeouts::connect`] once, and a server that accepts connections without replying costs
//!   [`Timeouts::answer`] after each pause.
//! - A [`Producer`] and a [`Runner`] of jobs have one connection each; when it is lost, they try all their servers in
//!   order.
//! - After a failure a connection is closed and never used again. The server releases everything held on it, and no
//!   reply can arrive late.
//! - A connection that has ended since its last use does not count as a failure: the client connects once more.
//! - Everything held on a lost connection is lost. Its release fails, and does not affect later acquisitions.
//!
//! When a server is lost, or unreachable for some clients only, other servers grant its keys while its clients still
//! work under their locks. Where that is wrong and not merely wasteful, use a system with consensus and fencing.

mod connection;
mod counters;
mod dial;
mod error;
mod fleet;
mod jobs;
mod members;
mod placement;
mod pools;
mod provider;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod who;

pub use counters::{Counters, Units, Usage};
#[doc(hidden)]
pub use dial::{SILENCE_LIMIT, connect_unix, host_and_port};
pub use error::{Error, Failure, Fault};
pub use jobs::{
    JobExtras, JobStatus, LimitScope, ListedJob, NewJob, Producer, PutOutcome, Reservation, ReservedJob, Retry, Runner,
    Schedule, ScheduleTimes, SummaryRow,
};
pub use members::{LeaseToken, Member, MemberLoss, Members, Offered, Operator, TakeOutcome, Wanted};
pub use placement::{MediaWiki, Placement, Ring};
pub use poolcounter_core::stats::{Figures, Row, Stat, Unit};
pub use poolcounter_protocol::counters::request::CounterRefusal;
pub use poolcounter_protocol::counters::stats::CounterStat;
pub use poolcounter_protocol::jobs::request::{JobId, JobState, SummaryBy, Until};
pub use poolcounter_protocol::members::request::{Condition, From as Source, Lost, NoMembers};
pub use poolcounter_protocol::members::wire::client::{
    Figures as PoolFigures, KeptOut, ListedHolder, ListedMember, ListedPool, ListedWaiter, Task,
};
pub use poolcounter_protocol::pools::request::{KeyLimits, MOST_LIMITS, Purpose};
pub use poolcounter_protocol::pools::stats::PoolStat;
pub use pools::{Client, Limits, ListedClaim, Lock, LockLoss, Outcome};
pub use provider::{Provider, Role, TaskResult};
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use who::{own_name, own_user};

use error::Stop;
use std::time::Duration;

/// Reply of each server, by its address. [`Error::Unavailable`] if it has failed.
pub type OfEach<T> = Vec<(String, Result<T, Error>)>;

/// Placeholder without values for builds without the feature `tls`.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
enum Tls {}

/// Reply of a server, or the reason why there is none.
type Said<T> = Result<T, Stop>;

/// Longest time that the protocol can express, 136 years; sums of times capped to it do not overflow.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64 + 1);

/// Timeouts for servers. With zero for `answer`, every request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Time limit of a connection attempt, for each address of a host; without the name lookup.
    pub connect: Duration,
    /// Time limit of a reply, and of each further MiB of it, in addition to the timeout of the request itself.
    pub answer: Duration,
    /// Time for which a failed server is skipped; doubles with each further failure, up to eight times this.
    pub retry: Duration,
}

impl Timeouts {
    fn cut(self) -> Self {
        let Timeouts { connect, answer, retry } = self;
        Timeouts { connect: connect.min(LONGEST), answer: answer.min(LONGEST), retry: retry.min(LONGEST) }
    }
}

impl Default for Timeouts {
    /// Returns a tenth of a second, half a second and two seconds: for servers in the same data centre.
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_millis(100),
            answer: Duration::from_millis(500),
            retry: Duration::from_secs(2),
        }
    }
}
