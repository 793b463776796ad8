//! The only place that reads a clock: the monotonic one, which no change of the date disturbs.

use crate::time::{Span, Time};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Time since the server started. The monotonic clock is the system's, so a process that takes over goes on with it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// The monotonic clock's reading at the start, in microseconds.
    started: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Clock { started: monotonic_micros() }
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time::START + Span::from_micros(monotonic_micros() - self.started)
    }
}

fn monotonic_micros() -> u64 {
    let now =
        clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every system has this clock, and its reading always fits");
    // Lossless: this clock counts up from the boot, and its nanoseconds stay below 10^9.
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000
}
