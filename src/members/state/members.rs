//! The life of a member: the phases that it goes through, and how it ends.

use super::*;

pub(super) struct Member {
    pub name: Arc<[u8]>,
    pub pool: PoolId,
    pub owner: MemberOwner,
    pub born: Time,
    /// When it was last in use, or came free.
    pub since: Time,
    /// When it was last known to live.
    pub proved: Time,
    pub uses: u32,
    /// Where its lifetime lies between the shortest and the longest.
    pub share: u16,
    /// True when it was withdrawn or deleted while in use.
    pub is_leaving: bool,
    /// True when it is a fixed member that the configuration file had when it was read last.
    pub is_from_file: bool,
    /// Armed until it has reached its lifetime.
    pub life: Option<TimerId>,
    pub phase: MemberPhase,
}

/// Who has a member besides its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemberOwner {
    /// Nobody.
    Fixed,
    /// The provider that runs it, or that is lost.
    Agent(AgentId),
}

/// What is done with a member that has come to an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    /// Another one is started in its place.
    Replace,
    /// Demand decides.
    Nothing,
}

/// Whether a member that came free was started for waiters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Start,
    Other,
}

impl State {
    /// Adds a member. It is in no phase's queue yet: it is to come free, or to be put somewhere.
    pub(super) fn create_member(
        &mut self,
        pool: PoolId,
        name: &[u8],
        attributes: Attributes,
        owner: MemberOwner,
        step: &mut Step<'_, '_>,
    ) -> MemberId {
        let id = MemberId::from_index(self.members.vacant_key());
        let name: Arc<[u8]> = name.into();
        let [low, high] = step.random.bytes();
        self.members.insert(Member {
            name: name.clone(),
            pool,
            owner,
            born: step.now,
            since: step.now,
            proved: step.now,
            uses: 0,
            share: u16::from_le_bytes([low, high]),
            is_leaving: false,
            is_from_file: false,
            life: None,
            phase: MemberPhase::Orphaned,
        });
        self.set_attributes(id, attributes);
        let entry = self.pool_mut(pool);
        entry.members.insert(name, id);
        entry.counts[PhaseKind::Orphaned as usize] += 1;
        entry.fixed += u32::from(owner == MemberOwner::Fixed);
        self.link_owner(id, owner);
        self.arm_life(id, step);
        self.touch(pool);
        id
    }

    /// What a member has; None when it has no attributes.
    pub(super) fn attributes_of(&self, id: MemberId) -> Option<&Arc<Attributes>> {
        self.attributes.get(id.index())?.as_ref()
    }

    pub(super) fn set_attributes(&mut self, id: MemberId, attributes: Attributes) {
        let attributes = (!attributes.is_empty()).then(|| Arc::new(attributes));
        if attributes.is_some() && self.attributes.len() <= id.index() {
            self.attributes.resize(id.index() + 1, None);
        }
        if let Some(known) = self.attributes.get_mut(id.index()) {
            *known = attributes;
        }
    }

    pub(super) fn link_owner(&mut self, id: MemberId, owner: MemberOwner) {
        match owner {
            MemberOwner::Fixed => {}
            MemberOwner::Agent(agent) => self.agents[agent.index()].members.push_back(&mut self.links_owner, id),
        }
    }

    pub(super) fn unlink_owner(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        match self.member(id).owner {
            MemberOwner::Fixed => {}
            MemberOwner::Agent(agent) => {
                self.agents[agent.index()].members.remove(&mut self.links_owner, id);
                self.drop_agent_if_over(agent, step);
            }
        }
    }

    /// Takes a member out of the queues of its phase, and disarms the phase's timer. It is in no place until it is put into one.
    pub(super) fn leave_state(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        if let Some(timer) = self.unlink_state(id) {
            step.timers.cancel(timer);
        }
    }

    /// As [`State::leave_state`], for a timer that has fired.
    pub(super) fn leave_state_after_timer(&mut self, id: MemberId) {
        self.unlink_state(id).into_iter().for_each(TimerId::fired);
    }

    fn unlink_state(&mut self, id: MemberId) -> Option<TimerId> {
        let member = &mut self.members[id.index()];
        let pool = &mut self.pools[member.pool.index()];
        let phase = std::mem::replace(&mut member.phase, MemberPhase::Orphaned);
        pool.counts[phase.kind() as usize] -= 1;
        pool.counts[PhaseKind::Orphaned as usize] += 1;
        match &phase {
            MemberPhase::Free(_) => {
                pool.free.remove(&mut self.links_free, id);
                pool.idle.remove(&mut self.links_phase, id);
            }
            MemberPhase::Checking(_) => {
                pool.idle.remove(&mut self.links_phase, id);
                // Who waited for this check has to look for another member.
                pool.is_to_reconsider = true;
            }
            MemberPhase::Unclean => pool.unclean.remove(&mut self.links_phase, id),
            MemberPhase::Cleaning { agent, .. } => {
                pool.cleaning.remove(&mut self.links_phase, id);
                self.agents[agent.index()].cleaning -= 1;
            }
            _ => {}
        }
        let pool = member.pool;
        self.touch(pool);
        phase.into_timer()
    }

    /// Puts a member into a phase. It must be in no queue.
    pub(super) fn enter_state(&mut self, id: MemberId, phase: MemberPhase) {
        let member = &mut self.members[id.index()];
        let pool = &mut self.pools[member.pool.index()];
        pool.counts[PhaseKind::Orphaned as usize] -= 1;
        pool.counts[phase.kind() as usize] += 1;
        match &phase {
            MemberPhase::Unclean => pool.unclean.push_back(&mut self.links_phase, id),
            MemberPhase::Cleaning { agent, .. } => {
                pool.cleaning.push_back(&mut self.links_phase, id);
                self.agents[agent.index()].cleaning += 1;
            }
            _ => {}
        }
        member.phase = phase;
    }

    /// A member is ready to be handed out, unless something speaks against it; waiters come first.
    pub(super) fn release_member(&mut self, id: MemberId, cause: Cause, step: &mut Step<'_, '_>) {
        let Some(id) = self.check_usable(id, step) else { return };
        if self.is_orphan(id) {
            return;
        }
        if let Some(span) = self.holds.remove(&id) {
            let timer = step.timers.arm(step.now + span, Timer::Phase(id));
            return self.enter_state(id, MemberPhase::Held(timer));
        }
        let member = &mut self.members[id.index()];
        (member.since, member.proved) = (step.now, step.now);
        self.push_free(id, None, step);
        self.offer_to_waiters(id, cause, step);
    }

    /// Ends a member that may not be handed out again; returns the others.
    pub(super) fn check_usable(&mut self, id: MemberId, step: &mut Step<'_, '_>) -> Option<MemberId> {
        if !self.catch_up(id, step) {
            return None;
        }
        let member = &self.members[id.index()];
        let pool = &self.pools[member.pool.index()];
        let is_fixed = member.owner == MemberOwner::Fixed;
        let (stat, then) = if member.is_leaving {
            self.drop_member(id, step);
            return None;
        } else if pool.is_leaving || !is_fixed && pool.is_above_max() {
            (Stat::Reconfigured, Then::Nothing)
        } else if !is_fixed && self.is_past_lifetime(id, step.now) {
            (Stat::MaxLifetime, Then::Replace)
        } else if !is_fixed && pool.settings.max_uses > 0 && member.uses >= pool.settings.max_uses {
            (Stat::MaxUses, Then::Replace)
        } else {
            return Some(id);
        };
        self.stop_member(id, stat, then, step);
        None
    }

    /// Puts a member among the free: before `next`, or last.
    pub(super) fn push_free(&mut self, id: MemberId, next: Option<MemberId>, step: &mut Step<'_, '_>) {
        let member = &self.members[id.index()];
        let pool = &mut self.pools[member.pool.index()];
        match next {
            Some(next) => pool.free.insert_before(&mut self.links_free, next, id),
            None => pool.free.push_back(&mut self.links_free, id),
        }
        if !self.links_phase.is_linked(id) {
            pool.idle.push_back(&mut self.links_phase, id);
        }
        let interval = pool.settings.check_interval;
        let is_checked = interval > Span::ZERO && member.owner != MemberOwner::Fixed;
        let timer = is_checked.then(|| step.timers.arm(member.proved + interval, Timer::Phase(id)));
        let pool = member.pool;
        self.enter_state(id, MemberPhase::Free(timer));
        self.touch(pool);
    }

    /// A member is over, in whatever phase: it is stopped by its provider, or gone if nobody has to stop it.
    pub(super) fn stop_member(&mut self, id: MemberId, stat: Stat, then: Then, step: &mut Step<'_, '_>) {
        let Member { pool, .. } = self.members[id.index()];
        let Some(conn) = self.conn_of(id) else {
            return self.end_member(id, Some(stat), then, step);
        };
        self.count_end(pool, stat, then);
        self.leave_state(id, step);
        let timer = step.timers.arm(step.now + self.pool(pool).settings.stop_timeout, Timer::Phase(id));
        self.enter_state(id, MemberPhase::Stopping(timer));
        let (name, pool) = (self.member(id).name.clone(), self.pool(pool).name.clone());
        step.tell(conn, What::Stop { pool, member: name });
    }

    /// A member is gone without having to be stopped.
    pub(super) fn end_member(&mut self, id: MemberId, stat: Option<Stat>, then: Then, step: &mut Step<'_, '_>) {
        let pool = self.member(id).pool;
        self.drop_member(id, step);
        // Its place is free at once, and so does not speak against a replacement.
        if let Some(stat) = stat {
            self.count_end(pool, stat, then);
        }
    }

    pub(super) fn count_end(&mut self, pool: PoolId, stat: Stat, then: Then) {
        let pool = self.pool_mut(pool);
        pool.figures.count(stat);
        let is_owed = then == Then::Replace && !pool.is_leaving && pool.slots() <= u64::from(pool.settings.max);
        pool.owed += u32::from(is_owed);
    }

    /// Takes a member out of every table. It must not be in use.
    pub(super) fn drop_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        self.leave_state(id, step);
        self.unlink_owner(id, step);
        self.holds.remove(&id);
        self.set_attributes(id, Attributes::new());
        let member = self.members.remove(id.index());
        member.life.into_iter().for_each(|timer| step.timers.cancel(timer));
        let pool = self.pool_mut(member.pool);
        pool.members.remove(&member.name);
        pool.counts[PhaseKind::Orphaned as usize] -= 1;
        pool.fixed -= u32::from(member.owner == MemberOwner::Fixed);
        self.touch(member.pool);
    }

    /// A member has failed: it is replaced; a fixed one is put into quarantine.
    pub(super) fn fail_member(&mut self, id: MemberId, stat: Stat, step: &mut Step<'_, '_>) {
        let member = self.member(id);
        if member.is_leaving {
            self.drop_member(id, step);
        } else if member.owner == MemberOwner::Fixed && !self.pool(member.pool).is_leaving {
            let repair_after = self.pool(member.pool).settings.repair_after;
            let is_repaired = repair_after > Span::ZERO;
            let timer = is_repaired.then(|| step.timers.arm(step.now + repair_after, Timer::Phase(id)));
            self.leave_state(id, step);
            self.enter_state(id, MemberPhase::Quarantined(timer));
        } else {
            self.stop_member(id, stat, Then::Replace, step);
        }
    }

    /// When a member reaches its lifetime; None when it has none.
    pub(super) fn end_of_life(&self, id: MemberId) -> Option<Time> {
        let member = self.member(id);
        let Settings { max_lifetime, lifetime_jitter, .. } = self.pool(member.pool).settings;
        if max_lifetime == Span::ZERO || member.owner == MemberOwner::Fixed {
            return None;
        }
        let shortest = max_lifetime.as_micros() - lifetime_jitter.as_micros();
        let range = u128::from(lifetime_jitter.as_micros()) * 2;
        let share = range * u128::from(member.share) / u128::from(u16::MAX);
        Some(member.born + Span::from_micros(shortest.saturating_add(u64::try_from(share).unwrap_or(u64::MAX))))
    }

    fn is_past_lifetime(&self, id: MemberId, now: Time) -> bool {
        self.end_of_life(id).is_some_and(|end| end <= now)
    }

    /// Arms the timer of a member's lifetime anew. One that is past it and not free is looked at when it comes back.
    pub(super) fn arm_life(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let is_free = self.member(id).phase.kind() == PhaseKind::Free;
        let end = self.end_of_life(id).filter(|end| is_free || *end > step.now);
        let life = &mut self.members[id.index()].life;
        life.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        *life = end.map(|end| step.timers.arm(end, Timer::Life(id)));
    }

    /// A member has reached its lifetime. One that is not free is looked at when it comes back.
    pub(super) fn life_is_over(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        self.members[id.index()].life.take().into_iter().for_each(TimerId::fired);
        if !self.catch_up(id, step) {
            return;
        }
        if !self.is_past_lifetime(id, step.now) {
            // Its pool has other settings by now.
            self.arm_life(id, step);
        } else if self.member(id).phase.kind() == PhaseKind::Free {
            self.stop_member(id, Stat::MaxLifetime, Then::Replace, step);
        }
    }

    /// The phase of a member has lasted for as long as it may.
    pub(super) fn phase_is_over(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        match self.member(id).phase.kind() {
            PhaseKind::Free => {
                if let MemberPhase::Free(timer) = &mut self.members[id.index()].phase {
                    timer.take().into_iter().for_each(TimerId::fired);
                }
                if !self.catch_up(id, step) || self.is_orphan(id) {
                    return;
                }
                let member = self.member(id);
                let interval = self.pool(member.pool).settings.check_interval;
                if interval > Span::ZERO && member.proved + interval <= step.now {
                    self.begin_check(id, step);
                } else {
                    // Its pool has other settings by now.
                    self.arm_check(id, step);
                }
            }
            PhaseKind::Stopping => {
                self.leave_state_after_timer(id);
                self.remember_stop(id);
                self.drop_member(id, step);
            }
            kind => {
                self.leave_state_after_timer(id);
                if self.catch_up(id, step) {
                    self.go_on_after_phase(id, kind, step);
                }
            }
        }
    }

    /// Goes on with a member whose phase has lasted for as long as it may. It is in no place.
    fn go_on_after_phase(&mut self, id: MemberId, kind: PhaseKind, step: &mut Step<'_, '_>) {
        match kind {
            // Its provider was lost a moment ago.
            PhaseKind::Checking if self.is_orphan(id) => {}
            PhaseKind::Checking => self.member_died(id, step),
            PhaseKind::Cleaning => self.fail_member(id, Stat::Failed, step),
            PhaseKind::Quarantined | PhaseKind::Held => self.release_member(id, Cause::Other, step),
            PhaseKind::Delayed => self.come_back(id, step),
            PhaseKind::Free | PhaseKind::Stopping | PhaseKind::InUse | PhaseKind::Unclean | PhaseKind::Orphaned => {
                unreachable!("these are dealt with before, or have no timer")
            }
        }
    }

    /// A member that is not in use is dead.
    pub(super) fn member_died(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let then = if self.member(id).is_leaving { Then::Nothing } else { Then::Replace };
        self.end_member(id, Some(Stat::Died), then, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A million members are why each is small: 72 bytes, and 24 of links, besides its name in the index and its attributes.
    #[test]
    fn a_member_takes_little_memory() {
        // What a slab adds to each entry is nothing, as it is here.
        assert_eq!(size_of::<Option<Member>>(), size_of::<Member>());
        assert!(size_of::<Member>() + 3 * size_of::<u64>() <= 100, "{} bytes and 24", size_of::<Member>());
        assert!(size_of::<Lease>() <= 96, "{} bytes", size_of::<Lease>());
        assert!(size_of::<Waiter>() <= 128, "{} bytes", size_of::<Waiter>());
        println!(
            "member {}, lease {}, waiter {}, pool {}",
            size_of::<Member>(),
            size_of::<Lease>(),
            size_of::<Waiter>(),
            size_of::<Pool>()
        );
    }
}
