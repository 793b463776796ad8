//! Placement of jobs: how one goes from place to place, and which sets of watches see it.

use super::background::{COST, DUE_COST, Task, keep_timer_at};
use super::commits::Change;
use super::job::{JobKey, JobPlacement, URGENT};
use super::roots::Root;
use super::sets::Entry;
use super::sweeps::JobState;
use super::tube::{Bucket, BucketId, GroupId, Rank, TubeId};
use super::{PAUSE_BETWEEN_SLICES, State, Step, Timer};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, Timers};
use std::collections::BTreeSet;

/// Destination of a job.
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

/// Time for which the rates of a tube that is none any more are kept: the longest window.
const HIDDEN_KEPT: Span = Span::from_secs(15 * 60);
/// Number of hidden tubes that make room for a new one: more than one only where more were taken over than there may be.
const DROPPED_AT_ONCE: usize = 64;

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
            To::Pending => self.tubes[self.jobs[key].tube].pending += 1,
            To::Ready => self.enter_ready(key),
            To::Delayed(until) => self.enter_delayed(key, until, timers),
            To::Reserved(conn) => self.enter_reserved(key, conn, now),
            To::Buried => {
                let tube = self.jobs[key].tube;
                self.tubes[tube].buried.push_back(&mut self.jobs, key);
                self.tubes.gain(tube, JobState::Buried);
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
            JobPlacement::Pending => self.tubes[tube].pending -= 1,
            JobPlacement::Ready => self.leave_ready(key),
            JobPlacement::Delayed => {
                self.tubes[tube].delayed.remove(&(at, id));
                self.tubes.lose(tube, JobState::Delayed);
                self.arm_delay(tube, timers);
            }
            JobPlacement::Reserved => {
                let (holder, group) = (job.holder(), job.group());
                self.conns.held_of(holder).remove(&(at, id));
                self.count_unreserved(tube, group);
            }
            JobPlacement::Buried => {
                self.tubes[tube].buried.remove(&mut self.jobs, key);
                self.tubes.lose(tube, JobState::Buried);
            }
        }
    }

    fn enter_ready(&mut self, key: JobKey) {
        let job = &self.jobs[key];
        let (tube, rank, group) = (job.tube, Rank::new(job.pri, job.id), job.group());
        let is_urgent = job.pri < URGENT;
        let bucket = self.bucket_for(tube, group);
        self.tubes[bucket].ready.insert(rank);
        self.tubes[tube].waiting.push_back(&mut self.jobs, key);
        self.tubes.gain(tube, JobState::Ready);
        if is_urgent {
            self.tubes.gain_urgent(tube);
        }
        self.tubes.note_first_ready(tube, &self.jobs);
        self.show(bucket);
    }

    fn leave_ready(&mut self, key: JobKey) {
        let job = &self.jobs[key];
        let (tube, rank, group) = (job.tube, Rank::new(job.pri, job.id), job.group());
        let is_urgent = job.pri < URGENT;
        let entry = &mut self.tubes[tube];
        let bucket = group.map_or(entry.main, |group| entry.by_group[&group]);
        entry.waiting.remove(&mut self.jobs, key);
        self.tubes.lose(tube, JobState::Ready);
        if is_urgent {
            self.tubes.lose_urgent(tube);
        }
        self.tubes.note_first_ready(tube, &self.jobs);
        self.tubes[bucket].ready.remove(&rank);
        self.show(bucket);
        if let Some(group) = group
            && self.tubes[bucket].ready.is_empty()
        {
            self.drop_bucket(bucket, group);
        }
    }

    fn enter_delayed(&mut self, key: JobKey, until: Time, timers: &mut Timers<'_, Timer>) {
        let (id, tube) = (self.jobs[key].id, self.jobs[key].tube);
        self.tubes[tube].delayed.insert((until, id));
        self.tubes.gain(tube, JobState::Delayed);
        self.arm_delay(tube, timers);
    }

    fn enter_reserved(&mut self, key: JobKey, conn: ConnId, now: Time) {
        let serial = self.conns[conn].serial;
        let job = &mut self.jobs[key];
        // Lossless: every Id is made from a u32.
        job.links = (conn.index() as u32, serial);
        let (tube, group, held) = (job.tube, job.group(), (job.at, job.id));
        self.conns[conn].held.insert(held, now);
        self.count_reserved(tube, group);
    }

    /// Keeps the timer of a tube's delays at its first, or earlier.
    fn arm_delay(&mut self, id: TubeId, timers: &mut Timers<'_, Timer>) {
        let tube = &mut self.tubes[id];
        let first = tube.delayed.first().map(|(until, _)| *until);
        keep_timer_at(&mut tube.delay_timer, first, Timer::Delay(id), timers);
    }

    /// The delays of a tube's first jobs are over.
    pub(super) fn end_delays(&mut self, id: TubeId, step: &mut Step<'_, '_>) {
        self.tubes[id].delay_timer.take().into_iter().for_each(TimerId::fired);
        while let Some((until, job)) = self.tubes[id].delayed.first().copied()
            && until <= step.now
        {
            if !step.timers.spend(DUE_COST) {
                let tube = &mut self.tubes[id];
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
        let entry = &self.tubes[tube];
        let Some(group) = group else { return entry.main };
        if let Some(bucket) = entry.by_group.get(&group) {
            return *bucket;
        }
        let held = entry.held.clone();
        let lane = self.enter_lane_for(&held, Some(group));
        let bucket = Bucket { tube, group: Some(group), ready: BTreeSet::new(), shown: None, lane };
        let bucket = self.tubes.insert_bucket(bucket);
        self.tubes[tube].by_group.insert(group, bucket);
        self.limits.groups[group.index()].buckets.insert(bucket);
        bucket
    }

    fn drop_bucket(&mut self, id: BucketId, group: GroupId) {
        let Bucket { lane, .. } = self.tubes.remove_bucket(id);
        self.limits.groups[group.index()].buckets.remove(&id);
        self.leave_lane(lane);
    }

    /// Shows the first job of a bucket to every set that covers its tube, or none if the tube is blocked.
    pub(super) fn show(&mut self, id: BucketId) {
        let bucket = &self.tubes[id];
        let is_blocked = self.tubes[bucket.tube].is_blocked();
        let first = if is_blocked { None } else { bucket.ready.first().copied() };
        self.show_as(id, first);
    }

    /// Hides a bucket from all sets.
    pub(super) fn hide(&mut self, id: BucketId) {
        self.show_as(id, None);
    }

    fn show_as(&mut self, id: BucketId, first: Option<Rank>) {
        let State { tubes, sets, limits, .. } = self;
        let bucket = &mut tubes[id];
        let (tube, lane) = (bucket.tube, bucket.lane);
        let old = std::mem::replace(&mut bucket.shown, first);
        if first == old {
            return;
        }
        let tube = &mut tubes[tube];
        let is_open = limits.is_open(lane);
        let comes = tube.shown == 0 && first.is_some();
        tube.shown = tube.shown + u32::from(first.is_some()) - u32::from(old.is_some());
        for cover in &mut tube.covers {
            let set = &mut sets[cover.set];
            let old = old.map(|old| Entry::new(old, cover.stamp, id));
            if comes {
                cover.stamp = set.next_stamp();
            }
            let new = first.map(|first| Entry::new(first, cover.stamp, id));
            if set.replace(cover.turn, lane, is_open, old, new) {
                limits.lanes[lane.index()].sets.insert((cover.set, cover.turn));
            }
            if is_open && new.is_some() {
                sets.wake(cover.set);
            }
        }
    }

    /// Shows each bucket of a tube to the sets as it is now.
    pub(super) fn show_all(&mut self, id: TubeId) {
        let main = self.tubes[id].main;
        self.show(main);
        let mut next = self.tubes[id].by_group.first_key_value().map(|(group, bucket)| (*group, *bucket));
        while let Some((group, bucket)) = next {
            self.show(bucket);
            let later = (std::ops::Bound::Excluded(group), std::ops::Bound::Unbounded);
            next = self.tubes[id].by_group.range(later).next().map(|(group, bucket)| (*group, *bucket));
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

    /// Returns the tube with this name, which is made if there is room for it. It must be used at once, or hidden again.
    pub(super) fn tube_for(&mut self, name: &[u8], timers: &mut Timers<'_, Timer>) -> Option<TubeId> {
        // Those that are hidden make room first.
        if self.tubes.find(name).is_none() && self.tubes.len() >= self.bounds.max_tubes {
            if self.tubes.visible() >= self.bounds.max_tubes {
                return None;
            }
            for _ in 0..DROPPED_AT_ONCE.min(1 + self.tubes.len() - self.bounds.max_tubes) {
                let (_, oldest) = self.tubes.first_hidden()?;
                self.drop_tube(oldest, timers);
            }
        }
        Some(self.tube_in_any_case(name))
    }

    /// Returns the tube with this name, which is made however many there are. It must be used at once, or hidden again.
    pub(super) fn tube_in_any_case(&mut self, name: &[u8]) -> TubeId {
        if let Some(tube) = self.tubes.find(name) {
            self.tubes.reveal(tube);
            return tube;
        }
        let limits = self.limits.of_tube(name);
        let lane = self.enter_lane_for(&limits.held, None);
        let bucket = Bucket { tube: self.tubes.next_id(), group: None, ready: BTreeSet::new(), shown: None, lane };
        let main = self.tubes.insert_bucket(bucket);
        let id = self.tubes.insert(name, main);
        let covers = self.covers_of(name, id);
        let tube = &mut self.tubes[id];
        (tube.limit, tube.counted, tube.held) = (limits.each, limits.counted, limits.held);
        tube.paused = self.settings.pause_of(name);
        tube.covers = covers;
        id
    }

    /// A tube without jobs, users and watchers is none any more; its rates are kept for a while.
    pub(super) fn hide_if_unused(&mut self, id: TubeId, now: Time, timers: &mut Timers<'_, Timer>) {
        let tube = &self.tubes[id];
        if tube.is_unused() && tube.hidden.is_none() {
            self.tubes.hide(id, now);
            self.arm_forget(timers);
        }
    }

    /// Forgets a tube that is hidden.
    pub(super) fn drop_tube(&mut self, id: TubeId, timers: &mut Timers<'_, Timer>) {
        let (tube, bucket) = self.tubes.remove(id);
        tube.delay_timer.into_iter().for_each(|timer| timers.cancel(timer));
        self.leave_lane(bucket.lane);
    }

    /// Keeps the timer at the first root job or hidden tube that is to be forgotten, or earlier.
    pub(super) fn arm_forget(&mut self, timers: &mut Timers<'_, Timer>) {
        let root = self.roots.first_end();
        let tube = self.tubes.first_hidden().map(|(since, _)| since + HIDDEN_KEPT);
        let next = [root, tube].into_iter().flatten().min();
        self.background.forget_at(next, timers);
    }

    /// Forgets root jobs that did not change for 28 days, and tubes that were none for a while.
    pub(super) fn forget(&mut self, step: &mut Step<'_, '_>) {
        while step.timers.spend(COST) {
            if self.roots.first_end().is_some_and(|end| end <= step.now) {
                let Root { tube, signature, .. } = self.roots.forget_oldest().expect("the oldest is there");
                self.note_change(Change::RootGone(tube, signature));
            } else if let Some((since, tube)) = self.tubes.first_hidden()
                && since + HIDDEN_KEPT <= step.now
            {
                self.drop_tube(tube, step.timers);
            } else {
                return self.arm_forget(step.timers);
            }
        }
        self.go_on(Task::Forget, step);
    }
}
