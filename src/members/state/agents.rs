//! Table of the agents: connections that provide or clean for a pool, and lost providers that still have members.

use super::{AgentId, PoolId, Step};
use loads::ByLoad;
use poolcounter_core::id::{ConnId, Id as _};
use poolcounter_core::side_table::SideTable;
use poolcounter_core::time::Time;
use poolcounter_core::wheel::TimerId;
use room::{Room, Rooms};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

mod backoff;
mod loads;
mod room;

pub(super) use backoff::{Backoff, PROVEN_AGE};
pub(super) use room::Share;

/// Connection that provides or cleans for a pool.
#[derive(Serialize, Deserialize)]
pub(super) struct Agent {
    #[serde(skip)]
    pub state: ProviderState,
    pub pool: PoolId,
    pub provides: bool,
    pub cleans: bool,
    /// Maximum number of its members; None for that of the pool.
    pub capacity: Option<u32>,
    /// Number of its members that background work has yet to suspend, or to pass to its new connection.
    pub to_pass: u32,
    pub backoff: Backoff,
    /// Number of members, of any provider, that it is asked to clean.
    #[serde(skip)]
    pub cleaning: u32,
    /// Place of its connection in the order of arrival, while it is connected.
    pub place: Option<u64>,
    /// Position among the providers of its pool by room.
    #[serde(skip)]
    room: Option<Room>,
    /// Name that lasts over its connections.
    pub session: Option<Arc<[u8]>>,
    /// Time of its loss, and its address then.
    pub lost: Option<Box<(Time, String)>>,
}

/// State of an agent. `T` is its timer, or the deadline of that in a record.
#[derive(Default, Serialize, Deserialize)]
pub(super) enum ProviderState<T = TimerId> {
    /// It is connected.
    Serves(ConnId),
    /// It is lost. Its members stay until the timer fires.
    Grace(T),
    /// It is lost, and its members with it.
    #[default]
    Lost,
}

impl<T> ProviderState<T> {
    /// Returns the state with another form of its timer.
    pub fn map<U>(&self, map: impl FnOnce(&T) -> U) -> ProviderState<U> {
        match self {
            ProviderState::Serves(conn) => ProviderState::Serves(*conn),
            ProviderState::Grace(timer) => ProviderState::Grace(map(timer)),
            ProviderState::Lost => ProviderState::Lost,
        }
    }
}

impl Agent {
    /// Returns an agent without members.
    pub fn new(state: ProviderState, pool: PoolId) -> Self {
        Agent {
            state,
            pool,
            provides: false,
            cleans: false,
            capacity: None,
            to_pass: 0,
            backoff: Backoff::default(),
            cleaning: 0,
            place: None,
            room: None,
            session: None,
            lost: None,
        }
    }

    /// Returns a copy without timers and positions, for a record.
    pub fn to_save(&self) -> Self {
        let (session, lost) = (self.session.clone(), self.lost.clone());
        Agent { state: ProviderState::Lost, backoff: self.backoff.to_save(), session, lost, ..*self }
    }

    /// Returns whether background work is under way for its members.
    pub fn is_pending(&self) -> bool {
        self.to_pass > 0 || matches!(self.state, ProviderState::Lost)
    }

    /// Returns its connection, if it has one.
    pub fn conn(&self) -> Option<ConnId> {
        match self.state {
            ProviderState::Serves(conn) => Some(conn),
            ProviderState::Grace(_) | ProviderState::Lost => None,
        }
    }
}

/// All agents, by pool and by connection.
#[derive(Default)]
pub(super) struct Agents {
    agents: Slab<Agent>,
    by_pool: SideTable<PoolId, PoolAgents>,
    by_conn: SideTable<ConnId, Option<Box<ConnAgents>>>,
    /// Providers that serve or are in their grace, by the names of their sessions.
    by_session: BTreeMap<(PoolId, Arc<[u8]>), AgentId>,
    /// Place of the next connection in the order of arrival.
    next_place: u64,
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

struct ConnAgents {
    serving: Option<AgentId>,
    /// Place in the order of arrival.
    place: u64,
    /// Name of the pool that it serves or has served last.
    pool: Arc<[u8]>,
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
        let agent = self.of_conn(conn)?.serving?;
        Some((agent, self.get(agent).pool))
    }

    /// Returns whether a connection is or was a provider or cleaner.
    pub fn knows(&self, conn: ConnId) -> bool {
        self.of_conn(conn).is_some()
    }

    /// Returns whether any connection is or was a provider or cleaner.
    pub fn knows_any(&self) -> bool {
        self.by_conn.iter().any(|(_, of_conn)| of_conn.is_some())
    }

    /// Adds an agent to the table and, if it is connected, to the orders of its pool. Returns None if its connection serves
    /// already, or another provider has its session.
    pub fn insert(&mut self, mut agent: Agent) -> Option<AgentId> {
        let (id, conn, session) = (self.next_id(), agent.conn(), agent.session.clone());
        self.next_place = agent.place.take().unwrap_or(self.next_place);
        self.agents.insert(agent);
        if let Some(conn) = conn {
            self.of_conn_mut(conn).serving.replace(id).is_none().then_some(())?;
            self.enlist(id);
        }
        session.is_none_or(|session| self.set_session(id, session)).then_some(id)
    }

    /// Returns the id of the next agent.
    pub fn next_id(&self) -> AgentId {
        AgentId::from_index(self.agents.vacant_key())
    }

    pub fn set_provider(&mut self, id: AgentId, capacity: Option<u32>) {
        self.change(id, |agent| (agent.provides, agent.capacity) = (true, capacity));
    }

    pub fn set_cleaner(&mut self, id: AgentId) {
        self.change(id, |agent| agent.cleans = true);
    }

    /// Counts a member that an agent is asked to clean, or one less.
    pub fn count_cleaning(&mut self, id: AgentId, begins: bool) {
        self.change(id, |agent| match begins {
            true => agent.cleaning += 1,
            false => agent.cleaning -= 1,
        });
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
        self.delist(id);
        let agent = &mut self.agents[id.index()];
        agent.lost = None;
        match std::mem::replace(&mut agent.state, ProviderState::Serves(conn)) {
            ProviderState::Serves(before) => self.of_conn_mut(before).serving = None,
            ProviderState::Grace(timer) => step.timers.cancel(timer),
            ProviderState::Lost => unreachable!("it has no session"),
        }
        self.of_conn_mut(conn).serving = Some(id);
        self.enlist(id);
    }

    /// Removes an agent from the orders of its pool and from its connection, before it is lost.
    pub fn unlist(&mut self, id: AgentId) {
        self.delist(id);
        if let Some(conn) = self.get(id).conn() {
            self.of_conn_mut(conn).serving = None;
        }
    }

    /// Marks an agent as lost, with the timer of its grace if it has one.
    pub fn set_lost(&mut self, id: AgentId, grace: Option<TimerId>) {
        self.leave_room(id);
        if grace.is_none() {
            self.end_session(id);
        }
        self.agents[id.index()].state = grace.map_or(ProviderState::Lost, ProviderState::Grace);
    }

    /// Ends the grace of a lost agent whose timer has fired.
    pub fn end_grace(&mut self, id: AgentId) {
        self.end_session(id);
        let state = &mut self.agents[id.index()].state;
        if let ProviderState::Grace(timer) = std::mem::replace(state, ProviderState::Lost) {
            timer.fired();
        }
    }

    /// Forgets a pool without agents.
    pub fn forget_pool(&mut self, pool: PoolId) {
        self.by_pool.clear(pool);
    }

    /// Removes an agent, and cancels its timers.
    pub fn remove(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        self.end_session(id);
        self.leave_room(id);
        self.delist(id);
        let mut agent = self.agents.remove(id.index());
        agent.backoff.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        match agent.state {
            ProviderState::Serves(conn) => self.of_conn_mut(conn).serving = None,
            ProviderState::Grace(timer) => step.timers.cancel(timer),
            ProviderState::Lost => {}
        }
    }

    /// Returns the name of the pool that a connection serves or has served last.
    pub fn last_pool(&self, conn: ConnId) -> Option<&Arc<[u8]>> {
        self.of_conn(conn).map(|of_conn| &of_conn.pool)
    }

    /// Notes the name of the pool that a connection serves.
    pub fn set_last_pool(&mut self, conn: ConnId, name: Arc<[u8]>) {
        self.of_conn_mut(conn).pool = name;
    }

    /// Returns a number above every connection that is or was a provider or cleaner.
    pub fn conns(&self) -> usize {
        self.by_conn.slots()
    }

    /// Removes a connection whose agents are lost.
    pub fn forget(&mut self, conn: ConnId) {
        self.by_conn.clear(conn);
    }

    fn of_conn(&self, conn: ConnId) -> Option<&ConnAgents> {
        self.by_conn.get(conn).as_deref()
    }

    fn of_conn_mut(&mut self, conn: ConnId) -> &mut ConnAgents {
        let next = &mut self.next_place;
        self.by_conn.get_mut(conn).get_or_insert_with(|| {
            let place = std::mem::replace(next, next.saturating_add(1));
            Box::new(ConnAgents { serving: None, place, pool: Arc::default() })
        })
    }

    /// Compares the orders of pools and connections with the agents.
    ///
    /// `taken` returns the number of members and starts of a provider, and that of starts alone.
    pub fn check(&self, taken: impl Fn(AgentId) -> (u32, u32)) {
        for (id, agent) in self.iter() {
            let (taken, starts) = taken(id);
            assert_eq!(agent.room, agent.room_for(taken, starts), "the room of a provider");
            let PoolAgents { rooms, workers, cleaners, .. } = self.by_pool.get(agent.pool);
            assert!(agent.room.is_none_or(|room| rooms[room.order()].has(room, id)), "a provider is found by its room");
            assert!(agent.provides || agent.cleans, "an agent provides or cleans");
            let entry = agent.place.map(|place| (agent.cleaning, place, id));
            assert!(entry.is_none_or(|entry| workers.contains(&entry)), "an agent is in the order of its pool");
            assert!(entry.is_none_or(|entry| cleaners.contains(&entry) == agent.cleans), "cleaners have an order");
            assert!(agent.conn().is_none() || agent.place.is_some(), "connected agents are in the order of their pool");
            let of_conn = agent.conn().map(|conn| self.of_conn(conn).expect("a connected agent has a connection"));
            assert!(of_conn.is_none_or(|of_conn| of_conn.serving == Some(id)), "an agent is found by its connection");
        }
        let named = self.iter().filter(|(_, agent)| agent.session.is_some()).count();
        assert_eq!(self.by_session.len(), named, "each session is found");
        let is_named = |((pool, name), id): (&(PoolId, Arc<[u8]>), &AgentId)| {
            let Agent { pool: of, session, .. } = self.get(*id);
            of == pool && session.as_ref() == Some(name)
        };
        assert!(self.by_session.iter().all(is_named), "a session is of its provider");
        for (pool, of_pool) in self.by_pool.iter() {
            let count = |is_it: &dyn Fn(&Agent) -> bool| {
                self.iter().filter(|(_, agent)| agent.pool == pool && is_it(agent)).count()
            };
            let listed = |agent: &Agent| agent.place.is_some();
            assert_eq!(of_pool.workers.len(), count(&listed), "agents of a pool");
            assert_eq!(of_pool.cleaners.len(), count(&|agent| listed(agent) && agent.cleans), "cleaners of a pool");
            assert_eq!(of_pool.providers as usize, count(&|agent| listed(agent) && agent.provides), "providers");
            let rooms: usize = of_pool.rooms.iter().map(Rooms::len).sum();
            assert_eq!(rooms, count(&|agent| agent.room.is_some()), "providers by room");
        }
        for (conn, of_conn) in self.by_conn.iter() {
            let serving = of_conn.as_ref().and_then(|of_conn| of_conn.serving);
            assert!(serving.is_none_or(|id| self.get(id).conn() == Some(conn)), "a connection has its own agent");
        }
    }
}
