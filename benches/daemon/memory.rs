//! Resident memory of the server per connection that is idle after a request, or that waits.

use super::clients::Clients;
use super::crowd::{self, HOLDER};
use super::report::Values;
use super::server::Server;
use super::settings::Settings;
use std::io;

/// State of the connections.
#[derive(Clone, Copy, PartialEq)]
pub enum Idleness {
    /// Idle, after a lock and its release.
    Idle,
    /// Waiting for the same key.
    WaitForOne,
    /// Each waiting for a key of its own.
    WaitForOwn,
}

/// Number of locks that one connection may have, and so of keys that one holder keeps busy.
const LOCKS_PER_HOLDER: usize = 4;

/// Returns the resident bytes per connection.
pub fn measure(server: &Server, wanted: usize, idleness: Idleness, settings: &Settings) -> io::Result<Values> {
    let (holders, count) = population(wanted, idleness, settings);
    let mut clients = Clients::connect(server, holders)?;
    for key in 0..if idleness == Idleness::WaitForOwn { count } else { 1 } {
        clients.expect(key / LOCKS_PER_HOLDER, &acquire(key), "LOCKED")?;
    }
    let before = server.resident()?;
    let mut others = Clients::connect(server, count)?;
    for client in 0..count {
        match idleness {
            Idleness::Idle => {
                others.expect(client, format!("ACQ4ME Idle:{client} 1 100 5\n").as_bytes(), "LOCKED")?;
                others.expect(client, b"RELEASE\n", "RELEASED")?;
            }
            Idleness::WaitForOne => others.send(client, &acquire(0))?,
            Idleness::WaitForOwn => others.send(client, &acquire(client))?,
        }
    }
    if idleness != Idleness::Idle {
        crowd::await_waiters(&mut clients, count)?;
    }
    let grown = server.resident()?.saturating_sub(before);
    Ok(vec![grown as f64 / others.len() as f64])
}

/// Returns the number of holders, and of wanted connections that the descriptors allow beside them.
pub fn population(wanted: usize, idleness: Idleness, settings: &Settings) -> (usize, usize) {
    match idleness {
        Idleness::Idle | Idleness::WaitForOne => (HOLDER + 1, settings.connections(wanted)),
        Idleness::WaitForOwn => {
            let most = settings.connections(wanted + wanted.div_ceil(LOCKS_PER_HOLDER));
            let count = most * LOCKS_PER_HOLDER / (LOCKS_PER_HOLDER + 1);
            (count.div_ceil(LOCKS_PER_HOLDER), count)
        }
    }
}

fn acquire(key: usize) -> Vec<u8> {
    format!("ACQ4ME Article:{key} 1 100000 300\n").into_bytes()
}
