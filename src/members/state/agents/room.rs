//! Providers by the room that they have left, for starts.

use super::{Agent, AgentId, Agents, BTreeSet, PoolId};
use poolcounter_core::Id as _;
use std::cmp::Reverse;

/// Most starts that a provider has under way: its loss ends them all in one step.
const MOST_STARTS: u32 = 4_096;

/// Room that a provider has left in proportion to its capacity, in 2^-32.
pub(in crate::state) type Share = u64;

/// Providers of a pool by their room.
#[derive(Default)]
pub(super) struct Rooms {
    /// Providers with a capacity of their own, least room first.
    own: BTreeSet<(Share, Reverse<AgentId>)>,
    /// Providers with the pool's capacity, by the number of their members and starts: most room first.
    of_pool: BTreeSet<(u32, AgentId)>,
}

fn share(capacity: u32, taken: u32) -> Share {
    (u64::from(capacity.saturating_sub(taken)) << 32) / u64::from(capacity.max(1))
}

impl Rooms {
    pub fn len(&self) -> usize {
        self.own.len() + self.of_pool.len()
    }

    pub fn has(&self, agent: &Agent, id: AgentId) -> bool {
        let (taken, _) = agent.taken;
        match agent.capacity {
            Some(capacity) => self.own.contains(&(share(capacity, taken), Reverse(id))),
            None => self.of_pool.contains(&(taken, id)),
        }
    }

    /// Returns the provider with most room, and its share, if it has some; `max` is the maximum of the pool.
    fn roomiest(&self, max: u32) -> Option<(Share, AgentId)> {
        let of_pool = self.of_pool.first().map(|(taken, id)| (share(max, *taken), Reverse(*id)));
        let best = self.own.last().copied().max(of_pool).filter(|(share, _)| *share > 0);
        best.map(|(share, Reverse(id))| (share, id))
    }
}

impl Agent {
    /// Returns whether it is in the order of its pool's providers by room.
    pub(super) fn has_room(&self) -> bool {
        let (_, starts) = self.taken;
        self.provides && self.conn.is_some() && starts < MOST_STARTS
    }
}

impl Agents {
    /// Returns whether a provider of the pool is connected and not in backoff.
    pub fn can_start(&self, pool: PoolId) -> bool {
        self.by_pool.get(pool).rooms[0].len() > 0
    }

    /// Returns the provider of a pool, the maximum of which is `max`, that has most room in proportion to its capacity,
    /// and that share.
    pub fn roomiest(&self, pool: PoolId, max: u32) -> Option<(Share, AgentId)> {
        self.by_pool.get(pool).rooms[0].roomiest(max)
    }

    /// Returns whether a provider of the pool could be asked for a start but for its backoff.
    pub fn waits_to_start(&self, pool: PoolId, max: u32) -> bool {
        self.by_pool.get(pool).rooms[1].roomiest(max).is_some()
    }

    /// Sets the number of members and starts of a provider, and of its starts alone.
    pub fn set_taken(&mut self, id: AgentId, taken: (u32, u32)) {
        self.order_room(id, false);
        self.agents[id.index()].taken = taken;
        self.order_room(id, true);
    }

    /// Puts a provider into the order of its pool's providers, or takes it from there.
    pub(super) fn order_room(&mut self, id: AgentId, is_in: bool) {
        let agent = &self.agents[id.index()];
        if !agent.has_room() {
            return;
        }
        let rooms = &mut self.by_pool.get_mut(agent.pool).rooms[usize::from(agent.backoff.is_some())];
        let (taken, _) = agent.taken;
        match agent.capacity.map(|capacity| (share(capacity, taken), Reverse(id))) {
            Some(entry) if is_in => _ = rooms.own.insert(entry),
            Some(entry) => _ = rooms.own.remove(&entry),
            None if is_in => _ = rooms.of_pool.insert((taken, id)),
            None => _ = rooms.of_pool.remove(&(taken, id)),
        }
    }
}
