//! The only module that reads clocks: the monotonic one, which no change of the date disturbs, and the time of day.

use nix::time::{ClockId, clock_gettime};
use poolcounter_core::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Clock of the time since the server started. The monotonic clock is the system's, so a successor goes on with it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// Reading of the monotonic clock at the start, in microseconds.
    started: u64,
    /// Time of day at that moment, in microseconds since 1970.
    epoch: u64,
}

impl Clock {
    /// Returns a clock that starts now.
    pub fn start() -> Self {
        Clock { started: micros(ClockId::CLOCK_MONOTONIC), epoch: micros(ClockId::CLOCK_REALTIME) }
    }

    /// Returns the time of day at [`Time::START`], since 1970, by the clock as it is set now.
    pub fn wall(&self) -> Span {
        let running = micros(ClockId::CLOCK_MONOTONIC).saturating_sub(self.started);
        Span::from_micros(micros(ClockId::CLOCK_REALTIME).saturating_sub(running))
    }

    /// Returns the time of day at [`Time::START`], since 1970, as it was read then.
    pub fn epoch(&self) -> Span {
        Span::from_micros(self.epoch)
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.at(micros(ClockId::CLOCK_MONOTONIC))
    }

    /// Returns the time at a reading of the monotonic clock. Readings before the start count as the start: a virtual
    /// machine that was moved, or a handover from before a boot, must not end the process.
    fn at(&self, reading: u64) -> Time {
        Time::START + Span::from_micros(reading.saturating_sub(self.started))
    }
}

fn micros(clock: ClockId) -> u64 {
    let now = clock_gettime(clock).expect("every system has this clock, and its reading always fits");
    // Lossless: these clocks count up from the boot and from 1970, and their nanoseconds stay below 10^9.
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_back_stands_at_the_start() {
        let clock = Clock { started: 1_000, epoch: 0 };
        assert_eq!([999, 1_000, 1_007].map(|reading| clock.at(reading).as_micros()), [0, 0, 7]);
    }
}
