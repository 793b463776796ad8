//! Restoring of what another process saved. It refuses records that contradict each other.

use super::saved::*;
use super::*;
use poolcounter_service::contract::Unreadable;
use std::collections::HashMap;

/// The present ids of saved ones.
#[derive(Default)]
struct Ids {
    pools: HashMap<PoolId, PoolId>,
    agents: HashMap<AgentId, AgentId>,
    holdings: HashMap<HoldingId, HoldingId>,
    members: HashMap<MemberId, MemberId>,
}

/// A state that is being restored. Each method returns None when the record contradicts the others.
struct Reading<'a> {
    state: &'a mut State,
    ids: Ids,
    /// The background work of pools, which begins at the end.
    tasks: Vec<BackgroundTask>,
}

impl State {
    /// Continues with the records that another process saved.
    ///
    /// # Errors
    ///
    /// When they contradict each other.
    pub fn restore(
        &mut self,
        records: impl IntoIterator<Item = Record>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Unreadable> {
        // Background work goes on later, as it would have.
        step.timers.exhaust_budget();
        let mut reading = Reading::new(self);
        for Record(saved) in records {
            reading.read(saved, step).ok_or_else(|| {
                Unreadable("members: a record refers to what there is not, or stands there twice".into())
            })?;
        }
        reading.finish();
        self.settle(step);
        Ok(())
    }
}

impl<'a> Reading<'a> {
    fn new(state: &'a mut State) -> Self {
        Reading { state, ids: Ids::default(), tasks: Vec::new() }
    }

    /// Adds one record to the state.
    fn read(&mut self, saved: Saved, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        match saved {
            Saved::Numbers { lease, arrival, start, past } => {
                state.pools.restore_past(&past);
                state.leases.number_from(lease);
                state.waiters.number_from(arrival);
                state.starts.number_from(start);
            }
            Saved::Pool(saved) => self.read_pool(*saved, step)?,
            Saved::Group { name, pools } => {
                state.pools.find_or_add_group(&name);
                for pool in pools {
                    let id = *self.ids.pools.get(&pool)?;
                    state.pool(id).group.is_none().then_some(())?;
                    state.pools.join_group(id, &name);
                    state.pools.touch(id);
                }
            }
            Saved::Agent(saved) => self.read_agent(&saved, step)?,
            Saved::Holding { id, address, is_bye } => {
                self.ids.holdings.insert(id, state.leases.restore_holding(address, is_bye));
            }
            Saved::Member(saved) => self.read_member(*saved, step)?,
            Saved::Lease(saved) => self.read_lease(saved, step)?,
            Saved::Waiter(saved) => self.read_waiter(*saved, step)?,
            Saved::Start { number, conn, pool_name, since, under_way } => {
                let under_way = match under_way {
                    Some((agent, until)) => {
                        let agent = *self.ids.agents.get(&agent)?;
                        Some((state.agents.get(agent).pool, agent, until))
                    }
                    None => None,
                };
                state.starts.insert(number, conn, pool_name, since, under_way, step).then_some(())?;
            }
            Saved::Rule { lease, rule } => {
                let lease = state.leases.find(lease)?;
                let token = state.leases.get(lease).token.as_ref()?;
                token.rule.is_none().then_some(())?;
                state.leases.count_for_rule(lease, rule.into());
            }
            Saved::Backoff { agent, until, next, failed } => {
                let agent = *self.ids.agents.get(&agent)?;
                let timer = until.map(|until| step.timers.arm(until, Timer::Backoff(agent)));
                state.agents.restore_backoff(agent, Backoff::restored(timer, next, failed)).then_some(())?;
            }
            Saved::Session { agent, name } => {
                let agent = *self.ids.agents.get(&agent)?;
                state.agents.set_session(agent, name).then_some(())?;
            }
            Saved::Proven { member } => state.members.set_proven(*self.ids.members.get(&member)?),
            Saved::Reason { member, since, reason } => {
                let member = *self.ids.members.get(&member)?;
                let kind = state.phase_of(member);
                (kind != PhaseKind::Orphaned && PhaseKind::KEPT_OUT.contains(&kind)).then_some(())?;
                state.members.set_reason(member, since, reason);
            }
            Saved::Hold { member, reason } => {
                let member = *self.ids.members.get(&member)?;
                let (span, _) = state.members.take_hold(member)?;
                state.members.set_hold(member, span, reason);
            }
            Saved::Awaiting { held, used } => {
                let (held, used) = (*self.ids.members.get(&held)?, *self.ids.members.get(&used)?);
                let is_used = state.phase_of(used) == PhaseKind::InUse;
                (is_used && matches!(state.member(held).phase, MemberPhase::Held(None))).then_some(())?;
                state.members.awaited().add(held, used);
            }
            Saved::RemoveGroup { name, graceful, left } => {
                self.tasks.push(BackgroundTask::RemoveGroup(state.pools.find_group(&name)?, graceful, left));
            }
            Saved::Lost { agent, at, address } => {
                state.agents.note_lost(*self.ids.agents.get(&agent)?, at, address).then_some(())?;
            }
            Saved::Client { conn, name, late_stops } => {
                state.leases.set_name(conn, name);
                late_stops.into_iter().for_each(|member| state.agents.remember_late_stop(conn, member));
            }
        }
        Some(())
    }

    /// Begins the background work that was under way.
    fn finish(self) {
        let state = self.state;
        for (id, _) in state.leases.left_holdings() {
            state.background.push(BackgroundTask::Holding(id));
        }
        let pending = state.agents.iter().filter(|(_, agent)| agent.is_pending).map(|(id, _)| id);
        for id in pending.collect::<Vec<_>>() {
            state.agents.set_to_suspend(id, state.members.of_agent(id));
            state.background.push(BackgroundTask::Agent(id));
        }
        for id in self.ids.pools.values() {
            state.pools.restore_slots(*id, state.slots(*id));
        }
        self.tasks.into_iter().for_each(|task| state.background.push(task));
        for group in state.pools.groups().map(|(id, _)| id).collect::<Vec<_>>() {
            if state.waiters.has_unplaced(group) {
                state.pools.reconsider_group(group);
            }
            if !state.pools.is_lasting(group) {
                state.background.push(BackgroundTask::EndGroup(group));
            }
        }
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
        self.tasks.extend(tasks.into_iter().flatten());
        self.ids.pools.insert(saved_id, id);
        Some(())
    }

    fn read_agent(&mut self, saved: &SavedAgent, step: &mut Step<'_, '_>) -> Option<()> {
        let SavedAgent { provides, cleans, capacity, is_pending, .. } = *saved;
        let pool = *self.ids.pools.get(&saved.pool)?;
        let next = self.state.agents.next_id();
        let provider = match saved.state {
            SavedProviderState::Serves(conn) => ProviderState::Serves(conn),
            SavedProviderState::Dismissed(conn) => ProviderState::Dismissed(conn),
            SavedProviderState::Grace(until) => ProviderState::Grace(step.timers.arm(until, Timer::Grace(next))),
            SavedProviderState::Lost => ProviderState::Lost,
        };
        let agent = Agent { provides, cleans, capacity, is_pending, ..Agent::new(provider, pool) };
        self.ids.agents.insert(saved.id, self.state.agents.insert(agent)?);
        Some(())
    }

    fn read_member(&mut self, mut saved: SavedMember, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let pool = *self.ids.pools.get(&saved.pool)?;
        let owner = match saved.owner {
            SavedOwner::Fixed => MemberOwner::Fixed,
            SavedOwner::Agent(agent) => MemberOwner::Agent(*self.ids.agents.get(&agent)?),
        };
        let id = state.members.restore(&mut saved, pool, owner, step.now)?;
        self.ids.members.insert(saved.id, id);
        let mut arm = |at| step.timers.arm(at, Timer::Phase(id));
        let phase = match saved.phase {
            SavedPhase::Free(at) => MemberPhase::Free(at.map(arm)),
            SavedPhase::Checking(at) => MemberPhase::Checking(arm(at)),
            SavedPhase::Stopping(at) => MemberPhase::Stopping(arm(at)),
            SavedPhase::Unclean(_) => MemberPhase::Unclean,
            SavedPhase::Cleaning(agent, at) => {
                MemberPhase::Cleaning { agent: *self.ids.agents.get(&agent)?, timer: arm(at) }
            }
            SavedPhase::Quarantined(at) => MemberPhase::Quarantined(at.map(arm)),
            SavedPhase::Held(at) => MemberPhase::Held(Some(arm(at))),
            SavedPhase::Awaiting => MemberPhase::Held(None),
            SavedPhase::Delayed(at) => MemberPhase::Delayed(arm(at)),
            SavedPhase::InUse | SavedPhase::Orphaned => MemberPhase::Orphaned,
        };
        if let MemberOwner::Agent(agent) = owner {
            state.agents.backoff(agent).add(id, saved.born);
        }
        state.members.enter_state(id, phase);
        state.members.arm_life(id, &state.pools.get(pool).settings, step);
        state.pools.touch(pool);
        Some(())
    }

    fn read_lease(&mut self, saved: SavedLease, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let member = *self.ids.members.get(&saved.member)?;
        (state.phase_of(member) == PhaseKind::Orphaned).then_some(())?;
        let left = match (saved.conn, saved.left) {
            (None, Some(left)) => Some(*self.ids.holdings.get(&left)?),
            _ => None,
        };
        let pool = state.member(member).pool;
        let id = state.leases.restore(SavedLease { member, left, ..saved }, pool)?;
        state.members.enter_state(member, MemberPhase::InUse(id));
        state.arm_lease(id, step);
        Some(())
    }

    fn read_waiter(&mut self, saved: SavedWaiter, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let pool = match saved.pool {
            Some(pool) => Some(*self.ids.pools.get(&pool)?),
            None => None,
        };
        let source = match saved.group {
            Some(name) => WaitSource::Group(state.pools.find_group(&name)?, pool),
            None => WaitSource::Pool(pool?),
        };
        let waiter = Waiter {
            conn: saved.conn,
            source,
            arrival: saved.arrival,
            since: saved.since,
            priority: saved.priority,
            count: saved.count,
            filter: saved.filter,
            lease: saved.lease,
            want: saved.want,
            starts_used: saved.starts_used,
            no_wait: saved.no_wait,
            until: saved.until,
            timer: None,
            class: None,
        };
        state.waiters.insert(waiter, step)?;
        pool.into_iter().for_each(|pool| state.pools.touch(pool));
        Some(())
    }
}
