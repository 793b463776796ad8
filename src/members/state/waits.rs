//! Waits: the order in which waiters get members, the members that are reserved, and the starts that waiters cause.

use super::lifecycle::Cause;
use super::waiters::{Demand, Rank};
use super::*;

impl State {
    /// Returns the first waiter with this demand, of those that can take from the pool, about which `is_meant` is true.
    fn first(
        &self,
        pool: PoolId,
        demand: Demand,
        now: Time,
        is_meant: impl Fn(WaiterId) -> bool,
    ) -> Option<(Rank, WaiterId)> {
        let source = (pool, self.pool(pool).group);
        self.waiters.first(source, demand, now, |id| self.can_take_from(id, pool) && is_meant(id))
    }

    /// Returns the waiters that can take from the pool, in the order in which they are served.
    pub(super) fn in_order(&self, pool: PoolId, now: Time) -> Vec<WaiterId> {
        let all = self.waiters.for_pool(pool, self.pool(pool).group);
        let mut all: Vec<WaiterId> = all.filter(|id| self.can_take_from(*id, pool)).collect();
        all.sort_unstable_by_key(|id| self.waiters.get(*id).rank(now));
        all
    }

    /// Returns the first waiter for several members. The members that it can use are reserved for it.
    #[inline]
    pub(super) fn reserving_waiter(&self, pool: PoolId, now: Time) -> Option<(Rank, WaiterId)> {
        // Most takes find that nothing waits.
        if self.queued(pool) == 0 { None } else { self.first(pool, Demand::Several, now, |_| true) }
    }

    /// Returns whether the limits of a pool let a waiter take from it. Those of the pool alone were within them when they came.
    fn can_take_from(&self, id: WaiterId, pool: PoolId) -> bool {
        let waiter = self.waiters.get(id);
        match waiter.source {
            WaitSource::Pool(_) => true,
            WaitSource::Group(..) => {
                let (members, Pool { is_leaving, settings, .. }) = (waiter.members(), self.pool(pool));
                !is_leaving && members <= settings.max && !self.is_at_limit(waiter.conn, pool, members)
            }
        }
    }

    fn suits(&self, waiter: WaiterId, member: MemberId) -> bool {
        let filter = self.waiters.get(waiter).filter.as_ref();
        filter.is_none_or(|filter| self.members.matches(filter, member))
    }

    /// Gives a member that came free to the first waiter that it suits, or keeps it for one that waits for several.
    pub(super) fn offer_to_waiters(&mut self, id: MemberId, cause: Cause, step: &mut Step<'_, '_>) {
        let pool = self.member(id).pool;
        if self.queued(pool) == 0 {
            return;
        }
        let now = step.now;
        let single = [Demand::Any, Demand::Matching].into_iter();
        let single = single.filter_map(|demand| self.first(pool, demand, now, |waiter| self.suits(waiter, id))).min();
        let reserving = self.reserving_waiter(pool, now);
        if let Some((rank, waiter)) = reserving.filter(|(_, waiter)| self.suits(*waiter, id))
            && single.is_none_or(|(single, _)| rank < single)
        {
            self.serve_several(waiter, pool, None, step);
            return self.settle_want(waiter, pool);
        }
        // Waiters for several behind the first reserve nothing, but are served with what it cannot use.
        if let Some((_, reserving)) = reserving {
            let is_meant =
                |waiter| waiter != reserving && self.suits(waiter, id) && self.can_be_served(waiter, pool, reserving);
            let several = self.first(pool, Demand::Several, now, is_meant);
            if let Some((_, waiter)) = several.filter(|(rank, _)| single.is_none_or(|(single, _)| *rank < single)) {
                return self.serve_several(waiter, pool, Some(reserving), step);
            }
        }
        match single {
            Some((_, waiter)) => self.serve_waiter(waiter, pool, &[id], step),
            None if cause == Cause::Start => self.use_start(pool, now),
            None => {}
        }
    }

    fn can_be_served(&self, id: WaiterId, pool: PoolId, reserving: WaiterId) -> bool {
        let waiter = self.waiters.get(id);
        self.pick(pool, waiter.filter.as_deref(), waiter.members(), Some(reserving)).is_some()
    }

    /// Serves a waiter for several members if there are enough, and none of them has to be checked first.
    fn serve_several(&mut self, id: WaiterId, pool: PoolId, reserving: Option<WaiterId>, step: &mut Step<'_, '_>) {
        let waiter = self.waiters.get(id);
        let Some(members) = self.pick(pool, waiter.filter.as_deref(), waiter.members(), reserving) else { return };
        let unproved = self.unproved(&members, waiter.since, step.now);
        if unproved.is_empty() {
            return self.serve_waiter(id, pool, &members, step);
        }
        unproved.into_iter().for_each(|member| self.begin_check(member, step));
    }

    /// Gives a waiter the members that it waits for.
    fn serve_waiter(&mut self, id: WaiterId, pool: PoolId, members: &[MemberId], step: &mut Step<'_, '_>) {
        let waiter = self.end_wait(id, step);
        self.pools.times(pool).wait.record(step.now.since(waiter.since));
        let asker = Asker { conn: waiter.conn, count: waiter.count, lease: waiter.lease };
        self.hand_out(&asker, pool, members, step);
    }

    /// Lowers the starts that a waiter needs by the members that are reserved for it, or raises them. One that causes its starts in
    /// another pool of its group needs as many as before: there, others may come before it.
    fn settle_want(&mut self, id: WaiterId, pool: PoolId) {
        let Some(waiter) = self.waiters.find(id).filter(|waiter| waiter.starts_in() == Some(pool)) else { return };
        let reserved = self.suiting(pool, waiter.filter.as_deref(), waiter.members());
        let want = waiter.members().saturating_sub(reserved.max(waiter.starts_used));
        if let Some(pool) = self.waiters.set_want(id, want) {
            self.pools.touch(pool);
        }
    }

    /// Settles the starts that the first waiter for several members needs.
    pub(super) fn settle_reserving_waiter(&mut self, pool: PoolId, now: Time) {
        if let Some((_, waiter)) = self.reserving_waiter(pool, now) {
            self.settle_want(waiter, pool);
        }
    }

    /// Returns the number of free members of the pool that suit a take, no more than `most`.
    pub(super) fn suiting(&self, pool: PoolId, filter: Option<&Filter>, most: u32) -> u32 {
        let Some(Filter { attributes, .. }) = filter else { return self.free_count(pool).min(most) };
        let wanted = Wanted { attributes, members: most as usize, is_back: true };
        // Lossless: they are no more than `most`.
        self.members.find_free(pool, &wanted, |_| true).len() as u32
    }

    /// Counts a start as used whose member suits no waiter, for the first waiter that may have caused it.
    fn use_start(&mut self, pool: PoolId, now: Time) {
        let is_meant = |id: WaiterId| {
            let waiter = self.waiters.get(id);
            waiter.want > 0 && waiter.starts_in() == Some(pool)
        };
        let all = [Demand::Any, Demand::Matching, Demand::Several];
        let first = all.into_iter().filter_map(|demand| self.first(pool, demand, now, is_meant)).min();
        if let Some((_, id)) = first {
            self.waiters.use_start(id);
            self.pools.touch(pool);
        }
    }

    /// Offers the free members of a pool to its waiters, in order.
    pub(super) fn reconsider(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        // This is called again when the free members of lost providers are gone.
        if self.free_count(pool) == 0 || self.queued(pool) == 0 || self.agents.has_orphaned_free(pool) {
            return;
        }
        let mut checks = self.members.in_pool(pool).count(PhaseKind::Checking) as usize;
        let mut reserving = None;
        for id in self.in_order(pool, step.now) {
            if self.free_count(pool) == 0 {
                break;
            }
            let waiter = self.waiters.get(id);
            let members = self.pick(pool, waiter.filter.as_deref(), waiter.members(), reserving);
            let unproved = members.as_ref().map(|members| self.unproved(members, waiter.since, step.now));
            let is_several = waiter.demand() == Demand::Several;
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
            if is_several && reserving.is_none() {
                reserving = Some(id);
                self.settle_want(id, pool);
            }
        }
    }

    /// Notes that waiters of the pools of a source may want members that are free.
    fn reconsider_source(&mut self, source: WaitSource) {
        self.pools_of(source).into_iter().for_each(|pool| self.pools.reconsider(pool));
    }

    fn pools_of(&self, source: WaitSource) -> Vec<PoolId> {
        match source {
            WaitSource::Pool(pool) => vec![pool],
            WaitSource::Group(group, _) => self.pools.group(group).pools.clone(),
        }
    }

    /// Removes a waiter, which is told nothing. What was reserved for it goes on to others.
    fn end_wait(&mut self, id: WaiterId, step: &mut Step<'_, '_>) -> Waiter {
        let waiter = self.waiters.remove(id, step);
        waiter.starts_in().into_iter().for_each(|pool| self.pools.touch(pool));
        if waiter.demand() == Demand::Several {
            self.reconsider_source(waiter.source);
        }
        waiter
    }

    /// Ends the wait of a connection that leaves, if it has one. Members that were reserved for it go to others at once, before
    /// those that it held come back.
    pub(super) fn leave_wait(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        let Some(id) = self.waiters.of_conn(conn) else { return };
        let pools = self.pools_of(self.waiters.get(id).source);
        self.end_wait(id, step);
        for pool in pools {
            if self.pools.take_reconsider(pool) {
                self.reconsider(pool, step);
            }
        }
    }

    /// Ends a wait without a member.
    pub(super) fn refuse_wait(&mut self, id: WaiterId, what: What, step: &mut Step<'_, '_>) {
        let waiter = self.end_wait(id, step);
        step.tell(waiter.conn, what);
    }

    /// Ends a wait that has lasted for its timeout, or reconsiders one that is long enough to come first.
    pub(super) fn wait_is_over(&mut self, id: WaiterId, step: &mut Step<'_, '_>) {
        if !self.waiters.fired(id, step) {
            return self.reconsider_source(self.waiters.get(id).source);
        }
        let waiter = self.end_wait(id, step);
        let pool = match waiter.source {
            WaitSource::Pool(pool) => Some(pool),
            WaitSource::Group(group, pool) => pool.or(self.pools.group(group).pools.first().copied()),
        };
        pool.into_iter().for_each(|pool| self.pools.count(pool, Stat::Timeout));
        step.tell(waiter.conn, What::NoMembers(NoMembers::Timeout));
    }

    /// `CANCEL`.
    pub(super) fn cancel(&mut self, conn: ConnId, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let id = self.waiters.of_conn(conn).ok_or(Refusal::NotWaiting)?;
        self.refuse_wait(id, What::NoMembers(NoMembers::Cancelled), step);
        Ok(())
    }

    /// Refuses the waiters without a timeout when the last check has ended and nothing else is free for them.
    pub(super) fn end_no_wait_takes(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        self.reconsider(pool, step);
        if self.members.in_pool(pool).count(PhaseKind::Checking) > 0 {
            return;
        }
        let waiter = |id: &WaiterId| self.waiters.get(*id);
        let all = self.waiters.for_pool(pool, self.pool(pool).group);
        let over = all.filter(|id| waiter(id).no_wait && waiter(id).starts_in() == Some(pool));
        let mut over: Vec<WaiterId> = over.collect();
        over.sort_unstable_by_key(|id| waiter(id).arrival);
        for id in over {
            let reason = self.miss_reason(pool);
            self.count_miss(pool, reason);
            self.refuse_wait(id, What::NoMembers(reason), step);
        }
    }

    /// Moves the starts of the waiters for a group to a pool that has a provider, where they are in one that has none.
    pub(super) fn assign_group_starts(&mut self, id: GroupId) {
        for waiter in self.waiters.of_group(id) {
            let Waiter { no_wait, .. } = self.waiters.get(waiter);
            let pool = self.waiters.get(waiter).starts_in();
            if *no_wait || pool.is_some_and(|pool| self.agents.is_provided(pool) && !self.pool(pool).is_leaving) {
                continue;
            }
            let best = self.roomiest_pool(&self.pools.group(id).pools);
            if best != pool {
                self.move_want(waiter, best);
            }
        }
    }

    /// Moves the starts of a waiter for a group to another pool, or to none.
    pub(super) fn move_want(&mut self, id: WaiterId, pool: Option<PoolId>) {
        let before = self.waiters.move_want(id, pool);
        before.into_iter().chain(pool).for_each(|pool| self.pools.touch(pool));
    }

    /// Returns the pool with a provider and the most room; the first of several.
    pub(super) fn roomiest_pool(&self, pools: &[PoolId]) -> Option<PoolId> {
        let room = |id: &PoolId| u64::from(self.pool(*id).settings.max).saturating_sub(self.slots(*id));
        let provided = pools.iter().copied().filter(|id| !self.pool(*id).is_leaving && self.agents.is_provided(*id));
        // The first of several, where max_by_key takes the last.
        provided.rev().max_by_key(room)
    }

    /// Ends the wait of a connection that may not wait any more.
    pub fn deny_wait(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.leave_wait(conn, step);
        step.tell(conn, What::Error(Refusal::Denied));
        self.settle(step);
    }
}
