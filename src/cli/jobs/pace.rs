//! Number of jobs reserved ahead for a command: at most the jobs of one second.

use std::time::Duration;

/// Limit of jobs that can be reserved at once.
const MOST_AHEAD: u32 = 1000;

/// Number of jobs given to a command, and the mean time of the last jobs.
pub struct Pace {
    pub given: u32,
    /// Mean time; None before the first answer.
    mean: Option<Duration>,
}

impl Pace {
    /// Returns the pace after the first job was given.
    pub fn begin() -> Pace {
        Pace { given: 1, mean: None }
    }

    /// Updates the mean with the time of a job.
    pub fn note(&mut self, took: Duration) {
        self.mean = Some(self.mean.map_or(took, |mean| (mean * 3 + took) / 4));
    }

    /// Returns the number of jobs that the command may have, including the one in progress: the jobs of one second, at
    /// least one.
    pub fn window(&self) -> u32 {
        let in_a_second = self.mean.map_or(1, |mean| 1_000_000 / mean.as_micros().max(1));
        u32::try_from(in_a_second).unwrap_or(u32::MAX).clamp(1, MOST_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_jobs_are_reserved_one_at_a_time() {
        let mut pace = Pace::begin();
        assert_eq!(pace.window(), 1);
        for (ms, window) in [(10, 100), (10, 100), (1000, 3), (3000, 1), (0, 1), (0, 1), (0, 2)] {
            pace.note(Duration::from_millis(ms));
            assert_eq!(pace.window(), window, "{ms} ms");
        }
        let mut fast = Pace::begin();
        fast.note(Duration::ZERO);
        assert_eq!(fast.window(), MOST_AHEAD);
    }
}
