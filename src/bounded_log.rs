//! Lines of the log of one kind, of which clients could cause very many: one a second is logged, and how many were left out before it.

use crate::time::{Span, Time};

/// The least time between two lines.
const INTERVAL: Span = Span::from_secs(1);

/// What is known of the lines of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BoundedLog {
    logged_at: Option<Time>,
    left_out: u64,
}

impl BoundedLog {
    /// Returns whether a line is to be logged now, with what it says at its end of those that were left out.
    pub fn due(&mut self, now: Time) -> Option<String> {
        if self.logged_at.is_some_and(|at| now.since(at) < INTERVAL) {
            self.left_out += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(match std::mem::take(&mut self.left_out) {
            0 => String::new(),
            count => format!(" (and {count} times before)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_logged_and_none_is_forgotten() {
        let (mut log, at) = (BoundedLog::default(), |ms| Time::START + Span::from_millis(ms));
        let lines: Vec<_> = [0, 1, 999, 1_000, 1_500, 60_000, 70_000].map(|ms| log.due(at(ms))).into();
        let lines: Vec<Option<&str>> = lines.iter().map(Option::as_deref).collect();
        let (two, one) = (" (and 2 times before)", " (and 1 times before)");
        assert_eq!(lines, [Some(""), None, None, Some(two), None, Some(one), Some("")]);
    }
}
