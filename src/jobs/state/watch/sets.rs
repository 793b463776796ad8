//! Sets of watches: connections that watch the same tubes share one, which keeps the turns of its watches.
//!
//! A set of plain names gives the job with the lowest priority and number. In a set with a pattern or a weight each
//! watch has a *turn*; turns of equal priority are taken in proportion to their weights, and in a turn tubes are
//! ordered by priority and by the time at which they came or were last served. The order of those that came is the
//! feed's, which all sets share; a turn itself has only the tubes that it has served and that still have such jobs, and
//! for each priority the last stamp up to which it went through the feed.
//!
//! Invariant: a tube of a turn whose stamp is at or before the turn's mark of that lane and priority is among those that
//! the turn has served, once. That holds as well for the stamps to which a tube returns from better priorities.

use crate::state::feeds::{Feed, Feeds, Standing};
use crate::state::ids::{FeedId, LaneId, TubeId};
use poolcounter_core::count::first_before;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::list::List;
use poolcounter_core::meter::{self, Metered as _};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

/// One watch of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// Pattern, or plain name.
    pub pattern: Box<[u8]>,
    /// Share of the turns.
    pub weight: u16,
    /// True if the client named the weight, which makes the turns fair.
    pub is_weighted: bool,
}

impl Watch {
    /// Returns true if tubes take turns because of this watch.
    pub fn is_fair(&self) -> bool {
        self.is_weighted || self.pattern.contains(&b'*')
    }

    /// Returns the bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<(Watch, u32)>() + self.pattern.len()
    }
}

/// Advance of a turn's pass for each job, divided by its weight.
const STRIDE: u64 = 1 << 32;
/// Pass at which all passes are rebased near zero: at most once in 2^30 jobs, and far from the largest number.
const REBASED_FROM: u64 = 1 << 62;
/// Number of served tubes that a turn checks with each job. Those without such a job are dropped. It exceeds the number
/// added, so that few are kept in vain.
const LOOKED_AFTER: usize = 2;

/// The budget is used up, and the rest must wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::state) struct Later;

/// Tube that is next in a turn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::state) struct Choice {
    pub pri: u32,
    /// Stamp in the turn.
    pub stamp: u64,
    pub tube: TubeId,
    pub lane: LaneId,
    /// True if the stamp is that of its last service in the turn.
    pub is_served: bool,
}

/// Tubes and limits, as a turn sees them.
pub(in crate::state) trait Standings {
    /// Returns whether no limit holds the tubes of a lane back.
    fn is_open(&self, lane: LaneId) -> bool;
    /// Returns the stamp of a tube at a priority of a lane, at which it stands or to which it returns from a better one.
    fn stamp_at(&self, tube: TubeId, lane: LaneId, pri: u32) -> Option<u64>;
    /// Returns the first feed of a tube for which the test returns something, the most literal first.
    fn first_feed<T>(&self, tube: TubeId, test: impl Fn(FeedId) -> Option<T>) -> Option<T>;
}

/// Participant in the turns of a set: one watch.
#[derive(Default)]
pub(in crate::state) struct Turn {
    stride: u64,
    /// Position among turns of equal priority; the lowest is next.
    pub pass: u64,
    /// Tubes that it has served and that still have a stamp at that priority, by the stamp of the service.
    served: BTreeSet<(LaneId, u32, u64, TubeId)>,
    /// Last stamp up to which it went through each priority of the lanes of its feed.
    marks: BTreeMap<(LaneId, u32), u64>,
    /// Entry that was checked last.
    seen_served: Option<(LaneId, u32, u64, TubeId)>,
    seen_mark: Option<(LaneId, u32)>,
}

impl Turn {
    fn new(weight: u16) -> Turn {
        Turn { stride: STRIDE / u64::from(weight), ..Turn::default() }
    }

    /// Returns the number of tubes and marks that it keeps.
    fn len(&self) -> usize {
        self.served.len() + self.marks.len()
    }

    /// Returns the next tube of this turn.
    fn front(
        &mut self,
        feed: &Feed,
        state: &impl Standings,
        is_own: &impl Fn(TubeId) -> bool,
        budget: &mut u32,
    ) -> Result<Option<Choice>, Later> {
        let mut first: Option<Choice> = None;
        for (lane, list) in feed.lanes.iter().filter(|(lane, _)| state.is_open(**lane)) {
            // If none of the best tubes is its own, another turn has them, and is the next one.
            let Some((pri, ..)) = list.first() else { continue };
            let served = self.first_served(*lane, *pri, state);
            let came = self.first_that_came((*lane, *pri), list, is_own, budget)?;
            first = [first, served, came].into_iter().flatten().min();
        }
        Ok(first)
    }

    fn first_served(&mut self, lane: LaneId, pri: u32, state: &impl Standings) -> Option<Choice> {
        loop {
            let entry = self.served.range((lane, pri, 0, TubeId::from_index(0))..).next().copied()?;
            let (own_lane, own_pri, stamp, tube) = entry;
            if (own_lane, own_pri) != (lane, pri) {
                return None;
            }
            if is_still_served(entry, state) {
                return Some(Choice { pri, stamp, tube, lane, is_served: true });
            }
            meter::visit();
            self.served.remove(&entry);
        }
    }

    fn first_that_came(
        &mut self,
        (lane, pri): (LaneId, u32),
        list: &BTreeSet<Standing>,
        is_own: &impl Fn(TubeId) -> bool,
        budget: &mut u32,
    ) -> Result<Option<Choice>, Later> {
        let mut mark = self.marks.get(&(lane, pri)).copied().unwrap_or(0);
        loop {
            let next = list.range((pri, mark + 1, TubeId::from_index(0))..).next();
            let Some((_, stamp, tube)) = next.copied().filter(|(own, ..)| *own == pri) else { return Ok(None) };
            if is_own(tube) {
                return Ok(Some(Choice { pri, stamp, tube, lane, is_served: false }));
            }
            meter::visit();
            mark = stamp;
            self.marks.insert((lane, pri), mark);
            *budget = budget.checked_sub(1).ok_or(Later)?;
        }
    }

    /// Notes that a tube was served at `stamp`; it may still have a job of that priority.
    fn note_served(&mut self, choice: Choice, stamp: u64, state: &impl Standings) {
        let Choice { pri, tube, lane, .. } = choice;
        if choice.is_served {
            self.served.remove(&(lane, pri, choice.stamp, tube));
        } else {
            self.marks.insert((lane, pri), choice.stamp);
        }
        if is_still_served((lane, pri, stamp, tube), state) {
            self.served.insert((lane, pri, stamp, tube));
        }
    }

    /// Drops some entries that do not hold any more, because tubes changed outside of the turn.
    fn look_after(&mut self, feed: &Feed, state: &impl Standings) {
        for _ in 0..LOOKED_AFTER {
            let next = self.served.range((self.seen_served.map_or(Unbounded, Excluded), Unbounded)).next().copied();
            self.seen_served = next;
            if let Some(entry) = next.filter(|entry| !is_still_served(*entry, state)) {
                self.served.remove(&entry);
            }
            let next = self.marks.range((self.seen_mark.map_or(Unbounded, Excluded), Unbounded)).next();
            let next = next.map(|(place, mark)| (*place, *mark));
            self.seen_mark = next.map(|(place, _)| place);
            if let Some(((lane, pri), mark)) = next {
                let least = TubeId::from_index(0);
                let served = self.served.range((lane, pri, 0, least)..).next();
                let has_served = served.is_some_and(|(own_lane, own, ..)| (*own_lane, *own) == (lane, pri));
                let first = feed.lanes.get(&lane).and_then(|list| list.range((pri, 0, least)..).next());
                if !has_served && first.is_none_or(|(own, stamp, _)| *own != pri || *stamp > mark) {
                    self.marks.remove(&(lane, pri));
                }
            }
        }
    }
}

/// Returns whether a tube has had a stamp at that priority of that lane since before it was served.
fn is_still_served((lane, pri, served, tube): (LaneId, u32, u64, TubeId), state: &impl Standings) -> bool {
    state.stamp_at(tube, lane, pri).is_some_and(|stamp| stamp < served)
}

/// Returns the position of the watch with this feed.
fn place_of(places: &[(FeedId, u16)], feed: FeedId) -> Option<u16> {
    let place = places.binary_search_by_key(&feed, |(feed, _)| *feed).ok()?;
    Some(places[place].1)
}

/// A set of watches.
pub(in crate::state) struct WatchSet {
    pub watches: Box<[Watch]>,
    pub is_fair: bool,
    /// Number of connections with these watches.
    pub conns: u32,
    pub waiting: List<ConnId>,
    /// Feed of each watch, and the ticket of the set among the feed's waiters; 0 if it is not there.
    pub feeds: Box<[(FeedId, u64)]>,
    /// Feeds with the positions of their watches, sorted.
    places: Box<[(FeedId, u16)]>,
    /// Ticket among the sets whose search for a job is unfinished.
    pub awake: Option<u64>,
    /// True once all tubes are in its feeds.
    pub is_built: bool,
    /// Turn of each watch, if tubes take turns.
    pub turns: Box<[Turn]>,
    pass: u64,
    /// Number of tubes and marks that its turns keep.
    pub kept: usize,
}

impl WatchSet {
    /// Returns the bytes that it takes beside the tubes and marks of its turns: its watches are its key, too.
    pub fn watch_bytes(&self) -> usize {
        let each = 2 * size_of::<(FeedId, u64)>() + size_of::<Turn>();
        size_of::<WatchSet>() + self.watches.iter().map(|watch| 2 * watch.bytes() + each).sum::<usize>()
    }

    /// Returns a set that has served nothing yet, for sorted watches and their feeds.
    pub fn new(watches: Box<[Watch]>, feeds: &[FeedId]) -> WatchSet {
        let is_fair = watches.iter().any(Watch::is_fair);
        let turns =
            if is_fair { watches.iter().map(|watch| Turn::new(watch.weight)).collect() } else { Box::default() };
        // Lossless: a connection has 1024 watches at most.
        let mut places: Box<[_]> = feeds.iter().enumerate().map(|(place, feed)| (*feed, place as u16)).collect();
        places.sort_unstable();
        WatchSet {
            watches,
            is_fair,
            conns: 0,
            waiting: List::default(),
            feeds: feeds.iter().map(|feed| (*feed, 0)).collect(),
            places,
            awake: None,
            is_built: !is_fair,
            turns,
            pass: first_before(REBASED_FROM),
            kept: 0,
        }
    }

    /// Panics if its count of kept entries is wrong.
    pub fn check(&self) {
        assert_eq!(self.kept, self.turns.iter().map(Turn::len).sum::<usize>(), "what turns keep is counted");
    }

    /// Panics if a turn does not see a tube that stands in its feed, or sees it twice.
    pub fn check_turns(&self, feeds: &Feeds, state: &impl Standings) {
        let turns_of = |feed: FeedId| place_of(&self.places, feed);
        for ((turn, (feed, _)), place) in self.turns.iter().zip(&self.feeds).zip(0_u16..) {
            let mut seen = BTreeMap::new();
            for entry in turn.served.iter().filter(|entry| is_still_served(**entry, state)) {
                let (lane, pri, _, tube) = *entry;
                *seen.entry((lane, pri, tube)).or_insert(0) += 1;
            }
            for (lane, list) in &feeds[*feed].lanes {
                for (pri, stamp, tube) in
                    list.iter().filter(|(.., tube)| state.first_feed(*tube, turns_of) == Some(place))
                {
                    let has_come = turn.marks.get(&(*lane, *pri)).is_none_or(|mark| stamp > mark);
                    let seen = seen.get(&(*lane, *pri, *tube)).copied().unwrap_or(0) + i32::from(has_come);
                    assert_eq!(seen, 1, "a turn sees each tube once");
                }
            }
        }
    }

    /// Notes the ticket of the set among the waiters of a feed.
    pub fn set_ticket(&mut self, feed: FeedId, ticket: u64) {
        if let Some(place) = place_of(&self.places, feed) {
            self.feeds[usize::from(place)].1 = ticket;
        }
    }

    /// Returns the next tube of the turn of a pattern.
    pub fn front(
        &mut self,
        turn: u16,
        feed: &Feed,
        state: &impl Standings,
        budget: &mut u32,
    ) -> Result<Option<Choice>, Later> {
        let WatchSet { turns, places, kept, .. } = self;
        let turns_of = |feed: FeedId| place_of(places, feed);
        // A tube takes part in the turn of the most literal watch that covers it.
        let is_own = |tube: TubeId| places.len() == 1 || state.first_feed(tube, turns_of) == Some(turn);
        let turn = &mut turns[usize::from(turn)];
        let before = turn.len();
        let front = turn.front(feed, state, &is_own, budget);
        *kept = *kept + turn.len() - before;
        front
    }

    /// Notes that a tube of a pattern was served in this turn.
    pub fn note_served(&mut self, turn: u16, choice: Choice, stamp: u64, feed: &Feed, state: &impl Standings) {
        let turn = &mut self.turns[usize::from(turn)];
        let before = turn.len();
        turn.note_served(choice, stamp, state);
        turn.look_after(feed, state);
        self.kept = self.kept + turn.len() - before;
    }

    /// Drops the served tubes and marks of its turns: all tubes have the order of the feeds again.
    pub fn forget(&mut self) {
        self.turns.iter_mut().metered().for_each(|turn| (turn.served, turn.marks) = Default::default());
        self.kept = 0;
    }

    /// Notes that a job was served in this turn.
    pub fn advance(&mut self, index: u16) {
        if !self.is_fair {
            return;
        }
        let turn = &mut self.turns[usize::from(index)];
        // A turn that was idle for a while does not catch up.
        self.pass = self.pass.max(turn.pass);
        turn.pass = self.pass + turn.stride;
        if self.pass >= REBASED_FROM {
            self.rebase();
        }
    }

    /// Brings all passes near zero, and keeps their order. Turns behind the pass of the set keep only their order,
    /// because each goes on from that pass when it is served; the others keep their distance to it.
    fn rebase(&mut self) {
        let mut behind: Vec<u64> = self.turns.iter().map(|turn| turn.pass).filter(|pass| *pass < self.pass).collect();
        behind.sort_unstable();
        behind.dedup();
        let base = behind.len() as u64;
        for turn in &mut self.turns {
            turn.pass = match turn.pass.checked_sub(self.pass) {
                Some(ahead) => base + ahead,
                None => behind.partition_point(|pass| *pass < turn.pass) as u64,
            };
        }
        self.pass = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves a job of the next turn that has some, and returns that turn.
    fn serve(set: &mut WatchSet, has_jobs: [bool; 4]) -> u16 {
        let turns = (0..4_u16).filter(|turn| has_jobs[usize::from(*turn)]);
        let turn = turns.min_by_key(|turn| set.turns[usize::from(*turn)].pass).expect("a turn has a job");
        set.advance(turn);
        turn
    }

    #[test]
    fn turns_are_the_same_however_many_jobs_there_were() {
        let set = || {
            let watch = |weight| Watch { pattern: Box::default(), weight, is_weighted: true };
            let feeds: Vec<FeedId> = (0..4).map(FeedId::from_index).collect();
            WatchSet::new([1, 3, 7, 1000].map(watch).into(), &feeds)
        };
        let (mut new, mut old) = (set(), set());
        // The state after 2^30 - 50 jobs of the first turn.
        let begin = REBASED_FROM - 50 * STRIDE;
        old.pass += begin;
        old.turns.iter_mut().for_each(|turn| turn.pass += begin);
        let mut has_jobs = [true; 4];
        for served in 0..200_000_u32 {
            // Now and then a turn has no jobs for a while, and is behind the others when it has some again.
            for (turn, pause) in [(1, 900), (2, 5_000)] {
                match served % (10 * pause) {
                    after if after == 3 * pause => has_jobs[turn] = false,
                    after if after == 8 * pause => has_jobs[turn] = true,
                    _ => {}
                }
            }
            assert_eq!(serve(&mut old, has_jobs), serve(&mut new, has_jobs), "job {served}");
        }
        assert!(old.pass < new.pass, "the passes of the set have begun anew");
    }
}
