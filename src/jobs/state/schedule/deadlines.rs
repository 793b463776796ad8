//! Ends of delays and pauses that are stored anew, in slices, after the clock of the time of day was set.

use crate::state::background::{COST, DUE_COST, DeadlinePlace, Task};
use crate::state::commits::Change;
use crate::state::job::JobPlacement;
use crate::state::setting::SettingKind;
use crate::state::{JobState, SLICE, State, Step};
use poolcounter_core::{Metered as _, Time, meter};
use std::ops::Bound;

impl State {
    /// Returns whether a job is delayed, or a tube paused.
    pub fn has_deadlines(&self) -> bool {
        self.count_in(JobState::Delayed) > 0 || !self.settings.ends.is_empty()
    }

    /// Begins to store everything anew that is delayed or paused.
    pub fn store_times_anew(&mut self, step: &mut Step<'_, '_>) {
        self.background.deadlines = Some(DeadlinePlace::Pauses((Time::START, Box::default())));
        self.go_on(Task::Deadlines, step);
    }

    /// Stores more deadlines, within the slice; none while too much waits for a commit, if `may_wait`.
    pub(in crate::state) fn go_on_with_deadlines(&mut self, may_wait: bool, step: &mut Step<'_, '_>) {
        while let Some(place) = self.background.deadlines.take() {
            if may_wait && self.is_backed_up() || !step.timers.spend(COST) {
                self.background.deadlines = Some(place);
                return self.go_on(Task::Deadlines, step);
            }
            self.background.deadlines = match place {
                DeadlinePlace::Pauses(last) => Some(self.store_pause_after(last)),
                DeadlinePlace::Jobs(first) => self.store_delays_from(first, step),
            };
        }
    }

    fn store_pause_after(&mut self, last: (Time, Box<[u8]>)) -> DeadlinePlace {
        meter::visit();
        let next = self.settings.ends.range((Bound::Excluded(last), Bound::Unbounded)).next().cloned();
        let Some(next) = next else { return DeadlinePlace::Jobs(0) };
        self.note_change(Change::Setting(SettingKind::Pause, next.1.clone()));
        DeadlinePlace::Pauses(next)
    }

    fn store_delays_from(&mut self, first: usize, step: &mut Step<'_, '_>) -> Option<DeadlinePlace> {
        let (jobs, next) = self.jobs.iter_from(first, SLICE as usize);
        let (mut seen, mut delayed) = (0, Vec::new());
        for (key, job) in jobs.metered() {
            seen += 1;
            let is_delayed = job.place == JobPlacement::Delayed || job.place == JobPlacement::Pending && job.delay > 0;
            delayed.extend(is_delayed.then_some(key));
        }
        step.timers.charge(seen * DUE_COST);
        delayed.into_iter().for_each(|key| self.note_job(key));
        next.map(DeadlinePlace::Jobs)
    }
}
