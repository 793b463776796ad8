//! Sweep that drops the counters that have expired with an interval, in slices. They are first in the queue of idle
//! counters, which has the order of their last use.

use super::{CountersState, CountersStep};
use poolcounter_core::Time;
use poolcounter_protocol::counters::stats::CounterStat as Stat;

impl CountersState {
    /// Starts a sweep, if there are counters.
    pub(super) fn begin_sweep(&mut self, step: &mut CountersStep<'_>) {
        self.sweep = (!self.counters.is_empty()).then_some(step.now);
        self.work(step);
    }

    /// Drops expired counters, as far as the budget of the tick lasts.
    pub(super) fn continue_sweep(&mut self, step: &mut CountersStep<'_>) {
        while self.sweep.is_some() && step.timers.spend(1) {
            match self.idle.queue.front() {
                Some(first) if self.drop_if_expired(first, step) => {}
                _ => self.end_sweep(step.now),
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
