//! Effects of ceilings: reduced limits of requests, and keys that shed.

use super::{AcquireLock, PoolId, PoolsState};
use crate::ceiling::{Ceiling, Shedding};
use hashbrown::HashMap;
use poolcounter_core::{Id, List, Span, Time};

/// Ceilings, in the order in which they are tried.
#[derive(Default)]
pub(super) struct Ceilings {
    pub all: Vec<CeilingInUse>,
    /// True if any of them can make a key shed.
    can_shed: bool,
    /// Per pool: latest time since which its oldest waiter, whichever that was, has been late. Stored only when a late
    /// waiter leaves; otherwise derived from the present oldest waiter.
    pub late_since: HashMap<PoolId, Time>,
}

/// A ceiling, and the numbers of its effects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CeilingInUse {
    /// The ceiling.
    pub ceiling: Ceiling,
    /// Number of requests that asked for more than it allows in any respect.
    pub lowered: u64,
    /// Number of requests that were refused because a key sheds.
    pub shed: u64,
    /// Number of requests that would have been refused without `shed_shadow`.
    pub would_shed: u64,
}

impl From<Ceiling> for CeilingInUse {
    fn from(ceiling: Ceiling) -> Self {
        CeilingInUse { ceiling, lowered: 0, shed: 0, would_shed: 0 }
    }
}

impl Ceilings {
    pub fn new(all: Vec<Ceiling>) -> Ceilings {
        let all = all.into_iter().map(CeilingInUse::from).collect();
        let mut ceilings = Ceilings { all, ..Ceilings::default() };
        ceilings.note_shedding();
        ceilings
    }

    /// Updates `can_shed`; drops the times of late waiters if no ceiling sheds.
    fn note_shedding(&mut self) {
        self.can_shed = self.all.iter().any(|one| one.ceiling.shedding.is_some());
        if !self.can_shed {
            self.late_since = HashMap::new();
        }
    }

    /// Reduces a request to the limits of its keys' ceilings.
    #[cold]
    pub fn lower(&mut self, request: &mut AcquireLock<'_>) {
        let AcquireLock { key, workers, max_queue, timeout, hold, also, .. } = request;
        let own = [(*key, workers, max_queue)];
        let others = also.iter_mut().map(|limits| (limits.key, &mut limits.workers, &mut limits.max_queue));
        for (key, workers, max_queue) in own.into_iter().chain(others) {
            let Some(CeilingInUse { ceiling, lowered, .. }) = find(&mut self.all, key) else { continue };
            let before = (*workers, *max_queue, *timeout, *hold);
            *workers = ceiling.workers.min(*workers);
            *max_queue = ceiling.max_queue.min(*max_queue);
            *timeout = ceiling.timeout.min(*timeout);
            *hold = ceiling.hold.min(*hold);
            *lowered += u64::from(before != (*workers, *max_queue, *timeout, *hold));
        }
    }
}

impl PoolsState {
    /// Replaces the ceiling with the same pattern, or adds a ceiling at the front.
    pub fn set_ceiling(&mut self, ceiling: Ceiling) {
        let all = &mut self.ceilings.all;
        match all.iter_mut().find(|one| one.ceiling.pattern == ceiling.pattern) {
            Some(one) => one.ceiling = ceiling,
            None => all.insert(0, ceiling.into()),
        }
        self.ceilings.note_shedding();
    }

    /// Removes the ceiling with that pattern, and returns whether there was one.
    pub fn remove_ceiling(&mut self, pattern: &[u8]) -> bool {
        let before = self.ceilings.all.len();
        self.ceilings.all.retain(|one| *one.ceiling.pattern != *pattern);
        self.ceilings.note_shedding();
        self.ceilings.all.len() < before
    }
}

fn find<'a>(all: &'a mut [CeilingInUse], key: &[u8]) -> Option<&'a mut CeilingInUse> {
    all.iter_mut().find(|one| one.ceiling.matches(key))
}

impl PoolsState {
    /// Returns the ceilings, in the order in which they are tried, with the numbers of their effects.
    pub fn ceilings(&self) -> &[CeilingInUse] {
        &self.ceilings.all
    }

    /// Returns whether a pool refuses requests because its oldest waiters have been late throughout the interval.
    #[inline]
    pub(super) fn sheds(&mut self, pool: PoolId, now: Time) -> bool {
        self.ceilings.can_shed && self.count_shed(pool, now)
    }

    #[cold]
    fn count_shed(&mut self, id: PoolId, now: Time) -> bool {
        let oldest = self.oldest_wait(id);
        let key = &self.pools[id.index()].key;
        let Some(one) = find(&mut self.ceilings.all, key) else { return false };
        let (Some(Shedding { after, interval, is_shadow }), Some(oldest)) = (one.ceiling.shedding, oldest) else {
            return false;
        };
        let late = oldest + after;
        let since = self.ceilings.late_since.get(&id).map_or(late, |since| late.min(*since));
        let is_shed = late < now && now.since(since) >= interval;
        *(if is_shadow { &mut one.would_shed } else { &mut one.shed }) += u64::from(is_shed);
        is_shed && !is_shadow
    }

    /// Notes that a waiter of a pool has left that had waited since `since`.
    #[inline]
    pub(super) fn note_departure(&mut self, pool: PoolId, since: Time, now: Time) {
        if self.ceilings.can_shed {
            self.note_late(pool, since, now);
        }
    }

    #[cold]
    fn note_late(&mut self, id: PoolId, since: Time, now: Time) {
        let oldest = self.oldest_wait(id);
        let shedding = find(&mut self.ceilings.all, &self.pools[id.index()].key).and_then(|one| one.ceiling.shedding);
        let after = shedding.map_or(Span::FOREVER, |shedding| shedding.after);
        match oldest {
            Some(oldest) if oldest + after < now => {
                let late = oldest.min(since) + after;
                let noted = self.ceilings.late_since.entry(id).or_insert(late);
                *noted = late.min(*noted);
            }
            _ => self.forget_late(id),
        }
    }

    /// Drops the time of late waiters of a pool that is dropped or has none.
    #[inline]
    pub(super) fn forget_late(&mut self, id: PoolId) {
        if self.ceilings.can_shed {
            self.ceilings.late_since.remove(&id);
        }
    }

    /// Returns the time since which the oldest waiter of a pool waits.
    fn oldest_wait(&self, id: PoolId) -> Option<Time> {
        let fronts = self.pool_at(id).queues().skip(1).filter_map(List::front);
        fronts.map(|waiter| self.claims[waiter.index()].since).min()
    }
}
