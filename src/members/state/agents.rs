//! Table of the agents: connections that provide or clean for a pool, and lost providers that still have members.

use super::{AgentId, PoolId, Step, Timer};
use loads::ByLoad;
use poolcounter_core::{ConnId, Id as _, SideTable, Span, Time, TimerId};
use room::Rooms;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod loads;
mod room;

pub(super) use room::Share;

/// Backoff after a first failed start, before its jitter; it doubles with each further one.
const FIRST_BACKOFF: Span = Span::from_secs(1);
const LONGEST_BACKOFF: Span = Span::from_secs(60);
/// Time since the failure before, after which a failure is a first one.
const CALM: Span = Span::from_secs(300);
/// Age from which the death of a member is no failure of its provider.
pub(super) const PROVEN_AGE: Span = Span::from_secs(10);

/// Connection that provides or cleans for a pool.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Agent {
    /// Its connection; None once it is lost.
    pub conn: Option<ConnId>,
    /// Timer of its grace after its loss. Without a timer its members are lost with it.
    #[serde(skip)]
    pub grace: Option<TimerId>,
    pub pool: PoolId,
    pub provides: bool,
    pub cleans: bool,
    /// Maximum number of its members; None for that of the pool.
    pub capacity: Option<u32>,
    /// Number of its members that background work has yet to suspend, or to pass to its new connection.
    pub to_pass: u32,
    /// Timer of the end of a backoff; None while the provider may be asked for starts.
    #[serde(skip)]
    pub backoff: Option<TimerId>,
    /// Next backoff, before its jitter, if that is not the first, and the time of the failure that began the last one.
    pub next_backoff: Span,
    pub failed: Time,
    /// Number of members, of any provider, that it is asked to clean.
    #[serde(skip)]
    pub cleaning: u32,
    /// Number of its members and starts, and of its starts alone.
    #[serde(skip)]
    pub taken: (u32, u32),
    /// Name that lasts over its connections.
    pub session: Option<Arc<[u8]>>,
    /// Time of its loss, and its address then.
    pub lost: Option<Box<(Time, String)>>,
}

impl Agent {
    /// Returns a copy without timers and positions, for a record.
    pub fn to_save(&self) -> Self {
        let (session, lost) = (self.session.clone(), self.lost.clone());
        Agent { grace: None, backoff: None, session, lost, ..*self }
    }

    /// Starts a backoff after a failure. Failures during one change nothing.
    pub fn begin_backoff(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        if self.backoff.is_some() {
            return;
        }
        let is_calm = step.now.since(self.failed) >= CALM;
        let next = if is_calm { FIRST_BACKOFF } else { self.next_backoff.max(FIRST_BACKOFF) };
        self.backoff = Some(step.timers.arm(step.now + step.random.jitter(next, 75, 125), Timer::Backoff(id)));
        (self.next_backoff, self.failed) = ((next + next).min(LONGEST_BACKOFF), step.now);
    }

    /// Returns whether its members are lost with it.
    pub fn is_gone(&self) -> bool {
        self.conn.is_none() && self.grace.is_none()
    }

    /// Returns whether background work is under way for its members.
    pub fn is_pending(&self) -> bool {
        self.to_pass > 0 || self.is_gone()
    }
}

/// All agents, by pool and by connection.
#[derive(Default)]
pub(super) struct Agents {
    agents: Slab<Agent>,
    by_pool: SideTable<PoolId, PoolAgents>,
    by_conn: SideTable<ConnId, ConnAgents>,
    /// Providers that serve or are in their grace, by the names of their sessions.
    by_session: BTreeMap<(PoolId, Arc<[u8]>), AgentId>,
}

#[derive(Default)]
struct PoolAgents {
    workers: ByLoad,
    /// Cleaners among them.
    cleaners: ByLoad,
    /// Number of providers among them.
    providers: u32,
    /// Providers by room: first all that may be asked for starts, then all in backoff.
    rooms: [Rooms; 2],
}

#[derive(Default)]
struct ConnAgents {
    serving: Option<AgentId>,
    /// Name of the pool that it serves or has served last.
    pool: Option<Arc<[u8]>>,
}

impl Agents {
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (AgentId, &Agent)> {
        self.agents.iter().map(|(index, agent)| (AgentId::from_index(index), agent))
    }

    pub fn get(&self, id: AgentId) -> &Agent {
        &self.agents[id.index()]
    }

    /// Returns an agent, for changes of what nothing else depends on.
    pub fn get_mut(&mut self, id: AgentId) -> &mut Agent {
        &mut self.agents[id.index()]
    }

    /// Returns an agent, unless it has ended.
    pub fn find(&self, id: AgentId) -> Option<&Agent> {
        self.agents.get(id.index())
    }

    /// Returns the agent of a connection, and its pool, which may have been removed.
    pub fn serving(&self, conn: ConnId) -> Option<(AgentId, PoolId)> {
        let agent = self.by_conn.get(conn).serving?;
        Some((agent, self.get(agent).pool))
    }

    /// Returns whether any connection is or was a provider or cleaner.
    pub fn knows_any(&self) -> bool {
        self.by_conn.iter().any(|(_, of_conn)| of_conn.pool.is_some())
    }

    /// Adds an agent to the table and, if it is connected, to the orders of its pool. Returns None if its connection serves
    /// already, or another provider has its session.
    pub fn insert(&mut self, agent: Agent) -> Option<AgentId> {
        let (id, conn, session) = (self.next_id(), agent.conn, agent.session.clone());
        self.agents.insert(agent);
        if let Some(conn) = conn {
            self.by_conn.get_mut(conn).serving.replace(id).is_none().then_some(())?;
            self.order(id, true);
        }
        session.is_none_or(|session| self.set_session(id, session)).then_some(id)
    }

    /// Returns the id of the next agent.
    pub fn next_id(&self) -> AgentId {
        AgentId::from_index(self.agents.vacant_key())
    }

    /// Returns the provider of a pool with this session, if it serves or is in its grace.
    pub fn of_session(&self, pool: PoolId, session: &[u8]) -> Option<AgentId> {
        self.by_session.get(&(pool, session.into())).copied()
    }

    /// Sets the session of a provider that has none. Returns false if another one has it.
    pub fn set_session(&mut self, id: AgentId, session: Arc<[u8]>) -> bool {
        let agent = &mut self.agents[id.index()];
        agent.session = Some(session.clone());
        self.by_session.insert((agent.pool, session), id).is_none_or(|before| before == id)
    }

    /// Removes the session of a provider that is lost, or whose pool is removed.
    fn end_session(&mut self, id: AgentId) {
        let agent = &mut self.agents[id.index()];
        if let Some(session) = agent.session.take() {
            self.by_session.remove(&(agent.pool, session));
        }
    }

    /// Gives a provider that serves or is in its grace another connection, which serves no pool.
    pub fn replace_conn(&mut self, id: AgentId, conn: ConnId, step: &mut Step<'_, '_>) {
        self.order(id, false);
        let agent = &mut self.agents[id.index()];
        agent.lost = None;
        agent.grace.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        if let Some(before) = agent.conn.replace(conn) {
            self.by_conn.get_mut(before).serving = None;
        }
        self.by_conn.get_mut(conn).serving = Some(id);
        self.order(id, true);
    }

    /// Separates an agent from its connection, which is lost, with the timer of its grace if it has one.
    pub fn set_lost(&mut self, id: AgentId, address: String, grace: Option<TimerId>, now: Time) {
        self.leave_conn(id);
        if grace.is_none() {
            self.end_session(id);
        }
        let agent = &mut self.agents[id.index()];
        (agent.grace, agent.lost) = (grace, Some(Box::new((now, address))));
    }

    /// Removes an agent from the orders of its pool and from its connection.
    fn leave_conn(&mut self, id: AgentId) {
        self.order(id, false);
        if let Some(conn) = self.agents[id.index()].conn.take() {
            self.by_conn.get_mut(conn).serving = None;
        }
    }

    /// Ends the grace of a lost agent whose timer has fired.
    pub fn end_grace(&mut self, id: AgentId) {
        self.end_session(id);
        self.agents[id.index()].grace.take().into_iter().for_each(TimerId::fired);
    }

    /// Removes an agent, and cancels its timers.
    pub fn remove(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        self.end_session(id);
        self.leave_conn(id);
        let Agent { grace, backoff, .. } = self.agents.remove(id.index());
        grace.into_iter().chain(backoff).for_each(|timer| step.timers.cancel(timer));
    }

    /// Returns the name of the pool that a connection serves or has served last; None if it never provided or cleaned.
    pub fn last_pool(&self, conn: ConnId) -> Option<&Arc<[u8]>> {
        self.by_conn.get(conn).pool.as_ref()
    }

    /// Notes the name of the pool that a connection serves.
    pub fn set_last_pool(&mut self, conn: ConnId, name: Arc<[u8]>) {
        self.by_conn.get_mut(conn).pool = Some(name);
    }

    /// Returns a number above every connection that is or was a provider or cleaner.
    pub fn conns(&self) -> usize {
        self.by_conn.slots()
    }

    /// Removes a connection whose agents are lost.
    pub fn forget(&mut self, conn: ConnId) {
        self.by_conn.clear(conn);
    }

    /// Compares the orders of pools and connections with the agents.
    ///
    /// `taken` returns the number of members and starts of a provider, and that of starts alone.
    pub fn check(&self, taken: impl Fn(AgentId) -> (u32, u32)) {
        for (id, agent) in self.iter() {
            let is_listed = agent.conn.is_some();
            assert!(!is_listed || agent.taken == taken(id), "the members and starts of a provider");
            let PoolAgents { rooms, workers, cleaners, .. } = self.by_pool.get(agent.pool);
            let order = &rooms[usize::from(agent.backoff.is_some())];
            assert_eq!(order.has(agent, id), agent.has_room(), "a provider is found by its room");
            assert!(agent.provides || agent.cleans, "an agent provides or cleans");
            let has = |order: &ByLoad| order.contains(&(agent.cleaning, id));
            assert_eq!(has(workers), is_listed, "an agent is in the order of its pool");
            assert_eq!(has(cleaners), is_listed && agent.cleans, "cleaners have an order");
            let of_conn = agent.conn.map(|conn| self.by_conn.get(conn));
            assert!(of_conn.is_none_or(|of_conn| of_conn.serving == Some(id)), "an agent is found by its connection");
        }
        let named = self.iter().filter(|(_, agent)| agent.session.is_some()).count();
        assert_eq!(self.by_session.len(), named, "each session is found");
        let is_named = |((pool, name), id): (&(PoolId, Arc<[u8]>), &AgentId)| {
            let Agent { pool: of, session, .. } = self.get(*id);
            of == pool && session.as_ref() == Some(name)
        };
        assert!(self.by_session.iter().all(is_named), "a session is of its provider");
        let count = |is_it: &dyn Fn(&Agent) -> bool| self.iter().filter(|(_, agent)| is_it(agent)).count();
        let sum = |of: fn(&PoolAgents) -> usize| self.by_pool.iter().map(|(_, of_pool)| of(of_pool)).sum::<usize>();
        let is_listed = |agent: &Agent| agent.conn.is_some();
        assert_eq!(sum(|of| of.workers.len()), count(&is_listed), "agents of pools");
        assert_eq!(sum(|of| of.cleaners.len()), count(&|agent| is_listed(agent) && agent.cleans), "cleaners of pools");
        assert_eq!(sum(|of| of.providers as usize), count(&|agent| is_listed(agent) && agent.provides), "providers");
        assert_eq!(sum(|of| of.rooms.iter().map(Rooms::len).sum()), count(&Agent::has_room), "providers by room");
        for (conn, of_conn) in self.by_conn.iter() {
            let is_its = |id| self.get(id).conn == Some(conn);
            assert!(of_conn.serving.is_none_or(is_its), "a connection has its own agent");
        }
    }
}
