//! The only place that reads a clock: the monotonic one, which no change of the date disturbs.

use crate::time::{Span, Time};
use rustix::time::{ClockId, clock_gettime};

/// Time since the server started.
#[derive(Clone, Copy, Debug)]
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
    let now = clock_gettime(ClockId::Monotonic);
    // Lossless: the monotonic clock counts up from the boot, and nanoseconds stay below 10^9.
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
