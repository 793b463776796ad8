//! Table of the members: their names, owners, attributes and lifetimes, and the queues and counts of their phases.
//!
//! Invariant: a member is in one phase, and in the queues of that phase alone.

use super::{
    AgentId, FailedCleanings, GroupId, LeaseId, Marks, MemberId, PastLease, Phase, PoolId, Reason, Step, Timer,
};
use attributes::MemberAttributes;
use poolcounter_core::{Id, Links, List, SideTable, Sorted, Span, Time, TimerId};
use poolcounter_protocol::members::pool_settings::Settings;
use poolcounter_protocol::members::request::Attributes;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

mod attributes;
mod check;
mod named;
mod queues;

pub(super) use attributes::Wanted;

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Member {
    pub name: Arc<[u8]>,
    pub pool: PoolId,
    /// The provider that runs it, or that is lost; None for a fixed member.
    pub owner: Option<AgentId>,
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
    pub phase: Phase,
    /// Index of its lease in use, or of the agent that cleans it.
    pub of: u32,
    #[serde(skip)]
    pub timer: Option<TimerId>,
    /// Timer of the end of its lifetime.
    #[serde(skip)]
    pub life: Option<TimerId>,
}

impl Member {
    /// Returns a member in no phase. `share` is the position of its lifetime between the shortest and the longest.
    pub fn new(pool: PoolId, name: Arc<[u8]>, owner: Option<AgentId>, share: u16, now: Time) -> Self {
        Member { name, pool, owner, share, born: now, since: now, proved: now, ..Member::default() }
    }

    /// Returns a copy without its timers, for a record.
    pub fn to_save(&self) -> Self {
        Member { name: self.name.clone(), timer: None, life: None, ..*self }
    }

    /// Returns its lease, if it is in use.
    #[inline]
    pub fn lease(&self) -> Option<LeaseId> {
        (self.phase == Phase::InUse).then(|| LeaseId::from_index(self.of as usize))
    }

    /// Returns the agent that cleans it, if one does.
    #[inline]
    pub fn cleaner(&self) -> Option<AgentId> {
        (self.phase == Phase::Cleaning).then(|| AgentId::from_index(self.of as usize))
    }

    /// Sets the lease or the agent of the phase that the member enters next, or is in.
    pub fn set_of(&mut self, id: impl Id) {
        // Lossless: an id is a u32.
        self.of = id.index() as u32;
    }
}

/// All members, by pool and by provider.
#[derive(Default)]
pub(super) struct MemberTable {
    members: Slab<Member>,
    pub attributes: MemberAttributes,
    beside: BTreeMap<MemberId, Beside>,
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

/// Facts about a member that most have none of.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Beside {
    /// Hold that begins when it becomes free.
    pub hold: Option<ComingHold>,
    /// Reason for which it is kept out, if that is not its provider, or its holder is awaited, with the begin.
    pub reason: Option<(Time, Reason)>,
    pub failed: Option<FailedCleanings>,
    /// The last leases of a fixed member, the last one last.
    pub history: VecDeque<PastLease>,
}

impl Beside {
    pub fn is_empty(&self) -> bool {
        self.hold.is_none() && self.reason.is_none() && self.failed.is_none() && self.history.is_empty()
    }
}

/// Hold of a member that is not free.
#[derive(Clone, Serialize, Deserialize)]
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
    counts: [u32; Phase::COUNT],
    /// Group whose takes and waiters get its members, and the number of free ones under which it has the pool.
    pub group: Option<GroupId>,
    free_in_group: u32,
}

impl PoolMembers {
    /// Returns the number of members in a phase.
    pub fn count(&self, kind: Phase) -> u32 {
        self.counts[kind as usize]
    }

    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the number of members that are not being stopped.
    pub fn live(&self) -> u64 {
        self.len() as u64 - u64::from(self.count(Phase::Stopping))
    }

    /// Returns the number of members that are free, or are checked and will be.
    pub fn idle(&self) -> u32 {
        self.count(Phase::Free) + self.count(Phase::Checking)
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

    /// Returns a member, for changes of what is kept.
    pub fn marked(&mut self, id: MemberId) -> &mut Member {
        self.mark(id);
        self.get_mut(id)
    }

    /// Returns the members of a pool.
    #[inline]
    pub fn in_pool(&self, pool: PoolId) -> &PoolMembers {
        self.by_pool.get(pool)
    }

    /// Returns the members of a provider.
    pub fn of_agent(&self, agent: AgentId) -> &List<MemberId> {
        self.by_agent.get(agent)
    }

    /// Returns the time at which a member reaches its lifetime; None without a limit.
    pub fn end_of_life(&self, id: MemberId, settings: &Settings) -> Option<Time> {
        let Settings { max_lifetime, lifetime_jitter, .. } = *settings;
        let member = self.get(id);
        if max_lifetime == Span::ZERO || member.owner.is_none() {
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

    /// Returns whether a pool has fixed members, and so no members of providers; None without members.
    pub fn is_fixed(&self, pool: PoolId) -> Option<bool> {
        self.in_pool(pool).by_name.first().map(|id| self.get(*id).owner.is_none())
    }

    /// Returns the fixed member of this name, in any pool.
    pub fn find_fixed(&self, name: &[u8]) -> Option<MemberId> {
        self.fixed.get(name).copied()
    }

    /// Adds a member in no queue and without attributes, whose lifetime is not timed yet. Returns None if the pool has a
    /// member of this name, or members of the other kind, or there is a fixed one of this name.
    pub fn create(&mut self, member: Member) -> Option<MemberId> {
        let id = MemberId::from_index(self.members.vacant_key());
        let (pool, name, is_fixed) = (member.pool, member.name.clone(), member.owner.is_none());
        let is_alike = self.is_fixed(pool).is_none_or(|others| others == is_fixed);
        (is_alike && !(is_fixed && self.fixed.contains_key(&name))).then_some(())?;
        let by_name = &mut self.by_pool.get_mut(pool).by_name;
        by_name.insert_by(id, |other| self.members[other.index()].name.cmp(&name)).then_some(())?;
        if is_fixed {
            self.fixed.insert(name, id);
        }
        self.members.insert(member);
        self.by_pool.get_mut(pool).counts[Phase::Orphaned as usize] += 1;
        self.link_owner(id);
        Some(id)
    }

    /// Makes room for members of a handover: a table that grows is copied.
    pub fn reserve(&mut self, members: usize) {
        self.members.reserve(members);
        let links = [&mut self.free_links, &mut self.phase_links, &mut self.agent_links];
        links.into_iter().for_each(|links| links.reserve(members));
    }

    /// Removes a member that is in no queue, with the timer of its lifetime.
    pub fn remove(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        self.mark(id);
        self.unlink_owner(id);
        self.beside.remove(&id);
        self.set_attributes(id, Attributes::new());
        let Member { pool, name, .. } = &self.members[id.index()];
        let by_name = &mut self.by_pool.get_mut(*pool).by_name;
        by_name.remove_by(|other| self.members[other.index()].name.cmp(name));
        let member = self.members.remove(id.index());
        member.life.into_iter().for_each(|timer| step.timers.cancel(timer));
        self.by_pool.get_mut(member.pool).counts[Phase::Orphaned as usize] -= 1;
        if member.owner.is_none() {
            self.fixed.remove(&member.name);
        }
    }

    /// Passes a member to a provider, as the last of its members.
    pub fn set_owner(&mut self, id: MemberId, agent: AgentId) {
        self.unlink_owner(id);
        self.members[id.index()].owner = Some(agent);
        self.link_owner(id);
    }

    fn link_owner(&mut self, id: MemberId) {
        if let Some(agent) = self.get(id).owner {
            self.by_agent.get_mut(agent).push_back(&mut self.agent_links, id);
        }
    }

    fn unlink_owner(&mut self, id: MemberId) {
        if let Some(agent) = self.get(id).owner {
            self.by_agent.get_mut(agent).remove(&mut self.agent_links, id);
        }
    }

    /// Returns the facts beside a member.
    pub fn beside(&self, id: MemberId) -> &Beside {
        const NONE: &Beside = &Beside { hold: None, reason: None, failed: None, history: VecDeque::new() };
        self.beside.get(&id).unwrap_or(NONE)
    }

    /// Returns the facts beside a member, for a change that adds some.
    pub fn beside_mut(&mut self, id: MemberId) -> &mut Beside {
        self.mark(id);
        self.beside.entry(id).or_default()
    }

    /// Returns the last leases of a member, the last one first, for changes that are marked apart.
    pub fn history_mut(&mut self, id: MemberId) -> impl Iterator<Item = &mut PastLease> {
        self.beside.get_mut(&id).into_iter().flat_map(|beside| beside.history.iter_mut().rev())
    }

    /// Takes one of the facts beside a member. A member without any has no place in the table.
    pub fn take_beside<T>(&mut self, id: MemberId, take: impl FnOnce(&mut Beside) -> Option<T>) -> Option<T> {
        let beside = self.beside.get_mut(&id)?;
        let taken = take(beside);
        if beside.is_empty() {
            self.beside.remove(&id);
        }
        taken
    }

    /// Notes that a member has changed, if it is fixed.
    #[inline]
    pub fn mark(&mut self, id: MemberId) {
        let Member { owner, name, .. } = &self.members[id.index()];
        if owner.is_none() {
            self.marks.add(name);
        }
    }

    /// Notes that all fixed members have changed.
    pub fn mark_all_fixed(&mut self) {
        self.fixed.keys().for_each(|name| self.marks.add(name));
    }

    /// Arms the timer of a lifetime anew. Past its lifetime, only a free member has one: others are checked when they
    /// are returned.
    pub fn arm_life(&mut self, id: MemberId, settings: &Settings, step: &mut Step<'_, '_>) {
        let is_free = self.get(id).phase == Phase::Free;
        let end = self.end_of_life(id, settings).filter(|end| is_free || *end > step.now);
        let life = &mut self.members[id.index()].life;
        life.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        *life = end.map(|end| step.timers.arm(end, Timer::Life(id)));
    }

    /// Arms the timer of a member's phase anew.
    pub fn rearm(&mut self, id: MemberId, after: Span, step: &mut Step<'_, '_>) {
        let timer = step.timers.arm(step.now + after, Timer::Phase(id));
        self.set_timer(id, Some(timer), step);
    }

    /// Replaces the timer of a member's phase.
    fn set_timer(&mut self, id: MemberId, timer: Option<TimerId>, step: &mut Step<'_, '_>) {
        let before = std::mem::replace(&mut self.members[id.index()].timer, timer);
        before.into_iter().for_each(|timer| step.timers.cancel(timer));
    }

    /// Takes the timer of a member's phase, which has fired.
    pub fn fired(&mut self, id: MemberId) {
        self.members[id.index()].timer.take().into_iter().for_each(TimerId::fired);
    }

    pub fn armed_timers(&self) -> usize {
        let armed = |member: &Member| usize::from(member.timer.is_some()) + usize::from(member.life.is_some());
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
