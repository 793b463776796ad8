//! Stop of the server: commits that are under way are awaited, and answered, before all connections are closed.

use super::Server;
use crate::sd_notify::DaemonState;
use poolcounter_core::{Span, Time};

/// Longest time for which commits are awaited.
const FINISH_TIME: Span = Span::from_secs(5);

impl Server {
    /// Begins the stop once it is asked for. Returns true when it may end: the services have finished their work, or it
    /// takes too long.
    pub(super) fn may_stop(&mut self) -> bool {
        let is_signalled = self.is_signalled && self.take_signals();
        self.is_stopping |= is_signalled || self.waker.is_stop_asked() || self.connections.may_end();
        if !self.is_stopping {
            return false;
        }
        let now = self.clock.now();
        let deadline = self.stop_deadline.unwrap_or_else(|| self.begin_stop(now));
        let is_over = self.connections.services().is_finished() || now >= deadline;
        if is_over {
            self.connections.send_all(now);
        }
        is_over
    }

    /// Begins the stop, which ends an upgrade, and returns its deadline.
    fn begin_stop(&mut self, now: Time) -> Time {
        self.notify_supervisor(DaemonState::Stopping);
        self.upgrade.rehearsal.take().into_iter().for_each(|mut rehearsal| rehearsal.end());
        self.connections.finish(now);
        *self.stop_deadline.insert(now + FINISH_TIME)
    }
}
