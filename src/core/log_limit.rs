//! Lines of the log that could be very many, and lines that say that something works again.
//!
//! [`LogLimit`] is for failures that are events, such as a connection that is refused; [`Fault`] is for a thing that fails until it
//! works again, such as a store.

use crate::count::Count;
use crate::time::{Span, Time};

/// The least time between two lines.
const INTERVAL: Span = Span::from_secs(1);

/// Lines of one kind, of which clients could cause very many: one a second is logged, with the number of those left out before it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogLimit {
    logged_at: Option<Time>,
    left_out: Count,
    /// Time of the last failure, logged or not; None if the log says that it is over, or there was none.
    failed_at: Option<Time>,
}

impl LogLimit {
    /// Notes a failure, and returns whether it is to be logged now, with what the line says at its end of those that were left out.
    pub fn due(&mut self, now: Time) -> Option<String> {
        self.failed_at = Some(now);
        if self.logged_at.is_some_and(|at| now.since(at) < INTERVAL) {
            self.left_out.bump();
            return None;
        }
        self.logged_at = Some(now);
        Some(match std::mem::take(&mut self.left_out).get() {
            0 => String::new(),
            count => format!(" (and {count} more before)"),
        })
    }

    /// Notes a success, and returns whether the log is to say that it works again: true once after failures, when none has come for
    /// a second. What fails and works by turns is no recovery.
    pub fn is_over(&mut self, now: Time) -> bool {
        let is_over = self.failed_at.is_some_and(|at| now.since(at) >= INTERVAL);
        if is_over {
            self.failed_at = None;
        }
        is_over
    }
}

/// State of a thing that fails until it works again. The log has one line when it fails, one for each new reason, and one when it
/// works again.
///
/// ```ignore
/// if self.fault.begin(&sentence) {
///     error!("the jobs cannot be kept in {place}: {sentence}");
/// }
/// // and where it is known to work:
/// if self.fault.end() {
///     info!("the jobs are kept in {place} again");
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fault {
    reason: Option<String>,
}

impl Fault {
    /// Notes a failure, and returns whether it is to be logged: the thing worked before, or failed for another reason.
    pub fn begin(&mut self, reason: &str) -> bool {
        let is_new = self.reason.as_deref() != Some(reason);
        if is_new {
            self.reason = Some(reason.into());
        }
        is_new
    }

    /// Notes a success, and returns whether the log is to say that the thing works again: it failed before.
    pub fn end(&mut self) -> bool {
        self.reason.take().is_some()
    }

    /// Returns why the thing fails; None if it works.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_is_logged_and_none_is_forgotten() {
        let (mut log, at) = (LogLimit::default(), |ms| Time::START + Span::from_millis(ms));
        let lines: Vec<_> = [0, 1, 999, 1_000, 1_500, 60_000, 70_000].map(|ms| log.due(at(ms))).into();
        let lines: Vec<Option<&str>> = lines.iter().map(Option::as_deref).collect();
        let (two, one) = (" (and 2 more before)", " (and 1 more before)");
        assert_eq!(lines, [Some(""), None, None, Some(two), None, Some(one), Some("")]);
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
    fn fault_is_news_when_it_begins_changes_and_ends() {
        let mut fault = Fault::default();
        assert!(!fault.end() && fault.reason().is_none());
        assert_eq!(["full", "full", "gone", "full"].map(|reason| fault.begin(reason)), [true, false, true, true]);
        assert_eq!(fault.reason(), Some("full"));
        assert_eq!([fault.end(), fault.end()], [true, false]);
        assert!(fault.begin("full"));
    }
}
