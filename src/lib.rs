//! Keeps a fleet of servers from doing the same work at the same time: client library of the PoolCounter daemon, and
//! the daemon itself, for use within another program.
//!
//! # Asking a daemon
//!
//! [`client::Client`] acquires locks in pools and [`client::Counters`] units of counters, from one daemon or several
//! that share the keys. Both are released on drop, and whenever the process ends. A [`client::Producer`] puts jobs into
//! a queue, and a [`client::Runner`] runs them.
//!
//! ```no_run
//! use poolcounter::client::{Client, Limits, MediaWiki, Outcome, Purpose};
//! use std::time::Duration;
//!
//! let client = Client::new(MediaWiki::new(["10.0.0.5", "10.0.0.6"].map(String::from)));
//! let two_at_a_time = Limits { workers: 2, max_queue: 100, timeout: Duration::from_secs(15), hold: None, at_least: Duration::ZERO };
//! match client.acquire(Purpose::Anyone, "page:Main", &two_at_a_time)? {
//!     Outcome::Locked(lock) => {
//!         // Render the page, store it, and release the lock: the waiters get DONE.
//!         lock.release()?;
//!     }
//!     // Another client has rendered it meanwhile.
//!     Outcome::Done => {}
//!     // Serve the stale page.
//!     _ => {}
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A server of one's own
//!
//! A test, or a program with a server of its own, runs `Server::bind` in a thread:
//!
//! ```
//! # #[cfg(feature = "daemon")] {
//! use poolcounter::Server;
//! use poolcounter::client::{Client, Limits, MediaWiki, Outcome, Purpose};
//! use std::time::Duration;
//!
//! let mut server = Server::bind("127.0.0.1:0", "pools")?;
//! let (address, stopper) = (server.addresses("pools")[0].to_string(), server.stopper());
//! let thread = std::thread::spawn(move || server.run());
//!
//! let client = Client::new(MediaWiki::new([address]));
//! let one_at_a_time = Limits { workers: 1, max_queue: 100, timeout: Duration::from_secs(5), hold: None, at_least: Duration::ZERO };
//! if let Outcome::Locked(lock) = client.acquire(Purpose::Me, "invoices", &one_at_a_time)? {
//!     // No other client of this server works on the invoices now.
//!     lock.release()?;
//! }
//!
//! stopper.stop()?;
//! thread.join().expect("the server does not panic")?;
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | content |
//! |---|---|
//! | `daemon`, a default | the library, the server and the program |
//! | `postgres`, a default | jobs in a database of PostgreSQL |
//! | `top`, a default | the command `top` |
//! | `client` | the library alone, with few dependencies: `default-features = false, features = ["client"]` |
//! | `tls` | the library speaks TLS to servers, too; a part of `daemon` |
//!
//! # The crates of the daemon
//!
//! One thread serves every connection: an event loop, the state of each service, and a timer wheel. Each crate uses
//! only the crates below it. `src/README.md` describes the way of a byte through them.
//!
//! | crate | content |
//! |---|---|
//! | [`cli`](../poolcounter_cli/index.html) | commands and their options; the start of the daemon |
//! | [`tls`](../poolcounter_tls/index.html) | the terminator of TLS, a process of its own |
//! | [`server`](../poolcounter_server/index.html) | sockets, clock, tick, signals, the upgrade |
//! | [`http`](../poolcounter_http/index.html), [`admin`](../poolcounter_admin/index.html) | metrics and the status page; commands of operators |
//! | [`pools`](../poolcounter_pools/index.html), [`counters`](../poolcounter_counters/index.html), [`members`](../poolcounter_members/index.html), [`jobs`](../poolcounter_jobs/index.html) | a pure state machine each, its adapter to the protocol, its report |
//! | [`service`](../poolcounter_service/index.html) | the contract between the loop and a service; settings, output, access, reports |
//! | [`client`](../poolcounter_client/index.html) | the client library |
//! | [`protocol`](../poolcounter_protocol/index.html) | requests and replies of each protocol, read and written, for both sides |
//! | [`core`](../poolcounter_core/index.html) | ids, time, timer wheel, queues, names, counts, numbers and text |

#[cfg(feature = "daemon")]
mod embedded;
#[cfg(feature = "daemon")]
mod services;

#[cfg(feature = "daemon")]
pub use embedded::Server;
#[cfg(feature = "client")]
pub use poolcounter_client as client;
#[cfg(feature = "daemon")]
pub use poolcounter_server::{Address, Stopper};
#[cfg(feature = "daemon")]
#[doc(hidden)]
pub use services::SERVICES;
