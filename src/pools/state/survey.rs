//! Who holds and waits, for operators who ask. It changes nothing, and however much there is, what it tells has a bound.

use super::{List, Place, PlaceId, Pool, Purpose, Stage, State, Type};
use crate::id::{ConnId, Id};
use crate::pools::stats::PoolStat as Stat;
use crate::sketch::Hot;
use crate::time::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A key that somebody holds or waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Locks held.
    pub working: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// Since when the oldest of them is held or waited for.
    pub since: Time,
}

/// Somebody who holds a lock or waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Which connection.
    pub conn: ConnId,
    /// What it does; None for who works.
    pub waits_for: Option<Purpose>,
    /// Since when.
    pub since: Time,
}

impl State {
    /// What was counted of something that only grows by counting.
    pub fn count_of(&self, stat: Stat) -> u64 {
        self.figures.of(stat)
    }

    /// How many locks are held.
    pub fn working(&self) -> u64 {
        self.holding
    }

    /// How many requests wait.
    pub fn waiting(&self) -> u64 {
        self.places.len() as u64 - self.holding
    }

    /// How many keys are alive.
    pub fn keys(&self) -> usize {
        self.pools.len()
    }

    /// The keys for which most work and wait, busiest first; among equals in the order of the keys.
    pub fn busiest(&self, most: usize) -> Vec<Busy<'_>> {
        let ranks = self.pools.iter().map(|(index, pool)| (Reverse(pool.occupancy().1), &pool.key[..], index));
        first(most, ranks).into_iter().map(|(_, _, index)| self.busy(&self.pools[index])).collect()
    }

    /// How many hold or wait for a key.
    pub fn occupancy(&self, key: &[u8]) -> usize {
        self.pool(key).map_or(0, |pool| pool.occupancy().1 as usize)
    }

    /// Who holds a key, oldest first, and then who waits, in the order in which they will be served.
    pub fn clients(&self, key: &[u8]) -> impl Iterator<Item = Client<'_>> {
        let places = self.pool(key).into_iter().flat_map(|pool| self.places_in(pool));
        places.map(|place| self.client(&self.places[place.index()]))
    }

    /// Who has held a lock for longest, oldest first.
    pub fn longest_holders(&self, most: usize) -> Vec<Client<'_>> {
        let holders = self.places.iter().filter(|(_, place)| matches!(place.stage, Stage::Holding { .. }));
        let ranks = holders.map(|(index, place)| (place.since, index));
        first(most, ranks).into_iter().map(|(_, index)| self.client(&self.places[index])).collect()
    }

    /// What has happened by type of work, the type that acquired most first; among equals in the order of the names.
    pub fn types(&self) -> Vec<&Type> {
        let mut types: Vec<&Type> = self.types.iter().collect();
        types.sort_by_key(|one| (Reverse(one.acquired), &one.name[..]));
        types
    }

    /// The keys with most refusals and waits lately, worst first, whether they are alive or not.
    pub fn hottest(&self, most: usize, now: Time) -> Vec<Hot<'_>> {
        let mut hot: Vec<Hot<'_>> = self.sketch.hot(now).collect();
        hot.sort_by_key(|hot| (Reverse(hot.refusals + hot.waits), hot.key));
        hot.truncate(most);
        hot
    }

    /// How many events more than [`State::hottest`] says a key may have had, whether it is named there or not.
    pub fn hottest_error(&self, now: Time) -> u64 {
        self.sketch.error(now)
    }

    fn pool(&self, key: &[u8]) -> Option<&Pool> {
        self.find(self.names.hash(key), key).map(|pool| &self.pools[pool.index()])
    }

    fn busy<'a>(&'a self, pool: &'a Pool) -> Busy<'a> {
        let (working, occupied) = pool.occupancy();
        let oldest = pool.queues().filter_map(List::front).map(|place| self.places[place.index()].since).min();
        let since = oldest.expect("a pool exists while somebody holds or waits");
        Busy { key: &pool.key, working, waiting: occupied - working, since }
    }

    fn client(&self, place: &Place) -> Client<'_> {
        let waits_for = match place.stage {
            Stage::Waiting { purpose, .. } => Some(purpose),
            Stage::Holding { .. } => None,
        };
        Client { key: &self.pools[place.pool.index()].key, conn: place.conn, waits_for, since: place.since }
    }

    /// The places of a pool, in the order of its queues.
    pub(super) fn places_in(&self, pool: &Pool) -> impl Iterator<Item = PlaceId> {
        pool.queues().flat_map(|queue| queue.iter(&self.links_by_pool))
    }
}

impl Pool {
    /// Who holds, and who waits, in the order of service.
    pub(super) fn queues(&self) -> impl Iterator<Item = &List<PlaceId>> {
        [&self.holders, &self.waiting_for_me, &self.waiting_for_anyone].into_iter()
    }
}

/// The `most` smallest, in order, without sorting the others.
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
