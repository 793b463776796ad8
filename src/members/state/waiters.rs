//! Who waits for members, and in which order they get them. A pool's waiters are its own and those of its group.

use super::members::Cause;
use super::*;
use serde::{Deserialize, Serialize};

/// Who has waited for so long counts as if its priority were the first.
const LONG_WAIT: Span = Span::from_secs(60);
const PRIORITIES: usize = 10;

/// Where a waiter stands in the order: lower comes first.
pub(super) type Rank = (u8, u64);

pub(super) struct Waiter {
    pub conn: ConnId,
    pub place: WaitSource,
    /// Where it stands among all takes that ever waited.
    pub arrival: u64,
    pub since: Time,
    pub priority: u8,
    pub count: Option<u32>,
    pub filter: Option<Box<Filter>>,
    pub lease: Option<Span>,
    /// How many starts it may have under way.
    pub want: u32,
    /// How many starts it had whose members went elsewhere.
    pub starts_used: u32,
    /// True when its timeout is 0: it waits for a check.
    pub no_wait: bool,
    /// When the wait is over.
    pub until: Time,
    /// Armed for that moment, or before for the one at which it has waited for long.
    pub timer: TimerId,
}

/// What a waiter waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum WaitSource {
    Pool(PoolId),
    /// It causes starts in one pool, or waits there for a check.
    Group(GroupId, Option<PoolId>),
}

/// Waiters by what they need, by priority, first come first.
#[derive(Default)]
pub(super) struct WaitQueue {
    pub len: u32,
    pub lists: [[List<WaiterId>; PRIORITIES]; 3],
}

/// What a waiter needs: any member, one that matches, or several.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Any,
    Matching,
    Several,
}

impl Waiter {
    pub fn members(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    fn need(&self) -> Need {
        match &self.filter {
            _ if self.members() > 1 => Need::Several,
            Some(_) => Need::Matching,
            None => Need::Any,
        }
    }

    pub fn rank(&self, now: Time) -> Rank {
        let has_waited = now.since(self.since) >= LONG_WAIT;
        (if has_waited { 0 } else { self.priority }, self.arrival)
    }

    /// When its timer is to fire next.
    pub fn next_look(since: Time, until: Time, priority: u8, now: Time) -> Time {
        let aged = since + LONG_WAIT;
        if priority > 0 && aged > now { until.min(aged) } else { until }
    }

    /// The pool in which it causes starts.
    pub fn starts_in(&self) -> Option<PoolId> {
        match self.place {
            WaitSource::Pool(pool) => Some(pool),
            WaitSource::Group(_, pool) => pool,
        }
    }
}

impl State {
    pub(super) fn waiter(&self, id: WaiterId) -> &Waiter {
        &self.waiters[id.index()]
    }

    pub(super) fn queues(&self, pool: PoolId) -> impl Iterator<Item = &WaitQueue> {
        let pool = self.pool(pool);
        let group = pool.group.map(|group| &self.groups[group.index()].queue);
        [&pool.queue].into_iter().chain(group)
    }

    /// How many wait for a member of the pool.
    pub(super) fn queued(&self, pool: PoolId) -> u32 {
        let pool = self.pool(pool);
        pool.queue.len + pool.group.map_or(0, |group| self.groups[group.index()].queue.len)
    }

    /// Everybody who waits for the pool and can take from it, in the order in which they are served.
    pub(super) fn in_order(&self, pool: PoolId, now: Time) -> Vec<WaiterId> {
        let lists = self.queues(pool).flat_map(|queue| queue.lists.iter().flatten());
        let all = lists.flat_map(|list| list.iter(&self.links_waiter));
        let mut all: Vec<WaiterId> = all.filter(|id| self.can_take_from(*id, pool)).collect();
        all.sort_unstable_by_key(|id| self.waiter(*id).rank(now));
        all
    }

    /// The first waiter with this need in the order, of whom `is_meant` is true.
    fn first(
        &self,
        pool: PoolId,
        need: Need,
        now: Time,
        is_meant: impl Fn(WaiterId) -> bool,
    ) -> Option<(Rank, WaiterId)> {
        let lists = self.queues(pool).flat_map(|queue| queue.lists[need as usize].iter());
        let firsts = lists.filter(|list| !list.is_empty()).filter_map(|list| {
            let id = list.iter(&self.links_waiter).find(|id| self.can_take_from(*id, pool) && is_meant(*id))?;
            Some((self.waiter(id).rank(now), id))
        });
        firsts.min()
    }

    /// The first waiter for several members: what it can use is kept for it.
    pub(super) fn reserving_waiter(&self, pool: PoolId, now: Time) -> Option<(Rank, WaiterId)> {
        // Most takes find that nobody waits.
        if self.queued(pool) == 0 { None } else { self.first(pool, Need::Several, now, |_| true) }
    }

    /// Whether a waiter can be served by the pool as far as its connection is concerned. A pool's own could when they came.
    fn can_take_from(&self, id: WaiterId, pool: PoolId) -> bool {
        let waiter = self.waiter(id);
        match waiter.place {
            WaitSource::Pool(_) => true,
            WaitSource::Group(..) => {
                let entry = self.pool(pool);
                let members = waiter.members();
                !entry.is_leaving && members <= entry.settings.max && !self.is_at_limit(waiter.conn, pool, members)
            }
        }
    }

    fn suits(&self, waiter: WaiterId, member: MemberId) -> bool {
        self.waiter(waiter).filter.as_ref().is_none_or(|filter| self.matches(filter, member))
    }

    pub(super) fn matches(&self, filter: &Filter, member: MemberId) -> bool {
        filter.matches(&self.member(member).name, self.attributes_of(member).map(|attributes| &**attributes))
    }

    /// A member came free: gives it to the first waiter whom it suits, or keeps it for one that waits for several.
    pub(super) fn offer_to_waiters(&mut self, id: MemberId, cause: Cause, step: &mut Step<'_, '_>) {
        let pool = self.member(id).pool;
        if self.queued(pool) == 0 {
            return;
        }
        let now = step.now;
        let single = [Need::Any, Need::Matching].into_iter();
        let single = single.filter_map(|need| self.first(pool, need, now, |waiter| self.suits(waiter, id))).min();
        let reserving_waiter = self.reserving_waiter(pool, now);
        let keeps = reserving_waiter.filter(|(_, waiter)| self.suits(*waiter, id));
        if let Some((rank, waiter)) = keeps
            && single.is_none_or(|(single, _)| rank < single)
        {
            self.serve_several(waiter, pool, None, step);
            return self.settle_want(waiter, pool);
        }
        // Those behind the first one that waits for several keep nothing, but may be served with what it cannot use.
        if let Some((_, reserving_waiter)) = reserving_waiter {
            let is_meant = |waiter| {
                waiter != reserving_waiter
                    && self.suits(waiter, id)
                    && self.can_be_served(waiter, pool, reserving_waiter)
            };
            let several = self.first(pool, Need::Several, now, is_meant);
            if let Some((_, waiter)) = several.filter(|(rank, _)| single.is_none_or(|(single, _)| *rank < single)) {
                self.serve_several(waiter, pool, Some(reserving_waiter), step);
                return;
            }
        }
        match single {
            Some((_, waiter)) => self.serve_waiter(waiter, pool, &[id], step),
            None if cause == Cause::Start => self.use_start(pool, now),
            None => {}
        }
    }

    fn can_be_served(&self, id: WaiterId, pool: PoolId, reserving_waiter: WaiterId) -> bool {
        let waiter = self.waiter(id);
        self.pick(pool, waiter.filter.as_deref(), waiter.members(), Some(reserving_waiter)).is_some()
    }

    /// Serves a waiter for several members if there are enough, and none of them has to be checked first.
    fn serve_several(
        &mut self,
        id: WaiterId,
        pool: PoolId,
        reserving_waiter: Option<WaiterId>,
        step: &mut Step<'_, '_>,
    ) {
        let waiter = self.waiter(id);
        let Some(members) = self.pick(pool, waiter.filter.as_deref(), waiter.members(), reserving_waiter) else {
            return;
        };
        let unproved = self.unproved(&members, waiter.since, step.now);
        if unproved.is_empty() {
            return self.serve_waiter(id, pool, &members, step);
        }
        unproved.into_iter().for_each(|member| self.begin_check(member, step));
    }

    /// A waiter that keeps members of a pool needs fewer starts there, and more if one that it kept is there no longer. One that causes its
    /// starts in another pool of its group needs as many as before: in that one, others may come before it.
    fn settle_want(&mut self, id: WaiterId, pool: PoolId) {
        let causes_starts = |waiter: &&Waiter| waiter.starts_in() == Some(pool);
        let Some(waiter) = self.waiters.get(id.index()).filter(causes_starts) else { return };
        let kept = self.suiting(pool, waiter.filter.as_deref());
        self.set_want(id, waiter.members().saturating_sub(kept.max(waiter.starts_used)));
    }

    /// Reckons anew what the first who waits for several in a pool needs.
    pub(super) fn settle_reserving_waiter(&mut self, pool: PoolId, now: Time) {
        if self.queued(pool) > 0
            && let Some((_, reserving_waiter)) = self.reserving_waiter(pool, now)
        {
            self.settle_want(reserving_waiter, pool);
        }
    }

    /// How many free members of the pool suit a take.
    pub(super) fn suiting(&self, pool: PoolId, filter: Option<&Filter>) -> u32 {
        let free = &self.pool(pool).free;
        let Some(filter) = filter else { return free.len() };
        free.iter(&self.links_free).take(MOST_LOOKED_AT).filter(|id| self.matches(filter, *id)).count() as u32
    }

    fn set_want(&mut self, id: WaiterId, want: u32) {
        let waiter = &mut self.waiters[id.index()];
        let before = std::mem::replace(&mut waiter.want, want);
        if let Some(pool) = waiter.starts_in().filter(|_| before != want) {
            let entry = self.pool_mut(pool);
            entry.need = entry.need - u64::from(before) + u64::from(want);
            self.touch(pool);
        }
    }

    /// A start has brought a member that suits no waiter: the first waiter that might have caused it has had its start.
    fn use_start(&mut self, pool: PoolId, now: Time) {
        let is_meant = |id: WaiterId| {
            let waiter = self.waiter(id);
            waiter.want > 0 && waiter.starts_in() == Some(pool)
        };
        let all = [Need::Any, Need::Matching, Need::Several];
        let first = all.into_iter().filter_map(|need| self.first(pool, need, now, is_meant)).min();
        if let Some((_, id)) = first {
            self.waiters[id.index()].starts_used += 1;
            self.set_want(id, self.waiter(id).want - 1);
        }
    }

    /// Has everybody who waits for the pool look at what is free, in order.
    pub(super) fn reconsider(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        // When those are gone whose provider is lost, this is called again.
        if self.pool(pool).free.is_empty() || self.queued(pool) == 0 || self.pool(pool).orphaned_free > 0 {
            return;
        }
        let mut checks = self.pool(pool).count(PhaseKind::Checking) as usize;
        let mut reserving_waiter = None;
        for id in self.in_order(pool, step.now) {
            if self.pool(pool).free.is_empty() {
                break;
            }
            let waiter = self.waiter(id);
            let members = self.pick(pool, waiter.filter.as_deref(), waiter.members(), reserving_waiter);
            let unproved = members.as_ref().map(|members| self.unproved(members, waiter.since, step.now));
            let is_several = waiter.need() == Need::Several;
            match (members, unproved) {
                (Some(members), Some(unproved)) if unproved.is_empty() => {
                    self.serve_waiter(id, pool, &members, step);
                    continue;
                }
                (_, Some(unproved)) => {
                    // The checks that are under way already are as good.
                    let covered = unproved.len().min(checks);
                    checks -= covered;
                    unproved.into_iter().skip(covered).for_each(|member| self.begin_check(member, step));
                }
                _ => {}
            }
            if is_several && reserving_waiter.is_none() {
                reserving_waiter = Some(id);
                self.settle_want(id, pool);
            }
        }
    }

    /// Gives a waiter the members that it waits for.
    fn serve_waiter(&mut self, id: WaiterId, pool: PoolId, members: &[MemberId], step: &mut Step<'_, '_>) {
        let waiter = self.unqueue(id);
        step.timers.cancel(waiter.timer);
        self.pool_mut(pool).times.wait.record(step.now.since(waiter.since));
        let asker = Asker { conn: waiter.conn, count: waiter.count, lease: waiter.lease };
        self.hand_out(&asker, pool, members, step);
    }

    /// Adds a waiter, last in the order of its priority.
    pub(super) fn enqueue(&mut self, waiter: Waiter) -> WaiterId {
        let (conn, place, need, priority) = (waiter.conn, waiter.place, waiter.need(), waiter.priority);
        let (want, starts_in, no_wait) = (waiter.want, waiter.starts_in(), waiter.no_wait);
        let id = WaiterId::from_index(self.waiters.insert(waiter));
        let queue = match place {
            WaitSource::Pool(pool) => &mut self.pools[pool.index()].queue,
            WaitSource::Group(group, _) => &mut self.groups[group.index()].queue,
        };
        queue.len += 1;
        queue.lists[need as usize][usize::from(priority)].push_back(&mut self.links_waiter, id);
        if let Some(pool) = starts_in {
            self.count_want(pool, want, no_wait);
        }
        self.client(conn).waiter = Some(id);
        id
    }

    fn count_want(&mut self, pool: PoolId, want: u32, no_wait: bool) {
        let entry = self.pool_mut(pool);
        entry.need += u64::from(want);
        entry.no_wait += u32::from(no_wait);
        self.touch(pool);
    }

    /// Takes a waiter out of every table; its timer is the caller's to deal with.
    pub(super) fn unqueue(&mut self, id: WaiterId) -> Waiter {
        let waiter = self.waiters.remove(id.index());
        let queue = match waiter.place {
            WaitSource::Pool(pool) => &mut self.pools[pool.index()].queue,
            WaitSource::Group(group, _) => &mut self.groups[group.index()].queue,
        };
        queue.len -= 1;
        queue.lists[waiter.need() as usize][usize::from(waiter.priority)].remove(&mut self.links_waiter, id);
        self.uncount_want(&waiter);
        self.clients[waiter.conn.index()].waiter = None;
        // What was kept for it goes on to others.
        if waiter.need() == Need::Several {
            self.reconsider_place(waiter.place);
        }
        waiter
    }

    fn uncount_want(&mut self, waiter: &Waiter) {
        if let Some(pool) = waiter.starts_in() {
            let entry = self.pool_mut(pool);
            entry.need -= u64::from(waiter.want);
            entry.no_wait -= u32::from(waiter.no_wait);
            self.touch(pool);
        }
    }

    pub(super) fn reconsider_place(&mut self, place: WaitSource) {
        for pool in self.pools_of(place) {
            self.pool_mut(pool).is_to_reconsider = true;
            self.touch(pool);
        }
    }

    /// The pools whose members a waiter there may get.
    pub(super) fn pools_of(&self, place: WaitSource) -> Vec<PoolId> {
        match place {
            WaitSource::Pool(pool) => vec![pool],
            WaitSource::Group(group, _) => self.groups[group.index()].pools.clone(),
        }
    }

    /// Has a waiter for a group cause its starts in another pool.
    pub(super) fn move_want(&mut self, id: WaiterId, pool: Option<PoolId>) {
        let waiter = &mut self.waiters[id.index()];
        let WaitSource::Group(group, before) = waiter.place else { return };
        let (want, no_wait) = (waiter.want, waiter.no_wait);
        waiter.place = WaitSource::Group(group, pool);
        if let Some(before) = before {
            let entry = self.pool_mut(before);
            entry.need -= u64::from(want);
            entry.no_wait -= u32::from(no_wait);
            self.touch(before);
        }
        if let Some(pool) = pool {
            self.count_want(pool, want, no_wait);
        }
    }
}
