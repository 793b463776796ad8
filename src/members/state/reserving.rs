//! Waiters for several members: the one for which members are reserved until it has all.

use super::lifecycle::Cause;
use super::waiters::{Demand, Look};
use super::waits::Retry;
use super::*;
use poolcounter_core::meter::Metered as _;
use std::cell::LazyCell;

/// Most kinds of waiters for several that are examined for one that can have its members.
const MOST_KINDS: usize = 16;

impl State {
    /// Returns the waiter for several members for which the members that it can use are reserved.
    #[inline]
    pub(super) fn reserving_waiter(&self, pool: PoolId, now: Time) -> Option<(Rank, WaiterId)> {
        let waiter = self.waiters.reserving(pool).filter(|id| self.can_take_from(*id, pool))?;
        Some((self.waiters.get(waiter).rank(now), waiter))
    }

    /// Chooses the waiter for which members are reserved if more members are usable than at the last look: one that could
    /// not have its members then may be able to now.
    pub(super) fn reserve_for_more(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        if self.members.in_pool(pool).usable() > self.waiters.usable(pool) {
            step.timers.spend(MOST_KINDS as u32);
            self.settle_reserving_waiter(pool, step.now);
        }
    }

    /// Chooses the waiter for which members are reserved, and the starts that it needs.
    pub(super) fn settle_reserving_waiter(&mut self, pool: PoolId, now: Time) {
        if self.queued(pool) == 0 && self.waiters.reserving(pool).is_none() {
            return;
        }
        let first = self.first_to_reserve(pool, now);
        if let Some(id) = self.waiters.set_reserving(pool, first)
            && let Some(before) = self.waiters.find(id)
        {
            let (is_here, want) = (before.starts_in() == Some(pool), before.starts_left());
            self.pools.retry(pool, Retry::Reserved(before.filter.clone()));
            if is_here {
                self.waiters.set_want(id, want);
            }
        }
        first.into_iter().for_each(|waiter| self.settle_want(waiter, pool));
        if self.queued(pool) > 0 {
            self.waiters.set_usable(pool, self.members.in_pool(pool).usable());
            let oldest = self.first(pool, Demand::Several, now).filter(|next| next.is_known).map(|next| next.waiter);
            let oldest = oldest.filter(|id| Some(*id) != first);
            oldest.into_iter().for_each(|waiter| self.settle_want(waiter, pool));
        }
    }

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

    /// Offers members that were reserved for a waiter with this filter to others.
    pub(super) fn release_reserved(&mut self, pool: PoolId, filter: Option<&Filter>, step: &mut Step<'_, '_>) {
        if self.queued(pool) == 0 || self.agents.has_orphaned_free(pool) {
            return;
        }
        let members = self.free_that_suit(pool, filter, MOST_AT_ONCE);
        if members.len() == MOST_AT_ONCE as usize {
            // Some of them must be checked, so more may be free than a waiter can ask for.
            return self.reconsider(pool, step);
        }
        for id in members {
            if self.members.find(id).is_some_and(|member| member.phase.kind() == PhaseKind::Free) {
                self.offer_to_waiters(id, Cause::Other, step);
            }
        }
    }

    /// Lowers the starts that a waiter needs by the members that are reserved for it, or raises them. A waiter that
    /// causes its starts in another pool of its group needs as many as before: there, others may come before it.
    pub(super) fn settle_want(&mut self, id: WaiterId, pool: PoolId) {
        let Some(waiter) = self.waiters.find(id).filter(|waiter| waiter.starts_in() == Some(pool)) else { return };
        let reserved = self.suiting(pool, waiter.filter.as_deref(), waiter.members());
        let want = waiter.members().saturating_sub(reserved.max(waiter.starts_used));
        if let Some(pool) = self.waiters.set_want(id, want) {
            self.pools.touch(pool);
        }
    }

    /// Returns the number of free members of the pool that suit a take for several, at most `most`.
    pub(super) fn suiting(&self, pool: PoolId, filter: Option<&Filter>, most: u32) -> u32 {
        match filter {
            None => self.free_count(pool).min(most),
            // Lossless: they are at most `most`.
            filter => self.free_that_suit(pool, filter, most).len() as u32,
        }
    }

    /// Returns free members of a pool that suit a take for several, at most `most`.
    fn free_that_suit(&self, pool: PoolId, filter: Option<&Filter>, most: u32) -> Vec<MemberId> {
        let (members, is_back) = (most as usize, self.pool(pool).settings.order == Order::Lifo);
        match filter {
            Some(Filter { attributes, .. }) => {
                self.members.find_free(pool, &Wanted { attributes, members, is_back }, |_| true)
            }
            None if is_back => self.members.free_back(pool).take(members).collect(),
            None => self.members.free(pool).take(members).collect(),
        }
    }
}
