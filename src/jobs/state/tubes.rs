//! Every tube with its buckets of ready jobs, found by name; those that are none any more, and sums over tubes.

use super::ids::{BucketId, LaneId, TubeId};
use super::jobs::Jobs;
use super::sums::{Sums, age_of};
use super::sweeps::JobState;
use super::tally::{Noted, Tally};
use super::tube::{Bucket, Rank, Tube};
use poolcounter_core::id::Id;
use poolcounter_core::names::Names;
use poolcounter_core::time::Time;
use slab::Slab;
use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

/// Every tube.
#[derive(Default)]
pub(super) struct Tubes {
    all: Slab<Tube>,
    names: Names<TubeId>,
    buckets: Slab<Bucket>,
    /// Tubes that are none any more, oldest first.
    hidden: BTreeSet<(Time, TubeId)>,
    pub sums: Sums,
    /// Jobs by [`JobState`], and ready ones below the urgent priority.
    counts: [u64; 4],
    urgent: u64,
}

impl Tubes {
    /// Returns how many tubes there are, the hidden ones among them.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns how many tubes clients see.
    pub fn visible(&self) -> usize {
        self.all.len() - self.hidden.len()
    }

    /// Returns how many places the table has.
    pub fn capacity(&self) -> usize {
        self.all.capacity()
    }

    /// Returns the tube in a place of the table.
    pub fn at(&self, place: usize) -> Option<(TubeId, &Tube)> {
        self.all.get(place).map(|tube| (TubeId::from_index(place), tube))
    }

    /// Returns a tube if it is still there.
    pub fn get(&self, id: TubeId) -> Option<&Tube> {
        self.all.get(id.index())
    }

    /// Returns every tube.
    pub fn iter(&self) -> impl Iterator<Item = (TubeId, &Tube)> {
        self.all.iter().map(|(place, tube)| (TubeId::from_index(place), tube))
    }

    /// Returns every tube that clients see.
    pub fn iter_visible(&self) -> impl Iterator<Item = (TubeId, &Tube)> {
        self.iter().filter(|(_, tube)| tube.hidden.is_none())
    }

    /// Returns the tubes that clients see in so many places of the table at most from this one on, and the place of those behind
    /// them.
    pub fn slice(&self, first: usize, most: usize) -> (impl Iterator<Item = &Tube>, Option<usize>) {
        let end = first.saturating_add(most);
        let tubes = (first..end.min(self.all.capacity())).filter_map(|place| self.all.get(place));
        (tubes.filter(|tube| tube.hidden.is_none()), (end < self.all.capacity()).then_some(end))
    }

    /// Returns the timers of delays, which are taken out.
    pub fn take_timers(&mut self) -> impl Iterator<Item = poolcounter_core::wheel::TimerId> {
        self.all.iter_mut().filter_map(|(_, tube)| tube.delay_timer.take())
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

    /// Returns the id that the next tube gets.
    pub fn next_id(&self) -> TubeId {
        TubeId::from_index(self.all.vacant_key())
    }

    /// Adds a tube, which gets the next id. Its name is new, and its main bucket has been added.
    pub fn insert(&mut self, name: &[u8], main: BucketId, lane: LaneId) -> TubeId {
        let (id, hash) = (self.next_id(), self.names.hash(name));
        let sums = self.sums.enter(id, name);
        self.all.insert(Tube::new(name, hash, main, lane, sums));
        self.names.insert(hash, id, |tube| self.all[tube.index()].hash);
        id
    }

    /// Removes a hidden tube with its main bucket. The tube is returned.
    pub fn remove(&mut self, id: TubeId) -> Tube {
        let tube = self.all.remove(id.index());
        debug_assert!(tube.is_unused() && tube.first.is_none(), "only a hidden tube is dropped");
        self.hidden.remove(&(tube.hidden.expect("only a hidden tube is dropped"), id));
        self.names.remove(tube.hash, id);
        let Tubes { names, all, .. } = self;
        names.shrink(|tube| all[tube.index()].hash);
        self.sums.leave(id, tube.sums);
        self.buckets.remove(tube.main.index());
        tube
    }

    /// Hides a tube since this time.
    pub fn hide(&mut self, id: TubeId, since: Time) {
        self[id].hidden = Some(since);
        self.hidden.insert((since, id));
    }

    /// Shows a tube again, with other counts.
    pub fn reveal(&mut self, id: TubeId) {
        let tube = &mut self.all[id.index()];
        if let Some(since) = tube.hidden.take() {
            self.hidden.remove(&(since, id));
            (tube.total_jobs, tube.deletes, tube.pauses) = Default::default();
        }
    }

    /// Returns the tube that has been hidden for longest, and since when.
    pub fn first_hidden(&self) -> Option<(Time, TubeId)> {
        self.hidden.first().copied()
    }

    /// Adds a bucket.
    pub fn insert_bucket(&mut self, bucket: Bucket) -> BucketId {
        BucketId::from_index(self.buckets.insert(bucket))
    }

    /// Removes a bucket of a group, which is returned.
    pub fn remove_bucket(&mut self, id: BucketId) -> Bucket {
        let bucket = self.buckets.remove(id.index());
        if let Some(group) = bucket.group {
            self[bucket.tube].by_group.remove(&group);
        }
        bucket
    }

    /// Returns how many jobs are in that state.
    pub fn count_in(&self, state: JobState) -> u64 {
        self.counts[state as usize]
    }

    /// Returns how many ready jobs are urgent.
    pub fn urgent(&self) -> u64 {
        self.urgent
    }

    /// Counts a job of a tube that is in this state from now on.
    pub fn gain(&mut self, id: TubeId, state: JobState) {
        self.counts[state as usize] += 1;
        self.sums.gain(self.all[id.index()].sums, state);
    }

    /// Counts a job of a tube that is not in this state any more.
    pub fn lose(&mut self, id: TubeId, state: JobState) {
        self.counts[state as usize] -= 1;
        self.sums.lose(self.all[id.index()].sums, state);
    }

    /// Counts an urgent job of a tube that is ready from now on.
    pub fn gain_urgent(&mut self, id: TubeId) {
        self[id].urgent += 1;
        self.urgent += 1;
    }

    /// Counts an urgent job of a tube that is not ready any more.
    pub fn lose_urgent(&mut self, id: TubeId) {
        self[id].urgent -= 1;
        self.urgent -= 1;
    }

    /// Counts an event of a tube.
    pub fn note(&mut self, id: TubeId, noted: Noted, now: Time) {
        let tube = &mut self.all[id.index()];
        tube.tally.note(noted, now);
        self.sums.note(tube.sums, noted, now);
    }

    /// Adds the events of a tube from before it was known here.
    pub fn add(&mut self, id: TubeId, tally: &Tally, now: Time) {
        self.sums.add(self.all[id.index()].sums, tally, now);
    }

    /// Brings a tube to its place in the orders of ages: its first ready job may be another one now, or none.
    pub fn note_first_ready(&mut self, id: TubeId, jobs: &Jobs) {
        let tube = &mut self.all[id.index()];
        let since = tube.waiting.front().map(|key| age_of(jobs[key].at));
        let old = std::mem::replace(&mut tube.ready_since, since);
        if old != since {
            self.sums.move_age(id, tube.sums, old, since);
        }
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        assert_eq!(self.all.len(), self.names.len(), "each tube has a name");
        assert_eq!(self.hidden.len(), self.iter().filter(|(_, tube)| tube.hidden.is_some()).count(), "hidden tubes");
        let mut urgent = 0;
        for (id, tube) in self.iter() {
            assert_eq!(self.find(&tube.name), Some(id), "a tube is found by its name");
            assert_eq!(tube.hidden.is_some(), tube.is_unused(), "a tube is hidden while it is unused");
            assert!(tube.hidden.is_none_or(|since| self.hidden.contains(&(since, id))), "a hidden tube is in the list");
            assert_eq!(tube.delay_timer.is_some(), !tube.delayed.is_empty(), "delays have a timer");
            self.check_buckets(id);
            urgent += u64::from(tube.urgent);
        }
        assert_eq!(self.urgent, urgent, "urgent jobs");
        self.check_sums();
        self.sums.check();
    }

    fn check_buckets(&self, id: TubeId) {
        let tube = &self[id];
        let firsts = tube.by_group.values().map(|bucket| (self[*bucket].ready.first().copied(), *bucket));
        let firsts: BTreeSet<_> =
            firsts.map(|(rank, bucket)| (rank.expect("an empty bucket is left"), bucket)).collect();
        assert_eq!(tube.firsts, firsts, "the first jobs of groups");
        let is_open = |(_, bucket): &&(Rank, BucketId)| self[*bucket].parked.is_none();
        assert_eq!(
            tube.open,
            firsts.iter().filter(is_open).copied().collect(),
            "the first jobs that are not held back"
        );
        assert!(tube.buckets().all(|bucket| self[bucket].tube == id), "a bucket knows its tube");
        let open = tube.open.first().map(|(rank, _)| rank);
        let first = self[tube.main].ready.first().into_iter().chain(open).min().copied();
        assert_eq!(tube.first, first.filter(|_| !tube.is_blocked()), "the job that a tube has to give");
        let standing = tube.standing(id).map(|(pri, ..)| pri);
        assert_eq!(standing, tube.first.map(Rank::pri), "a tube stands where its first job is");
        assert!(tube.stamps.is_sorted_by(|(worse, _), (better, _)| worse > better), "better priorities come later");
    }

    fn check_sums(&self) {
        let mut total = [0; 4];
        for (id, sum) in self.sums.iter() {
            let own = || self.iter().filter(|(_, tube)| tube.sums.contains(&id));
            let mut counts = [0; 4];
            for (_, tube) in own() {
                counts.iter_mut().zip(tube.counts()).for_each(|(sum, count)| *sum += count);
            }
            assert_eq!(sum.counts, counts, "the jobs of {}", sum.name.escape_ascii());
            assert!(sum.tubes.iter().copied().eq(own().map(|(id, _)| id)), "the tubes of a sum");
            let ages = own().filter_map(|(id, tube)| Some((tube.ready_since?, id)));
            assert!(sum.ages.iter().copied().eq(ages.collect::<BTreeSet<_>>()), "the ages of a sum");
            total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
        }
        // Each job counts for its first and its last part.
        assert_eq!(self.counts.map(|count| 2 * count), total, "the jobs of all tubes");
    }
}

impl Index<TubeId> for Tubes {
    type Output = Tube;

    fn index(&self, id: TubeId) -> &Tube {
        &self.all[id.index()]
    }
}

impl IndexMut<TubeId> for Tubes {
    fn index_mut(&mut self, id: TubeId) -> &mut Tube {
        &mut self.all[id.index()]
    }
}

impl Index<BucketId> for Tubes {
    type Output = Bucket;

    fn index(&self, id: BucketId) -> &Bucket {
        &self.buckets[id.index()]
    }
}

impl IndexMut<BucketId> for Tubes {
    fn index_mut(&mut self, id: BucketId) -> &mut Bucket {
        &mut self.buckets[id.index()]
    }
}
