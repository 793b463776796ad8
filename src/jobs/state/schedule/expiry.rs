//! Ends of what is kept for a time: buried jobs if they expire, root jobs, and tubes that are hidden. They share a timer.

use crate::state::background::{COST, Task, keep_timer_at};
use crate::state::commits::Change;
use crate::state::job::{JobId, JobKey, micros};
use crate::state::roots::Root;
use crate::state::{State, Step, Timer};
use crate::stats::Jobs as Stat;
use poolcounter_core::{Span, Time, Timers};
use std::collections::BTreeSet;

/// Time for which the rates of a removed tube are kept: the longest window.
const HIDDEN_KEPT: Span = Span::from_secs(15 * 60);

/// Buried jobs by the times of their burials, the same as [`Job::buried_at`](crate::state::job::Job::buried_at). Without an
/// expiry, nothing is kept here.
pub(in crate::state) type Burials = BTreeSet<(i64, JobId)>;

impl State {
    /// Notes that a job is buried.
    pub(in crate::state) fn note_burial(&mut self, key: JobKey, timers: &mut Timers<'_, Timer>) {
        if self.bounds.bury_ttl != Span::FOREVER {
            self.burials.insert((self.jobs[key].buried_at(), self.jobs[key].id));
            self.arm_forget(timers);
        }
    }

    /// Notes that a job is not buried any more.
    pub(in crate::state) fn forget_burial(&mut self, key: JobKey, timers: &mut Timers<'_, Timer>) {
        if self.burials.remove(&(self.jobs[key].buried_at(), self.jobs[key].id)) {
            self.arm_forget(timers);
        }
    }

    /// Returns the time at which the next buried job expires.
    fn first_expiry(&self) -> Option<Time> {
        let (buried_at, _) = self.burials.first()?;
        let ttl = micros(Time::START + self.bounds.bury_ttl);
        Some(Time::from_micros(u64::try_from(buried_at.saturating_add(ttl)).unwrap_or(0)))
    }

    /// Keeps the timer at the first end, or earlier.
    pub(in crate::state) fn arm_forget(&mut self, timers: &mut Timers<'_, Timer>) {
        let tube = self.tubes.first_hidden().map(|(since, _)| since + HIDDEN_KEPT);
        let next = [self.first_expiry(), self.roots.first_end(), tube].into_iter().flatten().min();
        keep_timer_at(&mut self.background.forget, next, Timer::Forget, timers);
    }

    /// Deletes expired buried jobs, with `may_wait` none while too much waits for a commit, and forgets root jobs that have
    /// not changed for 28 days and tubes that have been hidden for a while.
    pub(in crate::state) fn forget(&mut self, may_wait: bool, step: &mut Step<'_, '_>) {
        while step.timers.spend(COST) {
            let is_over = |end: Option<Time>| end.is_some_and(|end| end <= step.now);
            let expires = is_over(self.first_expiry());
            if expires && !(may_wait && self.is_backed_up()) {
                let (_, id) = *self.burials.first().expect("the first expires");
                let key = self.jobs.find(id).expect("only jobs that there are are buried");
                self.figures.count(Stat::Expired);
                self.delete_job(key, None, step);
            } else if is_over(self.roots.first_end()) {
                let Root { tube, signature, .. } = self.roots.forget_oldest().expect("the oldest is there");
                self.note_change(Change::RootGone(tube, signature));
            } else if let Some((since, tube)) = self.tubes.first_hidden()
                && since + HIDDEN_KEPT <= step.now
            {
                self.drop_tube(tube, step.timers);
            } else if expires {
                break;
            } else {
                return self.arm_forget(step.timers);
            }
        }
        self.go_on(Task::Forget, step);
    }
}
