//! Refusals of requests by pools, in all and by key.

use super::{PoolId, PoolsState, TypeId};
use poolcounter_core::top_keys::KeyEvent;
use poolcounter_core::{Id, Span, Time};
use poolcounter_protocol::pools::stats::PoolStat as Stat;

/// Time over which the refusals of each key are counted, from the first refusal on.
const WINDOW: Span = Span::from_secs(60);

impl PoolsState {
    /// Counts a refusal by a pool of a request of this type of work. `is_full`: its queue was full, or a ceiling shed the
    /// request; else the time for waiting was over.
    pub(super) fn note_refusal(&mut self, pool: PoolId, type_id: TypeId, is_full: bool, now: Time) {
        if self.window_begun(now).is_none() {
            self.refusing_since = Some(now);
            self.top_keys.begin_window();
        }
        let of_type = &mut self.types[type_id];
        if is_full {
            self.figures.count(Stat::FullQueues);
            of_type.full.bump();
        } else {
            of_type.timeouts.bump();
        }
        self.top_keys.count(&self.pools[pool.index()].key, KeyEvent::Refusal, now);
    }

    /// Returns the begin of the present window; None if nothing was refused in the last [`WINDOW`].
    pub(super) fn window_begun(&self, now: Time) -> Option<Time> {
        self.refusing_since.filter(|begun| now.since(*begun) < WINDOW)
    }

    /// Returns the keys that have refused requests in the present window, in no order, with the begin of the window and
    /// the number of these requests. Keys are cut to [`KEY_BYTES`](poolcounter_core::top_keys::KEY_BYTES).
    pub fn refusing(&self, now: Time) -> impl Iterator<Item = (Time, &[u8], u64)> {
        let begun = self.window_begun(now).into_iter();
        begun.flat_map(|begun| self.top_keys.refusals_in_window().map(move |(key, refusals)| (begun, key, refusals)))
    }
}
