//! Growth of counts within the recent past.

use poolcounter_core::{Span, Time};
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

    /// Returns the growth over this period of counts that were zero at this time.
    pub fn from_zero(length: Span, at: Time) -> Self {
        Growth { marks: VecDeque::from([(at, [0; N])]), ..Growth::over(length) }
    }

    /// Returns the growth of the counts over the last period, or since the first call, and the exact time that it
    /// covers. After a decrease, growth is that from the smaller count on.
    pub fn growth(&mut self, now: Time, counts: [u64; N]) -> ([u64; N], Span) {
        let distance = Span::from_micros(self.length.as_micros() / MARKS);
        if self.marks.back().is_none_or(|(at, _)| now.since(*at) >= distance) {
            self.marks.push_back((now, counts));
        }
        for (_, before) in &mut self.marks {
            *before = std::array::from_fn(|n| before[n].min(counts[n]));
        }
        // Keeps the oldest mark at least as old as the period.
        while self.marks.get(1).is_some_and(|(at, _)| now.since(*at) >= self.length) {
            self.marks.pop_front();
        }
        let (since, before) = self.marks[0];
        (std::array::from_fn(|n| counts[n] - before[n]), now.since(since))
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

    #[test]
    fn growth_after_a_decrease_is_counted() {
        let mut growth = Growth::default();
        let mut at = |s: u64, count: u64| growth.growth(Time::START + Span::from_secs(s), [count]).0[0];
        assert_eq!([at(0, 30), at(10, 40), at(20, 5), at(25, 12)], [0, 10, 0, 7]);
    }

    #[test]
    fn growth_from_zero_counts_the_first_events() {
        let mut growth = Growth::from_zero(Span::from_secs(60), Time::START);
        let at = |s: u64| Time::START + Span::from_secs(s);
        assert_eq!(growth.growth(at(10), [30]), ([30], Span::from_secs(10)));
        assert_eq!(growth.growth(at(40), [30]).0, [30]);
        assert_eq!(growth.growth(at(110), [30]).0, [0]);
    }
}
