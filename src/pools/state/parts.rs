//! Claims on several pools at once. Such a claim is in the pool of its first key like any other, and has a *part* in
//! each other pool: a claim of its own without a client and a timer, which waits and holds whenever its whole does.
//!
//! Claims without parts, which are most, cost nothing more.

use super::{Claim, ClaimId, ClaimPhase, Pool, PoolId, PoolsState, PoolsStep};
use poolcounter_core::{ConnId, Id, SideTable, Span, Time};
use poolcounter_protocol::pools::request::KeyLimits;
use std::collections::BTreeMap;
use std::iter;

/// Wait after which a waiter for several keys is the first in the queue of each of them.
const AGED: Span = Span::from_secs(60);

/// Parts of claims, by claim.
#[derive(Default)]
pub(super) struct Parts {
    /// None for claims without parts.
    by_claim: SideTable<ClaimId, Option<Box<Several>>>,
    /// Number of parts.
    pub count: u64,
    /// Number of parts of each connection that has any.
    by_conn: SideTable<ConnId, u32>,
    /// Claims on several pools that wait, by pool and in the order in which they came.
    waiting: BTreeMap<(PoolId, u64), ClaimId>,
    /// Number of these that came so far.
    came: u64,
}

/// State of a claim on several pools, beside its entry.
pub(super) struct Several {
    /// Most holders of a lock of its own pool.
    pub workers: u32,
    pub parts: Vec<Part>,
    /// Its number among the waiting claims.
    came: u64,
}

/// A part of a claim.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub id: ClaimId,
    /// Most holders of a lock of its pool.
    pub workers: u32,
}

/// Pool with a lock that may have become free.
pub(super) struct Freed {
    pub pool: PoolId,
    /// Number of its locks that were held before.
    held_before: u32,
}

impl Several {
    /// Returns the number of parts.
    pub fn len(&self) -> u32 {
        // Lossless: a request names few keys.
        self.parts.len() as u32
    }
}

impl Parts {
    /// Returns the parts of a claim on several pools; None for a claim without parts.
    #[inline]
    pub fn of(&self, id: ClaimId) -> Option<&Several> {
        self.by_claim.get(id).as_deref()
    }

    /// Returns the number of parts of the claims of a connection.
    pub fn of_conn(&self, conn: ConnId) -> u32 {
        *self.by_conn.get(conn)
    }

    /// Adds a part to a claim of a connection. `whole_workers` is the limit of holders in the claim's own pool.
    pub fn add(&mut self, (whole, conn): (ClaimId, ConnId), whole_workers: u32, part: Part) {
        *self.by_conn.get_mut(conn) += 1;
        let nothing = || Box::new(Several { workers: whole_workers, parts: Vec::new(), came: 0 });
        self.by_claim.get_mut(whole).get_or_insert_with(nothing).parts.push(part);
        self.count += 1;
    }

    fn take(&mut self, id: ClaimId, conn: ConnId) -> Option<Box<Several>> {
        self.by_claim.get(id).as_ref()?;
        let several = self.by_claim.get_mut(id).take()?;
        *self.by_conn.get_mut(conn) -= several.len();
        self.count -= several.parts.len() as u64;
        Some(several)
    }
}

impl PoolsState {
    /// Puts the parts of a new claim into their pools.
    #[cold]
    pub(super) fn attach_parts(&mut self, whole: ClaimId, whole_workers: u32, also: &[KeyLimits<'_>]) {
        let Claim { conn, since, ref phase, .. } = self.claims[whole.index()];
        let is_held = matches!(phase, ClaimPhase::Holding { .. });
        for KeyLimits { key, workers, .. } in also {
            let hash = self.names.hash(key);
            let pool = self.find(hash, key).unwrap_or_else(|| self.create(hash, key));
            let id = ClaimId::from_index(self.claims.vacant_key());
            self.attach_to_pool(id, Claim { pool, conn, since, phase: ClaimPhase::Part { whole, is_held } });
            self.parts.add((whole, conn), whole_workers, Part { id, workers: *workers });
        }
        if !is_held {
            self.await_parts(whole);
        }
    }

    /// Queues a claim that waits in several pools with the claims that may reserve locks.
    pub(super) fn await_parts(&mut self, whole: ClaimId) {
        self.parts.came += 1;
        let came = self.parts.came;
        let pools: Vec<PoolId> = self.pools_of(whole).collect();
        pools.into_iter().for_each(|pool| _ = self.parts.waiting.insert((pool, came), whole));
        let several = self.parts.by_claim.get_mut(whole).as_mut().expect("it has parts");
        several.came = came;
    }

    /// Returns the pools of a claim, first its own.
    fn pools_of(&self, whole: ClaimId) -> impl Iterator<Item = PoolId> {
        let parts = self.parts.of(whole).into_iter().flat_map(|several| &several.parts);
        iter::once(whole).chain(parts.map(|part| part.id)).map(|id| self.claims[id.index()].pool)
    }

    /// Returns the waiter that is first in the queue of a pool because it has waited for several keys for long, and the
    /// most holders that its request allows there.
    fn reserver(&self, pool: PoolId, now: Time) -> Option<(ClaimId, u32)> {
        let (_, whole) = self.parts.waiting.range((pool, 0)..=(pool, u64::MAX)).next()?;
        let Several { workers, parts, .. } = self.parts.of(*whole)?;
        let part = parts.iter().find(|part| self.claims[part.id.index()].pool == pool);
        let is_aged = now.since(self.claims[whole.index()].since) >= AGED;
        is_aged.then(|| (*whole, part.map_or(*workers, |part| part.workers)))
    }

    /// Returns whether a pool reserves its next lock for another claim.
    #[inline]
    pub(super) fn is_reserved(&self, pool: PoolId, from: Option<ClaimId>, now: Time) -> bool {
        !self.parts.waiting.is_empty() && self.is_reserved_by_other(pool, from, now)
    }

    #[cold]
    fn is_reserved_by_other(&self, pool: PoolId, from: Option<ClaimId>, now: Time) -> bool {
        let is_last = |workers| self.pool_at(pool).holders.len() + 1 >= workers;
        self.reserver(pool, now).is_some_and(|(first, workers)| from != Some(first) && is_last(workers))
    }

    /// Removes the parts of a claim that has ended, if it has some.
    #[cold]
    pub(super) fn detach_parts(&mut self, whole: ClaimId, (conn, own): (ConnId, PoolId), now: Time) {
        if let Some(several) = self.parts.take(whole, conn) {
            self.parts.waiting.remove(&(own, several.came));
            for Part { id, .. } in several.parts {
                let claim = self.claims.remove(id.index());
                self.parts.waiting.remove(&(claim.pool, several.came));
                self.background.skip(claim.pool, id, &self.pools, &self.links_by_pool);
                let pool = &mut self.pools[claim.pool.index()];
                pool.queue_of(&claim.phase).remove(&mut self.links_by_pool, id);
                self.emptied.note(claim.pool, pool);
                self.note_departure(claim.pool, claim.since, now);
            }
        }
    }

    /// Makes the parts of a newly granted claim hold their locks.
    #[inline]
    pub(super) fn hold_parts(&mut self, whole: ClaimId) {
        if self.parts.count == 0 {
            return;
        }
        let Some(Several { parts, came, .. }) = self.parts.of(whole) else { return };
        let (now, parts, came) = (self.claims[whole.index()].since, parts.clone(), *came);
        let pools: Vec<PoolId> = self.pools_of(whole).collect();
        pools.into_iter().for_each(|pool| _ = self.parts.waiting.remove(&(pool, came)));
        for Part { id, .. } in parts {
            let claim = &mut self.claims[id.index()];
            self.background.skip(claim.pool, id, &self.pools, &self.links_by_pool);
            let pool = &mut self.pools[claim.pool.index()];
            pool.queue_of(&claim.phase).remove(&mut self.links_by_pool, id);
            let since = std::mem::replace(&mut claim.since, now);
            claim.phase = ClaimPhase::Part { whole, is_held: true };
            pool.queue_of(&claim.phase).push_back(&mut self.links_by_pool, id);
            let pool = claim.pool;
            self.note_departure(pool, since, now);
        }
    }

    /// Returns the pools besides its own in which locks become free when this claim ends, and all pools that have
    /// reserved a free lock for it.
    #[inline]
    pub(super) fn freed_by(&self, id: ClaimId, now: Time) -> Vec<Freed> {
        if self.parts.of(id).is_none() { Vec::new() } else { self.freed_by_parts(id, now) }
    }

    #[cold]
    fn freed_by_parts(&self, id: ClaimId, now: Time) -> Vec<Freed> {
        let holders = |pool: PoolId| self.pool_at(pool).holders.len();
        if let ClaimPhase::Holding { .. } = self.claims[id.index()].phase {
            return self.pools_of(id).skip(1).map(|pool| Freed { pool, held_before: holders(pool) }).collect();
        }
        let reserved = self.pools_of(id).filter(|pool| self.reserver(*pool, now) == Some((id, holders(*pool) + 1)));
        reserved.map(|pool| Freed { pool, held_before: holders(pool) + 1 }).collect()
    }

    /// Grants the free locks of these pools, except locks that were granted already together with another pool's.
    #[inline]
    pub(super) fn grant_freed(&mut self, freed: Vec<Freed>, step: &mut PoolsStep<'_, '_>) {
        if !freed.is_empty() {
            self.grant_all(freed, step);
        }
    }

    #[cold]
    fn grant_all(&mut self, freed: Vec<Freed>, step: &mut PoolsStep<'_, '_>) {
        for Freed { pool, held_before } in freed {
            if self.pool_at(pool).holders.len() < held_before {
                self.grant_next(pool, step);
            }
        }
    }

    /// Returns the waiter that gets a free lock of this pool: the first in the order of service that could then have
    /// all its locks. A waiter that cannot be satisfied is skipped (no head-of-line blocking), until it has waited for
    /// long. The rest of many waiters is searched in slices.
    #[inline]
    pub(super) fn next_waiter(&mut self, pool: PoolId, step: &mut PoolsStep<'_, '_>) -> Option<ClaimId> {
        if self.parts.count == 0 { self.first_waiter(pool) } else { self.search_waiters(pool, step) }
    }

    /// Returns the first waiter in the order of service, behind the waiters that are being woken.
    #[inline]
    pub(super) fn first_waiter(&self, pool: PoolId) -> Option<ClaimId> {
        let for_anyone = || self.background.first_for_anyone(pool, &self.pools, &self.links_by_pool);
        self.pool_at(pool).waiting_for_me.front().or_else(for_anyone)
    }

    /// Returns whether a waiter could have all its locks. A waiter for just one free lock could, unless that is reserved.
    pub(super) fn could_hold(&self, id: ClaimId, now: Time) -> bool {
        let is_full = |id: ClaimId, workers| self.pool_at(self.claims[id.index()].pool).holders.len() >= workers;
        let is_short = self.parts.of(id).is_some_and(|Several { workers, parts, .. }| {
            is_full(id, *workers) || parts.iter().any(|part| is_full(part.id, part.workers))
        });
        !is_short && !self.pools_of(id).any(|pool| self.is_reserved(pool, Some(id), now))
    }

    /// Returns the waiter that is first because of its age, if it can have all its locks; `Err` if its turn is next, so
    /// that no other waiter gets a lock.
    pub(super) fn aged_waiter(&self, pool: PoolId, now: Time) -> Result<Option<ClaimId>, ()> {
        match self.reserver(pool, now) {
            Some((first, _)) if self.could_hold(first, now) => Ok(Some(first)),
            _ if self.is_reserved(pool, None, now) => Err(()),
            _ => Ok(None),
        }
    }

    /// Returns the claim that this one is a part of; itself if it is whole.
    pub(super) fn whole_of(&self, id: ClaimId) -> ClaimId {
        match self.claims[id.index()].phase {
            ClaimPhase::Part { whole, .. } => whole,
            ClaimPhase::Waiting { .. } | ClaimPhase::Holding { .. } | ClaimPhase::Kept { .. } => id,
        }
    }

    pub(super) fn pool_at(&self, id: PoolId) -> &Pool {
        &self.pools[id.index()]
    }

    /// Compares the parts with their wholes.
    pub(super) fn check_parts(&self) {
        let (mut count, mut by_conn) = (0, BTreeMap::new());
        for (id, several) in self.parts.by_claim.iter() {
            for part in several.iter().flat_map(|several| &several.parts) {
                let (whole, own) = (&self.claims[id.index()], &self.claims[part.id.index()]);
                let ClaimPhase::Part { whole: of, is_held } = own.phase else { panic!("a part is a part") };
                let holds = matches!(whole.phase, ClaimPhase::Holding { .. });
                let wanted = (id, whole.conn, whole.since, holds);
                assert_eq!((of, own.conn, own.since, is_held), wanted, "a part is like its whole");
                *by_conn.entry(whole.conn).or_default() += 1;
                count += 1;
            }
        }
        let counted = self.parts.by_conn.iter().filter(|(_, parts)| **parts > 0);
        assert!(counted.map(|(conn, parts)| (conn, *parts)).eq(by_conn), "the parts of connections are counted");
        let waits = |id: ClaimId| matches!(self.claims[id.index()].phase, ClaimPhase::Waiting { .. });
        let several = self.parts.by_claim.iter().filter(|(_, several)| several.is_some()).map(|(id, _)| id);
        let waiting = several.filter(|id| waits(*id)).flat_map(|id| {
            let came = self.parts.of(id).map_or(0, |several| several.came);
            self.pools_of(id).map(move |pool| ((pool, came), id))
        });
        let waiting: BTreeMap<_, _> = waiting.collect();
        assert!(waiting == self.parts.waiting, "each claim that waits in several pools is queued");
        assert_eq!(count, self.parts.count, "the parts are counted");
        let parts = self.claims.iter().filter(|(_, claim)| matches!(claim.phase, ClaimPhase::Part { .. }));
        assert_eq!(parts.count() as u64, count, "each part belongs to a claim");
    }
}
