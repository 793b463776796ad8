//! Comparison of the tables of the pools with each other. It changes nothing.

use super::tables::UNUSED_POOLS;
use super::{ClaimId, ClaimPhase, List, Pool, PoolId, PoolsState, Purpose, Stat, WorkType};
use poolcounter_core::{Count, Id};

impl PoolsState {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert!(self.emptied.queue.iter().all(|id| self.pools.contains(id.index())), "each emptied pool exists");
        assert!(self.emptied.queue.len() <= UNUSED_POOLS, "few emptied pools are left at the end of a turn");
        let in_use = self.pools.iter().filter(|(_, pool)| !pool.is_unused()).count();
        assert_eq!(in_use, self.emptied.in_use, "the pools with claims are counted");
        let mut claims_seen = 0;
        for (index, pool) in &self.pools {
            let id = PoolId::from_index(index);
            assert_eq!(self.find(self.names.hash(&pool.key), &pool.key), Some(id), "a pool is found by its name");
            assert!(!pool.is_unused() || self.emptied.queue.contains(id), "a pool without claims is listed");
            for queue in [&pool.holders, &pool.waiting_for_me, &pool.waiting_for_anyone] {
                for claim in queue.iter(&self.links_by_pool).map(|claim| &self.claims[claim.index()]) {
                    assert_eq!(claim.pool, id, "a claim stands in a queue of its own pool");
                    let is_own = std::ptr::eq(pool.queue_for(&claim.phase), queue);
                    assert!(is_own, "a claim stands in the queue of its phase");
                    claims_seen += 1;
                }
            }
        }
        assert_eq!(self.names.len(), self.pools.len(), "each pool has one name");
        assert_eq!(claims_seen, self.claims.len(), "each claim stands in one queue of a pool");
        self.check_clients();
        self.check_parts();
        self.check_background();
        let has_pool = |id: &PoolId| self.pools.contains(id.index());
        assert!(self.ceilings.late_since.keys().all(has_pool), "each pool with a late waiter exists");
        self.check_held();
        self.check_kept();
        self.check_types();
        self.top_keys.check();
    }

    /// Checks the claims by connection, but not against the limit: after an upgrade with a lower limit, a connection
    /// may exceed it.
    fn check_clients(&self) {
        let mut holding = 0;
        let mut claims_seen = 0_u64;
        for (conn, client) in self.clients.iter() {
            for (n, claim) in client.iter_back(&self.links_by_client).enumerate() {
                let claim = &self.claims[claim.index()];
                assert_eq!(claim.conn, conn, "a claim stands in the queue of its own connection");
                match claim.phase {
                    ClaimPhase::Waiting { .. } => assert_eq!(n, 0, "a connection waits for its newest claim only"),
                    ClaimPhase::Holding { .. } => holding += 1,
                    ClaimPhase::Kept { .. } | ClaimPhase::Part { .. } => panic!("it belongs to no client"),
                }
                claims_seen += 1;
            }
        }
        let wholes = self.claims.len() as u64 - self.parts.count - self.kept.len();
        assert_eq!(claims_seen, wholes, "each claim that is whole and not kept belongs to one connection");
        let named = self.claims.iter().filter(|(index, _)| !self.whos.get(ClaimId::from_index(*index)).is_empty());
        let names = self.whos.iter().filter(|(_, who)| !who.is_empty());
        assert_eq!(named.count(), names.count(), "each name belongs to a claim");
        assert_eq!(self.held.len(), holding, "each lock that is held is listed");
    }

    fn check_types(&self) {
        for one in self.types.iter() {
            let pools = self.pools.iter().map(|(_, pool)| pool);
            let (mut working, mut waiting) = (0, 0);
            for pool in pools.filter(|pool| self.types[pool.type_id].name == one.name) {
                for claim in self.claims_in(pool) {
                    match self.claims[claim.index()].phase {
                        ClaimPhase::Holding { .. } => working += 1,
                        ClaimPhase::Waiting { .. } => waiting += 1,
                        ClaimPhase::Kept { .. } | ClaimPhase::Part { .. } => {}
                    }
                }
            }
            assert_eq!((one.working(), one.waiting()), (working, waiting), "a type counts its claims");
        }
        let sum = |count: fn(&WorkType) -> Count| self.types.iter().map(count).sum::<Count>().get();
        for (of_types, stat) in [
            (sum(|one| one.acquired), Stat::TotalAcquired),
            (sum(|one| one.holds.count().into()), Stat::ProcessedCount),
            (sum(|one| one.full), Stat::FullQueues),
            (sum(|one| one.lost), Stat::LostLocks),
        ] {
            let total = self.count_of(stat);
            // A count that began near its end has saturated.
            assert!(of_types == total || total > u64::MAX / 2, "the counts of the types add up");
        }
    }
}

impl Pool {
    fn queue_for(&self, phase: &ClaimPhase) -> &List<ClaimId> {
        match phase {
            ClaimPhase::Holding { .. } | ClaimPhase::Kept { .. } | ClaimPhase::Part { is_held: true, .. } => {
                &self.holders
            }
            ClaimPhase::Waiting { purpose: Purpose::Me, .. } | ClaimPhase::Part { .. } => &self.waiting_for_me,
            ClaimPhase::Waiting { purpose: Purpose::Anyone, .. } => &self.waiting_for_anyone,
        }
    }
}
