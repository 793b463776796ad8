//! Reports of all services at one moment.

use super::{Overview, Series};
use crate::health::{ConditionOver, HealthLine};
use crate::loop_stats::LoopStats;
use crate::peer::ProcessUsage;
use poolcounter_core::{Span, Time};

/// Everything reported at one moment, without recorded history.
pub struct Moment<'a> {
    /// Time of the moment.
    pub now: Time,
    /// Time at which the server was started.
    pub started: Time,
    /// Time of day at [`Time::START`], since 1970.
    pub epoch: Span,
    /// Reports of all services.
    pub overview: Overview,
    /// Figures of the loop.
    pub loop_stats: &'a LoopStats,
    /// Health of the services.
    pub health: Vec<HealthLine>,
    /// Conditions that are over, newest first.
    pub past: Vec<ConditionOver>,
    /// Usage of the process.
    pub usage: ProcessUsage,
    /// Number of armed timers.
    pub timers: usize,
}

impl Moment<'_> {
    /// Returns the time of day, since 1970, according to the clock at the start.
    pub fn time_of_day(&self, at: Time) -> Span {
        self.epoch + at.since(Time::START)
    }

    /// Returns the series of all services, with the names of the services.
    pub(super) fn series(&self) -> impl Iterator<Item = (&'static str, &Series)> {
        let services = self.overview.services.iter();
        services.flat_map(|service| service.report.series.iter().map(|series| (service.name, series)))
    }
}
