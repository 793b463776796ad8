//! Groups: pools that are taken from together.

use super::takes::Found;
use super::waiters::WaitSource;
use super::*;

impl State {
    /// Puts a pool into the group of this name, or into none.
    pub(super) fn join_group(&mut self, pool: PoolId, name: Option<&Arc<[u8]>>) {
        let Some(name) = name else { return };
        let hash = self.group_names.hash(name);
        let found = self.group_names.find(hash, |id| self.groups[id.index()].name == *name);
        let id = found.unwrap_or_else(|| {
            let group = Group { name: name.clone(), hash, ..Group::default() };
            let id = GroupId::from_index(self.groups.insert(group));
            let groups = &self.groups;
            self.group_names.insert(hash, id, |id| groups[id.index()].hash);
            id
        });
        self.groups[id.index()].pools.push(pool);
        let entry = self.pool_mut(pool);
        entry.group = Some(id);
        entry.is_to_reconsider = true;
        self.touch(pool);
        self.place_wants(id);
    }

    /// Takes a pool out of its group. A group without pools is gone, and its waiters have nothing to wait for.
    pub(super) fn leave_group(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        let Some(id) = self.pool_mut(pool).group.take() else { return };
        self.groups[id.index()].pools.retain(|other| *other != pool);
        self.touch(pool);
        for waiter in self.group_waiters(id) {
            if self.waiter(waiter).starts_in() == Some(pool) {
                self.move_want(waiter, None);
            }
        }
        self.place_wants(id);
        self.end_group_if_over(id, step);
    }

    /// Ends the waits for a group of which every pool is being removed, and the group when it has none.
    pub(super) fn end_group_if_over(&mut self, id: GroupId, step: &mut Step<'_, '_>) {
        if self.groups[id.index()].pools.iter().any(|pool| !self.pool(*pool).is_leaving) {
            return;
        }
        for waiter in self.group_waiters(id) {
            self.refuse_wait(waiter, What::NoMembers(NoMembers::Removed), step);
        }
        if self.groups[id.index()].pools.is_empty() {
            let group = self.groups.remove(id.index());
            self.group_names.remove(group.hash, id);
        }
    }

    /// Has waiters that cause starts in no pool of their group that has a provider do so in another one.
    pub(super) fn place_wants(&mut self, id: GroupId) {
        for waiter in self.group_waiters(id) {
            let WaitSource::Group(_, pool) = self.waiter(waiter).place else {
                unreachable!("the queue of a group holds only waiters for it");
            };
            if self.waiter(waiter).no_wait
                || pool.is_some_and(|pool| self.is_provided(pool) && !self.pool(pool).is_leaving)
            {
                continue;
            }
            let best = self.roomiest_pool(&self.groups[id.index()].pools);
            if best != pool {
                self.move_want(waiter, best);
            }
        }
    }

    /// The pool with a provider and the most room; the first of several.
    fn roomiest_pool(&self, pools: &[PoolId]) -> Option<PoolId> {
        let room = |id: &PoolId| u64::from(self.pool(*id).settings.max).saturating_sub(self.pool(*id).slots());
        let provided = pools.iter().copied().filter(|id| !self.pool(*id).is_leaving && self.is_provided(*id));
        // The first of several, where max_by_key takes the last.
        provided.rev().max_by_key(room)
    }

    pub(super) fn take_from_group(
        &mut self,
        conn: ConnId,
        name: &[u8],
        take: Take<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let found = self.group_names.find(self.group_names.hash(name), |id| *self.groups[id.index()].name == *name);
        let group = found.ok_or(Refusal::NoPool)?;
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
        let starts_in = self.roomiest_pool(&pools);
        if no_wait && to_check.is_none() {
            starts_in.into_iter().for_each(|pool| self.ask(pool, take.filter.as_deref(), step));
            self.refuse_group_take(conn, &pools, step);
            return Ok(());
        }
        if !no_wait && pools.iter().all(|pool| self.queued(*pool) >= self.pool(*pool).settings.queue) {
            self.pool_mut(pools[0]).figures.count(Stat::QueueFull);
            step.tell(conn, What::QueueFull);
            return Ok(());
        }
        let (checked_in, to_check) = to_check.map_or((None, Vec::new()), |(pool, members)| (Some(pool), members));
        self.wait(conn, WaitSource::Group(group, checked_in.or(starts_in)), take, step)?;
        to_check.into_iter().for_each(|member| self.begin_check(member, step));
        Ok(())
    }

    /// The group's pools that can serve a take, now or later; None when it was told that none can.
    fn pools_for(
        &mut self,
        conn: ConnId,
        group: GroupId,
        take: &Take<'_>,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Vec<PoolId>>, Refusal> {
        let members = take.count.unwrap_or(1);
        let mut pools = self.groups[group.index()].pools.clone();
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
            self.pool_mut(first).figures.count(Stat::Limit);
            step.tell(conn, What::Limit);
            return Ok(None);
        }
        Ok(Some(pools))
    }

    /// The pool with the most free members, of several any.
    fn fullest<T>(&self, found: Vec<(PoolId, T)>, step: &mut Step<'_, '_>) -> Option<(PoolId, T)> {
        let free = |(pool, _): &(PoolId, T)| self.pool(*pool).free.len();
        let most = found.iter().map(free).max()?;
        let mut best: Vec<_> = found.into_iter().filter(|entry| free(entry) == most).collect();
        let chosen = if best.len() > 1 { step.random.below(best.len() as u64) as usize } else { 0 };
        Some(best.swap_remove(chosen))
    }

    /// Tells why no pool of the group has a member.
    fn refuse_group_take(&mut self, conn: ConnId, pools: &[PoolId], step: &mut Step<'_, '_>) {
        let reasons: Vec<NoMembers> = pools.iter().map(|pool| self.reason(*pool)).collect();
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
}
