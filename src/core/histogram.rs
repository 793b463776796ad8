//! Histograms: counts of values in buckets that are fixed once for all, so that histograms can be added up and
//! compared.
//!
//! Each bucket is about a fifth wider than the one before, so that a quantile is accurate to [`ACCURACY`]. Their bounds
//! are round numbers, because fewer of them are exported: [`TIME_BOUNDS`], [`NUMBER_BOUNDS`].

use crate::count::Count;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// Greatest error of a quantile, as a share of its value, unless that is beyond [`LARGEST`].
pub const ACCURACY: f64 = 0.125;
/// Largest value with a bucket of its own: a day in microseconds. Larger values share one bucket.
pub const LARGEST: u64 = 24 * HOUR;
const HOUR: u64 = 3_600_000_000;

/// Exported bounds of times, in microseconds. A cache answers within the first bounds, a page is rendered within the
/// middle bounds, a request of five minutes is stuck, and jobs may wait for hours.
pub const TIME_BOUNDS: &[u64] = &[
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    HOUR,
    6 * HOUR,
    LARGEST,
];
/// Exported bounds of the times of ticks, in microseconds.
pub const TICK_BOUNDS: &[u64] = &[10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000];
/// Exported bounds of numbers.
pub const NUMBER_BOUNDS: &[u64] = &[0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];

/// Bounds in each power of ten, in tenths of it: each at most a quarter more than the one before.
const STEPS: [u64; 13] = [10, 12, 15, 18, 20, 25, 30, 36, 43, 50, 60, 72, 86];
/// Bounds above two hours, in tenths of an hour.
const TENTHS_OF_HOURS: [u64; 14] = [25, 30, 35, 40, 50, 60, 70, 80, 100, 120, 150, 180, 210, 240];
/// Number of bounds in steps: zero to nine, eight powers of ten, and the rest up to two hours.
const STEP_COUNT: usize = 10 + 8 * STEPS.len() + 12;
const BOUND_COUNT: usize = STEP_COUNT + TENTHS_OF_HOURS.len();
const BUCKETS: usize = BOUND_COUNT + 1;
/// Largest value of each bucket but the last, which has none. A constant would be copied at each use of an index.
static BOUNDS: [u64; BOUND_COUNT] = bounds();
/// Bucket of each small value: most times of ticks, and most numbers.
static SMALL: [u8; 1024] = small();

/// Counts of values by size. It takes 24 bytes, and 8 for each bucket up to that of its largest value, in steps of 128
/// bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "Saved", into = "Saved")]
pub struct Histogram {
    /// Counts of the first buckets; the further buckets are zero.
    counts: Box<[Count]>,
    sum: Count,
}

/// Number of buckets by which a histogram grows.
const GROWTH: usize = 16;

/// Value that a share of all values does not exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quantile {
    /// The value, accurate to [`ACCURACY`]; [`LARGEST`] if it is beyond that.
    pub value: u64,
    /// True if the value exceeds [`LARGEST`] (saturated).
    pub is_beyond: bool,
}

/// Saved form of a histogram: counts without the zeros at their end, and the sum.
type Saved = (Vec<Count>, Count);

const fn bounds() -> [u64; BOUND_COUNT] {
    let mut bounds = [0; BOUND_COUNT];
    let (mut at, mut power) = (0, 1);
    while at < 10 {
        bounds[at] = at as u64;
        at += 1;
    }
    while at < STEP_COUNT {
        bounds[at] = STEPS[(at - 10) % STEPS.len()] * power;
        at += 1;
        if (at - 10).is_multiple_of(STEPS.len()) {
            power *= 10;
        }
    }
    while at < BOUND_COUNT {
        bounds[at] = TENTHS_OF_HOURS[at - STEP_COUNT] * (HOUR / 10);
        at += 1;
    }
    bounds
}

const fn small() -> [u8; 1024] {
    let bounds = bounds();
    let mut small = [0; 1024];
    let (mut value, mut bucket) = (0, 0);
    while value < small.len() {
        if bounds[bucket] < value as u64 {
            bucket += 1;
        }
        small[value] = bucket as u8;
        value += 1;
    }
    small
}

#[inline]
fn bucket_of(value: u64) -> usize {
    let is_small = value < SMALL.len() as u64;
    if is_small { SMALL[value as usize].into() } else { BOUNDS.partition_point(|bound| *bound < value) }
}

impl Histogram {
    /// Counts one more span, in microseconds.
    pub fn record(&mut self, span: Span) {
        self.record_number(span.as_micros());
    }

    /// Counts one more value. A value that equals a bound counts below it.
    #[inline]
    pub fn record_number(&mut self, value: u64) {
        let bucket = bucket_of(value);
        match self.counts.get_mut(bucket) {
            Some(count) => count.bump(),
            None => {
                self.grow(bucket + 1);
                self.counts[bucket].bump();
            }
        }
        self.sum += value;
    }

    /// Makes room for this number of buckets.
    #[cold]
    fn grow(&mut self, buckets: usize) {
        if buckets > self.counts.len() {
            let mut counts = vec![Count::ZERO; buckets.next_multiple_of(GROWTH).min(BUCKETS)];
            counts[..self.counts.len()].copy_from_slice(&self.counts);
            self.counts = counts.into();
        }
    }

    /// Adds the values of another histogram.
    pub fn add(&mut self, other: &Histogram) {
        self.grow(other.counts.len());
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += *more);
        self.sum += other.sum;
    }

    /// Returns the values that came after an earlier state of this histogram.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut counts = self.counts.clone();
        counts.iter_mut().zip(&earlier.counts).for_each(|(count, before)| *count = count.less(*before));
        Histogram { counts, sum: self.sum.less(earlier.sum) }
    }

    /// Returns the bytes that its buckets take beside it.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.counts)
    }

    /// Returns the number of values. It adds up the buckets.
    pub fn count(&self) -> u64 {
        self.counts.iter().copied().sum::<Count>().get()
    }

    /// Returns the number of buckets up to the last with a value.
    pub fn filled(&self) -> usize {
        self.counts.iter().rposition(|count| *count > Count::ZERO).map_or(0, |last| last + 1)
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// Returns the number of values up to each of these bounds, which must be bounds here.
    pub fn cumulative<'a>(&'a self, bounds: &'a [u64]) -> impl Iterator<Item = (u64, u64)> + 'a {
        let (mut bucket, mut below) = (0, Count::ZERO);
        bounds.iter().map(move |bound| {
            let end = bucket_of(*bound) + 1;
            below += self.counts.iter().take(end).skip(bucket).copied().sum::<Count>();
            bucket = end;
            (*bound, below.get())
        })
    }

    /// Returns the value that this share of all values (0 to 1) does not exceed; None without values.
    pub fn quantile(&self, share: f64) -> Option<Quantile> {
        let rank = (share * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = Count::ZERO;
        let bucket = self.counts.iter().position(|count| {
            below += *count;
            below.get() >= rank
        })?;
        let Some(upper) = BOUNDS.get(bucket) else { return Some(Quantile { value: LARGEST, is_beyond: true }) };
        // Middle of the bucket, whose smallest value is one more than the bound below it.
        let value = if bucket == 0 { 0 } else { (BOUNDS[bucket - 1] + 1).midpoint(*upper) };
        Some(Quantile { value, is_beyond: false })
    }
}

impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        let [own, others] = [self, other].map(|of| &of.counts[..of.filled()]);
        (self.sum, own) == (other.sum, others)
    }
}

impl Eq for Histogram {}

impl From<Histogram> for Saved {
    fn from(histogram: Histogram) -> Self {
        (histogram.counts[..histogram.filled()].into(), histogram.sum)
    }
}

impl TryFrom<Saved> for Histogram {
    type Error = &'static str;

    fn try_from((counts, sum): Saved) -> Result<Self, Self::Error> {
        if counts.len() > BUCKETS {
            return Err("a histogram has other buckets");
        }
        let mut histogram = Histogram { sum, ..Histogram::default() };
        histogram.grow(counts.len());
        histogram.counts[..counts.len()].copy_from_slice(&counts);
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn bounds_are_close_and_in_order() {
        assert_eq!((BOUNDS[10], BOUNDS[BOUND_COUNT - 1]), (10, LARGEST));
        for pair in BOUNDS.windows(2) {
            assert!(pair[1] > pair[0] && (pair[1] <= pair[0] + 1 || pair[1] * 4 <= pair[0] * 5), "{pair:?}");
        }
        for bounds in [TIME_BOUNDS, TICK_BOUNDS, NUMBER_BOUNDS] {
            assert!(bounds.is_sorted() && bounds.iter().all(|bound| BOUNDS.contains(bound)), "{bounds:?}");
        }
    }

    #[test]
    fn value_is_in_the_first_bucket_above_it() {
        let around = |bound: &u64| [bound.saturating_sub(1), *bound, bound + 1];
        for value in BOUNDS.iter().flat_map(around).chain([u64::MAX, 1 << 40]) {
            assert_eq!(bucket_of(value), BOUNDS.partition_point(|bound| *bound < value), "{value}");
        }
    }

    #[test]
    fn value_counts_below_every_bound_up_from_it() {
        let mut histogram = Histogram::default();
        assert!(histogram.cumulative(TIME_BOUNDS).all(|(_, count)| count == 0));
        for value in [0, 1_000, 1_001, 9_000_000, 99 * HOUR] {
            histogram.record(Span::from_micros(value));
        }
        let cumulative: Vec<_> = histogram.cumulative(TIME_BOUNDS).collect();
        assert_eq!((cumulative[0], cumulative[1]), ((1_000, 2), (2_500, 3)));
        assert_eq!((cumulative[12], cumulative[18]), ((10_000_000, 4), (LARGEST, 4)));
        assert_eq!((histogram.count(), histogram.sum()), (5, 99 * HOUR + 9_002_001));
    }

    /// Spans of every size, distributed like the times of requests: many short, few long.
    #[test]
    fn quantiles_are_accurate() {
        let mut random = Random::from_seed(7);
        for most in [20, 3_000, 70_000, 5_000_000, LARGEST] {
            let mut histogram = Histogram::default();
            let mut values: Vec<u64> = (0..2_000).map(|_| random.below(most + 1)).collect();
            values.iter_mut().enumerate().for_each(|(n, value)| *value /= 1 + n as u64 % 50);
            values.iter().for_each(|value| histogram.record_number(*value));
            values.sort_unstable();
            for share in [0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let rank = ((share * 2_000.0_f64).ceil() as usize).max(1);
                let (wanted, got) = (values[rank - 1], histogram.quantile(share).expect("there are values"));
                let error = (got.value as f64 - wanted as f64).abs();
                assert!(error <= wanted as f64 * ACCURACY && !got.is_beyond, "{most} {share}: {got:?} for {wanted}");
            }
        }
    }

    #[test]
    fn values_beyond_the_last_bound_are_marked() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        histogram.record_number(LARGEST);
        assert!(!histogram.quantile(1.0).expect("there is one").is_beyond);
        (0..100).for_each(|_| histogram.record(Span::from_secs(90_000)));
        assert_eq!(histogram.quantile(0.99), Some(Quantile { value: LARGEST, is_beyond: true }));
    }

    #[test]
    fn two_are_added_up() {
        let (mut one, mut other, mut both) = (Histogram::default(), Histogram::default(), Histogram::default());
        both.add(&one);
        assert_eq!(both, Histogram::default());
        (0..10).for_each(|n| one.record_number(1 << n));
        (0..30).for_each(|n| other.record_number(7 * n));
        both.add(&one);
        both.add(&other);
        assert_eq!((both.since(&other), both.since(&both)), (one.clone(), Histogram::default()));
        (0..30).for_each(|n| one.record_number(7 * n));
        assert_eq!(both, one);
    }

    #[test]
    fn saved_histogram_is_restored() {
        let mut histogram = Histogram::default();
        for _ in 0..2 {
            let saved = postcard::to_allocvec(&histogram).expect("is written");
            assert_eq!(postcard::from_bytes(&saved), Ok(histogram.clone()));
            histogram.record_number(12_345);
        }
        let damaged = postcard::to_allocvec(&(vec![Count::MAX; BUCKETS + 1], Count::ZERO));
        assert!(postcard::from_bytes::<Histogram>(&damaged.expect("is written")).is_err());
    }
}
