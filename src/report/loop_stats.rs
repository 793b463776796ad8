//! Figures of the loop about its own work: duration of ticks, work per tick, and budgets that ended one early. Callers
//! pass in the time.

use poolcounter_core::{Count, Histogram, Span, Time, words};
use serde::{Deserialize, Serialize};

words! {
    /// Limit of the work in a tick or a turn.
    pub enum Budget, name {
        /// Events taken from the system in a tick.
        Events = "events",
        /// Connections accepted from one port in a tick.
        Accepts = "accepts",
        /// Requests of one connection in a tick.
        Requests = "requests",
        /// Time spent serving in a tick.
        Serving = "serving",
        /// Unsent output of one connection.
        Output = "output",
        /// Timers fired in a tick.
        Timers = "timers",
        /// Connections written to in a tick.
        Writes = "writes",
        /// Connections dropped in a tick.
        Ends = "ends",
        /// Background work of all services in a tick.
        Slices = "slices",
    }
}

/// Figures of the loop.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoopStats {
    /// Durations of ticks in microseconds: from the first clock reading after waking up until the loop sleeps again.
    pub durations: Histogram,
    /// Numbers of connections that had a turn, by tick.
    pub turns: Histogram,
    /// Last reload, if any. Not handed over: the new process records its own start as one.
    #[serde(skip)]
    pub reload: Option<Reload>,
    /// Number of times each budget was used up, in the order of [`Budget::ALL`].
    spent: Vec<Count>,
    begun: Option<Time>,
    turns_now: u64,
}

/// Reload of the settings, possibly by an upgrade to another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reload {
    /// Time of its end.
    pub at: Time,
    /// True if all settings were applied.
    pub has_worked: bool,
}

impl LoopStats {
    /// Starts a tick, at the first clock reading. Later calls in the same tick have no effect.
    pub fn begin_tick(&mut self, now: Time) {
        self.begun.get_or_insert(now);
    }

    /// Counts the turn of a connection.
    pub fn count_turn(&mut self, now: Time) {
        self.begin_tick(now);
        self.turns_now += 1;
    }

    /// Ends a tick, before the loop sleeps or polls again.
    pub fn end_tick(&mut self, now: Time) {
        if let Some(begun) = self.begun.take() {
            self.durations.record(now.since(begun));
            self.turns.record_number(std::mem::take(&mut self.turns_now));
        }
    }

    /// Counts a budget that was used up with work left.
    pub fn count_spent(&mut self, budget: Budget) {
        // Figures that are new, or were handed over, may lack budgets.
        if self.spent.len() < Budget::ALL.len() {
            self.spent.resize(Budget::ALL.len(), Count::default());
        }
        self.spent[budget as usize].bump();
    }

    /// Returns the number of times a budget was used up.
    pub fn spent(&self, budget: Budget) -> u64 {
        self.spent.get(budget as usize).map_or(0, |count| count.get())
    }

    /// Returns the total time that the loop was awake.
    pub fn busy(&self) -> Span {
        Span::from_micros(self.durations.sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::histogram::{NUMBER_BOUNDS, TICK_BOUNDS};

    #[test]
    fn tick_lasts_from_waking_up_to_sleeping() {
        let mut stats = LoopStats::default();
        stats.end_tick(Time::from_micros(5));
        assert_eq!(stats.durations.count(), 0, "no tick had begun");
        for (begun, ended, turns) in [(10, 20, 1), (1_000, 1_011, 3), (5_000, 1_005_000, 0)] {
            stats.begin_tick(Time::from_micros(begun));
            (0..turns).for_each(|_| stats.count_turn(Time::from_micros(ended)));
            stats.end_tick(Time::from_micros(ended));
        }
        assert_eq!((stats.durations.count(), stats.busy()), (3, Span::from_micros(1_000_021)));
        let durations: Vec<_> = stats.durations.cumulative(TICK_BOUNDS).collect();
        assert_eq!((durations[0], durations[1], durations[11]), ((10, 1), (25, 2), (100_000, 2)));
        let turns: Vec<u64> = stats.turns.cumulative(NUMBER_BOUNDS).map(|(_, count)| count).take(4).collect();
        assert_eq!((turns, stats.turns.sum()), (vec![1, 2, 2, 3], 4));
    }
}
