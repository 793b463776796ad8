//! The sweep that drops the counters that have expired with an interval, a bounded part of the table at a time.

use super::{CounterId, CountersState, CountersStep};
use crate::counters::stats::CounterStat as Stat;
use crate::id::Id;
use crate::time::Time;

/// How many slots of the table a sweep looks at in a tick: a fraction of a millisecond.
const SWEEP_SLOTS: usize = 4096;

/// A sweep that is under way.
pub(super) struct SweepProgress {
    /// The first slot of the table that it has not looked at.
    next: usize,
    began: Time,
}

impl CountersState {
    /// Begins a sweep, if there are counters.
    pub(super) fn begin_sweep(&mut self, step: &mut CountersStep<'_>) {
        self.sweep = (!self.counters.is_empty()).then_some(SweepProgress { next: 0, began: step.now });
        self.continue_sweep(step);
    }

    /// Sweeps the next part of the table.
    pub(super) fn continue_sweep(&mut self, step: &mut CountersStep<'_>) {
        let Some(sweep) = &mut self.sweep else { return };
        let part = sweep.next..self.slots.min(sweep.next + SWEEP_SLOTS);
        sweep.next = part.end;
        let is_last = part.end == self.slots;
        for slot in part {
            if self.counters.contains(slot) {
                self.drop_if_expired(CounterId::from_index(slot), step);
            }
        }
        if is_last {
            self.end_sweep(step.now);
        }
    }

    /// Ends the sweep, if there is one, and counts it.
    pub(super) fn end_sweep(&mut self, now: Time) {
        let Some(SweepProgress { began, .. }) = self.sweep.take() else { return };
        let elapsed = now.since(began);
        self.figures.count(Stat::GcCount);
        self.figures.set(Stat::LastGcElapsed, elapsed.as_micros());
        self.figures.add(Stat::TotalGcElapsed, elapsed);
    }
}
