//! Every set of watches, found by its watches and by patterns; those that are none any more; and who waits in them.

use super::sets::{Built, SetId, Watch, WatchSet};
use poolcounter_core::count::first_before;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::list::Links;
use poolcounter_protocol::jobs::name::PatternMap;
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Index, IndexMut};

/// Number of sets without connections that are kept, because the next runner will have the same watches.
const IDLE_SETS: usize = 16;

/// Every set of watches.
pub(super) struct WatchSets {
    all: Slab<WatchSet>,
    by_watches: BTreeMap<Box<[Watch]>, SetId>,
    /// The sets that have a watch of each pattern, and which of theirs it is.
    by_pattern: PatternMap<Vec<(SetId, u16)>>,
    /// Sets that are none any more, of which some tubes still know.
    dropped: VecDeque<SetId>,
    /// Sets that no connection has.
    idle: VecDeque<SetId>,
    /// Sets that may have a job for a connection that waits; empty between steps, unless the serve timer is armed.
    awake: Vec<SetId>,
    links: Links,
    waiting: u64,
    last_ticket: u64,
}

impl Default for WatchSets {
    fn default() -> Self {
        WatchSets {
            all: Slab::new(),
            by_watches: BTreeMap::new(),
            by_pattern: PatternMap::default(),
            dropped: VecDeque::new(),
            idle: VecDeque::new(),
            awake: Vec::new(),
            links: Links::default(),
            waiting: 0,
            last_ticket: first_before(u32::MAX.into()),
        }
    }
}

impl WatchSets {
    /// Returns every set.
    pub fn iter(&self) -> impl Iterator<Item = (SetId, &WatchSet)> {
        self.all.iter().map(|(place, set)| (SetId::from_index(place), set))
    }

    /// Returns the sets whose watches cover a tube of this name, with the place of the watch, the most literal watch first.
    pub fn covering<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = (SetId, u16)> + 'a {
        self.by_pattern.matching(name).flatten().copied()
    }

    /// Returns the set of these watches, which are sorted, for one connection more.
    pub fn enter(&mut self, watches: Vec<Watch>) -> SetId {
        let id = self.by_watches.get(&*watches).copied().unwrap_or_else(|| self.make(watches.into()));
        self[id].conns += 1;
        if self[id].conns == 1 {
            self.idle.retain(|idle| *idle != id);
        }
        id
    }

    fn make(&mut self, watches: Box<[Watch]>) -> SetId {
        let id = SetId::from_index(self.all.vacant_key());
        for (index, watch) in watches.iter().enumerate() {
            // Lossless: a connection has 1024 watches at most.
            let entry = (id, index as u16);
            match self.by_pattern.of_mut(&watch.pattern) {
                Some(sets) => sets.push(entry),
                None => drop(self.by_pattern.insert(&watch.pattern, vec![entry])),
            }
        }
        self.by_watches.insert(watches.clone(), id);
        self.all.insert(WatchSet::new(watches));
        id
    }

    /// Counts a connection less. Returns a set that is to be dropped, as no connection has it and too many of that kind are kept.
    pub fn leave(&mut self, id: SetId) -> Option<SetId> {
        self[id].conns -= 1;
        if self[id].conns > 0 {
            return None;
        }
        self.idle.push_back(id);
        if self.idle.len() > IDLE_SETS { self.idle.pop_front() } else { None }
    }

    /// Begins to drop a set: nobody finds it by its watches, and it wakes up no more. Those that tubes still know of by patterns are
    /// dropped bit by bit: [`WatchSets::first_dropped`]. Returns false if no tube knows of it but by name.
    pub fn begin_to_drop(&mut self, id: SetId) -> bool {
        self.awake.retain(|awake| *awake != id);
        self.by_watches.remove(&self.all[id.index()].watches);
        let is_known = !self[id].is_plain() && self[id].built != Built::No;
        if is_known {
            self[id].built = Built::Dropping(0);
            self.dropped.push_back(id);
        }
        is_known
    }

    /// Returns the set that is to be dropped next, and the place of the first tube that may know of it.
    pub fn first_dropped(&self) -> Option<(SetId, usize)> {
        let id = *self.dropped.front()?;
        if let Built::Dropping(next) = self[id].built { Some((id, next)) } else { None }
    }

    /// Notes that the tube in the first place that may know of the first set to be dropped does not. Returns that set if it was the
    /// last such tube of so many.
    pub fn advance_dropping(&mut self, tubes: usize) -> Option<SetId> {
        let (id, next) = self.first_dropped()?;
        self[id].built = Built::Dropping(next + 1);
        if next >= tubes { self.dropped.pop_front() } else { None }
    }

    /// Returns whether some sets are to be dropped.
    pub fn is_dropping(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Forgets a set of which no tube knows, and returns it.
    pub fn remove(&mut self, id: SetId) -> WatchSet {
        let set = self.all.remove(id.index());
        for watch in &set.watches {
            let sets = self.by_pattern.of_mut(&watch.pattern).expect("each watch of a set is in the table");
            sets.retain(|(set, _)| *set != id);
            if sets.is_empty() {
                self.by_pattern.remove(&watch.pattern);
            }
        }
        set
    }

    /// Returns the ticket of a connection that begins to wait.
    pub fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Adds a connection that waits.
    pub fn begin_wait(&mut self, id: SetId, conn: ConnId) {
        self.all[id.index()].waiting.push_back(&mut self.links, conn);
        self.waiting += 1;
    }

    /// Removes a connection that waits.
    pub fn end_wait(&mut self, id: SetId, conn: ConnId) {
        self.all[id.index()].waiting.remove(&mut self.links, conn);
        self.waiting -= 1;
    }

    /// Returns how many connections wait.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Notes a set that may have a job for a connection that waits.
    pub fn wake(&mut self, id: SetId) {
        if !self[id].waiting.is_empty() {
            self.keep_awake(id);
        }
    }

    /// Notes a set of which it is not known yet whether it has a job.
    pub fn keep_awake(&mut self, id: SetId) {
        if !self.awake.contains(&id) {
            self.awake.push(id);
        }
    }

    /// Wakes all sets with connections that wait.
    pub fn wake_all(&mut self) {
        let waited_for: Vec<SetId> = self.iter().filter(|(_, set)| !set.waiting.is_empty()).map(|(id, _)| id).collect();
        waited_for.into_iter().for_each(|id| self.keep_awake(id));
    }

    /// Returns the sets that may have a job for a connection that waits.
    pub fn awake(&self) -> &[SetId] {
        &self.awake
    }

    /// Notes that only those of the sets that are awake may have a job that pass the test.
    pub fn stay_awake(&mut self, which: impl Fn(SetId) -> bool) {
        self.awake.retain(|id| which(*id));
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        let mut waiting = 0;
        for (id, set) in self.iter() {
            waiting += u64::from(set.waiting.len());
            let places = |watch: &Watch| {
                self.by_pattern.of(&watch.pattern).map_or(0, |sets| sets.iter().filter(|(set, _)| *set == id).count())
            };
            assert!(set.watches.iter().all(|watch| places(watch) == 1), "each watch of a set is in the table");
            if self.dropped.contains(&id) {
                continue;
            }
            assert_eq!(set.conns == 0, self.idle.contains(&id), "idle sets");
            assert_eq!(self.by_watches.get(&set.watches), Some(&id), "a set is found by its watches");
        }
        assert_eq!(self.waiting, waiting, "connections that wait in sets");
        assert_eq!(self.by_watches.len() + self.dropped.len(), self.all.len(), "sets that are found");
    }

    /// Returns whether a set is being dropped.
    pub fn is_dropped(&self, id: SetId) -> bool {
        self.dropped.contains(&id)
    }

    /// Returns whether a connection waits in a set.
    pub fn has_waiting(&self, id: SetId, conn: ConnId) -> bool {
        self[id].waiting.iter(&self.links).any(|other| other == conn)
    }
}

impl Index<SetId> for WatchSets {
    type Output = WatchSet;

    fn index(&self, id: SetId) -> &WatchSet {
        &self.all[id.index()]
    }
}

impl IndexMut<SetId> for WatchSets {
    fn index_mut(&mut self, id: SetId) -> &mut WatchSet {
        &mut self.all[id.index()]
    }
}
