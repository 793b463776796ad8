//! The sweep that drops what was not used in the interval that has just ended, a bounded part of the table at a time.

use super::{CounterId, State, Step};
use crate::counters::stats::CounterStat as Stat;
use crate::id::Id;
use crate::time::Time;

/// How many places in the table a sweep looks at before others have their turn: a fraction of a millisecond.
const SWEEP_SLOTS: usize = 4096;

/// A sweep that is under way.
pub(super) struct Sweep {
    /// The first place in the table that it has not looked at.
    next: usize,
    began: Time,
}

impl State {
    /// Begins anew, if there is anything to sweep.
    pub(super) fn begin_sweep(&mut self, step: &mut Step<'_>) {
        self.sweep = (!self.counters.is_empty()).then_some(Sweep { next: 0, began: step.now });
        self.go_on_with_sweep(step);
    }

    /// Sweeps the next part of the table.
    pub(super) fn go_on_with_sweep(&mut self, step: &mut Step<'_>) {
        let Some(sweep) = &mut self.sweep else { return };
        let part = sweep.next..self.slots.min(sweep.next + SWEEP_SLOTS);
        sweep.next = part.end;
        let is_last = part.end == self.slots;
        for slot in part {
            if self.counters.contains(slot) {
                self.drop_if_over(CounterId::from_index(slot), step);
            }
        }
        if is_last {
            self.end_sweep(step.now);
        }
    }

    /// Everything was looked at, or there is nothing left. It may have ended before.
    pub(super) fn end_sweep(&mut self, now: Time) {
        let Some(Sweep { began, .. }) = self.sweep.take() else { return };
        let elapsed = now.since(began);
        self.figures.count(Stat::GcCount);
        self.figures.set(Stat::LastGcElapsed, elapsed.as_micros());
        self.figures.add(Stat::TotalGcElapsed, elapsed);
    }
}
