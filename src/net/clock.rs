//! The only place that reads clocks: the monotonic one, which no change of the date disturbs, and once the time of day.

use crate::time::{Span, Time};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Time since the server started. The monotonic clock is the system's, so a process that takes over goes on with it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// The monotonic clock's reading at the start, in microseconds.
    started: u64,
    /// The time of day at that moment, in microseconds since 1970.
    epoch: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Clock { started: micros(ClockId::CLOCK_MONOTONIC), epoch: micros(ClockId::CLOCK_REALTIME) }
    }

    /// The time of day at [`Time::START`], since 1970.
    pub fn epoch(&self) -> Span {
        Span::from_micros(self.epoch)
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time::START + Span::from_micros(micros(ClockId::CLOCK_MONOTONIC).saturating_sub(self.started))
    }
}

fn micros(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("every system has this clock, and its reading always fits");
    // Lossless: these clocks count up from the boot and from 1970, and their nanoseconds stay below 10^9.
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000
}
