//! Agents of a pool by the number of members that they clean.

use super::{Agent, AgentId, Agents, BTreeSet, PoolAgents, PoolId};
use poolcounter_core::{Id as _, Metered as _};

/// Agents by the number of members that they clean, and by arrival.
pub(super) type ByLoad = BTreeSet<(u32, u64, AgentId)>;

impl Agents {
    /// Returns whether a provider or cleaner of the pool is connected.
    pub fn has_any(&self, pool: PoolId) -> bool {
        !self.by_pool.get(pool).workers.is_empty()
    }

    /// Returns the agent of a pool with the least to clean.
    pub fn first_in_pool(&self, pool: PoolId) -> Option<AgentId> {
        self.by_pool.get(pool).workers.first().map(|(.., id)| *id)
    }

    /// Returns whether a provider of the pool is connected.
    pub fn is_provided(&self, pool: PoolId) -> bool {
        self.by_pool.get(pool).providers > 0
    }

    /// Returns the cleaner with the least load, else the provider of the member, else any agent of the pool. The agent
    /// that has `failed` comes last.
    pub fn cleaner_for(&self, pool: PoolId, provider: Option<AgentId>, failed: Option<u64>) -> Option<AgentId> {
        let PoolAgents { workers, cleaners, .. } = self.by_pool.get(pool);
        let least = |order: &ByLoad| {
            let mut all = order.iter().metered();
            let (_, place, first) = all.next()?;
            let other = if Some(*place) == failed { all.next() } else { None };
            Some(other.map_or(*first, |(.., id)| *id))
        };
        let provider = provider.filter(|agent| self.get(*agent).conn.is_some());
        least(cleaners).or(provider).or_else(|| least(workers))
    }

    /// Puts a connected agent into the orders of its pool, by the place of its connection.
    pub(super) fn enlist(&mut self, id: AgentId) {
        let conn = self.get(id).conn.expect("only a connected agent is in the orders");
        self.agents[id.index()].place = Some(self.of_conn_mut(conn).place);
        self.order(id, true);
    }

    /// Removes an agent from the orders of its pool.
    pub(super) fn delist(&mut self, id: AgentId) {
        self.order(id, false);
        self.agents[id.index()].place = None;
    }

    /// Changes an agent, and its position in the orders of its pool.
    pub fn change(&mut self, id: AgentId, change: impl FnOnce(&mut Agent)) {
        self.order(id, false);
        change(&mut self.agents[id.index()]);
        self.order(id, true);
    }

    fn order(&mut self, id: AgentId, is_in: bool) {
        let Agent { pool, provides, cleans, cleaning, place, .. } = self.agents[id.index()];
        let Some(place) = place else { return };
        let PoolAgents { workers, cleaners, providers, .. } = self.by_pool.get_mut(pool);
        let entry = (cleaning, place, id);
        for order in [Some(workers), cleans.then_some(cleaners)].into_iter().flatten() {
            _ = if is_in { order.insert(entry) } else { order.remove(&entry) };
        }
        let provides = u32::from(provides);
        *providers = if is_in { *providers + provides } else { *providers - provides };
        self.order_room(id, is_in);
    }
}
