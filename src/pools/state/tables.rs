//! Additions to the tables of claims and pools, and removals. An emptied pool is kept for later claims.

use super::parts::Freed;
use super::{Claim, ClaimId, ClaimPhase, Pool, PoolId, PoolsState, PoolsStep, WorkType};
use poolcounter_core::names::Hash;
use poolcounter_core::{ConnId, Id, List, Queue, Time};

/// Most pools without claims that are kept, 1 MiB with the longest keys.
pub(super) const UNUSED_POOLS: u32 = 128;
/// Most emptied keys that are kept, and most bytes of one: at most 256 KiB in all.
const SPARE_KEYS: usize = 1024;
const SPARE_KEY_BYTES: usize = 256;

/// A claim that was removed.
pub(super) struct Withdrawn {
    pub pool: PoolId,
    pub conn: ConnId,
    pub since: Time,
    pub was_held: bool,
    /// True if the lock is kept, so that no place came free.
    pub is_kept: bool,
    /// Pools in which locks came free beside that of its own pool.
    pub freed: Vec<Freed>,
}

/// Pools that were emptied, and the number of those with claims.
#[derive(Default)]
pub(super) struct EmptiedPools {
    /// All pools without claims, the first emptied first, and pools that have claims again.
    pub queue: Queue<PoolId>,
    /// Number of pools with claims.
    pub in_use: usize,
}

impl EmptiedPools {
    /// Notes that a claim has left a pool.
    #[inline(always)]
    pub fn note(&mut self, id: PoolId, pool: &Pool) {
        if pool.is_unused() {
            self.in_use -= 1;
            self.queue.push_back(id);
        }
    }
}

impl PoolsState {
    /// Ends a turn: drops the pools that were emptied first, but for some.
    #[inline]
    pub fn end_turn(&mut self) {
        while self.emptied.queue.len() > UNUSED_POOLS
            && let Some(id) = self.emptied.queue.pop_front()
        {
            if self.pools[id.index()].is_unused() {
                self.drop_pool(id);
            }
        }
    }

    /// Adds a claim to every table; `id` must be the next free key of the claims.
    #[inline(always)]
    pub(super) fn attach(&mut self, id: ClaimId, claim: Claim) {
        self.attach_to_client(id, claim.conn);
        self.attach_to_pool(id, claim);
    }

    #[inline(always)]
    pub(super) fn attach_to_client(&mut self, id: ClaimId, conn: ConnId) {
        self.clients.get_mut(conn).push_back(&mut self.links_by_client, id);
    }

    /// Returns the connection's claims, newest first.
    pub(super) fn claims_of(&self, conn: ConnId) -> impl Iterator<Item = ClaimId> {
        self.clients.get(conn).iter_back(&self.links_by_client)
    }

    /// Returns the connection's newest claim, or its newest on `key`.
    pub(super) fn newest_of(&self, conn: ConnId, key: Option<&[u8]>) -> Option<ClaimId> {
        let Some(key) = key else { return self.clients.get(conn).back() };
        self.claims_of(conn).find(|claim| key == self.key_of(*claim))
    }

    #[inline(always)]
    pub(super) fn attach_to_pool(&mut self, id: ClaimId, claim: Claim) {
        let pool = &mut self.pools[claim.pool.index()];
        self.emptied.in_use += usize::from(pool.is_unused());
        pool.queue_of(&claim.phase).push_back(&mut self.links_by_pool, id);
        let index = self.claims.insert(claim);
        debug_assert_eq!(index, id.index(), "the timer of the claim was armed for its key");
    }

    /// Removes a claim from every table and disarms its timer. Its pool may be left without claims.
    #[inline(always)]
    pub(super) fn withdraw(&mut self, id: ClaimId, step: &mut PoolsStep<'_, '_>) -> Withdrawn {
        if self.kept.is_asked()
            && let Some(kept) = self.keep_rest(id, step)
        {
            return kept;
        }
        let freed = self.freed_by(id, step.now);
        let Claim { pool, conn, since, phase } = self.detach(id, step.now);
        let was_held = matches!(phase, ClaimPhase::Holding { .. });
        let timer = match phase {
            ClaimPhase::Waiting { timeout, .. } => Some(timeout),
            ClaimPhase::Holding { end, .. } => end,
            ClaimPhase::Kept { .. } | ClaimPhase::Part { .. } => None,
        };
        timer.into_iter().for_each(|timer| step.timers.cancel(timer));
        Withdrawn { pool, conn, since, was_held, is_kept: false, freed }
    }

    pub(super) fn type_of(&mut self, pool: PoolId) -> &mut WorkType {
        &mut self.types[self.pools[pool.index()].type_id]
    }

    pub(super) fn key_of(&self, claim: ClaimId) -> &[u8] {
        &self.pools[self.claims[claim.index()].pool.index()].key
    }
    /// Removes a claim from every table. The caller must disarm its timer.
    #[inline(always)]
    pub(super) fn detach(&mut self, id: ClaimId, now: Time) -> Claim {
        let claim = self.claims.remove(id.index());
        self.whos.clear(id);
        self.kept.forget(id);
        self.background.skip(claim.pool, id, &self.pools, &self.links_by_pool);
        let pool = &mut self.pools[claim.pool.index()];
        let of_type = &mut self.types[pool.type_id];
        let age = now.since(claim.since);
        self.clients.get_mut(claim.conn).remove(&mut self.links_by_client, id);
        pool.queue_of(&claim.phase).remove(&mut self.links_by_pool, id);
        self.emptied.note(claim.pool, pool);
        match claim.phase {
            ClaimPhase::Waiting { .. } => {
                of_type.waits.record(age);
                self.top_keys.details_mut(&pool.key).into_iter().for_each(|of| of.waits.record(age));
                self.note_departure(claim.pool, claim.since, now);
            }
            ClaimPhase::Holding { .. } => {
                of_type.holds.record(age);
                self.held.remove(id);
            }
            ClaimPhase::Kept { .. } | ClaimPhase::Part { .. } => unreachable!("it belongs to no client"),
        }
        if self.parts.count > 0 {
            self.detach_parts(id, (claim.conn, claim.pool), now);
        }
        claim
    }

    /// Returns the pool of a key; if there is none, the hash of the key.
    #[inline]
    pub(super) fn find_or_hash(&self, key: &[u8]) -> Result<PoolId, Hash> {
        if self.pools.get(self.latest.index()).is_some_and(|pool| pool.key == key) {
            return Ok(self.latest);
        }
        let hash = self.names.hash(key);
        self.find(hash, key).ok_or(hash)
    }

    #[inline]
    pub(super) fn find(&self, hash: Hash, key: &[u8]) -> Option<PoolId> {
        self.names.find(hash, |pool| self.pools[pool.index()].key == key)
    }

    pub(super) fn create(&mut self, hash: Hash, key: &[u8]) -> PoolId {
        let mut own_key = self.spare_keys.pop().unwrap_or_default();
        own_key.extend_from_slice(key);
        let type_id = self.types.of(key);
        let pool = PoolId::from_index(self.pools.insert(Pool {
            key: own_key,
            hash,
            type_id,
            holders: List::default(),
            waiting_for_me: List::default(),
            waiting_for_anyone: List::default(),
        }));
        self.names.insert(hash, pool, |pool| self.pools[pool.index()].hash);
        pool
    }

    fn drop_pool(&mut self, id: PoolId) {
        self.forget_late(id);
        self.background.searches.remove(&id);
        let Pool { mut key, hash, .. } = self.pools.remove(id.index());
        self.names.remove(hash, id);
        if self.spare_keys.len() < SPARE_KEYS && key.capacity() <= SPARE_KEY_BYTES {
            key.clear();
            self.spare_keys.push(key);
        }
    }
}
