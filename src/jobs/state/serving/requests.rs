//! Requests about single jobs: delete, release, bury, touch, begin, kick, peek, fail. After a reservation that ends
//! badly, the job is ready at once, later each time, buried, or moved to a dead-letter tube.

use crate::state::ids::TubeId;
use crate::state::job::{JobId, JobKey, JobPlacement, Origin, To, micros};
use crate::state::tally::Counted;
use crate::state::tube::Rank;
use crate::state::{Backoff, Failure, JobState, Peek, Reply, State, Step, TubeName};
use crate::stats::Jobs as Stat;
use poolcounter_core::{ConnId, SmallCount, Span, Time};
use poolcounter_protocol::jobs::wire::MAX_ERROR_BYTES;

/// Beginnings of the errors that the server writes.
const LOST: &str = "the runner ";
const TIMED_OUT: &str = "the time to run of ";

/// Outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::state) enum Outcome {
    WaitsAgain,
    Buried,
}

impl State {
    /// `use`: sets the tube of later puts.
    pub fn use_tube(&mut self, conn: ConnId, name: TubeName<'_>, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Use);
        let Some(tube) = self.tube_for(name.bytes(), step.timers) else { return step.reply(conn, Reply::OutOfMemory) };
        self.tubes[tube].using += 1;
        let old = std::mem::replace(&mut self.conns[conn].used, tube);
        self.tubes[old].using -= 1;
        self.hide_if_unused(old, step.now, step.timers);
        step.reply(conn, Reply::Using);
    }

    /// `identify`: sets the runner's name.
    pub fn identify(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) {
        self.conns[conn].name = name.into();
        step.reply(conn, Reply::Identified(name.into()));
    }

    /// `delete`: deletes a job that the connection holds, or that is not reserved.
    pub fn delete(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Delete);
        let may = |key: &JobKey| self.jobs[*key].place != JobPlacement::Reserved || self.is_held_by(conn, *key);
        let Some(key) = self.visible(id).filter(may) else { return step.reply(conn, Reply::NotFound) };
        let noted = (Counted::Delete, self.run_time(key, step.now));
        self.conns[conn].rates.count(Counted::Delete, step.now);
        self.delete_job(key, Some(noted), step);
        self.promise(conn, Reply::Deleted, id, step);
    }

    /// Replies that a change of a job is done, once it is committed, and serves waiting connections.
    pub(in crate::state) fn promise(&mut self, conn: ConnId, reply: Reply, id: JobId, step: &mut Step<'_, '_>) {
        let after = self.this_commit();
        step.reply_after_of(conn, reply, after, id);
        self.serve_waiting(step);
    }

    /// Returns how long a job has been reserved, if it is.
    fn run_time(&self, key: JobKey, now: Time) -> Option<Span> {
        Some(now.since(self.reservation_of(key)?.since))
    }

    /// `release`: ends the reservation; the job is ready or delayed again.
    pub fn release(&mut self, conn: ConnId, id: JobId, pri: u32, delay: u32, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Release);
        let Some(key) = self.held_by(conn, id) else { return step.reply(conn, Reply::NotFound) };
        self.jobs.note(key, |history| history.releases.bump());
        let to = if delay == 0 { To::Ready } else { To::Delayed(step.now + Span::from_secs(u64::from(delay))) };
        self.set_pri(key, pri);
        self.jobs[key].delay = delay;
        self.move_job(key, to, step);
        self.note_job(key);
        self.promise(conn, Reply::Released, id, step);
    }

    /// `bury`: ends the reservation; the job is buried until a kick.
    pub fn bury(&mut self, conn: ConnId, id: JobId, pri: u32, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Bury);
        let Some(key) = self.held_by(conn, id) else { return step.reply(conn, Reply::NotFound) };
        self.jobs.note(key, |history| history.buries.bump());
        self.set_pri(key, pri);
        self.move_job(key, To::Buried, step);
        self.note_job(key);
        self.promise(conn, Reply::Buried, id, step);
    }

    /// `fail`: releases or buries a job, counts an attempt, and keeps a text of the failure.
    pub fn fail(&mut self, conn: ConnId, failure: Failure, text: &[u8], step: &mut Step<'_, '_>) {
        let Failure { id, pri, delay, buries } = failure;
        self.figures.count(Stat::Fail);
        let Some(key) = self.held_by(conn, id) else { return step.reply(conn, Reply::NotFound) };
        self.jobs.note(key, |history| history.releases.bump());
        self.set_error(key, text, step.now);
        self.set_pri(key, pri);
        self.jobs[key].delay = delay;
        let outcome = match buries {
            true => self.end_last_attempt(key, step),
            false => self.end_attempt(key, Backoff::DEFAULT, Span::from_secs(u64::from(delay)), step),
        };
        let reply = if outcome == Outcome::Buried { Reply::Buried } else { Reply::Released };
        self.promise(conn, reply, id, step);
    }

    /// `touch`: restarts the TTR of a job.
    pub fn touch(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Touch);
        let Some(key) = self.held_by(conn, id) else { return step.reply(conn, self.not_held(conn, id)) };
        let job = &mut self.jobs[key];
        let old = (job.at, id);
        job.at = step.now + Span::from_secs(u64::from(job.ttr));
        let new = (job.at, id);
        self.conns[conn].change_deadline(old, new);
        self.arm_conn(conn, step.timers);
        step.reply(conn, Reply::Touched);
    }

    /// `begin`: notes that the work on a job begins, so that the loss of its runner is an attempt.
    pub fn begin(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        let Some(key) = self.held_by(conn, id) else { return step.reply(conn, Reply::NotFound) };
        self.conns[conn].begin((self.jobs[key].at, id));
        step.reply(conn, Reply::Begun);
    }

    /// `kick-job`: makes a buried or delayed job ready, and sends a dead letter back.
    pub fn kick_job(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::KickJob);
        let waits = |key: &JobKey| match self.jobs[*key].place {
            JobPlacement::Buried | JobPlacement::Delayed => true,
            JobPlacement::Ready => self.jobs.origin_of(*key).is_some(),
            _ => false,
        };
        let Some(key) = self.visible(id).filter(waits) else { return step.reply(conn, Reply::NotFound) };
        self.kick_one(key, step);
        let after = self.this_commit();
        step.reply_after_of(conn, Reply::KickedJob, after, id);
    }

    /// Returns the state of a job; None if there is no such job, or its put is not committed.
    pub fn state_of(&self, id: JobId) -> Option<JobState> {
        self.visible(id).and_then(|key| self.jobs[key].state())
    }

    /// Makes a buried job ready, for an operator.
    pub fn kick_buried(&mut self, id: JobId, step: &mut Step<'_, '_>) {
        if let Some(key) = self.find_buried(id) {
            self.figures.count(Stat::KickJob);
            self.kick_one(key, step);
        }
    }

    /// Deletes a buried job, for an operator.
    pub fn delete_buried(&mut self, id: JobId, step: &mut Step<'_, '_>) {
        if let Some(key) = self.find_buried(id) {
            self.figures.count(Stat::Delete);
            self.delete_job(key, Some((Counted::Delete, None)), step);
        }
    }

    fn find_buried(&self, id: JobId) -> Option<JobKey> {
        self.visible(id).filter(|key| self.jobs[*key].place == JobPlacement::Buried)
    }

    /// Makes a job ready, a dead letter in the tube from which it comes, and resets its attempts.
    pub(in crate::state) fn kick_one(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        match self.jobs.origin_of(key).map(|origin| origin.tube.to_vec()) {
            Some(tube) => {
                let tube = self.tube_in_any_case(&tube);
                self.change_tube(key, tube, None, To::Ready, step);
            }
            None => self.move_job(key, To::Ready, step),
        }
        self.note_kick(key);
        self.note_job(key);
        self.serve_waiting(step);
    }

    /// `peek`: returns a job if it is visible.
    pub fn peek(&mut self, id: JobId) -> Option<JobId> {
        self.figures.count(Stat::Peek);
        self.visible(id).map(|_| id)
    }

    /// `peek-ready`, `peek-delayed`, `peek-buried`: returns the first such job of the used tube.
    pub fn peek_first(&mut self, conn: ConnId, which: Peek) -> Option<JobId> {
        let tube = &self.tubes[self.conns[conn].used];
        match which {
            Peek::Ready => {
                self.figures.count(Stat::PeekReady);
                tube.first_ready().map(Rank::id)
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

    /// Ends a reservation whose TTR has run out.
    pub(in crate::state) fn time_out(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Timeouts);
        self.jobs.note(key, |history| history.timeouts.bump());
        let holder = self.jobs[key].holder().0;
        let name = String::from_utf8_lossy(&self.conns[holder].name);
        let runner = if name.is_empty() { (step.peer)(holder) } else { name.into() };
        self.end_unheard(key, &format!("{TIMED_OUT}{} s was over at {runner}", self.jobs[key].ttr), step);
    }

    /// Ends a reservation whose connection has ended.
    pub(in crate::state) fn lose_reservation(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::LostReservations);
        if self.ends_connections {
            return self.move_job(key, To::Ready, step);
        }
        let runner = self.conns.lost_runner(self.jobs[key].holder().1);
        let seconds = self.run_time(key, step.now).map_or(0.0, |time| time.as_micros() as f64 / 1e6);
        self.end_unheard(key, &format!("{LOST}{runner} was lost after {seconds:.1} s"), step);
    }

    /// Ends a reservation without a word of its runner: as an attempt that failed for this reason, or as a release if the
    /// job had not begun.
    fn end_unheard(&mut self, key: JobKey, reason: &str, step: &mut Step<'_, '_>) {
        if !self.reservation_of(key).is_some_and(|held| held.is_begun) {
            self.note_job(key);
            return self.move_job(key, To::Ready, step);
        }
        self.tell_reason(key, reason, step.now);
        self.end_attempt(key, self.default_backoff(key), Span::ZERO, step);
    }

    /// Sets the error of a job whose attempt ended without a word of its runner. What a runner has told of an earlier
    /// attempt stays behind it.
    fn tell_reason(&mut self, key: JobKey, reason: &str, now: Time) {
        let earlier = self.jobs.extra(key).error;
        let is_own = [LOST, TIMED_OUT].iter().any(|beginning| earlier.starts_with(beginning.as_bytes()));
        let lines = earlier.splitn(2, |byte| *byte == b'\n').skip(usize::from(is_own));
        let mut text = std::iter::once(reason.as_bytes()).chain(lines).collect::<Vec<_>>().join(&b'\n');
        text.truncate(MAX_ERROR_BYTES as usize);
        self.set_error(key, text.trim_ascii_end(), now);
    }

    /// Sets the text of the last failure of a job.
    fn set_error(&mut self, key: JobKey, text: &[u8], now: Time) {
        self.jobs.set_error(key, text);
        if !text.is_empty() {
            self.tubes.note_error(self.jobs[key].tube, text, now);
        }
    }

    /// Returns the backoff of a tube without a setting: none for a plain client of beanstalkd, which expects none.
    fn default_backoff(&self, key: JobKey) -> Backoff {
        if self.conns.is_identified(self.jobs[key].holder()) { Backoff::DEFAULT } else { Backoff::NONE }
    }

    /// Counts an attempt, and buries the job: its runner reports that another attempt is useless.
    fn end_last_attempt(&mut self, key: JobKey, step: &mut Step<'_, '_>) -> Outcome {
        self.count_attempt(key, step);
        self.jobs.note(key, |history| history.buries.bump());
        self.move_job(key, To::Buried, step);
        Outcome::Buried
    }

    /// Counts an attempt, and returns the number of attempts.
    fn count_attempt(&mut self, key: JobKey, step: &mut Step<'_, '_>) -> u32 {
        self.jobs.note(key, |history| history.attempts.bump());
        let attempts = self.jobs.extra(key).history.attempts.get();
        self.note_job(key);
        self.tubes.note(self.jobs[key].tube, (Counted::Failure, None), step.now);
        let (conn, serial) = self.jobs[key].holder();
        let holder = self.conns.get_mut(conn).filter(|conn| conn.serial == serial);
        holder.into_iter().for_each(|conn| conn.failures.bump());
        attempts
    }

    /// Counts an attempt, and delays the job by the backoff of its tube, or `default` without a setting, but at least
    /// by `least`.
    fn end_attempt(&mut self, key: JobKey, default: Backoff, least: Span, step: &mut Step<'_, '_>) -> Outcome {
        let attempts = self.count_attempt(key, step);
        let backoff = self.settings.backoff_of(&self.tubes[self.jobs[key].tube].name).unwrap_or(default);
        if backoff.attempts > 0 && attempts >= backoff.attempts {
            self.give_up(key, step);
            return Outcome::Buried;
        }
        let delay = step.random.jitter(backoff.delay(attempts), 90, 110).max(least);
        if delay == Span::ZERO {
            self.move_job(key, To::Ready, step);
        } else {
            // Lossless: no backoff is longer than the longest delay by more than its jitter.
            self.jobs[key].delay = u32::try_from(delay.as_micros() / 1_000_000).unwrap_or(u32::MAX);
            self.move_job(key, To::Delayed(step.now + delay), step);
        }
        Outcome::WaitsAgain
    }

    /// Moves a job to the dead-letter tube after its last attempt, or buries it if there is none. A dead letter that fails
    /// again is buried: its tube may match the pattern, too.
    fn give_up(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        let old = self.jobs[key].tube;
        let is_dead_letter = self.jobs.origin_of(key).is_some();
        let dead = self.settings.dead_letter_of(&self.tubes[old].name).filter(|_| !is_dead_letter);
        let Some(dead) = dead.and_then(|name| self.tube_for(&name, step.timers)) else {
            self.jobs.note(key, |history| history.buries.bump());
            return self.move_job(key, To::Buried, step);
        };
        self.figures.count(Stat::DeadLetters);
        let attempts = self.jobs.extra(key).history.attempts.get();
        let tube = self.tubes[old].name.clone();
        let origin = Origin { tube: &tube, attempts, at: micros(step.now) };
        self.change_tube(key, dead, Some(origin), To::Ready, step);
    }

    /// Moves a job to a place in another tube, where it has no attempts yet.
    pub(in crate::state) fn change_tube(
        &mut self,
        key: JobKey,
        tube: TubeId,
        origin: Option<Origin<'_>>,
        to: To,
        step: &mut Step<'_, '_>,
    ) {
        let old = self.jobs[key].tube;
        self.move_job(key, To::Nowhere, step);
        self.jobs[key].tube = tube;
        self.jobs.set_origin(key, origin);
        self.jobs.note(key, |history| history.attempts = SmallCount::ZERO);
        self.tubes[tube].total_jobs.bump();
        self.move_job(key, to, step);
        self.hide_if_unused(old, step.now, step.timers);
    }

    /// Sets the priority of a job that is in no queue.
    fn set_pri(&mut self, key: JobKey, pri: u32) {
        debug_assert!(self.jobs[key].place == JobPlacement::Reserved, "a queue is ordered by priority");
        self.jobs[key].pri = pri;
    }
}
