//! The proof that the tables of the pools agree with each other. It changes nothing.

use super::watch::NEVER;
use super::{List, PlaceId, Pool, PoolId, Purpose, Stage, Stat, State, Type};
use crate::id::Id;

impl State {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        let mut places_seen = 0;
        for (index, pool) in &self.pools {
            let id = PoolId::from_index(index);
            assert_eq!(self.find(self.names.hash(&pool.key), &pool.key), Some(id), "a pool is found by its name");
            assert_ne!(pool.occupancy(), (0, 0), "a pool exists while somebody holds or waits");
            for queue in [&pool.holders, &pool.waiting_for_me, &pool.waiting_for_anyone] {
                for place in queue.iter(&self.links_by_pool).map(|place| &self.places[place.index()]) {
                    assert_eq!(place.pool, id, "a place stands in a queue of its own pool");
                    assert!(
                        std::ptr::eq(pool.queue_for(&place.stage), queue),
                        "a place stands in the queue of its stage"
                    );
                    places_seen += 1;
                }
            }
        }
        assert_eq!(self.names.len(), self.pools.len(), "each pool has one name");
        assert_eq!(places_seen, self.places.len(), "each place stands in one queue of a pool");
        self.check_clients();
        self.check_types();
        self.check_watch();
    }

    /// How many places a connection has is not looked at: after an upgrade with a lower limit it may have more.
    fn check_clients(&self) {
        let mut holding = 0;
        let mut places_seen = 0;
        for (index, client) in self.clients.iter().enumerate() {
            for (n, place) in client.iter_back(&self.links_by_client).enumerate() {
                let place = &self.places[place.index()];
                assert_eq!(place.conn.index(), index, "a place stands in the queue of its own connection");
                match place.stage {
                    Stage::Waiting { .. } => assert_eq!(n, 0, "a connection waits for its newest place only"),
                    Stage::Holding { .. } => holding += 1,
                }
                places_seen += 1;
            }
        }
        assert_eq!(places_seen, self.places.len(), "each place belongs to one connection");
        assert_eq!(self.holding, holding, "the count of places held");
    }

    fn check_types(&self) {
        for one in self.types.iter() {
            let pools = self.pools.iter().map(|(_, pool)| pool);
            let (mut working, mut waiting) = (0, 0);
            for pool in pools.filter(|pool| self.types[pool.type_id].name == one.name) {
                let (holding, occupied) = pool.occupancy();
                working += u64::from(holding);
                waiting += u64::from(occupied - holding);
            }
            assert_eq!((one.working(), one.waiting()), (working, waiting), "the levels of a type");
        }
        let sum = |count: fn(&Type) -> u64| self.types.iter().map(count).sum::<u64>();
        for (of_types, stat) in [
            (sum(|one| one.acquired), Stat::TotalAcquired),
            (sum(|one| one.holds.count()), Stat::ProcessedCount),
            (sum(|one| one.full), Stat::FullQueues),
        ] {
            assert_eq!(of_types, self.figures.of(stat), "what happens happens to some type");
        }
    }

    fn check_watch(&self) {
        self.sketch.check();
        assert_eq!(self.watch.timer.is_some(), self.watch.due < NEVER, "the timer is due when it is armed");
        assert!(self.next_look().is_none_or(|at| at >= self.watch.due), "the locks are looked at in time");
    }
}

impl Pool {
    fn queue_for(&self, stage: &Stage) -> &List<PlaceId> {
        match stage {
            Stage::Holding { .. } => &self.holders,
            Stage::Waiting { purpose: Purpose::Me, .. } => &self.waiting_for_me,
            Stage::Waiting { purpose: Purpose::Anyone, .. } => &self.waiting_for_anyone,
        }
    }
}
