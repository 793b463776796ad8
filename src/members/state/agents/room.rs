//! Providers by the room that they have left, for starts.

use super::*;

/// Most starts that a provider has under way: its loss ends them all in one step.
const MOST_STARTS: u32 = 4_096;

/// Room that a provider has left in proportion to its capacity, in 2^-32.
pub(in crate::state) type Share = u64;

/// Room of a provider that may be asked for starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::state) enum Room {
    /// It has a capacity of its own, and this share left.
    Own(Share),
    /// Its capacity is the maximum of its pool, and this number of members and starts are its own.
    OfPool(u32),
}

fn share(capacity: u32, taken: u32) -> Share {
    (u64::from(capacity.saturating_sub(taken)) << 32) / u64::from(capacity.max(1))
}

impl Agent {
    /// Returns the room of a provider with this number of members and starts, and of starts alone.
    pub(super) fn room_for(&self, taken: u32, starts: u32) -> Option<Room> {
        let is_able = self.provides && matches!(self.state, ProviderState::Serves(_)) && !self.backoff.is_running();
        (is_able && starts < MOST_STARTS).then(|| match self.capacity {
            Some(capacity) => Room::Own(share(capacity, taken)),
            None => Room::OfPool(taken),
        })
    }
}

impl Agents {
    /// Returns whether a provider of the pool is connected and not in backoff.
    pub fn can_start(&self, pool: PoolId) -> bool {
        let PoolAgents { own, of_pool, .. } = self.by_pool.get(pool);
        !own.is_empty() || !of_pool.is_empty()
    }

    /// Returns the provider of a pool, the maximum of which is `max`, that has most room in proportion to its capacity,
    /// and that share.
    pub fn roomiest(&self, pool: PoolId, max: u32) -> Option<(Share, AgentId)> {
        let PoolAgents { own, of_pool, .. } = self.by_pool.get(pool);
        let of_pool = of_pool.first().map(|(taken, id)| (share(max, *taken), Reverse(*id)));
        let best = own.last().copied().max(of_pool).filter(|(share, _)| *share > 0);
        best.map(|(share, Reverse(id))| (share, id))
    }

    /// Puts a provider into the order of its pool's providers. `taken` is the number of its members and starts, `starts`
    /// that of its starts alone.
    pub fn set_room(&mut self, id: AgentId, taken: u32, starts: u32) {
        self.leave_room(id);
        let agent = &mut self.agents[id.index()];
        agent.room = agent.room_for(taken, starts);
        let of_pool = self.by_pool.get_mut(agent.pool);
        match agent.room {
            Some(Room::Own(share)) => _ = of_pool.own.insert((share, Reverse(id))),
            Some(Room::OfPool(taken)) => _ = of_pool.of_pool.insert((taken, id)),
            None => {}
        }
    }

    /// Removes a provider from the order of its pool's providers.
    pub(super) fn leave_room(&mut self, id: AgentId) {
        let agent = &mut self.agents[id.index()];
        let of_pool = self.by_pool.get_mut(agent.pool);
        match agent.room.take() {
            Some(Room::Own(share)) => _ = of_pool.own.remove(&(share, Reverse(id))),
            Some(Room::OfPool(taken)) => _ = of_pool.of_pool.remove(&(taken, id)),
            None => {}
        }
    }
}
