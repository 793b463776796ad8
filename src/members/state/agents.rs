//! Table of the agents: connections that provide or clean for a pool, and lost providers that still have members.

use super::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};

mod backoff;
mod loads;
mod room;

pub(super) use backoff::{Backoff, PROVEN_AGE};
use loads::ByLoad;
pub(super) use room::Share;
use room::{Room, Rooms};

/// Most stops without an answer in time that are remembered for a provider.
const MOST_LATE_STOPS: usize = 65_536;

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
    #[serde(skip)]
    pub to_suspend: u32,
    /// True while background work is under way for its members.
    pub is_pending: bool,
    pub backoff: Backoff,
    /// Number of members, of any provider, that it is asked to clean.
    #[serde(skip)]
    pub cleaning: u32,
    /// Number in the order of arrival, while it is in the orders of its pool: while it is connected and, in a removed pool,
    /// until the pool is dropped.
    #[serde(skip)]
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
    /// It is connected. Its pool may be removed.
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
            to_suspend: 0,
            is_pending: false,
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
    /// Number of the next agent in the order of arrival.
    next_place: u64,
}

#[derive(Default)]
struct PoolAgents {
    workers: ByLoad,
    /// Cleaners among them.
    cleaners: ByLoad,
    /// Number of providers among them.
    providers: u32,
    /// Number of agents with `is_pending`.
    pending: u32,
    /// True if the pool is removed: its agents may work for other pools.
    is_removed: bool,
    /// Providers by room: first all that may be asked for starts, then all in backoff.
    rooms: [Rooms; 2],
}

#[derive(Default)]
struct ConnAgents {
    serving: Option<AgentId>,
    /// Agents of removed pools that are not dropped yet.
    dismissed: Vec<AgentId>,
    late_stops: HashSet<Arc<[u8]>>,
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

    /// Returns whether background work is under way for members of a lost provider of the pool: some may still be in
    /// the free list.
    pub fn has_orphaned_free(&self, pool: PoolId) -> bool {
        self.by_pool.get(pool).pending > 0
    }

    /// Returns the agent of a connection, and its pool, unless that is removed.
    pub fn serving(&self, conn: ConnId) -> Option<(AgentId, PoolId)> {
        let agent = self.of_conn(conn)?.serving?;
        let pool = self.get(agent).pool;
        (!self.by_pool.get(pool).is_removed).then_some((agent, pool))
    }

    /// Returns whether a connection is or was a provider or cleaner.
    pub fn knows(&self, conn: ConnId) -> bool {
        self.of_conn(conn).is_some()
    }

    /// Returns whether any connection is or was a provider or cleaner.
    pub fn knows_any(&self) -> bool {
        self.by_conn.iter().any(|(_, of_conn)| of_conn.is_some())
    }

    /// Adds an agent to the table and, unless it is lost, to the orders of its pool. Returns None if its connection serves
    /// already, or another provider has its session.
    pub fn insert(&mut self, agent: Agent) -> Option<AgentId> {
        let (id, pool) = (self.next_id(), agent.pool);
        if let ProviderState::Serves(conn) = agent.state {
            self.dismiss(conn);
            let is_removed = self.by_pool.get(pool).is_removed;
            let of_conn = self.of_conn_mut(conn);
            match is_removed {
                true => of_conn.dismissed.push(id),
                false => of_conn.serving.replace(id).is_none().then_some(())?,
            }
        }
        let is_listed = match agent.state {
            ProviderState::Serves(_) => true,
            ProviderState::Grace(_) => false,
            ProviderState::Lost => !agent.is_pending,
        };
        let of_pool = self.by_pool.get_mut(pool);
        of_pool.pending += u32::from(agent.is_pending);
        let session = agent.session.clone();
        self.agents.insert(agent);
        if is_listed {
            self.enlist(id);
        }
        session.is_none_or(|session| self.set_session(id, session)).then_some(id)
    }

    /// Moves the agent of a connection to the agents of removed pools, if its pool is removed.
    fn dismiss(&mut self, conn: ConnId) {
        let is_serving = self.serving(conn).is_some();
        let Some(of_conn) = self.by_conn.get_mut(conn) else { return };
        let removed = of_conn.serving.take_if(|_| !is_serving);
        of_conn.dismissed.extend(removed);
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
        self.dismiss(conn);
        let agent = &mut self.agents[id.index()];
        agent.lost = None;
        match std::mem::replace(&mut agent.state, ProviderState::Serves(conn)) {
            ProviderState::Serves(before) => {
                let before = self.of_conn_mut(before);
                before.serving = None;
                for member in std::mem::take(&mut before.late_stops) {
                    self.remember_late_stop(conn, member);
                }
            }
            ProviderState::Grace(timer) => {
                step.timers.cancel(timer);
                self.enlist(id);
            }
            ProviderState::Lost => unreachable!("it has no session"),
        }
        self.of_conn_mut(conn).serving = Some(id);
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

    /// Marks the agents of a connection in removed pools as lost.
    pub fn lose_dismissed(&mut self, conn: ConnId) {
        self.dismiss(conn);
        let Some(of_conn) = self.by_conn.get_mut(conn) else { return };
        for id in std::mem::take(&mut of_conn.dismissed) {
            self.leave_room(id);
            self.agents[id.index()].state = ProviderState::Lost;
        }
    }

    /// Ends the grace of a lost agent whose timer has fired.
    pub fn end_grace(&mut self, id: AgentId) {
        self.end_session(id);
        let state = &mut self.agents[id.index()].state;
        if let ProviderState::Grace(timer) = std::mem::replace(state, ProviderState::Lost) {
            timer.fired();
        }
    }

    /// Starts background work for the members of an agent that is lost or has another connection.
    pub fn begin_pending(&mut self, id: AgentId, members: u32) {
        let agent = &mut self.agents[id.index()];
        (agent.is_pending, agent.to_suspend) = (true, members);
        self.by_pool.get_mut(agent.pool).pending += 1;
    }

    /// Ends background work for the members of an agent.
    pub fn end_pending(&mut self, id: AgentId) {
        let agent = &mut self.agents[id.index()];
        (agent.is_pending, agent.to_suspend) = (false, 0);
        self.by_pool.get_mut(agent.pool).pending -= 1;
    }

    /// Notes that a pool was removed at once: its agents may work for other pools.
    pub fn dismiss_pool(&mut self, pool: PoolId) {
        self.by_pool.get_mut(pool).is_removed = true;
    }

    /// Forgets a pool without agents.
    pub fn forget_pool(&mut self, pool: PoolId) {
        self.by_pool.clear(pool);
    }

    /// Removes a lost agent that has no members, unless background work or the list of a removed pool still has it.
    pub fn remove_if_over(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        let agent = self.get(id);
        if agent.conn().is_none() && !agent.is_pending && agent.place.is_none() {
            self.remove(id, step);
        }
    }

    /// Removes an agent, and cancels its timers.
    pub fn remove(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        self.end_session(id);
        self.leave_room(id);
        self.delist(id);
        let mut agent = self.agents.remove(id.index());
        agent.backoff.cancel(step);
        self.by_pool.get_mut(agent.pool).pending -= u32::from(agent.is_pending);
        match agent.state {
            ProviderState::Serves(conn) => {
                let of_conn = self.of_conn_mut(conn);
                of_conn.serving.take_if(|serving| *serving == id);
                of_conn.dismissed.retain(|other| *other != id);
            }
            ProviderState::Grace(timer) => step.timers.cancel(timer),
            ProviderState::Lost => {}
        }
    }

    /// Remembers that a connection may still report this member as stopped. Beyond [`MOST_LATE_STOPS`] it is not
    /// remembered.
    pub fn remember_late_stop(&mut self, conn: ConnId, member: Arc<[u8]>) {
        let stops = &mut self.of_conn_mut(conn).late_stops;
        if stops.len() < MOST_LATE_STOPS {
            stops.insert(member);
        }
    }

    /// Removes a late stop; returns false if there is none of this name.
    pub fn take_late_stop(&mut self, conn: ConnId, member: &[u8]) -> bool {
        self.by_conn.get_mut(conn).as_mut().is_some_and(|of_conn| of_conn.late_stops.remove(member))
    }

    /// Returns the members that a connection may still report as stopped.
    pub fn late_stops(&self, conn: ConnId) -> impl Iterator<Item = &Arc<[u8]>> {
        self.of_conn(conn).into_iter().flat_map(|of_conn| &of_conn.late_stops)
    }

    /// Returns a number above every connection that is or was a provider or cleaner.
    pub fn conns(&self) -> usize {
        self.by_conn.len()
    }

    /// Removes a connection whose agents are lost.
    pub fn forget(&mut self, conn: ConnId) {
        self.by_conn.clear(conn);
    }

    fn of_conn(&self, conn: ConnId) -> Option<&ConnAgents> {
        self.by_conn.get(conn).as_deref()
    }

    fn of_conn_mut(&mut self, conn: ConnId) -> &mut ConnAgents {
        self.by_conn.get_mut(conn).get_or_insert_default()
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
            let is_found = |of_conn: &ConnAgents| of_conn.serving == Some(id) || of_conn.dismissed.contains(&id);
            assert!(of_conn.is_none_or(is_found), "an agent is found by its connection");
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
            assert_eq!(of_pool.pending as usize, count(&|agent| agent.is_pending), "agents with background work");
            let listed = |agent: &Agent| agent.place.is_some();
            assert_eq!(of_pool.workers.len(), count(&listed), "agents of a pool");
            assert_eq!(of_pool.cleaners.len(), count(&|agent| listed(agent) && agent.cleans), "cleaners of a pool");
            assert_eq!(of_pool.providers as usize, count(&|agent| listed(agent) && agent.provides), "providers");
            let rooms: usize = of_pool.rooms.iter().map(Rooms::len).sum();
            assert_eq!(rooms, count(&|agent| agent.room.is_some()), "providers by room");
        }
        for (conn, of_conn) in self.by_conn.iter() {
            let mut agents = of_conn.iter().flat_map(|of_conn| of_conn.serving.iter().chain(&of_conn.dismissed));
            assert!(agents.all(|id| self.get(*id).conn() == Some(conn)), "a connection has its own agents");
        }
    }
}
