//! How waits end without a member, and who waits.

use super::waiters::{WaitQueue, WaitSource};
use super::*;

impl State {
    /// Ends a wait without a word; returns whose it was and what for.
    pub(super) fn end_wait(&mut self, id: WaiterId, step: &mut Step<'_, '_>) -> (ConnId, WaitSource) {
        let waiter = self.unqueue(id);
        step.timers.cancel(waiter.timer);
        (waiter.conn, waiter.place)
    }

    /// Ends the wait of a connection that leaves, if it has one. What was kept for it goes to others at once, before what the
    /// connection held comes back.
    pub(super) fn leave_wait(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        let Some(id) = self.client(conn).waiter else { return };
        let pools = self.pools_of(self.waiter(id).place);
        self.end_wait(id, step);
        for pool in pools {
            if std::mem::take(&mut self.pool_mut(pool).is_to_reconsider) {
                self.reconsider(pool, step);
            }
        }
    }

    /// Ends a wait without a member.
    pub(super) fn refuse_wait(&mut self, id: WaiterId, what: What, step: &mut Step<'_, '_>) {
        let (conn, _) = self.end_wait(id, step);
        step.tell(conn, what);
    }

    /// A wait has lasted for its timeout, or for so long that others may not go before it any more.
    pub(super) fn wait_is_over(&mut self, id: WaiterId, step: &mut Step<'_, '_>) {
        let waiter = &mut self.waiters[id.index()];
        if waiter.until > step.now {
            let timer = step.timers.arm(waiter.until, Timer::Wait(id));
            std::mem::replace(&mut waiter.timer, timer).fired();
            let place = waiter.place;
            return self.reconsider_place(place);
        }
        let waiter = self.unqueue(id);
        waiter.timer.fired();
        let pools = match waiter.place {
            WaitSource::Pool(pool) => vec![pool],
            WaitSource::Group(group, pool) => {
                pool.or(self.groups[group.index()].pools.first().copied()).into_iter().collect()
            }
        };
        pools.into_iter().for_each(|pool| self.pool_mut(pool).figures.count(Stat::Timeout));
        step.tell(waiter.conn, What::NoMembers(NoMembers::Timeout));
    }

    /// `CANCEL`.
    pub(super) fn cancel(&mut self, conn: ConnId, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let id = self.client(conn).waiter.ok_or(Refusal::NotWaiting)?;
        self.refuse_wait(id, What::NoMembers(NoMembers::Cancelled), step);
        Ok(())
    }

    /// No check is under way any more: who waited for one without a timeout has no member, if nothing else is free.
    pub(super) fn end_no_wait_takes(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        self.reconsider(pool, step);
        if self.pool(pool).count(PhaseKind::Checking) > 0 {
            return;
        }
        let no_wait = |id: &WaiterId| self.waiter(*id).no_wait && self.waiter(*id).starts_in() == Some(pool);
        let lists = self.queues(pool).flat_map(|queue| queue.lists.iter().flatten());
        let mut over: Vec<WaiterId> = lists.flat_map(|list| list.iter(&self.links_waiter)).filter(no_wait).collect();
        over.sort_unstable_by_key(|id| self.waiter(*id).arrival);
        for id in over {
            let reason = self.reason(pool);
            self.count_miss(pool, reason);
            self.refuse_wait(id, What::NoMembers(reason), step);
        }
    }

    /// Those who wait for this pool alone, newest first.
    pub(super) fn own_waiters(&self, pool: PoolId) -> Vec<WaiterId> {
        self.all_in(&self.pool(pool).queue)
    }

    /// Those who wait for this group, newest first.
    pub(super) fn group_waiters(&self, group: GroupId) -> Vec<WaiterId> {
        self.all_in(&self.groups[group.index()].queue)
    }

    fn all_in(&self, queue: &WaitQueue) -> Vec<WaiterId> {
        let lists = queue.lists.iter().flatten();
        let mut all: Vec<WaiterId> = lists.flat_map(|list| list.iter(&self.links_waiter)).collect();
        all.sort_unstable_by_key(|id| std::cmp::Reverse(self.waiter(*id).arrival));
        all
    }
}
