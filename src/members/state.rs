//! State machine of the members: pools, their members, holders and waiters, and the requests to providers. It knows no
//! sockets, no bytes of the protocol and no clock: it takes a connection, a request and the time, and emits events for
//! any connection.
//!
//! It is made of owners, each with tables of its own that it alone writes and checks: `Pools`, `MemberTable`, `Leases`,
//! `Waiters`, `Agents`, `Starts` and `Background`. The steps of a request or a timer coordinate them.
//!
//! Invariant: pools that a step has changed are settled at its end, so that starts are counted once, by the final
//! demand.

use poolcounter_core::count::first_before;
use poolcounter_core::id::{compact_id, id};
use poolcounter_core::record::KeptRecords;
use poolcounter_core::wheel::timer_keys;
use poolcounter_core::{ConnId, Random, Span, Time, TimerId, Timers};
use std::cell::Cell;
use std::sync::Arc;

use super::stats::MemberStat as Stat;

mod agents;
mod background;
mod check;
mod cleaning;
mod demand;
mod events;
mod fixed;
mod health;
mod history;
mod kept;
mod leases;
mod lending;
mod lifecycle;
mod members;
mod pairs;
mod phase;
mod pool_changes;
mod pools;
mod providers;
mod queries;
mod reasons;
mod restored;
mod saved;
mod starts;
mod takes;
mod waiter_list;
mod waiters;
mod waits;

pub use events::{Event, News, Notice};
pub use health::PoolHealth;
pub use history::{Ending, PastLease};
pub use kept::{Clock, Moment, RestoredKept};
pub use pool_changes::{DeclaredMember, DeclaredPool, NOT_CHECKED, checks_of};
pub use poolcounter_protocol::members::pool_settings::{
    Change, Contradiction, Filter, Key, Kind, OnLoss, Order, Settings, Value,
};
pub use poolcounter_protocol::members::request::{
    Attributes, Condition, From, LeaseName, Lost, LostBy, Named, NoMembers, Refusal, Request, Take, Taken, Token, What,
};
pub use queries::{MemberRow, PoolReport, PoolRow, Utilization, Viewer};
pub use reasons::KeptOut;
pub use waiter_list::WaiterRow;
pub use waiters::Rank;

use agents::{Agent, Agents, PROVEN_AGE};
use background::{Background, Task};
use cleaning::FailedCleanings;
use kept::{Kept, KeptMember, Marks, SavedMember};
use leases::{Holding, Lease, LeaseToken, Leases};
use members::{Beside, ComingHold, Member, MemberTable, Wanted};
use pairs::Pairs;
use phase::Phase;
use pools::{Pool, Pools};
use reasons::Reason;
use restored::Loading;
use starts::{Start, Starts};
use waiters::{Place, Waiter, Waiters};

id! {
    /// Id of a pool.
    PoolId
    /// Id of a group of pools.
    GroupId
    /// Id of a member.
    MemberId
    /// Id of a lease.
    LeaseId
    /// Id of a take that waits.
    WaiterId
    /// Id of a start of a member.
    StartId
    /// Id of the leases that a connection holds, or held at its end.
    HoldingId
}
compact_id! {
    /// Id of a name with its value, of one owner.
    PairId
    /// Id of a connection that provides or cleans for a pool.
    AgentId
}

timer_keys! {
    /// Timers of the members service.
    pub enum Timer {
        /// A wait has lasted for its timeout.
        Wait(id: WaiterId),
        /// A start was not answered in time.
        Start(id: StartId),
        /// The phase of a member has reached its time limit.
        Phase(id: MemberId),
        /// A member has reached its lifetime.
        Life(id: MemberId),
        /// A lease has run out, was held for too long, or must be reported.
        Lease(id: LeaseId),
        /// The grace of a lost provider is over.
        Grace(id: AgentId),
        /// A provider may be asked for starts again.
        Backoff(id: AgentId),
        /// Idle members of a pool may be stopped.
        Cull(id: PoolId),
        /// Fixed members of the configuration file that were refused are added again.
        Declare,
        /// A slice of background work is due.
        Background,
        /// Timer of the adapter: owed lines are sent.
        Pacing,
        /// Timer of the adapter: the clock is looked at.
        Clock,
    }
}

/// Most pools: with a few KiB each, they take at most some hundred MiB.
pub const MOST_POOLS: usize = 65_536;
/// Most members of one take: their lines must fit into a connection's output with all their attributes.
const MOST_AT_ONCE: u32 = 512;

/// Limits that the operator has set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Number of members, starts under way and waiters together.
    pub most: usize,
}

/// Reply to a request, before the other events of the step; None if the connection has it, or gets it later.
type Answer = Result<Option<What>, Refusal>;

/// The answer that a request is done.
const DONE: Answer = Ok(Some(What::Ok));

/// One step of the state machine: its time, and the places of its effects.
pub struct Step<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The timers of the members service.
    pub timers: &'a mut Timers<'w, Timer>,
    /// The source of jitter, choices and tokens.
    pub random: &'a mut Random,
    /// Replies and messages to connections, in order.
    pub events: &'a mut Vec<Event>,
    /// Messages to the operator.
    pub notices: &'a mut Vec<Notice>,
    /// True if the connection may make requests for operators.
    pub is_admin: bool,
    /// Returns the address of a connection.
    pub peer: &'a dyn Fn(ConnId) -> String,
}

impl Step<'_, '_> {
    fn tell(&mut self, conn: ConnId, what: What) {
        self.events.push(Event { conn, what });
    }
}

/// All pools and members, with the leases and waits of connections.
#[derive(Default)]
pub struct State {
    /// Most members, starts under way and waiters together.
    most: usize,
    /// True while new takes are refused. Waiters are still served.
    pub refuses_new: bool,
    /// Number of pools at which the takes of this turn have looked, to find one in a group.
    pub walked: Cell<usize>,
    pools: Pools,
    members: MemberTable,
    leases: Leases,
    waiters: Waiters,
    agents: Agents,
    starts: Starts,
    background: Background,
    /// Fixed members of the configuration file that were refused, with their pools, and the timer after which they are
    /// added again.
    refused: Vec<(Arc<[u8]>, DeclaredMember)>,
    refused_timer: Option<TimerId>,
    /// Connections that were replaced by another one with the same session, and must be closed.
    pub replaced: Vec<ConnId>,
    kept: Kept,
    /// Members of another process that are not read yet.
    loading: Option<Box<(KeptRecords, Loading)>>,
}

impl State {
    /// Returns a state without pools. Its leases are numbered from `microsecond`, the time of day, so that no number is
    /// used again after a restart.
    pub fn new(limits: Limits, microsecond: u64) -> Self {
        let mut state = State { most: limits.most, ..State::default() };
        state.leases.number_from(microsecond);
        state.waiters.next_arrival = first_before(u32::MAX.into());
        state.starts.next_number = 1 + first_before(u32::MAX.into());
        state
    }

    /// Numbers leases from `microsecond` on, unless they have come further.
    pub fn number_from(&mut self, microsecond: u64) {
        self.leases.number_from(microsecond);
    }

    /// Serves one request.
    pub fn serve(&mut self, conn: ConnId, request: Request<'_>, step: &mut Step<'_, '_>) {
        let before = step.events.len();
        let answer = match request.is_for_operators() && !step.is_admin {
            true => Err(Refusal::NotAdmin),
            false => self.answer(conn, request, step),
        };
        if let Some(what) = answer.unwrap_or_else(|refusal| Some(What::Error(refusal))) {
            step.events.insert(before, Event { conn, what });
        }
        self.settle(step);
    }

    fn answer(&mut self, conn: ConnId, request: Request<'_>, step: &mut Step<'_, '_>) -> Answer {
        match request {
            Request::Take(take) => self.take(conn, take, step),
            Request::Return { lease, condition } => self.give_back(conn, lease, condition, step),
            Request::Renew { token, span } => self.renew(conn, &token, span, step),
            Request::Cancel => self.cancel(conn, step),
            Request::Identify { name } => {
                self.leases.set_name(conn, Some(name.into()));
                DONE
            }
            Request::Bye => self.leave(conn, step),
            Request::TakeBack { lease, note } => self.take_back(conn, lease, note, step),
            Request::Pool { name, changes } => self.declare(name, &changes, step),
            Request::Reconfigure { name, changes } => self.reconfigure(name, &changes, step),
            Request::RemovePool { name, graceful } => {
                let id = self.pools.find(name)?;
                self.remove(id, graceful, step);
                DONE
            }
            Request::RemoveGroup { name, graceful } => {
                let id = self.pools.find_group(name).ok_or(Refusal::NoPool)?;
                let (joins, group) = (self.pools.joins, self.pools.group_mut(id));
                // A removal at once that is under way stays so.
                let is_graceful = graceful && group.removal.is_none_or(|(is_graceful, _)| is_graceful);
                group.removal = Some((is_graceful, joins));
                self.pools.touch_group(id);
                DONE
            }
            Request::Provide { pool, capacity, session } => self.provide(conn, pool, capacity, session, step),
            Request::Clean { pool } => self.clean(conn, pool),
            Request::Started { start, named } => self.started(conn, start, named, step),
            Request::Failed { start, text } => self.start_failed(conn, start, text, step),
            Request::Stopped { member } => self.stopped(conn, member, step),
            Request::Alive { member } => self.alive(conn, member, step),
            Request::Dead { member, text } => self.dead(conn, member, text, step),
            Request::Cleaned { member } => self.cleaned(conn, member, step),
            Request::Cleaning { member } => self.cleaning(conn, member, step),
            Request::Offer { named, attributes } => self.offer(conn, named, attributes, step),
            Request::Withdraw { named, now } => self.withdraw(conn, named, now, step),
            Request::Add { named, attributes } => self.add(named, attributes, step),
            Request::Delete { named, now } => self.delete(conn, named, now, step),
            Request::Repair { named, as_is: false } => self.release_from(conn, named, cleaning::REPAIR, step),
            Request::Repair { named, as_is: true } => self.release_from(conn, named, cleaning::REPAIR_AS_IS, step),
            Request::Hold { named, span, note } => self.hold(conn, named, span, note, step),
            Request::Free(named) => self.release_from(conn, named, cleaning::FREE, step),
        }
    }

    /// Handles a timer that is due.
    pub fn expire(&mut self, timer: Timer, step: &mut Step<'_, '_>) {
        match timer {
            Timer::Wait(id) => self.wait_is_over(id, step),
            Timer::Start(id) => self.start_is_late(id, step),
            Timer::Phase(id) => self.phase_is_over(id, step),
            Timer::Life(id) => self.life_is_over(id, step),
            Timer::Lease(id) => self.lease_is_due(id, step),
            Timer::Grace(id) => self.grace_is_over(id, step),
            Timer::Backoff(id) => self.backoff_is_over(id),
            Timer::Cull(id) => self.cull(id, step),
            Timer::Declare => self.declare_refused(step),
            Timer::Background => self.resume_background(step),
            Timer::Pacing | Timer::Clock => {}
        }
        self.settle(step);
    }

    /// Ends the wait of a closed connection, its leases without a token, and its work as a provider and cleaner.
    pub fn close(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.leave_wait(conn, step);
        self.lose_consumer(conn, false, step);
        self.lose_agent(conn, step);
        self.leases.forget(conn);
        self.agents.forget(conn);
        self.settle(step);
    }

    /// Returns whether there is no pool and no trace of any connection.
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
            && self.members.is_empty()
            && self.leases.is_empty()
            && self.waiters.is_empty()
            && self.starts.len() == 0
            && self.agents.is_empty()
            && self.background.is_empty()
    }

    /// Settles the pools and groups that the step has changed.
    fn settle(&mut self, step: &mut Step<'_, '_>) {
        loop {
            while let Some(id) = self.pools.next_touched() {
                self.settle_pool(id, step);
            }
            if let Some(group) = self.pools.touched_groups.pop() {
                self.begin(Task::Group(group), step);
            } else if self.has_room()
                && let Some(id) = self.pools.cramped.pop_front()
            {
                // There is room again: the pool that has waited longest may start members. Pools behind it are settled
                // once it was.
                if !step.timers.spend(background::COST) {
                    self.fall_behind(id);
                    break;
                }
                self.pools.touch(id);
            } else {
                break;
            }
        }
        if !self.pools.offers.is_empty() {
            self.background.push(Task::Offers);
        }
        self.background.go_on(step.timers);
    }

    fn pool(&self, id: PoolId) -> &Pool {
        self.pools.get(id)
    }

    fn member(&self, id: MemberId) -> &Member {
        self.members.get(id)
    }

    fn phase_of(&self, id: MemberId) -> Phase {
        self.members.get(id).phase
    }

    /// Returns the names of the pool of a member and of the member.
    fn names_of(&self, id: MemberId) -> (Arc<[u8]>, Arc<[u8]>) {
        let Member { pool, name, .. } = self.member(id);
        (self.pool(*pool).name.clone(), name.clone())
    }

    /// Notes news of a member for the operator, with the peer that caused it.
    fn note(&self, id: MemberId, by: String, news: News, step: &mut Step<'_, '_>) {
        let (pool, member) = self.names_of(id);
        step.notices.push(Notice { pool, member: Some(member), by, news });
    }

    /// Returns the connection that provides a member, if it is connected.
    fn conn_of(&self, id: MemberId) -> Option<ConnId> {
        self.agents.get(self.member(id).owner?).conn
    }

    /// Returns whether the provider of a member is lost.
    fn is_orphan(&self, id: MemberId) -> bool {
        self.member(id).owner.is_some() && self.conn_of(id).is_none()
    }

    /// Returns the number of members and starts of a pool.
    fn slots(&self, id: PoolId) -> u64 {
        self.members.in_pool(id).len() as u64 + u64::from(self.starts.in_pool(id).len())
    }

    /// Returns whether a pool may have one member or start more.
    fn has_slot(&self, id: PoolId) -> bool {
        self.slots(id) < u64::from(self.pool(id).settings.max)
    }

    /// Returns whether there is room for one member, start or waiter more.
    fn has_room(&self) -> bool {
        self.members.len() + self.starts.len() + self.waiters.len() < self.most
    }

    /// Returns whether a pool has more members than it may have; stopping members do not count.
    fn is_above_max(&self, id: PoolId) -> bool {
        self.members.in_pool(id).live() > u64::from(self.pool(id).settings.max)
    }

    /// Returns the number of free members.
    fn free_count(&self, id: PoolId) -> u32 {
        self.members.in_pool(id).count(Phase::Free)
    }

    /// Returns the number of free members that must be stopped because there are too many.
    fn surplus(&self, id: PoolId) -> u32 {
        if !self.is_above_max(id) || self.members.is_fixed(id) == Some(true) {
            return 0;
        }
        let surplus = self.members.in_pool(id).live() - u64::from(self.pool(id).settings.max);
        // Lossless: it is at most the number of free members.
        surplus.min(u64::from(self.free_count(id))) as u32
    }

    /// Returns the number of waiters for members of a pool, including those for its group.
    fn queued(&self, id: PoolId) -> u32 {
        let of_group = self.pool(id).group.map_or(0, |group| self.waiters.queued(Place::Group(group)));
        self.waiters.queued(Place::Pool(id)) + of_group
    }
}
