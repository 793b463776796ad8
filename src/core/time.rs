//! Moments and spans in whole microseconds. This module reads no clock: time is always an argument.

use std::ops::{Add, AddAssign};
use std::time::Duration;

/// Moment: microseconds since the server started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub struct Time(u64);

/// Length of time in microseconds. Sums stay exact for half a million years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub struct Span(u64);

impl Time {
    /// Start of the server.
    pub const START: Time = Time(0);

    /// A time that is never reached.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the moment `us` microseconds after the start.
    pub const fn from_micros(us: u64) -> Time {
        Time(us)
    }

    /// Returns the microseconds since the start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// Returns the earlier of two optional deadlines. Chains of iterators cost several times as much, in each tick.
#[inline]
pub fn earliest(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (some, none) => some.or(none),
    }
}

impl Add<Span> for Time {
    type Output = Time;

    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Span = Span(0);

    /// A span that never ends: the value of missing limits.
    pub const FOREVER: Span = Span(u64::MAX);

    /// Returns a span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Span {
        Span(us)
    }

    /// Returns a span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000))
    }

    /// Returns a span of `s` seconds.
    pub const fn from_secs(s: u64) -> Span {
        Span(s.saturating_mul(1_000_000))
    }

    /// Returns the whole microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

impl Add for Span {
    type Output = Span;

    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Span {
        Span(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Duration {
        Duration::from_micros(span.0)
    }
}
