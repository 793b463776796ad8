//! The registry: one field per service, one match that hands out the right one.

use crate::counters::{self, Counters};
use crate::pools::{self, Pools};
use crate::service::{Service, Traffic};
use crate::wheel::Owner;
use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};

/// Which service a port speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// The PoolCounter protocol.
    Pools,
    /// The yrmcds counter protocol.
    Counters,
}

/// Something that each kind of service has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByKind<T>([T; Kind::ALL.len()]);

/// What the operator allows the clients of each service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Of the pools.
    pub pools: pools::Limits,
    /// Of the counters.
    pub counters: counters::Limits,
}

/// Every service of the daemon, with what happened to its connections.
pub struct Services {
    pools: (Pools, Traffic),
    counters: (Counters, Traffic),
}

impl Kind {
    /// Every kind of service.
    pub const ALL: [Kind; 2] = [Kind::Pools, Kind::Counters];

    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Pools => "pools",
            Kind::Counters => "counters",
        }
    }

    /// Whose timers are whose.
    pub fn owner(self) -> Owner {
        Owner(self as u8)
    }

    /// The service that armed a timer, if a service did.
    pub fn of(owner: Owner) -> Option<Kind> {
        Kind::ALL.get(usize::from(owner.0)).copied()
    }
}

impl<T> ByKind<T> {
    /// What `of` has for each.
    pub fn each(of: impl FnMut(Kind) -> T) -> Self {
        ByKind(Kind::ALL.map(of))
    }
}

impl<T> Index<Kind> for ByKind<T> {
    type Output = T;

    fn index(&self, kind: Kind) -> &T {
        &self.0[kind as usize]
    }
}

impl<T> IndexMut<Kind> for ByKind<T> {
    fn index_mut(&mut self, kind: Kind) -> &mut T {
        &mut self.0[kind as usize]
    }
}

impl Services {
    /// The services with nobody connected.
    pub fn new(limits: Limits) -> Self {
        Services {
            pools: (Pools::new(limits.pools), Traffic::default()),
            counters: (Counters::new(limits.counters), Traffic::default()),
        }
    }

    /// A service, and what happened to its connections.
    pub fn split(&mut self, kind: Kind) -> (&mut dyn Service, &mut Traffic) {
        match kind {
            Kind::Pools => (&mut self.pools.0, &mut self.pools.1),
            Kind::Counters => (&mut self.counters.0, &mut self.counters.1),
        }
    }

    /// What happened to the connections of a service.
    pub fn traffic(&mut self, kind: Kind) -> &mut Traffic {
        self.split(kind).1
    }

    /// How many connections there are.
    pub fn open(&self) -> u64 {
        self.pools.1.open + self.counters.1.open
    }

    /// The longest request that some service takes, in bytes.
    pub fn longest_request(&self) -> usize {
        self.all().into_iter().map(Service::longest_request).max().unwrap_or(0)
    }

    /// Has every service compare its tables.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        self.all().into_iter().for_each(Service::check);
    }

    /// Whether no service remembers any connection.
    pub fn is_empty(&self) -> bool {
        self.all().into_iter().all(Service::is_empty)
    }

    /// How many timers are armed on no connection's behalf.
    pub fn own_timers(&self) -> usize {
        self.all().into_iter().map(Service::own_timers).sum()
    }

    fn all(&self) -> [&dyn Service; Kind::ALL.len()] {
        [&self.pools.0, &self.counters.0]
    }
}
