//! The sweep that drops the counters that have expired with an interval, a bounded number of them at a time. They are the first of
//! the idle ones, as these stand in the order in which they were used.

use super::{CountersState, CountersStep};
use poolcounter_core::time::Time;
use poolcounter_protocol::counters::stats::CounterStat as Stat;

/// How many counters a sweep drops in a tick: a fraction of a millisecond.
const DROPPED_AT_ONCE: usize = 4096;

impl CountersState {
    /// Begins a sweep, if there are counters.
    pub(super) fn begin_sweep(&mut self, step: &mut CountersStep<'_>) {
        self.sweep = (!self.counters.is_empty()).then_some(step.now);
        self.continue_sweep(step);
    }

    /// Drops the next expired counters.
    pub(super) fn continue_sweep(&mut self, step: &mut CountersStep<'_>) {
        if self.sweep.is_none() {
            return;
        }
        for _ in 0..DROPPED_AT_ONCE {
            match self.idle.first() {
                Some(first) if self.drop_if_expired(first, step) => {}
                _ => return self.end_sweep(step.now),
            }
        }
    }

    /// Ends the sweep, if there is one, and counts it.
    pub(super) fn end_sweep(&mut self, now: Time) {
        let Some(began) = self.sweep.take() else { return };
        let elapsed = now.since(began);
        self.figures.count(Stat::GcCount);
        self.figures.set(Stat::LastGcElapsed, elapsed.as_micros());
        self.figures.add(Stat::TotalGcElapsed, elapsed);
    }
}
