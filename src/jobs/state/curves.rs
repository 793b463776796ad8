//! How a wiki or a type of jobs stood in the last hour: points at equal distances, in a memory that does not grow.

use super::rates::Rated;
use super::sums::Tally;
use poolcounter_core::time::Span;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The time from one point to the next.
pub const INTERVAL: Span = Span::from_secs(30);
/// How many points are kept: an hour.
pub const KEPT: usize = 120;

/// How things stood at one moment, and what happened since the point before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// Ready jobs.
    pub ready: u32,
    /// How many seconds the oldest of them was ready.
    pub lag: u32,
    /// Jobs put.
    pub put: u32,
    /// Jobs deleted by clients.
    pub deleted: u32,
}

/// The points, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Curve {
    points: VecDeque<Point>,
    /// What was put and deleted until the last of them.
    counted: [u64; 2],
}

impl Curve {
    /// Returns a curve without points, of what happens from now on.
    pub fn beginning_with(tally: &Tally) -> Curve {
        Curve { points: VecDeque::new(), counted: counts_of(tally) }
    }

    /// Adds as many points as are due, for a time in which nothing happened but what comes before the first of them.
    pub fn push(&mut self, ready: u64, oldest: Span, tally: &Tally, due: u64) {
        let counts = counts_of(tally);
        let [put, deleted] = [0, 1].map(|n| narrow(counts[n].saturating_sub(self.counted[n])));
        self.counted = counts;
        let age = oldest.as_micros() / 1_000_000;
        for back in (0..due.min(KEPT as u64)).rev() {
            let passed = back.saturating_mul(INTERVAL.as_micros() / 1_000_000);
            let is_first = back + 1 == due;
            if self.points.len() == KEPT {
                self.points.pop_front();
            }
            self.points.push_back(Point {
                ready: narrow(ready),
                lag: narrow(age.saturating_sub(passed)),
                put: if is_first { put } else { 0 },
                deleted: if is_first { deleted } else { 0 },
            });
        }
    }

    /// Returns the points, oldest first.
    pub fn points(&self) -> impl Iterator<Item = Point> {
        self.points.iter().copied()
    }
}

fn counts_of(tally: &Tally) -> [u64; 2] {
    [Rated::Put, Rated::Delete].map(|event| tally.events[event as usize].get())
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_flat_and_only_ages_grow() {
        let mut tally = Tally::default();
        let mut curve = Curve::beginning_with(&tally);
        (tally.events[Rated::Put as usize], tally.events[Rated::Delete as usize]) = (7.into(), 2.into());
        curve.push(5, Span::from_secs(100), &tally, 3);
        let point = |lag, put, deleted| Point { ready: 5, lag, put, deleted };
        assert_eq!(curve.points().collect::<Vec<_>>(), [point(40, 7, 2), point(70, 0, 0), point(100, 0, 0)]);
        curve.push(5, Span::from_secs(1_000_000), &tally, u64::MAX);
        assert_eq!(curve.points().count(), KEPT);
        assert_eq!(curve.points().last(), Some(point(1_000_000, 0, 0)));
    }
}
