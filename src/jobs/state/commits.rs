//! Changes that must outlive the process: changes since the last batch, and the batches that are committed.

use super::background::COST;
use super::ids::RootId;
use super::job::{JobId, JobKey, JobPlacement, To};
use super::record::{Record, Stored, record_of};
use super::setting::SettingKind;
use super::{SLICE, State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::{Span, Time, meter};
use poolcounter_protocol::jobs::values::Body;
pub use poolcounter_store::contract::Commit;
use std::collections::VecDeque;

/// One change. Its present value is looked up when the batch is taken, so several changes of one job in a batch become
/// one.
pub(super) enum Change {
    Job(JobId),
    Gone(JobId),
    Root(RootId),
    RootGone(Box<[u8]>, Box<[u8]>),
    Setting(SettingKind, Box<[u8]>),
    /// Row of the inbox, and the reason for which it is refused; empty if it is not.
    Taken(i64, Box<str>),
}

/// Estimated bytes of a change beside the bytes of a body: its row.
const CHANGE_BYTES: usize = 200;

/// Number of changes for which memory is kept between batches: 40 KiB, so that small batches allocate nothing.
const KEPT_CHANGES: usize = 1024;

/// Number of changes with which a batch ends: together with the changes of one more step, it stays within 16,384.
const FULL_BATCH: usize = 16_384 - 4_096;
/// Bytes of changes with which a batch ends: a slow link to a database takes half a minute for them.
const FULL_BATCH_BYTES: usize = 2 << 20;

/// Number of jobs that a slice makes visible, whatever else there is to do.
const LEAST_SHOWN: u32 = 128;

#[derive(Default)]
pub(super) struct Commits {
    /// Batch that is being collected.
    current: Commit,
    done: Commit,
    /// Changes of closed batches, and of the current one.
    changes: VecDeque<Change>,
    /// Batches that get no more changes, the next to be handed over first.
    closed: VecDeque<ClosedBatch>,
    /// Number of the changes in the current batch, and their approximate bytes.
    collected: usize,
    bytes: usize,
    /// Jobs that are not visible yet, by the batch that puts them.
    pending: VecDeque<(Commit, JobId)>,
    is_waited_for: bool,
    /// True without a store: nothing is collected, and the changes of a step are committed at its end. The current
    /// batch is then the last committed one.
    is_off: bool,
    stored_next_id: u64,
    /// True while no reservation ends, because replies would wait for the change.
    pub keeps_reserved: bool,
    /// Number of changes, and approximate bytes, of the batches that are handed over and not committed.
    under_way: (usize, usize),
}

/// Batch that will be handed over, or is being handed over.
#[derive(Clone, Copy)]
struct ClosedBatch {
    commit: Commit,
    /// Number of its changes that are not handed over.
    left: usize,
    bytes: usize,
}

/// Result of handing over a part of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handed {
    /// No change that a reply waits for or a restart needs.
    Nothing,
    /// A part of the batch; more of it is left.
    Part,
    /// The last part of this batch.
    Batch(Commit),
}

impl Commits {
    /// Returns the changes of a process that begins with nothing.
    pub fn begin() -> Commits {
        Commits { current: Commit(1), stored_next_id: 1, ..Commits::default() }
    }

    fn note(&mut self, bytes: usize, change: Change) {
        self.collected += 1;
        self.bytes += bytes;
        self.changes.push_back(change);
    }
}

impl State {
    /// Returns the number of changes that are not handed over, and their approximate bytes.
    pub fn uncollected(&self) -> (usize, usize) {
        let closed: usize = self.commits.closed.iter().map(|batch| batch.bytes).sum();
        (self.commits.changes.len(), closed + self.commits.bytes)
    }

    /// Returns the number of changes that are not committed, and their approximate bytes.
    pub fn uncommitted(&self) -> (usize, usize) {
        let ((changes, bytes), (others, other_bytes)) = (self.commits.under_way, self.uncollected());
        (changes + others, bytes + other_bytes)
    }

    /// Returns true if so much waits for a commit that no connection should change more.
    pub fn is_backed_up(&self) -> bool {
        let ((changes, bytes), (most, most_bytes)) = (self.uncommitted(), self.bounds.queue);
        changes >= most || bytes >= most_bytes
    }

    /// Sets whether reservations are kept after the end of their TTR.
    pub fn keep_reserved(&mut self, keeps: bool) {
        self.commits.keeps_reserved = keeps;
    }

    /// Gives later replies another number to wait for than earlier ones, though for the same batch, so that they can be
    /// told apart.
    pub fn split_batch(&mut self) {
        if self.commits.collected > 0 || self.commits.is_waited_for {
            self.commits.current = Commit(self.commits.current.0 + 1);
        }
    }

    /// Begins another batch if the current one is full. Called between two steps: the changes of a step are in one
    /// batch.
    pub(super) fn close_full_batch(&mut self) {
        if self.commits.collected >= FULL_BATCH || self.commits.bytes >= FULL_BATCH_BYTES {
            self.close_batch();
        }
    }

    fn close_batch(&mut self) {
        let Commits { current, collected, bytes, is_waited_for, closed, .. } = &mut self.commits;
        closed.push_back(ClosedBatch { commit: *current, left: *collected, bytes: *bytes });
        (*current, *collected, *bytes, *is_waited_for) = (Commit(current.0 + 1), 0, 0, false);
    }

    /// Hands over at most `most` changes of the oldest batch, with their present values.
    pub fn take_batch(&mut self, most: usize, visit: &mut dyn FnMut(Stored<'_>)) -> Handed {
        if self.commits.closed.is_empty() {
            if self.commits.collected == 0 && !self.commits.is_waited_for {
                return Handed::Nothing;
            }
            self.close_batch();
        }
        let batch = &mut self.commits.closed[0];
        let count = batch.left.min(most);
        batch.left -= count;
        self.commits.under_way.0 += count;
        self.figures.count_many(Stat::Changes, count as u64);
        for _ in 0..count {
            meter::visit();
            let change = self.commits.changes.pop_front().expect("the changes of a batch are counted");
            self.hand_over(change, visit);
        }
        let ClosedBatch { commit, left, bytes } = self.commits.closed[0];
        if left > 0 {
            return Handed::Part;
        }
        self.commits.closed.pop_front();
        self.commits.under_way.1 += bytes;
        if self.commits.changes.is_empty() {
            self.commits.changes.shrink_to(KEPT_CHANGES);
        }
        self.figures.count(Stat::Batches);
        if self.commits.stored_next_id != self.next_id {
            self.commits.stored_next_id = self.next_id;
            visit(Stored::NextId(self.next_id));
        }
        Handed::Batch(commit)
    }

    /// Returns whether a part of a batch was handed over, and more of it is left.
    pub fn is_handing_over(&self) -> bool {
        !self.commits.closed.is_empty() && self.commits.under_way != (0, 0)
    }

    /// Turns collecting off: no store will ask for changes, and [`State::commit_at_once`] ends each step.
    pub fn keep_no_changes(&mut self) {
        self.commits.is_off = true;
        self.commits.current = self.commits.done;
    }

    /// Commits the changes of the step, if there is no store.
    pub fn commit_at_once(&mut self, step: &mut Step<'_, '_>) {
        if self.commits.is_off && !self.commits.pending.is_empty() {
            self.committed(self.commits.current, step);
        }
    }

    /// Returns whether there is no store that asks for changes.
    #[inline]
    pub fn keeps_no_changes(&self) -> bool {
        self.commits.is_off
    }

    /// Makes some jobs visible that this batch or an earlier one puts: as many as the budget of the tick allows, and a
    /// few in any case. Returns false and does nothing if they are few enough for [`State::committed`].
    pub fn show_some(&mut self, commit: Commit, step: &mut Step<'_, '_>) -> bool {
        let are_many = self.commits.pending.get(SLICE as usize).is_some_and(|(waits_for, _)| *waits_for <= commit);
        if are_many {
            for shown in 0..SLICE {
                if !step.timers.spend(COST) && shown >= LEAST_SHOWN {
                    break;
                }
                self.show_next(commit, step);
            }
        }
        are_many
    }

    /// Removes some of the jobs whose puts are not committed, as [`State::take_back`] does: as many as the budget of
    /// the tick allows, and a few in any case. Returns whether there are more.
    pub fn take_back_some(&mut self, step: &mut Step<'_, '_>) -> bool {
        for taken in 0..SLICE {
            if !step.timers.spend(COST) && taken >= LEAST_SHOWN {
                break;
            }
            let Some((_, id)) = self.commits.pending.pop_front() else { break };
            meter::visit();
            self.take_back(id, step);
        }
        !self.commits.pending.is_empty()
    }

    /// Notes that the store has this batch and all before it: the jobs that they put become visible.
    pub fn committed(&mut self, commit: Commit, step: &mut Step<'_, '_>) {
        self.commits.done = self.commits.done.max(commit);
        // One batch is under way at a time.
        self.commits.under_way = (0, 0);
        while self.show_next(commit, step) {}
    }

    /// Makes the next job visible, and returns whether there was one.
    fn show_next(&mut self, commit: Commit, step: &mut Step<'_, '_>) -> bool {
        let Some((_, id)) = self.commits.pending.front().copied().filter(|(waits_for, _)| *waits_for <= commit) else {
            return false;
        };
        self.commits.pending.pop_front();
        meter::visit();
        let Some(key) = self.jobs.find(id) else { return true };
        let to = self.first_place(key, step.now);
        self.move_job(key, to, step);
        self.serve_waiting(step);
        true
    }

    /// Returns the place of a job that becomes visible.
    pub(super) fn first_place(&self, key: JobKey, now: Time) -> To {
        let job = &self.jobs[key];
        if job.delay == 0 {
            return To::Ready;
        }
        let due = Time::from_micros(u64::try_from(job.created).unwrap_or(0)) + Span::from_secs(u64::from(job.delay));
        if due > now { To::Delayed(due) } else { To::Ready }
    }

    /// Returns the last batch that is committed.
    pub fn last_committed(&self) -> Commit {
        self.commits.done
    }

    /// Returns the last batch that is not committed, including the one being collected; None if all are committed.
    pub fn last_uncommitted(&self) -> Option<Commit> {
        let Commits { current, done, collected, is_waited_for, is_off, .. } = &self.commits;
        if *is_off {
            return None;
        }
        let last = if *collected == 0 && !is_waited_for { Commit(current.0 - 1) } else { *current };
        (last > *done).then_some(last)
    }

    /// Hides the job until the current batch is committed.
    pub(super) fn wait_for_commit(&mut self, key: JobKey) {
        let commit = self.commits.current;
        self.jobs[key].set_commit(commit.0);
        self.commits.pending.push_back((commit, self.jobs[key].id));
    }

    /// Returns the commit of a reply that promises a change of this step.
    pub(super) fn this_commit(&mut self) -> Option<Commit> {
        self.commits.is_waited_for = !self.commits.is_off;
        self.commits.is_waited_for.then_some(self.commits.current)
    }

    /// Returns the commit of a reply that depends on an earlier change; None if it is committed.
    pub(super) fn commit_of(&self, commit: Commit) -> Option<Commit> {
        (commit > self.commits.done).then_some(commit)
    }

    pub(super) fn current_commit(&self) -> Commit {
        self.commits.current
    }

    /// Notes that the store needs the present values of a job.
    pub(super) fn note_job(&mut self, key: JobKey) {
        if self.commits.is_off {
            return;
        }
        let job = &mut self.jobs[key];
        if !std::mem::replace(&mut job.is_dirty, true) {
            let body = if job.is_stored { 0 } else { job.body.bytes().len() };
            self.commits.note(CHANGE_BYTES + body, Change::Job(job.id));
        }
    }

    pub(super) fn note_change(&mut self, change: Change) {
        if !self.commits.is_off {
            self.commits.note(CHANGE_BYTES, change);
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
            Change::Taken(id, refused) => visit(Stored::Taken(id, &refused)),
        }
    }

    /// Hands over a job with its body.
    pub(super) fn hand_over_whole(&mut self, key: JobKey, visit: &mut dyn FnMut(Stored<'_>)) {
        let State { jobs, tubes, limits, .. } = self;
        // The body is lent apart from the rest of its job, so that it can be shared.
        let mut body = std::mem::replace(&mut jobs[key].body, Body::Own(Box::default()));
        visit(Stored::Put(record_of(jobs, key, tubes, limits), &mut body));
        jobs[key].body = body;
    }

    /// Returns a job as a store has it. A reserved job is ready there: reservations are not stored.
    pub(super) fn record(&self, key: JobKey) -> Record<'_> {
        record_of(&self.jobs, key, &self.tubes, &self.limits)
    }

    pub(super) fn restore_commits(&mut self, done: Commit) {
        self.commits.done = done;
        self.commits.current = Commit(done.0 + u64::from(!self.commits.is_off));
        self.commits.stored_next_id = self.next_id;
    }

    /// Returns the number of the next job that the store knows.
    pub(super) fn stored_next_id(&self) -> u64 {
        self.commits.stored_next_id
    }

    pub(super) fn check_commits(&self) {
        let pending: Vec<_> = self.jobs.iter().filter(|(_, job)| job.place == JobPlacement::Pending).collect();
        for (_, job) in &pending {
            let waits_for = Commit(job.commit());
            assert!(self.commits.done < waits_for && waits_for <= self.commits.current, "a pending job waits");
            assert!(self.commits.pending.binary_search(&(waits_for, job.id)).is_ok(), "a commit has its pending jobs");
        }
        assert!(self.commits.pending.iter().is_sorted(), "commits come in order");
        let closed: usize = self.commits.closed.iter().map(|batch| batch.left).sum();
        assert_eq!(closed + self.commits.collected, self.commits.changes.len(), "a change is in one batch");
        let dirty = self.jobs.iter().filter(|(_, job)| job.is_dirty).count();
        let is_job = |change: &&Change| matches!(change, Change::Job(id) if self.jobs.find(*id).is_some());
        assert_eq!(dirty, self.commits.changes.iter().filter(is_job).count(), "a changed job is in the batch once");
        let is_known = self.jobs.iter().all(|(_, job)| job.is_stored || job.is_dirty);
        assert!(is_known || self.commits.is_off, "a changed job is in a batch");
    }
}
