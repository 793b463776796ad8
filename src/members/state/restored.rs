//! Goes on from what another process saved, and refuses what contradicts itself.

use super::saved::*;
use super::waiters::WaitSource;
use super::*;
use poolcounter_service::contract::Unreadable;
use std::collections::HashMap;

impl State {
    /// Goes on from what another process saved.
    ///
    /// # Errors
    ///
    /// When it contradicts itself.
    pub fn restore(
        &mut self,
        records: impl IntoIterator<Item = Record>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Unreadable> {
        // What goes on bit by bit goes on later, as it would have.
        (self.budget, self.budget_since) = (0, step.now);
        let mut reading = Reading { state: self, ids: Ids::default() };
        for Record(saved) in records {
            let read = reading.read(saved, step);
            read.ok_or_else(|| {
                Unreadable("members: a record refers to what there is not, or stands there twice".into())
            })?;
        }
        self.restore_background();
        self.settle(step);
        self.budget = self.limits.slice;
        Ok(())
    }

    /// Has that go on which was too much for one step.
    fn restore_background(&mut self) {
        for (index, holding) in &self.holdings {
            if holding.conn.is_none() {
                self.background.push_back(BackgroundTask::Holding(HoldingId::from_index(index)));
            }
        }
        for (index, agent) in &mut self.agents {
            if agent.is_pending {
                agent.to_orphan = agent.members.len();
                self.pools[agent.pool.index()].orphaned_free += 1;
                self.background.push_back(BackgroundTask::Agent(AgentId::from_index(index)));
            }
        }
        for (index, pool) in &mut self.pools {
            let id = PoolId::from_index(index);
            pool.most_slots = pool.slots().max(u64::from(pool.settings.max));
            let chores = [
                pool.is_removed.then_some(BackgroundTask::Remove(id)),
                pool.is_retiring.then_some(BackgroundTask::Retire(id, None)),
                pool.is_retiming.then_some(BackgroundTask::Retime(id, None)),
                pool.is_behind.then_some(BackgroundTask::Settle(id)),
            ];
            self.background.extend(chores.into_iter().flatten());
        }
    }
}

/// What the numbers in the records are now.
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
}

impl Reading<'_> {
    fn read(&mut self, saved: Saved, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        match saved {
            Saved::Numbers { lease, arrival, start, past } => {
                state.past.restore(&past);
                state.next_lease = state.next_lease.max(lease);
                (state.next_arrival, state.next_start) = (arrival, start);
            }
            Saved::Pool(saved) => self.read_pool(*saved, step)?,
            Saved::Group { name, pools } => {
                for pool in pools {
                    let id = *self.ids.pools.get(&pool)?;
                    state.pool(id).group.is_none().then_some(())?;
                    state.join_group(id, Some(&name));
                    state.pool_mut(id).is_to_reconsider = false;
                }
            }
            Saved::Agent(saved) => self.read_agent(&saved, step)?,
            Saved::Holding { id, address, is_bye } => {
                let holding = Holding { address, is_bye, ..Holding::default() };
                let holding = HoldingId::from_index(state.holdings.insert(holding));
                self.ids.holdings.insert(id, holding);
            }
            Saved::Member(saved) => self.read_member(*saved, step)?,
            Saved::Lease(saved) => self.read_lease(saved, step)?,
            Saved::Waiter(saved) => self.read_waiter(*saved, step)?,
            Saved::Start { number, conn, pool_name, since, under_way } => {
                self.read_start(number, conn, pool_name, since, under_way, step)?;
            }
            Saved::Rule { lease, rule } => {
                let lease = state.find_lease(lease)?;
                let is_open = state.leases[lease.index()].token.as_ref().is_some_and(|token| token.rule.is_none());
                is_open.then_some(())?;
                state.count_for_rule(lease, rule.into());
            }
            Saved::Client { conn, name, late_stops } => {
                state.client(conn).name = name;
                if !late_stops.is_empty() {
                    state.work(conn).late_stops.extend(late_stops);
                }
            }
        }
        Some(())
    }

    fn read_pool(&mut self, saved: SavedPool, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        (saved.is_removed || state.find_pool(&saved.name).is_err()).then_some(())?;
        let hash = state.names.hash(&saved.name);
        let mut pool = Pool::new(saved.name.clone(), hash, saved.settings);
        let id = PoolId::from_index(state.pools.vacant_key());
        (pool.is_leaving, pool.is_from_file) = (saved.is_leaving, saved.is_from_file);
        (pool.is_removed, pool.is_retiring) = (saved.is_removed, saved.is_retiring);
        (pool.is_retiming, pool.is_behind) = (saved.is_retiming, saved.is_behind);
        (pool.owed, pool.next_backoff) = (saved.owed, saved.next_backoff);
        pool.backoff = saved.backoff.map(|at| step.timers.arm(at, Timer::Backoff(id)));
        pool.cull = saved.cull.map(|at| step.timers.arm(at, Timer::Cull(id)));
        pool.figures.restore(&saved.figures);
        *pool.times = saved.times;
        state.pools.insert(pool);
        if !saved.is_removed {
            let pools = &state.pools;
            state.names.insert(hash, id, |id| pools[id.index()].hash);
            state.order.insert(saved.name, id);
        }
        self.ids.pools.insert(saved.id, id);
        Some(())
    }

    fn read_agent(&mut self, saved: &SavedAgent, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let pool = *self.ids.pools.get(&saved.pool)?;
        let id = AgentId::from_index(state.agents.vacant_key());
        let standing = match saved.standing {
            SavedProviderState::Serves(conn) => {
                state.work(conn).agent.is_none().then_some(())?;
                state.work(conn).agent = Some(id);
                ProviderState::Serves(conn)
            }
            SavedProviderState::Dismissed(conn) => {
                state.work(conn).dismissed.push(id);
                ProviderState::Dismissed(conn)
            }
            SavedProviderState::Grace(until) => ProviderState::Grace(step.timers.arm(until, Timer::Grace(id))),
            SavedProviderState::Lost => ProviderState::Lost,
        };
        let SavedAgent { provides, cleans, capacity, is_pending, .. } = *saved;
        state.agents.insert(Agent { standing, pool, provides, cleans, capacity, is_pending, ..Agent::of(pool) });
        if state.agents[id.index()].is_listed() {
            state.pool_mut(pool).agents.push(id);
        }
        self.ids.agents.insert(saved.id, id);
        Some(())
    }

    fn read_member(&mut self, saved: SavedMember, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let pool = *self.ids.pools.get(&saved.pool)?;
        (!state.pool(pool).members.contains_key(&saved.name)).then_some(())?;
        let owner = match saved.owner {
            SavedOwner::Fixed => MemberOwner::Fixed,
            SavedOwner::Agent(agent) => MemberOwner::Agent(*self.ids.agents.get(&agent)?),
        };
        let id = state.create_member(pool, &saved.name, saved.attributes, owner, step);
        let member = &mut state.members[id.index()];
        (member.born, member.since, member.proved) = (saved.born, saved.since, saved.proved);
        (member.uses, member.share) = (saved.uses, saved.share);
        (member.is_leaving, member.is_from_file) = (saved.is_leaving, saved.is_from_file);
        if let Some(span) = saved.hold {
            state.holds.insert(id, span);
        }
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
            SavedPhase::Held(at) => MemberPhase::Held(arm(at)),
            SavedPhase::Delayed(at) => MemberPhase::Delayed(arm(at)),
            SavedPhase::InUse | SavedPhase::Orphaned => MemberPhase::Orphaned,
        };
        let pool = &mut state.pools[pool.index()];
        if matches!(phase, MemberPhase::Free(_)) {
            pool.free.push_back(&mut state.links_free, id);
        }
        if matches!(phase, MemberPhase::Free(_) | MemberPhase::Checking(_)) {
            pool.idle.push_back(&mut state.links_phase, id);
        }
        state.enter_state(id, phase);
        state.arm_life(id, step);
        Some(())
    }

    fn read_lease(&mut self, saved: SavedLease, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let SavedLease { number, conn, holder, since, is_reported, .. } = saved;
        let member = *self.ids.members.get(&saved.member)?;
        let is_free_for_it =
            state.member(member).phase.kind() == PhaseKind::Orphaned && state.find_lease(number).is_none();
        is_free_for_it.then_some(())?;
        let token = saved.token.map(|(token, span, until)| Box::new(TokenLease { token, span, until, rule: None }));
        let lease = Lease { number, member, holding: None, holder, since, is_reported, timer: None, token };
        let id = LeaseId::from_index(state.leases.insert(lease));
        state.index_lease(id);
        let holding = match (conn, saved.left) {
            (Some(conn), _) => Some(state.holding_of(conn)),
            (None, Some(left)) => Some(*self.ids.holdings.get(&left)?),
            (None, None) => None,
        };
        state.leases[id.index()].holding = holding;
        if let Some(holding) = holding {
            state.attach_lease(id, holding, state.member(member).pool);
        }
        state.enter_state(member, MemberPhase::InUse(id));
        state.arm_lease(id, step);
        Some(())
    }

    fn read_waiter(&mut self, saved: SavedWaiter, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let pool = match saved.pool {
            Some(pool) => Some(*self.ids.pools.get(&pool)?),
            None => None,
        };
        let place = match saved.group {
            Some(name) => {
                let is_named = |id: GroupId| state.groups[id.index()].name == name;
                WaitSource::Group(state.group_names.find(state.group_names.hash(&name), is_named)?, pool)
            }
            None => WaitSource::Pool(pool?),
        };
        (state.client(saved.conn).waiter.is_none() && saved.priority < 10).then_some(())?;
        let id = WaiterId::from_index(state.waiters.vacant_key());
        let SavedWaiter {
            conn, arrival, since, until, priority, count, filter, lease, want, starts_used, no_wait, ..
        } = saved;
        let timer = step.timers.arm(Waiter::next_look(since, until, priority, step.now), Timer::Wait(id));
        let waiter = Waiter {
            conn,
            place,
            arrival,
            since,
            priority,
            count,
            filter,
            lease,
            want,
            starts_used,
            no_wait,
            until,
            timer,
        };
        state.enqueue(waiter);
        Some(())
    }

    fn read_start(
        &mut self,
        number: u64,
        conn: ConnId,
        pool_name: Arc<[u8]>,
        since: Time,
        under_way: Option<(AgentId, Time)>,
        step: &mut Step<'_, '_>,
    ) -> Option<()> {
        let state = &mut *self.state;
        let id = StartId::from_index(state.starts.vacant_key());
        let progress = match under_way {
            Some((agent, until)) => {
                let agent = *self.ids.agents.get(&agent)?;
                let entry = &mut state.agents[agent.index()];
                entry.starts += 1;
                let pool = entry.pool;
                state.pool_mut(pool).starts += 1;
                state.starts_under_way += 1;
                Progress::UnderWay { agent, timer: step.timers.arm(until, Timer::Start(id)) }
            }
            None => {
                state.work(conn).late_starts += 1;
                Progress::Late
            }
        };
        state.starts.insert(Start { number, conn, pool_name, since, progress });
        state.work(conn).starts.insert(number, id).is_none().then_some(())
    }
}
