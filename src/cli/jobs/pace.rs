//! Number of jobs that are reserved for a command: no more than it does in a second.

use std::time::Duration;

/// As many as can be reserved at once.
const MOST_AHEAD: u32 = 1000;

/// Jobs that a command has been given, and the mean time of the last ones.
pub struct Pace {
    pub given: u32,
    /// None before it has answered one.
    mean: Option<Duration>,
}

impl Pace {
    /// It was given its first job.
    pub fn begin() -> Pace {
        Pace { given: 1, mean: None }
    }

    /// A job took this long.
    pub fn note(&mut self, took: Duration) {
        self.mean = Some(self.mean.map_or(took, |mean| (mean * 3 + took) / 4));
    }

    /// Returns how many jobs the command may have, with the one that it works on: as many as it does in a second, at least one.
    pub fn window(&self) -> u32 {
        let in_a_second = self.mean.map_or(1, |mean| 1_000_000 / mean.as_micros().max(1));
        u32::try_from(in_a_second).unwrap_or(u32::MAX).clamp(1, MOST_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_reserved_one_at_a_time() {
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
