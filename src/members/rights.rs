//! Access rules for the members.

use super::Members;
use poolcounter_core::ConnId;
use poolcounter_protocol::members::commands::{MemberCommand as Command, PROVIDE, TAKE};
use poolcounter_protocol::members::pool_settings::{Change, Value};
use poolcounter_protocol::members::request::{From, Named, Refusal, Request, Take, What};
use poolcounter_protocol::members::wire::{Line, Query};
use poolcounter_service::access::{Need, Takes, Verb};
use poolcounter_service::contract::Context;
use std::borrow::Cow;

/// Prefix of the name of a group, so that it is not taken for that of a pool.
const GROUP: &[u8] = b"group:";

/// Name of a pool, or of a group behind [`GROUP`].
type Key<'a> = Cow<'a, [u8]>;

/// Returns the command of a line, whose row has the right that it needs, and the pools and groups that it concerns:
/// none for all. None: the line is answered in any case. Each variant is matched with all its fields, so that a new one with a name needs a decision here.
fn asked_for<'a>(line: &Line<'a>) -> Option<(Command, Vec<Key<'a>>)> {
    let of_pool = |command, pool: &'a [u8]| Some((command, keys_of_pool(pool)));
    let request = match line {
        Line::Query(Query::Utilization { pool }) => return of_pool(Command::Utilization, pool),
        Line::Query(Query::Members { pool, after: _, limit: _ }) => return of_pool(Command::Members, pool),
        Line::Query(Query::Waiters { pool, limit: _ }) => return of_pool(Command::Waiters, pool),
        Line::Query(Query::History { named: Named { pool, member: _ } }) => return of_pool(Command::History, pool),
        Line::Query(Query::Pools) => return Some((Command::Pools, Vec::new())),
        Line::Request(request) => request,
    };
    Some(match request {
        Request::Take(Take { from, timeout: _, filter: _, count: _, priority: _, lease: _ }) => match from {
            From::Pool(pool) => (Command::Take, keys_of_pool(pool)),
            From::Group(group) => (Command::TakeGroup, vec![group_key(group)]),
        },
        Request::Provide { pool, capacity: _, session: _ } => (Command::Provide, keys_of_pool(pool)),
        Request::Clean { pool } => (Command::Clean, keys_of_pool(pool)),
        Request::Offer { named: Named { pool, member: _ }, attributes: _ } => (Command::Offer, keys_of_pool(pool)),
        Request::Withdraw { named: Named { pool, member: _ }, now: _ } => (Command::Withdraw, keys_of_pool(pool)),
        Request::Pool { name, changes } => (Command::Pool, keys_of_changes(name, changes)),
        Request::Reconfigure { name, changes } => (Command::Reconfigure, keys_of_changes(name, changes)),
        Request::RemovePool { name, graceful: _ } => (Command::RemovePool, keys_of_pool(name)),
        Request::RemoveGroup { name, graceful: _ } => (Command::RemoveGroup, vec![group_key(name)]),
        Request::Add { named: Named { pool, member: _ }, attributes: _ } => (Command::Add, keys_of_pool(pool)),
        Request::Delete { named: Named { pool, member: _ }, now: _ } => (Command::Delete, keys_of_pool(pool)),
        Request::Repair { named: Named { pool, member: _ }, as_is: _ } => (Command::Repair, keys_of_pool(pool)),
        Request::Hold { named: Named { pool, member: _ }, span: _, note: _ } => (Command::Hold, keys_of_pool(pool)),
        Request::Free(Named { pool, member: _ }) => (Command::Free, keys_of_pool(pool)),
        Request::TakeBack { lease: _, note: _ } => (Command::TakeBack, Vec::new()),
        Request::Identify { name: _ } => (Command::Identify, Vec::new()),
        // A number is a lease of the connection itself, or a start of its own, and a token is known only to those who
        // took the member.
        Request::Return { lease: _, condition: _ }
        | Request::Renew { token: _, span: _ }
        | Request::Cancel
        | Request::Bye
        | Request::Started { start: _, named: _ }
        | Request::Failed { start: _, text: _ }
        | Request::Stopped { member: _ }
        | Request::Alive { member: _ }
        | Request::Dead { member: _, text: _ }
        | Request::Cleaned { member: _ }
        | Request::Cleaning { member: _ } => return None,
    })
}

/// Returns the keys of a pool and of the groups into which changes put it; none if the pool's own name needs a right
/// for all.
fn keys_of_changes<'a>(name: &'a [u8], changes: &[Change]) -> Vec<Key<'a>> {
    let mut keys = keys_of_pool(name);
    if !keys.is_empty() {
        keys.extend(changes.iter().filter_map(group_of));
    }
    keys
}

/// Returns the key of a pool; none, which needs a right for all, if it looks like that of a group.
fn keys_of_pool(pool: &[u8]) -> Vec<Key<'_>> {
    if pool.starts_with(GROUP) { Vec::new() } else { vec![pool.into()] }
}

fn group_key<'a>(group: &[u8]) -> Key<'a> {
    [GROUP, group].concat().into()
}

/// Returns the group into which a change puts its pool.
fn group_of<'a>(change: &Change) -> Option<Key<'a>> {
    match change.value() {
        Value::Group(group) => group.as_deref().map(group_key),
        Value::Number(_) | Value::Optional(_) | Value::Seconds(_) | Value::Order(_) | Value::OnLoss(_) => None,
    }
}

fn includes(conn: ConnId, verb: Verb, names: &[Key<'_>], context: &Context<'_>) -> bool {
    let keys: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
    context.includes(conn, verb, &keys)
}

impl Members {
    /// Checks if a connection may send this request now, and returns the refusal if not. `None` stands for a line that
    /// cannot be read.
    #[inline(never)]
    pub(super) fn refusal(&mut self, conn: ConnId, line: Option<&Line<'_>>, context: &mut Context<'_>) -> Option<What> {
        let Some((command, names)) = line.and_then(asked_for) else {
            context.count_request(conn);
            return None;
        };
        let wanted = match line {
            Some(Line::Request(Request::Take(take))) => Some(take.count.unwrap_or(1)),
            _ => None,
        };
        // Without a timeout it may still wait for a check of the member.
        let may_wait = true;
        let takes = wanted.map(|locks| Takes { has: context.holds_of(|| self.state.holds(conn)), locks, may_wait });
        let keys: Vec<&[u8]> = names.iter().map(|name| &**name).collect();
        let Err(denial) = context.check(conn, &Need { verb: command.row().verb, keys: &keys, takes }) else {
            if takes.is_some() {
                self.state.note_rule(conn, context.access.rule_of(conn));
            }
            return None;
        };
        Some(match (denial.is_limit(), takes) {
            (false, _) => What::Error(Refusal::Denied),
            (true, Some(_)) => What::Limit,
            (true, None) => What::Error(Refusal::Limited),
        })
    }

    /// Ends the providing and the waits of a connection that its rule does not include any more. Later takes count for
    /// the present rule.
    pub(super) fn drop_denied(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let provides = self.state.provides_for(conn).map(keys_of_pool);
        if provides.is_some_and(|names| !includes(conn, PROVIDE, &names, context)) {
            self.step(context, false, |state, step| state.stop_providing(conn, step));
        }
        let waits_for = self.state.waits_for(conn).map(|from| match from {
            From::Pool(pool) => keys_of_pool(pool),
            From::Group(group) => vec![group_key(group)],
        });
        let Some(names) = waits_for else { return };
        if includes(conn, TAKE, &names, context) {
            self.state.note_rule(conn, context.access.rule_of(conn));
        } else {
            self.step(context, false, |state, step| state.deny_wait(conn, step));
        }
    }

    /// Returns whether a connection may send requests for operators: by its rule, or without rules by the settings.
    pub(super) fn is_operator(&self, conn: ConnId, context: &Context<'_>) -> bool {
        context.has_rules() || self.admin.unwrap_or_else(|| context.conns.peers.is_local(conn))
    }
}
