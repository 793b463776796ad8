//! Operations on the pools, for pages and the administration.

use super::ceiling_table::{self, MOST_CEILINGS};
use super::{PoolsService, Reply};
use poolcounter_core::ConnId;
use poolcounter_protocol::pools::wire;
use poolcounter_service::contract::{
    Context, GONE, Operate, Operation, OperationError, OperationRequest, OperationResult,
};
use poolcounter_service::operations::{descriptions, operation_table};

type Run = fn(&mut PoolsService, &[u8], &mut Context<'_>) -> OperationResult;

/// Every operation, with the function that runs it.
const TABLE: [(Operation, Run); 2] = operation_table!(
    "release-lock", "RELEASE-LOCK", ["KEY", "CLIENT"], "take a lock away from a client, as holders KEY shows it",
        on_pages => PoolsService::take_locks_from;
    "ceiling", "CEILING", ["KEYS", "NAME=VALUE,...|none"],
        "set the upper limits of requests for some keys, until the next upgrade",
        on_pages => |service, words, _| service.change_ceiling(words);
);

/// Descriptions of the operations.
pub const OPERATIONS: &[Operation] = &descriptions(&TABLE);

/// Names of the operations on a held lock.
pub(super) const OF_HELD: &[&str] = &[TABLE[0].0.name];

impl Operate for PoolsService {
    fn operate(&mut self, request: &OperationRequest, context: &mut Context<'_>) -> Option<OperationResult> {
        let (_, run) = TABLE[request.operation.index()];
        Some(run(self, &request.argument, context))
    }
}

impl PoolsService {
    /// Ends the kept locks of a key, `KEY gone`, or takes its locks away from the client at an address, `KEY ADDRESS`: sends `NOT_LOCKED` to its
    /// connections there and closes them with all their locks and waits. That line is the answer to a RELEASE that
    /// comes later, or is on its way.
    fn take_locks_from(&mut self, words: &[u8], context: &mut Context<'_>) -> OperationResult {
        let mut words = words.splitn(2, |byte| *byte == b' ');
        let (key, client) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let conns = context.conns;
        let is_asked_for = |conn| {
            let peer = conns.peers.peer(conn);
            peer != GONE && peer.as_bytes() == client
        };
        if client == GONE.as_bytes() {
            let mut freed = 0;
            self.step(context, |state, step| freed = state.free_kept(key, step));
            self.end_turn(context.output);
            if freed > 0 {
                return Ok(taken_away(freed));
            }
        }
        let claims = self.state.claims_on(key).filter(|claim| is_asked_for(claim.conn));
        let (held, waiting): (Vec<_>, Vec<_>) = claims.partition(|claim| claim.waits_for.is_none());
        let locks = held.len();
        if locks == 0 {
            return Err(match waiting.len() {
                0 => OperationError::NotFound("no client of that address has a lock of that key".into()),
                _ => OperationError::Refused("that client waits for a lock of that key, and has none".into()),
            });
        }
        let mut conns: Vec<ConnId> = held.into_iter().map(|claim| claim.conn).collect();
        conns.sort_unstable();
        conns.dedup();
        for conn in conns {
            self.state.keep_nothing(conn, key);
            context.output.reply_lines(conn, |bytes| bytes.extend_from_slice(wire::text_of(Reply::NotLocked)));
            context.end(conn);
        }
        Ok(taken_away(locks))
    }

    /// Sets or removes a ceiling, for `KEYS NAME=VALUE,NAME=VALUE` or `KEYS none`.
    fn change_ceiling(&mut self, words: &[u8]) -> OperationResult {
        let words = std::str::from_utf8(words).map_err(|_| OperationError::Malformed("this is no text".into()))?;
        let (pattern, settings) = words.split_once(' ').unwrap_or((words, "none"));
        if settings == "none" {
            let was_there = self.state.remove_ceiling(pattern.as_bytes());
            return match was_there {
                true => Ok("the ceiling is gone".into()),
                false => Err(OperationError::NotFound("there is no such ceiling".into())),
            };
        }
        let ceiling = ceiling_table::parse_ceiling(pattern, settings).map_err(OperationError::Malformed)?;
        let is_new = self.state.ceilings().iter().all(|one| one.ceiling.pattern != ceiling.pattern);
        if is_new && self.state.ceilings().len() >= MOST_CEILINGS {
            return Err(OperationError::Refused(format!("there are more than {MOST_CEILINGS} ceilings")));
        }
        self.state.set_ceiling(ceiling);
        Ok(format!("a ceiling for {pattern} until the next upgrade"))
    }
}

fn taken_away(locks: usize) -> String {
    format!("{locks} {} taken away", if locks == 1 { "lock" } else { "locks" })
}
