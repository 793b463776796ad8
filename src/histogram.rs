//! How long things took: counts by length, in buckets that are fixed once for all, so that they can be added up and compared.

use crate::time::Span;
use serde::{Deserialize, Serialize};

/// The upper bounds of all buckets but the last, which has none. A cache answers within the first, a page is rendered within
/// those in the middle, and whoever is among the last is stuck.
pub const BOUNDS: [Span; 16] = [
    Span::from_millis(1),
    Span::from_micros(2_500),
    Span::from_millis(5),
    Span::from_millis(10),
    Span::from_millis(25),
    Span::from_millis(50),
    Span::from_millis(100),
    Span::from_millis(250),
    Span::from_millis(500),
    Span::from_secs(1),
    Span::from_millis(2_500),
    Span::from_secs(5),
    Span::from_secs(10),
    Span::from_secs(30),
    Span::from_secs(60),
    Span::from_secs(300),
];

/// Counts of spans by length.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Histogram {
    counts: [u64; BOUNDS.len() + 1],
    sum: Span,
}

impl Histogram {
    /// One more span. One that is as long as a bound counts below it.
    pub fn record(&mut self, span: Span) {
        self.counts[BOUNDS.partition_point(|bound| *bound < span)] += 1;
        self.sum += span;
    }

    /// All spans of another one more.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum += other.sum;
    }

    /// How many spans there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All spans together.
    pub fn sum(&self) -> Span {
        self.sum
    }

    /// For each bound, how many spans were no longer, as Prometheus counts them; all of them come last, without a bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<Span>, u64)> {
        let bounds = BOUNDS.into_iter().map(Some).chain([None]);
        bounds.zip(self.counts).scan(0, |below, (bound, count)| {
            *below += count;
            Some((bound, *below))
        })
    }

    /// The span that this share of all spans (0 to 1) does not exceed, estimated evenly within its bucket; None without spans.
    /// What is longer than every bound counts as the last of them.
    pub fn quantile(&self, share: f64) -> Option<Span> {
        let rank = share * self.count() as f64;
        let mut lower = (Span::ZERO, 0);
        for (bound, below) in self.cumulative() {
            let Some(bound) = bound else { break };
            if below > lower.1 && below as f64 >= rank {
                let part = (rank - lower.1 as f64) / (below - lower.1) as f64;
                let width = (bound.as_micros() - lower.0.as_micros()) as f64;
                return Some(lower.0 + Span::from_micros((width * part.max(0.0)) as u64));
            }
            lower = (bound, below);
        }
        (self.count() > 0).then_some(lower.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_counts_in_every_bucket_that_holds_it() {
        let mut histogram = Histogram::default();
        for span in
            [Span::ZERO, Span::from_millis(1), Span::from_micros(1_001), Span::from_secs(9), Span::from_secs(999)]
        {
            histogram.record(span);
        }
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative[0], (Some(Span::from_millis(1)), 2));
        assert_eq!(cumulative[1], (Some(Span::from_micros(2_500)), 3));
        assert_eq!(cumulative[12], (Some(Span::from_secs(10)), 4));
        assert_eq!(cumulative[16], (None, 5));
        assert_eq!((histogram.count(), histogram.sum()), (5, Span::from_micros(1_008_002_001)));
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        (0..100).for_each(|_| histogram.record(Span::from_millis(7)));
        assert_eq!(histogram.quantile(0.5), Some(Span::from_micros(7_500)));
        assert_eq!(histogram.quantile(1.0), Some(Span::from_millis(10)));
        (0..100).for_each(|_| histogram.record(Span::from_secs(5_000)));
        assert_eq!(histogram.quantile(0.99), Some(Span::from_secs(300)));
    }
}
