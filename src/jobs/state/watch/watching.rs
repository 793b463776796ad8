//! Watches of connections, and the sets that connections with the same watches share.

use crate::state::feeds::{MOST_WIDE, Standing};
use crate::state::ids::{FeedId, SetId, TubeId};
use crate::state::sets::{Turn, WIDE, Watch, WatchSet};
use crate::state::tube::Rank;
use crate::state::{FEW, Pattern, Reply, State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::{ConnId, Id, Metered as _, meter};

/// Most watches of a connection: its set is made anew when they change.
pub const MAX_WATCHES: usize = 1024;

/// Number of visited entries that a new watch counts as: its tube is found or created.
const WATCH_COST: usize = 4;

impl State {
    /// `watch`: takes jobs of these tubes, too. An existing watch gets the new weight.
    pub fn watch(&mut self, id: ConnId, pattern: Pattern<'_>, weight: Option<u16>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Watch);
        let watch =
            Watch { pattern: pattern.bytes().into(), weight: weight.unwrap_or(1), is_weighted: weight.is_some() };
        let old = self.conns[id].watches.of(pattern.bytes());
        let is_too_many = || self.conns[id].watches.sorted.len() >= MAX_WATCHES || !self.has_room_for_clients(0);
        if old.is_none() && (is_too_many() || !self.watch_tube(pattern, step)) {
            return step.reply(id, Reply::OutOfMemory);
        }
        if self.conns[id].watches.of(pattern.bytes()) != Some(&watch) {
            self.visited += WATCH_COST;
            self.leave_set(id);
            self.conns.change_watches(id, |watches| watches.set(watch));
        }
        step.reply(id, Reply::Watching(self.conns[id].watches.sorted.len()));
    }

    /// `ignore`: takes no more jobs of these tubes. One watch must be left.
    pub fn ignore(&mut self, id: ConnId, pattern: Pattern<'_>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Ignore);
        if self.conns[id].watches.of(pattern.bytes()).is_some() {
            if self.conns[id].watches.sorted.len() == 1 {
                return step.reply(id, Reply::NotIgnored);
            }
            self.leave_set(id);
            self.conns.change_watches(id, |watches| {
                watches.remove(pattern.bytes());
            });
            self.unwatch_tube(pattern.bytes(), step);
        }
        step.reply(id, Reply::Watching(self.conns[id].watches.sorted.len()));
    }

    /// Creates the tube of a plain name, which is visible while it is watched. Returns false if there is no room for
    /// it.
    fn watch_tube(&mut self, pattern: Pattern<'_>, step: &mut Step<'_, '_>) -> bool {
        let Some(name) = pattern.plain() else { return self.feeds.admit(pattern.bytes()) };
        let Some(tube) = self.tube_for(name.bytes(), step.timers) else { return false };
        self.tubes[tube].watching += 1;
        true
    }

    pub(in crate::state) fn unwatch_tube(&mut self, pattern: &[u8], step: &mut Step<'_, '_>) {
        if pattern.contains(&b'*') {
            self.feeds.by_pattern.let_go(pattern);
        } else {
            let tube = self.tubes.find(pattern).expect("a watched tube is there");
            self.tubes[tube].watching -= 1;
            self.hide_if_unused(tube, step.now, step.timers);
        }
    }

    /// Returns the set of a connection's watches, and enters it.
    pub(in crate::state) fn enter_set(&mut self, id: ConnId) -> SetId {
        if let Some(set) = self.conns[id].set {
            return set;
        }
        let watches = &self.conns[id].watches.sorted;
        // The look-up compares lists of watches.
        meter::visit_many(watches.len() / FEW);
        self.visited += watches.len() / FEW;
        let known = self.sets.find(watches);
        let set = known.unwrap_or_else(|| self.make_set(self.conns[id].watches.sorted.as_slice().into()));
        self.sets.join(set);
        self.conns.set_set(id, Some(set));
        set
    }

    fn make_set(&mut self, watches: Box<[Watch]>) -> SetId {
        let id = self.sets.next_id();
        self.visited += watches.len();
        let mut feeds = Vec::with_capacity(watches.len());
        for watch in watches.iter().metered() {
            let (feed, is_new) = self.feeds.enter(&watch.pattern, id);
            if is_new && self.feeds[feed].is_plain {
                let tube = self.tubes.find(&watch.pattern);
                self.feeds[feed].tube = tube;
                // The tube looks for its feeds anew.
                tube.into_iter().for_each(|tube| self.tubes[tube].epoch = 0);
            }
            feeds.push(feed);
        }
        let mut set = WatchSet::new(watches, &feeds);
        let is_wide = !set.is_fair && feeds.len() >= WIDE;
        if is_wide && feeds.iter().all(|feed| self.feeds[*feed].wide.len() < MOST_WIDE) {
            let tubes = feeds.iter().filter_map(|feed| self.feeds[*feed].tube);
            set.giving = Some(tubes.filter_map(|tube| Some((self.tubes[tube].first?, tube))).collect());
            feeds.iter().for_each(|feed| self.feeds[*feed].wide.push(id));
        }
        self.sets.insert(set);
        id
    }

    /// Puts the tubes into the feeds of a set, within the budget of positions of the table. Returns true once all are
    /// there.
    pub(in crate::state) fn build(&mut self, id: SetId, budget: &mut u32) -> bool {
        if self.sets[id].is_built {
            return true;
        }
        let mut turns = (0..self.sets[id].turns.len()).metered();
        self.sets[id].is_built = turns.all(|turn| self.build_feed(self.sets[id].turns[turn].feed, budget));
        self.sets[id].is_built
    }

    fn build_feed(&mut self, id: FeedId, budget: &mut u32) -> bool {
        if self.feeds[id].known == usize::MAX || self.feeds[id].is_plain {
            return true;
        }
        while self.feeds[id].known < self.tubes.capacity() {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            meter::visit();
            let next = self.feeds[id].known;
            self.feeds[id].known += 1;
            if let Some((tube, entry)) = self.tubes.at(next)
                && self.feeds[id].covers(&entry.name)
            {
                let (lane, standing) = (entry.lane, entry.standing(tube));
                self.feeds.move_tube(id, lane, None, standing);
            }
        }
        self.feeds[id].known = usize::MAX;
        true
    }

    /// Leaves the set of a connection's watches, because they change or the connection ends.
    pub(in crate::state) fn leave_set(&mut self, id: ConnId) {
        let Some(set) = self.conns.set_set(id, None) else { return };
        if self.sets[set].conns == 1 {
            self.sets.awake.remove(set);
            self.unregister(set);
        }
        let Some(oldest) = self.sets.leave(set) else { return };
        let WatchSet { turns, .. } = self.sets.remove(oldest);
        self.visited += turns.len();
        for turn in turns.iter().metered() {
            let tube = self.feeds.leave(turn.feed, oldest);
            tube.into_iter().for_each(|tube| self.tubes[tube].epoch = 0);
        }
    }

    /// Registers a set with its feeds: it has waiting connections, and no job for them.
    pub(in crate::state) fn register(&mut self, id: SetId, ticket: u64) {
        if self.sets[id].is_registered
            && let Some(giving) = &self.sets[id].giving
        {
            // Limits hold all of these back.
            let held: Vec<TubeId> = giving.iter().metered().map(|(_, tube)| *tube).collect();
            self.visited += held.len();
            for tube in held {
                if let Some(feed) = self.feeds.of_name(&self.tubes[tube].name) {
                    self.hold(feed);
                }
            }
            return;
        }
        self.sets[id].is_registered = true;
        self.visited += self.sets[id].turns.len();
        for turn in (0..self.sets[id].turns.len()).metered() {
            let Turn { feed, ticket: known, .. } = &mut self.sets[id].turns[turn];
            let feed = *feed;
            self.visited += self.feeds[feed].lanes.len() / FEW;
            if *known == 0 {
                *known = ticket;
                self.feeds[feed].waiters.insert((ticket, id));
            }
            self.hold(feed);
        }
    }

    /// Removes a set from its feeds: none of its connections waits, or it has none.
    fn unregister(&mut self, id: SetId) {
        self.sets[id].is_registered = false;
        self.visited += self.sets[id].turns.len();
        for turn in self.sets[id].turns.iter_mut().metered().filter(|turn| turn.ticket > 0) {
            self.feeds[turn.feed].waiters.remove(&(turn.ticket, id));
            turn.ticket = 0;
        }
    }

    /// Notes the lanes in which limits hold tubes of a feed with waiting sets back.
    pub(in crate::state) fn hold(&mut self, id: FeedId) {
        let State { feeds, limits, tubes, .. } = self;
        let feed = &feeds[id];
        let Some((ticket, _)) = feed.waiters.first() else { return };
        let plain = feed.tube.filter(|tube| tubes[*tube].first.is_some()).map(|tube| tubes[tube].lane);
        feed.lanes.keys().copied().chain(plain).for_each(|lane| limits.hold(lane, *ticket, id));
    }

    /// Moves a tube, of which a job of this priority was reserved, to the end of the feeds that cover it, if it has more
    /// jobs of that priority to give.
    pub(in crate::state) fn rotate(&mut self, id: TubeId, pri: u32) {
        let tube = &mut self.tubes[id];
        let before = tube.standing(id);
        if let Some((_, stamp)) = tube.stamps.last_mut().filter(|(own, _)| *own == pri) {
            *stamp = self.feeds.stamps.draw();
            self.move_in_feeds(id, before);
        }
    }

    /// Moves a tube from a position in the feeds that cover it to its present one.
    pub(in crate::state) fn move_in_feeds(&mut self, id: TubeId, before: Option<Standing>) {
        let State { tubes, feeds, .. } = self;
        let tube = &mut tubes[id];
        if tube.epoch != feeds.epoch + 1 {
            tube.epoch = feeds.epoch + 1;
            tube.feeds.clear();
            tube.feeds.extend(feeds.covering(&tube.name));
        }
        meter::visit_many(tube.feeds.len() / FEW);
        for feed in &tube.feeds {
            if !feeds[*feed].is_plain && id.index() < feeds[*feed].known {
                feeds.move_tube(*feed, tube.lane, before, tube.standing(id));
            }
        }
    }

    /// Moves a tube in the sets that keep the tubes with a job to give, as its first job is another one.
    pub(in crate::state) fn move_in_sets(&mut self, id: TubeId, old: Option<Rank>, new: Option<Rank>) {
        let State { tubes, feeds, sets, .. } = self;
        let feed = if sets.wide > 0 { feeds.of_name(&tubes[id].name) } else { None };
        for set in feed.iter().flat_map(|feed| &feeds[*feed].wide) {
            let giving = sets[*set].giving.as_mut().expect("a wide set keeps them");
            if let Some(old) = old {
                giving.remove(&(old, id));
            }
            giving.extend(new.map(|new| (new, id)));
        }
    }

    /// Marks the feeds with waiting sets of a tube that has a job to give from now on.
    pub(in crate::state) fn note_comes(&mut self, id: TubeId) {
        if self.sets.waiting == 0 {
            return;
        }
        let State { feeds, limits, tubes, .. } = self;
        let tube = &tubes[id];
        let is_open = limits.is_open(tube.lane);
        for feed in &tube.feeds {
            match feeds[*feed].waiters.first() {
                None => {}
                Some(_) if is_open => feeds.freshen(*feed),
                Some((ticket, _)) => limits.hold(tube.lane, *ticket, *feed),
            }
        }
    }

    /// Returns the first tube of a feed with a job to give that no limit holds back.
    pub(in crate::state) fn first_of(&self, id: FeedId) -> Option<Standing> {
        let feed = &self.feeds[id];
        match feed.tube.filter(|tube| self.limits.is_open(self.tubes[*tube].lane)) {
            Some(tube) => self.tubes[tube].standing(tube),
            None => {
                let open = feed.lanes.iter().filter(|(lane, _)| self.limits.is_open(**lane));
                open.filter_map(|(_, list)| list.first()).min().copied()
            }
        }
    }
}
