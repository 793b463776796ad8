//! Rate at which bytes reach the database: the most bytes of a batch, and the time that it may take, follow from it.

use super::session::{ANSWER_TIME, Trouble};
use super::statements as sql;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Least number of bytes from which a rate is measured.
pub const SMALL: usize = 256 << 10;
/// Rate before one is measured, and the least rate, in bytes a second. The first batch of a few megabytes measures it.
const FIRST: u64 = 1 << 20;
const LEAST: u64 = 64 << 10;
/// Time in which a batch can be sent. A batch is never too small to measure the rate.
const BATCH_SECONDS: u64 = 2;
/// Most bytes of a batch: PostgreSQL takes no message of a gigabyte.
const MOST: usize = 256 << 20;

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
        usize::try_from(bytes).unwrap_or(MOST).clamp(2 * SMALL, MOST)
    }

    /// Returns the time that a request with `bytes` may take: twice that of the bytes at the rate measured last.
    pub fn limit(&self, bytes: usize) -> Duration {
        ANSWER_TIME + Duration::from_secs_f64(bytes as f64 / self.0.load(Ordering::Relaxed) as f64) * 2
    }

    /// Returns the statement that begins a transaction with `bytes`. Its daemon has not stopped while they are on their
    /// way.
    pub fn begin(&self, bytes: usize) -> String {
        if bytes < SMALL {
            sql::BEGIN.into()
        } else {
            format!("{}; {}", sql::BEGIN, sql::idle_limit(self.limit(bytes)))
        }
    }

    /// Waits for a request with `bytes` for the time that it may take, and measures the rate. A request that was too
    /// late has more time when it is sent again.
    pub async fn send<T>(&self, bytes: usize, request: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
        let begun = Instant::now();
        let sent = tokio::time::timeout(self.limit(bytes), request).await.unwrap_or(Err(Trouble::TooLate));
        match &sent {
            Ok(_) => self.note(bytes, begun.elapsed()),
            Err(Trouble::TooLate) => self.was_too_late(bytes, begun.elapsed()),
            Err(_) => {}
        }
        sent
    }

    /// Stores a measurement, if it has enough bytes.
    fn note(&self, bytes: usize, took: Duration) {
        if let Some(rate) = rate_of(bytes, took) {
            self.0.store((rate as u64).max(LEAST), Ordering::Relaxed);
        }
    }

    /// Lowers the rate, because bytes took more than this time: to its half, or to what they can have had at most.
    fn was_too_late(&self, bytes: usize, took: Duration) {
        let half = self.0.load(Ordering::Relaxed) / 2;
        let rate = rate_of(bytes, took).map_or(half, |rate| half.min(rate as u64));
        self.0.store(rate.max(LEAST), Ordering::Relaxed);
    }
}

/// Returns the rate in bytes a second; None if there are too few bytes.
fn rate_of(bytes: usize, took: Duration) -> Option<f64> {
    (bytes >= SMALL).then(|| bytes as f64 / took.as_secs_f64().max(0.001))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_that_was_too_late_has_enough_time_soon() {
        let (rate, bytes) = (Rate::default(), 64 << 20);
        rate.note(bytes, Duration::from_millis(100));
        // The link takes a hundred kilobytes a second from now on.
        let needed = Duration::from_secs(bytes as u64 / 100_000);
        let mut attempts = 0;
        while rate.limit(bytes) < needed {
            rate.was_too_late(bytes, rate.limit(bytes));
            attempts += 1;
        }
        assert!(attempts <= 6, "{attempts} attempts");
        let before = rate.limit(bytes);
        // A few bytes tell nothing of the rate.
        rate.was_too_late(1, Duration::from_secs(10));
        assert!(rate.limit(bytes) <= before * 2);
        assert!(rate.begin(1) == sql::BEGIN && rate.begin(bytes).contains("idle_in_transaction_session_timeout"));
    }
}
