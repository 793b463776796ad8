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
        self.claims.len() as u64 - self.held.len()
    }

    /// Returns how many keys have claims.
    pub fn keys(&self) -> usize {
        self.pools.len()
    }

    /// Returns the keys with most claims, busiest first; among equals in the order of the keys.
    pub fn busiest(&self, most: usize) -> Vec<BusyKey<'_>> {
        let ranks = self.pools.iter().map(|(index, pool)| (Reverse(pool.occupancy().1), &pool.key[..], index));
        first(most, ranks).into_iter().map(|(_, _, index)| self.busy(&self.pools[index])).collect()
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
        let waits_for = match claim.phase {
            ClaimPhase::Waiting { purpose, .. } => Some(purpose),
            ClaimPhase::Holding { .. } => None,
        };
        let (key, who) = (&*self.pools[claim.pool.index()].key, self.whos.of(id));
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

/// Returns the `most` smallest, in order, without sorting the others.
fn first<T: Ord>(most: usize, items: impl Iterator<Item = T>) -> Vec<T> {
    let mut heap = BinaryHeap::new();
    for item in items {
        if heap.len() < most {
            heap.push(item);
        } else if let Some(mut last) = heap.peek_mut()
            && item < *last
        {
            *last = item;
        }
    }
    heap.into_sorted_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_the_smallest() {
        let items = [5, 3, 9, 1, 7, 1];
        assert_eq!(first(3, items.into_iter()), [1, 1, 3]);
        assert_eq!(first(9, items.into_iter()), [1, 1, 3, 5, 7, 9]);
        assert_eq!(first(0, items.into_iter()), [0; 0]);
    }
}
