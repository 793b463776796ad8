//! Work in slices, so that other clients are served in between: the release of very many locks of a lost connection,
//! the search for a grantable waiter among very many that want several keys, and the wake of very many waiters for one
//! result.

use super::{
    AcquireLock, ClaimId, ClaimPhase, Pool, PoolId, PoolsState, PoolsStep, PoolsTimer, Purpose, Reply, Withdrawn,
};
use poolcounter_core::{ConnId, Id, Links, Span, meter};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Number of locks of a lost connection that are released at once.
const BACK_AT_ONCE: usize = 64;
/// Number of waiters that are examined when a lock is released.
const LOOKED_AT_ONCE: usize = 64;
/// Number of waiters that are woken when their work is done.
const WOKEN_AT_ONCE: usize = 512;
/// Number of holders of a key that a request checks for lost connections.
const CAUGHT_UP: usize = 64;
/// Costs of a lock that is released or a waiter that is woken, two microseconds, and of a waiter that is examined.
const BACK_COST: u32 = 8;
const LOOK_COST: u32 = 2;
/// Number of locks or waiters in the slice of one task.
const SLICE: usize = 256;

/// The work that goes on in slices.
#[derive(Default)]
pub(super) struct Background {
    tasks: VecDeque<Task>,
    /// Connections that are gone and whose locks come back.
    pub leaving: BTreeSet<ConnId>,
    pub searches: BTreeMap<PoolId, Search>,
    wakes: BTreeMap<PoolId, Wake>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Leave(ConnId),
    Search(PoolId),
    Wake(PoolId),
}

/// Search for waiters that can have all of their locks, in a pool with released locks.
pub(super) struct Search {
    /// Its place in the queues of the pool; None at their end.
    next: Option<ClaimId>,
    /// Number of locks that were held before.
    held_before: u32,
    /// Another lock has come free since it began.
    is_repeated: bool,
}

/// First waiters for the result of finished work in a pool. They are granted no lock any more.
struct Wake {
    last: ClaimId,
    /// Duration of the work.
    worked: Span,
}

impl Background {
    /// Returns whether nothing is left to do.
    pub fn is_settled(&self) -> bool {
        self.leaving.is_empty() && self.searches.is_empty() && self.wakes.is_empty()
    }

    /// A claim leaves its queue in a pool: a search goes on behind it, and waking ends before it.
    #[inline]
    pub fn skip(&mut self, pool: PoolId, id: ClaimId, pools: &Slab<Pool>, links: &Links) {
        if !self.searches.is_empty() || !self.wakes.is_empty() {
            self.skip_in_work(pool, id, pools, links);
        }
    }

    fn skip_in_work(&mut self, pool: PoolId, id: ClaimId, pools: &Slab<Pool>, links: &Links) {
        if self.searches.get(&pool).is_some_and(|search| search.next == Some(id)) {
            let next = self.waiter_after(pool, id, pools, links);
            self.searches.get_mut(&pool).into_iter().for_each(|search| search.next = next);
        }
        if let Some(wake) = self.wakes.get_mut(&pool)
            && wake.last == id
        {
            match links.before(id) {
                Some(last) => wake.last = last,
                None => _ = self.wakes.remove(&pool),
            }
        }
    }

    /// Returns the first waiter for anyone's work, behind the waiters that are being woken.
    #[inline]
    pub fn first_for_anyone(&self, pool: PoolId, pools: &Slab<Pool>, links: &Links) -> Option<ClaimId> {
        match self.wakes.get(&pool) {
            None => pools[pool.index()].waiting_for_anyone.front(),
            Some(wake) => links.after(wake.last),
        }
    }

    /// Returns the waiter behind another one, in the order of service.
    fn waiter_after(&self, pool: PoolId, id: ClaimId, pools: &Slab<Pool>, links: &Links) -> Option<ClaimId> {
        let is_last_for_me = pools[pool.index()].waiting_for_me.back() == Some(id);
        if is_last_for_me { self.first_for_anyone(pool, pools, links) } else { links.after(id) }
    }
}

impl PoolsState {
    /// Removes all claims of a connection that ends, newest first; very many in slices.
    pub fn close(&mut self, conn: ConnId, step: &mut PoolsStep<'_, '_>) {
        for _ in 0..BACK_AT_ONCE {
            if !self.give_newest_back(conn, step) {
                return;
            }
        }
        if self.has_claims(conn) && self.background.leaving.insert(conn) {
            self.background.tasks.push_back(Task::Leave(conn));
            self.work(step);
        }
    }

    /// Returns whether a connection holds something or waits.
    pub fn has_claims(&self, conn: ConnId) -> bool {
        !self.clients.get(conn).is_empty()
    }

    /// Returns whether nothing is under way in slices.
    pub fn is_settled(&self) -> bool {
        self.background.is_settled()
    }

    /// Finishes the work under way in slices.
    pub fn finish(&mut self, step: &mut PoolsStep<'_, '_>) {
        while !self.is_settled() {
            step.timers.renew_budget();
            self.work(step);
        }
    }

    /// Gives each task a part of the slice.
    pub(super) fn work(&mut self, step: &mut PoolsStep<'_, '_>) {
        for _ in 0..self.background.tasks.len() {
            let Some(task) = self.background.tasks.pop_front() else { break };
            let is_done = match task {
                Task::Leave(conn) => self.leave_on(conn, step),
                Task::Search(pool) => self.search_on(pool, step),
                Task::Wake(pool) => self.wake_on(pool, step),
            };
            if !is_done {
                self.background.tasks.push_back(task);
            }
        }
        if !self.background.tasks.is_empty() {
            step.timers.go_on(PoolsTimer::Work);
        }
    }

    /// Releases some more locks of a lost connection. Returns true after the last one.
    fn leave_on(&mut self, conn: ConnId, step: &mut PoolsStep<'_, '_>) -> bool {
        for _ in 0..SLICE {
            if !step.timers.spend(BACK_COST) {
                return false;
            }
            if !self.give_newest_back(conn, step) {
                self.background.leaving.remove(&conn);
                return true;
            }
        }
        false
    }

    /// Removes the newest claim of a lost connection, and returns whether there was one.
    fn give_newest_back(&mut self, conn: ConnId, step: &mut PoolsStep<'_, '_>) -> bool {
        let newest = self.clients.get(conn).back();
        newest.into_iter().for_each(|id| self.give_back(id, false, step));
        newest.is_some()
    }

    /// Removes a claim whose client does not end it: its hold is over, or else its connection is lost.
    pub(super) fn give_back(&mut self, id: ClaimId, is_expired: bool, step: &mut PoolsStep<'_, '_>) {
        meter::visit();
        let claim = self.withdraw(id, step);
        let of_type = self.type_of(claim.pool);
        let count = match (claim.was_held, is_expired) {
            (true, true) => &mut of_type.expired,
            (true, false) => &mut of_type.lost,
            (false, _) => &mut of_type.given_up,
        };
        count.bump();
        if claim.was_held && !claim.is_kept {
            self.grant_next(claim.pool, step);
        }
        self.grant_freed(claim.freed, step);
    }

    /// Ends the waits for the result of finished work; very many in slices.
    pub(super) fn wake_after_work(&mut self, finished: &Withdrawn, step: &mut PoolsStep<'_, '_>) {
        let (id, worked) = (finished.pool, step.now.since(finished.since));
        for _ in 0..WOKEN_AT_ONCE {
            let Some(first) = self.pool_at(id).waiting_for_anyone.front() else { return };
            self.wake(first, worked, step);
        }
        let Some(last) = self.pool_at(id).waiting_for_anyone.back() else { return };
        if let Some(search) = self.background.searches.get_mut(&id) {
            let is_woken = |next: &ClaimId| {
                let phase = &self.claims[next.index()].phase;
                matches!(phase, ClaimPhase::Waiting { purpose: Purpose::Anyone, .. })
            };
            search.next = search.next.filter(|next| !is_woken(next));
        }
        if self.background.wakes.insert(id, Wake { last, worked }).is_none() {
            self.background.tasks.push_back(Task::Wake(id));
        }
        step.timers.go_on(PoolsTimer::Work);
    }

    /// Wakes some more waiters for a result. Returns true after the last one.
    fn wake_on(&mut self, id: PoolId, step: &mut PoolsStep<'_, '_>) -> bool {
        for _ in 0..SLICE {
            let Some(Wake { worked, .. }) = self.background.wakes.get(&id) else { return true };
            let (first, worked) = (self.pool_at(id).waiting_for_anyone.front(), *worked);
            if !step.timers.spend(BACK_COST) {
                return false;
            }
            first.into_iter().for_each(|first| self.wake(first, worked, step));
        }
        false
    }

    /// Ends a wait for the result of work that took this time.
    fn wake(&mut self, id: ClaimId, worked: Span, step: &mut PoolsStep<'_, '_>) {
        meter::visit();
        let waiter = self.withdraw(id, step);
        self.figures.add(Stat::GainedTime, worked);
        self.figures.add(Stat::WaitingTimeForGood, step.now.since(waiter.since));
        self.type_of(waiter.pool).done.bump();
        step.replies.push((waiter.conn, Reply::Done));
        // The lock of its own pool is granted when all have been woken.
        let freed = waiter.freed.into_iter().filter(|freed| freed.pool != waiter.pool);
        self.grant_freed(freed.collect(), step);
    }

    /// Releases locks that a request may want, if lost connections have some of the oldest.
    #[cold]
    pub(super) fn catch_up(&mut self, request: &AcquireLock<'_>, step: &mut PoolsStep<'_, '_>) {
        for key in [request.key].into_iter().chain(request.also.iter().map(|limits| limits.key)) {
            let Some(pool) = self.find(self.names.hash(key), key) else { continue };
            let holders = self.pool_at(pool).holders.iter(&self.links_by_pool).take(CAUGHT_UP);
            let is_gone = |id: &ClaimId| self.background.leaving.contains(&self.claims[id.index()].conn);
            let gone: BTreeSet<ClaimId> = holders.filter(is_gone).map(|id| self.whole_of(id)).collect();
            gone.into_iter().for_each(|id| self.give_back(id, false, step));
        }
    }

    /// Returns the first waiter in the order of service that can have all of its locks. If many cannot, the rest is
    /// examined in slices.
    #[cold]
    pub(super) fn search_waiters(&mut self, id: PoolId, step: &mut PoolsStep<'_, '_>) -> Option<ClaimId> {
        match self.aged_waiter(id, step.now) {
            Ok(None) => {}
            Ok(first) => return first,
            Err(()) => return None,
        }
        let mut next = self.first_waiter(id);
        for _ in 0..LOOKED_AT_ONCE {
            let whole = self.whole_of(next?);
            meter::visit();
            if self.could_hold(whole, step.now) {
                return Some(whole);
            }
            next = self.background.waiter_after(id, next?, &self.pools, &self.links_by_pool);
        }
        let held_before = self.pool_at(id).holders.len() + 1;
        match self.background.searches.get_mut(&id) {
            Some(search) => {
                (search.held_before, search.is_repeated) = (held_before.max(search.held_before), true);
            }
            None => {
                self.background.searches.insert(id, Search { next, held_before, is_repeated: false });
                self.background.tasks.push_back(Task::Search(id));
            }
        }
        step.timers.go_on(PoolsTimer::Work);
        None
    }

    /// Examines some more waiters, and grants the locks of waiters that can have all, while fewer locks are held than
    /// before. Returns true after the last waiter.
    fn search_on(&mut self, id: PoolId, step: &mut PoolsStep<'_, '_>) -> bool {
        for _ in 0..SLICE {
            let Some(search) = self.background.searches.get(&id) else { return true };
            let Search { next: waiter, held_before, is_repeated } = *search;
            if self.pool_at(id).holders.len() >= held_before || waiter.is_none() && !is_repeated {
                self.background.searches.remove(&id);
                return true;
            }
            if !step.timers.spend(LOOK_COST) {
                return false;
            }
            meter::visit();
            let next = match waiter {
                Some(waiter) => self.background.waiter_after(id, waiter, &self.pools, &self.links_by_pool),
                None => self.first_waiter(id),
            };
            let is_repeated = is_repeated && waiter.is_some();
            self.background.searches.insert(id, Search { next, held_before, is_repeated });
            let whole = waiter.map(|waiter| self.whole_of(waiter));
            if let Some(whole) = whole.filter(|whole| self.could_hold(*whole, step.now)) {
                self.grant(whole, step);
            }
        }
        false
    }

    /// Compares the work in slices with the claims.
    pub(super) fn check_background(&self) {
        let Background { tasks, leaving, searches, wakes } = &self.background;
        let has = |task: Task| tasks.iter().any(|queued| *queued == task);
        for conn in leaving {
            assert!(has(Task::Leave(*conn)), "locks of a connection that is gone come back");
        }
        for (id, search) in searches {
            assert!(has(Task::Search(*id)), "a search goes on");
            let waiters = || self.pool_at(*id).queues().skip(1).flat_map(|queue| queue.iter(&self.links_by_pool));
            assert!(search.next.is_none_or(|next| waiters().any(|id| id == next)), "a search is at a waiter");
        }
        for (id, wake) in wakes {
            assert!(has(Task::Wake(*id)), "waking goes on");
            let waiters = &self.pool_at(*id).waiting_for_anyone;
            assert!(waiters.iter(&self.links_by_pool).any(|id| id == wake.last), "waking ends at a waiter");
        }
    }
}
