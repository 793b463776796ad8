//! Rate at which bytes reach the database: the most bytes of a batch, and the time that it may take, follow from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Fewer bytes tell nothing of a rate.
pub const SMALL: usize = 256 << 10;
/// The rate that is supposed before one is known, and the least, in bytes a second. The first batch of a few megabytes tells more.
const FIRST: u64 = 1 << 20;
const LEAST: u64 = 64 << 10;
/// A batch has what is sent in this time, and never less than tells of the rate.
const BATCH_SECONDS: u64 = 2;

/// A rate that the thread of the store measures, and the loop reads.
pub struct Rate(AtomicU64);

impl Default for Rate {
    fn default() -> Rate {
        Rate(AtomicU64::new(FIRST))
    }
}

impl Rate {
    /// Returns how many bytes a batch may have.
    pub fn batch_bytes(&self) -> usize {
        let bytes = self.0.load(Ordering::Relaxed).saturating_mul(BATCH_SECONDS);
        usize::try_from(bytes).unwrap_or(usize::MAX).max(2 * SMALL)
    }

    /// Returns how long so many bytes take.
    pub fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.0.load(Ordering::Relaxed) as f64)
    }

    /// Takes a measurement in, if it tells something.
    pub fn note(&self, bytes: usize, took: Duration) {
        if let Some(rate) = rate_of(bytes, took) {
            self.0.store((rate as u64).max(LEAST), Ordering::Relaxed);
        }
    }

    /// Notes that bytes took longer than they should.
    pub fn halve(&self) {
        let rate = self.0.load(Ordering::Relaxed);
        self.0.store((rate / 2).max(LEAST), Ordering::Relaxed);
    }
}

/// Returns the bytes a second that so many bytes in this time come to; None if they are too few.
pub fn rate_of(bytes: usize, took: Duration) -> Option<f64> {
    (bytes >= SMALL).then(|| bytes as f64 / took.as_secs_f64().max(0.001))
}
