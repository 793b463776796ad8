//! Waiters for several members: the choice of the one for which members are reserved until it has all.

use super::waiters::Look;
use super::waits::MOST_KINDS;
use super::*;
use poolcounter_core::meter::Metered as _;
use std::cell::LazyCell;

impl State {
    /// Returns the first waiter for several members that could have them. Behind many kinds of waiters that cannot,
    /// none is found.
    pub(super) fn first_to_reserve(&self, pool: PoolId, now: Time) -> Option<WaiterId> {
        if self.queued(pool) == 0 || self.pool(pool).is_leaving {
            return None;
        }
        let mut hopeless: Vec<Option<ClassId>> = Vec::new();
        // The number is the same for every kind.
        let startable = LazyCell::new(|| self.startable(pool));
        let first = self.waiters.first_for_several((pool, self.pool(pool).group), now, |id| {
            let waiter = self.waiters.get(id);
            if hopeless.len() == MOST_KINDS {
                return Look::End;
            }
            if hopeless.contains(&waiter.class) || !self.can_take_from(id, pool) {
                return Look::Other;
            }
            if self.could_fill(pool, waiter.filter.as_deref(), waiter.members(), || *startable) {
                return Look::Found;
            }
            hopeless.push(waiter.class);
            Look::Other
        });
        first.map(|(_, waiter)| waiter)
    }

    /// Returns whether this number of matching members could be had: from those that are not kept out, starts under
    /// way, and starts that providers can make now, as if stopping members were gone.
    fn could_fill(&self, pool: PoolId, filter: Option<&Filter>, members: u32, startable: impl FnOnce() -> u64) -> bool {
        let (of_pool, starts) = (self.members.in_pool(pool), u64::from(self.starts.in_pool(pool)));
        let lacking = u64::from(members).saturating_sub(starts);
        let has = |most: u64| match filter {
            None => of_pool.usable().min(most),
            Some(filter) => self.members.usable_with(pool, &filter.attributes, most),
        };
        let found = has(lacking);
        found == lacking || found + startable() >= lacking
    }

    /// Returns the number of members that providers can start now, as if stopping members were gone.
    fn startable(&self, pool: PoolId) -> u64 {
        let taken = self.members.in_pool(pool).live() + u64::from(self.starts.in_pool(pool));
        let room = |id: AgentId| {
            let (_, capacity) = self.room_of(id);
            let members = self.members.of_agent(id) - self.members.stopping_of(id);
            capacity.saturating_sub(u64::from(members) + u64::from(self.starts.of_agent(id)))
        };
        let providers = self.agents.in_pool(pool).iter().copied().metered();
        let room: u64 = providers.filter(|id| self.agents.get(*id).provides && self.is_able(*id)).map(room).sum();
        room.min(u64::from(self.pool(pool).settings.max).saturating_sub(taken))
    }
}
