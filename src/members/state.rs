//! The members themselves: which there are, who has them, who waits for one, and what providers are asked to do. It knows no
//! sockets, no bytes on the wire and no clock: it takes a connection, a request and the time, and emits events for any connection.
//!
//! Invariant: a member is in one phase, and in the queues of that phase alone. What a step changes in a pool's demand is settled
//! at the end of the step, so that starts are reckoned once, from what is wanted then.

use poolcounter_core::count::first_before;
use poolcounter_core::id::{ConnId, Id, compact_id, id};
use poolcounter_core::list::{Links, List};
use poolcounter_core::names::{Hash, Names};
use poolcounter_core::random::Random;
use poolcounter_core::stats::Figures;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, Timers, timer_keys};
use slab::Slab;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use super::stats::{MemberStat as Stat, Times};

mod background;
mod care;
mod check;
mod declared;
mod demand;
mod events;
mod groups;
mod leases;
mod members;
mod operators;
mod phase;
mod pools;
mod providers;
mod queries;
mod restored;
mod rules;
mod saved;
mod tables;
mod takes;
mod waiters;
mod waits;

pub use declared::{DeclaredMember, DeclaredPool};
pub use events::{Event, Notice};
pub use poolcounter_protocol::members::pool_settings::{
    Change, Contradiction, Filter, Key, Kind, OnLoss, Order, Settings, Value,
};
pub use poolcounter_protocol::members::request::{
    Attributes, Condition, From, LeaseName, Lost, Named, NoMembers, Refusal, Request, Take, Taken, Token, What,
};
pub use queries::{Holder, MemberRow, PoolReport, PoolRow, Utilization};
pub use saved::Record;

use background::BackgroundTask;
use members::{Member, MemberOwner};
use phase::{MemberPhase, PhaseKind};
use tables::{Agent, Client, Group, Holding, Lease, Pool, Progress, ProviderState, Start, TokenLease, Work};
use takes::Asker;
use waiters::{WaitQueue, Waiter};

id! {
    /// A pool.
    PoolId
}
id! {
    /// A group of pools.
    GroupId
}
id! {
    /// A member.
    MemberId
}
id! {
    /// A lease.
    LeaseId
}
id! {
    /// A take that waits.
    WaiterId
}
id! {
    /// A start.
    StartId
}
compact_id! {
    /// A connection that provides or cleans for a pool.
    AgentId
}
id! {
    /// What a connection holds, or held when it went.
    HoldingId
}

timer_keys! {
    /// What the members service arms timers for.
    pub enum Timer {
        /// A wait has lasted for its timeout.
        Wait(id: WaiterId),
        /// A start was not answered in time.
        Start(id: StartId),
        /// The phase of a member has lasted for as long as it may.
        Phase(id: MemberId),
        /// A member has reached its lifetime.
        Life(id: MemberId),
        /// A lease has run out, or was held for too long, or for long.
        Lease(id: LeaseId),
        /// The grace of a lost provider is over.
        Grace(id: AgentId),
        /// Starts of a pool may be tried again.
        Backoff(id: PoolId),
        /// Idle members of a pool may be stopped.
        Cull(id: PoolId),
        /// Members of a pool have waited to be cleaned for as long as they may while nobody can be asked.
        Unclean(id: PoolId),
        /// There is more to do of what was too much for one step.
        Background,
        /// Connections can be told more of what they are owed: the adapter's own.
        Pacing,
        /// What was left out of the log is summed up: the adapter's own.
        LogSum,
    }
}

/// How many pools there may be: with a few KiB each, they take some hundred MiB at most.
pub const MOST_POOLS: usize = 65_536;
/// How many members one take may ask for: their lines must fit into a connection's output with all their attributes.
const MOST_AT_ONCE: u32 = 512;
/// How many free members one take with attributes looks at: about a millisecond's worth.
const MOST_LOOKED_AT: usize = 16_384;
/// How many starts a provider has under way: it is asked for more when it has answered some. Its loss ends them all in one step.
const MOST_STARTS: u32 = 4_096;
/// How many late starts are remembered of a provider.
const MOST_LATE_STARTS: usize = 1_024;

/// What the operator allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Members, starts under way and waiters together.
    pub most: usize,
    /// How many members a tick stops, loses, gives back or times anew.
    pub slice: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { most: 1 << 20, slice: background::SLICE }
    }
}

/// One step of the state machine: when it happens, and where its effects go.
pub struct Step<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The timers of the members service.
    pub timers: &'a mut Timers<'w, Timer>,
    /// Where jitter, ties and tokens come from.
    pub random: &'a mut Random,
    /// Who is told what, in order.
    pub events: &'a mut Vec<Event>,
    /// What operators are told.
    pub notices: &'a mut Vec<Notice>,
    /// Whether the connection may do what operators do.
    pub is_admin: bool,
    /// The address of a connection.
    pub peer: &'a dyn Fn(ConnId) -> String,
}

impl Step<'_, '_> {
    fn tell(&mut self, conn: ConnId, what: What) {
        self.events.push(Event { conn, what });
    }
}

/// All pools and members, and what each connection has of them.
pub struct State {
    limits: Limits,
    /// No member is handed out to a take that comes, and none waits.
    refuses_new: bool,
    names: Names<PoolId>,
    /// The pools in the order of their names.
    order: BTreeMap<Arc<[u8]>, PoolId>,
    pools: Slab<Pool>,
    group_names: Names<GroupId>,
    groups: Slab<Group>,
    members: Slab<Member>,
    /// What members have that have attributes, by their ids; as long as it has to be.
    attributes: Vec<Option<Arc<Attributes>>>,
    links_free: Links,
    /// For the queues `idle`, `unclean` and `cleaning` of a pool.
    links_phase: Links,
    links_owner: Links,
    /// What waits to be applied when a member comes free again: how long an operator holds it.
    holds: BTreeMap<MemberId, Span>,
    leases: Slab<Lease>,
    numbers: Names<LeaseId>,
    tokens: Names<LeaseId>,
    links_lease: Links,
    next_lease: u64,
    waiters: Slab<Waiter>,
    links_waiter: Links,
    next_arrival: u64,
    starts: Slab<Start>,
    next_start: u64,
    starts_under_way: usize,
    agents: Slab<Agent>,
    holdings: Slab<Holding>,
    background: VecDeque<BackgroundTask>,
    /// Armed while there are chores.
    background_timer: Option<TimerId>,
    /// How many more members may be worked on in this tick.
    budget: u32,
    budget_since: Time,
    clients: Vec<Client>,
    unsettled: Vec<PoolId>,
    /// What was counted of pools that are gone.
    past: Figures<Stat>,
    /// How many leases with a token count for each rule of access.
    leases_of_rules: BTreeMap<Arc<str>, u64>,
    /// The rules of which that has changed in the present step.
    changed_rules: Vec<Arc<str>>,
}

impl State {
    /// Returns a state without pools, whose leases are numbered from `microsecond`, the time of day: so that none is used again
    /// after a restart.
    pub fn new(limits: Limits, microsecond: u64) -> Self {
        State {
            limits,
            refuses_new: false,
            names: Names::default(),
            order: BTreeMap::new(),
            pools: Slab::new(),
            group_names: Names::default(),
            groups: Slab::new(),
            members: Slab::new(),
            attributes: Vec::new(),
            links_free: Links::default(),
            links_phase: Links::default(),
            links_owner: Links::default(),
            holds: BTreeMap::new(),
            leases: Slab::new(),
            numbers: Names::default(),
            tokens: Names::default(),
            links_lease: Links::default(),
            next_lease: microsecond,
            waiters: Slab::new(),
            links_waiter: Links::default(),
            next_arrival: first_before(u32::MAX.into()),
            starts: Slab::new(),
            next_start: 1 + first_before(u32::MAX.into()),
            starts_under_way: 0,
            agents: Slab::new(),
            holdings: Slab::new(),
            background: VecDeque::new(),
            background_timer: None,
            budget: limits.slice,
            budget_since: Time::START,
            clients: Vec::new(),
            unsettled: Vec::new(),
            past: Figures::default(),
            leases_of_rules: BTreeMap::new(),
            changed_rules: Vec::new(),
        }
    }

    /// Has leases numbered from `microsecond` on, unless they have come further.
    pub fn number_from(&mut self, microsecond: u64) {
        self.next_lease = self.next_lease.max(microsecond);
    }

    /// Serves one request.
    pub fn serve(&mut self, conn: ConnId, request: Request<'_>, step: &mut Step<'_, '_>) {
        self.refill(step.now);
        let answer = if request.is_for_operators() && !step.is_admin {
            Err(Refusal::NotAdmin)
        } else {
            self.answer(conn, request, step)
        };
        if let Err(refusal) = answer {
            step.tell(conn, What::Error(refusal));
        }
        self.settle(step);
    }

    /// Does what is asked. Each request tells the connection what came of it, unless it is refused.
    fn answer(&mut self, conn: ConnId, request: Request<'_>, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        match request {
            Request::Take(take) => self.take(conn, take, step),
            Request::Return { lease, condition } => {
                self.give_back(conn, lease, condition, step);
                Ok(())
            }
            Request::Renew { token, span } => {
                self.renew(conn, &token, span, step);
                Ok(())
            }
            Request::Cancel => self.cancel(conn, step),
            Request::Identify { name } => {
                self.client(conn).name = Some(name.into());
                step.tell(conn, What::Ok);
                Ok(())
            }
            Request::Bye => {
                self.leave(conn, step);
                Ok(())
            }
            Request::Pool { name, changes } => self.declare(conn, name, &changes, step),
            Request::Reconfigure { name, changes } => self.reconfigure(conn, name, &changes, step),
            Request::RemovePool { name, graceful } => self.remove_pool(conn, name, graceful, step),
            Request::Provide { pool, capacity } => self.provide(conn, pool, capacity, step),
            Request::Clean { pool } => self.clean(conn, pool, step),
            Request::Started { start, member, attributes } => self.started(conn, start, member, attributes, step),
            Request::Failed { start, text } => self.start_failed(conn, start, text, step),
            Request::Stopped { member } => self.stopped(conn, member, step),
            Request::Alive { member } => self.alive(conn, member, step),
            Request::Dead { member } => self.dead(conn, member, step),
            Request::Cleaned { member } => self.cleaned(conn, member, step),
            Request::Offer { named, attributes } => self.offer(conn, named, attributes, step),
            Request::Withdraw { named, now } => self.withdraw(conn, named, now, step),
            Request::Add { named, attributes } => self.add(conn, named, attributes, step),
            Request::Delete { named, now } => self.delete(conn, named, now, step),
            Request::Repair(named) => self.repair(conn, named, step),
            Request::Hold { named, span, note } => self.hold(conn, named, span, note, step),
            Request::Free(named) => self.free(conn, named, step),
            Request::TakeBack { lease, note } => {
                self.take_back(conn, lease, note, step);
                Ok(())
            }
        }
    }

    /// A timer is due.
    pub fn expire(&mut self, timer: Timer, step: &mut Step<'_, '_>) {
        self.refill(step.now);
        match timer {
            Timer::Wait(id) => self.wait_is_over(id, step),
            Timer::Start(id) => self.start_is_late(id, step),
            Timer::Phase(id) => self.phase_is_over(id, step),
            Timer::Life(id) => self.life_is_over(id, step),
            Timer::Lease(id) => self.lease_is_due(id, step),
            Timer::Grace(id) => self.grace_is_over(id, step),
            Timer::Backoff(id) => self.backoff_is_over(id),
            Timer::Cull(id) => self.cull(id, step),
            Timer::Unclean(id) => self.unclean_for_too_long(id, step),
            Timer::Background => self.resume_background(step),
            Timer::Pacing | Timer::LogSum => {}
        }
        self.settle(step);
    }

    /// The connection is gone: ends its wait, gives back what it held, and takes away what it provided.
    pub fn close(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        if conn.index() >= self.clients.len() {
            return;
        }
        self.refill(step.now);
        self.leave_wait(conn, step);
        self.lose_consumer(conn, false, step);
        self.lose_agent(conn, step);
        self.clients[conn.index()] = Client::default();
        self.settle(step);
    }

    /// Returns whether there is no pool and nothing is remembered of any connection.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
            && self.groups.is_empty()
            && self.members.is_empty()
            && self.leases.is_empty()
            && self.waiters.is_empty()
            && self.starts.is_empty()
            && self.agents.is_empty()
            && self.holdings.is_empty()
            && self.background.is_empty()
    }

    /// Has what changed in the demand of pools take effect, now that the step has done everything else.
    fn settle(&mut self, step: &mut Step<'_, '_>) {
        while let Some(id) = self.unsettled.pop() {
            self.pools[id.index()].is_unsettled = false;
            self.settle_pool(id, step);
        }
        self.arm_background(step);
    }

    /// Notes that the demand of a pool may have changed.
    fn touch(&mut self, id: PoolId) {
        let pool = &mut self.pools[id.index()];
        if !pool.is_unsettled {
            pool.is_unsettled = true;
            self.unsettled.push(id);
        }
    }

    fn pool(&self, id: PoolId) -> &Pool {
        &self.pools[id.index()]
    }

    fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id.index()]
    }

    fn member(&self, id: MemberId) -> &Member {
        &self.members[id.index()]
    }

    fn client(&mut self, conn: ConnId) -> &mut Client {
        if self.clients.len() <= conn.index() {
            self.clients.resize_with(conn.index() + 1, Client::default);
        }
        &mut self.clients[conn.index()]
    }
}
