//! The pools: declared, changed and removed.

use super::*;

impl State {
    /// `POOL name init max [key=value ...]`.
    pub(super) fn declare(
        &mut self,
        conn: ConnId,
        name: &[u8],
        changes: &[Change],
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let settings = Settings::default().with(changes).map_err(Refusal::BadSettings)?;
        if let Ok(known) = self.find_pool(name) {
            let known = self.pool(known);
            let is_same = !known.is_leaving && known.settings == settings;
            if !is_same {
                return Err(Refusal::PoolDiffers);
            }
            step.tell(conn, What::Ok);
            return Ok(());
        }
        if self.pools.len() >= MOST_POOLS {
            return Err(Refusal::TooMany);
        }
        self.create_pool(name.into(), settings, step);
        step.tell(conn, What::Ok);
        Ok(())
    }

    pub(super) fn create_pool(&mut self, name: Arc<[u8]>, settings: Settings, step: &mut Step<'_, '_>) -> PoolId {
        let hash = self.names.hash(&name);
        let id = PoolId::from_index(self.pools.insert(Pool::new(name.clone(), hash, settings)));
        let pools = &self.pools;
        self.names.insert(hash, id, |id| pools[id.index()].hash);
        self.order.insert(name, id);
        self.join_group(id, self.pool(id).settings.group.clone().as_ref());
        self.arm_cull(id, step);
        self.touch(id);
        id
    }

    fn arm_cull(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let pool = &mut self.pools[id.index()];
        pool.cull.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        let interval = pool.settings.cull_interval;
        pool.cull = (interval > Span::ZERO).then(|| step.timers.arm(step.now + interval, Timer::Cull(id)));
    }

    /// `RECONFIGURE name key=value ...`.
    pub(super) fn reconfigure(
        &mut self,
        conn: ConnId,
        name: &[u8],
        changes: &[Change],
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let id = self.find_pool(name)?;
        let settings = self.pool(id).settings.with(changes).map_err(Refusal::BadSettings)?;
        step.tell(conn, What::Ok);
        self.change(id, settings, step);
        Ok(())
    }

    /// Gives a pool other settings.
    pub(super) fn change(&mut self, id: PoolId, settings: Settings, step: &mut Step<'_, '_>) {
        let pool = self.pool_mut(id);
        pool.most_slots = pool.most_slots.max(u64::from(settings.max));
        let before = std::mem::replace(&mut pool.settings, settings);
        self.apply_timing(id, &before, step);
        if before.group != self.pool(id).settings.group {
            self.leave_group(id, step);
            if !self.pool(id).is_leaving {
                self.join_group(id, self.pool(id).settings.group.clone().as_ref());
            }
        }
        self.turn_away(id, step);
        self.pool_mut(id).is_to_reconsider = true;
        self.touch(id);
    }

    /// Has new settings count for what is timed by the old ones: culling, lifetimes, checks and holds. What somebody was
    /// asked to answer in time keeps its time.
    fn apply_timing(&mut self, id: PoolId, before: &Settings, step: &mut Step<'_, '_>) {
        let pool = self.pool(id);
        let after = &pool.settings;
        let lives = (before.max_lifetime, before.lifetime_jitter) != (after.max_lifetime, after.lifetime_jitter);
        let checks = before.check_interval != after.check_interval;
        let holds = (before.max_hold, before.warn_hold) != (after.max_hold, after.warn_hold);
        if before.cull_interval != after.cull_interval {
            self.arm_cull(id, step);
        }
        if lives || checks || holds {
            self.background.retain(|chore| !matches!(chore, BackgroundTask::Retime(of, _) if *of == id));
            self.begin(BackgroundTask::Retime(id, None), step);
        }
    }

    /// Arms the timer of a free member's next check anew.
    pub(super) fn arm_check(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let member = &mut self.members[id.index()];
        let interval = self.pools[member.pool.index()].settings.check_interval;
        let is_checked = interval > Span::ZERO && member.owner != MemberOwner::Fixed;
        if let MemberPhase::Free(timer) = &mut member.phase {
            timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
            *timer = is_checked.then(|| step.timers.arm(member.proved + interval, Timer::Phase(id)));
        }
    }

    /// Turns away the newest waiters of a pool whose queue is too long.
    fn turn_away(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let excess = self.queued(id).saturating_sub(self.pool(id).settings.queue) as usize;
        if excess > 0 {
            let lengthy = self.own_waiters(id);
            for waiter in
                lengthy.into_iter().filter(|waiter| !self.waiter(*waiter).no_wait).take(excess).collect::<Vec<_>>()
            {
                self.pool_mut(id).figures.count(Stat::QueueFull);
                self.refuse_wait(waiter, What::QueueFull, step);
            }
        }
    }

    /// `RMPOOL name [GRACEFUL]`.
    pub(super) fn remove_pool(
        &mut self,
        conn: ConnId,
        name: &[u8],
        graceful: bool,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let id = self.find_pool(name)?;
        step.tell(conn, What::Ok);
        self.remove(id, graceful, step);
        Ok(())
    }

    /// Removes a pool, at once or as its members come back.
    pub(super) fn remove(&mut self, id: PoolId, graceful: bool, step: &mut Step<'_, '_>) {
        self.pool_mut(id).is_leaving = true;
        let waiters = self.own_waiters(id);
        waiters
            .into_iter()
            .rev()
            .for_each(|waiter| self.refuse_wait(waiter, What::NoMembers(NoMembers::Removed), step));
        if let Some(group) = self.pool(id).group {
            self.place_wants(group);
            self.end_group_if_over(group, step);
        }
        for start in self.starts_of(id) {
            self.end_start(start, step);
        }
        if graceful {
            // It may have been asked for before.
            if !self.pool(id).is_retiring {
                self.begin(BackgroundTask::Retire(id, None), step);
            }
        } else {
            self.unname(id, step);
            self.begin(BackgroundTask::Remove(id), step);
        }
        self.touch(id);
    }

    /// Takes a pool that is removed at once out of everybody's sight, and its name is free.
    fn unname(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        self.leave_group(id, step);
        let pool = &mut self.pools[id.index()];
        pool.is_removed = true;
        self.names.remove(pool.hash, id);
        self.order.remove(&pool.name);
        for agent in pool.agents.clone() {
            if let ProviderState::Serves(conn) = self.agents[agent.index()].standing {
                self.agents[agent.index()].standing = ProviderState::Dismissed(conn);
                let work = self.work(conn);
                work.agent = None;
                work.dismissed.push(agent);
            }
        }
    }

    /// The starts that are under way in a pool.
    fn starts_of(&self, id: PoolId) -> Vec<StartId> {
        let conns = self.pool(id).agents.iter().filter_map(|agent| self.agents[agent.index()].conn());
        let works = conns.filter_map(|conn| self.clients[conn.index()].work.as_ref());
        let starts = works.flat_map(|work| work.starts.values().copied());
        let is_under_way = |id: &StartId| matches!(self.starts[id.index()].progress, Progress::UnderWay { .. });
        starts.filter(is_under_way).collect()
    }

    /// Ends a pool that is being removed and has nothing left.
    pub(super) fn drop_pool_if_left(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let pool = self.pool(id);
        if !pool.is_leaving || pool.slots() > 0 {
            return;
        }
        for agent in std::mem::take(&mut self.pool_mut(id).agents) {
            match self.agents.remove(agent.index()).standing {
                ProviderState::Serves(conn) => self.work(conn).agent = None,
                ProviderState::Dismissed(conn) => self.work(conn).dismissed.retain(|other| *other != agent),
                ProviderState::Lost => {}
                ProviderState::Grace(_) => unreachable!("a provider in its grace stands in no list"),
            }
        }
        self.drop_background(id, step);
        self.leave_group(id, step);
        let pool = self.pools.remove(id.index());
        self.past.merge(&pool.figures);
        let unclean = pool.unclean_until.map(|(_, timer)| timer);
        pool.cull.into_iter().chain(pool.backoff).chain(unclean).for_each(|timer| step.timers.cancel(timer));
        if !pool.is_removed {
            self.names.remove(pool.hash, id);
            self.order.remove(&pool.name);
        }
        // It may have been touched again; the next pool with its number has to be, too.
        self.unsettled.retain(|other| *other != id);
    }

    pub(super) fn find_pool(&self, name: &[u8]) -> Result<PoolId, Refusal> {
        let found = self.names.find(self.names.hash(name), |id| *self.pool(id).name == *name);
        found.ok_or(Refusal::NoPool)
    }

    /// Returns whether there is room for one more member, start or waiter.
    pub(super) fn has_room(&self) -> bool {
        self.members.len() + self.starts_under_way + self.waiters.len() < self.limits.most
    }
}
