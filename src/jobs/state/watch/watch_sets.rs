//! Every set of watches, found by its watches, and the connections that wait in them.

use crate::state::ids::{Serials, SetId, Tickets};
use crate::state::sets::{Watch, WatchSet};
use poolcounter_core::id::index_by;
use poolcounter_core::{ConnId, Id, Links};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};

/// Number of sets without connections that are kept, because the next runner will have the same watches.
const IDLE_SETS: usize = 16;

/// Every set of watches.
#[derive(Default)]
pub(in crate::state) struct WatchSets {
    all: Slab<WatchSet>,
    by_watches: BTreeMap<Box<[Watch]>, SetId>,
    /// Sets without connections.
    idle: VecDeque<SetId>,
    /// Sets whose search for a job is unfinished, by the ticket of the first waiting connection.
    pub awake: Tickets<SetId>,
    /// Position of the table from which all sets are to be woken.
    pub waking: Option<usize>,
    pub links: Links,
    pub waiting: u64,
    /// Tickets of connections that start to wait.
    pub tickets: Serials,
    /// Bytes of all sets.
    pub bytes: usize,
    /// Number of sets that keep the tubes with a job to give.
    pub wide: usize,
}

impl WatchSets {
    /// Returns every set.
    pub fn iter(&self) -> impl Iterator<Item = (SetId, &WatchSet)> {
        self.all.iter().map(|(place, set)| (SetId::from_index(place), set))
    }

    /// Returns the set at a position of the table; the second value is false behind the last position.
    pub fn at(&self, place: usize) -> (Option<SetId>, bool) {
        let is_there = self.all.contains(place);
        (is_there.then(|| SetId::from_index(place)), place < self.all.capacity())
    }

    /// Returns the sets in at most `most` places of the table from `first` on, and the next place if there are more.
    pub fn slice(&self, first: usize, most: usize) -> (impl Iterator<Item = (SetId, &WatchSet)>, Option<usize>) {
        let end = first.saturating_add(most).min(self.all.capacity());
        let sets = (first..end).filter_map(|place| Some((SetId::from_index(place), self.all.get(place)?)));
        (sets, (end < self.all.capacity()).then_some(end))
    }

    /// Returns the set of these sorted watches.
    pub fn find(&self, watches: &[Watch]) -> Option<SetId> {
        self.by_watches.get(watches).copied()
    }

    /// Returns the id of the next set.
    pub fn next_id(&self) -> SetId {
        SetId::from_index(self.all.vacant_key())
    }

    /// Adds a set with the next id.
    pub fn insert(&mut self, set: WatchSet) {
        self.by_watches.insert(set.watches.clone(), self.next_id());
        self.bytes += set.bytes();
        self.wide += usize::from(set.giving.is_some());
        self.all.insert(set);
    }

    /// Counts one connection more in a set.
    pub fn join(&mut self, id: SetId) {
        self[id].conns += 1;
        if self[id].conns == 1 {
            self.idle.retain(|idle| *idle != id);
        }
    }

    /// Counts one connection less in a set. Returns a set to remove: this one without connections and turns to keep, or
    /// an older one if too many are kept.
    pub fn leave(&mut self, id: SetId) -> Option<SetId> {
        self[id].conns -= 1;
        if self[id].conns > 0 {
            return None;
        }
        if !self[id].is_fair {
            return Some(id);
        }
        self.idle.push_back(id);
        if self.idle.len() > IDLE_SETS { self.idle.pop_front() } else { None }
    }

    /// Removes a set.
    pub fn remove(&mut self, id: SetId) -> WatchSet {
        let set = self.all.remove(id.index());
        self.by_watches.remove(&set.watches);
        self.bytes -= set.bytes();
        self.wide -= usize::from(set.giving.is_some());
        set
    }

    /// Adds a waiting connection.
    pub fn begin_wait(&mut self, id: SetId, conn: ConnId) {
        self.all[id.index()].waiting.push_back(&mut self.links, conn);
        self.waiting += 1;
    }

    /// Removes a waiting connection.
    pub fn end_wait(&mut self, id: SetId, conn: ConnId) {
        self.all[id.index()].waiting.remove(&mut self.links, conn);
        self.waiting -= 1;
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        let mut waiting = 0;
        for (id, set) in self.iter() {
            waiting += u64::from(set.waiting.len());
            assert_eq!(set.conns == 0, self.idle.contains(&id), "a set without connections is idle");
            assert_eq!(self.by_watches.get(&set.watches), Some(&id), "a set is found by its watches");
        }
        assert_eq!(self.awake.len(), self.iter().filter(|(id, _)| self.awake.of(*id).is_some()).count(), "awake sets");
        assert_eq!(self.waiting, waiting, "waiting connections are counted");
        assert_eq!(self.by_watches.len(), self.all.len(), "a list of watches has one set");
        assert_eq!(self.wide, self.iter().filter(|(_, set)| set.giving.is_some()).count(), "wide sets are counted");
        assert_eq!(self.bytes, self.iter().map(|(_, set)| set.bytes()).sum::<usize>(), "bytes of sets are counted");
    }
}

index_by!(SetId => WatchSets.all: WatchSet);
