//! What of the members outlives the process, record by record: written by one that ends, read by the one that takes over.
//! It is independent of the tables, so that these can change. What is written here cannot, without a new version of the handover.

use super::waiters::Place;
use super::*;
use crate::service::Unreadable;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// One thing that is saved. A record stands behind those that it refers to, by the numbers that they say.
#[derive(Serialize, Deserialize)]
pub struct Record(Saved);

#[derive(Serialize, Deserialize)]
enum Saved {
    Numbers { lease: u64, arrival: u64, start: u64 },
    Pool(Box<SavedPool>),
    Group { name: Arc<[u8]>, pools: Vec<PoolId> },
    Agent { id: AgentId, conn: ConnId, pool: PoolId, provides: bool, cleans: bool, capacity: Option<u32> },
    Grace { id: GraceId, pool: PoolId, until: Time },
    Member(Box<SavedMember>),
    Lease(SavedLease),
    Waiter(Box<SavedWaiter>),
    Start { number: u64, conn: ConnId, pool_name: Arc<[u8]>, since: Time, under_way: Option<(AgentId, Time)> },
    Client { conn: ConnId, name: Option<Arc<[u8]>>, late_stops: Vec<Arc<[u8]>> },
}

#[derive(Serialize, Deserialize)]
struct SavedPool {
    id: PoolId,
    name: Arc<[u8]>,
    settings: Settings,
    is_leaving: bool,
    owed: u32,
    backoff: Option<Time>,
    next_backoff: Span,
    cull: Option<Time>,
    figures: Vec<(String, u64)>,
    times: Times,
}

#[derive(Serialize, Deserialize)]
struct SavedMember {
    id: MemberId,
    pool: PoolId,
    name: Arc<[u8]>,
    attributes: Attributes,
    owner: SavedOwner,
    born: Time,
    since: Time,
    proved: Time,
    uses: u32,
    share: u16,
    is_leaving: bool,
    hold: Option<Span>,
    stage: SavedStage,
}

#[derive(Serialize, Deserialize)]
enum SavedOwner {
    Fixed,
    Agent(AgentId),
    Orphan(GraceId),
}

/// A stage with its deadline in place of its timer.
#[derive(Serialize, Deserialize)]
enum SavedStage {
    Free(Option<Time>),
    Checking(Time),
    InUse,
    Stopping(Time),
    Unclean(Option<Time>),
    Cleaning(AgentId, Time),
    Quarantined(Option<Time>),
    Held(Time),
    Delayed(Time),
    Orphaned,
}

#[derive(Serialize, Deserialize)]
struct SavedLease {
    number: u64,
    member: MemberId,
    conn: Option<ConnId>,
    holder: Holder,
    since: Time,
    is_reported: bool,
    token: Option<(Token, Span, Time)>,
}

#[derive(Serialize, Deserialize)]
struct SavedWaiter {
    conn: ConnId,
    /// The pool, or the group and the pool of its starts.
    pool: Option<PoolId>,
    group: Option<Arc<[u8]>>,
    arrival: u64,
    since: Time,
    until: Time,
    priority: u8,
    count: Option<u32>,
    filter: Option<Box<Filter>>,
    lease: Option<Span>,
    want: u32,
    is_hasty: bool,
}

impl State {
    /// Returns everything, with deadlines in place of timers.
    pub fn save<'a>(&'a self, timers: &'a Timers<'_, Timer>) -> impl Iterator<Item = Record> + 'a {
        let numbers = Saved::Numbers { lease: self.next_lease, arrival: self.next_arrival, start: self.next_start };
        let pools = self.order.values().map(|id| self.save_pool(*id, timers));
        let groups =
            self.groups.iter().map(|(_, group)| Saved::Group { name: group.name.clone(), pools: group.pools.clone() });
        let agents = self.order.values().flat_map(|id| &self.pool(*id).agents).map(|id| self.save_agent(*id));
        let graces = self.graces.iter().map(|(index, grace)| Saved::Grace {
            id: GraceId::from_index(index),
            pool: grace.pool,
            until: timers.deadline(&grace.timer),
        });
        let members =
            self.order.values().flat_map(|id| self.members_to_save(*id)).map(|id| self.save_member(id, timers));
        let mut leases: Vec<LeaseId> = self.leases.iter().map(|(index, _)| LeaseId::from_index(index)).collect();
        leases.sort_unstable_by_key(|id| self.leases[id.index()].number);
        let mut waiters: Vec<WaiterId> = self.waiters.iter().map(|(index, _)| WaiterId::from_index(index)).collect();
        waiters.sort_unstable_by_key(|id| self.waiter(*id).arrival);
        let clients = self.clients.iter().enumerate().filter_map(|(index, client)| {
            let late_stops: Vec<_> = client.work.iter().flat_map(|work| work.late_stops.iter().cloned()).collect();
            let is_known = client.name.is_some() || !late_stops.is_empty();
            is_known.then(|| Saved::Client { conn: ConnId::from_index(index), name: client.name.clone(), late_stops })
        });
        [numbers]
            .into_iter()
            .chain(pools)
            .chain(groups)
            .chain(agents)
            .chain(graces)
            .chain(members)
            .chain(leases.into_iter().map(|id| self.save_lease(id)))
            .chain(waiters.into_iter().map(|id| self.save_waiter(id)))
            .chain(self.starts.iter().map(|(_, start)| save_start(start, timers)))
            .chain(clients)
            .map(Record)
    }

    fn save_pool(&self, id: PoolId, timers: &Timers<'_, Timer>) -> Saved {
        let pool = self.pool(id);
        let deadline = |timer: &Option<TimerId>| timer.as_ref().map(|timer| timers.deadline(timer));
        Saved::Pool(Box::new(SavedPool {
            id,
            name: pool.name.clone(),
            settings: pool.settings.clone(),
            is_leaving: pool.is_leaving,
            owed: pool.owed,
            backoff: deadline(&pool.backoff),
            next_backoff: pool.next_backoff,
            cull: deadline(&pool.cull),
            figures: pool.figures.save(),
            times: (*pool.times).clone(),
        }))
    }

    fn save_agent(&self, id: AgentId) -> Saved {
        let Agent { conn, pool, provides, cleans, capacity, .. } = self.agents[id.index()];
        Saved::Agent { id, conn, pool, provides, cleans, capacity }
    }

    /// The members of a pool, those in its queues in the order of these.
    fn members_to_save(&self, id: PoolId) -> impl Iterator<Item = MemberId> {
        let pool = self.pool(id);
        let queues =
            [&pool.idle, &pool.unclean, &pool.cleaning].into_iter().flat_map(|list| list.iter(&self.links_stage));
        queues.chain(pool.members.values().copied().filter(|id| !self.links_stage.is_linked(*id)))
    }

    fn save_member(&self, id: MemberId, timers: &Timers<'_, Timer>) -> Saved {
        let member = self.member(id);
        let at = |timer: &TimerId| timers.deadline(timer);
        let stage = match &member.stage {
            Stage::Free(timer) => SavedStage::Free(timer.as_ref().map(at)),
            Stage::Checking(timer) => SavedStage::Checking(at(timer)),
            Stage::InUse(_) => SavedStage::InUse,
            Stage::Stopping(timer) => SavedStage::Stopping(at(timer)),
            Stage::Unclean(timer) => SavedStage::Unclean(timer.as_ref().map(at)),
            Stage::Cleaning { agent, timer } => SavedStage::Cleaning(*agent, at(timer)),
            Stage::Quarantined(timer) => SavedStage::Quarantined(timer.as_ref().map(at)),
            Stage::Held(timer) => SavedStage::Held(at(timer)),
            Stage::Delayed(timer) => SavedStage::Delayed(at(timer)),
            Stage::Orphaned => SavedStage::Orphaned,
        };
        let owner = match member.owner {
            Owner::Fixed => SavedOwner::Fixed,
            Owner::Agent(agent) => SavedOwner::Agent(agent),
            Owner::Orphan(grace) => SavedOwner::Orphan(grace),
        };
        Saved::Member(Box::new(SavedMember {
            id,
            pool: member.pool,
            name: member.name.clone(),
            attributes: member.attributes.as_deref().cloned().unwrap_or_default(),
            owner,
            born: member.born,
            since: member.since,
            proved: member.proved,
            uses: member.uses,
            share: member.share,
            is_leaving: member.is_leaving,
            hold: self.holds.get(&id).copied(),
            stage,
        }))
    }

    fn save_lease(&self, id: LeaseId) -> Saved {
        let lease = &self.leases[id.index()];
        Saved::Lease(SavedLease {
            number: lease.number,
            member: lease.member,
            conn: lease.conn,
            holder: lease.holder.clone(),
            since: lease.since,
            is_reported: lease.is_reported,
            token: lease.token.as_ref().map(|token| (token.token, token.span, token.until)),
        })
    }

    fn save_waiter(&self, id: WaiterId) -> Saved {
        let waiter = self.waiter(id);
        let group = match waiter.place {
            Place::Pool(_) => None,
            Place::Group(group, _) => Some(self.groups[group.index()].name.clone()),
        };
        Saved::Waiter(Box::new(SavedWaiter {
            conn: waiter.conn,
            pool: waiter.starts_in(),
            group,
            arrival: waiter.arrival,
            since: waiter.since,
            until: waiter.until,
            priority: waiter.priority,
            count: waiter.count,
            filter: waiter.filter.clone(),
            lease: waiter.lease,
            want: waiter.want,
            is_hasty: waiter.is_hasty,
        }))
    }

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
        let mut reading = Reading { state: self, ids: Ids::default() };
        for Record(saved) in records {
            let read = reading.read(saved, step);
            read.ok_or_else(|| {
                Unreadable("members: a record refers to what there is not, or stands there twice".into())
            })?;
        }
        self.settle(step);
        Ok(())
    }
}

fn save_start(start: &Start, timers: &Timers<'_, Timer>) -> Saved {
    let under_way = match &start.progress {
        Progress::UnderWay { agent, timer } => Some((*agent, timers.deadline(timer))),
        Progress::Late => None,
    };
    let Start { number, conn, since, .. } = *start;
    Saved::Start { number, conn, pool_name: start.pool_name.clone(), since, under_way }
}

/// What the numbers in the records are now.
#[derive(Default)]
struct Ids {
    pools: HashMap<PoolId, PoolId>,
    agents: HashMap<AgentId, AgentId>,
    graces: HashMap<GraceId, GraceId>,
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
            Saved::Numbers { lease, arrival, start } => {
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
            Saved::Agent { id, conn, pool, provides, cleans, capacity } => {
                let pool = *self.ids.pools.get(&pool)?;
                state.work(conn).agent.is_none().then_some(())?;
                let agent =
                    Agent { conn, pool, provides, cleans, capacity, members: List::default(), starts: 0, cleaning: 0 };
                let agent = AgentId::from_index(state.agents.insert(agent));
                state.work(conn).agent = Some(agent);
                state.pool_mut(pool).agents.push(agent);
                self.ids.agents.insert(id, agent);
            }
            Saved::Grace { id, pool, until } => {
                let pool = *self.ids.pools.get(&pool)?;
                let grace = GraceId::from_index(state.graces.vacant_key());
                let timer = step.timers.arm(until, Timer::Grace(grace));
                state.graces.insert(Grace { pool, members: List::default(), timer });
                self.ids.graces.insert(id, grace);
            }
            Saved::Member(saved) => self.read_member(*saved, step)?,
            Saved::Lease(saved) => self.read_lease(saved, step)?,
            Saved::Waiter(saved) => self.read_waiter(*saved, step)?,
            Saved::Start { number, conn, pool_name, since, under_way } => {
                self.read_start(number, conn, pool_name, since, under_way, step)?;
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
        state.find_pool(&saved.name).is_err().then_some(())?;
        let hash = state.names.hash(&saved.name);
        let mut pool = Pool::new(saved.name.clone(), hash, saved.settings);
        let id = PoolId::from_index(state.pools.vacant_key());
        (pool.is_leaving, pool.owed, pool.next_backoff) = (saved.is_leaving, saved.owed, saved.next_backoff);
        pool.backoff = saved.backoff.map(|at| step.timers.arm(at, Timer::Backoff(id)));
        pool.cull = saved.cull.map(|at| step.timers.arm(at, Timer::Cull(id)));
        pool.figures.restore(&saved.figures);
        *pool.times = saved.times;
        state.pools.insert(pool);
        let pools = &state.pools;
        state.names.insert(hash, id, |id| pools[id.index()].hash);
        state.order.insert(saved.name, id);
        self.ids.pools.insert(saved.id, id);
        Some(())
    }

    fn read_member(&mut self, saved: SavedMember, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let pool = *self.ids.pools.get(&saved.pool)?;
        (!state.pool(pool).members.contains_key(&saved.name)).then_some(())?;
        let owner = match saved.owner {
            SavedOwner::Fixed => Owner::Fixed,
            SavedOwner::Agent(agent) => Owner::Agent(*self.ids.agents.get(&agent)?),
            SavedOwner::Orphan(grace) => Owner::Orphan(*self.ids.graces.get(&grace)?),
        };
        let id = state.create_member(pool, &saved.name, saved.attributes, owner, step);
        let member = &mut state.members[id.index()];
        (member.born, member.since, member.proved) = (saved.born, saved.since, saved.proved);
        (member.uses, member.share, member.is_leaving) = (saved.uses, saved.share, saved.is_leaving);
        if let Some(span) = saved.hold {
            state.holds.insert(id, span);
        }
        self.ids.members.insert(saved.id, id);
        let mut arm = |at| step.timers.arm(at, Timer::Stage(id));
        let stage = match saved.stage {
            SavedStage::Free(at) => Stage::Free(at.map(arm)),
            SavedStage::Checking(at) => Stage::Checking(arm(at)),
            SavedStage::Stopping(at) => Stage::Stopping(arm(at)),
            SavedStage::Unclean(at) => Stage::Unclean(at.map(arm)),
            SavedStage::Cleaning(agent, at) => Stage::Cleaning { agent: *self.ids.agents.get(&agent)?, timer: arm(at) },
            SavedStage::Quarantined(at) => Stage::Quarantined(at.map(arm)),
            SavedStage::Held(at) => Stage::Held(arm(at)),
            SavedStage::Delayed(at) => Stage::Delayed(arm(at)),
            SavedStage::InUse | SavedStage::Orphaned => Stage::Orphaned,
        };
        let pool = &mut state.pools[pool.index()];
        if matches!(stage, Stage::Free(_)) {
            pool.free.push_back(&mut state.links_free, id);
        }
        if matches!(stage, Stage::Free(_) | Stage::Checking(_)) {
            pool.idle.push_back(&mut state.links_stage, id);
        }
        state.place(id, stage);
        state.arm_life(id, step);
        Some(())
    }

    fn read_lease(&mut self, saved: SavedLease, step: &mut Step<'_, '_>) -> Option<()> {
        let state = &mut *self.state;
        let SavedLease { number, conn, holder, since, is_reported, .. } = saved;
        let member = *self.ids.members.get(&saved.member)?;
        let is_free_for_it =
            state.member(member).stage.kind() == StageKind::Orphaned && state.find_lease(number).is_none();
        is_free_for_it.then_some(())?;
        let token = saved.token.map(|(token, span, until)| Box::new(TokenLease { token, span, until }));
        let lease = Lease { number, member, conn: None, holder, since, is_reported, timer: None, token };
        let id = LeaseId::from_index(state.leases.insert(lease));
        state.index_lease(id);
        state.leases[id.index()].conn = conn;
        if let Some(conn) = conn {
            state.attach_lease(id, conn, state.member(member).pool);
        }
        state.place(member, Stage::InUse(id));
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
                Place::Group(state.group_names.find(state.group_names.hash(&name), is_named)?, pool)
            }
            None => Place::Pool(pool?),
        };
        (state.client(saved.conn).waiter.is_none() && saved.priority < 10).then_some(())?;
        let id = WaiterId::from_index(state.waiters.vacant_key());
        let SavedWaiter { conn, arrival, since, until, priority, count, filter, lease, want, is_hasty, .. } = saved;
        let timer = step.timers.arm(Waiter::next_look(since, until, priority, step.now), Timer::Wait(id));
        let waiter =
            Waiter { conn, place, arrival, since, priority, count, filter, lease, want, is_hasty, until, timer };
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
