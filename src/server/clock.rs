//! The only module that reads clocks: the monotonic one, which no change of the date disturbs, and the time of day.

use super::dispatch::CLOCK_STEP;
use nix::time::{ClockId, clock_gettime};
use poolcounter_core::{Span, Time};
use serde::{Deserialize, Serialize};

/// Clock of the time since the boot of the machine, so that times from before a restart of the server are known. A
/// successor goes on with it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Clock {
    /// Reading of the monotonic clock at the start of the server, in microseconds since the boot.
    started: u64,
    /// Time of day at the boot, by the clock at the start, in microseconds since 1970.
    epoch: u64,
}

impl Clock {
    /// Returns a clock of a server that starts now.
    pub fn start() -> Self {
        let started = micros(ClockId::CLOCK_MONOTONIC);
        Clock { started, epoch: micros(ClockId::CLOCK_REALTIME).saturating_sub(started) }
    }

    /// Returns the time at which the server was started.
    pub fn started(&self) -> Time {
        Time::from_micros(self.started)
    }

    /// Returns the time of day at [`Time::START`], since 1970, by the clock as it is set now.
    pub fn wall(&self) -> Span {
        let running = micros(ClockId::CLOCK_MONOTONIC);
        Span::from_micros(micros(ClockId::CLOCK_REALTIME).saturating_sub(running))
    }

    /// Returns the time of day at [`Time::START`], since 1970, by the clock as it was set at the start.
    pub fn epoch(&self) -> Span {
        Span::from_micros(self.epoch)
    }

    /// Returns the clock for a successor: if the time of day was set meanwhile, by the clock as it is set now.
    pub fn taken_over(self) -> Clock {
        let epoch = self.wall().as_micros();
        let is_set = epoch.abs_diff(self.epoch) > CLOCK_STEP.as_micros();
        if is_set { Clock { epoch, ..self } } else { self }
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        Time::from_micros(micros(ClockId::CLOCK_MONOTONIC))
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
