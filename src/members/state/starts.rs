//! Table of the starts under way. A start that has failed is not remembered: an answer to it is late.

use super::{AgentId, PoolId, StartId, Step, Timer};
use poolcounter_core::{Id as _, Links, List, SideTable, Span, Time, TimerId};
use slab::Slab;
use std::collections::BTreeMap;

pub(super) struct Start {
    /// Number in the protocol.
    pub number: u64,
    pub pool: PoolId,
    pub agent: AgentId,
    pub since: Time,
    pub timer: TimerId,
}

/// All starts under way, by number, by pool and by provider.
#[derive(Default)]
pub(super) struct Starts {
    starts: Slab<Start>,
    /// Number of the next start.
    pub next_number: u64,
    by_number: BTreeMap<u64, StartId>,
    by_pool: SideTable<PoolId, List<StartId>>,
    pool_links: Links,
    by_agent: SideTable<AgentId, List<StartId>>,
    agent_links: Links,
}

impl Starts {
    /// Returns the number of all starts.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Start> {
        self.starts.iter().map(|(_, start)| start)
    }

    pub fn get(&self, id: StartId) -> &Start {
        &self.starts[id.index()]
    }

    /// Returns the start of this number, unless it has ended.
    pub fn find(&self, number: u64) -> Option<StartId> {
        self.by_number.get(&number).copied()
    }

    /// Returns the starts in a pool, oldest first.
    pub fn in_pool(&self, pool: PoolId) -> &List<StartId> {
        self.by_pool.get(pool)
    }

    /// Returns the starts of a provider, oldest first.
    pub fn of_agent(&self, agent: AgentId) -> &List<StartId> {
        self.by_agent.get(agent)
    }

    /// Adds a start of a provider, and returns its number.
    pub fn begin(&mut self, pool: PoolId, agent: AgentId, timeout: Span, step: &mut Step<'_, '_>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.insert(number, (pool, agent), step.now, step.now + timeout, step);
        number
    }

    /// Adds a start with its begin and its deadline. Returns false if there is one of this number.
    pub fn insert(
        &mut self,
        number: u64,
        (pool, agent): (PoolId, AgentId),
        since: Time,
        until: Time,
        step: &mut Step<'_, '_>,
    ) -> bool {
        let id = StartId::from_index(self.starts.vacant_key());
        self.by_pool.get_mut(pool).push_back(&mut self.pool_links, id);
        self.by_agent.get_mut(agent).push_back(&mut self.agent_links, id);
        let timer = step.timers.arm(until, Timer::Start(id));
        self.starts.insert(Start { number, pool, agent, since, timer });
        self.by_number.insert(number, id).is_none()
    }

    /// Removes a start. Its timer is to be cancelled, or has fired.
    pub fn remove(&mut self, id: StartId) -> Start {
        let start = self.starts.remove(id.index());
        self.by_pool.get_mut(start.pool).remove(&mut self.pool_links, id);
        self.by_agent.get_mut(start.agent).remove(&mut self.agent_links, id);
        self.by_number.remove(&start.number);
        start
    }

    /// Compares the indexes with the starts.
    pub fn check(&self) {
        let (mut pools, mut agents) = (BTreeMap::new(), BTreeMap::new());
        for (index, start) in &self.starts {
            assert_eq!(self.find(start.number), Some(StartId::from_index(index)), "a start is found by its number");
            *pools.entry(start.pool).or_insert(0) += 1;
            *agents.entry(start.agent).or_insert(0) += 1;
        }
        assert_eq!(self.by_number.len(), self.starts.len(), "each number is of a start");
        let of_pools = self.by_pool.iter().filter(|(_, starts)| !starts.is_empty());
        assert!(of_pools.map(|(pool, starts)| (pool, starts.len())).eq(pools), "starts by pool");
        let of_agents = self.by_agent.iter().filter(|(_, starts)| !starts.is_empty());
        assert!(of_agents.map(|(agent, starts)| (agent, starts.len())).eq(agents), "starts by provider");
    }
}
