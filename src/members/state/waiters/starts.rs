//! Starts that waiters need, and checks that they wait for.

use super::*;

impl Waiters {
    /// Returns the number of starts that waiters may have under way in a pool.
    pub fn need(&self, pool: PoolId, group: Option<GroupId>) -> u64 {
        let PoolWaiters { need, placed, .. } = self.by_pool.get(pool);
        if self.first_misplaced(pool, group).is_some() { need - placed.need } else { *need }
    }

    /// Returns the first of the waiters that may have a start under way in a pool.
    pub fn first_needy(&self, pool: PoolId) -> Option<WaiterId> {
        self.by_pool.get(pool).needy.front()
    }

    /// Returns the first of the waiters for a check in a pool.
    pub fn first_no_wait(&self, pool: PoolId) -> Option<WaiterId> {
        self.by_pool.get(pool).no_wait.front()
    }

    /// Sets the number of starts that a waiter may have under way. Returns the pool of its starts if the number has
    /// changed.
    pub fn set_want(&mut self, id: WaiterId, want: u32) -> Option<PoolId> {
        let Waiter { want: before, source, no_wait, .. } = *self.get(id);
        if before == want {
            return None;
        }
        self.uncount_starts(id, source, before, no_wait);
        self.waiters[id.index()].want = want;
        self.count_starts(id, source, want, no_wait);
        self.get(id).starts_in()
    }

    /// Counts one start of a waiter as used: its member went elsewhere.
    pub fn use_start(&mut self, id: WaiterId) {
        let waiter = &mut self.waiters[id.index()];
        waiter.starts_used += 1;
        let want = waiter.want - 1;
        self.set_want(id, want);
    }

    /// Moves the starts of a waiter for a group to another pool, or to none. Returns the previous pool.
    pub fn move_want(&mut self, id: WaiterId, pool: Option<PoolId>) -> Option<PoolId> {
        let Waiter { want, source, no_wait, .. } = *self.get(id);
        let WaitSource::Group(group, before) = source else { return None };
        self.uncount_starts(id, source, want, no_wait);
        self.waiters[id.index()].source = WaitSource::Group(group, pool);
        self.count_starts(id, WaitSource::Group(group, pool), want, no_wait);
        before
    }

    pub(super) fn count_starts(&mut self, id: WaiterId, source: WaitSource, want: u32, no_wait: bool) {
        if !no_wait {
            self.link_place(id, source, want);
        }
        let Some(pool) = source.pool() else { return };
        let of_pool = self.by_pool.get_mut(pool);
        if want > 0 {
            of_pool.need += u64::from(want);
            of_pool.needy.push_back(&mut self.need_links, id);
        }
        if no_wait {
            of_pool.no_wait.push_back(&mut self.check_links, id);
        }
    }

    pub(super) fn uncount_starts(&mut self, id: WaiterId, source: WaitSource, want: u32, no_wait: bool) {
        if !no_wait {
            self.unlink_place(id, source, want);
        }
        let Some(pool) = source.pool() else { return };
        let of_pool = self.by_pool.get_mut(pool);
        if want > 0 {
            of_pool.need -= u64::from(want);
            of_pool.needy.remove(&mut self.need_links, id);
        }
        if no_wait {
            of_pool.no_wait.remove(&mut self.check_links, id);
        }
    }
}
