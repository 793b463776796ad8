//! Waits: the order in which waiters get members, the members that are reserved, and the starts that waiters cause.

use super::lifecycle::Cause;
use super::waiters::{Demand, MOST_PASSED, Next, Place, Rank};
use super::*;

/// Cost of an offer of a member to waiters: slices have fewer members if there are waiters.
const OFFER_COST: usize = 4;
/// Cost of each class of waiters that it suits.
const COST_OF_A_CLASS: usize = 2;

/// Most kinds of waiters for several that an offer examines.
const MOST_SEVERAL: usize = 16;

/// Most waiters for a check that are refused in a step.
const MOST_REFUSED: usize = 512;

/// Waiters that may get free members which they could not get before.
pub(super) enum Retry {
    /// All waiters that suit members with a filter, which were reserved for another waiter.
    Reserved(Option<Box<Filter>>),
    /// The waiter of a connection.
    Waiter(ConnId),
}

impl State {
    /// Returns the first waiter with this demand, of those that can take from the pool.
    pub(super) fn first(&self, pool: PoolId, demand: Demand, now: Time) -> Option<Next> {
        let source = (pool, self.pool(pool).group);
        self.waiters.first(source, demand, now, |id| self.can_take_from(id, pool))
    }

    /// Returns the first waiter of each class that a member suits, in the order in which they are served.
    fn suited(&self, id: MemberId, now: Time) -> Vec<Next> {
        let Member { pool, name, .. } = self.member(id);
        let attributes = self.members.attributes(id).map(|attributes| &**attributes);
        let classes = self.waiters.classes_under(*pool, self.pool(*pool).group, name, attributes);
        let first = classes.filter_map(|class| self.first_of_class(class, *pool, now));
        let mut all: Vec<_> = first.filter(|first| self.suits(first.waiter, id)).collect();
        all.sort_unstable();
        all
    }

    pub(super) fn first_of_class(&self, class: ClassId, pool: PoolId, now: Time) -> Option<Next> {
        self.waiters.first_of_class(class, now, |id| self.can_take_from(id, pool))
    }

    /// Returns the waiters that can take from the pool, in the order in which they are served.
    pub(super) fn in_order(&self, pool: PoolId, now: Time) -> Vec<WaiterId> {
        let all = self.waiters.for_pool(pool, self.pool(pool).group);
        let mut all: Vec<WaiterId> = all.filter(|id| self.can_take_from(*id, pool)).collect();
        all.sort_unstable_by_key(|id| self.waiters.get(*id).rank(now));
        all
    }

    /// Returns whether the limits of a pool let a waiter take from it. Waiters for one pool were checked before.
    pub(super) fn can_take_from(&self, id: WaiterId, pool: PoolId) -> bool {
        let waiter = self.waiters.get(id);
        match waiter.source {
            WaitSource::Pool(_) => !self.pool(pool).is_leaving,
            WaitSource::Group(..) => {
                let (members, Pool { is_leaving, settings, .. }) = (waiter.members(), self.pool(pool));
                !is_leaving && members <= settings.max && !self.is_at_limit(waiter.conn, pool, members)
            }
        }
    }

    /// Gives a free member to the first waiter that it suits, or reserves it for one that waits for several.
    pub(super) fn offer_to_waiters(&mut self, id: MemberId, cause: Cause, step: &mut Step<'_, '_>) {
        let pool = self.member(id).pool;
        if self.queued(pool) > 0 {
            self.offer_member(id, cause, None, step);
            self.offer_deep(pool);
        }
    }

    /// Goes on in the background if an offer has not examined all waiters.
    fn offer_deep(&mut self, pool: PoolId) {
        if self.waiters.wants_deep(pool) && !self.background.of_pool(pool).is_offering {
            self.pools.reconsider(pool);
        }
    }

    /// Offers a free member to its waiters. If some were not examined that may come before others, these get nothing, and
    /// a search is wanted; such a search offers it to one that it knows, and to those before that.
    fn offer_member(&mut self, id: MemberId, cause: Cause, known: Option<WaiterId>, step: &mut Step<'_, '_>) {
        let (pool, now) = (self.member(id).pool, step.now);
        self.reserve_for_more(pool, step);
        let (mut suited, mut any) = (self.suited(id, now), self.first(pool, Demand::Any, now));
        let passed = suited.iter().chain(&any).filter(|next| !next.is_known).count() * MOST_PASSED;
        // Lossless: it is at most the budget.
        let cost = (OFFER_COST + COST_OF_A_CLASS * suited.len() + passed).min(step.timers.budget() as usize) as u32;
        step.timers.spend(cost);
        let is_several = |id: WaiterId| self.waiters.get(id).demand() == Demand::Several;
        if let Some(waiter) = known {
            any = any.filter(|next| next.is_known);
            suited.retain(|next| next.is_known);
            suited.push(Next { rank: self.waiters.get(waiter).rank(now), waiter, is_known: true });
            suited.sort_unstable();
        }
        let matching = suited.iter().copied().find(|next| !is_several(next.waiter));
        let single = any.into_iter().chain(matching).min();
        let is_first = |rank: Rank| single.is_none_or(|single| rank < single.rank);
        let reserving = self.reserving_waiter(pool, now);
        let kept = reserving.filter(|(rank, waiter)| is_first(*rank) && self.suits(*waiter, id));
        // Others that wait for several reserve nothing, but are served before the first if they come before it, and with
        // members that it cannot use.
        let is_in_order = |rank: Rank| is_first(rank) && kept.is_none_or(|(kept, _)| rank < kept);
        let before = suited.iter().take_while(|next| is_in_order(next.rank)).filter(|next| is_several(next.waiter));
        let several: Vec<Next> = before.copied().collect();
        let examined = several.iter().take(MOST_SEVERAL).filter(|next| next.is_known).map(|next| next.waiter);
        if let Some(waiter) = examined.chain(known).find(|waiter| {
            let rank = self.waiters.get(*waiter).rank(now);
            is_several(*waiter) && is_in_order(rank) && self.can_be_served(*waiter, rank, pool, now)
        }) {
            let reserving = self.reserving_before(self.waiters.get(waiter).rank(now), pool, now);
            return self.serve_several(waiter, pool, reserving, step);
        }
        if known.is_none() && (several.len() > MOST_SEVERAL || several.iter().any(|next| !next.is_known)) {
            let cause = if kept.is_some() { Cause::Other } else { cause };
            self.want_deep(pool, cause);
        } else if let Some((_, waiter)) = kept {
            self.serve_several(waiter, pool, None, step);
        } else {
            self.offer_to_single(id, cause, single, step);
        }
        kept.into_iter().for_each(|(_, waiter)| self.settle_want(waiter, pool));
    }

    /// Gives a free member to the first waiter for one, which comes before all others that could have it.
    fn offer_to_single(&mut self, id: MemberId, cause: Cause, single: Option<Next>, step: &mut Step<'_, '_>) {
        let (pool, now) = (self.member(id).pool, step.now);
        match single {
            Some(next) if !next.is_known => self.want_deep(pool, cause),
            Some(Next { rank, waiter, .. }) => {
                let id = self.next_for(waiter, pool, self.reserving_before(rank, pool, now)).unwrap_or(id);
                if self.unproved(&[id], self.waiters.get(waiter).since, now).is_empty() {
                    self.serve_waiter(waiter, pool, &[id], step);
                } else {
                    self.check_for_waiters(pool, vec![id], step);
                }
            }
            // The first that waits for several needs no other in its place.
            None if cause == Cause::Start => match self.first(pool, Demand::Several, now) {
                Some(next) if !next.is_known => self.want_deep(pool, cause),
                Some(next) if self.suits(next.waiter, id) => {}
                _ => self.use_start(pool),
            },
            None => {}
        }
    }

    /// Makes a search go on with an offer that has not examined all waiters. A start whose member is free at its end is
    /// used.
    fn want_deep(&mut self, pool: PoolId, cause: Cause) {
        self.waiters.want_deep(pool);
        if cause == Cause::Start {
            self.waiters.note_started(pool);
        }
    }

    /// Returns the waiter for which members are reserved, if it comes before this rank.
    fn reserving_before(&self, rank: Rank, pool: PoolId, now: Time) -> Option<WaiterId> {
        self.reserving_waiter(pool, now).filter(|(first, _)| *first < rank).map(|(_, first)| first)
    }

    /// Returns the free member that is next for a waiter for one, if there are several. They are free while a waiter may
    /// not have them: its connection has as many members of the pool as it may have.
    fn next_for(&self, id: WaiterId, pool: PoolId, reserving: Option<WaiterId>) -> Option<MemberId> {
        let filter = self.waiters.get(id).filter.as_deref();
        let picked = if self.free_count(pool) > 1 { self.pick(pool, filter, 1, reserving) } else { None };
        picked.map(|members| members[0])
    }

    /// Starts checks of members that suit a waiter, up to one check under way for each waiter.
    fn check_for_waiters(&mut self, pool: PoolId, unproved: Vec<MemberId>, step: &mut Step<'_, '_>) {
        let checks = self.members.in_pool(pool).count(PhaseKind::Checking) as usize;
        if checks + 1 < self.queued(pool) as usize + unproved.len() {
            unproved.into_iter().for_each(|member| self.begin_check(member, step));
        }
    }

    /// Hands out a free member to a waiter or to one before it, or starts its check. Returns whether that was done.
    fn try_to_serve(&mut self, id: WaiterId, pool: PoolId, step: &mut Step<'_, '_>) -> bool {
        let is_served = self.serve_or_check(id, pool, None, step);
        self.offer_deep(pool);
        is_served
    }

    /// As [`State::try_to_serve`]; `known` is the waiter if a search has found it behind many others.
    pub(super) fn serve_or_check(
        &mut self,
        id: WaiterId,
        pool: PoolId,
        known: Option<WaiterId>,
        step: &mut Step<'_, '_>,
    ) -> bool {
        let (waiter, free) = (self.waiters.get(id), self.free_count(pool));
        let reserving = self.reserving_before(waiter.rank(step.now), pool, step.now);
        let members = self.pick(pool, waiter.filter.as_deref(), waiter.members(), reserving);
        let Some(members) = members else { return false };
        let unproved = self.unproved(&members, waiter.since, step.now);
        match unproved.is_empty() {
            true => self.offer_member(members[0], Cause::Other, known, step),
            false => self.check_for_waiters(pool, unproved, step),
        }
        self.free_count(pool) < free
    }

    pub(super) fn can_be_served(&self, id: WaiterId, rank: Rank, pool: PoolId, now: Time) -> bool {
        let (waiter, reserving) = (self.waiters.get(id), self.reserving_before(rank, pool, now));
        self.pick(pool, waiter.filter.as_deref(), waiter.members(), reserving).is_some()
    }

    /// Serves a waiter for several members if there are enough, and none of them must be checked first.
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

    /// Counts a start whose member suits no waiter as used, for the first waiter that may have caused it.
    pub(super) fn use_start(&mut self, pool: PoolId) {
        if let Some(id) = self.waiters.first_needy(pool) {
            self.waiters.use_start(id);
            self.pools.touch(pool);
        }
    }

    /// Offers free members to waiters that could not have them before.
    pub(super) fn retry(&mut self, pool: PoolId, retry: Retry, step: &mut Step<'_, '_>) {
        match retry {
            Retry::Reserved(filter) => self.release_reserved(pool, filter.as_deref(), step),
            Retry::Waiter(conn) => {
                let waiter = self.waiters.of_conn(conn).filter(|id| self.can_take_from(*id, pool));
                waiter.into_iter().for_each(|id| _ = self.try_to_serve(id, pool, step));
            }
        }
    }

    /// Notes that a waiter may get members which it could not get before.
    fn retry_waiter(&mut self, id: WaiterId) {
        let Waiter { conn, source, .. } = *self.waiters.get(id);
        self.pools_of(source).into_iter().for_each(|pool| self.pools.retry(pool, Retry::Waiter(conn)));
    }

    pub(super) fn pools_of(&self, source: WaitSource) -> Vec<PoolId> {
        match source {
            WaitSource::Pool(pool) => vec![pool],
            WaitSource::Group(group, _) => self.pools.group(group).pools.clone(),
        }
    }

    /// Removes a waiter, without a message to its connection. Members that were reserved for it go on to others.
    fn end_wait(&mut self, id: WaiterId, step: &mut Step<'_, '_>) -> Waiter {
        let waiter = self.waiters.remove(id, step);
        waiter.starts_in().into_iter().for_each(|pool| self.pools.touch(pool));
        if waiter.demand() == Demand::Several {
            for pool in self.pools_of(waiter.source) {
                if self.waiters.end_reserving(pool, id) {
                    self.pools.retry(pool, Retry::Reserved(waiter.filter.clone()));
                    self.settle_reserving_waiter(pool, step.now);
                }
            }
        }
        waiter
    }

    /// Ends the wait of a connection that leaves, if it has one. Members that were reserved for it go to others at
    /// once, before those that it held are returned.
    pub(super) fn leave_wait(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        let Some(id) = self.waiters.of_conn(conn) else { return };
        let pools = self.pools_of(self.waiters.get(id).source);
        self.end_wait(id, step);
        pools.into_iter().for_each(|pool| self.retry_all(pool, step));
    }

    /// Offers free members to the noted waiters of a pool.
    pub(super) fn retry_all(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        for retry in self.pools.take_retries(pool) {
            self.retry(pool, retry, step);
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
            return self.retry_waiter(id);
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

    /// Refuses the waiters without a timeout once the last check has ended and no other member is free for them.
    pub(super) fn end_no_wait_takes(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        for _ in 0..MOST_REFUSED {
            let Some(id) = self.waiters.first_no_wait(pool) else { return };
            if self.members.in_pool(pool).count(PhaseKind::Checking) > 0 {
                return;
            }
            if !(self.can_take_from(id, pool) && self.try_to_serve(id, pool, step)) {
                let reason = self.miss_reason(pool, false);
                self.count_miss(pool, reason);
                self.refuse_wait(id, What::NoMembers(reason), step);
            }
        }
        self.background.fall_behind(pool);
    }

    /// Moves the starts of a waiter for a group to another pool, or to none.
    pub(super) fn move_want(&mut self, id: WaiterId, pool: Option<PoolId>) {
        let before = self.waiters.move_want(id, pool);
        before.into_iter().chain(pool).for_each(|pool| self.pools.touch(pool));
        if let (None, Place::Group(group)) = (pool, self.waiters.get(id).place()) {
            self.pools.reconsider_group(group);
        }
    }

    /// Ends the wait of a connection that may not wait any more.
    pub fn deny_wait(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.leave_wait(conn, step);
        step.tell(conn, What::Error(Refusal::Denied));
        self.settle(step);
    }
}
