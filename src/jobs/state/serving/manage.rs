//! Requests of operators about single jobs or all jobs of some tubes: move, set-job, cancel.

use crate::state::background::{Answer, Work};
use crate::state::job::{JobId, JobKey, JobPlacement, To};
use crate::state::schedule::sweeps::queues_of;
use crate::state::{JobChange, JobState, JobsOf, Reply, State, Step, TubeName};
use poolcounter_core::{ConnId, SmallCount, Span};
use std::collections::VecDeque;
use std::sync::Arc;

/// Number of cancelled jobs whose runners are told by whom: a runner asks within a few seconds.
const MOST_CANCELLED: usize = 1024;

/// The jobs that were cancelled last, each with the client that did.
#[derive(Default)]
pub(in crate::state) struct Cancelled(VecDeque<(JobId, Arc<[u8]>)>);

impl State {
    /// `move`: moves jobs that nobody has reserved, all or those in this state, to another tube, in which they are in
    /// the same state.
    pub fn move_jobs(
        &mut self,
        conn: ConnId,
        what: JobsOf<'_>,
        name: TubeName<'_>,
        state: Option<JobState>,
        step: &mut Step<'_, '_>,
    ) {
        if !self.has_room_for_tube(name.bytes(), step.timers) {
            return step.reply(conn, Reply::OutOfMemory);
        }
        match what {
            JobsOf::Pattern(pattern) => {
                let work = Work::Move(queues_of(state), name.bytes().into());
                self.begin_sweep(Some(conn), pattern, work, Answer::Count(Reply::Moved), step);
            }
            JobsOf::Job(id) => {
                let is_meant = |key: &JobKey| state.is_none_or(|state| self.jobs[*key].state() == Some(state));
                match self.waiting_job(id).filter(is_meant) {
                    None => step.reply(conn, Reply::NotFound),
                    Some(key) => {
                        let is_there = *self.tubes[self.jobs[key].tube].name == *name.bytes();
                        let is_moved = !is_there && self.move_one(key, name.bytes(), step);
                        let after = self.this_commit();
                        step.reply_after_of(conn, Reply::Moved(is_moved.into()), after, id);
                    }
                }
            }
        }
    }

    /// Moves a job to another tube, and returns true; a superseded leaf is dropped instead, as if its turn had come.
    pub(in crate::state) fn move_one(&mut self, key: JobKey, tube: &[u8], step: &mut Step<'_, '_>) -> bool {
        let job = &self.jobs[key];
        let to = match job.place {
            JobPlacement::Buried => To::Buried,
            _ if self.is_superseded(key) => {
                self.drop_superseded(key, step);
                return false;
            }
            JobPlacement::Delayed => To::Delayed(job.at),
            _ => To::Ready,
        };
        let tube = self.tube_in_any_case(tube);
        self.change_tube(key, tube, None, to, step);
        self.note_job(key);
        self.serve_waiting(step);
        true
    }

    /// `set-job`: changes a job that nobody has reserved. With a delay, also a buried job is delayed, or ready, as
    /// after a kick.
    pub fn set_job(&mut self, conn: ConnId, id: JobId, change: JobChange, step: &mut Step<'_, '_>) {
        let Some(key) = self.waiting_job(id) else { return step.reply(conn, Reply::NotFound) };
        let JobChange { pri, delay, ttr } = change;
        let place = self.jobs[key].place;
        // Only ready jobs are ordered by priority.
        let changes_place = delay.is_some() || pri.is_some() && place == JobPlacement::Ready;
        if changes_place {
            self.move_job(key, To::Nowhere, step);
        }
        let job = &mut self.jobs[key];
        job.pri = pri.unwrap_or(job.pri);
        job.delay = delay.unwrap_or(job.delay);
        job.ttr = ttr.map_or(job.ttr, |ttr| ttr.max(1));
        if changes_place {
            if place == JobPlacement::Buried {
                self.note_kick(key);
            }
            let to =
                delay.filter(|delay| *delay > 0).map(|delay| To::Delayed(step.now + Span::from_secs(delay.into())));
            self.move_job(key, to.unwrap_or(To::Ready), step);
        }
        self.note_job(key);
        self.promise(conn, Reply::JobSet, id, step);
    }

    /// Counts a kick of a job that is in no place, after which it has no attempts.
    pub(in crate::state) fn note_kick(&mut self, key: JobKey) {
        self.jobs.note(key, |history| {
            history.kicks.bump();
            history.attempts = SmallCount::ZERO;
        });
    }

    /// `cancel`: deletes reserved jobs. A touch of their runners is answered with the client that did.
    pub fn cancel(&mut self, conn: ConnId, what: JobsOf<'_>, step: &mut Step<'_, '_>) {
        let who = self.who(conn, step);
        let id = match what {
            JobsOf::Pattern(pattern) => {
                return self.begin_sweep(Some(conn), pattern, Work::Cancel(who), Answer::Count(Reply::Cancelled), step);
            }
            JobsOf::Job(id) => id,
        };
        let is_reserved = |key: &JobKey| self.jobs[*key].place == JobPlacement::Reserved;
        let Some(key) = self.visible(id).filter(is_reserved) else { return step.reply(conn, Reply::NotFound) };
        self.cancel_one(key, &who, step);
        self.promise(conn, Reply::Cancelled(1), id, step);
    }

    pub(in crate::state) fn cancel_one(&mut self, key: JobKey, who: &Arc<[u8]>, step: &mut Step<'_, '_>) {
        let Cancelled(last) = &mut self.cancelled;
        if last.len() == MOST_CANCELLED {
            last.pop_front();
        }
        last.push_back((self.jobs[key].id, Arc::clone(who)));
        self.delete_job(key, None, step);
    }

    /// Returns the name of a client, or its address.
    pub(in crate::state) fn who(&self, conn: ConnId, step: &Step<'_, '_>) -> Arc<[u8]> {
        let name = &self.conns[conn].name;
        if name.is_empty() { (step.peer)(conn).into_bytes().into() } else { (&**name).into() }
    }

    /// Returns the reply to a touch of a job that the connection does not hold. Only a connection that has said
    /// `identify`, which beanstalkd does not know, is told who has cancelled it.
    pub(in crate::state) fn not_held(&mut self, conn: ConnId, id: JobId) -> Reply {
        let Cancelled(last) = &self.cancelled;
        if self.conns[conn].name.is_empty() || last.is_empty() {
            return Reply::NotFound;
        }
        self.visited += last.len();
        let who = last.iter().rev().find(|(cancelled, _)| *cancelled == id);
        who.map_or(Reply::NotFound, |(_, who)| Reply::CancelledBy(Arc::clone(who)))
    }

    /// Returns a job that nobody has reserved.
    fn waiting_job(&self, id: JobId) -> Option<JobKey> {
        self.visible(id).filter(|key| self.jobs[*key].place != JobPlacement::Reserved)
    }
}
