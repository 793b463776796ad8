//! Random numbers as an argument, like the time: a server seeds them from the system, a simulation from its own seed,
//! so that jitter and ties replay. The generator is a strong one (ChaCha), so its bytes serve as tokens that cannot be
//! guessed.

use crate::time::Span;
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, RngExt, SeedableRng};

/// Source of random numbers.
pub struct Random(StdRng);

impl Random {
    /// Returns a source whose numbers cannot be predicted.
    ///
    /// # Errors
    ///
    /// Fails if the system has no random bytes.
    pub fn from_system() -> std::io::Result<Self> {
        StdRng::try_from_rng(&mut SysRng).map(Random).map_err(std::io::Error::other)
    }

    /// Returns a source that gives the same numbers for the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Random(StdRng::seed_from_u64(seed))
    }

    /// Returns a number from 0 to `end - 1`.
    ///
    /// # Panics
    ///
    /// Panics if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.random_range(..end)
    }

    /// Returns a span between `low_percent` and `high_percent` of `span`.
    pub fn jitter(&mut self, span: Span, low_percent: u64, high_percent: u64) -> Span {
        let part = |percent: u64| u128::from(span.as_micros()) * u128::from(percent) / 100;
        let (low, high) = (part(low_percent), part(high_percent));
        let us = if low < high { self.0.random_range(low..=high) } else { low };
        Span::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    }

    /// Returns `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let (mut one, mut other, mut third) = (Random::from_seed(7), Random::from_seed(7), Random::from_seed(8));
        let bytes = one.bytes::<16>();
        assert_eq!(bytes, other.bytes());
        assert_ne!(bytes, third.bytes());
        assert_ne!(Random::from_system().expect("random bytes").bytes::<16>(), bytes);
    }

    #[test]
    fn stays_between_its_bounds() {
        let mut random = Random::from_seed(1);
        let second = Span::from_secs(1);
        for _ in 0..1_000 {
            assert!(random.below(3) < 3);
            let span = random.jitter(second, 75, 125);
            assert!((750_000..=1_250_000).contains(&span.as_micros()));
        }
        assert_eq!(random.jitter(Span::FOREVER, 100, 200).as_micros(), u64::MAX);
        assert_eq!(random.jitter(second, 100, 100), second);
    }
}
