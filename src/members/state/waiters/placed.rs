//! Waiters for groups, by the pool in which they cause starts.

use super::*;

/// The waiters for groups that cause their starts in a pool.
#[derive(Default)]
pub(super) struct PlacedWaiters {
    /// Waiters that need starts.
    pub waiters: List<WaiterId>,
    /// Waiters that need no starts now.
    pub content: List<WaiterId>,
    /// Number of starts that the waiters may have under way.
    pub need: u64,
    /// Number of starts and checks under way to which waiters are bound.
    bound: u64,
    /// Number of starts and checks that were under way when the pool was last settled.
    covered: u64,
}

/// Search for a waiter for a group that may take from a pool.
pub(super) struct Search {
    /// Last waiter that was passed over.
    pub passed: WaiterId,
    /// True if the search begins again at its end, because the pool has changed.
    is_again: bool,
}

impl PlacedWaiters {
    /// Returns whether no waiter for a group causes its starts in the pool.
    fn is_unused(&self) -> bool {
        self.waiters.is_empty() && self.content.is_empty()
    }

    fn list_for(&mut self, want: u32) -> &mut List<WaiterId> {
        if want > 0 { &mut self.waiters } else { &mut self.content }
    }
}

impl Waiters {
    /// Returns whether a waiter for a group needs starts and causes them in no pool.
    pub fn has_unplaced(&self, group: GroupId) -> bool {
        !self.by_group.get(group).unplaced.is_empty()
    }

    /// Returns the waiters for a group that need starts and cause them in no pool, in the order of their placing, behind
    /// those that a search for waiters that may take from a pool has passed over.
    pub fn unplaced(&self, group: GroupId, pool: PoolId) -> impl Iterator<Item = WaiterId> {
        let GroupWaiters { unplaced, searches, .. } = self.by_group.get(group);
        let first = match searches.get(&pool) {
            Some(search) => self.place_links.after(search.passed),
            None => unplaced.front(),
        };
        std::iter::successors(first, |id| self.place_links.after(*id)).metered()
    }

    /// Notes the last unplaced waiter of a group that a search for a pool has passed over.
    pub fn pass_unplaced(&mut self, group: GroupId, pool: PoolId, passed: WaiterId) {
        let search = Search { passed, is_again: false };
        self.by_group.get_mut(group).searches.entry(pool).or_insert(search).passed = passed;
    }

    /// Notes that a search for a pool must begin again once it has come to its end.
    pub fn search_again(&mut self, group: GroupId, pool: PoolId) {
        if !self.by_group.get(group).searches.is_empty() {
            let search = self.by_group.get_mut(group).searches.get_mut(&pool);
            search.into_iter().for_each(|search| search.is_again = true);
        }
    }

    /// Ends a search for a pool, if one goes on. Returns whether it must begin again.
    pub fn end_search(&mut self, group: GroupId, pool: PoolId) -> bool {
        let is_searched = !self.by_group.get(group).searches.is_empty();
        is_searched && self.by_group.get_mut(group).searches.remove(&pool).is_some_and(|search| search.is_again)
    }

    /// Returns whether no waiter is queued for a pool alone or causes starts or waits for a check in it.
    pub fn is_unused(&self, pool: PoolId) -> bool {
        let PoolWaiters { queue, needy, placed, no_wait, .. } = self.by_pool.get(pool);
        queue.len == 0 && needy.is_empty() && placed.is_unused() && no_wait.is_empty()
    }

    /// Returns the first waiter that causes its starts in a pool which is not in its group, now that the pool is in
    /// `group`.
    pub fn first_misplaced(&self, pool: PoolId, group: Option<GroupId>) -> Option<WaiterId> {
        let PlacedWaiters { waiters, content, .. } = &self.by_pool.get(pool).placed;
        let is_elsewhere = |id: &WaiterId| group.map(Place::Group) != Some(self.get(*id).place());
        waiters.front().filter(is_elsewhere).or_else(|| content.front().filter(is_elsewhere))
    }

    /// Unbinds waiters for groups from starts and checks that have ended; `under_way` are left. These waiters are
    /// unbound first, since those for the pool alone cannot go elsewhere.
    pub fn unbind(&mut self, pool: PoolId, under_way: u64) {
        if self.by_pool.get(pool).placed.waiters.is_empty() {
            return;
        }
        let PoolWaiters { placed, need, .. } = self.by_pool.get_mut(pool);
        let short = (placed.bound + (*need - placed.need)).saturating_sub(under_way);
        let ended = placed.covered.saturating_sub(under_way);
        placed.bound = (placed.bound - short.min(ended).min(placed.bound)).min(placed.need).min(under_way);
    }

    /// Binds waiters for groups to the starts and checks under way that no waiter for the pool alone needs. Returns the
    /// last of these waiters if none is left for it.
    pub fn bind(&mut self, pool: PoolId, under_way: u64) -> Option<WaiterId> {
        if self.by_pool.get(pool).placed.waiters.is_empty() {
            return None;
        }
        let PoolWaiters { placed, need, .. } = self.by_pool.get_mut(pool);
        let spare = under_way.saturating_sub(*need - placed.need);
        placed.bound = placed.bound.max(spare).min(placed.need);
        placed.covered = under_way;
        let (last, free) = (placed.waiters.back()?, placed.need - placed.bound);
        (u64::from(self.get(last).want) <= free).then_some(last)
    }

    /// Adds a waiter for a group to those that cause their starts in the same pool. One that needs starts may cause
    /// them in none.
    pub(super) fn link_place(&mut self, id: WaiterId, source: WaitSource, want: u32) {
        match source {
            WaitSource::Group(_, Some(pool)) => {
                let placed = &mut self.by_pool.get_mut(pool).placed;
                if placed.waiters.is_empty() {
                    (placed.bound, placed.covered) = (0, 0);
                }
                placed.list_for(want).push_back(&mut self.place_links, id);
                placed.need += u64::from(want);
            }
            WaitSource::Group(group, None) if want > 0 => {
                self.by_group.get_mut(group).unplaced.push_back(&mut self.place_links, id);
            }
            _ => {}
        }
    }

    pub(super) fn unlink_place(&mut self, id: WaiterId, source: WaitSource, want: u32) {
        match source {
            WaitSource::Group(_, Some(pool)) => {
                let placed = &mut self.by_pool.get_mut(pool).placed;
                placed.list_for(want).remove(&mut self.place_links, id);
                placed.need -= u64::from(want);
                placed.bound = placed.bound.min(placed.need);
            }
            WaitSource::Group(group, None) if want > 0 => {
                let GroupWaiters { unplaced, searches, .. } = self.by_group.get_mut(group);
                if !searches.is_empty() {
                    let before = self.place_links.before(id);
                    searches.retain(|_, search| {
                        if search.passed == id {
                            // Without one before it, the search begins again.
                            search.passed = before.unwrap_or(id);
                        }
                        search.passed != id
                    });
                }
                unplaced.remove(&mut self.place_links, id);
            }
            _ => {}
        }
    }
}
