//! Handover of the state: plain records with deadlines in place of timers, written by a process that ends and read by
//! its successor. A record follows each record to which it refers by a saved id.
//!
//! Members in queues come in the order of their queues, so that the successor appends them. Members are numbered from
//! zero in the order in which they come; leases refer to these numbers.

use super::*;
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
    Pool {
        id: PoolId,
        pool: Box<Pool>,
        cull: Option<Time>,
        figures: Vec<(String, u64)>,
    },
    Group {
        id: GroupId,
        name: Arc<[u8]>,
        pools: Vec<(u64, PoolId)>,
        removal: Option<(bool, u64)>,
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
        agent: AgentId,
        since: Time,
        until: Time,
    },
    Client {
        conn: ConnId,
        name: Option<Arc<[u8]>>,
        /// Name of the pool that it serves or has served last.
        pool: Option<Arc<[u8]>>,
    },
    /// Fixed member that no pool has.
    Unknown(Arc<KeptMember>),
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
            lease: self.leases.next_number,
            arrival: self.waiters.next_arrival,
            start: self.starts.next_number,
            joins: self.pools.joins,
            members: self.members.len(),
            past: self.pools.past.save(),
        })?;
        let nameless = self.pools.iter().filter(|(_, pool)| pool.is_removed).map(|(id, _)| id);
        let pools: Vec<PoolId> = self.pools.after(None).chain(nameless).collect();
        for id in &pools {
            let pool = self.pool(*id);
            let cull = pool.cull.as_ref().map(|timer| timers.deadline(timer));
            put(Saved::Pool { id: *id, pool: pool.to_save().into(), cull, figures: pool.figures.save() })?;
        }
        for (id, group) in self.pools.groups() {
            let pools = group.pools.iter().map(|(joined, pool)| (*joined, *pool)).collect();
            put(Saved::Group { id, name: group.name.clone(), pools, removal: group.removal })?;
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
        for Start { number, agent, since, timer, .. } in self.starts.iter() {
            put(Saved::Start { number: *number, agent: *agent, since: *since, until: timers.deadline(timer) })?;
        }
        for conn in (0..self.leases.conns().max(self.agents.conns())).map(ConnId::from_index) {
            let name = self.leases.name(conn).cloned();
            let pool = self.agents.last_pool(conn).cloned();
            if name.is_some() || pool.is_some() {
                put(Saved::Client { conn, name, pool })?;
            }
        }
        out.put(&None::<Saved>)
    }
}
