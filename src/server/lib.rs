//! Sockets, the clock and the tick. Everything outside this module (and the client) runs without them.

mod clock;
mod connection;
mod connections;
mod dispatch;
mod handover;
mod id_maps;
mod idle;
mod listener;
mod process;
mod read_buffer;
mod reserve;
mod sd_notify;
mod server;
mod signals;
mod socket;
mod waker;

pub use self::sd_notify::sockets_from_supervisor;
pub use clock::Clock;
pub use connection::{Readiness, Stream};
pub use connections::{Connections, Host, rehearse};
pub use dispatch::health;
pub use handover::{Handover, Program, Rehearsal, StateFile, VERDICT, check, check_listeners};
pub use id_maps::tells_all_users;
pub use listener::{Keepalive, Listener, Options};
pub use poolcounter_core::address::Address;
pub use process::log_level;
pub use read_buffer::{Left, ReadBuffer, Unserved};
pub use sd_notify::{DaemonState, Notifier};
pub use server::{Policy, Server, poll, readiness_of};
pub use signals::{Receiver, Signals};
pub use socket::Socket;
pub use waker::Stopper;

/// The list of the program, for tests.
#[cfg(test)]
#[path = "../services.rs"]
mod services;
