//! Queries for the health of the pools: keys that refuse, and locks that are held for long.

use super::{BusyKey, ClaimInfo, PoolsState};
use poolcounter_core::{Id, List, Time};
use poolcounter_protocol::pools::stats::PoolStat as Stat;

/// A lock that is held for longer than the operator has set.
pub struct OverdueLock<'a> {
    /// The lock.
    pub claim: ClaimInfo<'a>,
    /// Number of requests that wait for its key.
    pub waiting: u32,
    /// Time since which the oldest of them waits; the present without one.
    pub waiting_since: Time,
}

impl PoolsState {
    /// Returns the oldest of the locks that are held for longer than the operator has set, at most `most`.
    pub fn overdue_locks(&self, now: Time, most: usize) -> impl Iterator<Item = OverdueLock<'_>> {
        let is_overdue = move |claim: &ClaimInfo<'_>| now.since(claim.since) > self.settings.warn_hold;
        let oldest = self.longest_holders(most).into_iter().take_while(is_overdue);
        oldest.map(move |claim| {
            let pool = self.pool(claim.key);
            let queues = pool.map(|pool| [&pool.waiting_for_me, &pool.waiting_for_anyone]);
            let fronts = queues.into_iter().flatten().filter_map(List::front);
            let waiting_since = fronts.map(|id| self.claims[id.index()].since).min().unwrap_or(now);
            OverdueLock { waiting: pool.map_or(0, |pool| self.busy(pool).waiting), waiting_since, claim }
        })
    }

    /// Returns the number of requests refused since the start.
    pub fn refusals(&self) -> u64 {
        self.count_of(Stat::FullQueues).saturating_add(self.timeouts())
    }

    /// Returns the claims on a key; None if there are none at present.
    pub fn busy_key(&self, key: &[u8]) -> Option<BusyKey<'_>> {
        self.pool(key).map(|pool| self.busy(pool))
    }
}
