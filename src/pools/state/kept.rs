//! Locks that are kept after their holders have ended, so that the work is done at most once in a period. A kept lock
//! belongs to no connection, and occupies its key like the lock that it was.

use super::{Claim, ClaimId, ClaimPhase, PoolsState, PoolsStep, PoolsTimer, Stat, Withdrawn};
use hashbrown::HashMap;
use poolcounter_core::{ConnId, Id, Queue, Span, Time, TimerId};

/// Most bytes of all kept locks. Beyond that the oldest end.
const MOST_BYTES: usize = 16 << 20;
/// Bytes of a kept lock beside its key: the entries of the claim, of its pool, of its timer and of its name.
const OWN_BYTES: usize = 512;

/// Kept locks, and the claims that may become kept locks.
#[derive(Default)]
pub(super) struct KeptLocks {
    /// Least times of the locks and waits that asked for one.
    asked: HashMap<ClaimId, Span>,
    /// Ends of the kept locks.
    ends: HashMap<ClaimId, Time>,
    /// Kept locks, the longest kept first.
    order: Queue<ClaimId>,
    bytes: usize,
}

impl KeptLocks {
    /// Returns whether any lock or wait asked for a least time.
    #[inline]
    pub fn is_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Notes the least time of a new claim.
    #[cold]
    pub fn ask(&mut self, id: ClaimId, keep: Span) {
        self.asked.insert(id, keep);
    }

    /// Returns the least time of a claim; zero without one.
    pub fn asked(&self, id: ClaimId) -> Span {
        self.asked.get(&id).copied().unwrap_or(Span::ZERO)
    }

    /// Drops the least time of a claim that has ended, or must not be kept.
    #[inline]
    pub fn forget(&mut self, id: ClaimId) {
        if self.is_asked() {
            self.asked.remove(&id);
        }
    }

    /// Returns the number of kept locks.
    pub fn len(&self) -> u64 {
        u64::from(self.order.len())
    }

    /// Returns the end of a kept lock; None for another claim.
    pub fn until(&self, id: ClaimId) -> Option<Time> {
        self.ends.get(&id).copied()
    }

    /// Adds a lock that is kept from now on.
    pub fn push(&mut self, id: ClaimId, until: Time, key: &[u8]) {
        self.bytes += OWN_BYTES + key.len();
        self.ends.insert(id, until);
        self.order.push_back(id);
    }

    fn remove(&mut self, id: ClaimId, key: &[u8]) {
        self.bytes -= OWN_BYTES + key.len();
        self.ends.remove(&id);
        self.order.remove(id);
    }
}

impl PoolsState {
    /// Returns the connection of all kept locks, which no client has.
    pub(super) fn nobody() -> ConnId {
        ConnId::from_index(u32::MAX as usize)
    }

    /// Turns a lock whose holder ends before its least time is over into a kept lock. Returns None for another claim.
    #[cold]
    pub(super) fn keep_rest(&mut self, id: ClaimId, step: &mut PoolsStep<'_, '_>) -> Option<Withdrawn> {
        let Claim { pool, conn, since, .. } = self.claims[id.index()];
        let until = since + self.kept.asked(id);
        if until <= step.now || !matches!(self.claims[id.index()].phase, ClaimPhase::Holding { .. }) {
            return None;
        }
        self.kept.forget(id);
        self.clients.get_mut(conn).remove(&mut self.links_by_client, id);
        let end = step.timers.arm(until, PoolsTimer::Claim(id));
        let claim = &mut self.claims[id.index()];
        claim.conn = Self::nobody();
        if let ClaimPhase::Holding { end, .. } = std::mem::replace(&mut claim.phase, ClaimPhase::Kept { end }) {
            self.held.remove(id);
            end.into_iter().for_each(|end| step.timers.cancel(end));
        }
        self.type_of(pool).holds.record(step.now.since(since));
        self.kept.push(id, until, &self.pools[pool.index()].key);
        while self.kept.bytes > MOST_BYTES
            && let Some(oldest) = self.kept.order.front()
        {
            self.figures.count(Stat::KeptTooMany);
            let end = self.end_kept(oldest, step);
            step.timers.cancel(end);
        }
        Some(Withdrawn { pool, conn, since, was_held: true, is_kept: true, freed: Vec::new() })
    }

    /// Ends a kept lock, and grants its place to the next waiter. Returns its timer.
    pub(super) fn end_kept(&mut self, id: ClaimId, step: &mut PoolsStep<'_, '_>) -> TimerId {
        let Claim { pool, phase, .. } = self.claims.remove(id.index());
        let ClaimPhase::Kept { end } = phase else { unreachable!("only kept locks end in this way") };
        self.whos.clear(id);
        let of = &mut self.pools[pool.index()];
        of.holders.remove(&mut self.links_by_pool, id);
        self.emptied.note(pool, of);
        self.kept.remove(id, &of.key);
        self.grant_next(pool, step);
        end
    }

    /// Ends the kept locks of a key, and returns their number.
    pub fn free_kept(&mut self, key: &[u8], step: &mut PoolsStep<'_, '_>) -> usize {
        let holders = self.pool(key).into_iter().flat_map(|pool| pool.holders.iter(&self.links_by_pool));
        let kept: Vec<ClaimId> = holders.filter(|id| self.kept.until(*id).is_some()).collect();
        for id in &kept {
            let end = self.end_kept(*id, step);
            step.timers.cancel(end);
        }
        kept.len()
    }

    /// Drops the least times of the locks of a key that a connection holds, so that they are not kept.
    pub fn keep_nothing(&mut self, conn: ConnId, key: &[u8]) {
        let ids: Vec<ClaimId> = self.claims_of(conn).filter(|id| self.key_of(*id) == key).collect();
        ids.into_iter().for_each(|id| self.kept.forget(id));
    }

    /// Restores the order of the kept locks, by the times of their grants.
    pub(super) fn restore_kept(&mut self, mut kept: Vec<(ClaimId, Time)>) {
        kept.sort_unstable_by_key(|(id, _)| (self.claims[id.index()].since, *id));
        for (id, until) in kept {
            self.kept.push(id, until, &self.pools[self.claims[id.index()].pool.index()].key);
        }
    }

    pub(super) fn check_kept(&self) {
        let mut bytes = 0;
        for id in self.kept.order.iter() {
            let claim = &self.claims[id.index()];
            assert!(matches!(claim.phase, ClaimPhase::Kept { .. }), "a kept lock is known as kept");
            assert!(claim.conn == Self::nobody() && self.kept.until(id).is_some(), "it has an end and no client");
            bytes += OWN_BYTES + self.key_of(id).len();
        }
        assert_eq!(bytes, self.kept.bytes, "the bytes of kept locks are counted");
        let kept = self.claims.iter().filter(|(_, claim)| matches!(claim.phase, ClaimPhase::Kept { .. })).count();
        assert!([kept, self.kept.ends.len()].iter().all(|count| *count as u64 == self.kept.len()), "each is listed");
        let may_be_kept = |id: &ClaimId| {
            matches!(self.claims[id.index()].phase, ClaimPhase::Waiting { .. } | ClaimPhase::Holding { .. })
        };
        assert!(self.kept.asked.keys().all(may_be_kept), "each least time belongs to a claim");
    }
}
