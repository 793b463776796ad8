//! The queues and counts of the phases.

use super::{AgentId, GroupId, MemberId, MemberTable, Phase, PoolId, PoolMembers, Reason, Step, Timer};
use poolcounter_core::{Id as _, Metered as _, Span, TimerId};
use poolcounter_protocol::members::pool_settings::Settings;
use std::cmp::Reverse;

impl MemberTable {
    /// Returns the free members of a pool, longest idle first.
    pub fn free(&self, pool: PoolId) -> impl Iterator<Item = MemberId> {
        self.in_pool(pool).free.iter(&self.free_links)
    }

    /// Returns the free members of a pool that providers have brought, longest idle first.
    pub fn free_provided(&self, pool: PoolId) -> impl Iterator<Item = MemberId> {
        self.free(pool).take_while(|id| self.get(*id).owner.is_some())
    }

    /// Returns the free members of a pool, longest idle last.
    pub fn free_back(&self, pool: PoolId) -> impl Iterator<Item = MemberId> {
        self.in_pool(pool).free.iter_back(&self.free_links)
    }

    /// Returns the members of a pool: first the members in queues, in the order of the queues.
    pub fn queued_first(&self, pool: PoolId) -> impl Iterator<Item = MemberId> {
        let of_pool = self.in_pool(pool);
        let queues = [&of_pool.idle, &of_pool.unclean, &of_pool.cleaning].into_iter();
        let queued = queues.flat_map(|queue| queue.iter(&self.phase_links));
        queued.chain(of_pool.all().filter(|id| !self.phase_links.is_linked(*id)))
    }

    /// Removes a member from the queues of its phase, and returns the timer of that. It is in no queue until it
    /// enters a phase.
    pub fn leave_state(&mut self, id: MemberId) -> Option<TimerId> {
        let member = &mut self.members[id.index()];
        let (phase, timer) = (std::mem::take(&mut member.phase), member.timer.take());
        let of_pool = self.by_pool.get_mut(member.pool);
        of_pool.move_count(phase, Phase::Orphaned);
        match phase {
            Phase::Free | Phase::Checking => {
                if phase == Phase::Free {
                    of_pool.free.remove(&mut self.free_links, id);
                    self.attributes.set_free(id, false);
                }
                of_pool.idle.remove(&mut self.phase_links, id);
                self.attributes.leave_idle(id);
            }
            Phase::Unclean => of_pool.unclean.remove(&mut self.phase_links, id),
            Phase::Cleaning => {
                of_pool.late -= u32::from(timer.is_none());
                of_pool.cleaning.remove(&mut self.phase_links, id);
            }
            _ => {}
        }
        let pool = member.pool;
        if Phase::REASONED.contains(&phase) {
            self.take_beside(id, |beside| beside.reason.take());
        }
        self.note_free(pool);
        timer
    }

    /// Sets the group whose takes and waiters get the members of a pool.
    pub fn set_group(&mut self, pool: PoolId, group: Option<GroupId>) {
        let of_pool = self.by_pool.get_mut(pool);
        let (before, free) = (std::mem::replace(&mut of_pool.group, group), std::mem::take(&mut of_pool.free_in_group));
        before.into_iter().for_each(|group| _ = self.by_group.get_mut(group).remove(&(free, Reverse(pool))));
        self.note_free(pool);
    }

    /// Puts a pool into its place in the order of its group, after the number of its free members has changed.
    fn note_free(&mut self, pool: PoolId) {
        let of_pool = self.by_pool.get_mut(pool);
        let Some(group) = of_pool.group else { return };
        let (order, free) = (self.by_group.get_mut(group), of_pool.count(Phase::Free));
        order.remove(&(std::mem::replace(&mut of_pool.free_in_group, free), Reverse(pool)));
        order.extend((free > 0).then_some((free, Reverse(pool))));
    }

    /// Returns the pools of a group that have free members, the one with most first.
    pub fn pools_with_free(&self, group: GroupId) -> impl Iterator<Item = PoolId> {
        self.by_group.get(group).iter().rev().map(|(_, Reverse(pool))| *pool)
    }

    /// Puts a member that is in no queue into a phase with its timer, at the end of its queues.
    pub fn enter_state(&mut self, id: MemberId, phase: Phase, timer: Option<TimerId>) {
        let member = &mut self.members[id.index()];
        let (pool, of_pool) = (member.pool, self.by_pool.get_mut(member.pool));
        of_pool.move_count(Phase::Orphaned, phase);
        match phase {
            Phase::Free | Phase::Checking => {
                if phase == Phase::Free {
                    of_pool.free.push_back(&mut self.free_links, id);
                    self.attributes.set_free(id, true);
                }
                of_pool.idle.push_back(&mut self.phase_links, id);
                self.attributes.enter_idle(id);
            }
            Phase::Unclean => of_pool.unclean.push_back(&mut self.phase_links, id),
            Phase::Cleaning => {
                of_pool.late += u32::from(timer.is_none());
                of_pool.cleaning.push_back(&mut self.phase_links, id);
            }
            _ => {}
        }
        (member.phase, member.timer) = (phase, timer);
        self.note_free(pool);
        self.mark(id);
    }

    /// Puts a member that is in no queue into a phase in which it is kept out for `span`, or without an end.
    pub fn keep_out(&mut self, id: MemberId, phase: Phase, span: Option<Span>, why: Reason, step: &mut Step<'_, '_>) {
        let timer = span.map(|span| step.timers.arm(step.now + span, Timer::Phase(id)));
        self.enter_state(id, phase, timer);
        self.beside_mut(id).reason = Some((step.now, why));
    }

    /// Arms the timer of the next check of a free member, if it is checked.
    pub fn check_timer(&self, id: MemberId, settings: &Settings, step: &mut Step<'_, '_>) -> Option<TimerId> {
        let member = self.get(id);
        let interval = settings.check_interval;
        let is_checked = interval > Span::ZERO && member.owner.is_some();
        is_checked.then(|| step.timers.arm(member.proved + interval, Timer::Phase(id)))
    }

    /// Arms the next check of a free member anew.
    pub fn arm_check(&mut self, id: MemberId, settings: &Settings, step: &mut Step<'_, '_>) {
        let timer = self.check_timer(id, settings, step);
        self.set_timer(id, timer, step);
    }

    /// Begins or ends the check of an idle member, which keeps its position among the idle and the free.
    pub fn set_checking(&mut self, id: MemberId, is_checking: bool) {
        let next = (!is_checking).then(|| self.next_free(id)).flatten();
        let member = &mut self.members[id.index()];
        let phase = if is_checking { Phase::Checking } else { Phase::Free };
        let (pool, before) = (member.pool, std::mem::replace(&mut member.phase, phase));
        let of_pool = self.by_pool.get_mut(pool);
        of_pool.move_count(before, phase);
        match next {
            _ if is_checking => of_pool.free.remove(&mut self.free_links, id),
            Some(next) => of_pool.free.insert_before(&mut self.free_links, next, id),
            None => of_pool.free.push_back(&mut self.free_links, id),
        }
        self.attributes.set_free(id, !is_checking);
        self.note_free(pool);
    }

    /// Returns the free member behind a checked one among the idle; None without one. The search goes in both directions
    /// at once, so that many checks together cost little each.
    fn next_free(&self, id: MemberId) -> Option<MemberId> {
        let idle = &self.phase_links;
        let is_free = |id: MemberId| self.get(id).phase == Phase::Free;
        let (mut before, mut after) = (id, id);
        loop {
            let next = idle.after(after)?;
            if is_free(next) {
                return Some(next);
            }
            let Some(prev) = idle.before(before) else { return self.in_pool(self.get(id).pool).free.front() };
            if is_free(prev) {
                return self.free_links.after(prev);
            }
            (before, after) = (prev, next);
        }
    }

    /// Takes the timer of a cleaning, which has fired.
    pub fn cleaning_fired(&mut self, id: MemberId) {
        self.fired(id);
        self.by_pool.get_mut(self.members[id.index()].pool).late += 1;
    }

    /// Returns the members of a pool that an agent cleans, longest asked first.
    pub fn cleaned_in_pool(&self, pool: PoolId, agent: AgentId) -> Vec<MemberId> {
        let is_its = |id: &MemberId| self.get(*id).cleaner() == Some(agent);
        self.in_pool(pool).cleaning.iter(&self.phase_links).metered().filter(is_its).collect()
    }

    /// Puts a member that is in no queue among the members that wait to be cleaned, by the time of its return.
    pub fn enter_unclean(&mut self, id: MemberId) {
        self.enter_state(id, Phase::Unclean, None);
        let (since, unclean) = (self.get(id).since, &mut self.by_pool.get_mut(self.members[id.index()].pool).unclean);
        let next = unclean.iter(&self.phase_links).find(|other| self.members[other.index()].since >= since);
        if let Some(next) = next.filter(|next| *next != id) {
            unclean.remove(&mut self.phase_links, id);
            unclean.insert_before(&mut self.phase_links, next, id);
        }
    }
}

impl PoolMembers {
    fn move_count(&mut self, from: Phase, to: Phase) {
        self.counts[from as usize] -= 1;
        self.counts[to as usize] += 1;
    }
}
