//! Limits of jobs that run at a time, or that start in a period.

use super::session::expect;
use super::{Error, LimitScope, Producer, checked, whole_seconds, wire};
use std::time::Duration;

impl Producer {
    /// Limits the number of jobs of the matching tubes that run at a time; 0 for no limit.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn limit(&self, pattern: &str, most: u32, scope: LimitScope) -> Result<(), Error> {
        let scope = if scope == LimitScope::All { "all" } else { "each" };
        self.set("limit", pattern, &format!(" {most} {scope}"), "LIMIT")
    }

    /// Limits the number of jobs of the matching tubes that start in any period, in whole seconds; 0 for no limit.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn limit_rate(&self, pattern: &str, most: u32, period: Duration, scope: LimitScope) -> Result<(), Error> {
        let scope = if scope == LimitScope::All { "all" } else { "each" };
        self.set("limit", pattern, &format!(" {most} per {} {scope}", whole_seconds(period)), "LIMIT")
    }

    /// Limits the number of jobs of a group that start in any period, in whole seconds; 0 for no limit; the group `*`
    /// stands for each group.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn limit_group_rate(&self, group: impl AsRef<[u8]>, most: u32, period: Duration) -> Result<(), Error> {
        self.set_group_limit(group.as_ref(), &format!("{most} per {}", whole_seconds(period)))
    }

    /// Limits the number of jobs of a group that run at a time; 0 for no limit; the group `*` stands for each group.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn limit_group(&self, group: impl AsRef<[u8]>, most: u32) -> Result<(), Error> {
        self.set_group_limit(group.as_ref(), &most.to_string())
    }

    /// Limits a group as [`Producer::limit_group`] does, and lets its jobs run in order: while a job of the group waits to
    /// be tried again, its successors wait, too.
    ///
    /// # Errors
    ///
    /// As [`Producer::limit_group`].
    pub fn limit_group_in_order(&self, group: impl AsRef<[u8]>, most: u32) -> Result<(), Error> {
        self.set_group_limit(group.as_ref(), &format!("{most} ordered"))
    }

    fn set_group_limit(&self, group: &[u8], value: &str) -> Result<(), Error> {
        let group = checked("the group", Some(group), wire::is_group)?;
        let request = [b"limit group:", group, b" ", value.as_bytes(), b"\r\n"].concat();
        self.ask_extension("limit", &request, |_, line| expect(line, "LIMIT"))
    }
}
