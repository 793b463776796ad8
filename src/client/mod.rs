//! The client library: blocking, without threads of its own, on the standard library and the services' own `wire`. It
//! must not know the daemon's loop.

mod connection;
mod error;
mod fleet;
mod placement;
mod pools;

pub use crate::pools::Purpose;
pub use error::{Error, Failure};
pub use placement::{MediaWiki, Placement, Ring};
pub use pools::{Client, Limits, Lock, Outcome};

use std::time::Duration;

/// The longest time that the protocol can name, 136 years: sums of times that are cut to it do not overflow.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64 + 1);

/// How long a client is patient with a server. With zero for `connect` or `answer`, no server is fast enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// Until a connection is made. Each address of a host has as long; looking the host up is not counted.
    pub connect: Duration,
    /// Until the answer is here, on top of what a request may wait by its own timeout.
    pub answer: Duration,
    /// How long a server that failed is not asked again. It bounds what a dead machine costs: `connect` once in this time.
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
