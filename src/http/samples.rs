//! How things stood in the last ten minutes: samples at equal distances. They are taken when something happens anyway; where
//! nothing happened, things stood as they do now.

use crate::report::Sample;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The time from one sample to the next.
pub const INTERVAL: Span = Span::from_secs(3);
/// How many samples are kept: ten minutes.
pub const KEPT: usize = 201;

/// The samples of the last ten minutes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Samples {
    /// When the next one is due.
    next: Time,
    kept: VecDeque<Sample>,
}

impl Default for Samples {
    fn default() -> Self {
        Samples { next: Time::START, kept: VecDeque::with_capacity(KEPT) }
    }
}

impl Samples {
    /// Returns when the next sample is due.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Notes how things stand now, and have stood since the last tick.
    pub fn note(&mut self, now: Time, sample: Sample) {
        if now < self.next {
            return;
        }
        let due = 1 + now.since(self.next).as_micros() / INTERVAL.as_micros();
        self.next = self.next + Span::from_micros(due.saturating_mul(INTERVAL.as_micros()));
        for _ in 0..due.min(KEPT as u64) {
            if self.kept.len() == KEPT {
                self.kept.pop_front();
            }
            self.kept.push_back(sample);
        }
    }

    /// The samples, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Sample> {
        self.kept.iter()
    }

    /// What became more, in each second, from one sample to the next.
    pub fn rates(&self, count: impl Fn(&Sample) -> u64) -> Vec<f64> {
        let seconds = INTERVAL.as_micros() as f64 / 1e6;
        let pairs = self.kept.iter().zip(self.kept.iter().skip(1));
        pairs.map(|(before, after)| count(after).saturating_sub(count(before)) as f64 / seconds).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::from_micros(s * 1_000_000)
    }

    fn sample(acquired: u64) -> Sample {
        Sample { acquired, ..Sample::default() }
    }

    fn acquired(samples: &Samples) -> Vec<u64> {
        samples.iter().map(|sample| sample.acquired).collect()
    }

    #[test]
    fn gaps_are_flat() {
        let mut samples = Samples::default();
        samples.note(at(0), sample(0));
        assert!(samples.next() > at(2));
        samples.note(at(2), sample(3));
        assert_eq!(acquired(&samples), [0], "none was due");
        samples.note(at(13), sample(6));
        assert_eq!(acquired(&samples), [0, 6, 6, 6, 6]);
        assert_eq!(samples.rates(|sample| sample.acquired), [2.0, 0.0, 0.0, 0.0]);
        assert!(samples.next() <= at(15) && samples.next() > at(14));
    }

    #[test]
    fn the_last_moment_is_one_like_others() {
        let mut samples = Samples::default();
        samples.note(Time::from_micros(u64::MAX), sample(7));
        samples.note(Time::from_micros(u64::MAX), sample(8));
        assert_eq!(samples.kept.len(), KEPT);
    }

    #[test]
    fn ten_minutes_are_kept() {
        let mut samples = Samples::default();
        samples.note(at(0), sample(0));
        samples.note(at(1_000_000_000), sample(1));
        assert_eq!(acquired(&samples), [1; KEPT]);
        assert!(samples.next() > at(1_000_000_000) && samples.next() <= at(1_000_000_003), "its rhythm goes on");
        samples.note(at(1_000_000_003), sample(2));
        assert_eq!((samples.kept.len(), acquired(&samples)[KEPT - 2..].to_vec()), (KEPT, vec![1, 2]));
        assert_eq!(samples.rates(|sample| sample.acquired).len(), 200);
    }
}
