//! Numbers of leases by the rule of access under which they were taken.

use super::{LeaseId, Leases};
use crate::state::State;
use poolcounter_core::Id as _;
use std::sync::Arc;

impl State {
    /// Returns the number of leases with a token by the rule under which they were taken.
    pub fn leases_of_rules(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.leases.by_rule.iter().map(|(rule, leases)| (rule, *leases))
    }

    /// Returns the rules whose number of leases has changed since the last call, and their numbers.
    pub fn changed_rules(&mut self) -> impl Iterator<Item = (Arc<str>, u64)> {
        let changed = std::mem::take(&mut self.leases.changed_rules);
        changed.into_iter().map(|rule| {
            let leases = self.leases.by_rule.get(&rule).copied().unwrap_or_default();
            (rule, leases)
        })
    }
}

impl Leases {
    /// Counts a lease with a token for a rule, instead of for its connection.
    pub(in crate::state) fn count_for_rule(&mut self, id: LeaseId, rule: Arc<str>) {
        let lease = &mut self.leases[id.index()];
        let token = lease.token.as_mut().expect("only leases with a token count for a rule");
        token.rule = Some(rule.clone());
        if let Some(holding) = lease.holding {
            self.holdings[holding.index()].of_rules += 1;
        }
        *self.by_rule.entry(rule.clone()).or_default() += 1;
        self.note_changed(rule);
    }

    pub(super) fn uncount_for_rule(&mut self, rule: Arc<str>) {
        let leases = self.by_rule.get_mut(&rule).expect("what counts for a rule was counted");
        *leases -= 1;
        if *leases == 0 {
            self.by_rule.remove(&rule);
        }
        self.note_changed(rule);
    }

    fn note_changed(&mut self, rule: Arc<str>) {
        if !self.changed_rules.contains(&rule) {
            self.changed_rules.push(rule);
        }
    }
}
