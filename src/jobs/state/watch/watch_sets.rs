//! Every set of watches, found by its watches, and the connections that wait in them.

use crate::state::ids::SetId;
use crate::state::sets::{Watch, WatchSet};
use poolcounter_core::count::first_before;
use poolcounter_core::id::index_by;
use poolcounter_core::{ConnId, Id, Links};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of sets without connections that are kept, because the next runner will have the same watches.
const IDLE_SETS: usize = 16;

/// Every set of watches.
pub(in crate::state) struct WatchSets {
    all: Slab<WatchSet>,
    by_watches: BTreeMap<Box<[Watch]>, SetId>,
    /// Sets without connections.
    idle: VecDeque<SetId>,
    /// Sets whose search for a job is unfinished, by the ticket of the first waiting connection.
    awake: BTreeSet<(u64, SetId)>,
    /// Position of the table from which all sets are to be woken.
    pub waking: Option<usize>,
    pub links: Links,
    pub waiting: u64,
    last_ticket: u64,
    /// Bytes of all sets.
    pub bytes: usize,
    /// Number of sets that keep the tubes with a job to give.
    pub wide: usize,
}

impl Default for WatchSets {
    fn default() -> Self {
        WatchSets {
            all: Slab::new(),
            by_watches: BTreeMap::new(),
            idle: VecDeque::new(),
            awake: BTreeSet::new(),
            waking: None,
            links: Links::default(),
            waiting: 0,
            last_ticket: first_before(u32::MAX.into()),
            bytes: 0,
            wide: 0,
        }
    }
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

    /// Returns the ticket of a connection that starts to wait.
    pub fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
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

    /// Notes that the search for a job for a set is unfinished, with the ticket of its first waiting connection.
    pub fn keep_awake(&mut self, id: SetId, ticket: u64) {
        self.calm(id);
        self[id].awake = Some(ticket);
        self.awake.insert((ticket, id));
    }

    /// Notes that the search for a job for a set is finished.
    pub fn calm(&mut self, id: SetId) {
        if let Some(ticket) = self[id].awake.take() {
            self.awake.remove(&(ticket, id));
        }
    }

    /// Returns the set that has waited longest of the sets whose search is unfinished.
    pub fn first_awake(&self) -> Option<SetId> {
        self.awake.first().map(|(_, id)| *id)
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
            assert!(set.awake.is_none_or(|ticket| self.awake.contains(&(ticket, id))), "an awake set is in the list");
        }
        assert_eq!(self.awake.len(), self.iter().filter(|(_, set)| set.awake.is_some()).count(), "listed set is awake");
        assert_eq!(self.waiting, waiting, "waiting connections are counted");
        assert_eq!(self.by_watches.len(), self.all.len(), "a list of watches has one set");
        assert_eq!(self.wide, self.iter().filter(|(_, set)| set.giving.is_some()).count(), "wide sets are counted");
        assert_eq!(self.bytes, self.iter().map(|(_, set)| set.bytes()).sum::<usize>(), "bytes of sets are counted");
    }
}

index_by!(SetId => WatchSets.all: WatchSet);
