//! Handover of the state: plain records with deadlines in place of timers, written by a process that ends and read by
//! its successor. A record follows each record to which it refers by a saved id.
//!
//! Members in queues come in the order of their queues, so that the successor appends them. Members are numbered from
//! zero in the order in which they come; leases refer to these numbers.

use super::*;
use crate::stats::Times;
use poolcounter_core::record::Writer;
use serde::{Deserialize, Serialize};
use std::io;

/// Saved entry.
#[derive(Serialize, Deserialize)]
pub(super) enum Saved {
    Numbers {
        lease: u64,
        arrival: u64,
        start: u64,
        joins: u64,
        members: usize,
        past: Vec<(String, u64)>,
    },
    Pool(Box<SavedPool>),
    Group {
        id: GroupId,
        name: Arc<[u8]>,
        pools: Vec<(u64, PoolId)>,
    },
    Agent {
        id: AgentId,
        agent: Box<Agent>,
        state: ProviderState<Time>,
        backoff: Option<Time>,
    },
    Holding {
        id: HoldingId,
        holding: Holding,
    },
    Member(Box<SavedMember>),
    Lease(Box<Lease>),
    Waiter(Box<Waiter>),
    Start {
        number: u64,
        conn: ConnId,
        pool_name: Arc<[u8]>,
        since: Time,
        under_way: Option<(AgentId, Time)>,
    },
    Client {
        conn: ConnId,
        name: Option<Arc<[u8]>>,
        late_stops: Vec<Arc<[u8]>>,
    },
    /// Group whose pools that joined it before this number are being removed.
    RemoveGroup {
        group: GroupId,
        graceful: bool,
        before: u64,
    },
    /// Fixed member that no pool has.
    Unknown(Arc<KeptMember>),
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedPool {
    pub id: PoolId,
    pub name: Arc<[u8]>,
    pub settings: Settings,
    pub is_leaving: bool,
    pub is_from_file: bool,
    pub is_removed: bool,
    pub is_retiring: bool,
    pub is_retiming: bool,
    pub is_behind: bool,
    pub owed: u32,
    pub cull: Option<Time>,
    pub figures: Vec<(String, u64)>,
    pub times: Times,
}

impl State {
    /// Writes the whole state.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn save(&self, out: &mut Writer<'_>, timers: &Timers<'_, Timer>) -> io::Result<()> {
        let mut put = |record| out.put(&Some(record));
        put(Saved::Numbers {
            lease: self.leases.next_number(),
            arrival: self.waiters.next_arrival(),
            start: self.starts.next_number(),
            joins: self.pools.joins,
            members: self.members.len(),
            past: self.pools.past.save(),
        })?;
        let nameless = self.pools.iter().filter(|(_, pool)| pool.is_removed).map(|(id, _)| id);
        let pools: Vec<PoolId> = self.pools.after(None).chain(nameless).collect();
        pools.iter().try_for_each(|id| put(self.save_pool(*id, timers)))?;
        for (id, group) in self.pools.groups() {
            let pools = group.pools.iter().map(|(joined, pool)| (*joined, *pool)).collect();
            put(Saved::Group { id, name: group.name.clone(), pools })?;
        }
        let mut agents: Vec<(AgentId, &Agent)> = self.agents.iter().collect();
        agents.sort_by_key(|(_, agent)| agent.place);
        for (id, agent) in agents {
            let state = agent.state.map(|timer| timers.deadline(timer));
            let backoff = agent.backoff.timer.as_ref().map(|timer| timers.deadline(timer));
            put(Saved::Agent { id, agent: agent.to_save().into(), state, backoff })?;
        }
        for (id, holding) in self.leases.holdings() {
            put(Saved::Holding { id, holding: holding.to_save() })?;
        }
        let (mut numbers, mut next) = (vec![MemberId::from_index(0); self.members.slots()], 0);
        for id in pools.iter().flat_map(|pool| self.members.queued_first(*pool)) {
            numbers[id.index()] = MemberId::from_index(next);
            next += 1;
            put(Saved::Member(self.save_member(id, timers, |at| at).into()))?;
        }
        let mut leases: Vec<&Lease> = self.leases.iter().map(|(_, lease)| lease).collect();
        leases.sort_unstable_by_key(|lease| lease.number);
        for lease in leases {
            put(Saved::Lease(Lease { member: numbers[lease.member.index()], ..lease.to_save() }.into()))?;
        }
        self.kept.unknown.values().try_for_each(|kept| put(Saved::Unknown(kept.clone())))?;
        let mut waiters: Vec<&Waiter> = self.waiters.iter().map(|(_, waiter)| waiter).collect();
        waiters.sort_unstable_by_key(|waiter| waiter.rank.1);
        waiters.into_iter().try_for_each(|waiter| put(Saved::Waiter(waiter.to_save().into())))?;
        self.starts.iter().try_for_each(|start| put(save_start(start, timers)))?;
        for conn in (0..self.leases.conns().max(self.agents.conns())).map(ConnId::from_index) {
            let name = self.leases.name(conn).cloned();
            let late_stops: Vec<_> = self.agents.late_stops(conn).cloned().collect();
            if name.is_some() || !late_stops.is_empty() {
                put(Saved::Client { conn, name, late_stops })?;
            }
        }
        for task in self.background.tasks() {
            if let BackgroundTask::RemoveGroup(group, graceful, before) = *task {
                put(Saved::RemoveGroup { group, graceful, before })?;
            }
        }
        out.put(&None::<Saved>)
    }

    fn save_pool(&self, id: PoolId, timers: &Timers<'_, Timer>) -> Saved {
        let (pool, tasks) = (self.pool(id), self.background.of_pool(id));
        Saved::Pool(Box::new(SavedPool {
            id,
            name: pool.name.clone(),
            settings: pool.settings.clone(),
            is_leaving: pool.is_leaving,
            is_from_file: pool.is_from_file,
            is_removed: pool.is_removed,
            is_retiring: tasks.is_retiring,
            is_retiming: tasks.is_retiming,
            // A pool that is settled offers its free members again.
            is_behind: tasks.is_behind || tasks.is_offering,
            owed: pool.owed,
            cull: pool.cull.as_ref().map(|timer| timers.deadline(timer)),
            figures: pool.figures.save(),
            times: (*pool.times).clone(),
        }))
    }
}

fn save_start(start: &Start, timers: &Timers<'_, Timer>) -> Saved {
    let under_way = match &start.progress {
        StartProgress::UnderWay { agent, timer, .. } => Some((*agent, timers.deadline(timer))),
        StartProgress::Late => None,
    };
    let Start { number, conn, since, .. } = *start;
    Saved::Start { number, conn, pool_name: start.pool_name.clone(), since, under_way }
}
