//! Takes: members at once, a wait, or a refusal. The order of the checks is part of the protocol.

use super::*;
use std::ops::Deref;

/// Most free members that a take without attributes scans while some belong to a lost provider; beyond that it fails,
/// until these are ended.
const MOST_ORPHANED_FREE: usize = 64;
/// Most free members that a take scans for some that are reserved for no waiter: more than are reserved, except while
/// they are checked or stopped.
const MOST_RESERVED: usize = 2 * MOST_AT_ONCE as usize;

/// Recipient of members.
pub(super) struct Asker {
    pub conn: ConnId,
    /// Number of members, if the take names one.
    pub count: Option<u32>,
    /// Time for which the lease outlives its connection.
    pub lease: Option<Span>,
}

/// Members that were chosen together. One alone, as for most takes, needs no memory of its own.
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
    /// Takes `members` from the iterator; None if there are fewer.
    fn first(mut offered: impl Iterator<Item = MemberId>, members: usize) -> Option<Picked> {
        if members == 1 {
            return offered.next().map(|member| Picked::One([member]));
        }
        Picked::all(offered.take(members).collect(), members)
    }

    /// Takes the whole list if it has `members`; None otherwise.
    fn all(picked: Vec<MemberId>, members: usize) -> Option<Picked> {
        (picked.len() == members).then_some(Picked::Several(picked))
    }
}

/// Free members of a pool that suit a take.
enum Found {
    /// Members that can be handed out.
    Ready(Picked),
    /// Members that must be checked first.
    Unproved(Vec<MemberId>),
    Nothing,
}

impl State {
    /// Sets whether new takes are refused. Waiters are still served.
    pub fn set_refusing(&mut self, refuses_new: bool) {
        self.refuses_new = refuses_new;
    }

    /// `TAKE` and `TAKEGROUP`.
    pub(super) fn take(&mut self, conn: ConnId, take: Take<'_>, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        if self.waiters.of_conn(conn).is_some() {
            return Err(Refusal::Waiting);
        }
        if self.refuses_new {
            // Consumers that find a pool full ask again elsewhere, or later.
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
        let pool = self.pools.find_for_take(name)?;
        if self.pool(pool).is_leaving {
            step.tell(conn, What::NoMembers(NoMembers::Removed));
            return Ok(());
        }
        let members = take.count.unwrap_or(1);
        if members > self.pool(pool).settings.max.min(MOST_AT_ONCE) {
            return Err(Refusal::TooMany);
        }
        let is_at_limit = self.is_at_limit(conn, pool, members);
        let found = if is_at_limit { Found::Nothing } else { self.look(pool, &take, step.now) };
        // A member that is found need not be looked for again.
        if matches!(found, Found::Nothing) && !self.could_have(pool, take.filter.as_deref()) {
            return Err(Refusal::NoSuchMember);
        }
        if is_at_limit {
            self.pools.count(pool, Stat::Limit);
            step.tell(conn, What::Limit);
            return Ok(());
        }
        let no_wait = take.timeout == Span::ZERO;
        let to_check = match found {
            Found::Ready(members) => {
                let asker = Asker { conn, count: take.count, lease: take.lease };
                self.hand_out(&asker, pool, &members, step);
                return Ok(());
            }
            Found::Unproved(members) => members,
            Found::Nothing if no_wait => {
                _ = self.ask_for_start(pool, take.filter.as_deref(), step);
                let is_named = take.filter.as_ref().is_some_and(|filter| filter.member.is_some());
                let reason = self.miss_reason(pool, !is_named);
                self.count_miss(pool, reason);
                step.tell(conn, What::NoMembers(reason));
                return Ok(());
            }
            Found::Nothing => Vec::new(),
        };
        // A take that waits for the check of a free member comes before those of the queue.
        if to_check.is_empty() && self.queued(pool) >= self.pool(pool).settings.queue {
            self.pools.count(pool, Stat::QueueFull);
            step.tell(conn, What::QueueFull);
            return Ok(());
        }
        self.wait(conn, WaitSource::Pool(pool), take, step)?;
        to_check.into_iter().for_each(|member| self.begin_check(member, step));
        Ok(())
    }

    fn take_from_group(
        &mut self,
        conn: ConnId,
        name: &[u8],
        take: Take<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let group = self.pools.find_group(name).ok_or(Refusal::NoPool)?;
        let Some(pools) = self.pools_for(conn, group, &take, step)? else { return Ok(()) };
        let (mut ready, mut unproved) = (Vec::new(), Vec::new());
        for pool in &pools {
            match self.look(*pool, &take, step.now) {
                Found::Ready(members) => ready.push((*pool, members)),
                Found::Unproved(members) => unproved.push((*pool, members)),
                Found::Nothing => {}
            }
        }
        if let Some((pool, members)) = self.fullest(ready, step) {
            let asker = Asker { conn, count: take.count, lease: take.lease };
            self.hand_out(&asker, pool, &members, step);
            return Ok(());
        }
        let no_wait = take.timeout == Span::ZERO;
        let to_check = self.fullest(unproved, step);
        if no_wait && to_check.is_none() {
            _ = pools.iter().any(|pool| self.ask_for_start(*pool, take.filter.as_deref(), step));
            self.refuse_group_take(conn, &pools, &take, step);
            return Ok(());
        }
        if to_check.is_none() && pools.iter().all(|pool| self.queued(*pool) >= self.pool(*pool).settings.queue) {
            self.pools.count(pools[0], Stat::QueueFull);
            step.tell(conn, What::QueueFull);
            return Ok(());
        }
        let starts_in = self.best_pool(&pools);
        let (checked_in, to_check) = to_check.map_or((None, Vec::new()), |(pool, members)| (Some(pool), members));
        self.wait(conn, WaitSource::Group(group, checked_in.or(starts_in)), take, step)?;
        to_check.into_iter().for_each(|member| self.begin_check(member, step));
        Ok(())
    }

    /// Returns the pools of a group that can serve a take, now or later; None after a refusal was sent because none
    /// can.
    fn pools_for(
        &mut self,
        conn: ConnId,
        group: GroupId,
        take: &Take<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Vec<PoolId>>, Refusal> {
        let members = take.count.unwrap_or(1);
        let mut pools = self.pools.group(group).pools.clone();
        pools.retain(|pool| !self.pool(*pool).is_leaving);
        if pools.is_empty() {
            step.tell(conn, What::NoMembers(NoMembers::Removed));
            return Ok(None);
        }
        pools.retain(|pool| members <= self.pool(*pool).settings.max.min(MOST_AT_ONCE));
        if pools.is_empty() {
            return Err(Refusal::TooMany);
        }
        pools.retain(|pool| self.could_have(*pool, take.filter.as_deref()));
        let Some(first) = pools.first().copied() else { return Err(Refusal::NoSuchMember) };
        pools.retain(|pool| !self.is_at_limit(conn, *pool, members));
        if pools.is_empty() {
            self.pools.count(first, Stat::Limit);
            step.tell(conn, What::Limit);
            return Ok(None);
        }
        Ok(Some(pools))
    }

    /// Returns the pool with the most free members, at random if there are several.
    fn fullest<T>(&self, found: Vec<(PoolId, T)>, step: &mut Step<'_, '_>) -> Option<(PoolId, T)> {
        let free = |(pool, _): &(PoolId, T)| self.free_count(*pool);
        let most = found.iter().map(free).max()?;
        let mut best: Vec<_> = found.into_iter().filter(|entry| free(entry) == most).collect();
        let chosen = if best.len() > 1 { step.random.below(best.len() as u64) as usize } else { 0 };
        Some(best.swap_remove(chosen))
    }

    /// Refuses a take from a group, with the reason why no pool has a member.
    fn refuse_group_take(&mut self, conn: ConnId, pools: &[PoolId], take: &Take<'_>, step: &mut Step<'_, '_>) {
        let is_named = take.filter.as_ref().is_some_and(|filter| filter.member.is_some());
        let reasons: Vec<NoMembers> = pools.iter().map(|pool| self.miss_reason(*pool, !is_named)).collect();
        let reason = if reasons.contains(&NoMembers::Starting) {
            NoMembers::Starting
        } else if reasons.iter().all(|reason| *reason == NoMembers::NoProvider) {
            NoMembers::NoProvider
        } else {
            NoMembers::AtCapacity
        };
        self.count_miss(pools[0], reason);
        step.tell(conn, What::NoMembers(reason));
    }

    /// Adds a waiter for a take.
    fn wait(
        &mut self,
        conn: ConnId,
        source: WaitSource,
        take: Take<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        if !self.has_room() {
            return Err(Refusal::TooMany);
        }
        let mut waiter = Waiter {
            conn,
            source,
            arrival: 0,
            since: step.now,
            priority: take.priority,
            count: take.count,
            filter: take.filter,
            lease: take.lease,
            want: 0,
            starts_used: 0,
            no_wait: take.timeout == Span::ZERO,
            until: step.now + take.timeout,
            timer: None,
            class: None,
        };
        let (starts_in, members) = (waiter.starts_in(), waiter.members());
        if waiter.no_wait {
            waiter.until = step.now + starts_in.map_or(Span::ZERO, |pool| self.pool(pool).settings.check_timeout);
        }
        waiter.want = waiter.starts_left();
        self.waiters.add(waiter, step);
        if members > 1 {
            // Members may be reserved for it in each.
            self.pools_of(source).into_iter().for_each(|pool| self.pools.touch(pool));
        }
        starts_in.into_iter().for_each(|pool| self.pools.touch(pool));
        Ok(())
    }

    /// Returns the free members for a new take. Members that are reserved for waiters before it are left out.
    fn look(&self, pool: PoolId, take: &Take<'_>, now: Time) -> Found {
        let reserving = self.reserving_waiter(pool, now).filter(|(rank, _)| *rank < (take.priority, u64::MAX));
        let reserving = reserving.map(|(_, waiter)| waiter);
        let members = take.count.unwrap_or(1);
        let Some(members) = self.pick(pool, take.filter.as_deref(), members, reserving) else { return Found::Nothing };
        let unproved = self.unproved(&members, now, now);
        if unproved.is_empty() { Found::Ready(members) } else { Found::Unproved(unproved) }
    }

    /// Returns free members that match, in the order in which they are handed out; None if there are fewer. Members
    /// that `reserving` can use are left out.
    pub(super) fn pick(
        &self,
        id: PoolId,
        filter: Option<&Filter>,
        members: u32,
        reserving: Option<WaiterId>,
    ) -> Option<Picked> {
        let (free, surplus) = (self.free_count(id), self.surplus(id));
        let reserved = reserving.map(|waiter| self.waiters.get(waiter).filter.as_deref());
        if free - surplus < members || matches!(reserved, Some(None)) {
            return None;
        }
        let has_orphans = self.agents.has_orphaned_free(id);
        let is_given = |member: &MemberId| {
            (!has_orphans || !self.is_orphan(*member))
                && reserved.is_none_or(|of| of.is_some_and(|filter| !self.members.matches(filter, *member)))
        };
        let is_meant =
            |member: &MemberId| filter.is_none_or(|filter| self.members.matches(filter, *member)) && is_given(member);
        if let Some(name) = filter.and_then(|filter| filter.member.as_ref()) {
            let member = self.members.find_named(id, name);
            let member = member.filter(|member| self.phase_of(*member) == PhaseKind::Free);
            return Picked::first(member.filter(is_meant).into_iter(), 1);
        }
        let (members, is_back) = (members as usize, surplus > 0 || self.pool(id).settings.order == Order::Lifo);
        if let Some(Filter { attributes, .. }) = filter.filter(|_| surplus == 0) {
            return Picked::all(
                self.members.find_free(id, &Wanted { attributes, members, is_back }, is_given),
                members,
            );
        }
        let scanned = if has_orphans { MOST_ORPHANED_FREE } else { MOST_RESERVED };
        let most = scanned.max(members).min((free - surplus) as usize);
        // Members in excess are the longest idle.
        if is_back {
            Picked::first(self.members.free_back(id).take(most).filter(is_meant), members)
        } else {
            Picked::first(self.members.free(id).take(most).filter(is_meant), members)
        }
    }

    /// Returns the members that must be checked before they are handed out: not known to be alive since `since`, nor
    /// lately.
    pub(super) fn unproved(&self, members: &[MemberId], since: Time, now: Time) -> Vec<MemberId> {
        let is_unproved = |id: &&MemberId| {
            let member = self.member(**id);
            let limit = self.pool(member.pool).settings.check_on_take;
            let is_checked = limit > Span::ZERO && member.owner != MemberOwner::Fixed;
            is_checked && now.since(member.proved) > limit && member.proved < since
        };
        members.iter().filter(is_unproved).copied().collect()
    }

    /// Returns whether the pool may ever have a member that matches.
    fn could_have(&self, id: PoolId, filter: Option<&Filter>) -> bool {
        let Some(filter) = filter else { return true };
        let is_provided = self.agents.is_provided(id);
        match &filter.member {
            Some(name) => {
                let found = self.members.find_named(id, name);
                found.is_some_and(|member| is_provided || self.members.matches(filter, member))
            }
            None => is_provided || self.members.has_any(id, &filter.attributes),
        }
    }

    /// Returns whether a connection would hold more members of the pool than `per_client`.
    pub(super) fn is_at_limit(&self, conn: ConnId, pool: PoolId, members: u32) -> bool {
        let limit = self.pool(pool).settings.per_client;
        limit > 0 && u64::from(self.leases.held(conn, pool)) + u64::from(members) > u64::from(limit)
    }

    /// Requests a start for a take that does not wait, unless one is under way that no waiter needs. Returns whether
    /// one was requested.
    fn ask_for_start(&mut self, pool: PoolId, filter: Option<&Filter>, step: &mut Step<'_, '_>) -> bool {
        let (is_named, before) = (filter.is_some_and(|filter| filter.member.is_some()), self.starts.in_pool(pool));
        if !is_named && !self.has_spare_start(pool) {
            self.launch(pool, 1, step);
        }
        self.starts.in_pool(pool) > before
    }

    pub(super) fn count_miss(&mut self, pool: PoolId, reason: NoMembers) {
        let stat = match reason {
            NoMembers::AtCapacity => Stat::AtCapacity,
            NoMembers::Starting => Stat::Starting,
            NoMembers::NoProvider => Stat::NoProvider,
            NoMembers::Timeout => Stat::Timeout,
            NoMembers::Removed | NoMembers::Cancelled => return,
        };
        self.pools.count(pool, stat);
    }
}
