//! Client library of the PoolCounter daemon: locks, units of counters, members of pools, and jobs. Calls block. The library has no
//! threads of its own, and few dependencies.
//!
//! | to | use | of a server |
//! |---|---|---|
//! | do a piece of work once, however many processes need it | [`Client`] | [PoolCounter](#pools) |
//! | bound how much is done at a time, over many machines | [`Counters`] | [yrmcds](#counters), too |
//! | borrow something that only one process may use | [`Members`], [`Provider`], [`Cleaner`] | [the daemon](#members-of-pools) |
//! | queue work and have it done | [`Producer`], [`Runner`] | [beanstalkd](#jobs), too |
//!
//! [`MediaWiki`] and [`Ring`] say which of several servers keeps a key; what happens [when servers fail](#when-servers-fail) is at the
//! end of this page. Each example begins with a server of its own, which the page leaves out after the first.
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
//!     Limits { workers: 2, max_queue: 100, timeout: Duration::from_secs(15), hold: None };
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
//! A lock is given back when it is dropped. Locks nest, in one connection to each server:
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
//! # let limits = Limits { workers: 1, max_queue: 100, timeout: Duration::ZERO, hold: None };
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
//! [`Members`] takes members of pools, each for itself alone, and gives them back. What a pool is like and which fixed members it has,
//! an [`Operator`] says, or the configuration of the server.
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
//!         // What goes on for long looks from time to time whether the phone is still its own.
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
//! A [`Provider`] brings members, here named after the start that asked for them, and takes them with it when it ends. A
//! [`Cleaner`] cleans those of others between two uses.
//!
//! ```
//! # use poolcounter::Server;
//! use poolcounter_client::{MediaWiki, Members, Offered, Provider, TakeOutcome, Task, TaskResult, Timeouts, Wanted};
//! use std::time::Duration;
//!
//! # let mut server = Server::bind("127.0.0.1:0", "members")?;
//! # let (address, stopper) = (server.addresses("members")[0].to_string(), server.stopper());
//! # let thread = std::thread::spawn(move || server.run());
//! # let members = Members::new(MediaWiki::new([&*address]));
//! members.operator().declare("browsers", 0, 2, &[])?;
//! let mut provider = Provider::connect(MediaWiki::new([&*address]), Timeouts::default(), "browsers", None)?;
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
//! With [`Wanted::lease`] a member outlives the connection it was taken on, until the lease runs out or its token gives it back from
//! anywhere:
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
//! A [`Producer`] puts jobs, a [`Runner`] does them; a beanstalkd will do as the server, as long as nothing is asked for that it
//! does not have. That is [`Error::NoExtension`] then, and nothing was sent.
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
//! With the feature `tls`, a server that is named `tls:HOST:PORT` is spoken to in TLS, and must show a certificate for that host. A
//! placement, a producer and a runner are told by `with_tls` whom to trust and what to show. The handshake is waited for, for as long
//! as [`Timeouts::connect`], even where the connection itself is made in the background.
//!
//! # When servers fail
//!
//! - A server that cannot be connected to within [`Timeouts::connect`], is silent for [`Timeouts::answer`], closes the connection or
//!   talks nonsense is dead, and the next one of the [`Placement`] is asked. When none is left, that is [`Error::Unavailable`], at
//!   once as long as all are known to be dead.
//! - A dead server is passed over for [`Timeouts::retry`], and for twice as long each time that it fails again, up to eight times as
//!   long. After that the next request begins to connect to it, in the background: it waits a millisecond at most, and goes on to
//!   the next server. Later requests look whether the connection stands. So a machine that is down costs [`Timeouts::connect`] once,
//!   and one that accepts connections and says nothing costs [`Timeouts::answer`] after each pause.
//! - A [`Producer`] and a [`Runner`] of jobs have one connection each; when it is lost, they ask all their servers anew, in their order.
//! - A connection on which anything went wrong is closed and never used again. The server gives back what it held, and no
//!   answer can come late.
//! - A connection that the server has closed since its last use says nothing of the server: it is connected once more.
//! - What was held on a lost connection is lost. Its release says so, and touches nothing that was acquired since.
//!
//! When a server is lost, or seems so to one client and not to another, its keys are granted elsewhere while other clients still
//! work under its locks. Where that is wrong and not merely wasteful, use something with consensus and fencing.

mod cleaner;
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
mod remote;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod who;

pub use cleaner::Cleaner;
pub use counters::{Counters, Units, Usage};
pub use error::{Error, Failure, Fault};
pub use jobs::{
    JobExtras, JobStatus, LimitScope, ListedJob, NewJob, Producer, PutOutcome, Reservation, ReservedJob, Retry, Runner,
    SummaryRow,
};
pub use members::{LeaseToken, Member, MemberLoss, Members, Operator, Rows, RowsOfEach, TakeOutcome, Wanted};
pub use placement::{MediaWiki, Placement, Ring};
pub use poolcounter_core::stats::{Figures, Row, Stat, Unit};
pub use poolcounter_protocol::counters::request::CounterRefusal;
pub use poolcounter_protocol::counters::stats::CounterStat;
pub use poolcounter_protocol::jobs::request::{JobId, JobState, SummaryBy, Until};
pub use poolcounter_protocol::members::request::{Condition, Lost, NoMembers};
pub use poolcounter_protocol::members::wire::client::{
    Figures as PoolFigures, KeptOut, ListedMember, ListedPool, ListedWaiter, Task,
};
pub use poolcounter_protocol::pools::request::{KeyLimits, MOST_LIMITS, Purpose};
pub use poolcounter_protocol::pools::stats::PoolStat;
pub use pools::{Client, Limits, Lines, Lock, Outcome, ToldClaim};
pub use provider::{Offered, Provider, Role, TaskResult};
#[cfg(feature = "tls")]
pub use tls::Tls;
pub use who::own_name;

use std::time::Duration;

/// Nothing: TLS is in no build without its feature.
#[cfg(not(feature = "tls"))]
#[derive(Clone, Debug)]
enum Tls {}

/// What a server has answered, or its refusal; or the fault that kept it from either.
type Said<T> = Result<Result<T, Error>, Fault>;

/// The longest time that the protocol can express, 136 years: sums of times that are cut to it do not overflow.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64 + 1);

/// How long a client waits for a server. With zero for `answer`, no server is fast enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until a connection is made. Each address of a host has as long; looking the host up is not counted.
    pub connect: Duration,
    /// Until the answer is here, on top of what a request may wait by its own timeout.
    pub answer: Duration,
    /// How long a server that failed is not asked again; each time that it fails once more for twice as long, up to eight times this.
    pub retry: Duration,
}

impl Timeouts {
    fn cut(self) -> Self {
        let Timeouts { connect, answer, retry } = self;
        Timeouts { connect: connect.min(LONGEST), answer: answer.min(LONGEST), retry: retry.min(LONGEST) }
    }
}

impl Default for Timeouts {
    /// A tenth of a second, half a second and two seconds: for servers in the same data centre.
    fn default() -> Self {
        Timeouts {
            connect: Duration::from_millis(100),
            answer: Duration::from_millis(500),
            retry: Duration::from_secs(2),
        }
    }
}
