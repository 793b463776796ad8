//! The registry: one field per service, one match that hands out the right one.

use crate::pools::{self, Pools};
use crate::service::{Service, Traffic};
use crate::wheel::Owner;
use serde::{Deserialize, Serialize};

/// Which service a port speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// The PoolCounter protocol.
    Pools,
}

/// Every service of the daemon, with what happened to its connections.
pub struct Services {
    pools: (Pools, Traffic),
}

impl Kind {
    /// Every kind of service.
    pub const ALL: [Kind; 1] = [Kind::Pools];

    /// Whose timers are whose.
    pub fn owner(self) -> Owner {
        Owner(self as u8)
    }

    /// The service that armed a timer, if a service did.
    pub fn of(owner: Owner) -> Option<Kind> {
        Kind::ALL.get(usize::from(owner.0)).copied()
    }
}

impl Services {
    /// The services with nobody connected.
    pub fn new(pools: pools::Limits) -> Self {
        Services { pools: (Pools::new(pools), Traffic::default()) }
    }

    /// A service, and what happened to its connections.
    pub fn split(&mut self, kind: Kind) -> (&mut dyn Service, &mut Traffic) {
        match kind {
            Kind::Pools => (&mut self.pools.0, &mut self.pools.1),
        }
    }

    /// What happened to the connections of a service.
    pub fn traffic(&mut self, kind: Kind) -> &mut Traffic {
        self.split(kind).1
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
        [&self.pools.0]
    }
}
