//! Server of a client, with its failure state: after a failure, requests do not wait for it, but later requests try it
//! in the background. Independent of the protocol.

use super::connection::ClientConnection;
use super::dial::Dial;
use super::error::Failure;
use super::{Timeouts, Tls};
use std::time::{Duration, Instant};

/// Limit of the pause after repeated failures, in units of [`Timeouts::retry`]; each pause is twice as long as the one
/// before. Longer pauses would save little: with the default timeouts, a server that accepts connections without
/// replying costs its callers one [`Timeouts::answer`] in 16 seconds. And until all clients have noticed that a server
/// is back, some lock its keys there and some at the next server.
const LONGEST_PAUSE: u32 = 8;

/// Server of a client.
#[derive(Debug)]
pub(super) struct Remote {
    address: String,
    default_port: u16,
    timeouts: Timeouts,
    /// TLS settings for an address with the prefix `tls:`.
    tls: Option<Tls>,
    /// Failure state; None unless it has failed since its last reply.
    dead: Option<Dead>,
}

#[derive(Debug)]
struct Dead {
    /// Last failure.
    failure: Failure,
    /// Pause after the last failure.
    pause: Duration,
    until: Instant,
    /// Connection attempt in the background.
    dial: Option<Dial>,
}

impl Remote {
    pub fn new(address: &str, default_port: u16, timeouts: Timeouts, tls: Option<Tls>) -> Remote {
        Remote { address: address.into(), default_port, timeouts, tls, dead: None }
    }

    /// Returns its address as configured.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns a new connection. A dead server is not waited for: returns the connection if the background attempt has
    /// made one, else the last failure.
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

    /// Records a reply: the server is alive.
    pub fn has_answered(&mut self) {
        self.dead = None;
    }

    /// Records a failure: the server is unreachable or does not reply correctly.
    pub fn has_failed(&mut self, failure: &Failure) {
        let shortest = self.timeouts.retry;
        let pause = self.dead.as_ref().map_or(shortest, |dead| (2 * dead.pause).min(LONGEST_PAUSE * shortest));
        self.dead = Some(Dead { failure: failure.clone(), pause, until: Instant::now() + pause, dial: None });
    }
}
