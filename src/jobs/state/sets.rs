//! Sets of watches: who watches the same tubes shares one, which knows the next job for any of them.
//!
//! A set sees of each bucket of jobs only the first. Buckets that the same limits hold back stand in one *lane*, so that a
//! limit which is reached hides all of them at once. The lanes of a watch make a *turn*; a set of plain names has one turn
//! for all, in which jobs stand by priority and number. In a set with a pattern or a weight a tube stands in its turn by
//! priority and by when it was last served, and the turns of equal priority are taken in proportion to their weights.
//!
//! Invariant: the front of each lane that is open, and of no other, stands in its turn; the front of each turn in the order, if
//! tubes take turns.

use super::job::JobId;
use super::limits::GateId;
use super::tube::{BucketId, Rank};
use poolcounter_core::count::first_before;
use poolcounter_core::id::{ConnId, id};
use poolcounter_core::list::List;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

id! {
    /// A set of watches.
    SetId
}
id! {
    /// The buckets that the same limits hold back.
    LaneId
}

/// One watch of a connection.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Watch {
    /// The pattern, or a plain name.
    pub pattern: Box<[u8]>,
    /// Its part of the turns.
    pub weight: u16,
    /// Whether the weight was said, which makes the turns fair.
    pub is_weighted: bool,
}

impl Watch {
    /// Returns true when tubes take turns because of this watch.
    pub fn is_fair(&self) -> bool {
        self.is_weighted || self.pattern.contains(&b'*')
    }
}

/// Advance of a turn's pass for each job, divided by its weight.
const STRIDE: u64 = 1 << 32;
/// The pass from which on all begin anew near zero: once in 2^30 jobs at most, and far from where numbers end.
const REBASED_FROM: u64 = 1 << 62;

/// The first job of a bucket, as a set sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Entry {
    pub pri: u32,
    /// Stamp since which the tube waits for its turn.
    pub stamp: u64,
    pub id: JobId,
    pub bucket: BucketId,
}

impl Entry {
    pub fn new(rank: Rank, stamp: u64, bucket: BucketId) -> Entry {
        Entry { pri: rank.pri(), stamp, id: rank.id(), bucket }
    }
}

/// Buckets that the same limits hold back.
pub(super) struct Lane {
    pub gates: Box<[GateId]>,
    /// Number of the gates that are closed.
    pub closed: u32,
    pub buckets: u32,
    /// The sets, and the turns of them, that have such buckets or had them.
    pub sets: BTreeSet<(SetId, u16)>,
}

/// Participant in the turns of a set: one watch, or all plain ones together.
pub(super) struct Turn {
    stride: u64,
    /// The lowest of equal priority is next.
    pass: u64,
    open: BTreeSet<(Entry, LaneId)>,
    /// Its place in the order.
    key: Option<(u32, u64)>,
}

/// Which tubes know of a set that covers them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Built {
    /// None: that waits until somebody reserves.
    No,
    /// Tubes before this slot of the table; the others learn of it bit by bit.
    Before(usize),
    /// All.
    Yes,
    /// Being dropped: tubes in this slot and above may still refer to the set.
    Dropping(usize),
}

impl Built {
    /// Returns whether the tube in this place knows of the set.
    pub fn is_known_to(self, place: usize) -> bool {
        match self {
            Built::No => false,
            Built::Before(next) => place < next,
            Built::Yes => true,
            Built::Dropping(next) => place >= next,
        }
    }
}

/// A set of watches.
pub(super) struct WatchSet {
    pub watches: Box<[Watch]>,
    pub is_fair: bool,
    /// Number of connections with these watches.
    pub conns: u32,
    pub waiting: List<ConnId>,
    pub built: Built,
    pub lanes: BTreeMap<(u16, LaneId), BTreeSet<Entry>>,
    pub turns: Vec<Turn>,
    pub order: BTreeSet<(u32, u64, u16)>,
    pass: u64,
    stamp: u64,
}

impl WatchSet {
    /// Returns a set that sees nothing yet. The watches are sorted.
    pub fn new(watches: Box<[Watch]>) -> WatchSet {
        let is_fair = watches.iter().any(Watch::is_fair);
        let turn = |weight: u16| Turn { stride: STRIDE / u64::from(weight), pass: 0, open: BTreeSet::new(), key: None };
        let turns = if is_fair { watches.iter().map(|watch| turn(watch.weight)).collect() } else { vec![turn(1)] };
        WatchSet {
            watches,
            is_fair,
            conns: 0,
            waiting: List::default(),
            built: Built::No,
            lanes: BTreeMap::new(),
            turns,
            order: BTreeSet::new(),
            pass: first_before(REBASED_FROM),
            stamp: first_before(u32::MAX.into()),
        }
    }

    /// Returns whether all watches are plain names.
    pub fn is_plain(&self) -> bool {
        self.watches.iter().all(|watch| !watch.pattern.contains(&b'*'))
    }

    /// Returns the stamp of a tube that goes to the end of those that wait for their turn.
    pub fn next_stamp(&mut self) -> u64 {
        if self.is_fair {
            self.stamp += 1;
        }
        self.stamp
    }

    /// Replaces the first job of a bucket as the set sees it. Returns true when the set had nothing of this lane
    /// before.
    pub fn replace(&mut self, turn: u16, lane: LaneId, is_open: bool, old: Option<Entry>, new: Option<Entry>) -> bool {
        let mut is_new = false;
        let entries = self.lanes.entry((turn, lane)).or_insert_with(|| {
            is_new = true;
            BTreeSet::new()
        });
        let front = entries.first().copied();
        if let Some(old) = old {
            let was_there = entries.remove(&old);
            debug_assert!(was_there, "what is removed was inserted");
        }
        entries.extend(new);
        let next = entries.first().copied();
        if is_open && front != next {
            self.move_front(turn, lane, front, next);
        }
        is_new
    }

    /// A lane was closed, or opened again.
    pub fn set_open(&mut self, turn: u16, lane: LaneId, is_open: bool) {
        let front = self.lanes[&(turn, lane)].first().copied();
        if is_open {
            self.move_front(turn, lane, None, front);
        } else {
            self.move_front(turn, lane, front, None);
        }
    }

    /// Returns the bucket whose turn it is, and the turn.
    pub fn front(&self) -> Option<(u16, Entry)> {
        let turn = if self.is_fair { self.order.first()?.2 } else { 0 };
        let (entry, _) = self.turns[usize::from(turn)].open.first()?;
        Some((turn, *entry))
    }

    /// A job was served in this turn.
    pub fn advance(&mut self, index: u16) {
        if !self.is_fair {
            return;
        }
        let turn = &mut self.turns[usize::from(index)];
        // A turn that had nothing to serve for a while does not get what it missed.
        self.pass = self.pass.max(turn.pass);
        turn.pass = self.pass + turn.stride;
        self.place(index);
        if self.pass >= REBASED_FROM {
            self.rebase();
        }
    }

    /// Brings all passes near zero, without a change of who is next. Of turns behind the pass of the set only the order matters, as
    /// each goes on from that pass when it is served; of the others, how far they are ahead.
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
            turn.key = None;
        }
        self.pass = base;
        self.order.clear();
        // Lossless: a connection has 1024 watches at most.
        (0..self.turns.len()).for_each(|index| self.place(index as u16));
    }

    fn move_front(&mut self, turn: u16, lane: LaneId, old: Option<Entry>, new: Option<Entry>) {
        let open = &mut self.turns[usize::from(turn)].open;
        if let Some(old) = old {
            open.remove(&(old, lane));
        }
        if let Some(new) = new {
            open.insert((new, lane));
        }
        self.place(turn);
    }

    /// Puts a turn where it belongs in the order, if there are several.
    fn place(&mut self, index: u16) {
        if !self.is_fair {
            return;
        }
        let turn = &mut self.turns[usize::from(index)];
        let key = turn.open.first().map(|(entry, _)| (entry.pri, turn.pass));
        if key == turn.key {
            return;
        }
        if let Some((pri, pass)) = std::mem::replace(&mut turn.key, key) {
            self.order.remove(&(pri, pass, index));
        }
        if let Some((pri, pass)) = key {
            self.order.insert((pri, pass, index));
        }
    }

    /// Panics when lanes, turns and order contradict each other.
    pub fn check(&self, is_open: impl Fn(LaneId) -> bool) {
        let mut fronts = 0;
        for ((turn, lane), entries) in &self.lanes {
            let front = entries.first().filter(|_| is_open(*lane));
            if let Some(front) = front {
                fronts += 1;
                assert!(self.turns[usize::from(*turn)].open.contains(&(*front, *lane)), "a front is not in its turn");
            }
        }
        assert_eq!(fronts, self.turns.iter().map(|turn| turn.open.len()).sum::<usize>(), "a turn has what is no front");
        let mut placed = 0;
        for (index, turn) in self.turns.iter().enumerate().filter(|_| self.is_fair) {
            let key = turn.open.first().map(|(entry, _)| (entry.pri, turn.pass));
            assert_eq!(turn.key, key, "a turn stands elsewhere in the order");
            if let Some((pri, pass)) = key {
                placed += 1;
                assert!(self.order.contains(&(pri, pass, index as u16)), "a turn is missing in the order");
            }
        }
        assert_eq!(placed, self.order.len(), "the order has a turn too many");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::Id;

    /// Returns a set with a watch of each of these weights, all of which always have a job.
    fn busy_set(weights: &[u16]) -> WatchSet {
        let watch = |(n, weight): (usize, &u16)| Watch {
            pattern: format!("{n}/*").into_bytes().into(),
            weight: *weight,
            is_weighted: true,
        };
        let mut set = WatchSet::new(weights.iter().enumerate().map(watch).collect());
        for turn in 0..weights.len() as u16 {
            offer(&mut set, turn, true);
        }
        set
    }

    /// Gives a turn a job of priority 1, or takes it away.
    fn offer(set: &mut WatchSet, turn: u16, is_there: bool) {
        let entry = Entry { pri: 1, stamp: 0, id: JobId(1), bucket: BucketId::from_index(usize::from(turn)) };
        let (old, new) = if is_there { (None, Some(entry)) } else { (Some(entry), None) };
        set.replace(turn, LaneId::from_index(usize::from(turn)), true, old, new);
    }

    /// Serves a job, and returns in which turn.
    fn serve(set: &mut WatchSet) -> u16 {
        let (turn, _) = set.front().expect("a turn has a job");
        set.advance(turn);
        set.check(|_| true);
        turn
    }

    #[test]
    fn turns_are_the_same_however_many_jobs_there_were() {
        let weights = [1, 3, 7, 1000];
        let (mut new, mut old) = (busy_set(&weights), busy_set(&weights));
        // As after 2^30 - 50 jobs of the first turn.
        let begin = REBASED_FROM - 50 * STRIDE;
        old.pass += begin;
        old.turns.iter_mut().for_each(|turn| turn.pass += begin);
        (0..old.turns.len() as u16).for_each(|turn| old.place(turn));
        for served in 0..200_000_u32 {
            // Now and then one has no jobs for a while, and is behind the others when it has some again.
            for (turn, pause) in [(1, 900), (2, 5_000)] {
                match served % (10 * pause) {
                    after if after == 3 * pause => [&mut new, &mut old].map(|set| offer(set, turn, false)),
                    after if after == 8 * pause => [&mut new, &mut old].map(|set| offer(set, turn, true)),
                    _ => continue,
                };
            }
            assert_eq!(serve(&mut old), serve(&mut new), "job {served}");
        }
        assert!(old.pass < new.pass, "the passes of the set have begun anew");
    }
}
