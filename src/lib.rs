//! poolcounter: one event loop that keeps what a fleet of servers shares, so that they do not stampede.
//!
//! # Bird's-eye view
//!
//! A single thread owns every socket, every pool, every counter and one timer wheel. Nothing is shared, so nothing is locked; a request is
//! a function call. Whatever a connection holds is given back when it closes.
//!
//! ```text
//!   sockets ──▶ net: who is readable? ──bytes──▶ services ──▶ pools::wire ──requests──▶ pools::state
//!      ▲                                                                                     │
//!      └── net: one write each ◀── output: bytes by connection ◀── pools::wire ◀──replies────┘
//! ```
//!
//! # A tick
//!
//! [`net::Server`] runs one function over and over, whose phases are in this order:
//!
//! | phase | what it does |
//! |---|---|
//! | wait | sleeps until a socket has news or a timer is due; news only marks connections |
//! | accept | takes new connections, until there are none or the tick has enough |
//! | serve | gives each marked connection one turn, in the order of the news: one read, a bounded number of requests; at its end, gives back what it held |
//! | expire | fires the timers that are due |
//! | flush | writes to each connection that was told something, once |
//! | reap | drops the sockets of those whose end was met |
//!
//! A connection with work left over waits in a ready list, because edge-triggered events do not come twice.
//!
//! # Modules, from the bottom up
//!
//! | module | what it is | what it must not know |
//! |---|---|---|
//! | [`id`], [`time`] | newtypes over integers | clocks |
//! | [`list`] | queues of slab keys with O(1) removal from the middle | what the keys are for |
//! | [`wheel`] | a hierarchical timer wheel: arm and cancel in O(1), never early | clocks, what timers are for |
//! | [`names`] | from names to slab keys | the entities |
//! | [`decimal`], [`address`] | numbers, seconds and addresses in text | sockets |
//! | [`options`] | rows of options, and what reads their values | any option |
//! | [`text`] | bytes of peers as text that is safe to show | who shows it |
//! | [`stats`] | one table of statistics per service | who counts |
//! | [`histogram`], [`report`] | how long things took; what a service tells its operators | who shows it |
//! | [`sketch`] | the keys with most events lately, in fixed memory | clocks, what the keys name |
//! | [`output`] | unsent bytes by connection | sockets |
//! | [`pulse`] | the loop's own figures: ticks, budgets, memory | clocks, who shows them |
//! | [`record`] | values in a stream, one at a time: what an upgrade hands over | files, what the values are |
//! | [`service`], [`settings`] | the contract between the loop and a service; what its operator tells it | any service |
//! | [`pools`], [`counters`], [`members`] | `state`: a pure state machine; `wire`: the protocol; `mod`: the adapter between them | sockets, clocks |
//! | [`http`] | metrics and the status page, from what the other services report | sockets, the other services |
//! | [`services`] | the registry | the loop |
//! | [`net`] | sockets, clock, tick, signals, the upgrade without loss | protocols |
//! | [`client`] | the library for those who ask: locks, units, placement over several servers | the loop |
//! | [`cli`] | commands and their options: the start of the daemon, and what asks it from a shell | the loop's insides |
//!
//! `tests/tidy.rs` holds the modules to it.
//!
//! # Invariants
//!
//! Invariant: a state machine takes the time as an argument and emits replies; it never calls back. The server, the
//! simulator, the fuzzer and the exhaustive test run the same code.
//!
//! Invariant: bytes from a peer may end its connection, never the process. Every loop over them has a budget and every
//! buffer a cap, each a named constant.
//!
//! Invariant: an end of file, or an error, is an event of its connection's turn. Whatever is served later finds given back
//! what that connection held.
//!
//! Invariant: closing a connection erases every reference to it, so its id can be used again at once.
//!
//! Invariant: a timer's id is spent once, by cancelling it or when it fires; it lies in the state that it belongs to.
//!
//! Invariant: `check()` of each table compares it with the others; tests call it after every step.
//!
//! # The library
//!
//! [`client`] is for Rust programs that use pools and counters; it shares with the daemon nothing but the `wire` of each
//! service. A test, or a program that brings its own server, runs [`net::Server::bind`] in a thread:
//!
//! ```
//! use poolcounter::client::{Client, Limits, MediaWiki, Outcome, Purpose};
//! use poolcounter::net::Server;
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
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How to add a service
//!
//! 1. A directory like `pools/`: `state.rs`, `wire.rs`, `options.rs` with its settings and its rows, and `mod.rs` with the
//!    [`service::Service`] and its [`service::Info`].
//! 2. Its line in [`registry::SERVICES`], from which follow its options, its port, its metrics and the upgrade.

pub mod address;
pub mod cli;
pub mod client;
pub mod counters;
pub mod decimal;
pub mod histogram;
pub mod http;
pub mod id;
pub mod jobs;
pub mod list;
pub mod members;
pub mod names;
pub mod net;
pub mod options;
pub mod output;
pub mod pools;
pub mod pulse;
pub mod random;
pub mod record;
pub mod registry;
pub mod report;
pub mod service;
pub mod settings;
pub mod sketch;
pub mod stats;
pub mod text;
pub mod time;
pub mod wheel;
