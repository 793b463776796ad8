//! Puts of jobs, one by one or many together, and root jobs.

use super::commits::{Change, Commit};
use super::ids::{GroupId, TubeId};
use super::job::{Extra, Job, JobKey, JobPlacement, To, micros};
use super::limits::{Gate, Group};
use super::placement::DROPPED_AT_ONCE;
use super::roots::{KeptKey, Root, Roots};
use super::tally::Counted;
use super::tube::Bucket;
use super::{Body, END_OF_IDS, JOB_BYTES, JobId, ManyEntry, Put, Reply, State, Step, Timer, TubeName};
use crate::stats::Jobs as Stat;
use poolcounter_core::{ConnId, Metered as _, Span, Time, Timers};
use std::collections::BTreeSet;

/// Divisor of the memory limit: tubes and watches may exceed it by that part, or by the minimum in bytes.
const CLIENTS_SHARE: usize = 16;
const LEAST_FOR_CLIENTS: usize = 64 << 10;
/// Bytes of a group, at their worst: its entry, its gate, the longest name, and its place in the index.
const GROUP_BYTES: usize = 2 * (size_of::<Group>() + size_of::<Gate>()) + 64 + 40;
/// Bytes of a bucket of a group in a tube, at their worst: its entry, its queue, and its places in its tube.
const BUCKET_BYTES: usize = 2 * size_of::<Bucket>() + 200;
/// Number of holders of its key that a put examines, and of superseded ones that it drops. Beyond it the put is made: the
/// jobs that were examined will never run, and a refusal could lose the work, where a second job with the key only does
/// it twice.
const MOST_HOLDERS: usize = 64;
/// Number of superseded holders that the puts of one request drop, beside one for each. A step makes few changes.
const MOST_DROPPED: usize = 1024;

/// Reply to a put that makes no job, and the commit that it waits for.
type Refused = (Reply, Option<Commit>);

impl State {
    /// `put` and `put-job`.
    pub fn put(&mut self, conn: ConnId, put: &Put, body: Body, step: &mut Step<'_, '_>) {
        self.figures.count(if put.options.is_some() { Stat::PutJob } else { Stat::Put });
        self.conns.note_producer(conn);
        self.forget_hidden(step.timers);
        let has_room = match put.options {
            None => self.next_id < END_OF_IDS && self.has_memory_for(JOB_BYTES + body.bytes().len()),
            Some(_) => self.has_room(self.used_tube(conn), &[(put, body.bytes().len())]),
        };
        if !has_room {
            return step.reply(conn, if self.is_draining { Reply::Draining } else { Reply::OutOfMemory });
        }
        let is_shown = self.put_with_room(conn, put, body, true, &mut MOST_DROPPED.clone(), step);
        if is_shown {
            self.serve_waiting(step);
        }
    }

    /// `put-many`: all in one batch, or none if there is no room for them.
    pub fn put_many(&mut self, conn: ConnId, entries: Vec<ManyEntry>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::PutMany);
        self.conns.note_producer(conn);
        self.forget_hidden(step.timers);
        let sizes = entries.iter().filter_map(|entry| match entry {
            ManyEntry::Put(put, body) => Some((put, body.bytes().len())),
            ManyEntry::Refused(_) => None,
        });
        let sizes: Vec<(&Put, usize)> = sizes.collect();
        if !self.is_draining && !self.has_room(self.used_tube(conn), &sizes) {
            return step.reply(conn, Reply::OutOfMemory);
        }
        let (first, mut left) = (step.events.len(), MOST_DROPPED);
        for entry in entries {
            match entry {
                ManyEntry::Refused(refusal) => step.reply(conn, Reply::Refused(refusal)),
                ManyEntry::Put(put, body) => {
                    self.figures.count(if put.options.is_some() { Stat::PutJob } else { Stat::Put });
                    self.put_with_room(conn, &put, body, false, &mut left, step);
                }
            }
        }
        step.hold_together(conn, first);
    }

    /// Puts a job without a client, and returns its number. The error is the reply that a client would get.
    pub(super) fn put_itself(&mut self, put: &Put, body: Body, step: &mut Step<'_, '_>) -> Result<JobId, Reply> {
        self.forget_hidden(step.timers);
        let Some(options) = put.options.as_ref().filter(|_| !self.is_draining) else { return Err(Reply::Draining) };
        if !self.has_room(b"", &[(put, body.bytes().len())]) {
            return Err(Reply::OutOfMemory);
        }
        let tube = self.tube_for(&options.tube, step.timers).ok_or(Reply::OutOfMemory)?;
        let is_put = self.try_put(tube, put, body, false, &mut MOST_DROPPED.clone(), step);
        if is_put.is_err() {
            self.hide_if_unused(tube, step.now, step.timers);
        }
        is_put.map(|(id, _)| id).map_err(|(reply, _)| reply)
    }

    /// Returns true if there is room for these jobs of a connection that uses the tube `used`, and for what comes with
    /// them, and a number for each, even if none is a duplicate.
    fn has_room(&self, used: &[u8], puts: &[(&Put, usize)]) -> bool {
        let (mut tubes, mut roots, mut bytes) = (BTreeSet::new(), BTreeSet::new(), 0);
        let (mut groups, mut buckets) = (BTreeSet::new(), BTreeSet::new());
        for (put, body) in puts {
            bytes += JOB_BYTES + body;
            let Some(options) = &put.options else { continue };
            let tube = if options.tube.is_empty() { used } else { &options.tube };
            // The numbers and lengths of an extra take 17 bytes at most, those of a root 12 more.
            bytes += options.key.len() + 17;
            bytes += options.keep.map_or(0, |_| Roots::bytes_of(tube, &options.key) + 1);
            if let Some((signature, _)) = &options.root {
                bytes += signature.len() + 12;
                let is_new = self.roots.newest(tube, signature).is_none();
                roots.extend(is_new.then_some((tube, &**signature)));
            }
            tubes.extend(self.tubes.find_visible(tube).is_none().then_some(tube));
            if !options.group.is_empty() {
                let (name, group) = (&*options.group, self.limits.find_group(&options.group));
                let has = |group: GroupId, tube: TubeId| self.tubes[tube].by_group.contains_key(&group);
                let has_bucket = group.zip(self.tubes.find(tube)).is_some_and(|(group, tube)| has(group, tube));
                groups.extend(group.is_none().then_some(name));
                buckets.extend((!has_bucket).then_some((tube, name)));
            }
        }
        bytes += self.group_bytes(groups.len(), buckets.len()) - self.group_bytes(0, 0);
        bytes += roots.iter().map(|(tube, signature)| Roots::bytes_of(tube, signature)).sum::<usize>();
        let visible = self.tubes.visible();
        puts.len() as u64 <= END_OF_IDS - self.next_id
            && self.has_memory_for(bytes + self.tubes.bytes_of_new(&tubes))
            && visible + tubes.len() <= self.bounds.max_tubes.max(visible)
    }

    /// Returns whether the memory limit allows `bytes` more.
    pub fn has_memory_for(&self, bytes: usize) -> bool {
        self.used_memory().saturating_add(bytes) <= self.bounds.max_memory
    }

    /// Returns true if the memory limit is reached.
    pub fn is_full(&self) -> bool {
        self.used_memory() >= self.bounds.max_memory
    }

    /// Returns whether there is room for this number of bytes of tubes and watches. Their limit is a little higher than
    /// that of jobs, which can be taken out only by connections that watch their tubes.
    pub(super) fn has_room_for_clients(&self, bytes: usize) -> bool {
        let more = (self.bounds.max_memory / CLIENTS_SHARE).max(LEAST_FOR_CLIENTS);
        self.used_memory().saturating_add(bytes) <= self.bounds.max_memory.saturating_add(more)
    }

    /// Returns the bytes of all groups and their buckets, with this number of new ones. A group counts one bucket at
    /// least, though it has none while its jobs are not ready.
    fn group_bytes(&self, groups: usize, buckets: usize) -> usize {
        let groups = self.limits.groups.len() + groups;
        groups * GROUP_BYTES + groups.max(self.tubes.buckets.len() + buckets) * BUCKET_BYTES
    }

    /// Returns the bytes that jobs, root jobs, tubes, groups, settings, watches, the orders of tubes that are watched, and
    /// what is kept for connections take.
    pub fn used_memory(&self) -> usize {
        let of_jobs = self.jobs.bytes + self.roots.bytes + self.tubes.bytes() + self.group_bytes(0, 0);
        let of_watches = self.feeds.bytes() + self.sets.bytes + self.conns.watch_bytes;
        of_jobs + of_watches + self.settings_bytes() + self.limits.rates.bytes() + self.kept_bytes
    }

    /// Returns the bytes of jobs, and of what is kept for connections: floods are of these.
    pub fn bytes_of_jobs(&self) -> usize {
        self.jobs.bytes + self.kept_bytes
    }

    /// Forgets tubes that are hidden where their room is needed, as many as a step has time for.
    pub(super) fn forget_hidden(&mut self, timers: &mut Timers<'_, Timer>) {
        for _ in 0..DROPPED_AT_ONCE {
            let Some((_, oldest)) = self.tubes.first_hidden() else { return };
            if self.used_memory().saturating_add(self.tubes.hidden_bytes()) <= self.bounds.max_memory {
                return;
            }
            self.drop_tube(oldest, timers);
        }
    }

    /// Puts a job for which there is room, `at_once` without waiting for the end of the step if there is no store.
    /// `left` is the rest of [`MOST_DROPPED`]. Returns true if it is visible already; then waiting connections must be
    /// served.
    fn put_with_room(
        &mut self,
        conn: ConnId,
        put: &Put,
        body: Body,
        at_once: bool,
        left: &mut usize,
        step: &mut Step<'_, '_>,
    ) -> bool {
        if self.is_draining {
            step.reply(conn, Reply::Draining);
            return false;
        }
        let name = put.options.as_ref().map(|options| &*options.tube).filter(|name| !name.is_empty());
        let tube = match name {
            Some(name) => self.tube_for(name, step.timers),
            None => Some(self.conns[conn].used),
        };
        let Some(tube) = tube else {
            step.reply(conn, Reply::OutOfMemory);
            return false;
        };
        match self.try_put(tube, put, body, at_once, left, step) {
            Ok((id, is_shown)) => {
                let after = self.this_commit();
                self.conns[conn].rates.count(Counted::Put, step.now);
                step.reply_after_of(conn, Reply::Inserted(id), after, id);
                is_shown
            }
            Err((reply, after)) => {
                match reply {
                    Reply::Duplicate(id, _) => step.reply_after_of(conn, reply, after, id),
                    _ => step.reply_after(conn, reply, after),
                }
                self.hide_if_unused(tube, step.now, step.timers);
                false
            }
        }
    }

    /// Removes a pending job that the store does not take, as if it had not been put. The timestamp of its root job
    /// stays.
    pub fn take_back(&mut self, id: JobId, step: &mut Step<'_, '_>) {
        let Some(key) = self.jobs.find(id).filter(|key| self.jobs[*key].place == JobPlacement::Pending) else { return };
        let (tube, name) = (&self.tubes[self.jobs[key].tube].name, self.jobs.key_of(key));
        let kept = self.roots.kept_key(tube, name, micros(step.now)).filter(|kept| kept.job == id);
        if let Some(Root { tube, signature, .. }) = kept.and_then(|_| self.roots.forget_key(tube, name)) {
            self.note_change(Change::RootGone(tube, signature));
        }
        self.jobs[key].is_stored = false;
        self.delete_job(key, None, step);
    }

    /// Returns the number of the new job, and whether it is visible already.
    fn try_put(
        &mut self,
        tube: TubeId,
        put: &Put,
        body: Body,
        at_once: bool,
        left: &mut usize,
        step: &mut Step<'_, '_>,
    ) -> Result<(JobId, bool), Refused> {
        let (mut extra, mut superseded) = (Extra::default(), Vec::new());
        if let Some(options) = &put.options {
            (extra.key, extra.until) = (&options.key, options.until);
            extra.root = options.root.as_ref().map(|(signature, timestamp)| (&**signature, *timestamp));
            self.check_root(tube, extra.root, step.now)?;
            superseded = self.check_key(tube, extra.key, extra.root, left, step.now)?;
            if let Some((signature, timestamp)) = extra.root {
                self.raise_root(tube, signature, timestamp, step);
            }
            extra.group = (!options.group.is_empty()).then(|| self.limits.join_group(&options.group, &self.settings));
        }
        let id = JobId(self.next_id);
        self.next_id += 1;
        let mut job = Job::new(id, tube, body);
        (job.pri, job.delay, job.ttr) = (put.pri, put.delay, put.ttr.max(1));
        job.created = micros(step.now);
        let key = self.jobs.insert(job, if put.options.is_some() { extra.encode() } else { Box::default() });
        // A job with a key is shown when those that it supersedes are gone.
        let is_shown = at_once && extra.key.is_empty() && self.keeps_no_changes();
        let to = if is_shown { self.first_place(key, step.now) } else { To::Pending };
        self.move_noted(key, to, Some((Counted::Put, None)), step);
        if !is_shown {
            self.note_job(key);
            self.wait_for_commit(key);
        }
        // Superseded holders are dropped now, rather than at their reservation; the new job is added first, so that its
        // tube is never without jobs.
        superseded.into_iter().for_each(|holder| self.drop_superseded(holder, step));
        if let Some(seconds) = put.options.as_ref().and_then(|options| options.keep) {
            let until = micros(step.now + Span::from_secs(seconds.into()));
            let kept = KeptKey { job: id, until, commit: self.current_commit() };
            let root = self.roots.keep_key(&self.tubes[tube].name, extra.key, &kept);
            self.note_change(Change::Root(root));
            self.arm_forget(step.timers);
        }
        self.figures.count(Stat::TotalJobs);
        Ok((id, is_shown))
    }

    fn check_root(&mut self, tube: TubeId, root: Option<(&[u8], u64)>, now: Time) -> Result<(), Refused> {
        let Some((signature, timestamp)) = root else { return Ok(()) };
        match self.roots.newest(&self.tubes[tube].name, signature) {
            Some((newest, commit)) if newest > timestamp => {
                self.tubes.note(tube, (Counted::Superseded, None), now);
                self.figures.count(Stat::Superseded);
                Err((Reply::Superseded, self.commit_of(commit)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a put whose key is kept for a time, or another job holds, unless that job is a waiting leaf of a superseded
    /// root job, which will never run. Returns such holders, as many as a put may drop.
    fn check_key(
        &mut self,
        tube: TubeId,
        key: &[u8],
        root: Option<(&[u8], u64)>,
        left: &mut usize,
        now: Time,
    ) -> Result<Vec<JobKey>, Refused> {
        if key.is_empty() {
            return Ok(Vec::new());
        }
        let (mut superseded, mut lasting) = (Vec::new(), None);
        for holder in self.jobs.holders_of(tube, key).metered().take((*left).clamp(1, MOST_HOLDERS)) {
            if !self.gives_way_to(holder, root) {
                lasting = Some(holder);
                break;
            }
            superseded.push(holder);
        }
        let kept = || self.roots.kept_key(&self.tubes[tube].name, key, micros(now));
        let known = lasting.map(|holder| (self.jobs[holder].id, self.put_commit(holder)));
        let Some((id, commit)) = known.or_else(|| kept().map(|kept| (kept.job, self.commit_of(kept.commit)))) else {
            *left = left.saturating_sub(superseded.len());
            self.visited += superseded.len();
            return Ok(superseded);
        };
        self.tubes.note(tube, (Counted::Duplicate, None), now);
        self.figures.count(Stat::Duplicates);
        let after = commit.and_then(|commit| {
            // This reply waits for the same commit as the other put.
            if commit == self.current_commit() { self.this_commit() } else { Some(commit) }
        });
        let is_buried = self.jobs.find(id).is_some_and(|key| self.jobs[key].place == JobPlacement::Buried);
        Err((Reply::Duplicate(id, is_buried), after))
    }

    /// Returns true if a job that holds a key waits, and is superseded or would be by a put of this root job.
    fn gives_way_to(&self, holder: JobKey, root: Option<(&[u8], u64)>) -> bool {
        let job = &self.jobs[holder];
        if !matches!(job.place, JobPlacement::Pending | JobPlacement::Ready | JobPlacement::Delayed) {
            return false;
        }
        let is_older = |(signature, timestamp): (&[u8], u64)| {
            root.is_some_and(|(other, newer)| other == signature && newer > timestamp)
        };
        self.jobs.root_of(holder).is_some_and(is_older) || self.is_superseded(holder)
    }

    /// `root`: registers a root job; the newest timestamp wins.
    pub fn root(
        &mut self,
        conn: ConnId,
        tube: TubeName<'_>,
        signature: &[u8],
        timestamp: u64,
        step: &mut Step<'_, '_>,
    ) {
        let known = self.roots.newest(tube.bytes(), signature);
        let (newest, after) = match known {
            Some((newest, commit)) if newest >= timestamp => (newest, self.commit_of(commit)),
            None if self.used_memory() >= self.bounds.max_memory => return step.reply(conn, Reply::OutOfMemory),
            _ => {
                self.set_root(tube.bytes(), signature, timestamp, step);
                (timestamp, self.this_commit())
            }
        };
        step.reply_after(conn, Reply::Root(newest), after);
    }

    /// Raises the timestamp of a root job to that of a newer leaf.
    pub(super) fn raise_root(&mut self, tube: TubeId, signature: &[u8], timestamp: u64, step: &mut Step<'_, '_>) {
        let name = self.tubes[tube].name.clone();
        if self.roots.newest(&name, signature).is_none_or(|(newest, _)| newest < timestamp) {
            self.set_root(&name, signature, timestamp, step);
        }
    }

    fn set_root(&mut self, tube: &[u8], signature: &[u8], timestamp: u64, step: &mut Step<'_, '_>) {
        let commit = self.current_commit();
        let root = self.roots.set(tube, signature, timestamp, micros(step.now), commit);
        self.note_change(Change::Root(root));
        self.arm_forget(step.timers);
    }

    /// `drain` and `undrain`: refuses puts, or accepts them again.
    pub fn drain(&mut self, conn: ConnId, is_draining: bool, step: &mut Step<'_, '_>) {
        self.is_draining = is_draining;
        step.reply(conn, if is_draining { Reply::Draining } else { Reply::Accepting });
    }
}
