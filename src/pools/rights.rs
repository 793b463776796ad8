//! What rules of access can say of the pools.

use super::{PoolsService, Reply, wire};
use crate::access::{Need, Verb};
use crate::id::ConnId;
use crate::service::Context;
use std::{iter, slice};
use wire::{PoolRequest, StatsQuery};

/// What can be asked for.
pub const VERBS: &[&str] = &["acquire", "stats"];
const ACQUIRE: Verb = Verb(0);
const STATS: Verb = Verb(1);

/// What each command asks for.
pub const COMMANDS: &[(&str, Option<Verb>)] =
    &[("ACQ4ME", Some(ACQUIRE)), ("ACQ4ANY", Some(ACQUIRE)), ("RELEASE", None), ("STATS", Some(STATS))];

impl PoolsService {
    /// Looks whether a connection may ask for this now, and returns what it is told if not.
    #[inline(never)]
    pub(super) fn refusal_of(
        &self,
        conn: ConnId,
        request: &PoolRequest<'_>,
        context: &mut Context<'_>,
    ) -> Option<Reply> {
        let several: Vec<&[u8]>;
        let (verb, keys) = match request {
            PoolRequest::Acquire(Ok(acquire)) if acquire.also.is_empty() => (ACQUIRE, slice::from_ref(&acquire.key)),
            PoolRequest::Acquire(Ok(acquire)) => {
                several = iter::once(acquire.key).chain(acquire.also.iter().map(|also| also.key)).collect();
                (ACQUIRE, &several[..])
            }
            PoolRequest::Stats(StatsQuery::Holders(key)) => (STATS, slice::from_ref(key)),
            PoolRequest::Acquire(Err(_))
            | PoolRequest::Release(_)
            | PoolRequest::Stats(StatsQuery::Fields)
            | PoolRequest::Unknown => return None,
            PoolRequest::Stats(_) | PoolRequest::Keys(_) | PoolRequest::Report(_) => (STATS, &[][..]),
        };
        let takes = (verb == ACQUIRE).then(|| context.holds_of(|| self.state.holds(conn)));
        let denial = context.check(conn, &Need { verb, keys, takes }).err()?;
        Some(match (denial.is_limit(), takes) {
            (false, _) => Reply::Denied,
            (true, Some(_)) => Reply::QueueFull,
            (true, None) => Reply::Limited,
        })
    }
}
