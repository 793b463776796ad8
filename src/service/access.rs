//! Rules of access: who may do what, and how much of it, with the counts of each rule. The rule of a connection is found when it
//! begins, and its rights are kept with it. Without rules everything is allowed, and nothing is looked up.

mod asking;
mod check;
pub mod report;
mod rule;
mod saved;

pub use poolcounter_protocol::command::{Command, Verb};
pub use rule::{Identity, Limits, Rights, Rule, Who};
pub use saved::{SavedCounts, had_rules};

use crate::id::ServiceId;
use log::warn;
use poolcounter_core::count::Count;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::log_limit::LogLimit;
use poolcounter_core::time::{Span, Time};
use std::sync::Arc;

/// How many rules there may be: a connection is compared with one after the other.
pub const MOST_RULES: usize = 256;

/// Why something is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denial {
    /// No rule is for those who ask, or it allows them nothing of the service.
    Stranger,
    /// Their rule does not allow that.
    Right,
    /// They have as many connections as they may.
    Connections,
    /// They hold as much as they may.
    Locks,
    /// As many of their requests wait as may.
    Waits,
    /// They have asked for as much in this second as they may.
    Requests,
    /// They take as much memory as they may.
    Memory,
}

/// What a connection holds and waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holds {
    /// Locks, units, members or jobs.
    pub locks: u32,
    /// Requests that wait.
    pub waits: u32,
}

/// What a request needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need<'a> {
    /// What it asks for.
    pub verb: Verb,
    /// Of what; nothing if it is about all that there is.
    pub keys: &'a [&'a [u8]],
    /// None if it takes nothing.
    pub takes: Option<Takes>,
}

/// Locks that a request takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takes {
    /// What its connection has already.
    pub has: Holds,
    /// Number of locks that it would have in addition.
    pub locks: u32,
}

/// The rules at work.
#[derive(Debug)]
pub struct Access {
    /// False without rules.
    is_on: bool,
    /// Whether some rule limits what is held, waits, or takes memory.
    counts_holds: bool,
    counts_memory: bool,
    rules: Vec<Rule>,
    /// Their names, to be kept by others.
    names: Vec<Arc<str>>,
    /// What is counted of each rule, and at the end of those for whom there is none.
    counts: Vec<Counts>,
    /// By connection.
    standings: Vec<Standing>,
}

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Standing {
    /// The rule that is for it.
    rule: Option<u16>,
    holds: Holds,
    /// What it has received and not served, or not sent.
    bytes: u64,
}

/// What is counted of a rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Counts {
    connections: u64,
    /// Those of its connections, and those that were taken under it and count without any.
    locks: u64,
    leases: u64,
    waits: u64,
    bytes: u64,
    /// When the requests so far would have come if they had come evenly.
    even_at: Time,
    /// By reason.
    denied: [Count; Denial::ALL.len()],
    log: LogLimit,
}

/// After how long a pause as many requests can come at once as are allowed in that time.
const BURST: Span = Span::from_secs(1);

impl Denial {
    /// Every reason.
    pub const ALL: [Denial; 7] = [
        Denial::Stranger,
        Denial::Right,
        Denial::Connections,
        Denial::Locks,
        Denial::Waits,
        Denial::Requests,
        Denial::Memory,
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Denial::Stranger => "stranger",
            Denial::Right => "right",
            Denial::Connections => "connections",
            Denial::Locks => "locks",
            Denial::Waits => "waits",
            Denial::Requests => "requests",
            Denial::Memory => "memory",
        }
    }

    /// Returns the limit that was met, in what the rule counts it in; None where no limit was.
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

    /// Returns whether it is allowed at another time.
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
    /// Returns the rules at work, with no connections.
    pub fn new(rules: Vec<Rule>) -> Access {
        Access {
            is_on: !rules.is_empty(),
            counts_holds: rules.iter().any(|rule| rule.limits.locks.min(rule.limits.waits) != u64::MAX),
            counts_memory: rules.iter().any(|rule| rule.limits.memory != u64::MAX),
            counts: vec![Counts::default(); rules.len() + 1],
            names: rules.iter().map(|rule| (&*rule.name).into()).collect(),
            rules,
            standings: Vec::new(),
        }
    }

    /// Returns the rules at work that follow on those of another process, which has denied this. None where they could not be read:
    /// nobody may ask for anything then if there were some before.
    pub fn after(before: &[SavedCounts], rules: Option<Vec<Rule>>) -> Access {
        let closed = || if had_rules(before) { vec![Rule::for_nobody()] } else { Vec::new() };
        if had_rules(before) && rules.as_ref().is_some_and(Vec::is_empty) {
            warn!("there are no rules of access any more: everybody may ask for everything");
        }
        let mut access = Access::new(rules.unwrap_or_else(closed));
        access.restore_counts(before);
        access
    }

    /// Returns whether there are rules.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns whether there are rules for somebody: it does not where they could not be read.
    pub fn are_known(&self) -> bool {
        self.rules.iter().any(|rule| !rule.who.is_empty())
    }

    /// Returns whether the rule of a connection includes a verb for each of some keys. Nothing is counted.
    pub fn includes(&self, conn: ConnId, service: ServiceId, verb: Verb, keys: &[&[u8]]) -> bool {
        let rule = self.standings.get(conn.index()).and_then(|standing| standing.rule);
        rule.is_some_and(|rule| self.rules[usize::from(rule)].rights[service.index()].include(verb, keys))
    }

    /// Returns whether it is to be told what connections hold.
    #[inline]
    pub fn counts_holds(&self) -> bool {
        self.counts_holds
    }

    /// Returns whether it is to be told how much memory connections take.
    #[inline]
    pub fn counts_memory(&self) -> bool {
        self.counts_memory
    }

    /// Finds the rule for a connection that begins. There is none for a client that is not known.
    ///
    /// # Errors
    ///
    /// Why it may not be served.
    pub fn rule_of_new(
        &mut self,
        service: ServiceId,
        identity: Option<&Identity<'_>>,
    ) -> Result<Option<usize>, Denial> {
        if !self.is_on {
            return Ok(None);
        }
        let rule = identity.and_then(|identity| self.rule_for(identity));
        let Some(at) = rule.filter(|at| !self.rules[*at].rights[service.index()].are_none()) else {
            return Err(self.count(rule, Denial::Stranger));
        };
        if self.counts[at].connections >= self.rules[at].limits.connections {
            return Err(self.count(rule, Denial::Connections));
        }
        Ok(Some(at))
    }

    /// Finds the rule for a connection that another process has served: it goes on, but may be allowed nothing now.
    pub fn restore(&mut self, conn: ConnId, identity: &Identity<'_>) {
        let rule = self.rule_for(identity);
        self.enter(conn, rule);
    }

    /// Returns the place of the rule that is for those of an identity.
    pub fn rule_for(&self, identity: &Identity<'_>) -> Option<usize> {
        self.rules.iter().position(|rule| rule.who.iter().any(|who| who.is(identity)))
    }

    /// Counts a connection for its rule, if it has one.
    pub fn enter(&mut self, conn: ConnId, rule: Option<usize>) {
        let Some(rule) = rule else { return };
        self.counts[rule].connections += 1;
        // Lossless: there are few rules.
        self.standing(conn).rule = Some(rule as u16);
    }

    /// Forgets a connection that ends.
    pub fn leave(&mut self, conn: ConnId) {
        self.note_holds(conn, Holds::default());
        self.note_bytes(conn, 0);
        if let Some(rule) = self.standing(conn).rule.take() {
            self.counts[usize::from(rule)].connections -= 1;
        }
    }

    /// Notes what a connection has now.
    pub fn note_holds(&mut self, conn: ConnId, holds: Holds) {
        let Standing { rule: Some(rule), holds: before, .. } = *self.standing(conn) else { return };
        self.standing(conn).holds = holds;
        let counts = &mut self.counts[usize::from(rule)];
        counts.locks = counts.locks + u64::from(holds.locks) - u64::from(before.locks);
        counts.waits = counts.waits + u64::from(holds.waits) - u64::from(before.waits);
    }

    /// Notes how many locks count for the rule of this name without a connection.
    pub fn note_leases(&mut self, rule: &str, leases: u64) {
        if let Some(at) = self.rules.iter().position(|other| *other.name == *rule).filter(|_| self.counts_holds) {
            self.counts[at].leases = leases;
        }
    }

    /// Notes how much memory a connection takes. Returns true if that is more than before and its rule is beyond its limit by now.
    pub fn note_bytes(&mut self, conn: ConnId, bytes: u64) -> bool {
        let Standing { rule: Some(rule), bytes: before, .. } = *self.standing(conn) else { return false };
        self.standing(conn).bytes = bytes;
        let at = usize::from(rule);
        self.counts[at].bytes = self.counts[at].bytes + bytes - before;
        bytes > before && self.counts[at].bytes > self.rules[at].limits.memory
    }

    /// Returns the rule of a connection, by its place.
    pub fn rule_at(&self, conn: ConnId) -> Option<usize> {
        self.standings.get(conn.index())?.rule.map(usize::from)
    }

    /// Returns the connection of a rule that takes the most memory, with its bytes, and counts that it is denied them; None if the rule has
    /// no more than it may.
    pub fn largest_beyond(&mut self, rule: usize) -> Option<(ConnId, u64)> {
        if self.counts[rule].bytes <= self.rules[rule].limits.memory {
            return None;
        }
        let of_rule = self.standings.iter().enumerate().filter(|(_, one)| one.rule.map(usize::from) == Some(rule));
        let (index, standing) = of_rule.max_by_key(|(_, one)| one.bytes)?;
        let largest = (ConnId::from_index(index), standing.bytes);
        self.count(Some(rule), Denial::Memory);
        Some(largest)
    }

    /// Looks whether a connection may ask for something now, and returns how many locks its rule allows more before that.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn check(&mut self, conn: ConnId, service: ServiceId, need: &Need<'_>, now: Time) -> Result<u64, Denial> {
        let Some(rule) = self.standing(conn).rule else { return Err(self.count(None, Denial::Stranger)) };
        let at = usize::from(rule);
        if let Some(Takes { has, .. }) = need.takes.filter(|_| self.counts_holds) {
            self.note_holds(conn, has);
        }
        let (rule, counts) = (&self.rules[at], &mut self.counts[at]);
        let is_allowed = rule.rights[service.index()].include(need.verb, need.keys);
        let wanted = need.takes.map_or(0, |takes| takes.locks.into());
        let left = rule.limits.locks.saturating_sub(counts.locks + counts.leases);
        let denial = match rule.limits {
            _ if !is_allowed => Denial::Right,
            _ if wanted > left => Denial::Locks,
            limits if need.takes.is_some() && counts.waits >= limits.waits => Denial::Waits,
            limits if !counts.has_room_for_request(limits.requests, now) => Denial::Requests,
            _ => return Ok(left),
        };
        Err(self.count(Some(at), denial))
    }

    /// Returns the first key of a request that the connection's rule does not allow, else the first.
    fn key_refused<'a>(&mut self, conn: ConnId, service: ServiceId, need: &Need<'a>) -> Option<&'a [u8]> {
        let rule = self.standing(conn).rule.map(|rule| &self.rules[usize::from(rule)]);
        let is_allowed = |key| rule.is_some_and(|rule| rule.rights[service.index()].include(need.verb, &[key]));
        need.keys.iter().find(|key| !is_allowed(key)).or(need.keys.first()).copied()
    }

    /// Returns the line of the log about a denial under the rule at this place, if one is due as [`LogLimit::due`] says. None stands for
    /// those for whom there is no rule.
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

    /// Returns the name of the rule that is for a connection.
    pub fn rule_of(&self, conn: ConnId) -> Option<Arc<str>> {
        let standing = self.standings.get(conn.index())?;
        standing.rule.map(|rule| self.names[usize::from(rule)].clone())
    }

    fn count(&mut self, rule: Option<usize>, denial: Denial) -> Denial {
        self.counts[rule.unwrap_or(self.rules.len())].denied[denial as usize].bump();
        denial
    }

    fn standing(&mut self, conn: ConnId) -> &mut Standing {
        if self.standings.len() <= conn.index() {
            self.standings.resize_with(conn.index() + 1, Standing::default);
        }
        &mut self.standings[conn.index()]
    }
}

impl Counts {
    /// Returns whether one more request fits into so many a second, and counts it then.
    fn has_room_for_request(&mut self, in_a_second: u64, now: Time) -> bool {
        if in_a_second == u64::MAX {
            return true;
        }
        let even_at = self.even_at.max(now);
        let has_room = even_at.since(now) < BURST;
        if has_room {
            // Rounded down, so that no fewer fit than are allowed.
            self.even_at = even_at + Span::from_micros(1_000_000 / in_a_second);
        }
        has_room
    }
}
