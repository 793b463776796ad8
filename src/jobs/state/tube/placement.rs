//! Placement of jobs in their queues, and of tubes in the feeds that cover them.

use crate::state::background::{DUE_COST, keep_timer_at};
use crate::state::commits::Change;
use crate::state::ids::{BucketId, GroupId, TubeId};
use crate::state::job::{JobKey, JobPlacement, To, URGENT};
use crate::state::rates::OF_TUBE;
use crate::state::tally::Noted;
use crate::state::tube::{Bucket, Rank};
use crate::state::{PAUSE_BETWEEN_SLICES, State, Step, TUBE_BYTES, Timer};
use poolcounter_core::{ConnId, Id, Sorted, Span, Time, TimerId, Timers, meter};

/// Number of hidden tubes that are dropped in a step to make room.
pub(in crate::state) const DROPPED_AT_ONCE: usize = 64;

/// A job, and its properties that a move does not change.
type Moved = (JobKey, TubeId, Rank, Option<GroupId>);

impl State {
    /// Moves a job to another place, and makes it hold or release its key as that place demands.
    pub(in crate::state) fn move_job(&mut self, key: JobKey, to: To, step: &mut Step<'_, '_>) {
        self.move_noted(key, to, None, step);
    }

    /// Moves a job, and counts an event of its tube.
    pub(in crate::state) fn move_noted(&mut self, key: JobKey, to: To, noted: Option<Noted>, step: &mut Step<'_, '_>) {
        let (now, timers) = (step.now, &mut *step.timers);
        let job = &self.jobs[key];
        let (tube, from, has_extra) = (job.tube, job.state(), job.has_extra);
        let (place, at, rank) = (job.place, job.at, Rank::new(job.pri, job.id));
        let held_key = has_extra && self.jobs.holds_key(key);
        let group = if has_extra { self.jobs.group_of(key) } else { None };
        let moved = (key, tube, rank, group);
        self.leave_place(moved, (place, at), timers);
        let job = &mut self.jobs[key];
        (job.place, job.at) = match to {
            To::Pending => (JobPlacement::Pending, now),
            To::Ready => (JobPlacement::Ready, now),
            To::Delayed(until) => (JobPlacement::Delayed, until),
            To::Reserved(..) => (JobPlacement::Reserved, now + Span::from_secs(u64::from(job.ttr))),
            To::Buried => (JobPlacement::Buried, now),
            To::Nowhere => (JobPlacement::Nowhere, now),
        };
        self.tubes.shift(tube, [from, job.state()], noted, now);
        let holds_key = has_extra && self.jobs.holds_key(key);
        match (held_key, holds_key) {
            (true, false) => self.jobs.free_key(key),
            (false, true) => self.jobs.hold_key(key),
            _ => {}
        }
        match to {
            To::Pending => self.tubes[tube].pending += 1,
            To::Ready => self.enter_ready(moved),
            To::Delayed(until) => {
                self.tubes[tube].rare().delayed.insert((until, rank.id()));
                self.count_retrying(key, true);
                self.arm_delay(tube, timers);
            }
            To::Reserved(conn, is_begun) => self.enter_reserved(moved, (conn, is_begun), now),
            To::Buried => {
                self.tubes[tube].rare().buried.push_back(&mut self.jobs, key);
                self.note_burial(key, timers);
            }
            To::Nowhere => {}
        }
    }

    fn leave_place(&mut self, moved: Moved, (place, at): (JobPlacement, Time), timers: &mut Timers<'_, Timer>) {
        let (key, tube, rank, group) = moved;
        match place {
            JobPlacement::Nowhere => {}
            JobPlacement::Pending => self.tubes[tube].pending -= 1,
            JobPlacement::Ready => self.leave_ready(moved),
            JobPlacement::Delayed => {
                self.tubes[tube].rare().delayed.remove(&(at, rank.id()));
                self.count_retrying(key, false);
                self.arm_delay(tube, timers);
            }
            JobPlacement::Reserved => {
                let holder = self.jobs[key].holder();
                self.conns.held_of(holder).remove_by(|held| held.place((at, rank.id())));
                self.count_reserved(tube, group, false);
            }
            JobPlacement::Buried => {
                self.tubes[tube].rare().buried.remove(&mut self.jobs, key);
                self.forget_burial(key, timers);
            }
        }
    }

    fn enter_ready(&mut self, (key, tube, rank, group): Moved) {
        let bucket = group.map(|group| self.bucket_for(tube, group));
        let is_other = self.change_ready(tube, bucket, |ready| ready.insert(rank));
        self.tubes[tube].waiting.push_back(&mut self.jobs, key);
        if self.jobs.origin_of(key).is_some() {
            self.tubes[tube].rare().dead.insert(rank.id());
        }
        if rank.pri() < URGENT {
            self.tubes.count_urgent(tube, true);
        }
        self.tubes.note_first_ready(tube, &self.jobs);
        if is_other {
            self.place(tube);
        }
    }

    fn leave_ready(&mut self, (key, tube, rank, group): Moved) {
        let entry = &mut self.tubes[tube];
        entry.some_rare().map(|rare| rare.dead.remove(&rank.id()));
        let bucket = group.map(|group| entry.by_group[&group]);
        entry.waiting.remove(&mut self.jobs, key);
        if rank.pri() < URGENT {
            self.tubes.count_urgent(tube, false);
        }
        self.tubes.note_first_ready(tube, &self.jobs);
        let is_other = self.change_ready(tube, bucket, |ready| ready.remove(&rank));
        if let Some(bucket) = bucket.filter(|bucket| self.tubes[*bucket].ready.is_empty()) {
            self.tubes.remove_bucket(bucket);
        }
        if is_other {
            self.place(tube);
        }
    }

    fn enter_reserved(&mut self, (key, tube, _, group): Moved, (conn, is_begun): (ConnId, bool), now: Time) {
        let serial = self.conns[conn].serial;
        let job = &mut self.jobs[key];
        // Lossless: every Id is made from a u32.
        job.links = (conn.index() as u32, serial);
        let held = (job.at, job.id);
        self.conns[conn].hold(held, is_begun, now);
        self.count_reserved(tube, group, true);
    }

    /// Keeps the timer of a tube's delays at the first of them, or earlier.
    fn arm_delay(&mut self, id: TubeId, timers: &mut Timers<'_, Timer>) {
        let Some(rare) = self.tubes[id].some_rare() else { return };
        let first = rare.delayed.first().map(|(until, _)| *until);
        keep_timer_at(&mut rare.delay_timer, first, Timer::Delay(id), timers);
    }

    /// Makes the first delayed jobs of a tube ready whose delays are over.
    pub(in crate::state) fn end_delays(&mut self, id: TubeId, step: &mut Step<'_, '_>) {
        self.tubes[id].rare().delay_timer.take().into_iter().for_each(TimerId::fired);
        while let Some((until, job)) = self.tubes[id].delayed.first().copied()
            && until <= step.now
        {
            if !step.timers.spend(DUE_COST) {
                let rare = self.tubes[id].rare();
                rare.delay_timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
                rare.delay_timer = Some(step.timers.arm(step.now + PAUSE_BETWEEN_SLICES, Timer::Delay(id)));
                return;
            }
            let key = self.jobs.find(job).expect("a tube knows only jobs that there are");
            self.move_job(key, To::Ready, step);
            self.serve_waiting(step);
        }
        self.arm_delay(id, step.timers);
    }

    /// Returns the bucket of a tube for jobs of this group, and creates it if it is new.
    fn bucket_for(&mut self, tube: TubeId, group: GroupId) -> BucketId {
        if let Some(bucket) = self.tubes[tube].by_group.get(&group) {
            return *bucket;
        }
        let bucket = Bucket { tube, group, ready: Sorted::default(), parked: None, held_since: 0 };
        let bucket = BucketId::from_index(self.tubes.buckets.insert(bucket));
        self.tubes[tube].rare().by_group.insert(group, bucket);
        bucket
    }

    /// Changes the ready jobs without a group of a tube, or the jobs of a bucket, with its position in its tube and among
    /// the buckets that its group's limit holds back. Returns whether the first job is another one.
    fn change_ready(
        &mut self,
        tube: TubeId,
        bucket: Option<BucketId>,
        change: impl FnOnce(&mut Sorted<Rank>) -> bool,
    ) -> bool {
        let ready = match bucket {
            None => &mut self.tubes[tube].ready,
            Some(bucket) => &mut self.tubes[bucket].ready,
        };
        let old = ready.first().copied();
        change(ready);
        let new = ready.first().copied();
        let Some(id) = bucket.filter(|_| old != new) else { return old != new };
        let bucket = &mut self.tubes[id];
        if new.is_none_or(|new| old.is_some_and(|old| new > old)) {
            bucket.held_since = 0;
        }
        let (group, parked) = (bucket.group, bucket.parked);
        if let Some((pri, since)) = parked {
            let gate = self.limits.groups[group.index()].gate;
            let parked = &mut self.limits.gates[gate.index()].parked;
            parked.remove(&(pri, since, id));
            self.tubes[id].parked = new.map(|new| (new.pri(), since));
            parked.extend(new.map(|new| (new.pri(), since, id)));
        }
        let rare = self.tubes[tube].rare();
        for firsts in [Some(&mut rare.firsts), parked.is_none().then_some(&mut rare.open)].into_iter().flatten() {
            if let Some(old) = old {
                firsts.remove(&(old, id));
            }
            firsts.extend(new.map(|new| (new, id)));
        }
        true
    }

    /// Returns the first job that a tube can give. Buckets that the limit of their group holds back are parked on the
    /// way.
    fn first_to_give(&mut self, id: TubeId) -> Option<Rank> {
        loop {
            let tube = &self.tubes[id];
            if tube.is_blocked() {
                return None;
            }
            let main = tube.ready.first().copied();
            let Some((first, bucket)) = tube.open.first().copied() else { return main };
            if main.is_some_and(|main| main < first) {
                return main;
            }
            let group = self.tubes[bucket].group;
            let gate = &mut self.limits.gates[self.limits.groups[group.index()].gate.index()];
            if !gate.is_closed() {
                return Some(first);
            }
            meter::visit();
            let entry = &mut self.tubes[bucket];
            if entry.held_since == 0 {
                entry.held_since = self.feeds.stamps.draw();
            }
            let place = (first.pri(), entry.held_since);
            entry.parked = Some(place);
            gate.parked.insert((place.0, place.1, bucket));
            self.tubes[id].rare().open.remove(&(first, bucket));
        }
    }

    /// Makes a parked bucket available again.
    pub(in crate::state) fn unpark(&mut self, id: BucketId) {
        let bucket = &mut self.tubes[id];
        bucket.parked = None;
        let (tube, first) = (bucket.tube, *bucket.ready.first().expect("a bucket that is set aside has jobs"));
        self.tubes[tube].rare().open.insert((first, id));
        self.place(tube);
    }

    /// Moves a tube to its position in the feeds that cover it, by its first job that it can give.
    pub(in crate::state) fn place(&mut self, id: TubeId) {
        let first = self.first_to_give(id);
        self.place_at(id, first);
    }

    fn place_at(&mut self, id: TubeId, first: Option<Rank>) {
        let old = std::mem::replace(&mut self.tubes[id].first, first);
        self.move_in_sets(id, old, first);
        let State { tubes, feeds, .. } = self;
        let tube = &mut tubes[id];
        if old.map(Rank::pri) == first.map(Rank::pri) {
            return;
        }
        let before = tube.standing(id);
        tube.stand_at(first.map(Rank::pri), || feeds.stamps.draw());
        self.move_in_feeds(id, before);
        if old.is_none() {
            self.note_comes(id);
        }
    }

    /// Puts a tube into the lane of its limits of several tubes. It must be placed after that.
    pub(in crate::state) fn change_lane(&mut self, id: TubeId) {
        self.place_at(id, None);
        let lane = self.limits.enter_lane(&self.tubes[id].held);
        let old = std::mem::replace(&mut self.tubes[id].lane, lane);
        self.limits.leave_lane(old);
    }

    /// Deletes a job from its place, and counts an event of its tube.
    pub(in crate::state) fn delete_job(&mut self, key: JobKey, noted: Option<Noted>, step: &mut Step<'_, '_>) {
        let (tube, group) = (self.jobs[key].tube, self.jobs.group_of(key));
        self.move_noted(key, To::Nowhere, noted, step);
        let job = self.jobs.remove(key);
        group.into_iter().for_each(|group| self.limits.leave_group(group));
        if job.is_stored {
            self.note_change(Change::Gone(job.id));
        }
        self.hide_if_unused(tube, step.now, step.timers);
    }

    /// Returns the tube with this name, and creates it if there is room. It must be used at once, or hidden again.
    pub(in crate::state) fn tube_for(&mut self, name: &[u8], timers: &mut Timers<'_, Timer>) -> Option<TubeId> {
        self.has_room_for_tube(name, timers).then(|| self.tube_in_any_case(name))
    }

    /// Returns whether a client can see a tube with this name, or there is room for it: hidden tubes are forgotten where
    /// it is needed.
    pub(in crate::state) fn has_room_for_tube(&mut self, name: &[u8], timers: &mut Timers<'_, Timer>) -> bool {
        if !self.has_room_for_clients(TUBE_BYTES) && self.tubes.find_visible(name).is_none() {
            return false;
        }
        self.forget_hidden(timers);
        // Hidden tubes make room first.
        if self.tubes.find(name).is_none() && self.tubes.len() >= self.bounds.max_tubes {
            if self.tubes.visible() >= self.bounds.max_tubes {
                return false;
            }
            for _ in 0..DROPPED_AT_ONCE.min(1 + self.tubes.len() - self.bounds.max_tubes) {
                let Some((_, oldest)) = self.tubes.first_hidden() else { return false };
                self.drop_tube(oldest, timers);
            }
        }
        true
    }

    /// Returns the tube with this name, and creates it even beyond the limit. It must be used at once, or hidden again.
    pub(in crate::state) fn tube_in_any_case(&mut self, name: &[u8]) -> TubeId {
        if let Some(tube) = self.tubes.find(name) {
            let totals = self.tubes[tube].totals();
            self.tubes.reveal(tube);
            if self.may_lack_jobs {
                // It counts as another tube only if it had no jobs.
                self.tubes[tube].set_totals(totals);
            }
            return tube;
        }
        let limits = self.limits.of_tube(name, &self.settings);
        let lane = self.limits.enter_lane(&limits.held);
        let id = self.tubes.insert(name, lane);
        let tube = &mut self.tubes[id];
        let rare = tube.rare();
        (rare.limit, rare.counted, rare.held) = (limits.limit.most, limits.counted, limits.held);
        rare.rate = self.limits.rates.rate(OF_TUBE, name, limits.rate);
        rare.paused = self.settings.pause_of(name);
        tube.tidy();
        if let Some(feed) = self.feeds.of_name(name) {
            self.feeds[feed].tube = Some(id);
        }
        id
    }

    /// Hides a tube without jobs, users and watchers; its rates are kept for a while. Its pause ends, unless it may have
    /// jobs that are not read yet.
    pub(in crate::state) fn hide_if_unused(&mut self, id: TubeId, now: Time, timers: &mut Timers<'_, Timer>) {
        let tube = &self.tubes[id];
        if tube.is_unused() && tube.hidden.is_none() {
            if !self.may_lack_jobs {
                self.end_pause_of(id, timers);
            }
            self.tubes.hide(id, now);
            self.arm_forget(timers);
        }
    }

    /// Drops a hidden tube.
    pub(in crate::state) fn drop_tube(&mut self, id: TubeId, timers: &mut Timers<'_, Timer>) {
        let mut tube = self.tubes.remove(id);
        let timer = tube.some_rare().and_then(|rare| rare.delay_timer.take());
        timer.into_iter().for_each(|timer| timers.cancel(timer));
        self.limits.leave_lane(tube.lane);
        if let Some(feed) = self.feeds.of_name(&tube.name) {
            self.feeds[feed].tube = None;
        }
    }
}
