//! Restoring of a handover. It refuses records that contradict each other. Its parts come one by one.

use super::members::ComingHold;
use super::saved::*;
use super::*;
use poolcounter_service::contract::Unreadable;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Places ids, which are keys of a slab, in their order in a table: neighbours there are read together. The tags are in
/// the highest bits.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an id is a number of 32 bits");
    }

    fn write_u32(&mut self, id: u32) {
        let tag = u64::from(id.wrapping_mul(0x9e37_79b9) >> 25);
        self.0 = u64::from(id) | tag << 57;
    }
}

type ById<K, T> = HashMap<K, T, BuildHasherDefault<IdHasher>>;

/// Present ids by saved ones.
#[derive(Default)]
struct Ids {
    pools: ById<PoolId, PoolId>,
    agents: ById<AgentId, AgentId>,
    holdings: ById<HoldingId, HoldingId>,
}

/// Knowledge of a handover besides the state that is made of it.
#[derive(Default)]
pub(super) struct Restored {
    ids: Ids,
    /// Background work of pools, which begins at the end.
    tasks: Vec<BackgroundTask>,
}

/// State that is being restored. Each method returns None if the record contradicts other records.
pub(super) struct Reading<'a> {
    pub state: &'a mut State,
    pub parts: &'a mut Restored,
}

impl State {
    /// Completes the state, once all is read.
    pub(super) fn finish_restore(&mut self, mut parts: Restored, step: &mut Step<'_, '_>) -> Result<(), Unreadable> {
        Reading { state: self, parts: &mut parts }.finish().ok_or_else(contradiction)?;
        self.settle(step);
        Ok(())
    }
}

impl Restored {
    /// Returns a pool by its saved id.
    pub fn pool(&self, saved: PoolId) -> Option<PoolId> {
        self.ids.pools.get(&saved).copied()
    }
}

pub(super) fn contradiction() -> Unreadable {
    Unreadable("members: a record refers to what there is not, or stands there twice".into())
}

impl Reading<'_> {
    /// Adds one record to the state.
    pub fn read(&mut self, saved: Saved, step: &mut Step<'_, '_>) -> Option<()> {
        match saved {
            Saved::Numbers { lease, arrival, start, past } => {
                self.state.pools.restore_past(&past);
                self.state.leases.number_from(lease);
                self.state.waiters.number_from(arrival);
                self.state.starts.number_from(start);
            }
            Saved::Pool(saved) => self.read_pool(*saved, step)?,
            Saved::Group { name, pools } => self.read_group(&name, &pools)?,
            Saved::Agent(saved) => self.read_agent(&saved, step)?,
            Saved::Holding { id, address, is_bye } => {
                self.parts.ids.holdings.insert(id, self.state.leases.restore_holding(address, is_bye));
            }
            Saved::Waiter(saved) => self.read_waiter(*saved, step)?,
            Saved::Start { number, conn, pool_name, since, under_way } => {
                let under_way = match under_way {
                    Some((agent, until)) => Some((self.agent(agent)?, until)),
                    None => None,
                };
                let under_way = under_way.map(|(agent, until)| (self.state.agents.get(agent).pool, agent, until));
                self.state.starts.insert(number, conn, pool_name, since, under_way, step).then_some(())?;
            }
            Saved::Backoff { agent, until, next, failed } => {
                let agent = self.agent(agent)?;
                let timer = until.map(|until| step.timers.arm(until, Timer::Backoff(agent)));
                self.state.agents.restore_backoff(agent, Backoff::restored(timer, next, failed)).then_some(())?;
            }
            Saved::Session { agent, name } => self.state.agents.set_session(self.agent(agent)?, name).then_some(())?,
            Saved::Lost { agent, at, address } => {
                self.state.agents.note_lost(self.agent(agent)?, at, address).then_some(())?;
            }
            Saved::Reason { member, since, reason } => self.read_reason(member, since, reason)?,
            Saved::Unknown(kept) => self.state.restore_unknown(*kept),
            Saved::Hold { member, since, reason } => {
                let member = self.member(member)?;
                let span = self.state.members.take_hold(member)?.span;
                self.state.members.set_hold(member, ComingHold { span, since, reason });
            }
            Saved::History { member, leases } => self.state.history.restore(self.member(member)?, leases),
            Saved::FailedCleanings { member, times, by } => {
                let by = by.map(|by| self.agent(by).ok_or(())).transpose().ok()?;
                self.state.cleanings.restore(self.member(member)?, times, by);
            }
            Saved::RemoveGroup { name, graceful, left } => {
                let group = self.state.pools.find_group(&name)?;
                let before = self.state.pools.joined_before(group, left);
                self.parts.tasks.push(BackgroundTask::RemoveGroup(group, graceful, before));
            }
            Saved::Client { conn, name, late_stops } => {
                self.state.leases.set_name(conn, name);
                late_stops.into_iter().for_each(|member| self.state.agents.remember_late_stop(conn, member));
            }
        }
        Some(())
    }

    fn agent(&self, saved: AgentId) -> Option<AgentId> {
        self.parts.ids.agents.get(&saved).copied()
    }

    /// Returns a member, which keeps the number that it has in the handover.
    fn member(&self, saved: MemberId) -> Option<MemberId> {
        self.state.members.find(saved).map(|_| saved)
    }

    /// Starts the background work that was under way.
    fn finish(self) -> Option<()> {
        let state = self.state;
        for (id, _) in state.leases.left_holdings() {
            state.background.push(BackgroundTask::Holding(id));
        }
        let pending = state.agents.iter().filter(|(_, agent)| agent.is_pending).map(|(id, _)| id);
        for id in pending.collect::<Vec<_>>() {
            state.agents.set_to_suspend(id, state.members.of_agent(id));
            state.background.push(BackgroundTask::Agent(id));
        }
        for id in state.agents.iter().map(|(id, _)| id).collect::<Vec<_>>() {
            state.note_room(id);
        }
        for id in self.parts.ids.pools.values() {
            state.pools.restore_slots(*id, state.slots(*id));
            // It may lack room for its starts.
            state.pools.touch(*id);
        }
        std::mem::take(&mut self.parts.tasks).into_iter().for_each(|task| state.background.push(task));
        for group in state.pools.groups().map(|(id, _)| id).collect::<Vec<_>>() {
            if state.waiters.queued(Place::Group(group)) > 0 {
                state.pools.reconsider_group(group);
            }
            if !state.pools.is_lasting(group) {
                state.background.push(BackgroundTask::EndGroup(group));
            }
        }
        Some(())
    }

    fn read_pool(&mut self, saved: SavedPool, step: &mut Step<'_, '_>) -> Option<()> {
        let SavedPool { id: saved_id, is_removed, is_retiring, is_retiming, is_behind, .. } = saved;
        let id = self.state.pools.restore(saved, step)?;
        let tasks = [
            is_removed.then_some(BackgroundTask::Remove(id)),
            is_retiring.then_some(BackgroundTask::Retire(id, None)),
            is_retiming.then_some(BackgroundTask::Retime(id, None)),
            is_behind.then_some(BackgroundTask::Settle(id)),
        ];
        self.parts.tasks.extend(tasks.into_iter().flatten());
        self.parts.ids.pools.insert(saved_id, id);
        Some(())
    }

    fn read_group(&mut self, name: &Arc<[u8]>, pools: &[PoolId]) -> Option<()> {
        self.state.pools.find_or_add_group(name);
        for pool in pools {
            let id = *self.parts.ids.pools.get(pool)?;
            self.state.pool(id).group.is_none().then_some(())?;
            self.state.pools.join_group(id, name);
            let group = self.state.pool(id).group.filter(|_| !self.state.pool(id).is_leaving);
            self.state.members.set_group(id, group);
        }
        Some(())
    }

    fn read_agent(&mut self, saved: &SavedAgent, step: &mut Step<'_, '_>) -> Option<()> {
        let SavedAgent { provides, cleans, capacity, is_pending, .. } = *saved;
        let pool = *self.parts.ids.pools.get(&saved.pool)?;
        let next = self.state.agents.next_id();
        let provider = match saved.state {
            SavedProviderState::Serves(conn) => ProviderState::Serves(conn),
            SavedProviderState::Dismissed(conn) => ProviderState::Dismissed(conn),
            SavedProviderState::Grace(until) => ProviderState::Grace(step.timers.arm(until, Timer::Grace(next))),
            SavedProviderState::Lost => ProviderState::Lost,
        };
        let mut agent = Agent::new(provider, pool);
        (agent.provides, agent.cleans, agent.capacity, agent.is_pending) = (provides, cleans, capacity, is_pending);
        self.parts.ids.agents.insert(saved.id, self.state.agents.insert(agent)?);
        Some(())
    }

    /// Adds a member that is in no queue yet.
    pub fn add_member(
        &mut self,
        name: &[u8],
        saved: &mut SavedMember,
        pool: PoolId,
        step: &mut Step<'_, '_>,
    ) -> Option<MemberId> {
        let state = &mut *self.state;
        let owner = match saved.owner {
            MemberOwner::Fixed => MemberOwner::Fixed,
            MemberOwner::Agent(agent) => MemberOwner::Agent(*self.parts.ids.agents.get(&agent)?),
        };
        let id = state.members.restore(name, saved, pool, owner, step.now)?;
        let mut arm = |at| step.timers.arm(at, Timer::Phase(id));
        let phase = match saved.phase {
            SavedPhase::Free(at) => MemberPhase::Free(at.map(arm)),
            SavedPhase::Checking(at) => MemberPhase::Checking(arm(at)),
            SavedPhase::Stopping(at) => MemberPhase::Stopping(arm(at)),
            SavedPhase::Unclean => MemberPhase::Unclean,
            SavedPhase::Cleaning(agent, at) => {
                MemberPhase::Cleaning { agent: *self.parts.ids.agents.get(&agent)?, timer: at.map(arm) }
            }
            SavedPhase::Quarantined(at) => MemberPhase::Quarantined(at.map(arm)),
            SavedPhase::Held(at) => MemberPhase::Held(arm(at)),
            SavedPhase::Delayed(at) => MemberPhase::Delayed(arm(at)),
            SavedPhase::CleanLater(at) => MemberPhase::CleanLater(arm(at)),
            SavedPhase::InUse | SavedPhase::Orphaned => MemberPhase::Orphaned,
        };
        if let MemberOwner::Agent(agent) = owner {
            state.agents.backoff(agent).add(id, saved.born);
        }
        state.members.set_phase(id, phase);
        state.members.arm_life(id, &state.pools.get(pool).settings, step);
        state.pools.touch(pool);
        Some(id)
    }

    /// Adds a lease that is found by its number and token later.
    pub fn add_lease(&mut self, saved: SavedLease, step: &mut Step<'_, '_>) -> Option<LeaseId> {
        let member = self.member(saved.member)?;
        let left = match (saved.conn, saved.left) {
            (None, Some(left)) => Some(*self.parts.ids.holdings.get(&left)?),
            _ => None,
        };
        let state = &mut *self.state;
        (state.phase_of(member) == PhaseKind::Orphaned).then_some(())?;
        let pool = state.member(member).pool;
        let id = state.leases.restore(SavedLease { member, left, ..saved }, pool);
        state.members.enter_state(member, MemberPhase::InUse(id));
        state.arm_lease(id, step);
        Some(id)
    }

    fn read_reason(&mut self, member: MemberId, since: Time, reason: Reason) -> Option<()> {
        let member = self.member(member)?;
        let kind = self.state.phase_of(member);
        PhaseKind::REASONED.contains(&kind).then_some(())?;
        self.state.members.set_reason(member, since, reason);
        Some(())
    }

    fn read_waiter(&mut self, saved: SavedWaiter, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let place = match saved.place {
            SavedPlace::Pool(pool) => Place::Pool(*self.parts.ids.pools.get(&pool)?),
            SavedPlace::Group(name) => Place::Group(state.pools.find_group(&name)?),
        };
        // A filter asks for something, and one that names a member is for that one alone.
        let is_sound = |filter: &Filter| {
            !filter.is_empty() && (filter.member.is_none() || saved.count.is_none_or(|count| count == 1))
        };
        saved.filter.as_deref().is_none_or(is_sound).then_some(())?;
        let waiter = Waiter {
            conn: saved.conn,
            place,
            rank: (saved.priority, saved.arrival),
            since: saved.since,
            priority: saved.priority,
            count: saved.count,
            filter: saved.filter,
            lease: saved.lease,
            want: saved.want,
            until: saved.until,
            timer: None,
            class: None,
        };
        let most = if waiter.asks_for_starts() { waiter.members() } else { 0 };
        (waiter.want <= most).then_some(())?;
        state.waiters.insert(waiter, step).map(|_| ())
    }
}
