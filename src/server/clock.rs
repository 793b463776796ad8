//! The only module that reads clocks: the monotonic one, which no change of the date disturbs, and the time of day.

use super::dispatch::CLOCK_STEP;
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

    /// Returns the clock for a successor: if the time of day was set meanwhile, with that at the start by the clock as
    /// it is set now.
    pub fn taken_over(self) -> Clock {
        let wall = self.wall().as_micros();
        let is_set = wall.abs_diff(self.epoch) > CLOCK_STEP.as_micros();
        if is_set { Clock { epoch: wall, ..self } } else { self }
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
    fn clock_that_goes_back_stands_at_the_start() {
        let clock = Clock { started: 1_000, epoch: 0 };
        assert_eq!([999, 1_000, 1_007].map(|reading| clock.at(reading).as_micros()), [0, 0, 7]);
    }

    /// Small differences are no steps: the time of the start, in metrics, stays over an upgrade.
    #[test]
    fn successor_adopts_the_set_time_of_day() {
        let right = Clock::start();
        for (set_by, is_taken_anew) in [(3_600_000_000, true), (-3_600_000_000, true), (300_000, false), (0, false)] {
            let clock = Clock { epoch: right.epoch.saturating_add_signed(set_by), ..right };
            let difference = clock.taken_over().epoch.abs_diff(right.epoch);
            let wanted = if is_taken_anew { 0 } else { set_by.unsigned_abs() };
            assert!(difference.abs_diff(wanted) < 100_000, "{set_by}: {difference}");
            assert_eq!(clock.taken_over().started, right.started, "times of the loop go on");
        }
    }
}
