//! The client library: blocking, without threads of its own, on plain sockets and the services' own `wire`. It must not know
//! the daemon's loop.
//!
//! # Pools
//!
//! ```
//! use poolcounter::client::{Client, Error, Limits, MediaWiki, Outcome, Purpose};
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
//! # use poolcounter::client::{Client, Error, Limits, MediaWiki, Outcome, Purpose};
//! # use poolcounter::Server;
//! # use poolcounter::client::PoolStat;
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
//! use poolcounter::client::{Counters, MediaWiki};
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
//! A [`Provider`] brings members, here named after the start that asked for them; [`Members`] takes them.
//!
//! ```
//! # use poolcounter::net::Server;
//! # use std::io::{BufRead, BufReader, Write};
//! use poolcounter::client::{Condition, MediaWiki, Members, Offered, Provider, TakeOutcome, Task, TaskResult, Timeouts, Wanted};
//! use std::time::Duration;
//!
//! # let mut server = Server::bind("127.0.0.1:0", "members")?;
//! # let (address, stopper) = (server.addresses("members")[0].to_string(), server.stopper());
//! # let thread = std::thread::spawn(move || server.run());
//! # let mut operator = BufReader::new(std::net::TcpStream::connect(&address)?);
//! # operator.get_mut().write_all(b"POOL browsers 0 2\n")?;
//! # operator.read_line(&mut String::new())?;
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
//! let members = Members::new(MediaWiki::new([&*address]));
//! let wanted = Wanted { timeout: Duration::from_secs(10), ..Wanted::default() };
//! match members.take("browsers", &wanted)? {
//!     TakeOutcome::Taken(mut taken) => {
//!         let browser = taken.remove(0);
//!         assert_eq!(browser.name(), b"10.0.0.5:9001");
//!         assert_eq!(browser.attributes().next(), Some((&b"kind"[..], &b"firefox"[..])));
//!         browser.give_back(Condition::Ok)?;
//!     }
//!     other => println!("there is none: {other:?}"),
//! }
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
//! use poolcounter::client::{JobExtras, NewJob, Producer, PutOutcome, Reservation, Runner, Timeouts};
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
//! # When servers fail
//!
//! - A server that refuses, is silent for [`Timeouts::answer`], closes the connection or talks nonsense is passed over for
//!   [`Timeouts::retry`], and the next one of the [`Placement`] is asked. When none is left, that is
//!   [`Error::Unavailable`], at once as long as all are known to be dead.
//! - A connection on which anything went wrong is closed and never used again. The server gives back what it held, and no
//!   answer can come late.
//! - A connection that the server has closed since its last use says nothing of the server: it is connected once more.
//! - What was held on a lost connection is lost. Its release says so, and touches nothing that was acquired since.
//!
//! When a server is lost, or seems so to one client and not to another, its keys are granted elsewhere while other clients still
//! work under its locks. Where that is wrong and not merely wasteful, use something with consensus and fencing.

mod connection;
mod counters;
mod error;
mod fleet;
mod jobs;
#[cfg(feature = "daemon")]
mod members;
mod placement;
mod pools;
#[cfg(feature = "daemon")]
mod provider;

pub use crate::counters::request::CounterRefusal;
pub use crate::counters::stats::CounterStat;
pub use crate::jobs::request::{JobId, JobState, SummaryBy, Until};
#[cfg(feature = "daemon")]
pub use crate::members::wire::client::{ListedMember, ListedPool, Task};
#[cfg(feature = "daemon")]
pub use crate::members::{Condition, Lost, NoMembers};
pub use crate::pools::request::Purpose;
pub use crate::pools::stats::PoolStat;
pub use crate::stats::{Figures, Row, Stat, Unit};
pub use counters::{Counters, Units, Usage};
pub use error::{Error, Failure, Fault};
pub use jobs::{
    JobExtras, JobStatus, LimitScope, ListedJob, NewJob, Producer, PutOutcome, Reservation, ReservedJob, Retry, Runner,
    SummaryRow,
};
#[cfg(feature = "daemon")]
pub use members::{LeaseToken, Member, MemberLoss, Members, Rows, RowsOfEach, TakeOutcome, Wanted};
pub use placement::{MediaWiki, Placement, Ring};
pub use pools::{Client, Limits, Lines, Lock, Outcome};
#[cfg(feature = "daemon")]
pub use provider::{Offered, Provider, TaskResult};

use std::time::Duration;

/// What a server has answered, or its refusal; or the fault that kept it from either.
type Said<T> = Result<Result<T, Error>, Fault>;

/// The longest time that the protocol can express, 136 years: sums of times that are cut to it do not overflow.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64 + 1);

/// How long a client waits for a server. With zero for `connect` or `answer`, no server is fast enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until a connection is made. Each address of a host has as long; looking the host up is not counted.
    pub connect: Duration,
    /// Until the answer is here, on top of what a request may wait by its own timeout.
    pub answer: Duration,
    /// How long a server that failed is not asked again. So a dead machine costs `connect` once in this time.
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
