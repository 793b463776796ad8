//! What the loop knows of itself: how long its ticks take, how much is done in one, which budgets ended one early, and how
//! much memory the process has. It is told the time; nobody reads a clock for it.

use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// The upper bounds of the buckets for the durations of ticks, in microseconds.
const TICK_MICROS: &[u64] = &[10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000];
/// The upper bounds of the buckets for the turns in a tick.
const TICK_TURNS: &[u64] = &[0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];

/// What bounds the work of a tick or of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// Events taken from the system in a tick.
    Events,
    /// Connections accepted from one port in a tick.
    Accepts,
    /// Requests of one connection in a tick.
    Requests,
    /// Time spent serving in a tick.
    Serving,
    /// Unsent output of one connection.
    Output,
    /// Timers fired in a tick.
    Timers,
    /// Connections written to in a tick.
    Writes,
    /// Connections dropped in a tick.
    Ends,
}

/// The loop's figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pulse {
    /// How long ticks took, in microseconds: from the first look at the clock after waking up until the loop sleeps again.
    pub durations: Spread,
    /// How many connections had their turn in a tick.
    pub turns: Spread,
    /// The resident memory of the process when it was last looked at, in bytes.
    pub memory_bytes: u64,
    /// The last reload, if there was one. The process that takes over knows by itself that it did.
    #[serde(skip)]
    pub reload: Option<Reload>,
    /// How often each budget was used up, in the order of [`Budget::ALL`].
    spent: Vec<u64>,
    begun: Option<Time>,
    turns_now: u64,
}

/// A reload: the settings were to be read again, perhaps by another program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reload {
    /// When it was asked for, or done.
    pub at: Time,
    /// Whether all of the settings count. False as long as it is under way.
    pub has_worked: bool,
}

/// How often a number was how large: counts in buckets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spread {
    bounds: Vec<u64>,
    /// One more than there are bounds: the last bucket has none.
    counts: Vec<u64>,
    sum: u64,
}

impl Budget {
    /// Every budget.
    pub const ALL: [Budget; 8] = [
        Budget::Events,
        Budget::Accepts,
        Budget::Requests,
        Budget::Serving,
        Budget::Output,
        Budget::Timers,
        Budget::Writes,
        Budget::Ends,
    ];

    /// Its name, as metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Budget::Events => "events",
            Budget::Accepts => "accepts",
            Budget::Requests => "requests",
            Budget::Serving => "serving",
            Budget::Output => "output",
            Budget::Timers => "timers",
            Budget::Writes => "writes",
            Budget::Ends => "ends",
        }
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Pulse {
            durations: Spread::new(TICK_MICROS),
            turns: Spread::new(TICK_TURNS),
            memory_bytes: 0,
            reload: None,
            spent: vec![0; Budget::ALL.len()],
            begun: None,
            turns_now: 0,
        }
    }
}

impl Pulse {
    /// Goes on from what an earlier version counted, which knew fewer budgets.
    pub fn restored(durations: Spread, turns: Spread, memory_bytes: u64, spent: &[u64]) -> Self {
        let mut pulse = Pulse { durations, turns, memory_bytes, ..Pulse::default() };
        pulse.spent.iter_mut().zip(spent).for_each(|(now, before)| *now = *before);
        pulse
    }

    /// The loop is awake. Whoever looks at the clock first says so.
    pub fn begin_tick(&mut self, now: Time) {
        self.begun.get_or_insert(now);
    }

    /// A connection has its turn.
    pub fn count_turn(&mut self, now: Time) {
        self.begin_tick(now);
        self.turns_now += 1;
    }

    /// The loop is about to sleep, or to look whether it must not.
    pub fn end_tick(&mut self, now: Time) {
        if let Some(begun) = self.begun.take() {
            self.durations.record(now.since(begun).as_micros());
            self.turns.record(std::mem::take(&mut self.turns_now));
        }
    }

    /// A budget was used up, and there was more to do.
    pub fn count_spent(&mut self, budget: Budget) {
        self.spent[budget as usize] += 1;
    }

    /// How often a budget was used up.
    pub fn spent(&self, budget: Budget) -> u64 {
        self.spent[budget as usize]
    }

    /// How long the loop was awake in all its ticks.
    pub fn busy(&self) -> Span {
        Span::from_micros(self.durations.sum)
    }
}

impl Spread {
    fn new(bounds: &[u64]) -> Self {
        Spread { bounds: bounds.into(), counts: vec![0; bounds.len() + 1], sum: 0 }
    }

    fn record(&mut self, value: u64) {
        // From below, because most values are small.
        let bucket = self.bounds.iter().position(|bound| *bound >= value).unwrap_or(self.bounds.len());
        self.counts[bucket] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All values together.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// For each bound, how many values were no larger; all of them come last, without a bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(&self.counts).scan(0, |below, (bound, count)| {
            *below += count;
            Some((bound, *below))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_lasts_from_waking_up_to_sleeping() {
        let mut pulse = Pulse::default();
        pulse.end_tick(Time::from_micros(5));
        assert_eq!(pulse.durations.count(), 0, "no tick had begun");
        for (begun, ended, turns) in [(10, 20, 1), (1_000, 1_011, 3), (5_000, 1_005_000, 0)] {
            pulse.begin_tick(Time::from_micros(begun));
            (0..turns).for_each(|_| pulse.count_turn(Time::from_micros(ended)));
            pulse.end_tick(Time::from_micros(ended));
        }
        assert_eq!((pulse.durations.count(), pulse.busy()), (3, Span::from_micros(1_000_021)));
        let durations: Vec<_> = pulse.durations.cumulative().collect();
        assert_eq!((durations[0], durations[1]), ((Some(10), 1), (Some(25), 2)));
        assert_eq!((durations[11], durations[12]), ((Some(100_000), 2), (None, 3)));
        let turns: Vec<u64> = pulse.turns.cumulative().map(|(_, count)| count).take(4).collect();
        assert_eq!((turns, pulse.turns.sum()), (vec![1, 2, 2, 3], 4));
    }
}
