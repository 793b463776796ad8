//! Life of a member: from its creation through its phases, with checks and cleaning, to its end.

use super::waiters::Place;
use super::{
    AgentId, Answer, DONE, Member, MemberId, News, PROVEN_AGE, Phase, Pool, PoolId, Reason, Stat, State, Step, Timer,
};
use poolcounter_core::{ConnId, Span, TimerId};
use poolcounter_protocol::members::request::{Attributes, What};
use std::sync::Arc;

/// Ends of members that are replaced; after other ones demand decides.
const REPLACED: [Stat; 5] = [Stat::MaxLifetime, Stat::MaxUses, Stat::Died, Stat::Failed, Stat::HeldTooLong];

impl State {
    /// Adds a member. It is in no queue until it is released or enters a phase.
    pub(super) fn create_member(
        &mut self,
        pool: PoolId,
        name: &[u8],
        attributes: impl Into<Arc<Attributes>>,
        owner: Option<AgentId>,
        step: &mut Step<'_, '_>,
    ) -> MemberId {
        let share = u16::from_le_bytes(step.random.bytes());
        let member = Member::new(pool, name.into(), owner, share, step.now);
        let id = self.members.create(member).expect("the callers have looked for this name");
        self.members.set_attributes(id, attributes);
        if let Some(agent) = owner {
            self.note_room(agent);
        }
        self.members.arm_life(id, &self.pools.get(pool).settings, step);
        self.pools.touch(pool);
        id
    }

    /// Removes a member from its phase, and notes the consequences for its pool. It is in no queue until it enters a
    /// phase.
    pub(super) fn leave_state(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let timer = self.unlink_state(id);
        timer.into_iter().for_each(|timer| step.timers.cancel(timer));
    }

    /// Removes a member from its phase, and returns the timer of that.
    fn unlink_state(&mut self, id: MemberId) -> Option<TimerId> {
        let Member { pool, phase, .. } = *self.member(id);
        if let Some(agent) = self.member(id).cleaner() {
            self.agents.change(agent, |agent| agent.cleaning -= 1);
        }
        if phase == Phase::Checking {
            // Waiters for this check need another member.
            self.pools.reconsider(pool);
            let group = self.pool(pool).group.filter(|group| self.waiters.queued(Place::Group(*group)) > 0);
            group.into_iter().for_each(|group| self.pools.reconsider_group(group));
        }
        self.pools.touch(pool);
        self.members.leave_state(id)
    }

    /// Frees a member that is in no queue, unless it ends or is held, and offers it to waiters. Returns true if it is free,
    /// and kept for no waiter.
    pub(super) fn release_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) -> bool {
        let Some(id) = self.check_usable(id, step).filter(|id| !self.is_orphan(*id)) else { return false };
        if let Some(hold) = self.members.take_beside(id, |beside| beside.hold.take()) {
            self.members.keep_out(id, Phase::Held, Some(hold.span), hold.reason, step);
            return false;
        }
        self.members.get_mut(id).since = step.now;
        self.members.get_mut(id).proved = step.now;
        let pool = self.member(id).pool;
        let timer = self.members.check_timer(id, &self.pools.get(pool).settings, step);
        self.members.enter_state(id, Phase::Free, timer);
        self.note_idle(pool);
        !self.offer_member(id, step)
    }

    /// Notes that a pool has more free members, or fewer: it is settled if its demand depends on their number.
    pub(super) fn note_idle(&mut self, id: PoolId) {
        let Pool { group, settings, .. } = self.pools.get(id);
        if group.is_some() || settings.min_free > 0 || self.waiters.queued(Place::Pool(id)) > 0 {
            self.pools.touch(id);
        }
    }

    /// Ends a member that may not be handed out again; returns any other.
    pub(super) fn check_usable(&mut self, id: MemberId, step: &mut Step<'_, '_>) -> Option<MemberId> {
        let member = self.member(id);
        let Pool { is_leaving, settings, .. } = self.pool(member.pool);
        let is_fixed = member.owner.is_none();
        let stat = if member.is_leaving {
            self.drop_member(id, step);
            return None;
        } else if *is_leaving || !is_fixed && self.is_above_max(member.pool) {
            Stat::Reconfigured
        } else if !is_fixed && self.members.is_past_lifetime(id, settings, step.now) {
            Stat::MaxLifetime
        } else if !is_fixed && settings.max_uses > 0 && member.uses >= settings.max_uses {
            Stat::MaxUses
        } else {
            return Some(id);
        };
        self.stop_member(id, stat, step);
        None
    }

    /// Ends a member in any phase but in use: its provider stops it, or it is removed if it has none.
    pub(super) fn stop_member(&mut self, id: MemberId, stat: Stat, step: &mut Step<'_, '_>) {
        let Some(conn) = self.conn_of(id) else { return self.end_member(id, Some(stat), step) };
        let pool = self.member(id).pool;
        self.count_end(pool, stat);
        self.leave_state(id, step);
        let timer = step.timers.arm(step.now + self.pool(pool).settings.stop_timeout, Timer::Phase(id));
        self.members.enter_state(id, Phase::Stopping, Some(timer));
        let (pool, member) = self.names_of(id);
        step.tell(conn, What::Stop { pool, member });
    }

    /// Removes a member that need not be stopped.
    pub(super) fn end_member(&mut self, id: MemberId, stat: Option<Stat>, step: &mut Step<'_, '_>) {
        let pool = self.member(id).pool;
        self.drop_member(id, step);
        // Its slot is free at once, so that there is room for a replacement.
        stat.into_iter().for_each(|stat| self.count_end(pool, stat));
    }

    /// Counts the end of a member, and owes a replacement if there is to be one.
    pub(super) fn count_end(&mut self, pool: PoolId, stat: Stat) {
        self.pools.count(pool, stat);
        let Pool { is_leaving, settings, .. } = self.pool(pool);
        if REPLACED.contains(&stat) && !is_leaving && self.slots(pool) <= u64::from(settings.max) {
            self.pools.get_mut(pool).owed += 1;
        }
    }

    /// Removes a member that is not in use from every table.
    pub(super) fn drop_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        self.leave_state(id, step);
        let owner = self.member(id).owner;
        self.members.remove(id, step);
        if let Some(agent) = owner {
            self.note_room(agent);
        }
        self.drop_owner_if_over(owner, step);
    }

    /// Puts a provider into its place by room, after its members, starts or state have changed.
    pub(super) fn note_room(&mut self, id: AgentId) {
        let starts = self.starts.of_agent(id).len();
        self.agents.set_taken(id, (self.members.of_agent(id).len() + starts, starts));
    }

    /// Removes a lost provider without members.
    pub(super) fn drop_owner_if_over(&mut self, owner: Option<AgentId>, step: &mut Step<'_, '_>) {
        if let Some(agent) = owner
            && self.members.of_agent(agent).is_empty()
            && self.agents.get(agent).conn.is_none()
        {
            self.agents.remove(agent, step);
        }
    }

    /// Replaces a member that has failed, or puts a fixed one into quarantine.
    pub(super) fn fail_member(&mut self, id: MemberId, stat: Stat, reason: Reason, step: &mut Step<'_, '_>) {
        let member = self.member(id);
        let Pool { is_leaving, settings, .. } = self.pool(member.pool);
        if member.is_leaving {
            self.drop_member(id, step);
        } else if member.owner.is_none() && !is_leaving {
            let repair_after = Some(settings.repair_after).filter(|span| *span > Span::ZERO);
            self.leave_state(id, step);
            let by = String::from_utf8_lossy(&reason.by).into_owned();
            self.note(id, by, News::Quarantined(reason.why.clone()), step);
            self.members.keep_out(id, Phase::Quarantined, repair_after, reason, step);
        } else {
            self.stop_member(id, stat, step);
        }
    }

    /// Ends a dead member that is not in use. A member that dies young counts as a failed start of its provider.
    pub(super) fn member_died(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let Member { pool, owner, is_leaving, born, .. } = *self.member(id);
        if is_leaving {
            self.pools.count(pool, Stat::Died);
            return self.drop_member(id, step);
        }
        let age = step.now.since(born);
        if let Some(agent) = owner.filter(|_| age < PROVEN_AGE) {
            let age_ms = age.as_micros() / 1_000;
            let text = [&*self.member(id).name, format!(" died after {age_ms} ms").as_bytes()].concat();
            self.begin_backoff(agent, &text, step);
        }
        self.end_member(id, Some(Stat::Died), step);
    }

    /// Stops a free member that has reached its lifetime. Members in use are checked when they are returned.
    pub(super) fn life_is_over(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        self.members.get_mut(id).life.take().into_iter().for_each(TimerId::fired);
        let settings = &self.pools.get(self.members.get(id).pool).settings;
        if !self.members.is_past_lifetime(id, settings, step.now) {
            // Its pool has other settings by now.
            self.members.arm_life(id, settings, step);
        } else if self.phase_of(id) == Phase::Free {
            self.stop_member(id, Stat::MaxLifetime, step);
        }
    }

    /// Handles a member whose phase has reached its time limit.
    pub(super) fn phase_is_over(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        match self.phase_of(id) {
            Phase::Free => {
                self.members.fired(id);
                if self.is_orphan(id) {
                    return;
                }
                let Member { pool, proved, .. } = *self.member(id);
                let interval = self.pool(pool).settings.check_interval;
                if interval > Span::ZERO && proved + interval <= step.now {
                    self.begin_check(id, step);
                } else {
                    // Its pool has other settings by now.
                    self.members.arm_check(id, &self.pools.get(pool).settings, step);
                }
            }
            Phase::Cleaning => self.cleaning_is_late(id, step),
            kind => {
                self.unlink_state(id).into_iter().for_each(TimerId::fired);
                match kind {
                    Phase::Stopping => self.drop_member(id, step),
                    // Its provider was lost a moment ago.
                    Phase::Checking if self.is_orphan(id) => {}
                    Phase::Checking => self.member_died(id, step),
                    Phase::CleanLater => self.clean_again(id, step),
                    Phase::Quarantined | Phase::Held | Phase::Delayed => self.return_member(id, step),
                    _ => unreachable!("these are dealt with before, or have no timer"),
                }
            }
        }
    }

    /// Asks the provider of a free member if it is alive. Returns false if the provider is lost.
    pub(super) fn begin_check(&mut self, id: MemberId, step: &mut Step<'_, '_>) -> bool {
        // Background work has yet to end or suspend the members of a provider that was just lost.
        let Some(conn) = self.conn_of(id) else { return false };
        let pool = self.member(id).pool;
        self.members.rearm(id, self.pools.get(pool).settings.check_timeout, step);
        self.members.set_checking(id, true);
        self.pools.touch(pool);
        let (pool, member) = self.names_of(id);
        step.tell(conn, What::Check { pool, member });
        true
    }

    /// `ALIVE member`. A checked member is free again, at its position among the idle.
    pub(super) fn alive(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Answer {
        let id = self.own_member(conn, name)?;
        if self.phase_of(id) != Phase::Checking {
            return DONE;
        }
        self.members.get_mut(id).proved = step.now;
        let pool = self.member(id).pool;
        let Pool { is_leaving, settings, .. } = self.pools.get(pool);
        let is_over = *is_leaving || self.is_above_max(pool) || self.members.is_past_lifetime(id, settings, step.now);
        if is_over || self.members.beside(id).hold.is_some() {
            self.leave_state(id, step);
            self.release_member(id, step);
        } else {
            let has_put_off = settings.check_on_take > Span::ZERO;
            self.members.arm_check(id, settings, step);
            self.members.set_checking(id, false);
            self.pools.touch(pool);
            self.offer_member(id, step);
            if has_put_off && self.free_count(pool) > 0 && self.queued(pool) > 0 {
                // The check of another member may have been put off while as many as there are waiters were under way.
                self.pools.reconsider(pool);
            }
        }
        DONE
    }
}
