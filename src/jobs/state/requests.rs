//! What a connection does with single jobs: delete, release, bury, touch, kick, peek, fail.

use super::attempts::Outcome;
use super::job::{JobId, JobKey, JobPlacement};
use super::placement::To;
use super::rates::Rated;
use super::sums::Noted;
use super::{Failure, JobState, Peek, Reply, State, Step, TubeName};
use crate::stats::Jobs as Stat;
use poolcounter_core::count::SmallCount;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::Span;

impl State {
    /// `use`: puts go to this tube.
    pub fn use_tube(&mut self, conn: ConnId, name: TubeName<'_>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Use);
        let Some(tube) = self.tube_for(name.bytes(), step.timers) else { return step.tell(conn, Reply::OutOfMemory) };
        self.tubes[tube.index()].using += 1;
        let old = std::mem::replace(&mut self.conn(conn).used, tube);
        self.tubes[old.index()].using -= 1;
        self.hide_if_unused(old, step.now, step.timers);
        step.tell(conn, Reply::Using);
    }

    /// `identify`: the runner's name.
    pub fn identify(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) {
        self.conn(conn).name = name.into();
        step.tell(conn, Reply::Identified(name.into()));
    }

    /// `delete`: a job that the connection holds, or nobody.
    pub fn delete(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Delete);
        let may = |key: &JobKey| self.jobs[*key].place != JobPlacement::Reserved || self.is_held_by(conn, *key);
        let Some(key) = self.visible(id).filter(may) else { return step.tell(conn, Reply::NotFound) };
        let tube = self.jobs[key].tube;
        self.tubes[tube.index()].deletes.bump();
        self.note(tube, Noted::Delete, step.now);
        self.conn(conn).rates.count(Rated::Delete, step.now);
        self.delete_job(key, step.now, step.timers);
        let after = self.this_commit();
        step.tell_after_of(conn, Reply::Deleted, after, id);
        self.serve_waiting(step);
    }

    /// `release`: the job waits again.
    pub fn release(&mut self, conn: ConnId, id: JobId, pri: u32, delay: u32, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Release);
        let Some(key) = self.held_by(conn, id) else { return step.tell(conn, Reply::NotFound) };
        self.jobs.change(key, |job| job.note(|history| history.releases.bump()));
        let to = if delay == 0 { To::Ready } else { To::Delayed(step.now + Span::from_secs(u64::from(delay))) };
        self.set_pri(key, pri);
        self.jobs[key].delay = delay;
        self.move_job(key, to, step.now, step.timers);
        self.note_job(key);
        let after = self.this_commit();
        step.tell_after_of(conn, Reply::Released, after, id);
        self.serve_waiting(step);
    }

    /// `bury`: the job waits for a kick.
    pub fn bury(&mut self, conn: ConnId, id: JobId, pri: u32, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Bury);
        let Some(key) = self.held_by(conn, id) else { return step.tell(conn, Reply::NotFound) };
        self.jobs.change(key, |job| job.note(|history| history.buries.bump()));
        self.set_pri(key, pri);
        self.move_job(key, To::Buried, step.now, step.timers);
        self.note_job(key);
        let after = self.this_commit();
        step.tell_after_of(conn, Reply::Buried, after, id);
        self.serve_waiting(step);
    }

    /// `fail`: a release, or a bury, that counts as an attempt, with a text that stays.
    pub fn fail(&mut self, conn: ConnId, failure: Failure, text: &[u8], step: &mut Step<'_, '_>) {
        let Failure { id, pri, delay, buries } = failure;
        self.figures.count(Stat::Fail);
        let Some(key) = self.held_by(conn, id) else { return step.tell(conn, Reply::NotFound) };
        self.jobs.change(key, |job| {
            job.note(|history| history.releases.bump());
            job.set_error(text);
        });
        self.set_pri(key, pri);
        self.jobs[key].delay = delay;
        let outcome = match buries {
            true => self.end_last_attempt(key, step),
            false => self.end_attempt(key, Span::from_secs(u64::from(delay)), step),
        };
        let reply = if outcome == Outcome::Buried { Reply::Buried } else { Reply::Released };
        let after = self.this_commit();
        step.tell_after_of(conn, reply, after, id);
        self.serve_waiting(step);
    }

    /// `touch`: the job's TTR starts anew.
    pub fn touch(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Touch);
        let Some(key) = self.held_by(conn, id) else { return step.tell(conn, Reply::NotFound) };
        let job = &mut self.jobs[key];
        let old = (job.at, id);
        job.at = step.now + Span::from_secs(u64::from(job.ttr));
        let new = (job.at, id);
        let held = &mut self.conn(conn).held;
        let since = held.remove(&old).expect("it holds the job");
        held.insert(new, since);
        self.arm_conn(conn, step.timers);
        step.tell(conn, Reply::Touched);
    }

    /// `kick-job`: a buried or delayed job is ready.
    pub fn kick_job(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::KickJob);
        let waits = |key: &JobKey| matches!(self.jobs[*key].place, JobPlacement::Buried | JobPlacement::Delayed);
        let Some(key) = self.visible(id).filter(waits) else { return step.tell(conn, Reply::NotFound) };
        self.kick_one(key, step);
        let after = self.this_commit();
        step.tell_after_of(conn, Reply::KickedJob, after, id);
    }

    /// Returns the state of a job; None if there is no such job, or its put is not committed.
    pub fn state_of(&self, id: JobId) -> Option<JobState> {
        self.visible(id).and_then(|key| self.jobs[key].state())
    }

    /// An operator has a buried job be ready.
    pub fn kick_buried(&mut self, id: JobId, step: &mut Step<'_, '_>) {
        if let Some(key) = self.find_buried(id) {
            self.figures.count(Stat::KickJob);
            self.kick_one(key, step);
        }
    }

    /// An operator deletes a buried job.
    pub fn delete_buried(&mut self, id: JobId, step: &mut Step<'_, '_>) {
        if let Some(key) = self.find_buried(id) {
            self.figures.count(Stat::Delete);
            self.tubes[self.jobs[key].tube.index()].deletes.bump();
            self.note(self.jobs[key].tube, Noted::Delete, step.now);
            self.delete_job(key, step.now, step.timers);
        }
    }

    fn find_buried(&self, id: JobId) -> Option<JobKey> {
        self.visible(id).filter(|key| self.jobs[*key].place == JobPlacement::Buried)
    }

    /// Makes a buried or delayed job ready; its attempts are forgotten.
    pub(super) fn kick_one(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        self.jobs.change(key, |job| {
            job.note(|history| {
                history.kicks.bump();
                history.attempts = SmallCount::ZERO;
            });
        });
        self.move_job(key, To::Ready, step.now, step.timers);
        self.note_job(key);
        self.serve_waiting(step);
    }

    /// `peek`: returns a job if there is one with this number.
    pub fn peek(&mut self, id: JobId) -> Option<JobId> {
        self.figures.count(Stat::Peek);
        self.visible(id).map(|_| id)
    }

    /// `peek-ready`, `peek-delayed`, `peek-buried`: returns the first such job of the used tube.
    pub fn peek_first(&mut self, conn: ConnId, which: Peek) -> Option<JobId> {
        let tube = &self.tubes[self.conn_ref(conn).used.index()];
        match which {
            Peek::Ready => {
                self.figures.count(Stat::PeekReady);
                let buckets = tube.by_group.values().chain([&tube.main]);
                let first = buckets.filter_map(|bucket| self.buckets[bucket.index()].ready.first()).min();
                first.map(|rank| rank.id())
            }
            Peek::Delayed => {
                self.figures.count(Stat::PeekDelayed);
                tube.delayed.first().map(|(_, id)| *id)
            }
            Peek::Buried => {
                self.figures.count(Stat::PeekBuried);
                tube.buried.front().map(|key| self.jobs[key].id)
            }
        }
    }

    /// Sets the priority of a job that is in no queue.
    fn set_pri(&mut self, key: JobKey, pri: u32) {
        debug_assert!(self.jobs[key].place == JobPlacement::Reserved, "a queue is ordered by priority");
        self.jobs[key].pri = pri;
    }
}
