//! The proof that the tables of the pools agree with each other. It changes nothing.

use super::{List, PlaceId, Pool, PoolId, Purpose, Stage, State};
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
