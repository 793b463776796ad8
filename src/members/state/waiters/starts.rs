//! The starts that waiters need, and the checks that they wait for.

use super::*;

impl Waiters {
    /// Returns the number of starts that waiters may have under way in a pool.
    pub fn need(&self, pool: PoolId) -> u64 {
        self.by_pool.get(pool).need
    }

    /// Returns the first of the waiters that may have a start under way in a pool.
    pub fn first_needy(&self, pool: PoolId) -> Option<WaiterId> {
        self.by_pool.get(pool).needy.front()
    }

    /// Returns the first of the waiters for a check in a pool.
    pub fn first_no_wait(&self, pool: PoolId) -> Option<WaiterId> {
        self.by_pool.get(pool).no_wait.front()
    }

    /// Sets the number of starts that a waiter may have under way. Returns the pool of its starts if the number has changed.
    pub fn set_want(&mut self, id: WaiterId, want: u32) -> Option<PoolId> {
        let waiter = &mut self.waiters[id.index()];
        let before = std::mem::replace(&mut waiter.want, want);
        let pool = waiter.starts_in().filter(|_| before != want)?;
        self.uncount_starts(id, Some(pool), before, false);
        self.count_starts(id, Some(pool), want, false);
        Some(pool)
    }

    /// Counts one start of a waiter as used: its member went elsewhere.
    pub fn use_start(&mut self, id: WaiterId) {
        let waiter = &mut self.waiters[id.index()];
        waiter.starts_used += 1;
        let want = waiter.want - 1;
        self.set_want(id, want);
    }

    /// Makes a waiter for a group cause its starts in another pool, or in none. Returns the pool before.
    pub fn move_want(&mut self, id: WaiterId, pool: Option<PoolId>) -> Option<PoolId> {
        let waiter = &mut self.waiters[id.index()];
        let WaitSource::Group(group, before) = waiter.source else { return None };
        waiter.source = WaitSource::Group(group, pool);
        let (want, no_wait) = (waiter.want, waiter.no_wait);
        self.uncount_starts(id, before, want, no_wait);
        self.count_starts(id, pool, want, no_wait);
        before
    }

    pub(super) fn count_starts(&mut self, id: WaiterId, pool: Option<PoolId>, want: u32, no_wait: bool) {
        let Some(pool) = pool else { return };
        let of_pool = self.by_pool.get_mut(pool);
        if want > 0 {
            of_pool.need += u64::from(want);
            of_pool.needy.push_back(&mut self.need_links, id);
        }
        if no_wait {
            of_pool.no_wait.push_back(&mut self.check_links, id);
        }
    }

    pub(super) fn uncount_starts(&mut self, id: WaiterId, pool: Option<PoolId>, want: u32, no_wait: bool) {
        let Some(pool) = pool else { return };
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
