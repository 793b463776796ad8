//! Waiters behind many that may not take from a pool: background work finds them, one after another.

use super::*;

/// Search for waiters of a pool that are not among the first of their lists.
#[derive(Default)]
pub(super) struct Deep {
    /// True if an offer has found as many as it passes over at once.
    is_wanted: bool,
    /// True if members are to be offered again from the beginning, once the offers that go on have come to their end.
    is_again: bool,
    /// Number of started members that were offered while some waiters were not examined.
    started: u32,
    search: Option<Box<DeepSearch>>,
}

/// Search for the first waiter that can be served.
#[derive(Default)]
struct DeepSearch {
    /// Number of the list that is searched.
    list: usize,
    /// Last waiter of this list that was passed over, with the number of its arrival.
    passed: Option<(WaiterId, u64)>,
    /// First waiter that can be served, of the lists before, with the number of its arrival.
    first: Option<(Rank, WaiterId, u64)>,
    /// Rank of the last waiter that was found and not served: the search is for one behind it.
    behind: Option<Rank>,
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
        (deep.is_wanted, deep.search) = (false, Some(Box::default()));
        true
    }

    /// Returns whether the search goes on.
    pub fn is_deep(&self, pool: PoolId) -> bool {
        self.by_pool.get(pool).deep.search.is_some()
    }

    /// Returns the waiter behind the last one that was passed over; None at the end of the last list.
    pub fn next_deep(&mut self, pool: PoolId, group: Option<GroupId>) -> Option<WaiterId> {
        let DeepSearch { list, passed, .. } = **self.by_pool.get(pool).deep.search.as_ref()?;
        let is_here =
            |waiter: &Waiter| [Some(Place::Pool(pool)), group.map(Place::Group)].contains(&Some(waiter.place()));
        // If it has left meanwhile, its list is searched from the beginning.
        let passed = passed
            .filter(|(id, arrival)| self.find(*id).is_some_and(|waiter| waiter.arrival == *arrival && is_here(waiter)));
        let behind = passed.and_then(|(id, _)| self.links.after(id));
        let next = match behind {
            Some(id) => Some((list, id)),
            None => {
                let lists = self.queues(pool, group).flat_map(|queue| queue.lists.iter().flatten()).enumerate();
                let mut rest = lists.skip(list + usize::from(passed.is_some()));
                rest.find_map(|(at, list)| Some((at, list.front()?)))
            }
        };
        let (at, id) = next?;
        let search = self.by_pool.get_mut(pool).deep.search.as_mut()?;
        (search.list, search.passed) = (at, passed.filter(|_| at == list));
        Some(id)
    }

    /// Returns whether the search goes on behind a waiter of this rank.
    pub fn is_behind(&self, pool: PoolId, rank: Rank) -> bool {
        let search = self.by_pool.get(pool).deep.search.as_ref();
        search.is_none_or(|search| search.behind.is_none_or(|behind| rank > behind))
    }

    /// Passes over a waiter that cannot be served.
    pub fn pass(&mut self, pool: PoolId, id: WaiterId) {
        let arrival = self.get(id).arrival;
        self.by_pool.get_mut(pool).deep.search.iter_mut().for_each(|search| search.passed = Some((id, arrival)));
    }

    /// Notes a waiter that can be served: the next list is searched, as this one has the others behind it.
    pub fn note_servable(&mut self, pool: PoolId, id: WaiterId, rank: Rank) {
        let arrival = self.get(id).arrival;
        if let Some(search) = &mut self.by_pool.get_mut(pool).deep.search {
            (search.list, search.passed) = (search.list + 1, None);
            search.first = search.first.into_iter().chain([(rank, id, arrival)]).min();
        }
    }

    /// Returns the first waiter that can be served at the end of the search, None if it has left, and begins another
    /// search behind it. Without one the search ends.
    pub fn found_deep(&mut self, pool: PoolId) -> Option<Option<WaiterId>> {
        let deep = &mut self.by_pool.get_mut(pool).deep;
        let (rank, id, arrival) = deep.search.take()?.first?;
        deep.search = Some(DeepSearch { behind: Some(rank), ..DeepSearch::default() }.into());
        Some(self.find(id).filter(|waiter| waiter.arrival == arrival).map(|_| id))
    }

    /// Searches from the first waiter again, after one was served.
    pub fn restart_deep(&mut self, pool: PoolId) {
        self.by_pool.get_mut(pool).deep.search = Some(Box::default());
    }

    /// Notes a started member that no examined waiter has got.
    pub fn note_started(&mut self, pool: PoolId) {
        self.by_pool.get_mut(pool).deep.started += 1;
    }

    /// Takes the number of started members that were noted.
    pub fn take_started(&mut self, pool: PoolId) -> u32 {
        match self.by_pool.get(pool).deep.started {
            0 => 0,
            _ => std::mem::take(&mut self.by_pool.get_mut(pool).deep.started),
        }
    }

    /// Ends the offers of the free members of a pool to its waiters. Returns whether they begin again.
    pub fn end_offers(&mut self, pool: PoolId) -> bool {
        self.set_cursor(pool, None);
        let is_again = self.by_pool.get(pool).deep.is_again;
        if is_again || self.wants_deep(pool) || self.is_deep(pool) {
            let deep = &mut self.by_pool.get_mut(pool).deep;
            *deep = Deep { started: deep.started, ..Deep::default() };
        }
        is_again
    }
}
