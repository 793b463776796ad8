//! Waiters behind many that may not take from a pool: background work finds them, one after another.

use super::*;

/// Search for waiters of a pool that are not among the first of their lists.
#[derive(Default)]
pub(super) struct Deep {
    /// True if an offer has found as many as it passes over at once.
    is_wanted: bool,
    /// True if members are to be offered again from the beginning, once the offers that go on have come to their end.
    is_again: bool,
    /// Number of the list that is searched, while the search goes on.
    list: Option<usize>,
    /// Last waiter of this list that was passed over, with the number of its arrival.
    passed: Option<(WaiterId, u64)>,
}

impl Waiters {
    /// Notes that an offer of a member has not examined all waiters that may come before others.
    pub fn want_deep(&mut self, pool: PoolId) {
        self.by_pool.get_mut(pool).deep.is_wanted = true;
    }

    /// Returns whether an offer of a member has not examined all waiters.
    pub fn wants_deep(&self, pool: PoolId) -> bool {
        self.by_pool.get(pool).deep.is_wanted
    }

    /// Notes that the free members of a pool are to be offered once more after the offers that go on.
    pub fn offer_again(&mut self, pool: PoolId) {
        self.by_pool.get_mut(pool).deep.is_again = true;
    }

    /// Begins the search through all waiters of a pool, if that is wanted.
    pub fn begin_deep(&mut self, pool: PoolId) -> bool {
        if !self.wants_deep(pool) {
            return false;
        }
        let deep = &mut self.by_pool.get_mut(pool).deep;
        *deep = Deep { list: Some(0), is_again: deep.is_again, ..Deep::default() };
        true
    }

    /// Returns whether the search goes on.
    pub fn is_deep(&self, pool: PoolId) -> bool {
        self.by_pool.get(pool).deep.list.is_some()
    }

    /// Returns the waiter behind the last one that was passed over; None at the end, which ends the search.
    pub fn next_deep(&mut self, pool: PoolId, group: Option<GroupId>) -> Option<WaiterId> {
        let Deep { list, passed, .. } = self.by_pool.get(pool).deep;
        let is_here =
            |waiter: &Waiter| [Some(Place::Pool(pool)), group.map(Place::Group)].contains(&Some(waiter.place()));
        // If it has left meanwhile, its list is searched from the beginning.
        let passed = passed
            .filter(|(id, arrival)| self.find(*id).is_some_and(|waiter| waiter.arrival == *arrival && is_here(waiter)));
        let behind = passed.and_then(|(id, _)| self.links.after(id));
        let next = match behind {
            Some(id) => Some((list?, id)),
            None => {
                let lists = self.queues(pool, group).flat_map(|queue| queue.lists.iter().flatten()).enumerate();
                let mut rest = lists.skip(list? + usize::from(passed.is_some()));
                rest.find_map(|(at, list)| Some((at, list.front()?)))
            }
        };
        let deep = &mut self.by_pool.get_mut(pool).deep;
        let is_same = next.map(|(at, _)| at) == list;
        (deep.list, deep.passed) = (next.map(|(at, _)| at), passed.filter(|_| is_same));
        next.map(|(_, id)| id)
    }

    /// Passes over a waiter that was not served in the search.
    pub fn pass(&mut self, pool: PoolId, id: WaiterId) {
        let arrival = self.get(id).arrival;
        self.by_pool.get_mut(pool).deep.passed = Some((id, arrival));
    }

    /// Ends the offers of the free members of a pool to its waiters. Returns whether they begin again.
    pub fn end_offers(&mut self, pool: PoolId) -> bool {
        self.set_cursor(pool, None);
        let is_again = self.by_pool.get(pool).deep.is_again;
        if is_again || self.wants_deep(pool) || self.is_deep(pool) {
            self.by_pool.get_mut(pool).deep = Deep::default();
        }
        is_again
    }
}
