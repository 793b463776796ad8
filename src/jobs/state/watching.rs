//! Watches of connections, and the sets that those with the same watches share.

use super::sets::{Built, SetId, Watch, WatchSet};
use super::tube::{Cover, TubeId};
use super::{Pattern, Reply, State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::id::{ConnId, Id};

/// How many watches a connection may have: its set is sorted when they change.
pub const MAX_WATCHES: usize = 1024;
/// How many sets that no connection has are kept, because the next runner will have the same watches.
const IDLE_SETS: usize = 16;

impl State {
    /// `watch`: also takes jobs of these tubes. A watch that there is already gets the new weight.
    pub fn watch(&mut self, id: ConnId, pattern: Pattern<'_>, weight: Option<u16>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Watch);
        let known = self.conn(id).watches.iter().position(|watch| *watch.pattern == *pattern.bytes());
        let watch =
            Watch { pattern: pattern.bytes().into(), weight: weight.unwrap_or(1), is_weighted: weight.is_some() };
        match known {
            Some(index) if self.conn(id).watches[index] == watch => {}
            Some(index) => {
                self.leave_set(id, step);
                self.conn(id).watches[index] = watch;
            }
            None if self.conn(id).watches.len() >= MAX_WATCHES || !self.watch_tube(pattern, step) => {
                return step.tell(id, Reply::OutOfMemory);
            }
            None => {
                self.leave_set(id, step);
                self.conn(id).watches.push(watch);
            }
        }
        step.tell(id, Reply::Watching(self.conn_ref(id).watches.len()));
    }

    /// `ignore`: takes no more jobs of these tubes. One watch must be left.
    pub fn ignore(&mut self, id: ConnId, pattern: Pattern<'_>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Ignore);
        if let Some(index) = self.conn(id).watches.iter().position(|watch| *watch.pattern == *pattern.bytes()) {
            if self.conn(id).watches.len() == 1 {
                return step.tell(id, Reply::NotIgnored);
            }
            self.leave_set(id, step);
            self.conn(id).watches.remove(index);
            self.unwatch_tube(pattern.bytes(), step);
        }
        step.tell(id, Reply::Watching(self.conn_ref(id).watches.len()));
    }

    /// A tube that is watched by its name is one, even without jobs. Returns false when there is no room for it.
    fn watch_tube(&mut self, pattern: Pattern<'_>, step: &mut Step<'_, '_>) -> bool {
        let Some(name) = pattern.plain() else { return true };
        let Some(tube) = self.tube_for(name.bytes(), step.timers) else { return false };
        self.tubes[tube.index()].watching += 1;
        true
    }

    pub(super) fn unwatch_tube(&mut self, pattern: &[u8], step: &mut Step<'_, '_>) {
        if !pattern.contains(&b'*') {
            let tube = self.find_tube(pattern).expect("a watched tube is there");
            self.tubes[tube.index()].watching -= 1;
            self.hide_if_unused(tube, step.now, step.timers);
        }
    }

    /// Gives a connection the set of its watches.
    pub(super) fn enter_set(&mut self, id: ConnId) -> SetId {
        if let Some(set) = self.conn(id).set {
            return set;
        }
        let mut watches = self.conn(id).watches.clone();
        watches.sort_unstable();
        let set = self.set_of.get(&*watches).copied().unwrap_or_else(|| self.make_set(watches.into()));
        let entry = &mut self.sets[set.index()];
        entry.conns += 1;
        if entry.conns == 1 {
            self.idle_sets.retain(|idle| *idle != set);
        }
        self.conn(id).set = Some(set);
        set
    }

    /// Gives every connection the set of its watches, to count those that cover a tube.
    pub(super) fn enter_all_sets(&mut self) {
        for index in 0..self.conns.len() {
            if self.conns[index].is_some() {
                self.enter_set(ConnId::from_index(index));
            }
        }
    }

    fn make_set(&mut self, watches: Box<[Watch]>) -> SetId {
        let id = SetId::from_index(self.sets.vacant_key());
        for (index, watch) in watches.iter().enumerate() {
            // Lossless: a connection has 1024 watches at most.
            let entry = (id, index as u16);
            match self.watched.of_mut(&watch.pattern) {
                Some(sets) => sets.push(entry),
                None => drop(self.watched.insert(&watch.pattern, vec![entry])),
            }
        }
        self.set_of.insert(watches.clone(), id);
        self.sets.insert(WatchSet::new(watches));
        id
    }

    /// Has each tube that the set covers know of it, and returns whether that was all: as many places in the table of tubes are
    /// looked at as the budget has.
    pub(super) fn build(&mut self, id: SetId, budget: &mut u32) -> bool {
        if let Built::Yes | Built::Dropping(_) = self.sets[id.index()].built {
            return true;
        }
        if self.is_plain(id) {
            self.sets[id.index()].built = Built::Yes;
            self.tubes_by_name(id).into_iter().for_each(|tube| self.cover(tube, id));
            return true;
        }
        loop {
            let next = if let Built::Before(next) = self.sets[id.index()].built { next } else { 0 };
            if next >= self.tubes.capacity() {
                self.sets[id.index()].built = Built::Yes;
                return true;
            }
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.sets[id.index()].built = Built::Before(next + 1);
            if self.tubes.contains(next) {
                self.cover(TubeId::from_index(next), id);
            }
        }
    }

    /// Has a tube know of a set, if that covers it.
    fn cover(&mut self, tube: TubeId, id: SetId) {
        let name = self.tubes[tube.index()].name.clone();
        let cover = self.covers_of(&name, tube).into_iter().find(|cover| cover.set == id);
        if cover.is_some() {
            self.tubes[tube.index()].covers.extend(cover);
            self.show_to(tube, id);
        }
    }

    /// Returns whether all watches of a set are plain names.
    fn is_plain(&self, id: SetId) -> bool {
        self.sets[id.index()].watches.iter().all(|watch| !watch.pattern.contains(&b'*'))
    }

    /// Returns the tubes that the watches of a set name.
    fn tubes_by_name(&self, id: SetId) -> Vec<TubeId> {
        self.sets[id.index()].watches.iter().filter_map(|watch| self.find_tube(&watch.pattern)).collect()
    }

    /// Returns the sets that cover a tube of this name, as far as the tube is to know of them, each with its most literal watch.
    pub(super) fn covers_of(&mut self, name: &[u8], tube: TubeId) -> Vec<Cover> {
        let mut covers: Vec<Cover> = Vec::new();
        for (id, watch) in self.watched.matching(name).flatten() {
            let set = &self.sets[id.index()];
            if set.built.is_known_to(tube.index()) && covers.iter().all(|cover| cover.set != *id) {
                covers.push(Cover { set: *id, turn: if set.is_fair { *watch } else { 0 }, stamp: 0 });
            }
        }
        covers
    }

    /// Has a set that covers a tube from now on see what the others see of it.
    fn show_to(&mut self, id: TubeId, set: SetId) {
        let tube = &mut self.tubes[id.index()];
        let Some(cover) = tube.covers.iter_mut().find(|cover| cover.set == set) else { return };
        let entry = &mut self.sets[set.index()];
        if tube.shown > 0 {
            cover.stamp = entry.next_stamp();
        }
        for bucket in tube.by_group.values().chain([&tube.main]) {
            let Some(first) = self.buckets[bucket.index()].shown else { continue };
            let lane = self.buckets[bucket.index()].lane;
            let is_open = self.limits.is_open(lane);
            let first = super::sets::Entry::new(first, cover.stamp, *bucket);
            if entry.replace(cover.turn, lane, is_open, None, Some(first)) {
                self.limits.lanes[lane.index()].sets.insert((set, cover.turn));
            }
        }
    }

    /// The watches of a connection change, or it is gone.
    pub(super) fn leave_set(&mut self, id: ConnId, step: &mut Step<'_, '_>) {
        let Some(set) = self.conn(id).set.take() else { return };
        self.sets[set.index()].conns -= 1;
        if self.sets[set.index()].conns > 0 {
            return;
        }
        self.idle_sets.push_back(set);
        if self.idle_sets.len() > IDLE_SETS
            && let Some(oldest) = self.idle_sets.pop_front()
        {
            self.drop_set(oldest);
            if !self.dropped_sets.is_empty() {
                self.arm_serve(step);
            }
        }
    }

    /// A set is none any more. Its tubes forget it at once if it names them, else bit by bit.
    fn drop_set(&mut self, id: SetId) {
        self.awake.retain(|awake| *awake != id);
        self.set_of.remove(&self.sets[id.index()].watches);
        if self.is_plain(id) {
            for tube in self.tubes_by_name(id) {
                self.tubes[tube.index()].covers.retain(|cover| cover.set != id);
            }
            return self.forget_set(id);
        }
        match self.sets[id.index()].built {
            Built::No => self.forget_set(id),
            // The rest does not know of it, so that nothing is done there.
            Built::Before(_) | Built::Yes | Built::Dropping(_) => {
                self.sets[id.index()].built = Built::Dropping(0);
                self.dropped_sets.push_back(id);
            }
        }
    }

    /// Has more tubes forget the sets that are none any more: as many as one slice has.
    pub(super) fn drop_sets(&mut self, step: &mut Step<'_, '_>) {
        for _ in 0..super::SLICE {
            let Some(id) = self.dropped_sets.front().copied() else { return };
            let Built::Dropping(next) = self.sets[id.index()].built else { return };
            if let Some(tube) = self.tubes.get_mut(next) {
                tube.covers.retain(|cover| cover.set != id);
            }
            self.sets[id.index()].built = Built::Dropping(next + 1);
            if next >= self.tubes.capacity() {
                self.dropped_sets.pop_front();
                self.forget_set(id);
            }
        }
        self.arm_serve(step);
    }

    /// Forgets a set of which no tube knows.
    fn forget_set(&mut self, id: SetId) {
        let set = self.sets.remove(id.index());
        for (turn, lane) in set.lanes.keys() {
            self.limits.lanes[lane.index()].sets.remove(&(id, *turn));
        }
        for watch in &set.watches {
            let sets = self.watched.of_mut(&watch.pattern).expect("each watch of a set is in the table");
            sets.retain(|(set, _)| *set != id);
            if sets.is_empty() {
                self.watched.remove(&watch.pattern);
            }
        }
    }
}
