//! Where jobs are: how one goes from place to place, and what the sets of watches see of it.

use super::commits::Change;
use super::job::{JobKey, JobPlacement, URGENT};
use super::limits::wake;
use super::sets::Entry;
use super::sweeps::JobState;
use super::tube::{Bucket, BucketId, GroupId, Rank, Tube, TubeId};
use super::{PAUSE_BETWEEN_SLICES, State, Step, Timer};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, Timers};
use std::collections::BTreeSet;

/// Where a job goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    Pending,
    Ready,
    Delayed(Time),
    Reserved(ConnId),
    Buried,
    /// Out of every place, to be removed.
    Nowhere,
}

/// How many hidden tubes make room for a new one: more than one only where more were taken over than there may be.
const DROPPED_AT_ONCE: usize = 64;
/// How far a timer of a tube or a connection may be from what it should be: one turn of the wheel.
const TICK: Span = Span::from_millis(1);

impl State {
    /// Moves a job to another place. Whether it holds its key follows from that.
    pub(super) fn move_job(&mut self, key: JobKey, to: To, now: Time, timers: &mut Timers<'_, Timer>) {
        let held_key = self.jobs[key].is_placed && self.jobs[key].holds_key();
        self.leave_place(key, timers);
        let job = &mut self.jobs[key];
        (job.place, job.at) = match to {
            To::Pending => (JobPlacement::Pending, now),
            To::Ready => (JobPlacement::Ready, now),
            To::Delayed(until) => (JobPlacement::Delayed, until),
            To::Reserved(_) => (JobPlacement::Reserved, now + Span::from_secs(u64::from(job.ttr))),
            To::Buried | To::Nowhere => (JobPlacement::Buried, now),
        };
        job.is_placed = true;
        let holds_key = to != To::Nowhere && self.jobs[key].holds_key();
        match (held_key, holds_key) {
            (true, false) => self.jobs.free_key(key),
            (false, true) => self.jobs.hold_key(key),
            _ => {}
        }
        match to {
            To::Pending => self.tubes[self.jobs[key].tube.index()].pending += 1,
            To::Ready => self.enter_ready(key),
            To::Delayed(until) => self.enter_delayed(key, until, timers),
            To::Reserved(conn) => self.enter_reserved(key, conn, now),
            To::Buried => {
                let tube = self.jobs[key].tube;
                self.tubes[tube.index()].buried.push_back(&mut self.jobs, key);
                self.sums.gain(self.tubes[tube.index()].sums, JobState::Buried);
                self.buried += 1;
            }
            To::Nowhere => self.jobs[key].is_placed = false,
        }
    }

    fn leave_place(&mut self, key: JobKey, timers: &mut Timers<'_, Timer>) {
        let job = &self.jobs[key];
        if !job.is_placed {
            return;
        }
        let (id, at, tube) = (job.id, job.at, job.tube);
        match job.place {
            JobPlacement::Pending => self.tubes[tube.index()].pending -= 1,
            JobPlacement::Ready => self.leave_ready(key),
            JobPlacement::Delayed => {
                self.tubes[tube.index()].delayed.remove(&(at, id));
                self.sums.lose(self.tubes[tube.index()].sums, JobState::Delayed);
                self.delayed -= 1;
                self.arm_delay(tube, timers);
            }
            JobPlacement::Reserved => {
                let (holder, group) = (job.holder(), job.group());
                self.held_of(holder).remove(&(at, id));
                self.count_unreserved(tube, group);
            }
            JobPlacement::Buried => {
                self.tubes[tube.index()].buried.remove(&mut self.jobs, key);
                self.sums.lose(self.tubes[tube.index()].sums, JobState::Buried);
                self.buried -= 1;
            }
        }
    }

    fn enter_ready(&mut self, key: JobKey) {
        let job = &self.jobs[key];
        let (tube, rank, group) = (job.tube, Rank::new(job.pri, job.id), job.group());
        let is_urgent = job.pri < URGENT;
        let bucket = self.bucket_for(tube, group);
        self.buckets[bucket.index()].ready.insert(rank);
        let entry = &mut self.tubes[tube.index()];
        entry.waiting.push_back(&mut self.jobs, key);
        entry.urgent += u32::from(is_urgent);
        self.sums.gain(entry.sums, JobState::Ready);
        self.note_first_ready(tube);
        self.ready += 1;
        self.urgent += u64::from(is_urgent);
        self.show(bucket);
    }

    fn leave_ready(&mut self, key: JobKey) {
        let job = &self.jobs[key];
        let (tube, rank, group) = (job.tube, Rank::new(job.pri, job.id), job.group());
        let is_urgent = job.pri < URGENT;
        let entry = &mut self.tubes[tube.index()];
        let bucket = group.map_or(entry.main, |group| entry.by_group[&group]);
        entry.waiting.remove(&mut self.jobs, key);
        entry.urgent -= u32::from(is_urgent);
        self.sums.lose(entry.sums, JobState::Ready);
        self.note_first_ready(tube);
        self.ready -= 1;
        self.urgent -= u64::from(is_urgent);
        self.buckets[bucket.index()].ready.remove(&rank);
        self.show(bucket);
        if let Some(group) = group
            && self.buckets[bucket.index()].ready.is_empty()
        {
            self.drop_bucket(bucket, group);
        }
    }

    fn enter_delayed(&mut self, key: JobKey, until: Time, timers: &mut Timers<'_, Timer>) {
        let (id, tube) = (self.jobs[key].id, self.jobs[key].tube);
        self.tubes[tube.index()].delayed.insert((until, id));
        self.sums.gain(self.tubes[tube.index()].sums, JobState::Delayed);
        self.delayed += 1;
        self.arm_delay(tube, timers);
    }

    fn enter_reserved(&mut self, key: JobKey, conn: ConnId, now: Time) {
        let serial = self.conn(conn).serial;
        let job = &mut self.jobs[key];
        // Lossless: every Id is made from a u32.
        job.links = (conn.index() as u32, serial);
        let (tube, group, held) = (job.tube, job.group(), (job.at, job.id));
        self.conn(conn).held.insert(held, now);
        self.count_reserved(tube, group);
    }

    /// Keeps the timer of a tube's delays at its first, or earlier.
    fn arm_delay(&mut self, id: TubeId, timers: &mut Timers<'_, Timer>) {
        let tube = &mut self.tubes[id.index()];
        let first = tube.delayed.first().map(|(until, _)| *until);
        let is_in_time = |timer: &TimerId| first.is_some_and(|first| timers.deadline(timer) <= first + TICK);
        if tube.delay_timer.as_ref().is_some_and(is_in_time) {
            return;
        }
        if let Some(timer) = tube.delay_timer.take() {
            timers.cancel(timer);
        }
        tube.delay_timer = first.map(|first| timers.arm(first, Timer::Delay(id)));
    }

    /// The delays of a tube's first jobs are over.
    pub(super) fn end_delays(&mut self, id: TubeId, step: &mut Step<'_, '_>) {
        self.tubes[id.index()].delay_timer.take().into_iter().for_each(TimerId::fired);
        while let Some((until, job)) = self.tubes[id.index()].delayed.first().copied()
            && until <= step.now
        {
            if !self.may_end_one(step.now) {
                let tube = &mut self.tubes[id.index()];
                tube.delay_timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
                tube.delay_timer = Some(step.timers.arm(step.now + PAUSE_BETWEEN_SLICES, Timer::Delay(id)));
                return;
            }
            let key = self.jobs.find(job).expect("a tube knows only jobs that there are");
            self.move_job(key, To::Ready, step.now, step.timers);
            self.serve_waiting(step);
        }
        self.arm_delay(id, step.timers);
    }

    /// Returns the bucket of a tube for jobs of this group.
    fn bucket_for(&mut self, tube: TubeId, group: Option<GroupId>) -> BucketId {
        let entry = &self.tubes[tube.index()];
        let Some(group) = group else { return entry.main };
        if let Some(bucket) = entry.by_group.get(&group) {
            return *bucket;
        }
        let held = entry.held.clone();
        let lane = self.enter_lane_for(&held, Some(group));
        let bucket = Bucket { tube, group: Some(group), ready: BTreeSet::new(), shown: None, lane };
        let bucket = BucketId::from_index(self.buckets.insert(bucket));
        self.tubes[tube.index()].by_group.insert(group, bucket);
        self.limits.groups[group.index()].buckets.insert(bucket);
        bucket
    }

    fn drop_bucket(&mut self, id: BucketId, group: GroupId) {
        let Bucket { tube, lane, .. } = self.buckets.remove(id.index());
        self.tubes[tube.index()].by_group.remove(&group);
        self.limits.groups[group.index()].buckets.remove(&id);
        self.leave_lane(lane);
    }

    /// Has every set that covers a bucket's tube see its first job, or none if the tube is blocked.
    pub(super) fn show(&mut self, id: BucketId) {
        let bucket = &self.buckets[id.index()];
        let is_blocked = self.tubes[bucket.tube.index()].is_blocked();
        let first = if is_blocked { None } else { bucket.ready.first().copied() };
        self.show_as(id, first);
    }

    /// Has no set see a bucket.
    pub(super) fn hide(&mut self, id: BucketId) {
        self.show_as(id, None);
    }

    fn show_as(&mut self, id: BucketId, first: Option<Rank>) {
        let State { buckets, tubes, sets, limits, awake, .. } = self;
        let bucket = &mut buckets[id.index()];
        let old = std::mem::replace(&mut bucket.shown, first);
        if first == old {
            return;
        }
        let tube = &mut tubes[bucket.tube.index()];
        let is_open = limits.is_open(bucket.lane);
        let comes = tube.shown == 0 && first.is_some();
        tube.shown = tube.shown + u32::from(first.is_some()) - u32::from(old.is_some());
        for cover in &mut tube.covers {
            let set = &mut sets[cover.set.index()];
            let old = old.map(|old| Entry::new(old, cover.stamp, id));
            if comes {
                cover.stamp = set.next_stamp();
            }
            let new = first.map(|first| Entry::new(first, cover.stamp, id));
            if set.replace(cover.turn, bucket.lane, is_open, old, new) {
                limits.lanes[bucket.lane.index()].sets.insert((cover.set, cover.turn));
            }
            if is_open && new.is_some() {
                wake(awake, cover.set, set);
            }
        }
    }

    /// Has the sets see each bucket of a tube as it is now.
    pub(super) fn show_all(&mut self, id: TubeId) {
        let main = self.tubes[id.index()].main;
        self.show(main);
        let mut next = self.tubes[id.index()].by_group.first_key_value().map(|(group, bucket)| (*group, *bucket));
        while let Some((group, bucket)) = next {
            self.show(bucket);
            let later = (std::ops::Bound::Excluded(group), std::ops::Bound::Unbounded);
            next = self.tubes[id.index()].by_group.range(later).next().map(|(group, bucket)| (*group, *bucket));
        }
    }

    /// Deletes a job that is in some place.
    pub(super) fn delete_job(&mut self, key: JobKey, now: Time, timers: &mut Timers<'_, Timer>) {
        let tube = self.jobs[key].tube;
        self.move_job(key, To::Nowhere, now, timers);
        let job = self.jobs.remove(key);
        if let Some(group) = job.group() {
            self.limits.leave_group(group);
        }
        if job.is_stored {
            self.note_change(Change::Gone(job.id));
        }
        self.hide_if_unused(tube, now, timers);
    }

    /// Returns the tube with this name, which may be hidden.
    pub(super) fn find_tube(&self, name: &[u8]) -> Option<TubeId> {
        let hash = self.tube_names.hash(name);
        self.tube_names.find(hash, |tube| &*self.tubes[tube.index()].name == name)
    }

    /// Returns the tube with this name, if it is one.
    pub fn find_visible(&self, name: &[u8]) -> Option<TubeId> {
        self.find_tube(name).filter(|tube| self.tubes[tube.index()].hidden.is_none())
    }

    /// Returns the tube with this name, which is made if there is room for it. It must be used at once, or hidden again.
    pub(super) fn tube_for(&mut self, name: &[u8], timers: &mut Timers<'_, Timer>) -> Option<TubeId> {
        // Those that are hidden make room first.
        if self.find_tube(name).is_none() && self.tubes.len() >= self.bounds.max_tubes {
            if self.tubes.len() - self.hidden.len() >= self.bounds.max_tubes {
                return None;
            }
            for _ in 0..DROPPED_AT_ONCE.min(1 + self.tubes.len() - self.bounds.max_tubes) {
                let (_, oldest) = *self.hidden.first()?;
                self.drop_tube(oldest, timers);
            }
        }
        Some(self.tube_in_any_case(name))
    }

    /// Returns the tube with this name, which is made however many there are. It must be used at once, or hidden again.
    pub(super) fn tube_in_any_case(&mut self, name: &[u8]) -> TubeId {
        if let Some(tube) = self.find_tube(name) {
            self.reveal(tube);
            return tube;
        }
        let limits = self.limits.of_tube(name);
        let lane = self.enter_lane_for(&limits.held, None);
        let id = TubeId::from_index(self.tubes.vacant_key());
        let bucket = Bucket { tube: id, group: None, ready: BTreeSet::new(), shown: None, lane };
        let main = BucketId::from_index(self.buckets.insert(bucket));
        let hash = self.tube_names.hash(name);
        let mut tube = Tube::new(name, hash, main, self.sums.enter(id, name));
        (tube.limit, tube.counted, tube.held) = (limits.each, limits.counted, limits.held);
        tube.paused = self.settings.pause_of(name);
        tube.covers = self.covers_of(name, id);
        self.tubes.insert(tube);
        self.tube_names.insert(hash, id, |tube| self.tubes[tube.index()].hash);
        id
    }

    fn reveal(&mut self, id: TubeId) {
        let tube = &mut self.tubes[id.index()];
        if let Some(since) = tube.hidden.take() {
            self.hidden.remove(&(since, id));
            (tube.total_jobs, tube.deletes, tube.pauses) = Default::default();
        }
    }

    /// A tube without jobs, users and watchers is none any more; its rates are kept for a while.
    pub(super) fn hide_if_unused(&mut self, id: TubeId, now: Time, timers: &mut Timers<'_, Timer>) {
        let tube = &mut self.tubes[id.index()];
        if tube.is_unused() && tube.hidden.is_none() {
            tube.hidden = Some(now);
            self.hidden.insert((now, id));
            self.arm_forget(timers);
        }
    }

    /// Forgets a tube that is hidden.
    pub(super) fn drop_tube(&mut self, id: TubeId, timers: &mut Timers<'_, Timer>) {
        let mut tube = self.tubes.remove(id.index());
        debug_assert!(tube.is_unused() && tube.shown == 0, "only a hidden tube is dropped");
        tube.delay_timer.take().into_iter().for_each(|timer| timers.cancel(timer));
        self.hidden.remove(&(tube.hidden.expect("only a hidden tube is dropped"), id));
        self.tube_names.remove(tube.hash, id);
        let State { tube_names, tubes, .. } = self;
        tube_names.shrink(|tube| tubes[tube.index()].hash);
        let lane = self.buckets.remove(tube.main.index()).lane;
        self.leave_lane(lane);
        self.sums.leave(id, tube.sums);
    }
}
