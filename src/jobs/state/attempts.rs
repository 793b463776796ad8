//! Reservations that end badly: the job is back at once, later each time, buried, or moved to a dead-letter tube.

use super::conns::Conn;
use super::job::JobKey;
use super::placement::To;
use super::sums::Noted;
use super::{State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::count::SmallCount;
use poolcounter_core::id::Id;
use poolcounter_core::time::Span;

/// What became of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    WaitsAgain,
    Buried,
}

impl State {
    /// The TTR of a job ran out.
    pub(super) fn time_out(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Timeouts);
        self.jobs.change(key, |job| job.note(|history| history.timeouts.bump()));
        self.end_attempt(key, Span::ZERO, step);
    }

    /// The connection that held a job is gone.
    pub(super) fn lose_reservation(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::LostReservations);
        self.end_attempt(key, Span::ZERO, step);
    }

    /// Counts an attempt, and buries the job: its runner knows that another would be in vain.
    pub(super) fn end_last_attempt(&mut self, key: JobKey, step: &mut Step<'_, '_>) -> Outcome {
        self.count_attempt(key, step);
        self.jobs.change(key, |job| job.note(|history| history.buries.bump()));
        self.move_job(key, To::Buried, step.now, step.timers);
        Outcome::Buried
    }

    /// Counts an attempt, and returns how many there were.
    fn count_attempt(&mut self, key: JobKey, step: &mut Step<'_, '_>) -> u32 {
        let attempts = self.jobs.change(key, |job| {
            job.note(|history| history.attempts.bump());
            job.history().attempts.get()
        });
        self.note_job(key);
        self.note(self.jobs[key].tube, Noted::Failure, step.now);
        if let Some(conn) = self.holder_of(key) {
            conn.failures.bump();
        }
        attempts
    }

    /// Counts an attempt, and has the job wait for as long as its backoff says, and at least `least`.
    pub(super) fn end_attempt(&mut self, key: JobKey, least: Span, step: &mut Step<'_, '_>) -> Outcome {
        let attempts = self.count_attempt(key, step);
        let backoff = self.settings.backoff_of(&self.tubes[self.jobs[key].tube.index()].name);
        if backoff.attempts > 0 && attempts >= backoff.attempts {
            self.give_up(key, step);
            return Outcome::Buried;
        }
        let delay = step.random.jitter(backoff.delay(attempts), 90, 110).max(least);
        if delay == Span::ZERO {
            self.move_job(key, To::Ready, step.now, step.timers);
        } else {
            // Lossless: no backoff is longer than the longest delay by more than its jitter.
            self.jobs[key].delay = u32::try_from(delay.as_micros() / 1_000_000).unwrap_or(u32::MAX);
            self.move_job(key, To::Delayed(step.now + delay), step.now, step.timers);
        }
        Outcome::WaitsAgain
    }

    /// Returns the connection that holds a job, if it is still there.
    fn holder_of(&mut self, key: JobKey) -> Option<&mut Conn> {
        let (conn, serial) = self.jobs[key].holder();
        self.conns.get_mut(conn.index())?.as_deref_mut().filter(|conn| conn.serial == serial)
    }

    /// After its last attempt a job is moved to the dead-letter tube, or buried if there is none.
    fn give_up(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        let old = self.jobs[key].tube;
        let dead = self.settings.dead_letter_of(&self.tubes[old.index()].name);
        let Some(dead) = dead.and_then(|name| self.tube_for(&name, step.timers)) else {
            self.jobs.change(key, |job| job.note(|history| history.buries.bump()));
            return self.move_job(key, To::Buried, step.now, step.timers);
        };
        self.figures.count(Stat::DeadLetters);
        self.move_job(key, To::Nowhere, step.now, step.timers);
        self.jobs[key].tube = dead;
        self.jobs.change(key, |job| job.note(|history| history.attempts = SmallCount::ZERO));
        self.tubes[dead.index()].total_jobs.bump();
        self.move_job(key, To::Ready, step.now, step.timers);
        self.hide_if_unused(old, step.now, step.timers);
    }
}
