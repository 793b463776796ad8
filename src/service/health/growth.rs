//! Growth of counts in the time that has just passed.

use poolcounter_core::time::{Span, Time};
use std::collections::VecDeque;

/// Number of marks in the time that is told of.
const MARKS: u64 = 12;

/// Some counts at some times of the last minute, or of another time.
#[derive(Debug)]
pub struct Growth<const N: usize> {
    length: Span,
    marks: VecDeque<(Time, [u64; N])>,
}

impl<const N: usize> Default for Growth<N> {
    /// Growth in the last minute.
    fn default() -> Self {
        Growth::over(Span::from_secs(60))
    }
}

impl<const N: usize> Growth<N> {
    /// Returns the growth in a time of this length, of which nothing is known yet.
    pub fn over(length: Span) -> Self {
        Growth { length, marks: VecDeque::new() }
    }

    /// Returns by how much the counts have grown in that time, or since the first call, and in what time it was. A count that has become
    /// less has not grown.
    pub fn growth(&mut self, now: Time, counts: [u64; N]) -> ([u64; N], Span) {
        let distance = Span::from_micros(self.length.as_micros() / MARKS);
        if self.marks.back().is_none_or(|(at, _)| now.since(*at) >= distance) {
            self.marks.push_back((now, counts));
        }
        // The oldest mark is as old as that, or a little older.
        while self.marks.get(1).is_some_and(|(at, _)| now.since(*at) >= self.length) {
            self.marks.pop_front();
        }
        let (since, before) = self.marks[0];
        (std::array::from_fn(|n| counts[n].saturating_sub(before[n])), now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_of_the_last_minute() {
        let mut growth = Growth::default();
        let at = |s: u64| Time::START + Span::from_secs(s);
        assert_eq!(growth.growth(at(0), [5]), ([0], Span::ZERO));
        for s in 1..=300 {
            let ([grown], within) = growth.growth(at(s), [5 + s]);
            assert_eq!(grown, within.as_micros() / 1_000_000);
            assert!(within >= Span::from_secs(s.min(60)) && within < Span::from_secs(66), "{within:?} after {s} s");
        }
        assert!(growth.marks.len() <= 14);
    }
}
