//! Table of the members: their names, owners, attributes and lifetimes, and the queues and counts of their phases.
//!
//! Invariant: a member is in one phase, and in the queues of that phase alone.

use super::{AgentId, GroupId, Marks, MemberId, MemberPhase, PhaseKind, PoolId, Reason, Step, Timer};
use attributes::MemberAttributes;
use poolcounter_core::id::Id as _;
use poolcounter_core::list::{Links, List};
use poolcounter_core::side_table::SideTable;
use poolcounter_core::sorted::Sorted;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::TimerId;
use poolcounter_protocol::members::pool_settings::Settings;
use poolcounter_protocol::members::request::Attributes;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod attributes;
mod check;
mod named;
mod queues;

pub(super) use attributes::Wanted;

#[derive(Serialize, Deserialize)]
pub(super) struct Member {
    pub name: Arc<[u8]>,
    pub pool: PoolId,
    pub owner: MemberOwner,
    pub born: Time,
    /// Time of its last use, or of its release.
    pub since: Time,
    /// Time at which it was last known to be alive.
    pub proved: Time,
    /// Number of its leases.
    pub uses: u32,
    /// Position of its lifetime between the shortest and the longest.
    pub share: u16,
    /// True if it was withdrawn or deleted while in use.
    pub is_leaving: bool,
    /// True for a fixed member that the configuration file had at the last reading.
    pub is_from_file: bool,
    #[serde(skip)]
    pub phase: MemberPhase,
    /// Timer of the end of its lifetime.
    #[serde(skip)]
    pub life: Option<TimerId>,
}

impl Member {
    /// Returns a member in no phase. `share` is the position of its lifetime between the shortest and the longest.
    pub fn new(pool: PoolId, name: Arc<[u8]>, owner: MemberOwner, share: u16, now: Time) -> Self {
        Member {
            name,
            pool,
            owner,
            born: now,
            since: now,
            proved: now,
            uses: 0,
            share,
            is_leaving: false,
            is_from_file: false,
            phase: MemberPhase::Orphaned,
            life: None,
        }
    }

    /// Returns a copy without its phase and timer, for a record.
    pub fn to_save(&self) -> Self {
        Member { name: self.name.clone(), phase: MemberPhase::Orphaned, life: None, ..*self }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum MemberOwner {
    /// No provider: the member is fixed.
    Fixed,
    /// The provider that runs it, or that is lost.
    Agent(AgentId),
}

/// All members, by pool and by provider.
#[derive(Default)]
pub(super) struct MemberTable {
    members: Slab<Member>,
    attributes: MemberAttributes,
    /// Members that will be held when they become free.
    pub holds: BTreeMap<MemberId, ComingHold>,
    /// Members that are kept out for other reasons than their provider, with the begin.
    pub reasons: BTreeMap<MemberId, (Time, Reason)>,
    by_pool: SideTable<PoolId, PoolMembers>,
    by_agent: SideTable<AgentId, List<MemberId>>,
    /// Pools of a group that have free members, by their number.
    by_group: SideTable<GroupId, BTreeSet<(u32, Reverse<PoolId>)>>,
    /// Fixed members, each of which is in one pool.
    fixed: BTreeMap<Arc<[u8]>, MemberId>,
    free_links: Links,
    /// Links of the queues `idle`, `unclean` and `cleaning` of a pool.
    phase_links: Links,
    agent_links: Links,
    /// Names of the fixed members that have changed.
    pub marks: Marks<Arc<[u8]>>,
}

/// Hold of a member that is not free.
#[derive(Serialize, Deserialize)]
pub(super) struct ComingHold {
    pub span: Span,
    /// Time of the request.
    pub since: Time,
    pub reason: Reason,
}

/// The members of a pool.
#[derive(Default)]
pub(super) struct PoolMembers {
    /// All members, in the order of their names.
    by_name: Sorted<MemberId>,
    /// Members that may be handed out, longest idle first.
    free: List<MemberId>,
    /// Members that are free or checked, longest idle first.
    idle: List<MemberId>,
    /// Members that wait to be cleaned, longest returned first.
    pub unclean: List<MemberId>,
    cleaning: List<MemberId>,
    /// Number of members whose cleaning takes longer than `clean_timeout`.
    pub late: u32,
    counts: [u32; PhaseKind::COUNT],
    /// Number of fixed members: all members of the pool, or none.
    fixed: u32,
    /// Group whose takes and waiters get its members, and the number of free ones under which it has the pool.
    pub group: Option<GroupId>,
    free_in_group: u32,
}

impl PoolMembers {
    /// Returns the number of members in a phase.
    pub fn count(&self, kind: PhaseKind) -> u32 {
        self.counts[kind as usize]
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether the pool has fixed members, and so no members of providers.
    pub fn is_fixed(&self) -> bool {
        self.fixed > 0
    }

    /// Returns whether the pool has members of providers, and so no fixed ones.
    pub fn is_provided(&self) -> bool {
        self.len() > self.fixed as usize
    }

    /// Returns the number of members that are not being stopped.
    pub fn live(&self) -> u64 {
        self.len() as u64 - u64::from(self.count(PhaseKind::Stopping))
    }

    /// Returns the number of members that are free, or are checked and will be.
    pub fn idle(&self) -> u32 {
        self.count(PhaseKind::Free) + self.count(PhaseKind::Checking)
    }

    /// Returns all members, by name.
    pub fn all(&self) -> impl Iterator<Item = MemberId> {
        self.by_name.iter().copied()
    }
}

impl MemberTable {
    pub fn len(&self) -> usize {
        self.members.len()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    #[inline]
    pub fn get(&self, id: MemberId) -> &Member {
        &self.members[id.index()]
    }

    /// Returns a member, for changes of what nothing else depends on.
    pub fn get_mut(&mut self, id: MemberId) -> &mut Member {
        &mut self.members[id.index()]
    }

    /// Returns a number above the slot of every member.
    pub fn slots(&self) -> usize {
        self.members.iter().next_back().map_or(0, |(slot, _)| slot + 1)
    }

    /// Returns a member, unless it has ended.
    pub fn find(&self, id: MemberId) -> Option<&Member> {
        self.members.get(id.index())
    }

    /// Returns the members of a pool.
    #[inline]
    pub fn in_pool(&self, pool: PoolId) -> &PoolMembers {
        self.by_pool.get(pool)
    }

    /// Returns the number of members of a provider.
    pub fn of_agent(&self, agent: AgentId) -> u32 {
        self.by_agent.get(agent).len()
    }

    /// Returns the first member of a provider.
    pub fn first_of_agent(&self, agent: AgentId) -> Option<MemberId> {
        self.by_agent.get(agent).front()
    }

    /// Returns the time at which a member reaches its lifetime; None without a limit.
    pub fn end_of_life(&self, id: MemberId, settings: &Settings) -> Option<Time> {
        let Settings { max_lifetime, lifetime_jitter, .. } = *settings;
        let member = self.get(id);
        if max_lifetime == Span::ZERO || member.owner == MemberOwner::Fixed {
            return None;
        }
        let shortest = max_lifetime.as_micros() - lifetime_jitter.as_micros();
        let range = u128::from(lifetime_jitter.as_micros()) * 2;
        let share = range * u128::from(member.share) / u128::from(u16::MAX);
        Some(member.born + Span::from_micros(shortest.saturating_add(u64::try_from(share).unwrap_or(u64::MAX))))
    }

    pub fn is_past_lifetime(&self, id: MemberId, settings: &Settings, now: Time) -> bool {
        self.end_of_life(id, settings).is_some_and(|end| end <= now)
    }

    pub fn has_fixed(&self) -> bool {
        !self.fixed.is_empty()
    }

    /// Returns the fixed member of this name, in any pool.
    pub fn find_fixed(&self, name: &[u8]) -> Option<MemberId> {
        self.fixed.get(name).copied()
    }

    /// Adds a member in no queue and without attributes, whose lifetime is not timed yet. Returns None if the pool has a
    /// member of this name, or members of the other kind, or there is a fixed one of this name.
    pub fn create(&mut self, member: Member) -> Option<MemberId> {
        let id = MemberId::from_index(self.members.vacant_key());
        let (pool, name, is_fixed) = (member.pool, member.name.clone(), member.owner == MemberOwner::Fixed);
        let of_pool = self.in_pool(pool);
        let is_mixed = if is_fixed { of_pool.is_provided() } else { of_pool.is_fixed() };
        (!(is_mixed || is_fixed && self.fixed.contains_key(&name))).then_some(())?;
        self.add_name(pool, &name, id).then_some(())?;
        if is_fixed {
            self.fixed.insert(name, id);
        }
        self.members.insert(member);
        let of_pool = self.by_pool.get_mut(pool);
        of_pool.counts[PhaseKind::Orphaned as usize] += 1;
        of_pool.fixed += u32::from(is_fixed);
        self.link_owner(id);
        Some(id)
    }

    /// Makes room for members of a handover: a table that grows is copied.
    pub fn reserve(&mut self, members: usize) {
        self.members.reserve(members);
        let of_phases = [&mut self.free_links, &mut self.phase_links];
        of_phases.into_iter().chain([&mut self.agent_links]).for_each(|links| links.reserve(members));
    }

    /// Removes a member that is in no queue, with the timer of its lifetime.
    pub fn remove(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        self.mark(id);
        self.unlink_owner(id);
        self.holds.remove(&id);
        self.set_attributes(id, Attributes::new());
        self.remove_name(id);
        let member = self.members.remove(id.index());
        member.life.into_iter().for_each(|timer| step.timers.cancel(timer));
        let of_pool = self.by_pool.get_mut(member.pool);
        of_pool.counts[PhaseKind::Orphaned as usize] -= 1;
        if member.owner == MemberOwner::Fixed {
            of_pool.fixed -= 1;
            self.fixed.remove(&member.name);
        }
    }

    /// Passes a member to another provider.
    pub fn set_owner(&mut self, id: MemberId, agent: AgentId) {
        self.unlink_owner(id);
        self.members[id.index()].owner = MemberOwner::Agent(agent);
        self.link_owner(id);
    }

    /// Moves a member of a provider behind its other members.
    pub fn move_to_last_of_agent(&mut self, id: MemberId) {
        self.unlink_owner(id);
        self.link_owner(id);
    }

    fn link_owner(&mut self, id: MemberId) {
        if let MemberOwner::Agent(agent) = self.get(id).owner {
            self.by_agent.get_mut(agent).push_back(&mut self.agent_links, id);
        }
    }

    fn unlink_owner(&mut self, id: MemberId) {
        if let MemberOwner::Agent(agent) = self.get(id).owner {
            self.by_agent.get_mut(agent).remove(&mut self.agent_links, id);
        }
    }

    /// Notes that a member will be held when it becomes free.
    pub fn set_hold(&mut self, id: MemberId, hold: ComingHold) {
        self.holds.insert(id, hold);
        self.mark(id);
    }

    /// Sets the reason for which a member is kept out, and the begin.
    pub fn set_reason(&mut self, id: MemberId, since: Time, reason: Reason) {
        self.reasons.insert(id, (since, reason));
        self.mark(id);
    }

    /// Forgets why a member is kept out.
    pub fn clear_reason(&mut self, id: MemberId) {
        if self.reasons.remove(&id).is_some() {
            self.mark(id);
        }
    }

    /// Notes that a member has changed, if it is fixed.
    #[inline]
    pub fn mark(&mut self, id: MemberId) {
        let Member { owner, name, .. } = &self.members[id.index()];
        if *owner == MemberOwner::Fixed {
            self.marks.add(name);
        }
    }

    /// Notes that all fixed members have changed.
    pub fn mark_all_fixed(&mut self) {
        self.fixed.keys().for_each(|name| self.marks.add(name));
    }

    /// Takes the note that a member will be held when it becomes free.
    pub fn take_hold(&mut self, id: MemberId) -> Option<ComingHold> {
        let hold = self.holds.remove(&id)?;
        self.mark(id);
        Some(hold)
    }

    pub fn set_leaving(&mut self, id: MemberId, is_leaving: bool) {
        self.members[id.index()].is_leaving = is_leaving;
        self.mark(id);
    }

    pub fn set_from_file(&mut self, id: MemberId, is_from_file: bool) {
        self.members[id.index()].is_from_file = is_from_file;
        self.mark(id);
    }

    /// Arms the timer of a lifetime anew. Past its lifetime, only a free member has one: others are checked when they
    /// are returned.
    pub fn arm_life(&mut self, id: MemberId, settings: &Settings, step: &mut Step<'_, '_>) {
        let is_free = self.get(id).phase.kind() == PhaseKind::Free;
        let end = self.end_of_life(id, settings).filter(|end| is_free || *end > step.now);
        let life = &mut self.members[id.index()].life;
        life.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        *life = end.map(|end| step.timers.arm(end, Timer::Life(id)));
    }

    /// Arms the timer of a member's phase anew.
    pub fn rearm(&mut self, id: MemberId, after: Span, step: &mut Step<'_, '_>) {
        if let MemberPhase::Stopping(timer) | MemberPhase::Checking(timer) = &mut self.members[id.index()].phase {
            let armed = step.timers.arm(step.now + after, Timer::Phase(id));
            step.timers.cancel(std::mem::replace(timer, armed));
        }
    }

    pub fn armed_timers(&self) -> usize {
        let armed = |member: &Member| usize::from(member.phase.timer().is_some()) + usize::from(member.life.is_some());
        self.members.iter().map(|(_, member)| armed(member)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::leases::Lease;
    use super::super::waiters::Waiter;
    use super::*;

    /// There may be a million members, so each is small: 72 bytes, and 24 of links, besides its name in the index and
    /// its attributes.
    #[test]
    fn a_member_takes_little_memory() {
        // A slab adds nothing to an entry that has room for a mark, as here.
        assert_eq!(size_of::<Option<Member>>(), size_of::<Member>());
        assert!(size_of::<Member>() + 3 * size_of::<u64>() <= 100, "{} bytes and 24", size_of::<Member>());
        assert!(size_of::<Lease>() <= 96, "{} bytes", size_of::<Lease>());
        assert!(size_of::<Waiter>() <= 128, "{} bytes", size_of::<Waiter>());
        println!("member {}, lease {}, waiter {}", size_of::<Member>(), size_of::<Lease>(), size_of::<Waiter>());
    }
}
