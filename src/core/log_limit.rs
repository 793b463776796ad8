//! Limits of log lines that peers could cause in any number, and lines about recoveries.
//!
//! [`LogLimit`] is for failures that are events, such as a refused connection; [`Fault`] is for a component that fails
//! until it works again, such as a store.

use crate::count::Count;
use crate::time::{Span, Time};

/// Limit of the lines of one kind: at most `most` in a window of time, which begins with its first line. Further lines
/// are counted, and their number is at the end of the next line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLimit {
    most: u32,
    window: Span,
    begun: Option<Time>,
    /// Number of lines in the window.
    lines: u32,
    left_out: Count,
    /// Time of the last failure, logged or not; None without one, or after the log has reported the recovery.
    failed_at: Option<Time>,
}

impl Default for LogLimit {
    /// Returns a limit of one line a second.
    fn default() -> Self {
        LogLimit::new(1, Span::from_secs(1))
    }
}

impl LogLimit {
    /// Returns a limit of `most` lines in each window.
    pub const fn new(most: u32, window: Span) -> Self {
        LogLimit { most, window, begun: None, lines: 0, left_out: Count::ZERO, failed_at: None }
    }

    /// Notes a failure. Returns the end of its log line, with the number of lines left out before it; None if it must
    /// not be logged now.
    pub fn due(&mut self, now: Time) -> Option<String> {
        self.failed_at = Some(now);
        if self.begun.is_none_or(|begun| now.since(begun) >= self.window) {
            (self.begun, self.lines) = (Some(now), 0);
        }
        if self.lines == self.most {
            self.left_out.bump();
            return None;
        }
        self.lines += 1;
        Some(match std::mem::replace(&mut self.left_out, Count::ZERO).get() {
            0 => String::new(),
            count => format!(" (and {count} more before)"),
        })
    }

    /// Notes a success, and returns whether the log should report a recovery: true once after failures, if none has
    /// come for a window. A component that fails and works by turns has not recovered.
    pub fn is_over(&mut self, now: Time) -> bool {
        let is_over = self.failed_at.is_some_and(|at| now.since(at) >= self.window);
        if is_over {
            self.failed_at = None;
        }
        is_over
    }
}

/// State of a component that fails until it works again. The log has one line at its failure, one for each new reason,
/// and one at its recovery.
///
/// ```ignore
/// if self.fault.begin(&sentence) {
///     error!("the jobs cannot be kept in {place}: {sentence}");
/// }
/// // and after a success:
/// if self.fault.end() {
///     info!("the jobs are kept in {place} again");
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fault {
    reason: Option<String>,
}

impl Fault {
    /// Notes a failure, and returns whether it should be logged: the component worked before, or failed for another
    /// reason.
    pub fn begin(&mut self, reason: &str) -> bool {
        let is_new = self.reason.as_deref() != Some(reason);
        if is_new {
            self.reason = Some(reason.into());
        }
        is_new
    }

    /// Notes a success, and returns whether the log should report the recovery: it failed before.
    pub fn end(&mut self) -> bool {
        self.reason.take().is_some()
    }

    /// Returns the reason of the failure; None if it works.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_is_logged_further_counted() {
        let (mut log, at) = (LogLimit::default(), |ms| Time::START + Span::from_millis(ms));
        let lines: Vec<_> = [0, 1, 999, 1_000, 1_500, 60_000, 70_000].map(|ms| log.due(at(ms))).into();
        let lines: Vec<Option<&str>> = lines.iter().map(Option::as_deref).collect();
        let (two, one) = (" (and 2 more before)", " (and 1 more before)");
        assert_eq!(lines, [Some(""), None, None, Some(two), None, Some(one), Some("")]);
    }

    #[test]
    fn first_lines_of_a_window_are_logged() {
        let (mut log, at) = (LogLimit::new(2, Span::from_secs(60)), |s| Time::START + Span::from_secs(s));
        let lines: Vec<_> = [0, 1, 2, 59, 60, 61, 62].map(|s| log.due(at(s))).into();
        let lines: Vec<Option<&str>> = lines.iter().map(Option::as_deref).collect();
        assert_eq!(lines, [Some(""), Some(""), None, None, Some(" (and 2 more before)"), Some(""), None]);
    }

    #[test]
    fn recovery_is_logged_once_and_not_between_failures() {
        let (mut log, at) = (LogLimit::default(), |ms| Time::START + Span::from_millis(ms));
        assert!(!log.is_over(at(0)), "nothing has failed");
        log.due(at(0));
        log.due(at(500));
        assert!(!log.is_over(at(1_400)), "a failure that was not logged counts as well");
        assert_eq!([1_500, 1_501, 9_000].map(|ms| log.is_over(at(ms))), [true, false, false]);
        log.due(at(10_000));
        assert!(log.is_over(at(11_000)));
    }

    #[test]
    fn fault_is_news_at_begin_change_and_end() {
        let mut fault = Fault::default();
        assert!(!fault.end() && fault.reason().is_none());
        assert_eq!(["full", "full", "gone", "full"].map(|reason| fault.begin(reason)), [true, false, true, true]);
        assert_eq!(fault.reason(), Some("full"));
        assert_eq!([fault.end(), fault.end()], [true, false]);
        assert!(fault.begin("full"));
    }
}
