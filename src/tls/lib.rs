//! Terminator of TLS, in a process of its own: it accepts the clients' connections, and passes on their plaintext to a
//! server on this machine, behind a header of the PROXY protocol that names the client. So the daemon has neither the
//! key nor these connections, which outlive its upgrades. It knows no protocol within.
//!
//! Invariant: each client has one connection to the server. It is closed as soon as the client disconnects, which
//! releases its locks.

mod certificates;
mod common_name;
mod connection;
mod session;
mod side;
mod terminator;

pub use certificates::Files;
pub use common_name::Nameless;
pub use poolcounter_server::check_listeners as check;
pub use terminator::Terminator;
pub use terminator::upgrade::inherited;

use poolcounter_core::{Address, Span};

/// Settings of a terminator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Address of the server behind it.
    pub to: Address,
    /// Paths of the certificate, its key and the clients' authorities.
    pub files: Files,
    /// Most connections at a time.
    pub max_connections: usize,
    /// Time limit of a client's handshake, and of the connection to the server.
    pub setup_time: Span,
}

/// Default of [`Settings::setup_time`].
pub const SETUP_TIME: Span = Span::from_secs(10);
