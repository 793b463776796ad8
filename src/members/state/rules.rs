//! Leases with a token, by the rule of access under which each was taken: they count for it until they end, whoever is connected.

use super::waiters::WaitSource;
use super::*;

impl State {
    /// Notes which rule is for a connection: what it takes with a token from now on counts for that rule.
    pub fn note_rule(&mut self, conn: ConnId, rule: Option<Arc<str>>) {
        self.client(conn).rule = rule;
    }

    /// Returns how many leases with a token there are, by the rule under which they were taken.
    pub fn leases_of_rules(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.leases_of_rules.iter().map(|(rule, leases)| (rule, *leases))
    }

    /// Returns the rules whose leases have become more or fewer since the last call, and how many they are now.
    pub fn changed_rules(&mut self) -> impl Iterator<Item = (Arc<str>, u64)> {
        let changed = std::mem::take(&mut self.changed_rules);
        changed.into_iter().map(|rule| {
            let leases = self.leases_of_rules.get(&rule).copied().unwrap_or_default();
            (rule, leases)
        })
    }

    /// Returns the pool for which a connection provides or cleans.
    pub fn provides_for(&self, conn: ConnId) -> Option<&[u8]> {
        self.agent_of(conn).map(|(_, pool)| &*self.pool(pool).name)
    }

    /// Returns from where a connection waits for members.
    pub fn waits_for(&self, conn: ConnId) -> Option<From<'_>> {
        let waiter = self.waiter(self.clients.get(conn.index())?.waiter?);
        Some(match waiter.place {
            WaitSource::Pool(pool) => From::Pool(&self.pool(pool).name),
            WaitSource::Group(group, _) => From::Group(&self.groups[group.index()].name),
        })
    }

    /// Has a connection be no provider or cleaner any more: its starts have failed, and its members are gone, as if it were lost.
    pub fn stop_providing(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.refill(step.now);
        self.lose_agent(conn, step);
        self.settle(step);
    }

    /// Ends the wait of a connection that may not wait any more.
    pub fn deny_wait(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.refill(step.now);
        self.leave_wait(conn, step);
        step.tell(conn, What::Error(Refusal::Denied));
        self.settle(step);
    }

    /// Counts a lease with a token for a rule, instead of for its connection.
    pub(super) fn count_for_rule(&mut self, id: LeaseId, rule: Arc<str>) {
        let lease = &mut self.leases[id.index()];
        let token = lease.token.as_mut().expect("only leases with a token count for a rule");
        token.rule = Some(rule.clone());
        if let Some(holding) = lease.holding {
            self.holdings[holding.index()].of_rules += 1;
        }
        *self.leases_of_rules.entry(rule.clone()).or_default() += 1;
        self.note_changed(rule);
    }

    /// Counts a lease that has ended no longer for its rule.
    pub(super) fn uncount_for_rule(&mut self, rule: Arc<str>) {
        let leases = self.leases_of_rules.get_mut(&rule).expect("what counts for a rule was counted");
        *leases -= 1;
        if *leases == 0 {
            self.leases_of_rules.remove(&rule);
        }
        self.note_changed(rule);
    }

    fn note_changed(&mut self, rule: Arc<str>) {
        if !self.changed_rules.contains(&rule) {
            self.changed_rules.push(rule);
        }
    }

    /// Compares what is counted for rules with the leases.
    pub(super) fn check_rules(&self) {
        let rule_of = |lease: &Lease| lease.token.as_ref().and_then(|token| token.rule.clone());
        let mut counted = BTreeMap::new();
        for (_, lease) in &self.leases {
            rule_of(lease).into_iter().for_each(|rule| *counted.entry(rule).or_insert(0) += 1);
        }
        assert_eq!(counted, self.leases_of_rules, "each lease with a token counts for its rule");
        for (_, holding) in &self.holdings {
            let leases = holding.leases.iter(&self.links_lease).map(|lease| &self.leases[lease.index()]);
            let of_rules = leases.filter(|lease| rule_of(lease).is_some()).count();
            assert_eq!(holding.of_rules as usize, of_rules, "what counts for a rule does not for its connection");
        }
    }
}
