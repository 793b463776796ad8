//! Table of the agents: connections that provide or clean for a pool, and lost providers that still have members.

use super::*;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashSet};

mod backoff;
mod room;

pub(super) use backoff::{Backoff, PROVEN_AGE};
use room::Room;
pub(super) use room::Share;

/// Most stops without an answer in time that are remembered for a provider.
const MOST_LATE_STOPS: usize = 65_536;

/// Connection that provides or cleans for a pool.
pub(super) struct Agent {
    pub state: ProviderState,
    pub pool: PoolId,
    pub provides: bool,
    pub cleans: bool,
    /// Maximum number of its members; None for that of the pool.
    pub capacity: Option<u32>,
    /// Number of its members that background work has yet to suspend, or to pass to its new connection.
    pub to_suspend: u32,
    /// True while background work is under way for its members.
    pub is_pending: bool,
    pub backoff: Backoff,
    /// Position among the providers of its pool that may be asked for starts.
    room: Option<Room>,
    /// Name that lasts over its connections.
    pub session: Option<Arc<[u8]>>,
    /// Time of its loss, and its address then.
    pub lost: Option<Box<(Time, String)>>,
}

pub(super) enum ProviderState {
    Serves(ConnId),
    /// It is connected, but the pool was removed.
    Dismissed(ConnId),
    /// It is lost. Its members stay until the timer fires.
    Grace(TimerId),
    /// It is lost, and its members with it.
    Lost,
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
            room: None,
            session: None,
            lost: None,
        }
    }

    /// Returns its connection, if it has one.
    pub fn conn(&self) -> Option<ConnId> {
        match self.state {
            ProviderState::Serves(conn) | ProviderState::Dismissed(conn) => Some(conn),
            ProviderState::Grace(_) | ProviderState::Lost => None,
        }
    }

    /// Returns whether it is in the list of its pool: while it is connected and, in a removed pool, until the pool is
    /// dropped.
    fn is_listed(&self) -> bool {
        match self.state {
            ProviderState::Serves(_) | ProviderState::Dismissed(_) => true,
            ProviderState::Grace(_) => false,
            ProviderState::Lost => !self.is_pending,
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
}

#[derive(Default)]
struct PoolAgents {
    /// Agents in the order of their arrival.
    listed: Vec<AgentId>,
    /// Number of agents with `is_pending`.
    pending: u32,
    /// Providers that may be asked for starts, with a capacity of their own, least room first.
    own: BTreeSet<(Share, Reverse<AgentId>)>,
    /// Providers that may be asked for starts, with the pool's capacity, most room first.
    of_pool: BTreeSet<(u32, AgentId)>,
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

    /// Returns the agents in the list of a pool, in the order in which they came.
    pub fn in_pool(&self, pool: PoolId) -> &[AgentId] {
        &self.by_pool.get(pool).listed
    }

    /// Returns whether a provider of the pool is connected.
    pub fn is_provided(&self, pool: PoolId) -> bool {
        self.in_pool(pool).iter().any(|agent| self.get(*agent).provides)
    }

    /// Returns whether background work is under way for members of a lost provider of the pool: some may still be in
    /// the free list.
    pub fn has_orphaned_free(&self, pool: PoolId) -> bool {
        self.by_pool.get(pool).pending > 0
    }

    /// Returns the agent of a connection, and its pool.
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

    /// Returns the cleaner with the least load, else the provider of the member, else any agent of the pool.
    pub fn cleaner_for<L: Ord>(
        &self,
        pool: PoolId,
        provider: Option<AgentId>,
        load: impl Fn(&AgentId) -> L,
    ) -> Option<AgentId> {
        let agents = || self.in_pool(pool).iter().copied();
        let cleaner = agents().filter(|agent| self.get(*agent).cleans).min_by_key(&load);
        let provider = provider.filter(|agent| self.get(*agent).conn().is_some());
        cleaner.or(provider).or_else(|| agents().min_by_key(load))
    }

    /// Adds an agent to the table and its lists. Returns None if its connection serves already.
    pub fn insert(&mut self, agent: Agent) -> Option<AgentId> {
        let id = AgentId::from_index(self.agents.vacant_key());
        match agent.state {
            ProviderState::Serves(conn) => {
                let of_conn = self.of_conn_mut(conn);
                of_conn.serving.is_none().then_some(())?;
                of_conn.serving = Some(id);
            }
            ProviderState::Dismissed(conn) => self.of_conn_mut(conn).dismissed.push(id),
            ProviderState::Grace(_) | ProviderState::Lost => {}
        }
        let of_pool = self.by_pool.get_mut(agent.pool);
        of_pool.pending += u32::from(agent.is_pending);
        if agent.is_listed() {
            of_pool.listed.push(id);
        }
        self.agents.insert(agent);
        Some(id)
    }

    /// Returns the id of the next agent.
    pub fn next_id(&self) -> AgentId {
        AgentId::from_index(self.agents.vacant_key())
    }

    pub fn set_provider(&mut self, id: AgentId, capacity: Option<u32>) {
        let agent = &mut self.agents[id.index()];
        (agent.provides, agent.capacity) = (true, capacity);
    }

    /// Returns the backoff of a provider.
    pub fn backoff(&mut self, id: AgentId) -> &mut Backoff {
        &mut self.agents[id.index()].backoff
    }

    /// Sets the backoff of a handover. Returns false if the provider has one.
    pub fn restore_backoff(&mut self, id: AgentId, backoff: Backoff) -> bool {
        !std::mem::replace(&mut self.agents[id.index()].backoff, backoff).is_running()
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
        let agent = &mut self.agents[id.index()];
        let pool = agent.pool;
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
                self.by_pool.get_mut(pool).listed.push(id);
            }
            ProviderState::Dismissed(_) | ProviderState::Lost => unreachable!("it has no session"),
        }
        self.of_conn_mut(conn).serving = Some(id);
    }

    pub fn set_cleaner(&mut self, id: AgentId) {
        self.agents[id.index()].cleans = true;
    }

    /// Removes an agent from the lists of its pool and of its connection, before it is lost.
    pub fn unlist(&mut self, id: AgentId) {
        let agent = &self.agents[id.index()];
        let conn = agent.conn();
        self.by_pool.get_mut(agent.pool).listed.retain(|other| *other != id);
        if let Some(conn) = conn {
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

    /// Sets the time at which an agent was lost, and its address. Returns false if it is not lost.
    pub fn note_lost(&mut self, id: AgentId, at: Time, address: String) -> bool {
        let agent = &mut self.agents[id.index()];
        agent.lost = Some(Box::new((at, address)));
        agent.conn().is_none()
    }

    /// Marks the agents of a connection in removed pools as lost.
    pub fn lose_dismissed(&mut self, conn: ConnId) {
        let Some(of_conn) = self.by_conn.get_mut(conn) else { return };
        for id in std::mem::take(&mut of_conn.dismissed) {
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

    /// Sets the number of members that background work has yet to suspend.
    pub fn set_to_suspend(&mut self, id: AgentId, members: u32) {
        self.agents[id.index()].to_suspend = members;
    }

    /// Ends background work for the members of an agent.
    pub fn end_pending(&mut self, id: AgentId) {
        let agent = &mut self.agents[id.index()];
        (agent.is_pending, agent.to_suspend) = (false, 0);
        self.by_pool.get_mut(agent.pool).pending -= 1;
    }

    /// Marks the agents of a pool that was removed at once as dismissed.
    pub fn dismiss_pool(&mut self, pool: PoolId) {
        for id in self.in_pool(pool).to_vec() {
            if let ProviderState::Serves(conn) = self.get(id).state {
                self.end_session(id);
                self.leave_room(id);
                self.agents[id.index()].state = ProviderState::Dismissed(conn);
                let of_conn = self.of_conn_mut(conn);
                of_conn.serving = None;
                of_conn.dismissed.push(id);
            }
        }
    }

    /// Removes the listed agents of a dropped pool.
    pub fn remove_listed(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        for id in std::mem::take(&mut self.by_pool.get_mut(pool).listed) {
            self.end_session(id);
            self.leave_room(id);
            let mut agent = self.agents.remove(id.index());
            agent.backoff.cancel(step);
            match agent.state {
                ProviderState::Serves(conn) => self.of_conn_mut(conn).serving = None,
                ProviderState::Dismissed(conn) => self.of_conn_mut(conn).dismissed.retain(|other| *other != id),
                ProviderState::Lost => {}
                ProviderState::Grace(_) => unreachable!("a provider in its grace is in no list"),
            }
        }
    }

    /// Removes a lost agent that has no members, unless background work or the list of a removed pool still has it.
    pub fn remove_if_over(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        let agent = self.get(id);
        if agent.conn().is_none() && !agent.is_pending && !self.in_pool(agent.pool).contains(&id) {
            self.remove(id, step);
        }
    }

    /// Removes an agent that is in no list, and cancels its timers.
    pub fn remove(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        self.end_session(id);
        self.leave_room(id);
        let mut agent = self.agents.remove(id.index());
        agent.backoff.cancel(step);
        self.by_pool.get_mut(agent.pool).pending -= u32::from(agent.is_pending);
        if let ProviderState::Grace(timer) = agent.state {
            step.timers.cancel(timer);
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

    /// Compares the lists of pools and connections with the agents.
    ///
    /// `taken` returns the number of members and starts of a provider, and that of starts alone.
    pub fn check(&self, taken: impl Fn(AgentId) -> (u32, u32)) {
        for (id, agent) in self.iter() {
            let (taken, starts) = taken(id);
            assert_eq!(agent.room, agent.room_for(taken, starts), "the room of a provider");
            let PoolAgents { own, of_pool, .. } = self.by_pool.get(agent.pool);
            let is_found = match agent.room {
                Some(Room::Own(share)) => own.contains(&(share, Reverse(id))),
                Some(Room::OfPool(taken)) => of_pool.contains(&(taken, id)),
                None => true,
            };
            assert!(is_found, "a provider is found by its room");
            assert!(agent.provides || agent.cleans, "an agent provides or cleans");
            assert_eq!(self.in_pool(agent.pool).contains(&id), agent.is_listed(), "an agent in the list of its pool");
            let of_conn = agent.conn().map(|conn| self.of_conn(conn).expect("a connected agent has a connection"));
            let is_found = of_conn.is_none_or(|of_conn| match agent.state {
                ProviderState::Serves(_) => of_conn.serving == Some(id),
                _ => of_conn.dismissed.contains(&id),
            });
            assert!(is_found, "an agent is found by its connection");
        }
        let named = self.iter().filter(|(_, agent)| agent.session.is_some()).count();
        assert_eq!(self.by_session.len(), named, "each session is found");
        let is_named = |((pool, name), id): (&(PoolId, Arc<[u8]>), &AgentId)| {
            let Agent { pool: of, session, .. } = self.get(*id);
            of == pool && session.as_ref() == Some(name)
        };
        assert!(self.by_session.iter().all(is_named), "a session is of its provider");
        for (pool, of_pool) in self.by_pool.iter() {
            let pending = self.iter().filter(|(_, agent)| agent.pool == pool && agent.is_pending).count();
            assert_eq!(of_pool.pending as usize, pending, "lost providers with background work");
            let able = self.iter().filter(|(_, agent)| agent.pool == pool && agent.room.is_some()).count();
            assert_eq!(of_pool.own.len() + of_pool.of_pool.len(), able, "providers that may be asked for starts");
            assert!(of_pool.listed.iter().all(|id| self.get(*id).pool == pool), "a list has agents of its pool");
        }
        for (conn, of_conn) in self.by_conn.iter() {
            let mut agents = of_conn.iter().flat_map(|of_conn| of_conn.serving.iter().chain(&of_conn.dismissed));
            assert!(agents.all(|id| self.get(*id).conn() == Some(conn)), "a connection has its own agents");
        }
    }
}
