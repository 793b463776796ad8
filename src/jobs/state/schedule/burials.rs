//! Expiry of buried jobs. If buried jobs do not expire, nothing is kept here.

use crate::state::background::{COST, Task, keep_timer_at};
use crate::state::job::{JobId, JobKey, micros};
use crate::state::{State, Step, Timer};
use crate::stats::Jobs as Stat;
use poolcounter_core::{Span, Time, Timers};
use std::collections::BTreeSet;

/// Buried jobs by the times of their burials, the same as [`Job::buried_at`](crate::state::job::Job::buried_at).
pub(in crate::state) type Burials = BTreeSet<(i64, JobId)>;

impl State {
    /// Notes that a job is buried.
    pub(in crate::state) fn note_burial(&mut self, key: JobKey, timers: &mut Timers<'_, Timer>) {
        if self.bounds.bury_ttl != Span::FOREVER {
            self.burials.insert((self.jobs[key].buried_at(), self.jobs[key].id));
            self.arm_expiry(timers);
        }
    }

    /// Notes that a job is not buried any more.
    pub(in crate::state) fn forget_burial(&mut self, key: JobKey, timers: &mut Timers<'_, Timer>) {
        if self.burials.remove(&(self.jobs[key].buried_at(), self.jobs[key].id)) {
            self.arm_expiry(timers);
        }
    }

    /// Deletes expired buried jobs, within the slice; with `may_wait`, none while too much waits for a commit.
    pub(in crate::state) fn expire_buried(&mut self, may_wait: bool, step: &mut Step<'_, '_>) {
        while let Some((at, id)) = self.burials.first().copied()
            && self.expires_at(at) <= step.now
        {
            if may_wait && self.is_backed_up() || !step.timers.spend(COST) {
                return self.go_on(Task::Expire, step);
            }
            let key = self.jobs.find(id).expect("only jobs that there are are buried");
            self.figures.count(Stat::Expired);
            self.delete_job(key, None, step);
        }
        self.arm_expiry(step.timers);
    }

    fn expires_at(&self, buried_at: i64) -> Time {
        let ttl = micros(Time::START + self.bounds.bury_ttl);
        Time::from_micros(u64::try_from(buried_at.saturating_add(ttl)).unwrap_or(0))
    }

    fn arm_expiry(&mut self, timers: &mut Timers<'_, Timer>) {
        let next = self.burials.first().map(|(at, _)| self.expires_at(*at));
        keep_timer_at(&mut self.background.expiry, next, Timer::Expire, timers);
    }
}
