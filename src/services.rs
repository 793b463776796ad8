//! The registry: one field per service, one match that hands out the right one.

use crate::counters::{self, Counters};
use crate::http::{Http, Serving, Sources};
use crate::pools::{self, Pools};
use crate::report::{self, Overview};
use crate::service::{Peers, Service, Traffic};
use crate::time::Time;
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
    /// Metrics and the status page, which look at the other services.
    Http,
}

/// Something that each kind of service has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
    http: (Http, Traffic),
}

/// What the http service may look at while it is served.
struct Others<'a> {
    pools: &'a (Pools, Traffic),
    counters: &'a (Counters, Traffic),
    http: Traffic,
}

impl Kind {
    /// Every kind of service.
    pub const ALL: [Kind; 3] = [Kind::Pools, Kind::Counters, Kind::Http];

    /// What it is called in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Pools => "pools",
            Kind::Counters => "counters",
            Kind::Http => "http",
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
            http: (Http::default(), Traffic::default()),
        }
    }

    /// Calls with a service, and with what happened to its connections.
    pub fn with<R>(&mut self, kind: Kind, call: impl FnOnce(&mut dyn Service, &Traffic) -> R) -> R {
        let Services { pools, counters, http } = self;
        match kind {
            Kind::Pools => call(&mut pools.0, &pools.1),
            Kind::Counters => call(&mut counters.0, &counters.1),
            Kind::Http => {
                let others = Others { pools, counters, http: http.1 };
                call(&mut Serving { http: &mut http.0, sources: &others }, &http.1)
            }
        }
    }

    /// What happened to the connections of a service.
    pub fn traffic(&mut self, kind: Kind) -> &mut Traffic {
        match kind {
            Kind::Pools => &mut self.pools.1,
            Kind::Counters => &mut self.counters.1,
            Kind::Http => &mut self.http.1,
        }
    }

    /// Whether it is time for [`Services::sample`].
    pub fn wants_sample(&self, now: Time) -> bool {
        self.http.0.wants_sample(now)
    }

    /// Notes how things stand, for those who look back.
    pub fn sample(&mut self, now: Time) {
        self.http.0.sample(now, self.pools.0.sample());
    }

    /// How many connections there are.
    pub fn open(&self) -> u64 {
        self.pools.1.open + self.counters.1.open + self.http.1.open
    }

    /// The longest request that some service takes, in bytes.
    pub fn longest_request(&mut self) -> usize {
        let longest = |kind| self.with(kind, |service, _| service.longest_request());
        Kind::ALL.into_iter().map(longest).max().unwrap_or(0)
    }

    /// Has every service compare its tables.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        self.with_tables().into_iter().for_each(Service::check);
    }

    /// Whether no service remembers any connection.
    pub fn is_empty(&self) -> bool {
        self.with_tables().into_iter().all(Service::is_empty)
    }

    /// How many timers are armed on no connection's behalf.
    pub fn own_timers(&self) -> usize {
        self.with_tables().into_iter().map(Service::own_timers).sum()
    }

    /// The services that remember something of connections; http remembers nothing.
    fn with_tables(&self) -> [&dyn Service; 2] {
        [&self.pools.0, &self.counters.0]
    }
}

impl Sources for Others<'_> {
    fn overview(&self, now: Time, peers: &dyn Peers) -> Overview {
        let (pools, traffic) = self.pools;
        let mut pools = pools.report(now, traffic, peers);
        let figures = std::mem::take(&mut pools.figures);
        let counters = self.counters.0.figures(&self.counters.1).rows().collect();
        let service = |kind: Kind, traffic, figures| report::Service { name: kind.name(), traffic, figures };
        let services = vec![
            service(Kind::Pools, *traffic, figures),
            service(Kind::Counters, self.counters.1, counters),
            service(Kind::Http, self.http, Vec::new()),
        ];
        Overview { services, pools }
    }
}
