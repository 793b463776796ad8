//! Providers by the room that they have left, for starts.

use super::{Agent, AgentId, Agents, BTreeSet, PoolId, ProviderState};
use poolcounter_core::id::Id as _;
use std::cmp::Reverse;

/// Most starts that a provider has under way: its loss ends them all in one step.
const MOST_STARTS: u32 = 4_096;

/// Room that a provider has left in proportion to its capacity, in 2^-32.
pub(in crate::state) type Share = u64;

/// Room of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::state) struct Room {
    /// True while it is in backoff, and asked for no start.
    waits: bool,
    left: Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// It has a capacity of its own, and this share left.
    Own(Share),
    /// Its capacity is the maximum of its pool, and this number of members and starts are its own.
    OfPool(u32),
}

/// Providers of a pool by their room.
#[derive(Default)]
pub(super) struct Rooms {
    /// Providers with a capacity of their own, least room first.
    own: BTreeSet<(Share, Reverse<AgentId>)>,
    /// Providers with the pool's capacity, most room first.
    of_pool: BTreeSet<(u32, AgentId)>,
}

fn share(capacity: u32, taken: u32) -> Share {
    (u64::from(capacity.saturating_sub(taken)) << 32) / u64::from(capacity.max(1))
}

impl Room {
    /// Returns the index of the order in which its provider is.
    pub fn order(self) -> usize {
        usize::from(self.waits)
    }
}

impl Rooms {
    pub fn len(&self) -> usize {
        self.own.len() + self.of_pool.len()
    }

    pub fn has(&self, room: Room, id: AgentId) -> bool {
        match room.left {
            Left::Own(share) => self.own.contains(&(share, Reverse(id))),
            Left::OfPool(taken) => self.of_pool.contains(&(taken, id)),
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
    /// Returns the room of a provider with this number of members and starts, and of starts alone.
    pub(super) fn room_for(&self, taken: u32, starts: u32) -> Option<Room> {
        let is_able = self.provides && matches!(self.state, ProviderState::Serves(_)) && starts < MOST_STARTS;
        let left = match self.capacity {
            Some(capacity) => Left::Own(share(capacity, taken)),
            None => Left::OfPool(taken),
        };
        is_able.then_some(Room { waits: self.backoff.timer.is_some(), left })
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

    /// Puts a provider into the order of its pool's providers. `taken` is the number of its members and starts, `starts`
    /// that of its starts alone.
    pub fn set_room(&mut self, id: AgentId, taken: u32, starts: u32) {
        self.leave_room(id);
        let agent = &mut self.agents[id.index()];
        agent.room = agent.room_for(taken, starts);
        let Some(room) = agent.room else { return };
        let rooms = &mut self.by_pool.get_mut(agent.pool).rooms[room.order()];
        match room.left {
            Left::Own(share) => _ = rooms.own.insert((share, Reverse(id))),
            Left::OfPool(taken) => _ = rooms.of_pool.insert((taken, id)),
        }
    }

    /// Removes a provider from the order of its pool's providers.
    pub(super) fn leave_room(&mut self, id: AgentId) {
        let agent = &mut self.agents[id.index()];
        let Some(room) = agent.room.take() else { return };
        let rooms = &mut self.by_pool.get_mut(agent.pool).rooms[room.order()];
        match room.left {
            Left::Own(share) => _ = rooms.own.remove(&(share, Reverse(id))),
            Left::OfPool(taken) => _ = rooms.of_pool.remove(&(taken, id)),
        }
    }
}
