//! Takes: a member at once, a wait for one, or a refusal. The order of the checks is part of the protocol.

use super::waiters::WaitSource;
use super::*;
use std::ops::Deref;

/// How many a take looks at that has no attributes while some are free whose provider is lost: it finds nobody rather than keep
/// others waiting, for the moment until these are gone.
const MOST_ORPHANED_FREE: usize = 64;

/// Who is to have members, and how.
pub(super) struct Asker {
    pub conn: ConnId,
    /// How many, when it was said.
    pub count: Option<u32>,
    /// How long the lease outlives its connection.
    pub lease: Option<Span>,
}

/// Members that were chosen together. One alone, which most takes are for, takes no memory of its own.
pub(super) enum Picked {
    One([MemberId; 1]),
    Several(Vec<MemberId>),
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

impl Picked {
    /// Takes so many of what is offered; None when there are fewer.
    fn first(mut offered: impl Iterator<Item = MemberId>, members: usize) -> Option<Picked> {
        if members == 1 {
            return offered.next().map(|member| Picked::One([member]));
        }
        let picked: Vec<MemberId> = offered.take(members).collect();
        (picked.len() == members).then_some(Picked::Several(picked))
    }
}

/// What a take finds in a pool.
pub(super) enum Found {
    /// Members that can be handed out.
    Ready(Picked),
    /// Members that are free, but have to be checked first.
    Unproved(Vec<MemberId>),
    Nothing,
}

impl State {
    /// Refuses takes from now on, or serves them again. Those that wait are served all the same.
    pub fn set_refusing(&mut self, refuses_new: bool) {
        self.refuses_new = refuses_new;
    }

    /// `TAKE` and `TAKEGROUP`.
    pub(super) fn take(&mut self, conn: ConnId, take: Take<'_>, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        if self.client(conn).waiter.is_some() {
            return Err(Refusal::Waiting);
        }
        if self.refuses_new {
            // Those who wait for a member of a full pool ask again elsewhere, or later.
            step.tell(conn, What::NoMembers(NoMembers::AtCapacity));
            return Ok(());
        }
        match take.from {
            From::Pool(name) => self.take_from_pool(conn, name, take, step),
            From::Group(name) => self.take_from_group(conn, name, take, step),
        }
    }

    fn take_from_pool(
        &mut self,
        conn: ConnId,
        name: &[u8],
        take: Take<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let pool = self.find_pool(name)?;
        if self.pool(pool).is_leaving {
            step.tell(conn, What::NoMembers(NoMembers::Removed));
            return Ok(());
        }
        let members = take.count.unwrap_or(1);
        if members > self.pool(pool).settings.max.min(MOST_AT_ONCE) {
            return Err(Refusal::TooMany);
        }
        if !self.could_have(pool, take.filter.as_deref()) {
            return Err(Refusal::NoSuchMember);
        }
        if self.is_at_limit(conn, pool, members) {
            self.pool_mut(pool).figures.count(Stat::Limit);
            step.tell(conn, What::Limit);
            return Ok(());
        }
        let found = self.look(pool, &take, step.now);
        if let Found::Ready(members) = found {
            let asker = Asker { conn, count: take.count, lease: take.lease };
            self.hand_out(&asker, pool, &members, step);
            return Ok(());
        }
        let no_wait = take.timeout == Span::ZERO;
        let (to_check, is_checked) = match found {
            Found::Unproved(members) => (members, true),
            Found::Ready(_) | Found::Nothing => (Vec::new(), false),
        };
        if no_wait && !is_checked {
            self.ask(pool, take.filter.as_deref(), step);
            let reason = self.reason(pool);
            self.count_miss(pool, reason);
            step.tell(conn, What::NoMembers(reason));
            return Ok(());
        }
        if !no_wait && self.queued(pool) >= self.pool(pool).settings.queue {
            self.pool_mut(pool).figures.count(Stat::QueueFull);
            step.tell(conn, What::QueueFull);
            return Ok(());
        }
        self.wait(conn, WaitSource::Pool(pool), take, step)?;
        to_check.into_iter().for_each(|member| self.begin_check(member, step));
        Ok(())
    }

    /// Has a take wait.
    pub(super) fn wait(
        &mut self,
        conn: ConnId,
        place: WaitSource,
        take: Take<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        if !self.has_room() {
            return Err(Refusal::TooMany);
        }
        let no_wait = take.timeout == Span::ZERO;
        let starts_in = match place {
            WaitSource::Pool(pool) => Some(pool),
            WaitSource::Group(_, pool) => pool,
        };
        let check_timeout = starts_in.map_or(Span::ZERO, |pool| self.pool(pool).settings.check_timeout);
        let until = step.now + if no_wait { check_timeout } else { take.timeout };
        let id = WaiterId::from_index(self.waiters.vacant_key());
        let members = take.count.unwrap_or(1);
        let is_named = take.filter.as_ref().is_some_and(|filter| filter.member.is_some());
        let kept = match starts_in {
            Some(pool) if members > 1 && self.reserving_waiter(pool, step.now).is_none() => {
                self.suiting(pool, take.filter.as_deref())
            }
            _ => 0,
        };
        let waiter = Waiter {
            conn,
            place,
            arrival: self.next_arrival,
            since: step.now,
            priority: take.priority,
            count: take.count,
            filter: take.filter,
            lease: take.lease,
            want: if is_named { 0 } else { members.saturating_sub(kept) },
            starts_used: 0,
            no_wait,
            until,
            timer: step.timers.arm(Waiter::next_look(step.now, until, take.priority, step.now), Timer::Wait(id)),
        };
        self.next_arrival += 1;
        let entered = self.enqueue(waiter);
        debug_assert_eq!(entered, id, "the timer of the waiter was armed for its key");
        Ok(())
    }

    /// What the pool has for a take that comes now: what waiters before it keep is not for it.
    pub(super) fn look(&self, pool: PoolId, take: &Take<'_>, now: Time) -> Found {
        let reserving_waiter = self.reserving_waiter(pool, now).filter(|(rank, _)| *rank < (take.priority, u64::MAX));
        let reserving_waiter = reserving_waiter.map(|(_, waiter)| waiter);
        let members = take.count.unwrap_or(1);
        let Some(members) = self.pick(pool, take.filter.as_deref(), members, reserving_waiter) else {
            return Found::Nothing;
        };
        let unproved = self.unproved(&members, now, now);
        if unproved.is_empty() { Found::Ready(members) } else { Found::Unproved(unproved) }
    }

    /// So many free members that match, in the order in which they are handed out; None when there are fewer. What `reserving_waiter`
    /// can use is left out.
    pub(super) fn pick(
        &self,
        id: PoolId,
        filter: Option<&Filter>,
        members: u32,
        reserving_waiter: Option<WaiterId>,
    ) -> Option<Picked> {
        let pool = self.pool(id);
        let surplus = pool.surplus();
        if pool.free.len() - surplus < members {
            return None;
        }
        let reserving_waiter = reserving_waiter.map(|reserving_waiter| self.waiter(reserving_waiter).filter.as_deref());
        let is_meant = |member: &MemberId| {
            (pool.orphaned_free == 0 || !self.is_orphan(*member))
                && filter.is_none_or(|filter| self.matches(filter, *member))
                && reserving_waiter.is_none_or(|reserving_waiter| {
                    reserving_waiter.is_some_and(|reserving_waiter| !self.matches(reserving_waiter, *member))
                })
        };
        if matches!(reserving_waiter, Some(None)) {
            return None;
        }
        if let Some(name) = filter.and_then(|filter| filter.member.as_ref()) {
            let member = pool.members.get(name).copied();
            let is_free = |member: &MemberId| self.member(*member).phase.kind() == PhaseKind::Free;
            return Picked::first(member.filter(is_free).filter(is_meant).into_iter(), 1);
        }
        let looked_at = if pool.orphaned_free > 0 && filter.is_none() { MOST_ORPHANED_FREE } else { MOST_LOOKED_AT };
        let most = looked_at.max(members as usize).min((pool.free.len() - surplus) as usize);
        let members = members as usize;
        match pool.settings.order {
            // Those that are too many are the oldest.
            _ if surplus > 0 => {
                Picked::first(pool.free.iter_back(&self.links_free).take(most).filter(is_meant), members)
            }
            Order::Lifo => Picked::first(pool.free.iter_back(&self.links_free).take(most).filter(is_meant), members),
            Order::Fifo => Picked::first(pool.free.iter(&self.links_free).take(most).filter(is_meant), members),
        }
    }

    /// Those members that have to be checked before they are handed out: not known to live since `since`, nor lately.
    pub(super) fn unproved(&self, members: &[MemberId], since: Time, now: Time) -> Vec<MemberId> {
        let is_unproved = |id: &&MemberId| {
            let member = self.member(**id);
            let limit = self.pool(member.pool).settings.check_on_take;
            let is_checked = limit > Span::ZERO && member.owner != MemberOwner::Fixed;
            is_checked && now.since(member.proved) > limit && member.proved < since
        };
        members.iter().filter(is_unproved).copied().collect()
    }

    /// Whether a member that matches might ever be had from the pool.
    pub(super) fn could_have(&self, id: PoolId, filter: Option<&Filter>) -> bool {
        let Some(filter) = filter else { return true };
        let pool = self.pool(id);
        match &filter.member {
            Some(name) => {
                pool.members.get(name).is_some_and(|member| self.is_provided(id) || self.matches(filter, *member))
            }
            None if self.is_provided(id) || pool.members.len() > MOST_LOOKED_AT => true,
            None => pool.members.values().any(|member| self.matches(filter, *member)),
        }
    }

    /// Whether a connection would hold more members of the pool than it may.
    pub(super) fn is_at_limit(&self, conn: ConnId, pool: PoolId, members: u32) -> bool {
        let limit = self.pool(pool).settings.per_client;
        let holding = self.clients.get(conn.index()).and_then(|client| client.holding);
        let held = holding.map_or(&[][..], |holding| &self.holdings[holding.index()].held);
        let held = held.iter().find(|(of, _)| *of == pool).map_or(0, |(_, held)| *held);
        limit > 0 && u64::from(held) + u64::from(members) > u64::from(limit)
    }

    /// A take that does not wait asks for a start, unless one is under way that no waiter needs.
    pub(super) fn ask(&mut self, pool: PoolId, filter: Option<&Filter>, step: &mut Step<'_, '_>) {
        let is_named = filter.is_some_and(|filter| filter.member.is_some());
        if !is_named && !self.has_surplus(pool) {
            self.launch(pool, 1, step);
        }
    }

    pub(super) fn count_miss(&mut self, pool: PoolId, reason: NoMembers) {
        let stat = match reason {
            NoMembers::AtCapacity => Stat::AtCapacity,
            NoMembers::Starting => Stat::Starting,
            NoMembers::NoProvider => Stat::NoProvider,
            NoMembers::Timeout => Stat::Timeout,
            NoMembers::Removed | NoMembers::Cancelled => return,
        };
        self.pool_mut(pool).figures.count(stat);
    }
}
