//! Placing of waiters for groups: each causes its starts in one pool where they are possible now.

use super::*;
use poolcounter_core::meter::Metered as _;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most waiters that are examined for one that may take from a pool, and most that are unplaced in a step.
const MOST_LOOKED_AT: usize = 512;

impl State {
    /// Returns the number of starts and checks under way in a pool.
    pub(super) fn under_way(&self, id: PoolId) -> u64 {
        let checks = self.members.in_pool(id).count(PhaseKind::Checking);
        u64::from(self.starts.in_pool(id)) + u64::from(checks)
    }

    /// Returns the number of starts and checks that waiters need in a pool.
    pub(super) fn need(&self, id: PoolId) -> u64 {
        self.waiters.need(id, self.pool(id).group)
    }

    /// Returns the number of starts that a pool can make now.
    pub(super) fn launchable(&self, id: PoolId) -> u64 {
        if self.pool(id).is_leaving || !self.may_start(id) {
            return 0;
        }
        let providers = self.agents.in_pool(id).iter().metered().copied();
        let room: u64 = providers.filter(|id| self.is_able(*id)).map(|id| self.room_of(id).0).sum();
        room.min(u64::from(self.pool(id).settings.max) - self.slots(id))
    }

    /// Returns whether starts are under way in a pool that no waiter needs, and the number that it can make now.
    fn start_prospects(&self, id: PoolId) -> (bool, u64) {
        let Pool { group, is_leaving, .. } = *self.pool(id);
        if is_leaving || self.waiters.first_misplaced(id, group).is_some() {
            return (false, 0);
        }
        (self.has_spare_start(id), self.launchable(id))
    }

    /// Returns the pool in which a waiter for several pools causes its starts: one with starts under way that no waiter
    /// needs, or that with the most possible starts now; the first of several.
    pub(super) fn best_pool(&self, pools: &[PoolId]) -> Option<PoolId> {
        let prospects = pools.iter().copied().map(|id| (self.start_prospects(id), id));
        let possible = prospects.filter(|(prospects, _)| *prospects != (false, 0));
        // The iterator is reversed, because max_by_key takes the last of several.
        possible.rev().max_by_key(|(prospects, _)| *prospects).map(|(_, id)| id)
    }

    /// Unplaces waiters for groups that are not bound to a pool any more. If there are too many for a step, the pool is
    /// settled again.
    pub(super) fn unplace_waiters(&mut self, id: PoolId) {
        for _ in 0..MOST_LOOKED_AT {
            let Some(waiter) = self.next_unbound(id) else { return };
            self.move_want(waiter, None);
            // Free members of this pool do not spare it starts in another.
            self.waiters.set_want(waiter, self.waiters.get(waiter).starts_left());
        }
        self.background.fall_behind(id);
    }

    fn next_unbound(&mut self, id: PoolId) -> Option<WaiterId> {
        let Pool { group, is_leaving, .. } = *self.pool(id);
        let misplaced = self.waiters.first_misplaced(id, group.filter(|_| !is_leaving));
        misplaced.or_else(|| self.waiters.bind(id, self.under_way(id)))
    }

    /// Places waiters of a group that cause starts in no pool in pools where starts are possible now. Returns whether
    /// there is more to do.
    pub(super) fn place_waiters(&mut self, group: GroupId, step: &mut Step<'_, '_>) -> bool {
        let mut able = BinaryHeap::new();
        while let Some((pool, is_overdue)) = self.pools.next_candidate(group) {
            if !self.waiters.has_unplaced(group) {
                continue;
            }
            // Lossless: a pool has fewer agents than there are connections.
            let cost = background::COST + self.agents.in_pool(pool).len() as u32;
            if !step.timers.spend(cost.min(step.timers.budget().max(background::COST))) {
                self.pools.postpone_candidate(group, pool);
                break;
            }
            self.note_cramped(pool);
            let prospects = self.start_prospects(pool);
            if self.pool(pool).group == Some(group) && prospects != (false, 0) {
                able.push((is_overdue, prospects, Reverse(pool)));
            } else {
                self.waiters.end_search(group, pool);
            }
        }
        let mut passed = 0;
        while let Some((_, prospects, Reverse(pool))) = able.pop() {
            if passed > 0 && step.timers.budget() == 0 {
                self.pools.postpone_candidate(group, pool);
                able.drain().for_each(|(.., Reverse(pool))| self.pools.postpone_candidate(group, pool));
                break;
            }
            let looks = self.waiters.unplaced(group, pool).take(MOST_LOOKED_AT);
            let unable: Vec<WaiterId> = looks.take_while(|id| !self.can_take_from(*id, pool)).collect();
            passed += unable.len();
            // Lossless: it is at most MOST_LOOKED_AT.
            step.timers.charge(unable.len() as u32 * background::COST);
            unable.last().into_iter().for_each(|last| self.waiters.pass_unplaced(group, pool, *last));
            if unable.len() == MOST_LOOKED_AT {
                // There may be one behind these.
                self.pools.put_back_candidate(group, pool);
                continue;
            }
            let waiter = self.waiters.unplaced(group, pool).next();
            let left = match waiter {
                Some(waiter) => {
                    let want = u64::from(self.waiters.get(waiter).want);
                    self.move_want(waiter, Some(pool));
                    prospects.1.saturating_sub(want)
                }
                None => 0,
            };
            if left > 0 {
                able.push((false, (false, left), Reverse(pool)));
            } else if self.waiters.end_search(group, pool) && waiter.is_none() {
                self.pools.put_back_candidate(group, pool);
            }
        }
        self.pools.has_candidates(group)
    }
}
