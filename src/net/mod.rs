//! Sockets, the clock and the tick. Everything outside this module (and the client) runs without them.

mod clock;
mod connection;
mod connections;
mod inlet;
mod listener;
mod server;
mod signals;
mod socket;

pub use connection::{News, Stream};
pub use connections::Connections;
pub use listener::{Address, Keepalive, Listener, Options};
pub use server::Server;
