//! A server that a client connects to, and whether it is dead: one that has failed is waited for no more, but tried in the background of
//! later calls. It knows no protocol.

use super::connection::ClientConnection;
use super::dial::Dial;
use super::error::Failure;
use super::{Timeouts, Tls};
use std::time::{Duration, Instant};

/// A server that has failed again is left alone for twice as long as before, but for no longer than so many times
/// [`Timeouts::retry`]. Longer pauses would save little: a server that accepts connections and says nothing costs its callers one
/// [`Timeouts::answer`] in 16 seconds, with the default timeouts. And until all clients have found a server that is back, some lock its
/// keys there and others at the next one.
const LONGEST_PAUSE: u32 = 8;

/// A server.
#[derive(Debug)]
pub(super) struct Remote {
    address: String,
    default_port: u16,
    timeouts: Timeouts,
    /// How to speak to it if it speaks TLS.
    tls: Option<Tls>,
    /// From its first failure until it has answered.
    dead: Option<Dead>,
}

#[derive(Debug)]
struct Dead {
    /// What was wrong last.
    failure: Failure,
    /// For how long it is left alone since then.
    pause: Duration,
    until: Instant,
    /// The connection that is being made in the background.
    dial: Option<Dial>,
}

impl Remote {
    pub fn new(address: &str, default_port: u16, timeouts: Timeouts, tls: Option<Tls>) -> Remote {
        Remote { address: address.into(), default_port, timeouts, tls, dead: None }
    }

    /// Returns its address as it was named.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns a new connection. A server that is dead is not waited for: either its connection stands already, or its last failure
    /// is returned.
    pub fn connect(&mut self) -> Result<ClientConnection, Failure> {
        let begin = || Dial::begin(&self.address, self.default_port, &self.timeouts, self.tls.as_ref());
        let connected = match &mut self.dead {
            None => begin().and_then(Dial::finish).map(Some),
            Some(Dead { failure, until, dial: None, .. }) if Instant::now() < *until => return Err(failure.clone()),
            Some(Dead { dial: Some(dial), .. }) => dial.advance(),
            Some(Dead { dial, .. }) => begin().and_then(|begun| dial.insert(begun).advance()),
        };
        match (connected, &mut self.dead) {
            (Ok(Some(connection)), dead) => {
                dead.iter_mut().for_each(|dead| dead.dial = None);
                Ok(connection)
            }
            (Ok(None), Some(dead)) => Err(dead.failure.clone()),
            (Ok(None), None) => unreachable!("where the connection is waited for, there is one or a failure"),
            (Err(failure), _) => {
                self.has_failed(&failure);
                Err(failure)
            }
        }
    }

    /// Notes that it has answered.
    pub fn has_answered(&mut self) {
        self.dead = None;
    }

    /// Notes that it cannot be reached, or does not answer as it should.
    pub fn has_failed(&mut self, failure: &Failure) {
        let shortest = self.timeouts.retry;
        let pause = self.dead.as_ref().map_or(shortest, |dead| (2 * dead.pause).min(LONGEST_PAUSE * shortest));
        self.dead = Some(Dead { failure: failure.clone(), pause, until: Instant::now() + pause, dial: None });
    }
}
