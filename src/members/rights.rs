//! What rules of access can say of the members.

use super::Members;
use super::request::{From, Named, Refusal, Request, What};
use super::wire::{Line, Query};
use crate::access::{Need, Verb};
use crate::id::ConnId;
use crate::service::Context;

/// What can be asked for.
pub const VERBS: &[&str] = &["take", "provide", "read", "admin"];
const TAKE: Verb = Verb(0);
const PROVIDE: Verb = Verb(1);
const READ: Verb = Verb(2);
const ADMIN: Verb = Verb(3);

/// What stands before the name of a group, so that it is not taken for that of a pool.
const GROUP: &[u8] = b"group:";

/// What each command asks for. Those of providers and cleaners about what they were told to do are free: nobody else was told.
pub const COMMANDS: &[(&str, Option<Verb>)] = &[
    ("TAKE", Some(TAKE)),
    ("TAKEGROUP", Some(TAKE)),
    ("RETURN", None),
    ("RENEW", None),
    ("CANCEL", None),
    ("IDENTIFY", None),
    ("BYE", None),
    ("PROVIDE", Some(PROVIDE)),
    ("CLEAN", Some(PROVIDE)),
    ("STARTED", None),
    ("FAILED", None),
    ("STOPPED", None),
    ("ALIVE", None),
    ("DEAD", None),
    ("CLEANED", None),
    ("OFFER", Some(PROVIDE)),
    ("WITHDRAW", Some(PROVIDE)),
    ("UTILIZATION", Some(READ)),
    ("MEMBERS", Some(READ)),
    ("POOLS", Some(READ)),
    ("POOL", Some(ADMIN)),
    ("RECONFIGURE", Some(ADMIN)),
    ("RMPOOL", Some(ADMIN)),
    ("ADD", Some(ADMIN)),
    ("DEL", Some(ADMIN)),
    ("REPAIR", Some(ADMIN)),
    ("HOLD", Some(ADMIN)),
    ("FREE", Some(ADMIN)),
    ("TAKEBACK", Some(ADMIN)),
];

/// Returns what a line asks for, and of which pool; None if that is free.
fn asked_for<'a>(line: &Line<'a>) -> Option<(Verb, Option<&'a [u8]>)> {
    Some(match line {
        Line::Query(Query::Utilization { pool } | Query::Members { pool, .. }) => (READ, Some(*pool)),
        Line::Query(Query::Pools) => (READ, None),
        Line::Request(request) => match request {
            Request::Take(take) => match take.from {
                From::Pool(pool) => (TAKE, Some(pool)),
                From::Group(group) => (TAKE, Some(group)),
            },
            Request::Provide { pool, .. } | Request::Clean { pool } => (PROVIDE, Some(*pool)),
            Request::Offer { named: Named { pool, .. }, .. } | Request::Withdraw { named: Named { pool, .. }, .. } => {
                (PROVIDE, Some(*pool))
            }
            Request::Pool { name, .. } | Request::Reconfigure { name, .. } | Request::RemovePool { name, .. } => {
                (ADMIN, Some(*name))
            }
            Request::Add { named, .. }
            | Request::Delete { named, .. }
            | Request::Repair(named)
            | Request::Hold { named, .. }
            | Request::Free(named) => (ADMIN, Some(named.pool)),
            Request::TakeBack { .. } => (ADMIN, None),
            Request::Return { .. }
            | Request::Renew { .. }
            | Request::Cancel
            | Request::Identify { .. }
            | Request::Bye
            | Request::Started { .. }
            | Request::Failed { .. }
            | Request::Stopped { .. }
            | Request::Alive { .. }
            | Request::Dead { .. }
            | Request::Cleaned { .. } => return None,
        },
    })
}

impl Members {
    /// Looks whether a connection may ask for this now, and returns what it is told if not.
    #[inline(never)]
    pub(super) fn refusal_of(&self, conn: ConnId, line: &Line<'_>, context: &mut Context<'_>) -> Option<What> {
        let (verb, key) = asked_for(line)?;
        let is_group = matches!(line, Line::Request(Request::Take(take)) if matches!(take.from, From::Group(_)));
        let key = key.map(|key| if is_group { [GROUP, key].concat() } else { key.into() });
        let takes = (verb == TAKE).then(|| context.holds_of(|| self.state.holds(conn)));
        let keys: Vec<&[u8]> = key.iter().map(|key| &key[..]).collect();
        let denial = context.check(conn, &Need { verb, keys: &keys, takes }).err()?;
        Some(match (denial.is_limit(), takes) {
            (false, _) => What::Error(Refusal::Denied),
            (true, Some(_)) => What::Limit,
            (true, None) => What::Error(Refusal::Limited),
        })
    }
    /// Returns whether a connection may ask for what is for operators: one that a rule allows it, or without rules as the settings say.
    pub(super) fn is_operator(&self, conn: ConnId, context: &Context<'_>) -> bool {
        context.has_rules() || self.admin.unwrap_or_else(|| context.peers.is_local(conn))
    }
}
