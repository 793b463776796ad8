//! Keeps a fleet of servers from doing the same work at the same time: the client library of the PoolCounter daemon, and the daemon
//! itself, to be run within another program.
//!
//! # Asking a daemon
//!
//! [`client::Client`] acquires locks in pools and [`client::Counters`] units of counters, of one daemon or of several that share
//! the keys. What is held is given back when it is dropped, or when the process ends in whatever way. A [`client::Producer`] puts
//! jobs into a queue, and a [`client::Runner`] does them.
//!
//! ```no_run
//! use poolcounter::client::{Client, Limits, MediaWiki, Outcome, Purpose};
//! use std::time::Duration;
//!
//! let client = Client::new(MediaWiki::new(["10.0.0.5", "10.0.0.6"].map(String::from)));
//! let two_at_a_time = Limits { workers: 2, max_queue: 100, timeout: Duration::from_secs(15), hold: None };
//! match client.acquire(Purpose::Anyone, "page:Main", &two_at_a_time)? {
//!     Outcome::Locked(lock) => {
//!         // Render the page, store it, and tell those who wait.
//!         lock.release()?;
//!     }
//!     // Somebody else has rendered it meanwhile.
//!     Outcome::Done => {}
//!     // Serve the stale page.
//!     _ => {}
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A server of one's own
//!
//! A test, or a program that brings its own server, runs `Server::bind` in a thread:
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
//! let one_at_a_time = Limits { workers: 1, max_queue: 100, timeout: Duration::from_secs(5), hold: None };
//! if let Outcome::Locked(lock) = client.acquire(Purpose::Me, "invoices", &one_at_a_time)? {
//!     // Nobody else who asks this server works on the invoices now.
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
//! | feature | what it has |
//! |---|---|
//! | `daemon`, the default | the library, the server and the program |
//! | `client` | the library alone, with few dependencies: `default-features = false, features = ["client"]` |
//! | `tls` | the library speaks TLS to servers, too; a part of `daemon` |
//!
//! The map of the code is in `src/README.md`.

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

/// The programs in the README are compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
