//! Access rules: permissions and limits per rule, with the counters of each. The rule of a connection is found at its
//! start, and its rights stay with it. Without rules everything is allowed, without any lookup.

mod check;
pub mod report;
mod requests;
mod rule;
mod saved;

pub use poolcounter_protocol::command::{Command, Verb};
pub use rule::{Identity, Limits, Rights, Rule, Who};
pub use saved::{SavedCounts, had_rules};

use crate::id::ServiceId;
use log::warn;
use poolcounter_core::{ConnId, Count, LogLimit, Metered, SideTable, Time, words};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Limit of rules; a connection is compared with one after the other.
pub const MOST_RULES: usize = 256;

words! {
    /// Reason of a denial.
    pub enum Denial, name {
        /// No rule matches, or the rule has no rights to the service.
        Stranger = "stranger",
        /// The rule does not have the right.
        Right = "right",
        /// The limit of connections is reached.
        Connections = "connections",
        /// The limit of locks is reached.
        Locks = "locks",
        /// The limit of waiting requests is reached.
        Waits = "waits",
        /// The limit of requests per second is reached.
        Requests = "requests",
        /// The limit of memory is reached.
        Memory = "memory",
    }
}

/// Usage of a connection: locks held and requests waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds {
    /// Number of locks, units, members or jobs.
    pub locks: u32,
    /// Number of waiting requests.
    pub waits: u32,
}

/// Permission that a request needs, and locks that it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need<'a> {
    /// Right in the row of its command; None if it needs no right.
    pub verb: Option<Verb>,
    /// Keys of the request; empty if it concerns the whole service.
    pub keys: &'a [&'a [u8]],
    /// Locks that it takes; None if none.
    pub takes: Option<Takes>,
}

/// Locks taken by a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takes {
    /// Usage of its connection before the request.
    pub has: Holds,
    /// Number of locks that it would add.
    pub locks: u32,
    /// False if it is answered at once in any case.
    pub may_wait: bool,
}

/// Access rules with their state.
#[derive(Debug)]
pub struct Access {
    /// False without rules.
    pub is_on: bool,
    /// True if some rule limits locks or waiting requests, which must be reported.
    pub counts_holds: bool,
    /// True if some rule limits memory, which must be reported.
    pub counts_memory: bool,
    /// True if some rule limits the rate of requests.
    counts_requests: bool,
    rules: Vec<Rule>,
    /// Names of the rules, shared with other holders.
    names: Vec<Arc<str>>,
    /// Counters per rule; the last entry is for connections that match no rule.
    counts: Vec<Counts>,
    /// State by connection.
    standings: SideTable<ConnId, Standing>,
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Standing {
    /// Rule that it matches.
    rule: Option<u16>,
    holds: Holds,
    /// Bytes received and not served yet, or not sent yet.
    bytes: u64,
}

/// Counters of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Counts {
    connections: u64,
    /// Locks of its connections.
    locks: u64,
    leases: u64,
    waits: u64,
    bytes: u64,
    /// Bytes of each connection that has some, with the connection; empty without a limit of memory.
    by_bytes: BTreeSet<(u64, ConnId)>,
    /// Time at which the requests so far would have arrived at an even rate.
    even_at: Time,
    /// Denials by reason.
    denied: [Count; Denial::ALL.len()],
    log: LogLimit,
}

impl Denial {
    /// Returns the limit that was reached, in the unit of the rule; None for a missing right.
    fn limit(self, limits: &Limits) -> Option<u64> {
        match self {
            Denial::Stranger | Denial::Right => None,
            Denial::Connections => Some(limits.connections),
            Denial::Locks => Some(limits.locks),
            Denial::Waits => Some(limits.waits),
            Denial::Requests => Some(limits.requests),
            Denial::Memory => Some(limits.memory),
        }
    }

    /// Returns true if the same request may be allowed later.
    pub fn is_limit(self) -> bool {
        !matches!(self, Denial::Stranger | Denial::Right)
    }
}

impl Default for Access {
    fn default() -> Self {
        Access::new(Vec::new())
    }
}

impl Access {
    /// Returns the state of these rules, without connections.
    pub fn new(rules: Vec<Rule>) -> Access {
        Access {
            is_on: !rules.is_empty(),
            counts_holds: rules.iter().any(|rule| rule.limits.locks.min(rule.limits.waits) != u64::MAX),
            counts_memory: rules.iter().any(|rule| rule.limits.memory != u64::MAX),
            counts_requests: rules.iter().any(|rule| rule.limits.requests != u64::MAX),
            counts: vec![Counts::default(); rules.len() + 1],
            names: rules.iter().map(|rule| (&*rule.name).into()).collect(),
            rules,
            standings: SideTable::default(),
        }
    }

    /// Returns the state of these rules after a handover, with the counters `before`. None: the rules could not be
    /// read; then all requests are denied if there were rules before.
    pub fn after(before: &[SavedCounts], rules: Option<Vec<Rule>>) -> Access {
        let closed = || if had_rules(before) { vec![Rule::for_nobody()] } else { Vec::new() };
        if had_rules(before) && rules.as_ref().is_some_and(Vec::is_empty) {
            warn!("there are no rules of access any more: every client may ask for everything");
        }
        let mut access = Access::new(rules.unwrap_or_else(closed));
        access.restore_counts(before);
        access
    }

    /// Returns true if some rule can match; false if the rules could not be read.
    pub fn are_known(&self) -> bool {
        self.rules.iter().any(|rule| !rule.who.is_empty())
    }

    /// Returns true if the rule of a connection allows a verb for each of these keys. Counts nothing.
    pub fn includes(&self, conn: ConnId, service: ServiceId, verb: Verb, keys: &[&[u8]]) -> bool {
        let rule = self.standings.get(conn).rule;
        rule.is_some_and(|rule| self.rules[usize::from(rule)].rights[service.index()].include(verb, keys))
    }

    /// Returns the rule for a new connection, None without rules, or the reason of its denial. No rule matches an
    /// unknown identity.
    pub fn rule_of_new(&mut self, service: ServiceId, client: Option<&Identity<'_>>) -> Result<Option<usize>, Denial> {
        if !self.is_on {
            return Ok(None);
        }
        let rule = client.and_then(|identity| self.rule_for(identity));
        let Some(at) = rule.filter(|at| !self.rules[*at].rights[service.index()].are_none()) else {
            return Err(self.count(rule, Denial::Stranger));
        };
        if self.counts[at].connections >= self.rules[at].limits.connections {
            return Err(self.count(rule, Denial::Connections));
        }
        Ok(Some(at))
    }

    /// Sets the rule of a connection from a handover. The connection stays open even if its new rule allows nothing.
    pub fn restore(&mut self, conn: ConnId, identity: &Identity<'_>) {
        let rule = self.rule_for(identity);
        self.enter(conn, rule);
    }

    /// Returns the index of the first rule that matches an identity.
    pub fn rule_for(&self, identity: &Identity<'_>) -> Option<usize> {
        self.rules.iter().position(|rule| rule.who.iter().any(|who| who.is(identity)))
    }

    /// Counts a connection for its rule, if any.
    pub fn enter(&mut self, conn: ConnId, rule: Option<usize>) {
        let Some(rule) = rule else { return };
        self.counts[rule].connections += 1;
        // Lossless: there are few rules.
        self.standings.get_mut(conn).rule = Some(rule as u16);
    }

    /// Removes a connection that ends.
    pub fn leave(&mut self, conn: ConnId) {
        self.note_holds(conn, Holds::default());
        self.note_bytes(conn, 0);
        if let Some(rule) = self.standings.get_mut(conn).rule.take() {
            self.counts[usize::from(rule)].connections -= 1;
        }
    }

    /// Records the usage of a connection.
    #[inline]
    pub fn note_holds(&mut self, conn: ConnId, holds: Holds) {
        let standing = self.standings.get(conn);
        let Some(rule) = standing.rule.filter(|_| standing.holds != holds) else { return };
        let before = std::mem::replace(&mut self.standings.get_mut(conn).holds, holds);
        let counts = &mut self.counts[usize::from(rule)];
        counts.locks = counts.locks + u64::from(holds.locks) - u64::from(before.locks);
        counts.waits = counts.waits + u64::from(holds.waits) - u64::from(before.waits);
    }

    /// Records the number of locks without a connection for the rule of this name.
    pub fn note_leases(&mut self, rule: &str, leases: u64) {
        if let Some(at) = self.rules.iter().position(|other| *other.name == *rule).filter(|_| self.counts_holds) {
            self.counts[at].leases = leases;
        }
    }

    /// Records the memory of a connection in bytes. Returns true if it grew and its rule is now over its limit.
    pub fn note_bytes(&mut self, conn: ConnId, bytes: u64) -> bool {
        let standing = self.standings.get(conn);
        let Some(rule) = standing.rule.filter(|_| standing.bytes != bytes) else { return false };
        let before = std::mem::replace(&mut self.standings.get_mut(conn).bytes, bytes);
        let (limits, counts) = (&self.rules[usize::from(rule)].limits, &mut self.counts[usize::from(rule)]);
        counts.bytes = counts.bytes + bytes - before;
        if limits.memory != u64::MAX {
            counts.by_bytes.remove(&(before, conn));
            if bytes > 0 {
                counts.by_bytes.insert((bytes, conn));
            }
        }
        bytes > before && counts.bytes > limits.memory
    }

    /// Returns the index of a connection's rule.
    #[inline]
    pub fn rule_at(&self, conn: ConnId) -> Option<usize> {
        self.standings.get(conn).rule.map(usize::from)
    }

    /// Returns the connection with the most memory under a rule, with its bytes, and counts a denial; None if the rule
    /// is within its limit.
    pub fn largest_beyond(&mut self, rule: usize) -> Option<(ConnId, u64)> {
        if self.counts[rule].bytes <= self.rules[rule].limits.memory {
            return None;
        }
        let (bytes, largest) = self.counts[rule].by_bytes.iter().rev().metered().next().copied()?;
        self.count(Some(rule), Denial::Memory);
        Some((largest, bytes))
    }

    /// Returns the log line about a denial under the rule at this index, if one is due as [`LogLimit::due`] says. None
    /// stands for connections that match no rule.
    pub fn denial_line(
        &mut self,
        rule: Option<usize>,
        denial: Denial,
        (peer, what): (&str, impl FnOnce() -> String),
        now: Time,
    ) -> Option<String> {
        let more = self.counts[rule.unwrap_or(self.rules.len())].log.due(now)?;
        let rule = rule.map(|at| &self.rules[at]);
        let limit = rule.and_then(|rule| denial.limit(&rule.limits));
        let limit = limit.map_or(String::new(), |limit| format!(", {limit} allowed"));
        let name = rule.map_or("none", |rule| &rule.name);
        Some(format!("{peer} (rule {name}) {} ({}{limit}){more}", what(), denial.name()))
    }

    /// Returns the name of a connection's rule.
    pub fn rule_of(&self, conn: ConnId) -> Option<Arc<str>> {
        self.standings.get(conn).rule.map(|rule| self.names[usize::from(rule)].clone())
    }

    fn count(&mut self, rule: Option<usize>, denial: Denial) -> Denial {
        self.counts[rule.unwrap_or(self.rules.len())].denied[denial as usize].bump();
        denial
    }
}
