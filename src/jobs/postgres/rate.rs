//! Rate at which bytes reach the database: the most bytes of a batch, and the time that it may take, follow from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Least number of bytes from which a rate is measured.
pub const SMALL: usize = 256 << 10;
/// Rate before one is measured, and the least rate, in bytes a second. The first batch of a few megabytes measures it.
const FIRST: u64 = 1 << 20;
const LEAST: u64 = 64 << 10;
/// Time in which a batch can be sent. A batch is never too small to measure the rate.
const BATCH_SECONDS: u64 = 2;

/// Rate that the store's thread measures and the loop reads.
pub struct Rate(AtomicU64);

impl Default for Rate {
    fn default() -> Rate {
        Rate(AtomicU64::new(FIRST))
    }
}

impl Rate {
    /// Returns the most bytes of a batch.
    pub fn batch_bytes(&self) -> usize {
        let bytes = self.0.load(Ordering::Relaxed).saturating_mul(BATCH_SECONDS);
        usize::try_from(bytes).unwrap_or(usize::MAX).max(2 * SMALL)
    }

    /// Returns the time that sending `bytes` takes.
    pub fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.0.load(Ordering::Relaxed) as f64)
    }

    /// Stores a measurement, if it has enough bytes.
    pub fn note(&self, bytes: usize, took: Duration) {
        if let Some(rate) = rate_of(bytes, took) {
            self.0.store((rate as u64).max(LEAST), Ordering::Relaxed);
        }
    }

    /// Halves the rate, because bytes took longer than expected.
    pub fn halve(&self) {
        let rate = self.0.load(Ordering::Relaxed);
        self.0.store((rate / 2).max(LEAST), Ordering::Relaxed);
    }
}

/// Returns the rate in bytes a second; None if there are too few bytes.
fn rate_of(bytes: usize, took: Duration) -> Option<f64> {
    (bytes >= SMALL).then(|| bytes as f64 / took.as_secs_f64().max(0.001))
}
