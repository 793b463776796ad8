//! Growth of counts within the recent past.

use poolcounter_core::time::{Span, Time};
use std::collections::VecDeque;

/// Number of marks per period.
const MARKS: u64 = 12;

/// Counts at marks over the last period (one minute by default).
#[derive(Debug)]
pub struct Growth<const N: usize> {
    length: Span,
    marks: VecDeque<(Time, [u64; N])>,
}

impl<const N: usize> Default for Growth<N> {
    /// Returns the growth over one minute.
    fn default() -> Self {
        Growth::over(Span::from_secs(60))
    }
}

impl<const N: usize> Growth<N> {
    /// Returns the growth over this period, without marks.
    pub fn over(length: Span) -> Self {
        Growth { length, marks: VecDeque::new() }
    }

    /// Returns the growth of the counts over the last period, or since the first call, and the exact time that it
    /// covers. A decrease counts as no growth.
    pub fn growth(&mut self, now: Time, counts: [u64; N]) -> ([u64; N], Span) {
        let distance = Span::from_micros(self.length.as_micros() / MARKS);
        if self.marks.back().is_none_or(|(at, _)| now.since(*at) >= distance) {
            self.marks.push_back((now, counts));
        }
        // Keeps the oldest mark at least as old as the period.
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
