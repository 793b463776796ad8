//! What the pools tell operators in one piece, as plain values.

use super::Pools;
use crate::report::{self, Holder, HotKey, Key, Type};
use crate::service::{Peers, Traffic};
use crate::sketch;
use crate::time::Time;

/// How many keys or holders a list of the report has at most.
pub const MOST_ROWS: usize = 20;

impl Pools {
    /// The pools as they are now, and what has happened in them. Each list has [`MOST_ROWS`] rows at most, but for that of
    /// the types, of which there are 257 at most; keys are cut to [`sketch::KEY_BYTES`].
    pub fn report(&self, now: Time, traffic: &Traffic, peers: &dyn Peers) -> report::Pools {
        let state = &self.state;
        report::Pools {
            figures: self.figures(now, traffic).rows().collect(),
            types: state.types().into_iter().map(report_type).collect(),
            busiest: (state.busiest(MOST_ROWS).into_iter())
                .map(|busy| Key {
                    key: sketch::cut(busy.key).into(),
                    working: busy.working,
                    waiting: busy.waiting,
                    oldest: now.since(busy.since),
                })
                .collect(),
            hottest: (state.hottest(MOST_ROWS, now).into_iter())
                .map(|hot| HotKey { key: hot.key.into(), refusals: hot.refusals, waits: hot.waits })
                .collect(),
            hottest_error: state.hottest_error(now),
            holders: (state.longest_holders(MOST_ROWS).into_iter())
                .map(|client| Holder {
                    key: sketch::cut(client.key).into(),
                    peer: peers.peer(client.conn),
                    age: now.since(client.since),
                })
                .collect(),
        }
    }
}

fn report_type(one: &super::Type) -> Type {
    Type {
        name: one.name.clone(),
        working: one.working(),
        waiting: one.waiting(),
        acquired: one.acquired,
        done: one.done,
        full: one.full,
        timeouts: one.timeouts,
        waits: one.waits.clone(),
        holds: one.holds.clone(),
    }
}
