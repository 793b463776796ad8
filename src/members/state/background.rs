//! What is too much for one step: it goes on bit by bit, and others are served in between. What a step names that a chore has
//! not come to yet is caught up with first, so that nobody sees a difference but in lists and figures.

use super::members::Then;
use super::*;
use std::ops::Bound;

/// How many members are stopped, lost, given back or timed anew at a time: about a millisecond's work, two where each has a holder.
pub(super) const SLICE: u32 = 2_048;
/// After so long, another tick has begun: no tick serves longer. The budget of a tick is for all chores that begin in it.
const LONGEST_TICK: Span = Span::from_millis(10);
/// How soon a chore goes on.
const RESUME_DELAY: Span = Span::from_millis(1);

/// Work that goes on.
pub(super) enum BackgroundTask {
    /// What a connection held that is gone comes back.
    Holding(HoldingId),
    /// The members of a provider that is gone are gone, or out of use for its grace.
    Agent(AgentId),
    /// The members of a pool that was removed at once are stopped.
    Remove(PoolId),
    /// The members that nobody holds of a pool that is being removed are stopped; those after this name.
    Retire(PoolId, Option<Arc<[u8]>>),
    /// The members of a pool have other times; those after this name.
    Retime(PoolId, Option<Arc<[u8]>>),
    /// A pool has too many members, or some that wait to be cleaned and need not.
    Settle(PoolId),
}

impl State {
    /// Does as much of a chore as there is budget for, and the rest later.
    pub(super) fn begin(&mut self, chore: BackgroundTask, step: &mut Step<'_, '_>) {
        if let Some(rest) = self.go_on(chore, step) {
            self.background.push_back(rest);
        }
    }

    /// Fills the budget if another tick has begun.
    pub(super) fn refill(&mut self, now: Time) {
        if now.since(self.budget_since) >= LONGEST_TICK {
            (self.budget, self.budget_since) = (self.limits.slice, now);
        }
    }

    /// Returns whether there is budget for one more member, which is spent.
    pub(super) fn spend(&mut self) -> bool {
        let has_some = self.budget > 0;
        self.budget -= u32::from(has_some);
        has_some
    }

    /// Has chores go on a moment later, if there are any.
    pub(super) fn arm_background(&mut self, step: &mut Step<'_, '_>) {
        if self.background.is_empty() {
            self.background_timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        } else if self.background_timer.is_none() {
            self.background_timer = Some(step.timers.arm(step.now + RESUME_DELAY, Timer::Background));
        }
    }

    /// The moment has come: each chore goes on, as far as there is budget.
    pub(super) fn resume_background(&mut self, step: &mut Step<'_, '_>) {
        self.background_timer.take().into_iter().for_each(TimerId::fired);
        (self.budget, self.budget_since) = (self.limits.slice, step.now);
        for _ in 0..self.background.len() {
            let Some(chore) = self.background.pop_front() else { return };
            self.begin(chore, step);
        }
    }

    /// Has what is left to do in a pool go on later.
    pub(super) fn fall_behind(&mut self, id: PoolId) {
        if !std::mem::replace(&mut self.pool_mut(id).is_behind, true) {
            self.background.push_back(BackgroundTask::Settle(id));
        }
    }

    /// Does as much of a chore as there is budget for; returns the rest.
    fn go_on(&mut self, chore: BackgroundTask, step: &mut Step<'_, '_>) -> Option<BackgroundTask> {
        match chore {
            BackgroundTask::Holding(id) => self.drain_holding(id, None, step).then_some(BackgroundTask::Holding(id)),
            BackgroundTask::Agent(id) => self.drain_agent(id, step).then_some(BackgroundTask::Agent(id)),
            BackgroundTask::Remove(id) => self.drain_pool(id, step).then_some(BackgroundTask::Remove(id)),
            BackgroundTask::Retire(id, after) => {
                let rest = self.retire_after(id, after.as_ref(), step);
                self.pool_mut(id).is_retiring = rest.is_some();
                rest.map(|after| BackgroundTask::Retire(id, Some(after)))
            }
            BackgroundTask::Retime(id, after) => {
                let rest = self.retime_after(id, after.as_ref(), step);
                self.pool_mut(id).is_retiming = rest.is_some();
                rest.map(|after| BackgroundTask::Retime(id, Some(after)))
            }
            BackgroundTask::Settle(id) => {
                let pool = self.pool_mut(id);
                pool.is_behind = false;
                // What was kept back as too many may be fixed members, which are not stopped and so are free for others.
                pool.is_to_reconsider = true;
                self.touch(id);
                None
            }
        }
    }

    /// Forgets the chores of a pool that is gone, with the providers that these were for.
    pub(super) fn drop_background(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        let chores = std::mem::take(&mut self.background);
        for chore in chores {
            let (of, agent) = match &chore {
                BackgroundTask::Holding(_) => (None, None),
                BackgroundTask::Agent(id) => (Some(self.agents[id.index()].pool), Some(*id)),
                BackgroundTask::Remove(id)
                | BackgroundTask::Retire(id, _)
                | BackgroundTask::Retime(id, _)
                | BackgroundTask::Settle(id) => (Some(*id), None),
            };
            if of != Some(pool) {
                self.background.push_back(chore);
            } else if let Some(id) = agent {
                self.remove_agent(id, step);
            }
        }
    }

    /// Gives back what a connection held that is gone: `conn`, if it is only just. Returns whether there is more.
    pub(super) fn drain_holding(&mut self, id: HoldingId, conn: Option<ConnId>, step: &mut Step<'_, '_>) -> bool {
        while let Some(lease) = self.holdings[id.index()].leases.front() {
            if !self.spend() {
                return true;
            }
            self.let_lease_go(lease, conn, step);
        }
        self.holdings.remove(id.index());
        false
    }

    /// Returns whether there is more.
    fn drain_agent(&mut self, id: AgentId, step: &mut Step<'_, '_>) -> bool {
        while let Some(member) = self.agents[id.index()].members.front() {
            let agent = &self.agents[id.index()];
            let is_grace = matches!(agent.standing, ProviderState::Grace(_));
            if is_grace && agent.to_orphan == 0 {
                break;
            }
            if !self.spend() {
                return true;
            }
            let agent = &mut self.agents[id.index()];
            if is_grace {
                // Those that were looked at stand last.
                agent.members.remove(&mut self.links_owner, member);
                agent.members.push_back(&mut self.links_owner, member);
            }
            agent.to_orphan = agent.to_orphan.saturating_sub(1);
            self.catch_up(member, step);
        }
        let agent = &mut self.agents[id.index()];
        (agent.is_pending, agent.to_orphan) = (false, 0);
        let pool = agent.pool;
        self.drop_agent_if_over(id, step);
        let entry = self.pool_mut(pool);
        entry.orphaned_free -= 1;
        entry.is_to_reconsider = true;
        self.pool(pool).group.into_iter().for_each(|group| self.place_wants(group));
        self.touch(pool);
        false
    }

    /// Returns whether there is more.
    fn drain_pool(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        while let Some(member) = self.pool(id).members.values().next().copied() {
            if !self.spend() {
                return true;
            }
            self.catch_up(member, step);
        }
        self.touch(id);
        false
    }

    /// The members of a pool behind a name, as many as there is budget for, and the last one's name if there are more.
    fn slice_after(&mut self, id: PoolId, after: Option<&Arc<[u8]>>) -> (Vec<MemberId>, Option<Arc<[u8]>>) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let budget = self.budget as usize;
        let mut behind = self.pool(id).members.range::<Arc<[u8]>, _>((from, Bound::Unbounded));
        let slice: Vec<(&Arc<[u8]>, &MemberId)> = behind.by_ref().take(budget).collect();
        let last = slice.last().map(|(name, _)| (*name).clone()).or(after.cloned());
        let rest = behind.next().map(|(name, _)| last.unwrap_or_else(|| name[..0].into()));
        let slice: Vec<MemberId> = slice.into_iter().map(|(_, member)| *member).collect();
        // Lossless: it is no longer than the budget.
        self.budget -= slice.len() as u32;
        (slice, rest)
    }

    /// Stops members that nobody holds; returns the name of the last one if there are more.
    fn retire_after(&mut self, id: PoolId, after: Option<&Arc<[u8]>>, step: &mut Step<'_, '_>) -> Option<Arc<[u8]>> {
        if !self.pool(id).is_leaving {
            return None;
        }
        let (slice, rest) = self.slice_after(id, after);
        for member in slice {
            if self.catch_up(member, step)
                && !matches!(self.member(member).phase.kind(), PhaseKind::InUse | PhaseKind::Stopping)
            {
                self.stop_member(member, Stat::Reconfigured, Then::Nothing, step);
            }
        }
        self.touch(id);
        rest
    }

    /// Arms the timers of members anew; returns the name of the last one if there are more.
    fn retime_after(&mut self, id: PoolId, after: Option<&Arc<[u8]>>, step: &mut Step<'_, '_>) -> Option<Arc<[u8]>> {
        let (slice, rest) = self.slice_after(id, after);
        for member in slice {
            self.arm_life(member, step);
            match self.member(member).phase {
                MemberPhase::InUse(lease) => self.arm_lease(lease, step),
                MemberPhase::Free(_) => self.arm_check(member, step),
                _ => {}
            }
        }
        rest
    }

    /// Does to a member at once what a chore is about to do to it. Returns whether it is still there. To be called before anything
    /// that names a member, by itself or by its lease.
    pub(super) fn catch_up(&mut self, id: MemberId, step: &mut Step<'_, '_>) -> bool {
        let member = self.member(id);
        if self.pool(member.pool).is_removed {
            self.remove_member(id, step);
            return false;
        }
        let MemberOwner::Agent(agent) = member.owner else { return true };
        match (&self.agents[agent.index()].standing, member.phase.kind()) {
            (ProviderState::Lost, kind) => {
                let stat = (kind != PhaseKind::Stopping).then_some(Stat::ProviderLost);
                self.end_anywhere(id, Lost::ProviderLost, stat, step);
                false
            }
            (ProviderState::Grace(_), PhaseKind::Stopping) => {
                self.end_anywhere(id, Lost::ProviderLost, None, step);
                false
            }
            (ProviderState::Grace(_), PhaseKind::Free | PhaseKind::Checking) => {
                self.leave_state(id, step);
                true
            }
            _ => true,
        }
    }

    /// Stops a member of a pool that was removed. Nobody waits until it is, but its provider may still say so.
    fn remove_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        if let MemberPhase::InUse(lease) = self.member(id).phase {
            self.lose_lease(lease, Lost::Removed, step);
        }
        let Member { pool, .. } = self.members[id.index()];
        if self.member(id).phase.kind() != PhaseKind::Stopping {
            self.count_end(pool, Stat::Reconfigured, Then::Nothing);
            if let Some(conn) = self.conn_of(id) {
                let (name, pool) = (self.member(id).name.clone(), self.pool(pool).name.clone());
                step.tell(conn, What::Stop { pool, member: name });
            }
        }
        self.remember_stop(id);
        self.drop_member(id, step);
    }

    /// The connection that provides a member, if there is one.
    pub(super) fn conn_of(&self, id: MemberId) -> Option<ConnId> {
        match self.member(id).owner {
            MemberOwner::Fixed => None,
            MemberOwner::Agent(agent) => self.agents[agent.index()].conn(),
        }
    }

    /// Whether a member's provider is lost, and it is kept out.
    pub(super) fn is_orphan(&self, id: MemberId) -> bool {
        self.member(id).owner != MemberOwner::Fixed && self.conn_of(id).is_none()
    }

    /// Takes a provider that is gone out of its table, if it has no members left and nothing is to be done with them.
    pub(super) fn drop_agent_if_over(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        let agent = &self.agents[id.index()];
        let is_gone = matches!(agent.standing, ProviderState::Grace(_) | ProviderState::Lost);
        let is_listed = is_gone && self.pool(agent.pool).agents.contains(&id);
        if is_gone && agent.members.is_empty() && !agent.is_pending && !is_listed {
            self.remove_agent(id, step);
        }
    }

    pub(super) fn remove_agent(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        if let ProviderState::Grace(timer) = self.agents.remove(id.index()).standing {
            step.timers.cancel(timer);
        }
    }

    /// The member of this name, if no chore is about to end it.
    pub(super) fn find_member(&mut self, named: Named<'_>, step: &mut Step<'_, '_>) -> Result<MemberId, Refusal> {
        let pool = self.find_pool(named.pool)?;
        self.known_member(pool, named.member, step).ok_or(Refusal::NoSuchMember)
    }

    /// The member of this name in a pool, if there is one and no chore is about to end it.
    pub(super) fn known_member(&mut self, pool: PoolId, name: &[u8], step: &mut Step<'_, '_>) -> Option<MemberId> {
        let id = self.pool(pool).members.get(name).copied()?;
        self.catch_up(id, step).then_some(id)
    }
}
