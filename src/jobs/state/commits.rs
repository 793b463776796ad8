//! Changes that must outlive the process: those since the last batch, and which batches are committed.

use super::job::{History, JobId, JobKey, JobPlacement, Until};
use super::placement::To;
use super::roots::RootId;
use super::{State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::count::SmallCount;
use poolcounter_core::id::Id;
use poolcounter_core::time::{Span, Time};
use poolcounter_protocol::jobs::values::Body;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The number of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Commit(pub u64);

/// One change. Its present value is looked up when the batch is taken, so that changes of one job in a batch are one.
pub(super) enum Change {
    Job(JobId),
    Gone(JobId),
    Root(RootId),
    RootGone(Box<[u8]>, Box<[u8]>),
    Setting(SettingKind, Box<[u8]>),
}

/// Which table a setting is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SettingKind {
    Limit,
    GroupLimit,
    Retry,
    DeadLetter,
    Pause,
}

/// Bytes that are reckoned for a change beside those of a body: its row.
const CHANGE_BYTES: usize = 200;

/// Room for so many changes is kept between batches: 40 KiB, so that small batches allocate nothing.
const KEPT_CHANGES: usize = 1024;

pub(super) struct Commits {
    /// The batch that is being collected.
    current: Commit,
    done: Commit,
    changes: Vec<Change>,
    bytes: usize,
    /// Jobs that are not visible yet, by the batch that puts them.
    pending: VecDeque<(Commit, JobId)>,
    is_waited_for: bool,
    /// No store wants to know: nothing is collected, and what a step changes is committed at its end. The batch that is being
    /// collected is the one that is done.
    is_off: bool,
    stored_next_id: u64,
    /// No reservation ends for now: what that changes would be waited for.
    keeps_reserved: bool,
    /// Number of changes, and about how many bytes, of the batches that are handed over and not committed.
    under_way: (usize, usize),
    /// Changes and bytes that may wait before no more are taken.
    most: (usize, usize),
}

impl Default for Commits {
    fn default() -> Self {
        Commits {
            current: Commit(1),
            done: Commit(0),
            changes: Vec::new(),
            bytes: 0,
            pending: VecDeque::new(),
            is_waited_for: false,
            is_off: false,
            stored_next_id: 1,
            keeps_reserved: false,
            under_way: (0, 0),
            most: (usize::MAX, usize::MAX),
        }
    }
}

/// A job without its body, as a store or another process has it. Times are microseconds since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record<'a> {
    /// Its number.
    pub id: JobId,
    /// Its tube.
    pub tube: &'a [u8],
    /// Its priority.
    pub pri: u32,
    /// The delay that was last asked for, in seconds.
    pub delay: u32,
    /// Its TTR in seconds.
    pub ttr: u32,
    /// Time of its put.
    pub created: i64,
    /// End of its delay.
    pub delayed: Option<Time>,
    /// Whether it is buried.
    pub is_buried: bool,
    /// Number of its reservations.
    pub reserves: SmallCount,
    /// Counts of its other changes.
    pub history: History,
    /// Its key; empty without.
    pub key: &'a [u8],
    /// End of the time in which it keeps others with its key out.
    pub until: Until,
    /// The root job that it belongs to, and when that began.
    pub root: Option<(&'a [u8], u64)>,
    /// Its group; empty without.
    pub group: &'a [u8],
    /// The text of its last failure.
    pub error: &'a [u8],
}

/// A setting, or what is left of one: its absence.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Setting<'a> {
    /// A limit of tubes: how many, and whether all together.
    Limit(&'a [u8], Option<(u32, bool)>),
    /// A limit of a group.
    GroupLimit(&'a [u8], Option<u32>),
    /// A backoff.
    Retry(&'a [u8], Option<super::Backoff>),
    /// Tube of jobs after their last attempt.
    DeadLetter(&'a [u8], Option<&'a [u8]>),
    /// A pause: until when, and how many seconds it was.
    Pause(&'a [u8], Option<(Time, u32)>),
}

/// One change, for the store.
pub enum Stored<'a> {
    /// A job that the store does not have.
    Put(Record<'a>, &'a mut Body),
    /// A job that it has.
    Update(Record<'a>),
    /// A job that is gone.
    Delete(JobId),
    /// The newest timestamp of a root job, and when it changed, in microseconds since the start.
    Root(&'a [u8], &'a [u8], u64, i64),
    /// A root job that is forgotten.
    RootGone(&'a [u8], &'a [u8]),
    /// A setting.
    Setting(Setting<'a>),
    /// No number below this will be given out again.
    NextId(u64),
}

impl State {
    /// Returns how many changes no batch has yet, and about how many bytes they are.
    pub fn uncollected(&self) -> (usize, usize) {
        (self.commits.changes.len(), self.commits.bytes)
    }

    /// Returns how many changes are not committed, and about how many bytes they are.
    pub fn uncommitted(&self) -> (usize, usize) {
        let (changes, bytes) = self.commits.under_way;
        (changes + self.commits.changes.len(), bytes + self.commits.bytes)
    }

    /// Sets how many changes, and how many bytes of them, may wait for a commit before connections that make more are not read.
    pub fn set_queue(&mut self, changes: usize, bytes: usize) {
        self.commits.most = (changes, bytes);
    }

    /// Returns what [`State::set_queue`] has set.
    pub(super) fn queue(&self) -> (usize, usize) {
        self.commits.most
    }

    /// Returns true when so much waits for a commit that nobody should change more.
    pub fn is_backed_up(&self) -> bool {
        let ((changes, bytes), (most, most_bytes)) = (self.uncommitted(), self.commits.most);
        changes >= most || bytes >= most_bytes
    }

    /// Ends no reservation whose TTR is over, or does so again.
    pub fn keep_reserved(&mut self, keeps: bool) {
        self.commits.keeps_reserved = keeps;
    }

    /// Returns whether reservations may end whose TTR is over: what that changes is to be committed.
    pub(super) fn may_end_reservations(&self) -> bool {
        !self.commits.keeps_reserved && !self.is_backed_up()
    }

    /// Gives later replies another number to wait for than those before, though for the same batch, so that they can be told apart.
    pub fn split_batch(&mut self) {
        if !self.commits.changes.is_empty() || self.commits.is_waited_for {
            self.commits.current = Commit(self.commits.current.0 + 1);
        }
    }

    /// Hands over what changed since the last batch, and returns its number; None if nothing changed that a reply waits for
    /// or a restart needs.
    pub fn take_batch(&mut self, visit: &mut dyn FnMut(Stored<'_>)) -> Option<Commit> {
        if self.commits.changes.is_empty() && !self.commits.is_waited_for {
            return None;
        }
        let mut changes = std::mem::take(&mut self.commits.changes);
        let (under_way, bytes) = self.commits.under_way;
        self.commits.under_way = (under_way + changes.len(), bytes + self.commits.bytes);
        self.figures.count(Stat::Batches);
        self.figures.count_many(Stat::Changes, changes.len() as u64);
        changes.drain(..).for_each(|change| self.hand_over(change, visit));
        changes.shrink_to(KEPT_CHANGES);
        self.commits.changes = changes;
        if self.commits.stored_next_id != self.next_id {
            self.commits.stored_next_id = self.next_id;
            visit(Stored::NextId(self.next_id));
        }
        let commit = self.commits.current;
        self.commits.current = Commit(commit.0 + 1);
        self.commits.bytes = 0;
        self.commits.is_waited_for = false;
        Some(commit)
    }

    /// No store will ask for changes, and [`State::commit_at_once`] ends each step.
    pub fn keep_no_changes(&mut self) {
        self.commits.is_off = true;
        self.commits.current = self.commits.done;
    }

    /// Commits what the step has changed, if no store is to know of it.
    pub fn commit_at_once(&mut self, step: &mut Step<'_, '_>) {
        if self.commits.is_off {
            self.committed(self.commits.current, step);
        }
    }

    /// The store has this batch and all before it: the jobs that they put are visible.
    pub fn committed(&mut self, commit: Commit, step: &mut Step<'_, '_>) {
        self.commits.done = self.commits.done.max(commit);
        // One batch is under way at a time.
        self.commits.under_way = (0, 0);
        while let Some((waits_for, id)) = self.commits.pending.front().copied()
            && waits_for <= commit
        {
            self.commits.pending.pop_front();
            let Some(key) = self.jobs.find(id) else { continue };
            let job = &self.jobs[key];
            let due =
                Time::from_micros(u64::try_from(job.created).unwrap_or(0)) + Span::from_secs(u64::from(job.delay));
            let to = if job.delay > 0 && due > step.now { To::Delayed(due) } else { To::Ready };
            self.move_job(key, to, step.now, step.timers);
            self.serve_waiting(step);
        }
    }

    /// Returns the last batch that was handed over.
    pub fn last_taken(&self) -> Commit {
        Commit(self.commits.current.0 - 1)
    }

    /// Returns the last batch that is committed.
    pub fn last_committed(&self) -> Commit {
        self.commits.done
    }

    /// Returns the last batch that is not committed, the one that is being collected among them; None if all are.
    pub fn last_uncommitted(&self) -> Option<Commit> {
        let Commits { current, done, changes, is_waited_for, is_off, .. } = &self.commits;
        if *is_off {
            return None;
        }
        let last = if changes.is_empty() && !is_waited_for { Commit(current.0 - 1) } else { *current };
        (last > *done).then_some(last)
    }

    /// The job is not visible before the batch that is being collected is committed.
    pub(super) fn wait_for_commit(&mut self, key: JobKey) {
        let commit = self.commits.current;
        self.jobs[key].set_commit(commit.0);
        self.commits.pending.push_back((commit, self.jobs[key].id));
    }

    /// Returns what a reply waits for that promises a change of this step.
    pub(super) fn this_commit(&mut self) -> Option<Commit> {
        self.commits.is_waited_for = !self.commits.is_off;
        self.commits.is_waited_for.then_some(self.commits.current)
    }

    /// Returns what a reply waits for that depends on an earlier change.
    pub(super) fn commit_of(&self, commit: Commit) -> Option<Commit> {
        (commit > self.commits.done).then_some(commit)
    }

    pub(super) fn current_commit(&self) -> Commit {
        self.commits.current
    }

    /// Notes that the store must learn of a job as it is now.
    pub(super) fn note_job(&mut self, key: JobKey) {
        if self.commits.is_off {
            return;
        }
        let job = &mut self.jobs[key];
        if !std::mem::replace(&mut job.is_dirty, true) {
            let body = if job.is_stored { 0 } else { job.body.bytes().len() };
            self.commits.bytes += CHANGE_BYTES + body;
            self.commits.changes.push(Change::Job(job.id));
        }
    }

    pub(super) fn note_change(&mut self, change: Change) {
        if !self.commits.is_off {
            self.commits.bytes += CHANGE_BYTES;
            self.commits.changes.push(change);
        }
    }

    fn hand_over(&mut self, change: Change, visit: &mut dyn FnMut(Stored<'_>)) {
        match change {
            Change::Job(id) => {
                let Some(key) = self.jobs.find(id) else { return };
                let job = &mut self.jobs[key];
                job.is_dirty = false;
                if std::mem::replace(&mut job.is_stored, true) {
                    visit(Stored::Update(self.record(key)));
                } else {
                    self.hand_over_whole(key, visit);
                }
            }
            Change::Gone(id) => visit(Stored::Delete(id)),
            Change::Root(root) => {
                if let Some((tube, signature, newest, changed)) = self.roots.record(root) {
                    visit(Stored::Root(tube, signature, newest, changed));
                }
            }
            Change::RootGone(tube, signature) => visit(Stored::RootGone(&tube, &signature)),
            Change::Setting(kind, pattern) => visit(Stored::Setting(self.setting(kind, &pattern))),
        }
    }

    /// Hands over a job with its body.
    pub(super) fn hand_over_whole(&mut self, key: JobKey, visit: &mut dyn FnMut(Stored<'_>)) {
        let State { jobs, tubes, limits, .. } = self;
        // The body lends itself apart from the rest of its job, so that it can be shared.
        let mut body = std::mem::replace(&mut jobs[key].body, Body::Own(Box::default()));
        visit(Stored::Put(record_of(&jobs[key], tubes, limits), &mut body));
        jobs[key].body = body;
    }

    /// Returns a job as a store has it. One that is reserved is ready there: reservations are not stored.
    pub(super) fn record(&self, key: JobKey) -> Record<'_> {
        record_of(&self.jobs[key], &self.tubes, &self.limits)
    }

    pub(super) fn restore_commits(&mut self, done: Commit) {
        self.commits.done = done;
        self.commits.current = Commit(done.0 + u64::from(!self.commits.is_off));
        self.commits.stored_next_id = self.next_id;
    }

    /// Returns the number of the next job as the store was told it.
    pub(super) fn stored_next_id(&self) -> u64 {
        self.commits.stored_next_id
    }

    pub(super) fn check_commits(&self) {
        let pending: Vec<_> = self.jobs.iter().filter(|(_, job)| job.place == JobPlacement::Pending).collect();
        for (_, job) in &pending {
            let waits_for = Commit(job.commit());
            assert!(self.commits.done < waits_for && waits_for <= self.commits.current, "a job waits for no commit");
            assert!(self.commits.pending.contains(&(waits_for, job.id)), "a commit would not show its job");
        }
        assert!(self.commits.pending.iter().is_sorted(), "commits come in order");
        let dirty = self.jobs.iter().filter(|(_, job)| job.is_dirty).count();
        let is_job = |change: &&Change| matches!(change, Change::Job(id) if self.jobs.find(*id).is_some());
        assert_eq!(dirty, self.commits.changes.iter().filter(is_job).count(), "a changed job is in the batch once");
        let is_known = self.jobs.iter().all(|(_, job)| job.is_stored || job.is_dirty);
        assert!(is_known || self.commits.is_off, "a job would never be stored");
    }
}

fn record_of<'a>(
    job: &'a super::job::Job,
    tubes: &'a super::tubes::Tubes,
    limits: &'a super::limits::Limits,
) -> Record<'a> {
    let extra = job.extra();
    let pending_until = || {
        let due = u64::try_from(job.created).unwrap_or(0).saturating_add(u64::from(job.delay) * 1_000_000);
        (job.delay > 0).then_some(Time::from_micros(due))
    };
    Record {
        id: job.id,
        tube: &tubes[job.tube].name,
        pri: job.pri,
        delay: job.delay,
        ttr: job.ttr,
        created: job.created,
        delayed: match job.place {
            JobPlacement::Delayed => Some(job.at),
            JobPlacement::Pending => pending_until(),
            _ => None,
        },
        is_buried: job.place == JobPlacement::Buried,
        reserves: job.reserves,
        history: extra.history,
        key: extra.key,
        until: extra.until,
        root: extra.root,
        group: extra.group.map_or(&[], |group| &limits.groups[group.index()].name),
        error: extra.error,
    }
}
