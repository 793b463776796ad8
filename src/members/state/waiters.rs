//! Table of the waiters, in the order in which they are served, and the number of starts that they want.

use super::{GroupId, PairId, PoolId, Step, Timer, WaiterId};
use classes::Classes;
use poolcounter_core::{ConnId, Id, Links, List, Metered as _, SideTable, Span, Time, TimerId};
use poolcounter_protocol::members::pool_settings::Filter;
use poolcounter_protocol::members::request::Take;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::BTreeSet;
use std::sync::Arc;

mod check;
mod classes;

/// Length of a wait that gives it the first priority.
const LONG_WAIT: Span = Span::from_secs(60);
const PRIORITIES: u8 = 10;

/// Position of a waiter in the order: lower comes first.
pub type Rank = (u8, u64);

/// A waiter with its position.
pub(super) type Turn = (Rank, WaiterId);

/// Pool or group for whose members a waiter waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(super) enum Place {
    Pool(PoolId),
    Group(GroupId),
}

impl Id for Place {
    fn from_index(index: usize) -> Self {
        match index % 2 {
            0 => Place::Pool(PoolId::from_index(index / 2)),
            _ => Place::Group(GroupId::from_index(index / 2)),
        }
    }

    fn index(self) -> usize {
        match self {
            Place::Pool(pool) => pool.index() * 2,
            Place::Group(group) => group.index() * 2 + 1,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Waiter {
    pub conn: ConnId,
    pub place: Place,
    /// Position: the priority, which is the first after [`LONG_WAIT`], and the number among all takes that ever waited.
    pub rank: Rank,
    pub since: Time,
    pub priority: u8,
    pub count: Option<u32>,
    pub filter: Option<Arc<Filter>>,
    pub lease: Option<Span>,
    /// Number of starts that it may have under way: one for each member, less those whose members went elsewhere.
    pub want: u32,
    pub until: Time,
    /// Timer of the wait, while it is in the table.
    #[serde(skip)]
    pub timer: Option<TimerId>,
    /// Attribute by which its class is found, while it is in the table.
    #[serde(skip)]
    pub class: Option<PairId>,
}

impl Waiter {
    /// Returns a take that waits in no table.
    pub fn new(conn: ConnId, place: Place, take: Take<'_>, since: Time) -> Self {
        let Take { timeout, filter, count, priority, lease, .. } = take;
        let (rank, want, until, timer, class) = ((priority, 0), 0, since + timeout, None, None);
        let waiter = Waiter { conn, place, rank, since, priority, count, filter, lease, want, until, timer, class };
        Waiter { want: waiter.most_starts(), ..waiter }
    }

    /// Returns a copy that is in no table, for a record.
    pub fn to_save(&self) -> Self {
        Waiter { filter: self.filter.clone(), timer: None, class: None, ..*self }
    }

    pub fn members(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    pub fn is_several(&self) -> bool {
        self.members() > 1
    }

    /// Returns whether a start can bring a member that fits: any but a named one.
    pub fn asks_for_starts(&self) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.member.is_none())
    }

    /// Returns the most starts that it may have under way: one for each member.
    pub fn most_starts(&self) -> u32 {
        if self.asks_for_starts() { self.members() } else { 0 }
    }
}

/// Waiters for a pool alone or for a group.
#[derive(Default)]
struct WaitQueue {
    order: BTreeSet<Turn>,
    /// Waiters for several members.
    several: BTreeSet<Turn>,
    /// Number of starts that the waiters may have under way.
    want: u64,
    /// Waiters that may have starts under way, first come first.
    wanting: List<WaiterId>,
}

/// All waiters, in the queues of their pools and groups.
#[derive(Default)]
pub(super) struct Waiters {
    waiters: Slab<Waiter>,
    pub classes: Classes,
    /// Number of the next arrival.
    pub next_arrival: u64,
    queues: SideTable<Place, WaitQueue>,
    by_conn: SideTable<ConnId, Option<WaiterId>>,
    /// Links of the lists `wanting`.
    links: Links,
}

impl Waiters {
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (WaiterId, &Waiter)> {
        self.waiters.iter().map(|(index, waiter)| (WaiterId::from_index(index), waiter))
    }

    pub fn get(&self, id: WaiterId) -> &Waiter {
        &self.waiters[id.index()]
    }

    pub fn of_conn(&self, conn: ConnId) -> Option<WaiterId> {
        *self.by_conn.get(conn)
    }

    /// Returns the number of waiters in a queue.
    pub fn queued(&self, place: Place) -> u32 {
        u32::try_from(self.queues.get(place).order.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of starts that the waiters of a queue may have under way.
    pub fn want(&self, place: Place) -> u64 {
        self.queues.get(place).want
    }

    /// Returns the first waiter of a queue.
    pub fn first(&self, place: Place) -> Option<WaiterId> {
        self.queues.get(place).order.first().map(|(_, id)| *id)
    }

    /// Returns the waiters of a queue behind a position, in their order.
    pub fn after(&self, place: Place, after: Option<Rank>) -> impl Iterator<Item = Turn> {
        let (priority, arrival) = after.map_or((0, 0), |(priority, arrival)| (priority, arrival.saturating_add(1)));
        self.queues.get(place).order.range(((priority, arrival), WaiterId::from_index(0))..).copied().metered()
    }

    /// Returns the first waiter of a queue for several members.
    pub fn first_for_several(&self, place: Place) -> Option<Turn> {
        self.queues.get(place).several.first().copied()
    }

    /// Returns the last waiter of a queue to come.
    pub fn newest(&self, place: Place) -> Option<WaiterId> {
        let order = &self.queues.get(place).order;
        let last = |priority: u8| {
            let before = ((priority + 1, 0), WaiterId::from_index(0));
            order.range(..before).next_back().filter(|((of, _), _)| *of == priority)
        };
        (0..PRIORITIES).filter_map(last).max_by_key(|((_, arrival), _)| *arrival).map(|(_, id)| *id)
    }

    /// Adds a waiter behind all who came before.
    pub fn add(&mut self, mut waiter: Waiter, step: &mut Step<'_, '_>) -> WaiterId {
        waiter.rank.1 = self.next_arrival;
        self.next_arrival += 1;
        self.insert(waiter, step).expect("the callers have looked for a wait of the connection")
    }

    /// Adds a waiter at its position. Returns None if its connection waits already, or it has no such priority.
    pub fn insert(&mut self, mut waiter: Waiter, step: &mut Step<'_, '_>) -> Option<WaiterId> {
        let id = WaiterId::from_index(self.waiters.vacant_key());
        let of_conn = self.by_conn.get_mut(waiter.conn);
        (of_conn.is_none() && waiter.priority < PRIORITIES).then_some(())?;
        *of_conn = Some(id);
        let aged = waiter.since + LONG_WAIT;
        waiter.rank.0 = if aged <= step.now { 0 } else { waiter.priority };
        let next = if waiter.rank.0 > 0 { waiter.until.min(aged) } else { waiter.until };
        waiter.timer = Some(step.timers.arm(next, Timer::Wait(id)));
        self.waiters.insert(waiter);
        self.link(id);
        self.set_want(id, self.get(id).want, 0);
        Some(id)
    }

    /// Removes a waiter and cancels its timer.
    pub fn remove(&mut self, id: WaiterId, step: &mut Step<'_, '_>) -> Waiter {
        self.unlink(id);
        self.set_want(id, 0, self.get(id).want);
        let mut waiter = self.waiters.remove(id.index());
        waiter.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        self.by_conn.clear(waiter.conn);
        waiter
    }

    fn link(&mut self, id: WaiterId) {
        let waiter = &self.waiters[id.index()];
        let (place, turn, is_several) = (waiter.place, (waiter.rank, id), waiter.is_several());
        let class = self.classes.insert(turn, waiter);
        self.waiters[id.index()].class = Some(class);
        let queue = self.queues.get_mut(place);
        queue.order.insert(turn);
        if is_several {
            queue.several.insert(turn);
        }
    }

    fn unlink(&mut self, id: WaiterId) {
        let waiter = &mut self.waiters[id.index()];
        let (place, turn) = (waiter.place, (waiter.rank, id));
        waiter.class.take().into_iter().for_each(|class| self.classes.remove(class, turn, waiter));
        let queue = self.queues.get_mut(place);
        queue.order.remove(&turn);
        queue.several.remove(&turn);
    }

    /// Sets the number of starts that a waiter may have under way from `before` to `want`.
    fn set_want(&mut self, id: WaiterId, want: u32, before: u32) {
        let waiter = &mut self.waiters[id.index()];
        waiter.want = want;
        let queue = self.queues.get_mut(waiter.place);
        queue.want = queue.want + u64::from(want) - u64::from(before);
        match (before, want) {
            (0, 1..) => queue.wanting.push_back(&mut self.links, id),
            (1.., 0) => queue.wanting.remove(&mut self.links, id),
            _ => {}
        }
    }

    /// Counts a start whose member went elsewhere for the first waiter that may have caused it.
    pub fn spend_start(&mut self, place: Place) {
        if let Some(id) = self.queues.get(place).wanting.front() {
            let want = self.get(id).want;
            self.set_want(id, want - 1, want);
        }
    }

    /// Takes the timer of a waiter, which has fired. Returns false if its wait goes on: it has lasted for
    /// [`LONG_WAIT`], and comes before all who have not.
    pub fn fired(&mut self, id: WaiterId, step: &mut Step<'_, '_>) -> bool {
        let waiter = &mut self.waiters[id.index()];
        waiter.timer.take().into_iter().for_each(TimerId::fired);
        if waiter.until <= step.now {
            return true;
        }
        waiter.timer = Some(step.timers.arm(waiter.until, Timer::Wait(id)));
        self.unlink(id);
        self.waiters[id.index()].rank.0 = 0;
        self.link(id);
        false
    }
}
