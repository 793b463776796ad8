//! Sockets, the clock and the tick. Everything outside this module (and the client) runs without them.

mod clock;
mod connection;
mod connections;
mod dispatch;
mod handover;
mod idle;
mod inlet;
mod listener;
mod memory;
mod server;
mod signals;
mod socket;
mod supervisor;
mod waker;

pub use crate::address::Address;
pub use connection::{News, Stream};
pub use connections::{Connections, Host, rehearse};
pub use handover::{Handover, check};
pub use listener::{Keepalive, Listener, Options};
pub use server::{Policy, Server};
pub use supervisor::sockets_from_supervisor;
pub use waker::Stopper;
