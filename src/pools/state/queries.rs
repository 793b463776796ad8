//! Queries for operators: which connections hold and wait, and what is busiest. They change nothing, and their results are
//! bounded.

use super::{ClaimId, ClaimPhase, List, Pool, PoolsState, Purpose, WorkType};
use crate::id::{ConnId, Id};
use crate::pools::stats::PoolStat as Stat;
use crate::time::Time;
use crate::top_keys::TopKey;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A key with its claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusyKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Locks held.
    pub working: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Since when the oldest of them is held or waited for.
    pub since: Time,
}

/// A claim as operators see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClaimInfo<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The connection that has it.
    pub conn: ConnId,
    /// Who it says to be; empty if it does not say.
    pub who: &'a [u8],
    /// The purpose of a claim that waits; None for one that is held.
    pub waits_for: Option<Purpose>,
    /// Since when.
    pub since: Time,
}

/// A search for the keys with most claims, some keys at a time, as far as it is done. What others change meanwhile may be found as
/// it was before.
pub struct BusiestSearch {
    most: usize,
    /// The pools before this index are looked at.
    next: usize,
    /// The busiest so far, with their number of claims.
    found: BinaryHeap<(Reverse<u32>, Box<[u8]>)>,
}

impl BusiestSearch {
    /// Returns a search for so many keys at most.
    pub fn new(most: usize) -> Self {
        BusiestSearch { most, next: 0, found: BinaryHeap::new() }
    }
}

impl PoolsState {
    /// Returns the count of a statistic that only counting changes.
    pub fn count_of(&self, stat: Stat) -> u64 {
        self.figures.of(stat)
    }

    /// Returns how many locks are held.
    pub fn working(&self) -> u64 {
        self.held.len()
    }

    /// Returns how many requests wait.
    pub fn waiting(&self) -> u64 {
        self.claims.len() as u64 - self.parts.count() - self.held.len()
    }

    /// Returns how many keys have claims.
    pub fn keys(&self) -> usize {
        self.pools.len()
    }

    /// Returns the keys with most claims, busiest first; among equals in the order of the keys.
    pub fn busiest(&self, most: usize) -> Vec<BusyKey<'_>> {
        let mut search = BusiestSearch::new(most);
        self.search_busiest(&mut search, usize::MAX);
        self.found_busiest(search)
    }

    /// Looks at some more keys, and returns whether these were the last.
    pub fn search_busiest(&self, search: &mut BusiestSearch, keys: usize) -> bool {
        let all = self.pools.capacity();
        let end = search.next.saturating_add(keys).min(all);
        for pool in (search.next..end).filter_map(|index| self.pools.get(index)) {
            let claims = Reverse(pool.occupancy().1);
            let own = || (claims, pool.key[..].into());
            if search.found.len() < search.most {
                search.found.push(own());
            } else if let Some(mut last) = search.found.peek_mut()
                && (claims, &pool.key[..]) < (last.0, &last.1[..])
            {
                *last = own();
            }
        }
        search.next = end;
        end == all
    }

    /// Returns what a search has found, as it is now and in the order of [`PoolsState::busiest`].
    pub fn found_busiest(&self, search: BusiestSearch) -> Vec<BusyKey<'_>> {
        let pools = search.found.into_iter().filter_map(|(_, key)| self.pool(&key));
        let mut keys: Vec<BusyKey<'_>> = pools.map(|pool| self.busy(pool)).collect();
        keys.sort_by_key(|busy| (Reverse(busy.working + busy.waiting), busy.key));
        // One that was given back and taken again meanwhile can be found twice.
        keys.dedup();
        keys
    }

    /// Returns how many claims a key has.
    pub fn occupancy(&self, key: &[u8]) -> usize {
        self.pool(key).map_or(0, |pool| pool.occupancy().1 as usize)
    }

    /// Returns the claims of a key: those that are held, oldest first, and then those that wait, in the order of service.
    pub fn claims_on(&self, key: &[u8]) -> impl Iterator<Item = ClaimInfo<'_>> {
        let claims = self.pool(key).into_iter().flat_map(|pool| self.claims_in(pool));
        claims.map(|id| self.claim_info(id))
    }

    /// Returns the claims that are held for longest, oldest first.
    pub fn longest_holders(&self, most: usize) -> Vec<ClaimInfo<'_>> {
        self.held.iter().take(most).map(|id| self.claim_info(id)).collect()
    }

    /// Returns the types of work, the one that acquired most first; among equals in the order of the names.
    pub fn types(&self) -> Vec<&WorkType> {
        let mut types: Vec<&WorkType> = self.types.iter().collect();
        types.sort_by_key(|one| (Reverse(one.acquired), &one.name[..]));
        types
    }

    /// Returns the keys with most refusals and waits lately, worst first, whether they have claims now or not.
    pub fn hottest(&self, most: usize, now: Time) -> Vec<TopKey<'_>> {
        let mut keys: Vec<TopKey<'_>> = self.top_keys.top(now).collect();
        keys.sort_by_key(|top| (Reverse(top.refusals + top.waits), top.key));
        keys.truncate(most);
        keys
    }

    /// Returns how many events more than [`PoolsState::hottest`] says a key may have had, whether it is named there or not.
    pub fn hottest_error(&self, now: Time) -> u64 {
        self.top_keys.error(now)
    }

    fn pool(&self, key: &[u8]) -> Option<&Pool> {
        self.find(self.names.hash(key), key).map(|pool| &self.pools[pool.index()])
    }

    fn busy<'a>(&'a self, pool: &'a Pool) -> BusyKey<'a> {
        let (working, occupied) = pool.occupancy();
        let oldest = pool.queues().filter_map(List::front).map(|claim| self.claims[claim.index()].since).min();
        let since = oldest.expect("a pool exists while it has claims");
        BusyKey { key: &pool.key, working, waiting: occupied - working, since }
    }

    fn claim_info(&self, id: ClaimId) -> ClaimInfo<'_> {
        let claim = &self.claims[id.index()];
        let whole = self.whole_of(id);
        let waits_for = match self.claims[whole.index()].phase {
            ClaimPhase::Waiting { purpose, .. } => Some(purpose),
            ClaimPhase::Holding { .. } | ClaimPhase::Part { .. } => None,
        };
        let (key, who) = (&*self.pool_at(claim.pool).key, self.whos.of(whole));
        ClaimInfo { key, conn: claim.conn, who, waits_for, since: claim.since }
    }

    /// Returns the claims of a pool, in the order of its queues.
    pub(super) fn claims_in(&self, pool: &Pool) -> impl Iterator<Item = ClaimId> {
        pool.queues().flat_map(|queue| queue.iter(&self.links_by_pool))
    }
}

impl Pool {
    /// Returns the queue of the holders, and those of the waiters in the order of service.
    pub(super) fn queues(&self) -> impl Iterator<Item = &List<ClaimId>> {
        [&self.holders, &self.waiting_for_me, &self.waiting_for_anyone].into_iter()
    }
}
