//! Access rules for the pools.

use super::{PoolsService, Reply};
use poolcounter_core::{ConnId, Span};
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
    #[inline]
    pub(super) fn refusal_of(&self, conn: ConnId, asked: &PoolRequest<'_>, context: &mut Context<'_>) -> Option<Reply> {
        // Each variant is matched with all its fields, so that a new one with a key needs a decision here.
        let (verb, keys) = match asked {
            PoolRequest::Acquire(Ok(acquire)) => return self.refusal_of_acquire(conn, acquire, context),
            PoolRequest::Stats(StatsQuery::Holders(key)) => (Some(STATS), slice::from_ref(key)),
            // A connection releases only its own locks.
            PoolRequest::Release(_) | PoolRequest::Acquire(Err(_)) | PoolRequest::Unknown => {
                context.count_request(conn);
                return None;
            }
            PoolRequest::Stats(StatsQuery::Fields) => (None, &[][..]),
            PoolRequest::Stats(StatsQuery::Full | StatsQuery::One(_) | StatsQuery::Types | StatsQuery::Unknown)
            | PoolRequest::Keys(_)
            | PoolRequest::Report(_) => (Some(STATS), &[][..]),
        };
        let denial = context.check(conn, &Need { verb, keys, takes: None }).err()?;
        Some(if denial.is_limit() { Reply::Limited } else { Reply::Denied })
    }

    /// Checks if a connection may acquire this lock now, and returns the refusal if not.
    fn refusal_of_acquire(&self, conn: ConnId, acquire: &AcquireLock<'_>, context: &mut Context<'_>) -> Option<Reply> {
        let AcquireLock { key, purpose: _, workers: _, max_queue: _, timeout, hold: _, keep: _, who: _, also } =
            acquire;
        if also.is_empty() {
            return self.refusal_of_lock(conn, slice::from_ref(key), *timeout, context);
        }
        let further = also.iter().map(|KeyLimits { key, workers: _, max_queue: _ }| *key);
        let keys: Vec<&[u8]> = iter::once(*key).chain(further).collect();
        self.refusal_of_lock(conn, &keys, *timeout, context)
    }

    fn refusal_of_lock(&self, conn: ConnId, keys: &[&[u8]], timeout: Span, context: &mut Context<'_>) -> Option<Reply> {
        let (has, may_wait) = (context.holds_of(|| self.state.holds(conn)), timeout > Span::ZERO);
        // A lock counts once for each of its keys, of which there are few.
        let takes = Takes { has, locks: keys.len() as u32, may_wait };
        let denial = context.check(conn, &Need { verb: Some(ACQUIRE), keys, takes: Some(takes) }).err()?;
        Some(if denial.is_limit() { Reply::QueueFull } else { Reply::Denied })
    }
}
