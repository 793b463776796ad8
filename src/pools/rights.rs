//! Access rules for the pools.

use super::{PoolsService, Reply};
use poolcounter_core::id::ConnId;
use poolcounter_protocol::pools::commands::{ACQUIRE, STATS};
use poolcounter_protocol::pools::request::{AcquireLock, KeyLimits};
use poolcounter_protocol::pools::wire;
use poolcounter_service::access::{Need, Takes};
use poolcounter_service::contract::Context;
use std::{iter, slice};
use wire::{PoolRequest, StatsQuery};

impl PoolsService {
    /// Ends the wait of a connection whose rule does not include its keys any more.
    pub(super) fn drop_denied(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let keys = self.state.awaited_keys(conn);
        if !keys.is_empty() && !context.includes(conn, ACQUIRE, &keys) {
            self.step(context, |state, step| state.deny_wait(conn, step));
            self.end_turn(context.output);
        }
    }

    /// Checks if a connection may send this request now, and returns the refusal if not.
    #[inline(never)]
    pub(super) fn refusal_of(
        &self,
        conn: ConnId,
        request: &PoolRequest<'_>,
        context: &mut Context<'_>,
    ) -> Option<Reply> {
        let several: Vec<&[u8]>;
        // Each variant is matched with all its fields, so that a new one with a key needs a decision here.
        let (verb, keys) = match request {
            PoolRequest::Acquire(Ok(acquire)) => {
                let AcquireLock { key, purpose: _, workers: _, max_queue: _, timeout: _, hold: _, who: _, also } =
                    acquire;
                match also.is_empty() {
                    true => (ACQUIRE, slice::from_ref(key)),
                    false => {
                        let further = also.iter().map(|KeyLimits { key, workers: _, max_queue: _ }| *key);
                        several = iter::once(*key).chain(further).collect();
                        (ACQUIRE, &several[..])
                    }
                }
            }
            PoolRequest::Stats(StatsQuery::Holders(key)) => (STATS, slice::from_ref(key)),
            // A connection releases only its own locks.
            PoolRequest::Release(_) | PoolRequest::Acquire(Err(_)) | PoolRequest::Unknown => {
                context.count_request(conn);
                return None;
            }
            PoolRequest::Stats(StatsQuery::Fields) => return context.check_rate(conn).err().map(|_| Reply::Limited),
            PoolRequest::Stats(StatsQuery::Full | StatsQuery::One(_) | StatsQuery::Types | StatsQuery::Unknown)
            | PoolRequest::Keys(_)
            | PoolRequest::Report(_) => (STATS, &[][..]),
        };
        // A lock counts once for each of its keys, of which there are few.
        let takes = (verb == ACQUIRE)
            .then(|| Takes { has: context.holds_of(|| self.state.holds(conn)), locks: keys.len() as u32 });
        let denial = context.check(conn, &Need { verb, keys, takes }).err()?;
        Some(match (denial.is_limit(), takes) {
            (false, _) => Reply::Denied,
            (true, Some(_)) => Reply::QueueFull,
            (true, None) => Reply::Limited,
        })
    }
}
