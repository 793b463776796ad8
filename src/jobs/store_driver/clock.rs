//! Steps of the clock of the time of day, by which a store keeps the ends of delays and pauses.

use crate::JobQueue;
use crate::state::State;
use crate::store::Ownership;
use poolcounter_service::contract::Context;

impl JobQueue {
    /// Goes by the clock after it was set. Delays and pauses are stored anew, so that the next process finds the time
    /// left that they have.
    #[cold]
    pub(super) fn go_by_clock(&mut self, context: &mut Context<'_>) {
        let wall = context.time.wall;
        self.step(context, |_, _| {});
        if self.driver.has_begun && self.store.keeps_times() {
            if self.store.ownership() != Ownership::Owns {
                // Times that are still to be read were stored by the clock as it was.
                return;
            }
            self.store.set_epoch(wall);
            self.step(context, State::store_times_anew);
        }
        self.driver.wall = wall;
    }

    /// Returns whether a step of the clock must be seen soon: something is delayed or paused, or put periodically.
    pub(super) fn goes_by_clock(&self) -> bool {
        self.state.has_schedules() || self.state.has_deadlines() && self.store.keeps_times()
    }
}
