//! Comparison of the tables of leases with each other.

use super::{Holding, HoldingId, Leases, MemberId, PoolId};
use poolcounter_core::Id as _;
use std::collections::BTreeMap;

impl Leases {
    /// Compares the indexes, the holdings and the numbers by rule with the leases.
    ///
    /// `pool_of` returns the pool of a member.
    pub fn check(&self, pool_of: impl Fn(MemberId) -> PoolId) {
        assert_eq!(self.by_number.len(), self.leases.len(), "each lease has one number");
        let (mut by_rule, mut tokens, mut attached) = (BTreeMap::new(), 0, 0);
        for (id, lease) in self.iter() {
            assert!(lease.number < self.next_number, "a number is never used again");
            assert_eq!(self.find(lease.number), Some(id), "a lease is found by its number");
            assert!(
                lease.holding.is_some() || lease.token.is_some(),
                "a lease without a token ends with its connection"
            );
            attached += usize::from(lease.holding.is_some());
            let Some(token) = &lease.token else { continue };
            assert_eq!(self.find_token(&token.token), Some(id), "a lease is found by its token");
            tokens += 1;
            token.rule.iter().for_each(|rule| *by_rule.entry(rule.clone()).or_insert(0) += 1);
        }
        assert_eq!(self.by_token.len(), tokens, "each token is of a lease");
        assert_eq!(by_rule, self.by_rule, "each lease with a token counts for its rule");
        let of_holdings: usize =
            self.holdings.iter().map(|(_, holding)| holding.leases.iter(&self.links).count()).sum();
        assert_eq!(of_holdings, attached, "each lease is in one holding");
        for (index, holding) in &self.holdings {
            self.check_holding(HoldingId::from_index(index), holding, &pool_of);
        }
        let connected = self.holdings.iter().filter(|(_, holding)| holding.conn.is_some()).count();
        let of_consumers = self.consumers.iter().filter(|(_, consumer)| consumer.holding.is_some()).count();
        assert_eq!(of_consumers, connected, "a holding is found by its connection");
    }

    fn check_holding(&self, id: HoldingId, holding: &Holding, pool_of: impl Fn(MemberId) -> PoolId) {
        if let Some(conn) = holding.conn {
            assert_eq!(self.consumers.get(conn).holding, Some(id), "a connection has one holding");
        }
        let leases = || holding.leases.iter(&self.links).map(|lease| self.get(lease));
        assert!(leases().all(|lease| lease.holding == Some(id)), "a holding has its own leases");
        let of_rules = leases().filter(|lease| lease.token.as_ref().is_some_and(|token| token.rule.is_some())).count();
        assert_eq!(holding.of_rules as usize, of_rules, "leases that count for a rule, and not for their connection");
        let mut by_pool: BTreeMap<PoolId, u32> = BTreeMap::new();
        leases().for_each(|lease| *by_pool.entry(pool_of(lease.member)).or_default() += 1);
        let mut counted = holding.by_pool.clone();
        counted.sort_unstable();
        assert!(counted.into_iter().eq(by_pool), "members of a holding by pool");
    }
}
