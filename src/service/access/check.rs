//! Consistency check of the rules' counters, for tests and rehearsals.

use super::{Access, Standing};
use poolcounter_core::{ConnId, Id};
use std::sync::Arc;

impl Access {
    /// Compares the rules' counters with the connections and with the locks that have none.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check_counts(&self, leases_of_rules: &[(Arc<str>, u64)]) {
        for (at, counts) in self.counts.iter().enumerate() {
            let of_rule = || self.standings.iter().filter(|standing| standing.rule.map(usize::from) == Some(at));
            assert_eq!(counts.connections, of_rule().count() as u64, "a rule counts its connections");
            let sum = |of: fn(&Standing) -> u64| of_rule().map(of).sum::<u64>();
            let is_of_rule = |name: &str| self.rules.iter().position(|rule| *rule.name == *name) == Some(at);
            let leases = leases_of_rules.iter().filter(|(name, _)| self.counts_holds && is_of_rule(name));
            assert_eq!(
                counts.leases,
                leases.map(|(_, leases)| leases).sum::<u64>(),
                "a rule counts its leases without a connection"
            );
            assert_eq!(
                counts.locks,
                sum(|standing| standing.holds.locks.into()),
                "a rule counts the locks of its connections"
            );
            assert_eq!(
                counts.waits,
                sum(|standing| standing.holds.waits.into()),
                "a rule counts the waits of its connections"
            );
            assert_eq!(counts.bytes, sum(|standing| standing.bytes), "a rule counts the bytes of its connections");
            let is_limited = self.rules.get(at).is_some_and(|rule| rule.limits.memory != u64::MAX);
            let has_bytes = of_rule().filter(|standing| is_limited && standing.bytes > 0).count();
            assert_eq!(
                counts.by_bytes.len(),
                has_bytes,
                "a rule with a memory limit orders its connections with bytes"
            );
            for (bytes, id) in &counts.by_bytes {
                let standing = self.standings[id.index()];
                assert_eq!(
                    (standing.bytes, standing.rule.map(usize::from)),
                    (*bytes, Some(at)),
                    "{id} is ordered by its bytes, in its rule"
                );
            }
        }
    }

    /// Checks that each connection with a rule exists, as `is_there` tells.
    ///
    /// # Panics
    ///
    /// Panics if a connection with a rule does not exist.
    pub fn check_standings(&self, is_there: impl Fn(ConnId) -> bool) {
        for (index, standing) in self.standings.iter().enumerate() {
            let id = ConnId::from_index(index);
            assert!(standing.rule.is_none() || is_there(id), "{id} is counted for its rule, and is not served");
        }
    }

    /// Returns true if no connection is counted.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|counts| counts.connections == 0)
    }
}
