//! Claims of connections that have many, by pool: the newest claim on a key is found without a search.

use super::{ClaimId, PoolId, PoolsState};
use hashbrown::HashMap;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::list::{Links, List};

/// Most claims that are searched one by one. Few connections have more.
pub(super) const FEW: u32 = 32;

/// Queues of claims by connection and pool, oldest first. Claims of connections that never had many are in none.
#[derive(Default)]
pub(super) struct ClaimsByPool {
    queues: HashMap<(ConnId, PoolId), List<ClaimId>>,
    links: Links,
}

impl ClaimsByPool {
    /// Adds the newest claim of its connection, unless it is queued.
    pub fn add(&mut self, id: ClaimId, of: (ConnId, PoolId)) {
        if !self.links.is_linked(id) {
            self.queues.entry(of).or_default().push_back(&mut self.links, id);
        }
    }

    /// Removes a claim, if it is queued.
    #[inline]
    pub fn remove(&mut self, id: ClaimId, of: (ConnId, PoolId)) {
        if self.links.is_linked(id) {
            self.take_out(id, of);
        }
    }

    #[cold]
    fn take_out(&mut self, id: ClaimId, of: (ConnId, PoolId)) {
        let queue = self.queues.get_mut(&of).expect("a claim that is linked stands in its queue");
        queue.remove(&mut self.links, id);
        if queue.is_empty() {
            self.queues.remove(&of);
        }
    }

    /// Returns the newest claim of a connection on a pool.
    pub fn newest(&self, of: (ConnId, PoolId)) -> Option<ClaimId> {
        self.queues.get(&of)?.back()
    }

    /// Returns whether a claim is queued.
    pub fn has(&self, id: ClaimId) -> bool {
        self.links.is_linked(id)
    }

    /// Returns every queued claim, with its connection and pool.
    pub fn iter(&self) -> impl Iterator<Item = (ClaimId, (ConnId, PoolId))> {
        self.queues.iter().flat_map(|(of, queue)| queue.iter(&self.links).map(|id| (id, *of)))
    }
}

impl PoolsState {
    /// Returns the connection's claims, newest first.
    pub(super) fn claims_of(&self, conn: ConnId) -> impl Iterator<Item = ClaimId> {
        let nothing = List::default();
        self.clients.get(conn.index()).unwrap_or(&nothing).iter_back(&self.links_by_client)
    }

    /// Returns the connection's newest claim, or its newest on `key`.
    pub(super) fn newest_of(&self, conn: ConnId, key: Option<&[u8]>) -> Option<ClaimId> {
        let Some(key) = key else { return self.clients.get(conn.index())?.back() };
        let few = self.claims_of(conn).take(FEW as usize).find(|claim| key == self.key_of(*claim));
        few.or_else(|| self.claims_by_pool.newest((conn, self.find(self.names.hash(key), key)?)))
    }
}
