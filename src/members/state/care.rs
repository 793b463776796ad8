//! Checks and cleaning: what providers and cleaners are asked to do for members that nobody holds.

use super::members::Cause;
use super::*;

impl State {
    /// Asks the provider of a free member whether it lives.
    pub(super) fn begin_check(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let conn = self.conn_of(id).expect("fixed members are not checked, and orphans are not free");
        let pool_id = self.member(id).pool;
        let pool = &mut self.pools[pool_id.index()];
        // It keeps its place among the idle.
        pool.free.remove(&mut self.links_free, id);
        pool.counts[PhaseKind::Free as usize] -= 1;
        pool.counts[PhaseKind::Checking as usize] += 1;
        let timer = step.timers.arm(step.now + pool.settings.check_timeout, Timer::Phase(id));
        let member = &mut self.members[id.index()];
        if let MemberPhase::Free(Some(timer)) = std::mem::replace(&mut member.phase, MemberPhase::Checking(timer)) {
            step.timers.cancel(timer);
        }
        let (pool, member) = (pool.name.clone(), member.name.clone());
        step.tell(conn, What::Check { pool, member });
        self.touch(pool_id);
    }

    /// `ALIVE member`.
    pub(super) fn alive(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let id = self.own_member(conn, name)?;
        step.tell(conn, What::Ok);
        if self.member(id).phase.kind() == PhaseKind::Checking {
            let next = self.place_among_free(id);
            self.end_check(id, next, step);
        }
        Ok(())
    }

    /// A checked member lives: it is free again, where it was.
    fn end_check(&mut self, id: MemberId, next: Option<MemberId>, step: &mut Step<'_, '_>) {
        let is_ready = {
            let pool = &self.pools[self.member(id).pool.index()];
            !self.holds.contains_key(&id) && !pool.is_leaving && !pool.is_above_max()
        };
        self.members[id.index()].proved = step.now;
        if !is_ready || self.end_of_life(id).is_some_and(|end| end <= step.now) {
            self.leave_state(id, step);
            return self.release_member(id, Cause::Other, step);
        }
        let member = &mut self.members[id.index()];
        let pool = &mut self.pools[member.pool.index()];
        pool.counts[PhaseKind::Checking as usize] -= 1;
        pool.counts[PhaseKind::Orphaned as usize] += 1;
        if let MemberPhase::Checking(timer) = std::mem::replace(&mut member.phase, MemberPhase::Orphaned) {
            step.timers.cancel(timer);
        }
        self.push_free(id, next, step);
        self.offer_to_waiters(id, Cause::Other, step);
    }

    /// The free member before which one that is checked stands among the idle; None when it is the last. The way to the
    /// nearest free one is searched in both directions at once, so that many checks together cost little each.
    fn place_among_free(&self, id: MemberId) -> Option<MemberId> {
        let is_free = |id: MemberId| self.member(id).phase.kind() == PhaseKind::Free;
        let (mut before, mut after) = (id, id);
        loop {
            let next = self.links_phase.after(after)?;
            if is_free(next) {
                return Some(next);
            }
            let Some(prev) = self.links_phase.before(before) else {
                return self.pool(self.member(id).pool).free.front();
            };
            if is_free(prev) {
                return self.links_free.after(prev);
            }
            (before, after) = (prev, next);
        }
    }

    /// A member is returned in good state: it is cleaned if its pool cleans, else free.
    pub(super) fn come_back(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let pool = self.member(id).pool;
        if self.pool(pool).settings.clean_timeout == Span::ZERO {
            return self.release_member(id, Cause::Other, step);
        }
        let Some(id) = self.check_usable(id, step) else { return };
        self.members[id.index()].since = step.now;
        self.enter_state(id, MemberPhase::Unclean);
        self.touch(pool);
    }

    /// Asks for as many members to be cleaned as may be cleaned at once, oldest first.
    pub(super) fn clean_next(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        if self.pool(id).is_leaving {
            return;
        }
        if self.pool(id).settings.clean_timeout == Span::ZERO {
            return self.free_unclean(id, step);
        }
        loop {
            let pool = self.pool(id);
            let is_full = pool.cleaning.len() >= pool.most_cleaned();
            let Some(member) = pool.unclean.front().filter(|_| !is_full) else { return };
            let Some(agent) = self.cleaner_for(id, member) else { return };
            self.leave_state(member, step);
            let timer = step.timers.arm(step.now + self.pool(id).settings.clean_timeout, Timer::Phase(member));
            self.members[member.index()].proved = step.now;
            self.enter_state(member, MemberPhase::Cleaning { agent, timer });
            let (pool, name) = (self.pool(id).name.clone(), self.member(member).name.clone());
            if let Some(conn) = self.agents[agent.index()].conn() {
                step.tell(conn, What::Clean { pool, member: name });
            }
        }
    }

    /// Has members come free that wait to be cleaned in a pool that does not clean any more.
    fn free_unclean(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        while let Some(member) = self.pool(id).unclean.front() {
            if !self.spend() {
                return self.fall_behind(id);
            }
            self.leave_state(member, step);
            self.release_member(member, Cause::Other, step);
        }
    }

    /// Who cleans a member: the cleaner with the least to do, else its provider, else another one.
    fn cleaner_for(&self, pool: PoolId, member: MemberId) -> Option<AgentId> {
        let agents = || self.pool(pool).agents.iter().copied();
        let load = |agent: &AgentId| self.agents[agent.index()].cleaning;
        let cleaner = agents().filter(|agent| self.agents[agent.index()].cleans).min_by_key(load);
        let own = match self.member(member).owner {
            MemberOwner::Agent(agent) => Some(agent).filter(|agent| self.agents[agent.index()].conn().is_some()),
            MemberOwner::Fixed => None,
        };
        cleaner.or(own).or_else(|| agents().min_by_key(load))
    }

    /// `CLEANED member`.
    pub(super) fn cleaned(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let (agent, pool) = self.agent_of(conn).ok_or(Refusal::NotProvider)?;
        let id = self.known_member(pool, name, step).ok_or(Refusal::NoSuchMember)?;
        step.tell(conn, What::Ok);
        let member = self.member(id);
        if matches!(member.phase, MemberPhase::Cleaning { agent: asked, .. } if asked == agent) {
            let took = step.now.since(member.proved);
            self.pool_mut(pool).times.clean.record(took);
            self.leave_state(id, step);
            self.release_member(id, Cause::Other, step);
        }
        Ok(())
    }

    /// A connection that was to clean is gone: others are asked, the oldest members first.
    pub(super) fn lose_cleaner(&mut self, pool: PoolId, agent: AgentId, step: &mut Step<'_, '_>) {
        let is_its = |id: &MemberId| matches!(self.member(*id).phase, MemberPhase::Cleaning { agent: asked, .. } if asked == agent);
        let again: Vec<MemberId> = self.pool(pool).cleaning.iter(&self.links_phase).filter(is_its).collect();
        for id in again.into_iter().rev() {
            self.leave_state(id, step);
            self.enter_state(id, MemberPhase::Unclean);
            let since = self.member(id).since;
            let unclean = &mut self.pools[pool.index()].unclean;
            let next = unclean.iter(&self.links_phase).find(|other| self.members[other.index()].since >= since);
            if let Some(next) = next.filter(|next| *next != id) {
                unclean.remove(&mut self.links_phase, id);
                unclean.insert_before(&mut self.links_phase, next, id);
            }
        }
    }

    /// Has the time run of the member that waits to be cleaned for longest, while nobody can be asked: from its return.
    pub(super) fn time_unclean(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let pool = &mut self.pools[id.index()];
        // Where much is to be done in a pool, it goes on with that a moment later, and is settled again then.
        let first = pool.unclean.front().filter(|_| pool.agents.is_empty() && !pool.is_removed && !pool.is_behind);
        let until = first.map(|first| self.members[first.index()].since + pool.settings.clean_timeout);
        if until == pool.unclean_until.as_ref().map(|(until, _)| *until) {
            return;
        }
        if let Some((_, timer)) = pool.unclean_until.take() {
            step.timers.cancel(timer);
        }
        pool.unclean_until = until.map(|until| (until, step.timers.arm(until, Timer::Unclean(id))));
    }

    /// Members have waited to be cleaned for as long as they may, and nobody can be asked.
    pub(super) fn unclean_for_too_long(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        if let Some((_, timer)) = self.pool_mut(id).unclean_until.take() {
            timer.fired();
        }
        let span = self.pool(id).settings.clean_timeout;
        while let Some(member) = self.pool(id).unclean.front() {
            if self.member(member).since + span > step.now {
                break;
            }
            if !self.spend() {
                return self.fall_behind(id);
            }
            if self.catch_up(member, step) {
                self.leave_state(member, step);
                self.fail_member(member, Stat::Failed, step);
            }
        }
        self.touch(id);
    }
}
