//! Table of every tube with its buckets of ready jobs, found by name; the hidden tubes, and sums over tubes.

mod bytes;
mod check;

use crate::state::JobState;
use crate::state::ids::{BucketId, LaneId, TubeId};
use crate::state::jobs::Jobs;
use crate::state::sums::{Part, Sum, SumBy, Sums, age_of};
use crate::state::tally::{Counted, LastError, Noted, Tally};
use crate::state::tube::{Bucket, Tube};
use bytes::name_bytes;
use poolcounter_core::id::index_by;
use poolcounter_core::{Id, Names, Time};
use slab::Slab;
use std::collections::BTreeSet;

/// Every tube.
#[derive(Default)]
pub(in crate::state) struct Tubes {
    all: Slab<Tube>,
    names: Names<TubeId>,
    pub buckets: Slab<Bucket>,
    /// Hidden tubes, the oldest first.
    hidden: BTreeSet<(Time, TubeId)>,
    pub sums: Sums,
    /// Jobs by [`JobState`], and ready ones below the urgent priority.
    counts: [u64; 4],
    pub urgent: u64,
    /// Bytes of the names of tubes, and of their parts.
    name_bytes: usize,
    /// Bytes of the tallies of visible tubes, and of hidden ones.
    tally_bytes: [usize; 2],
    /// Delayed jobs that wait to be tried again.
    pub retrying: u64,
    /// Tube whose last ready job has left, if it keeps its position in the orders of ages: a queue that is mostly empty
    /// needs it for the next job. At most one tube does.
    pub lingering: Option<TubeId>,
}

impl Tubes {
    /// Returns the number of tubes, including hidden ones.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of tubes that clients see.
    pub fn visible(&self) -> usize {
        self.all.len() - self.hidden.len()
    }

    /// Returns the number of positions in the table.
    pub fn capacity(&self) -> usize {
        self.all.capacity()
    }

    /// Returns the tube at a position of the table.
    pub fn at(&self, place: usize) -> Option<(TubeId, &Tube)> {
        self.all.get(place).map(|tube| (TubeId::from_index(place), tube))
    }

    /// Returns a tube, if it exists.
    pub fn get(&self, id: TubeId) -> Option<&Tube> {
        self.all.get(id.index())
    }

    /// Returns every tube.
    pub fn iter(&self) -> impl Iterator<Item = (TubeId, &Tube)> {
        self.all.iter().map(|(place, tube)| (TubeId::from_index(place), tube))
    }

    /// Returns the visible tubes at the `most` positions of the table from `first` on, and the next position.
    pub fn slice(&self, first: usize, most: usize) -> (impl Iterator<Item = &Tube>, Option<usize>) {
        let end = first.saturating_add(most);
        let tubes = (first..end.min(self.all.capacity())).filter_map(|place| self.all.get(place));
        (tubes.filter(|tube| tube.hidden.is_none()), (end < self.all.capacity()).then_some(end))
    }

    /// Takes out and returns the timers of delays.
    pub fn take_timers(&mut self) -> impl Iterator<Item = poolcounter_core::wheel::TimerId> {
        self.all.iter_mut().filter_map(|(_, tube)| tube.some_rare()?.delay_timer.take())
    }

    /// Returns the tube with this name, which may be hidden.
    pub fn find(&self, name: &[u8]) -> Option<TubeId> {
        let hash = self.names.hash(name);
        self.names.find(hash, |tube| &*self.all[tube.index()].name == name)
    }

    /// Returns the tube with this name, if clients see it.
    pub fn find_visible(&self, name: &[u8]) -> Option<TubeId> {
        self.find(name).filter(|tube| self[*tube].hidden.is_none())
    }

    /// Adds a tube. Its name must be new.
    pub fn insert(&mut self, name: &[u8], lane: LaneId) -> TubeId {
        let (id, hash) = (TubeId::from_index(self.all.vacant_key()), self.names.hash(name));
        let Tubes { all, sums, .. } = self;
        let sums = sums.enter(id, name, |tube| part_of(all, tube));
        self.all.insert(Tube { name: name.into(), hash, lane, sums, ..Tube::default() });
        self.name_bytes += name_bytes(name);
        self.names.insert(hash, id, |tube| self.all[tube.index()].hash);
        id
    }

    /// Removes a hidden tube, and returns it.
    pub fn remove(&mut self, id: TubeId) -> Tube {
        if self.lingering == Some(id) {
            self.lingering = None;
            self.move_age(id, None);
        }
        let tube = self.all.remove(id.index());
        debug_assert!(tube.is_unused() && tube.first.is_none(), "only a hidden tube is dropped");
        self.hidden.remove(&(tube.hidden.expect("only a hidden tube is dropped"), id));
        self.name_bytes -= name_bytes(&tube.name);
        self.tally_bytes[1] -= tube.tally.bytes();
        self.names.remove(tube.hash, id);
        let Tubes { names, all, .. } = self;
        names.shrink(|tube| all[tube.index()].hash);
        self.sums.leave(id, tube.sums);
        tube
    }

    /// Hides a tube, as of this time.
    pub fn hide(&mut self, id: TubeId, since: Time) {
        self[id].hidden = Some(since);
        self[id].tidy();
        self.hidden.insert((since, id));
        let bytes = self[id].tally.bytes();
        self.tally_bytes[0] -= bytes;
        self.tally_bytes[1] += bytes;
    }

    /// Shows a hidden tube again, and resets its counts of jobs, deletes and pauses.
    pub fn reveal(&mut self, id: TubeId) {
        let tube = &mut self.all[id.index()];
        if let Some(since) = tube.hidden.take() {
            self.hidden.remove(&(since, id));
            tube.set_totals(Default::default());
            self.tally_bytes[0] += tube.tally.bytes();
            self.tally_bytes[1] -= tube.tally.bytes();
        }
    }

    /// Returns the tube that has been hidden for longest, and the time at which that was.
    pub fn first_hidden(&self) -> Option<(Time, TubeId)> {
        self.hidden.first().copied()
    }

    /// Removes a bucket of a group.
    pub fn remove_bucket(&mut self, id: BucketId) {
        let Bucket { tube, group, .. } = self.buckets.remove(id.index());
        self[tube].rare().by_group.remove(&group);
    }

    /// Returns the number of jobs in a state.
    pub fn count_in(&self, state: JobState) -> u64 {
        self.counts[state as usize]
    }

    /// Counts a delayed job of a tube that waits to be tried again, or one less.
    pub fn count_retrying(&mut self, id: TubeId, is_more: bool) {
        let change = |count: &mut u64| if is_more { *count += 1 } else { *count -= 1 };
        change(&mut self.retrying);
        let tube = &mut self.all[id.index()];
        change(&mut tube.rare().retrying);
        self.sums.change(tube.sums, |own| change(&mut own.retrying));
    }

    /// Counts a job of a tube out of a state and into another, and an event of the tube.
    #[inline]
    pub fn shift(&mut self, id: TubeId, [from, to]: [Option<JobState>; 2], noted: Option<Noted>, now: Time) {
        if let Some(from) = from {
            self.counts[from as usize] -= 1;
        }
        if let Some(to) = to {
            self.counts[to as usize] += 1;
        }
        let tube = &mut self.all[id.index()];
        let is_alone = self.sums.shift(tube.sums, [from, to], noted, now);
        let Some((event, time)) = noted else { return };
        match event {
            Counted::Put => tube.total_jobs.bump(),
            Counted::Delete => tube.deletes.bump(),
            _ => {}
        }
        // There may be very many tubes, and one is mostly the work of one type: times of runs are those of sums.
        let of_tube = (event, time.filter(|_| is_alone || event != Counted::Delete));
        self.tally_bytes[usize::from(tube.hidden.is_some())] += tube.tally.note(of_tube, now);
    }

    /// Counts an urgent ready job of a tube, or one less.
    #[inline]
    pub fn count_urgent(&mut self, id: TubeId, is_more: bool) {
        let change = |count: &mut u64| if is_more { *count += 1 } else { *count -= 1 };
        change(&mut self.urgent);
        change(&mut self[id].urgent);
    }

    /// Counts an event of a tube.
    pub fn note(&mut self, id: TubeId, noted: Noted, now: Time) {
        self.shift(id, [None; 2], Some(noted), now);
    }

    /// Notes the text of a failure.
    pub fn note_error(&mut self, id: TubeId, text: &[u8], now: Time) {
        let error = Some(Box::new(LastError::new(now, text)));
        self.sums.note_error(self.all[id.index()].sums, &error);
        self.change_tally(id, |tally| tally.last_error = error);
    }

    /// Changes the tally of a tube, and counts the bytes that it takes then.
    pub fn change_tally(&mut self, id: TubeId, change: impl FnOnce(&mut Tally)) {
        let tube = &mut self.all[id.index()];
        let bytes = &mut self.tally_bytes[usize::from(tube.hidden.is_some())];
        *bytes -= tube.tally.bytes();
        change(&mut tube.tally);
        *bytes += tube.tally.bytes();
    }

    /// Returns the sum with this name.
    pub fn find_sum(&self, by: SumBy, name: &[u8]) -> Option<&Sum> {
        self.sums.find(by, name, &|tube| part_of(&self.all, tube)).map(|sum| &self.sums[sum])
    }

    /// Returns the name and the figures of a sum.
    pub fn part<'a>(&'a self, sum: &'a Sum) -> Part<'a> {
        sum.part(|tube| part_of(&self.all, tube))
    }

    /// Updates the choice of the followed sums, if it is due.
    #[inline]
    pub fn choose_if_due(&mut self, now: Time) {
        let Tubes { all, sums, .. } = self;
        if now < sums.next_choice {
            return;
        }
        sums.choose_if_due(now, |tube| part_of(all, tube));
    }

    /// Sets the tally of a sum, if it had one of its own, and the counts from which it is followed.
    pub fn restore_sum(&mut self, of: (SumBy, &[u8]), tally: Option<Box<Tally>>, followed_from: Option<[u64; 2]>) {
        let Tubes { all, sums, .. } = self;
        sums.restore(of, tally, followed_from, |tube| part_of(all, tube));
    }

    /// Adds the events of a tube from before it was added.
    pub fn add(&mut self, id: TubeId, tally: &Tally, now: Time) {
        self.sums.add(self.all[id.index()].sums, tally, now);
    }

    /// Moves a tube to its position in the orders of ages, as its first ready job may have changed.
    pub fn note_first_ready(&mut self, id: TubeId, jobs: &Jobs) {
        let Some(first) = self.all[id.index()].waiting.front() else {
            if let Some(other) = self.lingering.replace(id).filter(|other| *other != id) {
                self.move_age(other, None);
            }
            return;
        };
        self.lingering = self.lingering.filter(|other| *other != id);
        self.move_age(id, Some(age_of(jobs[first].at)));
    }

    fn move_age(&mut self, id: TubeId, since: Option<u32>) {
        let tube = &mut self.all[id.index()];
        let old = std::mem::replace(&mut tube.ready_since, since);
        if old != since {
            self.sums.move_age(id, tube.sums, old, since);
        }
    }

    /// Returns the tubes of a sum with ready jobs, the one with the oldest first.
    pub fn by_age<'a>(&'a self, sum: &'a Sum) -> impl Iterator<Item = &'a Tube> {
        sum.by_age().map(|tube| &self[tube]).filter(|tube| tube.waiting.len > 0)
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert_eq!(self.all.len(), self.names.len(), "each tube has a name");
        assert_eq!(self.hidden.len(), self.iter().filter(|(_, tube)| tube.hidden.is_some()).count(), "hidden tubes");
        let (mut urgent, mut retrying, mut names, mut tally_bytes) = (0, 0, 0, [0; 2]);
        for (id, tube) in self.iter() {
            names += name_bytes(&tube.name);
            tally_bytes[usize::from(tube.hidden.is_some())] += tube.tally.bytes();
            assert_eq!(self.find(&tube.name), Some(id), "a tube is found by its name");
            assert_eq!(tube.hidden.is_some(), tube.is_unused(), "a tube is hidden while it is unused");
            assert!(tube.hidden.is_none_or(|since| self.hidden.contains(&(since, id))), "a hidden tube is in the list");
            assert_eq!(tube.delay_timer.is_some(), !tube.delayed.is_empty(), "delays have a timer");
            self.check_buckets(id);
            urgent += tube.urgent;
            retrying += tube.retrying;
        }
        assert_eq!((self.urgent, self.name_bytes), (urgent, names), "urgent jobs and bytes of names are counted");
        assert_eq!(self.tally_bytes, tally_bytes, "bytes of tallies are counted");
        assert_eq!(self.retrying, retrying, "retried jobs are counted");
        let has_left = |id: TubeId| self.all[id.index()].waiting.front().is_none();
        assert!(self.lingering.is_none_or(has_left), "a tube with ready jobs does not linger");
        self.check_sums();
        self.sums.check();
    }
}

fn part_of(all: &Slab<Tube>, tube: TubeId) -> Part<'_> {
    let Tube { name, tally, ready_since, .. } = &all[tube.index()];
    let (counts, retrying) = (all[tube.index()].counts(), all[tube.index()].retrying);
    Part { name, counts, retrying, tally, age: *ready_since }
}

index_by!(TubeId => Tubes.all: Tube, BucketId => Tubes.buckets: Bucket);
