//! Takes: members at once, a wait, or a refusal. The order of the checks is part of the protocol.

use super::pools::{Group, Part};
use super::waiters::Place;
use super::{Answer, GroupId, MOST_AT_ONCE, MemberId, Phase, PoolId, Rank, Stat, State, Step, Waiter, Wanted};
use poolcounter_core::{ConnId, Span, Time, meter};
use poolcounter_protocol::members::pool_settings::{Filter, Order};
use poolcounter_protocol::members::request::{From, NoMembers, Refusal, Take, What};
use std::cmp::Reverse;
use std::ops::Deref;

/// Most free members that a take scans for some that are kept for no waiter: more than are kept, except while they are
/// checked or stopped.
const MOST_KEPT: usize = 2 * MOST_AT_ONCE as usize;
/// Most pools with an attribute that a take from a group sorts by their free members: a step may visit some more. Of many,
/// a walk from the pool with most free members soon finds one.
const MOST_SORTED: usize = 1024;

/// Members that were chosen together. One alone, as for most takes, needs no memory of its own.
pub(super) enum Picked {
    One([MemberId; 1]),
    Several(Vec<MemberId>),
}

impl Picked {
    fn push(&mut self, member: MemberId) {
        match self {
            Picked::One([first]) => *self = Picked::Several(vec![*first, member]),
            Picked::Several(members) if members.is_empty() => *self = Picked::One([member]),
            Picked::Several(members) => members.push(member),
        }
    }
}

impl Deref for Picked {
    type Target = [MemberId];

    fn deref(&self) -> &[MemberId] {
        match self {
            Picked::One(one) => one,
            Picked::Several(members) => members,
        }
    }
}

impl State {
    /// `TAKE` and `TAKEGROUP`.
    pub(super) fn take(&mut self, conn: ConnId, take: Take<'_>, step: &mut Step<'_, '_>) -> Answer {
        if self.waiters.of_conn(conn).is_some() {
            return Err(Refusal::Waiting);
        }
        if self.refuses_new {
            // Consumers that find a pool full ask again elsewhere, or later.
            return Ok(Some(What::NoMembers(NoMembers::AtCapacity)));
        }
        let place = match take.from {
            From::Pool(name) => Place::Pool(self.pools.find(name)?),
            From::Group(name) => Place::Group(self.pools.find_group(name).ok_or(Refusal::NoPool)?),
        };
        if !self.is_lasting(place) {
            return Ok(Some(What::NoMembers(NoMembers::Removed)));
        }
        let waiter = Waiter::new(conn, place, take, step.now);
        let (filter, members) = (waiter.filter.as_deref(), waiter.members());
        if members > MOST_AT_ONCE || !self.may_have(place, members) {
            return Err(Refusal::TooMany);
        }
        self.refuse_unkept(waiter.lease.is_some(), place)?;
        let is_limited = self.is_limited(conn, place, members);
        let rank = (waiter.priority, u64::MAX);
        let found = if is_limited { None } else { self.find(place, filter, members, rank) };
        // A member that is found need not be looked for again.
        if found.is_none() && filter.is_some_and(|filter| !self.could_have(place, filter)) {
            return Err(Refusal::NoSuchMember);
        }
        if is_limited {
            self.count_for(place, Stat::Limit);
            return Ok(Some(What::Limit));
        }
        let to_check = found.as_ref().map(|members| self.unproved(members, step.now, step.now)).unwrap_or_default();
        match found.filter(|_| to_check.is_empty()) {
            Some(members) => {
                self.hand_out(&waiter, &members, step);
                Ok(None)
            }
            None => self.take_later(waiter, &to_check, step),
        }
    }

    /// Refuses a take that found no members, or lets it wait: also for the check of free ones.
    fn take_later(&mut self, mut waiter: Waiter, to_check: &[MemberId], step: &mut Step<'_, '_>) -> Answer {
        let place = waiter.place;
        if let Some(first) = to_check.first().filter(|_| waiter.until == step.now) {
            waiter.until = step.now + self.pool(self.member(*first).pool).settings.check_timeout;
        }
        if waiter.until == step.now {
            if waiter.asks_for_starts() {
                self.ask_for_start(place, step);
            }
            let reason = match place {
                Place::Pool(pool) => self.miss_reason(pool),
                Place::Group(group) => self.pools.reason_in(group),
            };
            let stat = match reason {
                NoMembers::Starting => Stat::Starting,
                NoMembers::NoProvider => Stat::NoProvider,
                _ => Stat::AtCapacity,
            };
            self.count_for(place, stat);
            step.tell(waiter.conn, What::NoMembers(reason));
            return Ok(None);
        }
        let is_full = match place {
            Place::Pool(pool) => self.queued(pool) >= self.pool(pool).settings.queue,
            Place::Group(group) => {
                self.waiters.queued(place) >= self.pools.group(group).places.last().map_or(0, |(places, _)| *places)
            }
        };
        // A take that waits for the check of a free member comes before those of the queue.
        if to_check.is_empty() && is_full {
            self.count_for(place, Stat::QueueFull);
            return Ok(Some(What::QueueFull));
        }
        if !self.has_room() {
            return Err(Refusal::TooMany);
        }
        self.begin_wait(waiter, step);
        to_check.iter().for_each(|member| _ = self.begin_check(*member, step));
        Ok(None)
    }

    /// Counts a pool of a group that a take has looked at.
    fn note_walk(&self) {
        meter::visit();
        self.walked.set(self.walked.get() + 1);
    }

    /// Counts an event of a take, for the first pool of a group.
    pub(super) fn count_for(&mut self, place: Place, stat: Stat) {
        let first = match place {
            Place::Pool(pool) => Some(pool),
            Place::Group(group) => self.pools.group(group).pools.values().next().copied(),
        };
        first.into_iter().for_each(|pool| self.pools.count(pool, stat));
    }

    fn is_lasting(&self, place: Place) -> bool {
        match place {
            Place::Pool(pool) => !self.pool(pool).is_leaving,
            Place::Group(group) => self.pools.is_lasting(group),
        }
    }

    /// Returns whether a pool may have as many members, or the pools of a group together.
    fn may_have(&self, place: Place, members: u32) -> bool {
        let most = match place {
            Place::Pool(pool) => u64::from(self.pool(pool).settings.max),
            Place::Group(group) => self.pools.group(group).sum(Part::Most),
        };
        u64::from(members) <= most
    }

    /// Returns whether a connection would hold more members of a pool than `per_client`, or more of the pools of a group
    /// together than the smallest of theirs.
    fn is_limited(&self, conn: ConnId, place: Place, members: u32) -> bool {
        let (limit, held) = match place {
            Place::Pool(pool) => match self.pool(pool).settings.per_client {
                0 => return false,
                limit => (limit, self.leases.held(conn, pool)),
            },
            Place::Group(group) => match self.pools.group(group).limits.first() {
                None => return false,
                Some((limit, _)) => (*limit, self.leases.held_of(conn, |of| self.pool(of).group == Some(group)).sum()),
            },
        };
        u64::from(held) + u64::from(members) > u64::from(limit)
    }

    /// Returns free members for a take or waiter of this rank: as many as it asks for, of a pool or of the pools of a
    /// group, beginning with the one that has most free. Members that are kept for a waiter before it are left out.
    pub(super) fn find(&self, place: Place, filter: Option<&Filter>, members: u32, rank: Rank) -> Option<Picked> {
        let mut found = Picked::Several(Vec::new());
        let mut has_all = |pool: PoolId| {
            self.pick(pool, filter, members as usize - found.len(), rank, &mut found);
            found.len() == members as usize
        };
        let is_found = match place {
            Place::Pool(pool) => has_all(pool),
            Place::Group(group) => {
                let reserving = self.waiters.first_for_several(place).filter(|(first, _)| *first < rank);
                if reserving.is_some_and(|(_, waiter)| self.waiters.get(waiter).filter.is_none()) {
                    return None;
                }
                let most = MOST_SORTED.min(self.pools.group(group).pools.len() / 8);
                match filter.and_then(|filter| self.few_pools(group, filter, most)) {
                    Some(few) => {
                        let mut few: Vec<PoolId> = few.filter(|pool| self.free_count(*pool) > 0).collect();
                        few.sort_unstable_by_key(|pool| Reverse((self.free_count(*pool), Reverse(*pool))));
                        few.into_iter().any(has_all)
                    }
                    None => self.members.pools_with_free(group).inspect(|_| self.note_walk()).any(has_all),
                }
            }
        };
        is_found.then_some(found)
    }

    /// Adds free members of a pool that match, at most `most`, in the order in which they are handed out. Members that are
    /// kept for a waiter before this rank are left out.
    fn pick(&self, id: PoolId, filter: Option<&Filter>, most: usize, rank: Rank, found: &mut Picked) {
        let free = self.free_count(id) - self.surplus(id);
        let kept = self.reserving_waiter(id).filter(|(first, _)| *first < rank);
        let kept = kept.map(|(_, waiter)| self.waiters.get(waiter).filter.as_deref());
        if free == 0 || matches!(kept, Some(None)) {
            return;
        }
        let is_given = |member: &MemberId| kept.flatten().is_none_or(|filter| !self.members.matches(filter, *member));
        let (most, is_back) = (most.min(free as usize), self.pool(id).settings.order == Order::Lifo);
        let add = |member| found.push(member);
        match filter {
            Some(filter @ Filter { member: Some(name), .. }) => {
                let member = self.members.find_named(id, name).filter(|member| self.phase_of(*member) == Phase::Free);
                let fits = |member: &MemberId| self.members.matches(filter, *member) && is_given(member);
                member.filter(fits).into_iter().for_each(add);
            }
            Some(Filter { attributes, .. }) => {
                let wanted = Wanted { attributes, members: most, is_back };
                self.members.find_free(id, &wanted, is_given).into_iter().for_each(add);
            }
            None if is_back => self.members.free_back(id).take(MOST_KEPT).filter(is_given).take(most).for_each(add),
            None => self.members.free(id).take(MOST_KEPT).filter(is_given).take(most).for_each(add),
        }
    }

    /// Returns the number of free members of a pool that match, at most `most`.
    pub(super) fn free_for(&self, pool: PoolId, filter: Option<&Filter>, most: u32) -> u32 {
        let Some(Filter { attributes, .. }) = filter else { return self.free_count(pool).min(most) };
        let wanted = Wanted { attributes, members: most as usize, is_back: true };
        // Lossless: they are at most `most`.
        self.members.find_free(pool, &wanted, |_| true).len() as u32
    }

    /// Returns the members that must be checked before they are handed out: not known to be alive since `since`, nor
    /// lately.
    pub(super) fn unproved(&self, members: &[MemberId], since: Time, now: Time) -> Vec<MemberId> {
        let is_unproved = |id: &&MemberId| {
            let member = self.member(**id);
            let limit = self.pool(member.pool).settings.check_on_take;
            let is_checked = limit > Span::ZERO && member.owner.is_some();
            is_checked && now.since(member.proved) > limit && member.proved < since
        };
        members.iter().filter(is_unproved).copied().collect()
    }

    /// Returns the pools of a group that may have members which match; None if all may, or more than `most`.
    fn few_pools(&self, group: GroupId, filter: &Filter, most: usize) -> Option<impl Iterator<Item = PoolId>> {
        let is_in = move |id: &PoolId| self.pool(*id).group == Some(group) && !self.pool(*id).is_leaving;
        let of_group = self.pools.group(group);
        let (one, few) = match &filter.member {
            // Fixed members have names of their own.
            Some(name) if of_group.sum(Part::Fixed) == of_group.pools.len() as u64 => {
                (self.members.find_fixed(name).map(|id| self.member(id).pool), None)
            }
            Some(_) => return None,
            None => {
                let few = self.members.attributes.pools_with(&filter.attributes)?;
                (None, Some((few.len() <= most).then_some(few)?))
            }
        };
        let few = few.into_iter().flatten().copied().inspect(|_| self.note_walk());
        Some(one.into_iter().chain(few).filter(is_in))
    }

    /// Returns whether a pool, or a pool of a group, may ever have a member that matches.
    fn could_have(&self, place: Place, filter: &Filter) -> bool {
        let could = |pool| self.pool_could_have(pool, filter);
        let group = match place {
            Place::Pool(pool) => return could(pool),
            Place::Group(group) => group,
        };
        let Group { pools, .. } = self.pools.group(group);
        if filter.member.is_none() && self.pools.group(group).sum(Part::Provided) > 0 {
            return true;
        }
        match self.few_pools(group, filter, pools.len()) {
            Some(mut few) => few.any(could),
            None => {
                let all = pools.values().copied().inspect(|_| self.note_walk());
                all.filter(|pool| !self.pool(*pool).is_leaving).any(could)
            }
        }
    }

    fn pool_could_have(&self, id: PoolId, filter: &Filter) -> bool {
        let is_provided = self.agents.is_provided(id);
        match &filter.member {
            Some(name) => {
                let found = self.members.find_named(id, name);
                found.is_some_and(|member| is_provided || self.members.matches(filter, member))
            }
            None => is_provided || self.members.attributes.has_any(id, &filter.attributes),
        }
    }

    /// Requests a start for a take that does not wait, unless one is under way that no waiter needs.
    fn ask_for_start(&mut self, place: Place, step: &mut Step<'_, '_>) {
        let pool = match place {
            Place::Pool(pool) => Some(pool).filter(|pool| self.needed_by(*pool).is_some()),
            Place::Group(group) => {
                let is_spare = self.pools.group(group).sum(Part::Spare) > self.waiters.want(place);
                self.pools.roomiest(group).filter(|_| !is_spare)
            }
        };
        if let Some(pool) = pool {
            self.launch(pool, 1, step);
            self.pools.set_supply(pool, self.supply_of(pool));
            self.pools.touch(pool);
        }
    }
}
