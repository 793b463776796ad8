//! Agents of a pool by the number of members that they clean.

use super::{Agent, AgentId, Agents, BTreeSet, PoolAgents, PoolId};
use poolcounter_core::{ConnId, Id as _, Metered as _};

/// Agents by the number of members that they clean.
pub(super) type ByLoad = BTreeSet<(u32, AgentId)>;

impl Agents {
    /// Returns whether a provider or cleaner of the pool is connected.
    pub fn has_any(&self, pool: PoolId) -> bool {
        !self.by_pool.get(pool).workers.is_empty()
    }

    /// Returns the agent of a pool with the least to clean.
    pub fn first_in_pool(&self, pool: PoolId) -> Option<AgentId> {
        self.by_pool.get(pool).workers.first().map(|(_, id)| *id)
    }

    /// Returns whether a provider of the pool is connected.
    pub fn is_provided(&self, pool: PoolId) -> bool {
        self.by_pool.get(pool).providers > 0
    }

    /// Returns the cleaner with the least load, else the provider of the member, else any agent of the pool. The agent
    /// that has `failed` comes last.
    pub fn cleaner_for(&self, pool: PoolId, provider: Option<AgentId>, failed: Option<ConnId>) -> Option<AgentId> {
        let PoolAgents { workers, cleaners, .. } = self.by_pool.get(pool);
        let least = |order: &ByLoad| {
            let mut all = order.iter().metered();
            let (_, first) = all.next()?;
            let other = if self.get(*first).conn == failed { all.next() } else { None };
            Some(other.map_or(*first, |(_, id)| *id))
        };
        let provider = provider.filter(|agent| self.get(*agent).conn.is_some());
        least(cleaners).or(provider).or_else(|| least(workers))
    }

    /// Changes an agent, and its position in the orders of its pool.
    pub fn change(&mut self, id: AgentId, change: impl FnOnce(&mut Agent)) {
        self.order(id, false);
        change(&mut self.agents[id.index()]);
        self.order(id, true);
    }

    /// Puts an agent into the orders of its pool, or takes it from there, if it is connected.
    pub(super) fn order(&mut self, id: AgentId, is_in: bool) {
        let Agent { conn: Some(_), pool, provides, cleans, cleaning, .. } = self.agents[id.index()] else { return };
        let PoolAgents { workers, cleaners, providers, .. } = self.by_pool.get_mut(pool);
        let entry = (cleaning, id);
        for order in [Some(workers), cleans.then_some(cleaners)].into_iter().flatten() {
            _ = if is_in { order.insert(entry) } else { order.remove(&entry) };
        }
        let provides = u32::from(provides);
        *providers = if is_in { *providers + provides } else { *providers - provides };
        self.order_room(id, is_in);
    }
}
