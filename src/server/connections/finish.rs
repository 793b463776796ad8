//! End of all connections: what their services have begun is finished, and its replies are sent.

use super::Connections;
use crate::connection::Stream;
use poolcounter_core::Time;

impl<S: Stream> Connections<S> {
    /// Makes the services finish their work under way: [`finish`](poolcounter_service::contract::Lifecycle::finish).
    pub fn finish(&mut self, now: Time) {
        self.call_all(now, |service, context| service.finish(context));
        self.commit(now);
        self.resume(now);
    }

    /// Writes once to each connection with output.
    pub fn send_all(&mut self, now: Time) {
        for _ in 0..=self.slab.len() {
            if !self.dispatch.output.is_dirty() {
                return;
            }
            self.flush(now);
        }
    }
}
