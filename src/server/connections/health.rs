//! Health of the services of a server, and its settings.

use super::Connections;
use crate::connection::Stream;
use poolcounter_core::Time;
use poolcounter_service::contract::Process;
use poolcounter_service::health::{HealthLine, HealthSettings};

impl<S: Stream> Connections<S> {
    /// Sets the thresholds of conditions.
    pub fn watch_over(&mut self, settings: HealthSettings) {
        self.dispatch.health.board.settings = settings;
    }

    /// Returns the health of the services at the last look.
    pub fn health(&self) -> Vec<HealthLine> {
        self.dispatch.health.board.lines()
    }

    /// Returns the time of the next look without other events; [`Time::NEVER`] if none is needed.
    pub fn next_look(&self) -> Time {
        self.dispatch.health.board.wake_at()
    }

    /// Sets the source of the process's figures.
    pub fn measure(&mut self, process: Box<dyn Process>) {
        self.dispatch.process = process;
    }
}
