//! Background work on members. A request that names a member first applies the pending work to it, so slices show only
//! in lists and counters.

use super::lifecycle::Then;
use super::waiters::Place;
use super::*;

impl State {
    /// Runs a task as far as the budget lasts, and queues the rest.
    pub(super) fn begin(&mut self, task: BackgroundTask, step: &mut Step<'_, '_>) {
        if let Some(rest) = self.go_on(task, step) {
            self.background.push(rest);
        }
    }

    /// Continues each task in turn, as far as the budget lasts. Those whose turn does not come are the first next time.
    pub(super) fn resume_background(&mut self, step: &mut Step<'_, '_>) {
        for _ in 0..self.background.len() {
            let Some(task) = self.background.pop() else { return };
            self.begin(task, step);
            if step.timers.budget() < background::COST {
                return;
            }
        }
    }

    /// Runs a task as far as the budget lasts, and returns the rest.
    fn go_on(&mut self, task: BackgroundTask, step: &mut Step<'_, '_>) -> Option<BackgroundTask> {
        match task {
            BackgroundTask::Holding(id) => self.drain_holding(id, None, step).then_some(task),
            BackgroundTask::Agent(id) => self.drain_agent(id, step).then_some(task),
            BackgroundTask::Remove(id) => self.drain_pool(id, step).then_some(task),
            BackgroundTask::Retire(id, after) => {
                let rest = self.retire_after(id, after.as_ref(), step);
                rest.map(|after| BackgroundTask::Retire(id, Some(after)))
            }
            BackgroundTask::Retime(id, after) => {
                let rest = self.retime_after(id, after.as_ref(), step);
                rest.map(|after| BackgroundTask::Retime(id, Some(after)))
            }
            BackgroundTask::Offer(id, after) => self.offer_free(id, after, step),
            BackgroundTask::Group(id) => self.settle_group(id, step).then_some(task),
            BackgroundTask::RemoveGroup(id, graceful, before) => {
                let rest = self.remove_pools(id, graceful, before, step);
                rest.map(|before| BackgroundTask::RemoveGroup(id, graceful, before))
            }
            BackgroundTask::EndGroup(id) => self.drain_group(id, step).then_some(task),
            BackgroundTask::Shorten(id, excess) => {
                let rest = self.refuse_newest(id, excess, step);
                (rest > 0).then_some(BackgroundTask::Shorten(id, rest))
            }
            BackgroundTask::Launch => self.launch_cramped(step).then_some(task),
            BackgroundTask::Settle(id) => {
                // Fixed members in excess of the maximum are not stopped, and so are free for waiters.
                self.pools.reconsider(id);
                // It is settled now, while the other tasks have left some of the budget.
                self.settle_pool(id, step);
                None
            }
        }
    }

    /// Ends or suspends the members of a lost provider, or passes them to its new connection. Returns whether there are
    /// more.
    fn drain_agent(&mut self, id: AgentId, step: &mut Step<'_, '_>) -> bool {
        while let Some(member) = self.members.first_of_agent(id) {
            let Agent { state, to_suspend, .. } = self.agents.get(id);
            let (is_lost, is_served) =
                (matches!(state, ProviderState::Lost), matches!(state, ProviderState::Serves(_)));
            if !is_lost && *to_suspend == 0 {
                break;
            }
            let left = to_suspend.saturating_sub(1);
            if !step.timers.spend(background::COST) {
                return true;
            }
            if !is_lost {
                self.members.move_to_last_of_agent(member);
            }
            self.agents.get_mut(id).to_suspend = left;
            match is_served {
                true => self.resume_member(member, step),
                false => _ = self.catch_up(member, step),
            }
        }
        self.agents.end_pending(id);
        let pool = self.agents.get(id).pool;
        self.drop_owner_if_over(MemberOwner::Agent(id), step);
        self.pools.reconsider(pool);
        false
    }

    /// Stops the members of a pool that was removed at once. Returns whether there are more.
    fn drain_pool(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        if self.end_starts(id, step) || self.refuse_waiters(id, step) {
            return true;
        }
        while let Some(member) = self.first_member(id) {
            if !step.timers.spend(background::COST) {
                return true;
            }
            self.catch_up(member, step);
        }
        self.pools.touch(id);
        self.drop_agents(id, step)
    }

    /// Marks the starts of a pool that is being removed as late. Returns whether there are more.
    fn end_starts(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        while let Some(start) = self.starts.first_in_pool(id) {
            if !step.timers.spend(background::COST) {
                return true;
            }
            let ended = self.starts.end(start, step);
            ended.into_iter().for_each(|(_, agent)| self.note_room(agent));
            self.pools.touch(id);
        }
        false
    }

    /// Refuses the waiters of a group all pools of which are being removed. Returns whether there are more.
    fn drain_group(&mut self, id: GroupId, step: &mut Step<'_, '_>) -> bool {
        while !self.pools.is_lasting(id)
            && let Some(waiter) = self.waiters.first(Place::Group(id))
        {
            if !step.timers.spend(background::COST) {
                return true;
            }
            self.refuse_wait(waiter, What::NoMembers(NoMembers::Removed), step);
        }
        if self.pools.group(id).pools.is_empty() {
            if self.background.of_group(id).queued > 0 {
                self.background.remove(|task| match task {
                    BackgroundTask::Group(of) | BackgroundTask::RemoveGroup(of, ..) => *of == id,
                    _ => false,
                });
            }
            self.pools.remove_group(id);
        }
        false
    }

    /// Refuses the `excess` newest waiters of a pool, as long as its queue is too long. Returns the number that is
    /// left.
    fn refuse_newest(&mut self, id: PoolId, excess: u32, step: &mut Step<'_, '_>) -> u32 {
        let too_many = self.queued(id).saturating_sub(self.pool(id).settings.queue);
        for left in (1..=excess.min(too_many)).rev() {
            if !step.timers.spend(background::COST) {
                return left;
            }
            let Some(waiter) = self.waiters.newest(Place::Pool(id)) else { break };
            self.pools.count(id, Stat::QueueFull);
            self.refuse_wait(waiter, What::QueueFull, step);
        }
        0
    }

    /// Refuses the waiters of a pool that is being removed. Returns whether there are more.
    fn refuse_waiters(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        while let Some(waiter) = self.waiters.first(Place::Pool(id)) {
            if !step.timers.spend(background::COST) {
                return true;
            }
            self.refuse_wait(waiter, What::NoMembers(NoMembers::Removed), step);
        }
        false
    }

    fn first_member(&self, id: PoolId) -> Option<MemberId> {
        self.members.in_pool(id).all().next()
    }

    /// Returns the members of a pool with a name behind `after`, as many as the budget allows, and the name of the last
    /// one if there are more.
    fn slice_after(
        &mut self,
        id: PoolId,
        after: Option<&Arc<[u8]>>,
        step: &mut Step<'_, '_>,
    ) -> (Vec<MemberId>, Option<Arc<[u8]>>) {
        let mut behind = self.members.named_after(id, after.map(|name| &**name));
        let slice: Vec<(&Arc<[u8]>, MemberId)> =
            behind.by_ref().take((step.timers.budget() / background::COST) as usize).collect();
        let last = slice.last().map(|(name, _)| (*name).clone()).or(after.cloned());
        let rest = behind.next().map(|(name, _)| last.unwrap_or_else(|| name[..0].into()));
        let slice: Vec<MemberId> = slice.into_iter().map(|(_, member)| member).collect();
        // Lossless: it is at most the budget.
        step.timers.spend(slice.len() as u32 * background::COST);
        (slice, rest)
    }

    /// Stops members that are not in use; returns the name of the last one if there are more.
    fn retire_after(&mut self, id: PoolId, after: Option<&Arc<[u8]>>, step: &mut Step<'_, '_>) -> Option<Arc<[u8]>> {
        if !self.pool(id).is_leaving {
            return None;
        }
        if self.end_starts(id, step) || self.refuse_waiters(id, step) {
            return after.cloned().or_else(|| Some(Arc::default()));
        }
        let (slice, rest) = self.slice_after(id, after, step);
        for member in slice {
            if self.catch_up(member, step) && !matches!(self.phase_of(member), PhaseKind::InUse | PhaseKind::Stopping) {
                self.keep_unknown(member, step);
                self.stop_member(member, Stat::Reconfigured, Then::Nothing, step);
            }
        }
        self.pools.touch(id);
        rest
    }

    /// Arms the timers of members anew; returns the name of the last one if there are more.
    fn retime_after(&mut self, id: PoolId, after: Option<&Arc<[u8]>>, step: &mut Step<'_, '_>) -> Option<Arc<[u8]>> {
        let (slice, rest) = self.slice_after(id, after, step);
        let settings = &self.pools.get(id).settings;
        for member in slice {
            self.members.arm_life(member, settings, step);
            match self.members.get(member).phase {
                MemberPhase::InUse(lease) => self.leases.arm(lease, settings, step),
                MemberPhase::Free(_) => self.members.arm_check(member, settings, step),
                _ => {}
            }
        }
        rest
    }

    /// Applies the pending background work to a member. Returns whether the member remains. Called before any use of a
    /// member, by its name or by its lease.
    #[inline]
    pub(super) fn catch_up(&mut self, id: MemberId, step: &mut Step<'_, '_>) -> bool {
        let Member { pool, owner, phase, .. } = self.member(id);
        if self.pool(*pool).is_removed {
            self.remove_member(id, step);
            return false;
        }
        let MemberOwner::Agent(agent) = *owner else { return true };
        match (&self.agents.get(agent).state, phase.kind()) {
            (ProviderState::Lost, kind) => {
                let stat = (kind != PhaseKind::Stopping).then_some(Stat::ProviderLost);
                self.end_anywhere(id, Lost::ProviderLost, String::new(), stat, step);
                false
            }
            (ProviderState::Grace(_), PhaseKind::Stopping) => {
                self.end_anywhere(id, Lost::ProviderLost, String::new(), None, step);
                false
            }
            (ProviderState::Grace(_), PhaseKind::Free | PhaseKind::Checking) => {
                self.leave_state(id, step);
                true
            }
            _ => true,
        }
    }

    /// Stops a member of a pool that was removed, and removes it at once. Its provider may still report it as stopped.
    fn remove_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        if let MemberPhase::InUse(lease) = self.member(id).phase {
            self.lose_lease(lease, Lost::Removed, String::new(), b"", step);
        }
        if self.phase_of(id) != PhaseKind::Stopping {
            let (pool, was_used) = (self.member(id).pool, self.members.was_used(id));
            self.count_end(pool, Stat::Reconfigured, was_used, Then::Nothing);
            if let Some(conn) = self.conn_of(id) {
                let (pool, member) = self.names_of(id);
                step.tell(conn, What::Stop { pool, member });
            }
        }
        self.remember_stop(id);
        self.drop_member(id, step);
    }

    /// Returns the member of this name, after the pending background work on it.
    pub(super) fn find_member(&mut self, named: Named<'_>, step: &mut Step<'_, '_>) -> Result<MemberId, Refusal> {
        let pool = self.pools.find(named.pool)?;
        self.known_member(pool, named.member, step).ok_or(Refusal::NoSuchMember)
    }

    /// Returns the member of this name in a pool, after the pending background work on it.
    pub(super) fn known_member(&mut self, pool: PoolId, name: &[u8], step: &mut Step<'_, '_>) -> Option<MemberId> {
        let id = self.members.find_named(pool, name)?;
        self.catch_up(id, step).then_some(id)
    }
}
