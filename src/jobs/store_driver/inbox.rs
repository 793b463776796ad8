//! Jobs that come by the store.

use crate::JobQueue;
use crate::store::Ownership;
use poolcounter_service::contract::Context;

/// Number of rows of the inbox that are taken at once.
const INBOX_AT_ONCE: usize = 100;

impl JobQueue {
    /// Puts jobs of the inbox, while there is room for them.
    pub(super) fn take_from_inbox(&mut self, context: &mut Context<'_>) {
        let is_open = self.store.ownership() == Ownership::Owns && !self.driver.is_settling && !self.driver.is_ending;
        for _ in 0..INBOX_AT_ONCE {
            if !is_open || self.state.is_backed_up() {
                return;
            }
            let Some(row) = self.driver.inbox.take().or_else(|| self.store.next_request()) else { return };
            if !self.step(context, |state, step| state.take_from_inbox(&row, step)) {
                self.driver.inbox = Some(row);
                return;
            }
        }
        self.driver.wake_loop();
    }
}
