//! Watches of connections, and the sets that those with the same watches share.

use super::sets::{Built, SetId, Watch};
use super::tube::{Cover, TubeId};
use super::{Pattern, Reply, State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::id::{ConnId, Id};

/// Largest number of watches of a connection: its set is sorted when they change.
pub const MAX_WATCHES: usize = 1024;

impl State {
    /// `watch`: also takes jobs of these tubes. A watch that there is already gets the new weight.
    pub fn watch(&mut self, id: ConnId, pattern: Pattern<'_>, weight: Option<u16>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Watch);
        let known = self.conns[id].watches.iter().position(|watch| *watch.pattern == *pattern.bytes());
        let watch =
            Watch { pattern: pattern.bytes().into(), weight: weight.unwrap_or(1), is_weighted: weight.is_some() };
        match known {
            Some(index) if self.conns[id].watches[index] == watch => {}
            Some(index) => {
                self.leave_set(id, step);
                self.conns[id].watches[index] = watch;
            }
            None if self.conns[id].watches.len() >= MAX_WATCHES || !self.watch_tube(pattern, step) => {
                return step.tell(id, Reply::OutOfMemory);
            }
            None => {
                self.leave_set(id, step);
                self.conns[id].watches.push(watch);
            }
        }
        step.tell(id, Reply::Watching(self.conns[id].watches.len()));
    }

    /// `ignore`: takes no more jobs of these tubes. One watch must be left.
    pub fn ignore(&mut self, id: ConnId, pattern: Pattern<'_>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Ignore);
        if let Some(index) = self.conns[id].watches.iter().position(|watch| *watch.pattern == *pattern.bytes()) {
            if self.conns[id].watches.len() == 1 {
                return step.tell(id, Reply::NotIgnored);
            }
            self.leave_set(id, step);
            self.conns[id].watches.remove(index);
            self.unwatch_tube(pattern.bytes(), step);
        }
        step.tell(id, Reply::Watching(self.conns[id].watches.len()));
    }

    /// A tube that is watched by its name is one, even without jobs. Returns false when there is no room for it.
    fn watch_tube(&mut self, pattern: Pattern<'_>, step: &mut Step<'_, '_>) -> bool {
        let Some(name) = pattern.plain() else { return true };
        let Some(tube) = self.tube_for(name.bytes(), step.timers) else { return false };
        self.tubes[tube].watching += 1;
        true
    }

    pub(super) fn unwatch_tube(&mut self, pattern: &[u8], step: &mut Step<'_, '_>) {
        if !pattern.contains(&b'*') {
            let tube = self.tubes.find(pattern).expect("a watched tube is there");
            self.tubes[tube].watching -= 1;
            self.hide_if_unused(tube, step.now, step.timers);
        }
    }

    /// Gives a connection the set of its watches.
    pub(super) fn enter_set(&mut self, id: ConnId) -> SetId {
        if let Some(set) = self.conns[id].set {
            return set;
        }
        let mut watches = self.conns[id].watches.clone();
        watches.sort_unstable();
        let set = self.sets.enter(watches);
        self.conns[id].set = Some(set);
        set
    }

    /// Gives every connection the set of its watches, to count those that cover a tube.
    pub(super) fn enter_all_sets(&mut self) {
        for id in (0..self.conns.len()).map(ConnId::from_index) {
            if self.conns.get(id).is_some() {
                self.enter_set(id);
            }
        }
    }

    /// Tells each tube that the set covers of it, and returns whether that was all: as many places in the table of tubes are
    /// looked at as the budget has.
    pub(super) fn build(&mut self, id: SetId, budget: &mut u32) -> bool {
        if let Built::Yes | Built::Dropping(_) = self.sets[id].built {
            return true;
        }
        if self.sets[id].is_plain() {
            self.sets[id].built = Built::Yes;
            self.tubes_by_name(id).into_iter().for_each(|tube| self.cover(tube, id));
            return true;
        }
        loop {
            let next = if let Built::Before(next) = self.sets[id].built { next } else { 0 };
            if next >= self.tubes.capacity() {
                self.sets[id].built = Built::Yes;
                return true;
            }
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.sets[id].built = Built::Before(next + 1);
            if let Some((tube, _)) = self.tubes.at(next) {
                self.cover(tube, id);
            }
        }
    }

    /// Tells a tube of a set, if that covers it.
    fn cover(&mut self, tube: TubeId, id: SetId) {
        let name = self.tubes[tube].name.clone();
        let cover = self.covers_of(&name, tube).into_iter().find(|cover| cover.set == id);
        if cover.is_some() {
            self.tubes[tube].covers.extend(cover);
            self.show_to(tube, id);
        }
    }

    /// Returns the tubes that the watches of a set name.
    fn tubes_by_name(&self, id: SetId) -> Vec<TubeId> {
        self.sets[id].watches.iter().filter_map(|watch| self.tubes.find(&watch.pattern)).collect()
    }

    /// Returns the sets that cover a tube of this name, as far as the tube is to know of them, each with its most literal watch.
    pub(super) fn covers_of(&self, name: &[u8], tube: TubeId) -> Vec<Cover> {
        let mut covers: Vec<Cover> = Vec::new();
        for (id, watch) in self.sets.covering(name) {
            let set = &self.sets[id];
            if set.built.is_known_to(tube.index()) && covers.iter().all(|cover| cover.set != id) {
                covers.push(Cover { set: id, turn: if set.is_fair { watch } else { 0 }, stamp: 0 });
            }
        }
        covers
    }

    /// Shows a set that covers a tube from now on what the others see of it.
    fn show_to(&mut self, id: TubeId, set: SetId) {
        let tube = &mut self.tubes[id];
        let Some(cover) = tube.covers.iter_mut().find(|cover| cover.set == set) else { return };
        let entry = &mut self.sets[set];
        if tube.shown > 0 {
            cover.stamp = entry.next_stamp();
        }
        let cover = *cover;
        for bucket in self.tubes[id].buckets() {
            let Some(first) = self.tubes[bucket].shown else { continue };
            let lane = self.tubes[bucket].lane;
            let first = super::sets::Entry::new(first, cover.stamp, bucket);
            if entry.replace(cover.turn, lane, self.limits.is_open(lane), None, Some(first)) {
                self.limits.lanes[lane.index()].sets.insert((set, cover.turn));
            }
        }
    }

    /// The watches of a connection change, or it is gone.
    pub(super) fn leave_set(&mut self, id: ConnId, step: &mut Step<'_, '_>) {
        let Some(set) = self.conns[id].set.take() else { return };
        let Some(oldest) = self.sets.leave(set) else { return };
        self.drop_set(oldest);
        if self.sets.is_dropping() {
            self.arm_serve(step);
        }
    }

    /// A set is none any more. Its tubes forget it at once if it names them, else bit by bit.
    fn drop_set(&mut self, id: SetId) {
        if self.sets.begin_to_drop(id) {
            return;
        }
        if self.sets[id].is_plain() {
            for tube in self.tubes_by_name(id) {
                self.tubes[tube].covers.retain(|cover| cover.set != id);
            }
        }
        self.forget_set(id);
    }

    /// Has more tubes forget the sets that are none any more: as many as one slice has.
    pub(super) fn drop_sets(&mut self, step: &mut Step<'_, '_>) {
        while step.timers.spend(1) {
            let Some((id, next)) = self.sets.first_dropped() else { return };
            if let Some((tube, _)) = self.tubes.at(next) {
                self.tubes[tube].covers.retain(|cover| cover.set != id);
            }
            if let Some(id) = self.sets.advance_dropping(self.tubes.capacity()) {
                self.forget_set(id);
            }
        }
        self.arm_serve(step);
    }

    /// Forgets a set of which no tube knows.
    fn forget_set(&mut self, id: SetId) {
        for (turn, lane) in self.sets.remove(id).lanes.keys() {
            self.limits.lanes[lane.index()].sets.remove(&(id, *turn));
        }
    }
}
