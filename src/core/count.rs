//! Counts of events. They stay at their largest value instead of overflowing, so that no figure ends the process,
//! wherever it began: at zero, in a store or in a handover.

use std::cell::Cell;
use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;

/// Distance from its end at which a count begins in tests of the end.
const NEAR: u64 = 20;

thread_local! {
    /// True if counts begin near their ends.
    static IS_NEAR: Cell<bool> = const { Cell::new(false) };
}

/// Makes the counts of this thread begin near their ends, or at 0 again: for tests of a daemon that has run for ages.
#[doc(hidden)]
pub fn begin_near_the_end(is_near: bool) {
    IS_NEAR.set(is_near);
}

/// Returns the first value of a number that counts up to `end`: 0, but for tests.
#[inline]
pub fn first_before(end: u64) -> u64 {
    if IS_NEAR.get() { end - NEAR } else { 0 }
}

/// Declares a count of this width.
macro_rules! count {
    ($(#[$doc:meta])* $name:ident($number:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name($number);

        impl $name {
            /// No event.
            pub const ZERO: $name = $name(0);
            /// The largest value, which stands for all larger values, too.
            pub const MAX: $name = $name(<$number>::MAX);

            /// Counts one more event.
            #[inline]
            pub const fn bump(&mut self) {
                self.0 = self.0.saturating_add(1);
            }

            /// Returns the number of events since an earlier count.
            pub const fn less(self, earlier: $name) -> $name {
                $name(self.0.saturating_sub(earlier.0))
            }

            /// Returns the number.
            #[inline]
            pub const fn get(self) -> $number {
                self.0
            }
        }

        impl Default for $name {
            /// Returns a count of no events yet.
            #[inline]
            fn default() -> Self {
                // Lossless: it is below the largest value.
                $name(first_before(<$number>::MAX.into()) as $number)
            }
        }

        impl From<$number> for $name {
            fn from(number: $number) -> $name {
                $name(number)
            }
        }

        impl AddAssign<$number> for $name {
            #[inline]
            fn add_assign(&mut self, more: $number) {
                self.0 = self.0.saturating_add(more);
            }
        }

        impl AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, more: $name) {
                *self += more.0;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = $name>>(counts: I) -> $name {
                counts.fold($name::ZERO, |mut sum, count| {
                    sum += count;
                    sum
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

count! {
    /// Number of events, up to 2^64 - 1.
    Count(u64)
}
count! {
    /// Number of events in four bytes, up to 2^32 - 1: for tables with very many entries.
    SmallCount(u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stay_at_their_largest_value() {
        let (mut count, mut small) = (Count::from(u64::MAX - 1), SmallCount::from(u32::MAX - 1));
        for _ in 0..3 {
            count.bump();
            small.bump();
        }
        assert_eq!((count, small), (Count::MAX, SmallCount::MAX));
        count += 1;
        small += SmallCount::MAX;
        assert_eq!((count.get(), small.get()), (u64::MAX, u32::MAX));
    }
}
