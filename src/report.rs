//! What a service tells those who operate it: plain values, taken at one moment. Who shows them, and how, is not known here.

use crate::histogram::Histogram;
use crate::service::Traffic;
use crate::stats::Row;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Everything that the services tell.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Every service, in the order of the registry.
    pub services: Vec<ServiceReport>,
}

impl Overview {
    /// Returns what only pools have.
    pub fn pools(&self) -> Option<&Pools> {
        self.services.iter().find_map(|service| service.report.pools.as_ref())
    }
}

/// What is known of one service.
#[derive(Clone, Debug)]
pub struct ServiceReport {
    /// Its name.
    pub name: &'static str,
    /// What happened to its connections.
    pub traffic: Traffic,
    /// What it tells itself.
    pub report: Report,
}

/// What a service tells.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its table with its values.
    pub figures: Vec<(&'static Row, u64)>,
    /// What only pools have.
    pub pools: Option<Pools>,
}

/// The pools as they are now, and what has happened in them.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    /// What has happened by type of work, the type that acquired most first.
    pub types: Vec<Type>,
    /// The keys alive for which most work and wait, busiest first.
    pub busiest: Vec<Key>,
    /// The keys with most refusals and waits lately, worst first, whether they are alive or not.
    pub hottest: Vec<HotKey>,
    /// How many events more than [`Pools::hottest`] says a key may have had; one that is missing there counts as none.
    pub hottest_error: u64,
    /// Who has held a lock for longest, oldest first.
    pub holders: Vec<Holder>,
}

/// One type of work: what the part of a key before its first `:` names.
#[derive(Clone, Debug, Default)]
pub struct Type {
    /// The type, in the bytes of clients; `other` for all that came when there were too many.
    pub name: Vec<u8>,
    /// Locks held.
    pub working: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Locks granted.
    pub acquired: u64,
    /// Waits that ended because somebody else did the work.
    pub done: u64,
    /// Requests refused because too many held or waited.
    pub full: u64,
    /// Waits that ended without a lock, requests that would not wait among them.
    pub timeouts: u64,
    /// How long those waited who waited at all.
    pub waits: Histogram,
    /// How long locks were held.
    pub holds: Histogram,
}

/// A key that somebody holds or waits for.
#[derive(Clone, Debug, Default)]
pub struct Key {
    /// The key, in the bytes of clients.
    pub key: Vec<u8>,
    /// Locks held.
    pub working: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// How long the oldest of them has been held or waited for.
    pub oldest: Span,
}

/// A key with many refusals and waits in about the last hour: an event counts half as much after half an hour. There were
/// never fewer.
#[derive(Clone, Debug, Default)]
pub struct HotKey {
    /// The key, in the bytes of clients.
    pub key: Vec<u8>,
    /// Requests refused lately: QUEUE_FULL and TIMEOUT.
    pub refusals: u64,
    /// Requests that waited lately.
    pub waits: u64,
}

/// Somebody who holds a lock.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    /// The key, in the bytes of clients.
    pub key: Vec<u8>,
    /// The address of the client.
    pub peer: String,
    /// How long it has held the lock.
    pub age: Span,
}

/// How the pools stand: little enough to be noted every few seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Locks granted since the start.
    pub acquired: u64,
    /// Requests refused for a full queue since the start.
    pub refused: u64,
    /// Locks held.
    pub working: u64,
    /// Requests that wait.
    pub waiting: u64,
}
