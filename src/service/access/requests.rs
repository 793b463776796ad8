//! Checks of requests: rights, locks, waits and the rate.

use super::{Access, Counts, Denial, Holds, Need, Takes, Verb};
use crate::id::ServiceId;
use poolcounter_core::{ConnId, Span, Time};

/// Time over which the rate of requests is averaged: after a pause this long, as many can arrive at once as are allowed
/// in it.
const BURST: Span = Span::from_secs(1);

impl Access {
    /// Returns true if the rule of a connection allows a request for one more lock of this key, and counts the request
    /// then. `has` returns the usage of its connection before. After false, [`Access::check`] decides, and counts.
    #[inline]
    pub fn allows_lock(
        &mut self,
        conn: ConnId,
        service: ServiceId,
        (verb, key): (Verb, &[u8]),
        has: impl FnOnce() -> Holds,
        now: Time,
    ) -> bool {
        let Some(at) = self.rule_at(conn) else { return false };
        let rule = &self.rules[at];
        if !rule.rights[service.index()].include_key(verb, key) {
            return false;
        }
        if self.counts_holds {
            self.note_holds(conn, has());
        }
        let (limits, counts) = (&self.rules[at].limits, &mut self.counts[at]);
        limits.are_none_for_requests()
            || counts.locks + counts.leases < limits.locks
                && counts.waits < limits.waits
                && counts.has_room_for_request(limits.requests, now)
    }

    /// Counts a request that is answered in any case. Returns false if the rule of its connection allows no more at this rate.
    #[inline]
    pub fn count_request(&mut self, conn: ConnId, now: Time) -> bool {
        if !self.counts_requests {
            return true;
        }
        let Some(at) = self.rule_at(conn) else { return true };
        self.counts[at].has_room_for_request(self.rules[at].limits.requests, now)
    }

    /// Checks a request against the rule of its connection. Returns the number of locks that the rule allows before the
    /// request. A request that is denied counts, too. A request that needs no right is denied only for its rate.
    ///
    /// # Errors
    ///
    /// The reason of the denial.
    pub fn check(&mut self, conn: ConnId, service: ServiceId, need: &Need<'_>, now: Time) -> Result<u64, Denial> {
        let Some(at) = self.rule_at(conn) else {
            return if need.verb.is_none() { Ok(u64::MAX) } else { Err(self.count(None, Denial::Stranger)) };
        };
        if let Some(Takes { has, .. }) = need.takes.filter(|_| self.counts_holds) {
            self.note_holds(conn, has);
        }
        let (rule, counts) = (&self.rules[at], &mut self.counts[at]);
        let is_allowed = need.verb.is_none_or(|verb| rule.rights[service.index()].include(verb, need.keys));
        let wanted = need.takes.map_or(0, |takes| takes.locks.into());
        let left = rule.limits.locks.saturating_sub(counts.locks + counts.leases);
        let has_room = counts.has_room_for_request(rule.limits.requests, now);
        let denial = match &rule.limits {
            _ if !is_allowed => Denial::Right,
            _ if wanted > left => Denial::Locks,
            limits if need.takes.is_some_and(|takes| takes.may_wait) && counts.waits >= limits.waits => Denial::Waits,
            _ if !has_room => Denial::Requests,
            _ => return Ok(left),
        };
        Err(self.count(Some(at), denial))
    }

    /// Returns the first key that the connection's rule does not allow, else the first key of the request.
    pub(crate) fn key_refused<'a>(&self, conn: ConnId, service: ServiceId, need: &Need<'a>) -> Option<&'a [u8]> {
        let rule = self.standings.get(conn).rule.map(|rule| &self.rules[usize::from(rule)]);
        let verb = need.verb?;
        let is_allowed = |key| rule.is_some_and(|rule| rule.rights[service.index()].include(verb, &[key]));
        need.keys.iter().find(|key| !is_allowed(key)).or(need.keys.first()).copied()
    }
}

impl Counts {
    /// Returns true if one more request fits into this rate, and counts it then.
    #[inline]
    fn has_room_for_request(&mut self, in_a_second: u64, now: Time) -> bool {
        if in_a_second == u64::MAX {
            return true;
        }
        let even_at = self.even_at.max(now);
        let has_room = even_at.since(now) < BURST;
        if has_room {
            // Rounds down, so that at least the allowed number fits.
            self.even_at = even_at + Span::from_micros(1_000_000 / in_a_second);
        }
        has_room
    }
}
