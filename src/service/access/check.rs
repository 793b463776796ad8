//! Consistency check of the rules' counters, for tests and rehearsals.

use super::{Access, Standing};
use poolcounter_core::ConnId;
use std::sync::Arc;

impl Access {
    /// Compares the rules' counters with the connections and with the locks that have none.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check_counts(&self, leases_of_rules: &[(Arc<str>, u64)]) {
        for (at, counts) in self.counts.iter().enumerate() {
            let of_rule = || {
                self.standings
                    .iter()
                    .map(|(_, standing)| standing)
                    .filter(|standing| standing.rule.map(usize::from) == Some(at))
            };
            let sum = |of: fn(&Standing) -> u64| of_rule().map(of).sum::<u64>();
            let is_of_rule = |name: &str| self.rules.iter().position(|rule| *rule.name == *name) == Some(at);
            let leases = leases_of_rules.iter().filter(|(name, _)| self.counts_holds && is_of_rule(name));
            let is_limited = self.rules.get(at).is_some_and(|rule| rule.limits.memory != u64::MAX);
            let has_bytes = of_rule().filter(|standing| is_limited && standing.bytes > 0).count();
            for (what, counted, sum) in [
                ("connections", counts.connections, of_rule().count() as u64),
                ("leases without a connection", counts.leases, leases.map(|(_, leases)| leases).sum()),
                ("locks", counts.locks, sum(|standing| standing.holds.locks.into())),
                ("waits", counts.waits, sum(|standing| standing.holds.waits.into())),
                ("bytes", counts.bytes, sum(|standing| standing.bytes)),
                ("connections with bytes, if they are limited", counts.by_bytes.len() as u64, has_bytes as u64),
            ] {
                assert_eq!(counted, sum, "rule {at} counts its {what}");
            }
            for (bytes, id) in &counts.by_bytes {
                let standing = self.standings.get(*id);
                let is_right = standing.bytes == *bytes && standing.rule.map(usize::from) == Some(at);
                assert!(is_right, "{id} is ordered by its bytes, in its rule");
            }
        }
    }

    /// Checks that each connection with a rule exists, as `is_there` tells.
    ///
    /// # Panics
    ///
    /// Panics if a connection with a rule does not exist.
    pub fn check_standings(&self, is_there: impl Fn(ConnId) -> bool) {
        for (id, standing) in self.standings.iter() {
            assert!(standing.rule.is_none() || is_there(id), "{id} is counted for its rule, and is not served");
        }
    }

    /// Returns true if no connection is counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|counts| counts.connections == 0)
    }
}
