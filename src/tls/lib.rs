//! A terminator of TLS, in a process of its own: it takes the clients' connections, and passes on what they say in the clear to a server
//! on this machine, behind a header of the PROXY protocol that says who the client is. So the daemon has neither the key nor these
//! connections, which outlive its upgrades. It knows no protocol within.
//!
//! Invariant: each client has one connection to the server. It is closed as soon as the client is gone, as locks hang on it.

mod certificates;
mod common_name;
mod connection;
mod session;
mod side;
mod terminator;

pub use certificates::Files;
pub use common_name::Nameless;
pub use terminator::Terminator;
pub use terminator::upgrade::{check, inherited};

use poolcounter_core::address::Address;
use poolcounter_core::time::Span;

/// What the operator says of a terminator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The server behind it.
    pub to: Address,
    /// Where the certificate, its key and the clients' authorities are.
    pub files: Files,
    /// How many connections there may be at a time.
    pub max_connections: usize,
    /// How long a client may take for its handshake, and the server to take the connection.
    pub setup_time: Span,
}

/// What [`Settings::setup_time`] is unless somebody wants something else.
pub const SETUP_TIME: Span = Span::from_secs(10);
