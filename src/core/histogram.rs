//! How often a value was how large: counts in buckets that are fixed once for all, so that they can be added up and compared.
//!
//! The buckets are about a fifth wider from one to the next, so that a quantile is right to [`ACCURACY`]. Their bounds are round
//! numbers, for fewer of them are exported: [`TIME_BOUNDS`], [`NUMBER_BOUNDS`].

use crate::count::Count;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// How far a quantile is from the value that it stands for, at most, as a share of it; if it is not beyond [`LARGEST`].
pub const ACCURACY: f64 = 0.125;
/// The largest value that is told apart: five minutes in microseconds. Of what is larger, only that is known.
pub const LARGEST: u64 = 300_000_000;

/// The bounds that are exported of how long things took, in microseconds. A cache answers within the first ones, a page is
/// rendered within those in the middle, and a request among the last is stuck.
pub const TIME_BOUNDS: &[u64] = &[
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000, 60_000_000, LARGEST,
];
/// The bounds that are exported of how long ticks took, in microseconds.
pub const TICK_BOUNDS: &[u64] = &[10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000];
/// The bounds that are exported of how many there were of something.
pub const NUMBER_BOUNDS: &[u64] = &[0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];

/// The bounds in each power of ten, in tenths of it: each a quarter more than the one before, at most.
const STEPS: [u64; 13] = [10, 12, 15, 18, 20, 25, 30, 36, 43, 50, 60, 72, 86];
/// How many bounds there are: zero to nine, seven powers of ten, and the rest up to [`LARGEST`].
const BOUND_COUNT: usize = 10 + 7 * STEPS.len() + 7;
const BUCKETS: usize = BOUND_COUNT + 1;
/// The largest value of each bucket but the last, which has none. A constant would be copied wherever it is indexed.
static BOUNDS: [u64; BOUND_COUNT] = bounds();
/// The bucket of each small value: of those of most ticks, and of most numbers.
static SMALL: [u8; 1024] = small();
/// For each number of binary digits, and the two behind the first, the first bucket that may hold such a value.
static FIRST_BY_DIGITS: [u8; 65 * 4] = first_by_digits();

/// Counts of values by size. It takes 24 bytes until there is a value, then 900 more, for ever.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "SavedHistogram", into = "SavedHistogram")]
pub struct Histogram {
    counts: Option<Box<[Count; BUCKETS]>>,
    count: Count,
    sum: Count,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: None, count: Count::ZERO, sum: Count::default() }
    }
}

/// A value that a share of all values does not exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quantile {
    /// The value, right to [`ACCURACY`]; [`LARGEST`] if it is beyond that.
    pub value: u64,
    /// Whether it is larger than [`LARGEST`], nobody knows by how much.
    pub is_beyond: bool,
}

/// What outlives the process.
#[derive(Serialize, Deserialize)]
struct SavedHistogram {
    /// The counts without the zeros at their end.
    counts: Vec<Count>,
    sum: Count,
}

const fn bounds() -> [u64; BOUND_COUNT] {
    let mut bounds = [0; BOUND_COUNT];
    let (mut at, mut power) = (0, 1);
    while at < 10 {
        bounds[at] = at as u64;
        at += 1;
    }
    while at < BOUND_COUNT {
        bounds[at] = STEPS[(at - 10) % STEPS.len()] * power;
        at += 1;
        if (at - 10).is_multiple_of(STEPS.len()) {
            power *= 10;
        }
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

const fn first_by_digits() -> [u8; 65 * 4] {
    let bounds = bounds();
    let mut first = [0; 65 * 4];
    let (mut at, mut bucket) = (3 * 4, 0);
    while at < first.len() {
        let smallest = (4 + at as u64 % 4) << (at / 4 - 3);
        while bucket < BOUND_COUNT && bounds[bucket] < smallest {
            bucket += 1;
        }
        first[at] = bucket as u8;
        at += 1;
    }
    first
}

#[cold]
fn no_counts() -> Box<[Count; BUCKETS]> {
    Box::new([Count::ZERO; BUCKETS])
}

#[inline]
fn bucket_of(value: u64) -> usize {
    if value < SMALL.len() as u64 { usize::from(SMALL[value as usize]) } else { large_bucket_of(value) }
}

fn large_bucket_of(value: u64) -> usize {
    let digits = (u64::BITS - value.leading_zeros()) as usize;
    let next_two = (value >> (digits - 3)) as usize % 4;
    let mut bucket = usize::from(FIRST_BY_DIGITS[digits * 4 + next_two]);
    // Two steps at most: a quarter of a power of two has no more bounds.
    while bucket < BOUND_COUNT && BOUNDS[bucket] < value {
        bucket += 1;
    }
    bucket
}

impl Histogram {
    /// Counts one more span, in microseconds.
    pub fn record(&mut self, span: Span) {
        self.record_number(span.as_micros());
    }

    /// Counts one more value. One that is as large as a bound counts below it.
    #[inline]
    pub fn record_number(&mut self, value: u64) {
        self.counts.get_or_insert_with(no_counts)[bucket_of(value)].bump();
        self.count.bump();
        self.sum += value;
    }

    /// Makes it of counts in fewer buckets, whose bounds are bounds here; the last has none. Each is taken to be spread evenly.
    pub fn of_coarse(bounds: &[u64], counts: &[u64], sum: u64) -> Self {
        let mut fine = no_counts();
        let mut first = 0;
        for (n, count) in counts.iter().enumerate() {
            let last = bounds.get(n).map_or(BOUND_COUNT, |bound| bucket_of(*bound));
            let mut given = 0;
            for bucket in first..=last {
                let share = u128::from(*count) * (bucket - first + 1) as u128 / (last - first + 1) as u128;
                // Lossless: a share of a count.
                fine[bucket] += share as u64 - given;
                given = share as u64;
            }
            first = last + 1;
        }
        Histogram { count: counts.iter().copied().map(Count::from).sum(), sum: sum.into(), counts: Some(fine) }
    }

    /// Counts every value of another one more.
    pub fn add(&mut self, other: &Histogram) {
        if let Some(more) = &other.counts {
            let counts = self.counts.get_or_insert_with(no_counts);
            counts.iter_mut().zip(more.iter()).for_each(|(count, more)| *count += *more);
        }
        self.count += other.count;
        self.sum += other.sum;
    }

    /// Returns the values that came after those of an earlier state of this histogram.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut counts = self.counts.clone();
        if let (Some(counts), Some(before)) = (&mut counts, &earlier.counts) {
            counts.iter_mut().zip(before.iter()).for_each(|(count, before)| *count = count.less(*before));
        }
        let (count, sum) = (self.count.less(earlier.count), self.sum.less(earlier.sum));
        Histogram { counts: counts.filter(|_| count > Count::ZERO), count, sum }
    }

    /// Returns how many values there were.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Returns in how many buckets the values are, with those before them.
    pub fn filled(&self) -> usize {
        let last = self.counts.iter().flat_map(|counts| counts.iter().rposition(|count| *count > Count::ZERO)).next();
        last.map_or(0, |last| last + 1)
    }

    /// Returns the sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.get()
    }

    /// Returns for each of these bounds, which must be bounds here, how many values were no larger.
    pub fn cumulative<'a>(&'a self, bounds: &'a [u64]) -> impl Iterator<Item = (u64, u64)> + 'a {
        let (mut bucket, mut below) = (0, Count::ZERO);
        bounds.iter().map(move |bound| {
            let end = bucket_of(*bound) + 1;
            if let Some(counts) = &self.counts {
                below += counts[bucket..end].iter().copied().sum::<Count>();
            }
            bucket = end;
            (*bound, below.get())
        })
    }

    /// Returns the value that this share of all values (0 to 1) does not exceed; None without values.
    pub fn quantile(&self, share: f64) -> Option<Quantile> {
        let counts = self.counts.as_ref()?;
        let rank = (share * self.count.get() as f64).ceil().max(1.0) as u64;
        let mut below = Count::ZERO;
        let bucket = counts.iter().position(|count| {
            below += *count;
            below.get() >= rank
        })?;
        let Some(upper) = BOUNDS.get(bucket) else { return Some(Quantile { value: LARGEST, is_beyond: true }) };
        // The middle of the bucket, whose smallest value is one more than the bound below it.
        let value = if bucket == 0 { 0 } else { (BOUNDS[bucket - 1] + 1).midpoint(*upper) };
        Some(Quantile { value, is_beyond: false })
    }
}

impl From<Histogram> for SavedHistogram {
    fn from(histogram: Histogram) -> Self {
        let counts = histogram.counts.as_deref().map_or(&[][..], |counts| &counts[..histogram.filled()]);
        SavedHistogram { counts: counts.into(), sum: histogram.sum }
    }
}

impl TryFrom<SavedHistogram> for Histogram {
    type Error = &'static str;

    fn try_from(saved: SavedHistogram) -> Result<Self, Self::Error> {
        if saved.counts.is_empty() {
            return Ok(Histogram::default());
        }
        let mut counts = no_counts();
        let here = counts.get_mut(..saved.counts.len()).ok_or("a histogram has other buckets")?;
        here.copy_from_slice(&saved.counts);
        let count = saved.counts.into_iter().sum();
        Ok(Histogram { counts: Some(counts), count, sum: saved.sum })
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
    fn a_value_is_in_the_first_bucket_that_holds_it() {
        let around = |bound: &u64| [bound.saturating_sub(1), *bound, bound + 1];
        for value in BOUNDS.iter().flat_map(around).chain([u64::MAX, 1 << 40]) {
            assert_eq!(bucket_of(value), BOUNDS.partition_point(|bound| *bound < value), "{value}");
        }
    }

    #[test]
    fn a_value_counts_below_every_bound_that_it_does_not_exceed() {
        let mut histogram = Histogram::default();
        assert!(histogram.cumulative(TIME_BOUNDS).all(|(_, count)| count == 0));
        for value in [0, 1_000, 1_001, 9_000_000, 999_000_000] {
            histogram.record(Span::from_micros(value));
        }
        let cumulative: Vec<_> = histogram.cumulative(TIME_BOUNDS).collect();
        assert_eq!((cumulative[0], cumulative[1]), ((1_000, 2), (2_500, 3)));
        assert_eq!((cumulative[12], cumulative[15]), ((10_000_000, 4), (LARGEST, 4)));
        assert_eq!((histogram.count(), histogram.sum()), (5, 1_008_002_001));
    }

    /// Of spans of every size, spread as those of requests are: many short, few long.
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
        (0..100).for_each(|_| histogram.record(Span::from_secs(5_000)));
        assert_eq!(histogram.quantile(0.99), Some(Quantile { value: LARGEST, is_beyond: true }));
    }

    #[test]
    fn coarse_counts_stay_within_their_bounds() {
        let histogram = Histogram::of_coarse(TIME_BOUNDS, &[3, 0, 1_000, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5], 99);
        let cumulative: Vec<u64> = histogram.cumulative(TIME_BOUNDS).map(|(_, count)| count).collect();
        assert_eq!(cumulative[..5], [3, 3, 1_003, 1_003, 1_010]);
        assert_eq!((cumulative[15], histogram.count(), histogram.sum()), (1_010, 1_015, 99));
        assert_eq!(histogram.quantile(1.0).map(|it| it.is_beyond), Some(true));
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
    fn a_saved_histogram_is_restored() {
        let mut histogram = Histogram::default();
        for _ in 0..2 {
            let saved = postcard::to_allocvec(&histogram).expect("is written");
            assert_eq!(postcard::from_bytes(&saved), Ok(histogram.clone()));
            histogram.record_number(12_345);
        }
        let damaged =
            postcard::to_allocvec(&SavedHistogram { counts: vec![Count::MAX; BUCKETS + 1], sum: Count::ZERO });
        assert!(postcard::from_bytes::<Histogram>(&damaged.expect("is written")).is_err());
    }
}
