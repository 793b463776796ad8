//! Questions of a server about the health of its services, and settings for it.

use super::Connections;
use crate::connection::Stream;
use poolcounter_core::time::Time;
use poolcounter_service::contract::Process;
use poolcounter_service::health::{HealthLine, HealthSettings};

impl<S: Stream> Connections<S> {
    /// Sets when conditions are on, and when they are over.
    pub fn watch_over(&mut self, settings: HealthSettings) {
        self.dispatch.health.board.settings = settings;
    }

    /// Returns the health of the services as it was at the last look.
    pub fn health(&self) -> Vec<HealthLine> {
        self.dispatch.health.board.lines()
    }

    /// Returns when to look at the services again although nothing happens.
    pub fn next_look(&self) -> Option<Time> {
        self.dispatch.health.board.wake_at()
    }

    /// Sets what the services know the process by.
    pub fn measure(&mut self, process: Box<dyn Process>) {
        self.dispatch.process = process;
    }
}
