//! Who may do what, and how much of it: the rules that the operator has set, and what is counted of those whom they are for. It knows
//! no single service and no sockets.
//!
//! A rule is found for each connection when that begins; with it stands, prepared, what each service may be asked for. Without
//! rules everybody may do everything, and nothing is looked up.

mod asking;
pub mod report;
mod rule;

pub use rule::{Identity, Limits, Rights, Rule, Verb, Who};

use crate::bounded_log::BoundedLog;
use crate::id::{ConnId, Id, ServiceId};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

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
    /// What its connection has already, if it asks for more; None if it takes nothing.
    pub takes: Option<Holds>,
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
    locks: u64,
    waits: u64,
    bytes: u64,
    /// When the requests so far would have come if they had come evenly.
    even_at: Time,
    /// By reason.
    denied: [u64; Denial::ALL.len()],
    log: BoundedLog,
}

/// The counts of a rule in a handover: its name, and what was denied by the names of reasons.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedCounts {
    rule: Option<String>,
    denied: Vec<(String, u64)>,
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
            rules,
            standings: Vec::new(),
        }
    }

    /// Returns the rules at work that follow on those of another process, which has denied this. None where they could not be read:
    /// nobody may ask for anything then if there were some before.
    pub fn after(before: &[SavedCounts], rules: Option<Vec<Rule>>) -> Access {
        let had_rules = before.iter().any(|counts| counts.rule.is_some());
        let closed = || if had_rules { vec![Rule::for_nobody()] } else { Vec::new() };
        let mut access = Access::new(rules.unwrap_or_else(closed));
        access.restore_counts(before);
        access
    }

    /// Returns whether there are rules.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
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

    /// Finds the rule for a connection that begins.
    ///
    /// # Errors
    ///
    /// Why it may not be served. Nothing is remembered of it then.
    pub fn admit(&mut self, conn: ConnId, service: ServiceId, identity: &Identity<'_>) -> Result<(), Denial> {
        let rule = self.rule_for(identity);
        let Some(at) = rule.filter(|at| !self.rules[*at].rights[service.index()].are_none()) else {
            return Err(self.count(rule, Denial::Stranger));
        };
        if self.counts[at].connections >= self.rules[at].limits.connections {
            return Err(self.count(rule, Denial::Connections));
        }
        self.enter(conn, at);
        Ok(())
    }

    /// Finds the rule for a connection that another process has served: it goes on, but may be allowed nothing now.
    pub fn restore(&mut self, conn: ConnId, identity: &Identity<'_>) {
        if let Some(at) = self.rule_for(identity) {
            self.enter(conn, at);
        }
    }

    fn rule_for(&self, identity: &Identity<'_>) -> Option<usize> {
        self.rules.iter().position(|rule| rule.who.iter().any(|who| who.is(identity)))
    }

    fn enter(&mut self, conn: ConnId, rule: usize) {
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

    /// Notes how much memory a connection takes now, and returns why it cannot go on with that, if its rule says so.
    pub fn note_bytes(&mut self, conn: ConnId, bytes: u64) -> Option<Denial> {
        let Standing { rule: Some(rule), bytes: before, .. } = *self.standing(conn) else { return None };
        self.standing(conn).bytes = bytes;
        let at = usize::from(rule);
        self.counts[at].bytes = self.counts[at].bytes + bytes - before;
        let is_too_much = bytes > before && self.counts[at].bytes > self.rules[at].limits.memory;
        is_too_much.then(|| self.count(Some(at), Denial::Memory))
    }

    /// Looks whether a connection may ask for something now.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn check(&mut self, conn: ConnId, service: ServiceId, need: &Need<'_>, now: Time) -> Result<(), Denial> {
        let Some(rule) = self.standing(conn).rule else { return Err(self.count(None, Denial::Stranger)) };
        let at = usize::from(rule);
        if let Some(holds) = need.takes.filter(|_| self.counts_holds) {
            self.note_holds(conn, holds);
        }
        let (rule, counts) = (&self.rules[at], &mut self.counts[at]);
        let is_allowed = rule.rights[service.index()].include(need.verb, need.keys);
        let takes = need.takes.is_some();
        let denial = match rule.limits {
            _ if !is_allowed => Denial::Right,
            limits if takes && counts.locks >= limits.locks => Denial::Locks,
            limits if takes && counts.waits >= limits.waits => Denial::Waits,
            limits if !counts.has_room_for_request(limits.requests, now) => Denial::Requests,
            _ => return Ok(()),
        };
        Err(self.count(Some(at), denial))
    }

    /// Returns whether the log is to tell of a denial of the connection's rule now, as [`BoundedLog::due`] does.
    pub fn should_log(&mut self, conn: ConnId, now: Time) -> Option<String> {
        let at = self.standing(conn).rule.map_or(self.rules.len(), usize::from);
        self.counts[at].log.due(now)
    }

    /// Returns the name of the rule that is for a connection.
    pub fn rule_of(&self, conn: ConnId) -> Option<&str> {
        let standing = self.standings.get(conn.index())?;
        standing.rule.map(|rule| &*self.rules[usize::from(rule)].name)
    }

    fn count(&mut self, rule: Option<usize>, denial: Denial) -> Denial {
        self.counts[rule.unwrap_or(self.rules.len())].denied[denial as usize] += 1;
        denial
    }

    fn standing(&mut self, conn: ConnId) -> &mut Standing {
        if self.standings.len() <= conn.index() {
            self.standings.resize_with(conn.index() + 1, Standing::default);
        }
        &mut self.standings[conn.index()]
    }

    /// Returns what was denied, for a process that takes over.
    pub fn save(&self) -> Vec<SavedCounts> {
        let names = self.rules.iter().map(|rule| Some(rule.name.clone())).chain([None]);
        let denied = |counts: &Counts| {
            Denial::ALL.into_iter().map(|denial| (denial.name().into(), counts.denied[denial as usize])).collect()
        };
        names.zip(&self.counts).map(|(rule, counts)| SavedCounts { rule, denied: denied(counts) }).collect()
    }

    /// Goes on counting from there, for the rules that are still there.
    fn restore_counts(&mut self, saved: &[SavedCounts]) {
        for SavedCounts { rule, denied } in saved {
            let at = match rule {
                None => Some(self.rules.len()),
                Some(name) => self.rules.iter().position(|rule| rule.name == *name),
            };
            let Some(counts) = at.and_then(|at| self.counts.get_mut(at)) else { continue };
            for denial in Denial::ALL {
                let known = denied.iter().find(|(name, _)| name == denial.name());
                counts.denied[denial as usize] = known.map_or(0, |(_, count)| *count);
            }
        }
    }

    /// Compares what is counted of the rules with the connections.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check_counts(&self) {
        for (at, counts) in self.counts.iter().enumerate() {
            let of_rule = || self.standings.iter().filter(|standing| standing.rule.map(usize::from) == Some(at));
            assert_eq!(counts.connections, of_rule().count() as u64, "each connection is counted for its rule");
            let sum = |of: fn(&Standing) -> u64| of_rule().map(of).sum::<u64>();
            assert_eq!(counts.locks, sum(|standing| standing.holds.locks.into()));
            assert_eq!(counts.waits, sum(|standing| standing.holds.waits.into()));
            assert_eq!(counts.bytes, sum(|standing| standing.bytes));
        }
    }

    /// Returns whether no connection is counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|counts| counts.connections == 0)
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
