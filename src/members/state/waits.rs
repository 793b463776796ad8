//! Waits: the order in which waiters get members, and the ends of waits.

use super::takes::Picked;
use super::waiters::{Place, Turn};
use super::{Answer, GroupId, Member, MemberId, Phase, PoolId, Rank, Stat, State, Step, Waiter, WaiterId, background};
use poolcounter_core::ConnId;
use poolcounter_protocol::members::request::{NoMembers, Refusal, What};

/// Cost of an offer of a member, and of a pool or a waiter that is looked at when members are offered again.
const OFFER_COST: u32 = 6;

impl State {
    /// Gives a free member to the first waiter whom it fits. The first that waits for several keeps it until it has all.
    /// Returns whether it goes to a waiter, now or later.
    pub(super) fn offer_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) -> bool {
        let pool = self.member(id).pool;
        if self.queued(pool) == 0 {
            return false;
        }
        let reserving = self.reserving_waiter(pool);
        let mut waiters = self.waiters_for(id, step).into_iter();
        waiters.any(|turn| self.try_to_serve(turn, Some(id), step) || reserving == Some(turn))
    }

    /// Returns the first waiter for several members, for which the free members of a pool that it can use are kept.
    #[inline]
    pub(super) fn reserving_waiter(&self, pool: PoolId) -> Option<Turn> {
        let own = self.waiters.first_for_several(Place::Pool(pool));
        match self.pool(pool).group {
            Some(group) => own.into_iter().chain(self.waiters.first_for_several(Place::Group(group))).min(),
            None => own,
        }
    }

    /// Returns the first waiter of each kind whom a member fits, in the order in which they are served.
    fn waiters_for(&self, id: MemberId, step: &mut Step<'_, '_>) -> Vec<Turn> {
        let Member { pool, name, .. } = self.member(id);
        let attributes = self.members.attributes(id).map(|attributes| &**attributes);
        let places = [Some(Place::Pool(*pool)), self.pool(*pool).group.map(Place::Group)].into_iter().flatten();
        let places = places.filter(|place| self.waiters.queued(*place) > 0);
        let mut all: Vec<Turn> = places.flat_map(|place| self.waiters.classes.under(place, name, attributes)).collect();
        // Lossless: there are fewer waiters.
        step.timers.charge(OFFER_COST + all.len() as u32 * background::COST);
        all.retain(|(_, waiter)| self.fits(*waiter, id));
        all.sort_unstable();
        all
    }

    /// Returns whether a waiter can use a member.
    pub(super) fn fits(&self, waiter: WaiterId, member: MemberId) -> bool {
        let filter = self.waiters.get(waiter).filter.as_ref();
        filter.is_none_or(|filter| self.members.matches(filter, member))
    }

    /// Gives a waiter this free member, which has just come free and fits, or all that it waits for if there are as many;
    /// without one, the members that it would have by a take. Members that must be checked first are checked. Returns
    /// false if nothing of this is possible.
    fn try_to_serve(&mut self, (rank, id): Turn, freed: Option<MemberId>, step: &mut Step<'_, '_>) -> bool {
        let waiter = self.waiters.get(id);
        let members = match (waiter.members(), freed) {
            (1, Some(member)) => Some(Picked::One([member])),
            (wanted, _) => self.find(waiter.place, waiter.filter.as_deref(), wanted, rank),
        };
        let Some(members) = members else { return false };
        let is_kept = || waiter.lease.is_some() || members.iter().any(|id| self.member(*id).owner.is_none());
        if self.kept.closed.is_some() && is_kept() {
            return false;
        }
        let member = members[0];
        let unproved = self.unproved(&members, waiter.since, step.now);
        if unproved.is_empty() {
            let waiter = self.end_wait(id, step);
            self.pools.times(self.member(member).pool).wait.record(step.now.since(waiter.since));
            self.hand_out(&waiter, &members, step);
            return true;
        }
        // One check under way for each waiter is enough.
        let pool = self.member(member).pool;
        let checks = self.members.in_pool(pool).count(Phase::Checking) as usize;
        let is_due = checks + 1 < self.queued(pool) as usize + unproved.len();
        is_due && unproved.into_iter().filter(|member| self.begin_check(*member, step)).count() > 0
    }

    /// Offers the free members of pools to their waiters again, to the first waiter first, as far as the budget lasts.
    /// Returns whether there are more.
    pub(super) fn offer_again(&mut self, step: &mut Step<'_, '_>) -> bool {
        while let Some((from, pool)) = self.pools.offers.first().copied() {
            // Pools without waiters or free members cost nothing, so that what remains to be done for them comes to its end.
            let next = self.next_to_offer(from, pool);
            if next.is_some() && !background::spend(OFFER_COST, step) {
                return true;
            }
            self.pools.offers.pop_first();
            let Some(turn @ (rank @ (priority, arrival), _)) = next else {
                self.pools.end_offers(pool);
                continue;
            };
            // Waiters for other pools may come first.
            let is_first = self.pools.offers.first().is_none_or(|(other, _)| rank <= *other);
            let walked = self.walked.get();
            // A waiter for whom members are checked may want others, too.
            let is_over = is_first && !self.try_to_serve(turn, None, step);
            step.timers.charge(u32::try_from(self.walked.get() - walked).unwrap_or(u32::MAX));
            self.pools.offer_on(pool, if is_over { (priority, arrival + 1) } else { rank });
        }
        false
    }

    /// Returns the first waiter from a rank on who may want free members of a pool. None: there is none, or the pool is
    /// behind, and is reconsidered later.
    fn next_to_offer(&mut self, from: Rank, id: PoolId) -> Option<Turn> {
        let pool = self.pools.get_mut(id);
        let is_begin = from == Rank::default();
        pool.is_to_reconsider &= !is_begin;
        let places = [Some(Place::Pool(id)), pool.group.map(Place::Group)].into_iter().flatten();
        let is_put_off = is_begin && pool.is_behind;
        let next = places.filter_map(|place| self.waiters.classes.first_from(place, from)).min();
        next.filter(|_| !is_put_off && self.free_count(id) > 0)
    }

    /// Notes that the free members of a group's pools are to be offered again, as far as the budget lasts. Returns whether
    /// there are more pools.
    pub(super) fn reconsider_pools(&mut self, group: GroupId, step: &mut Step<'_, '_>) -> bool {
        while let Some(pool) = self.pools.next_to_reconsider(group) {
            self.pools.reconsider(pool);
            if !background::spend(OFFER_COST, step) {
                return self.pools.group(group).to_reconsider > 0;
            }
        }
        false
    }

    /// Notes that members which were kept for a waiter may go to other waiters.
    fn release_kept(&mut self, place: Place) {
        match place {
            Place::Pool(pool) => self.pools.reconsider(pool),
            Place::Group(group) => self.pools.reconsider_group(group),
        }
    }

    /// Notes that the demand of waiters has changed.
    pub(super) fn touch_place(&mut self, place: Place) {
        match place {
            Place::Pool(pool) => self.pools.touch(pool),
            Place::Group(group) => self.pools.touch_group(group),
        }
    }

    /// Adds a waiter.
    pub(super) fn begin_wait(&mut self, waiter: Waiter, step: &mut Step<'_, '_>) {
        let place = waiter.place;
        let id = self.waiters.add(waiter, step);
        self.touch_place(place);
        if self.waiters.first_for_several(place).is_some_and(|(_, first)| first == id) {
            self.release_kept(place);
        }
    }

    /// Removes a waiter, without a message to its connection. Members that were kept for it, or that were too few for it,
    /// go on to other waiters.
    fn end_wait(&mut self, id: WaiterId, step: &mut Step<'_, '_>) -> Waiter {
        let waiter = self.waiters.get(id);
        let place = waiter.place;
        if waiter.is_several() {
            self.release_kept(place);
        }
        self.touch_place(place);
        self.waiters.remove(id, step)
    }

    /// Ends the wait of a connection that leaves, if it has one. Members that were kept for it go to other waiters at once,
    /// before the members that it held are returned.
    pub(super) fn leave_wait(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        let Some(id) = self.waiters.of_conn(conn) else { return };
        if let Place::Group(group) = self.end_wait(id, step).place {
            self.reconsider_pools(group, step);
        }
        self.offer_again(step);
    }

    /// Ends a wait without a member.
    pub(super) fn refuse_wait(&mut self, id: WaiterId, what: What, step: &mut Step<'_, '_>) {
        let waiter = self.end_wait(id, step);
        step.tell(waiter.conn, what);
    }

    /// Ends a wait that has lasted for its timeout, or reconsiders one that is long enough to come first.
    pub(super) fn wait_is_over(&mut self, id: WaiterId, step: &mut Step<'_, '_>) {
        let place = self.waiters.get(id).place;
        if self.waiters.fired(id, step) {
            self.count_for(place, Stat::Timeout);
            self.refuse_wait(id, What::NoMembers(NoMembers::Timeout), step);
        } else {
            // Members may be kept for others that come behind it now.
            self.release_kept(place);
        }
    }

    /// `CANCEL`.
    pub(super) fn cancel(&mut self, conn: ConnId, step: &mut Step<'_, '_>) -> Answer {
        let id = self.waiters.of_conn(conn).ok_or(Refusal::NotWaiting)?;
        self.refuse_wait(id, What::NoMembers(NoMembers::Cancelled), step);
        Ok(None)
    }

    /// Ends the wait of a connection that may not wait any more.
    pub fn deny_wait(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.leave_wait(conn, step);
        step.tell(conn, What::Error(Refusal::Denied));
        self.settle(step);
    }
}
