//! Reading of a handover, in slices after an upgrade. Until the last record is read nothing else happens to the state.
//! Records that contradict each other are refused.

use super::saved::Saved;
use super::{
    AgentId, GroupId, HoldingId, Member, Phase, Place, PoolId, SavedMember, State, Step, Task, Timer, Waiter, saved,
};
use poolcounter_core::{Reader, Unreadable};
use poolcounter_protocol::members::pool_settings::Filter;
use std::collections::BTreeMap;

/// Records that are read in a slice: about a millisecond.
const SLICE: usize = 1024;
/// Most members for which room is made before they are read: some hundred MiB.
const MOST_ROOM: usize = 1 << 20;

/// Progress of reading a handover.
#[derive(Default)]
pub(super) struct Loading {
    /// Present ids by saved ones.
    pools: BTreeMap<PoolId, PoolId>,
    groups: BTreeMap<GroupId, GroupId>,
    agents: BTreeMap<AgentId, AgentId>,
    holdings: BTreeMap<HoldingId, HoldingId>,
    joins: u64,
}

impl State {
    /// Takes a handover. The state is complete after [`State::restore_more`].
    ///
    /// # Errors
    ///
    /// Fails if it is cut off.
    pub fn restore(&mut self, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        // A record of nothing is the last.
        let records = saved.keep_records(|record| record == [0])?;
        self.loading = Some(Box::new((records, Loading::default())));
        Ok(())
    }

    /// Reads a slice of a handover. Returns true when there is no more.
    ///
    /// # Errors
    ///
    /// Fails if a record contradicts another. The rest is lost then.
    pub fn restore_more(&mut self, step: &mut Step<'_, '_>) -> Result<bool, Unreadable> {
        let Some(mut loading) = self.loading.take() else { return Ok(true) };
        // Background work goes on later, as it would have.
        step.timers.exhaust_budget();
        let (records, known) = &mut *loading;
        let contradiction = || Unreadable("members: a record refers to nothing, or stands there twice".into());
        let mut read = 0;
        while read < SLICE {
            if let Some(mut block) = records.take_if(saved::BLOCK).map(|block| &block[1..]) {
                while !block.is_empty() {
                    let member = saved::unpack(&mut block).ok_or_else(contradiction)?;
                    known.read_member(member, self, step).ok_or_else(contradiction)?;
                    read += 1;
                }
                continue;
            }
            let Some(record) = records.take::<Option<Saved>>()? else {
                self.finish_restore(loading.1);
                self.settle(step);
                return Ok(true);
            };
            known.read(record, self, step).ok_or_else(contradiction)?;
            read += 1;
        }
        self.loading = Some(loading);
        Ok(false)
    }

    /// Starts the background work that was under way.
    fn finish_restore(&mut self, loading: Loading) {
        self.pools.joins = loading.joins;
        for (id, _) in self.leases.holdings().filter(|(_, holding)| holding.conn.is_none()) {
            self.background.push(Task::Holding(id));
        }
        for id in self.agents.iter().map(|(id, _)| id).collect::<Vec<_>>() {
            if self.agents.get(id).is_pending() {
                self.agents.get_mut(id).to_pass = self.members.of_agent(id).len();
                self.background.push(Task::Agent(id));
            }
            self.note_room(id);
        }
        for id in loading.pools.values() {
            // It may lack room for its starts.
            self.pools.touch(*id);
        }
        for group in loading.groups.into_values() {
            if self.waiters.queued(Place::Group(group)) > 0 {
                self.pools.reconsider_group(group);
            }
            self.pools.touch_group(group);
        }
    }
}

/// Each method returns None if the record contradicts other records.
impl Loading {
    /// Adds one record to the state.
    fn read(&mut self, saved: Saved, state: &mut State, step: &mut Step<'_, '_>) -> Option<()> {
        match saved {
            Saved::Numbers { lease, arrival, start, joins, members, past } => {
                state.pools.past.restore(&past);
                state.leases.number_from(lease);
                state.waiters.next_arrival = arrival;
                state.starts.next_number = start;
                state.members.reserve(members.min(MOST_ROOM));
                self.joins = joins;
            }
            Saved::Pool { id: saved, pool, cull, figures } => {
                let id = state.pools.restore(*pool, cull, &figures, step)?;
                state.background.push(Task::Pool(id));
                self.pools.insert(saved, id);
            }
            Saved::Group { id: saved, name, pools, removal } => {
                let group = state.pools.find_or_add_group(&name);
                self.groups.insert(saved, group);
                state.pools.group_mut(group).removal = removal;
                for (joined, pool) in pools {
                    let id = *self.pools.get(&pool)?;
                    state.pool(id).group.is_none().then_some(())?;
                    state.pools.joins = joined;
                    state.pools.join_group(id, &name);
                    state.members.set_group(id, Some(group).filter(|_| !state.pool(id).is_leaving));
                }
            }
            Saved::Agent { id: saved, mut agent, grace, backoff } => {
                agent.pool = *self.pools.get(&agent.pool)?;
                let id = state.agents.next_id();
                agent.grace = grace.map(|until| step.timers.arm(until, Timer::Grace(id)));
                agent.backoff = backoff.map(|until| step.timers.arm(until, Timer::Backoff(id)));
                self.agents.insert(saved, state.agents.insert(*agent)?);
            }
            Saved::Holding { id, holding } => {
                self.holdings.insert(id, state.leases.restore_holding(holding)?);
            }
            Saved::Member(saved) => self.read_member(*saved, state, step)?,
            Saved::Waiter(saved) => self.read_waiter(*saved, state, step)?,
            Saved::Start { number, agent, since, until } => {
                let agent = *self.agents.get(&agent)?;
                let pool = state.agents.get(agent).pool;
                state.agents.get(agent).conn?;
                state.starts.insert(number, (pool, agent), since, until, step).then_some(())?;
            }
            Saved::Unknown(kept) => _ = state.kept.unknown.insert(kept.name().clone(), kept),
            Saved::Client { conn, name, pool } => {
                state.leases.set_name(conn, name);
                pool.into_iter().for_each(|pool| state.agents.set_last_pool(conn, pool));
            }
        }
        Some(())
    }

    fn read_member(&mut self, mut saved: SavedMember, state: &mut State, step: &mut Step<'_, '_>) -> Option<()> {
        let SavedMember { member, attributes, lease, .. } = &mut saved;
        member.pool = *self.pools.get(&member.pool)?;
        if let Some(agent) = &mut member.owner {
            *agent = *self.agents.get(agent)?;
        }
        if let Some(agent) = member.cleaner() {
            member.set_of(*self.agents.get(&agent)?);
        }
        if let Some(holding) = lease.as_mut().and_then(|lease| lease.holding.as_mut()) {
            *holding = *self.holdings.get(holding)?;
        }
        // Queues are in the order of time.
        member.since = member.since.min(step.now);
        let pool = member.pool;
        let id = state.members.create(Member { phase: Phase::Orphaned, ..member.to_save() })?;
        attributes.take().into_iter().for_each(|attributes| state.members.set_attributes(id, attributes));
        state.resume(id, saved, step)?;
        state.members.arm_life(id, &state.pools.get(pool).settings, step);
        state.pools.touch(pool);
        Some(())
    }

    fn read_waiter(&mut self, mut waiter: Waiter, state: &mut State, step: &mut Step<'_, '_>) -> Option<()> {
        waiter.place = match waiter.place {
            Place::Pool(pool) => Place::Pool(*self.pools.get(&pool)?),
            Place::Group(group) => Place::Group(*self.groups.get(&group)?),
        };
        // A filter asks for something, and one that names a member is for that one alone.
        let is_sound = |filter: &Filter| {
            !filter.is_empty() && (filter.member.is_none() || waiter.count.is_none_or(|count| count == 1))
        };
        waiter.filter.as_deref().is_none_or(is_sound).then_some(())?;
        (waiter.want <= waiter.most_starts()).then_some(())?;
        state.waiters.insert(waiter, step).map(|_| ())
    }
}
