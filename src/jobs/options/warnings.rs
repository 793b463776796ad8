//! Thresholds of the conditions of jobs.

use poolcounter_core::Span;
use poolcounter_service::options::number;

/// Thresholds of conditions. [`Span::FOREVER`] turns one off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Warnings {
    /// Age at which a ready job is late.
    pub age: Span,
    /// Age at which a ready job is very late.
    pub alarm_age: Span,
    /// Time for which a runner may hold a job.
    pub hold: Span,
    /// Share of attempts that may fail, in thousandths.
    pub failures: u64,
}

impl Default for Warnings {
    fn default() -> Self {
        let [age, alarm_age, hold] = [600, 3600, 600].map(Span::from_secs);
        Warnings { age, alarm_age, hold, failures: 100 }
    }
}

/// Reads a share as thousandths.
pub(super) fn share(text: &str) -> Result<u64, String> {
    let share: f64 = number(text, 0.0..=1.0)?;
    // Lossless: it is at most 1.
    Ok((share * 1000.0).round() as u64)
}
