//! Table of the waiters, their queues by pool and by group, and the starts that they need.

use super::*;
use poolcounter_core::meter::Metered as _;

mod check;
mod classes;
mod deep;
mod placed;
mod starts;

use classes::Classes;
pub(super) use classes::{Cursor, Place};
use deep::Deep;
use placed::{PlacedWaiters, Search};

/// Length of a wait that gives it the first priority.
const LONG_WAIT: Span = Span::from_secs(60);
const PRIORITIES: usize = 10;
/// Most waiters of a priority that are examined for one that can have several members.
const MOST_LOOKED_AT: usize = 64;
/// Most waiters of a priority, or of a class, that are passed over at once because they may not take from a pool.
pub(super) const MOST_PASSED: usize = 16;

/// Result of a look at a waiter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Found,
    Other,
    /// No other waiter must be examined.
    End,
}

/// Position of a waiter in the order: lower comes first.
pub type Rank = (u8, u64);

/// Waiter that is served next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Next {
    pub rank: Rank,
    pub waiter: WaiterId,
    /// False if it was not examined, because [`MOST_PASSED`] come before it that may not take from the pool.
    pub is_known: bool,
}

pub(super) struct Waiter {
    pub conn: ConnId,
    pub source: WaitSource,
    /// Number among all takes that ever waited.
    pub arrival: u64,
    pub since: Time,
    pub priority: u8,
    pub count: Option<u32>,
    pub filter: Option<Box<Filter>>,
    pub lease: Option<Span>,
    /// Number of starts that it may have under way.
    pub want: u32,
    /// Number of its starts whose members went elsewhere.
    pub starts_used: u32,
    /// True if its timeout is 0: it waits for a check.
    pub no_wait: bool,
    pub until: Time,
    /// Timer of the wait, while it is in the table.
    pub timer: Option<TimerId>,
    /// Class; None if it is in no table, or waits for any one member.
    pub class: Option<ClassId>,
}

/// Source of the members of a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WaitSource {
    Pool(PoolId),
    /// A group, and the pool in which it causes starts or waits for a check.
    Group(GroupId, Option<PoolId>),
}

impl WaitSource {
    /// Returns the pool in which it causes starts.
    fn pool(self) -> Option<PoolId> {
        match self {
            WaitSource::Pool(pool) => Some(pool),
            WaitSource::Group(_, pool) => pool,
        }
    }
}

/// Request of a waiter: any member, one that matches a filter, or several.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    Any,
    Matching,
    Several,
}

impl Waiter {
    pub fn members(&self) -> u32 {
        self.count.unwrap_or(1)
    }

    /// Returns the number of starts that it may still cause, without a look at the free members.
    pub fn starts_left(&self) -> u32 {
        let is_named = self.filter.as_ref().is_some_and(|filter| filter.member.is_some());
        if is_named { 0 } else { self.members().saturating_sub(self.starts_used) }
    }

    pub fn demand(&self) -> Demand {
        match &self.filter {
            _ if self.members() > 1 => Demand::Several,
            Some(_) => Demand::Matching,
            None => Demand::Any,
        }
    }

    pub fn rank(&self, now: Time) -> Rank {
        let has_waited = now.since(self.since) >= LONG_WAIT;
        (if has_waited { 0 } else { self.priority }, self.arrival)
    }

    pub fn place(&self) -> Place {
        match self.source {
            WaitSource::Pool(pool) => Place::Pool(pool),
            WaitSource::Group(group, _) => Place::Group(group),
        }
    }

    /// Returns whether another waiter has the same request, source and priority.
    fn asks_the_same(&self, other: &Waiter) -> bool {
        let about = |waiter: &Waiter| (waiter.place(), waiter.members(), waiter.priority);
        about(self) == about(other) && self.filter == other.filter
    }

    /// Returns the pool in which it causes starts.
    pub fn starts_in(&self) -> Option<PoolId> {
        self.source.pool()
    }

    /// Returns the time of its next timer: the end of its wait, or the end of [`LONG_WAIT`] before that.
    fn next_timer(&self, now: Time) -> Time {
        let aged = self.since + LONG_WAIT;
        if self.priority > 0 && aged > now { self.until.min(aged) } else { self.until }
    }
}

/// Waiters by demand and by priority, first come first.
#[derive(Default)]
struct WaitQueue {
    len: u32,
    lists: [[List<WaiterId>; PRIORITIES]; 3],
}

/// The waiters of a pool.
#[derive(Default)]
struct PoolWaiters {
    queue: WaitQueue,
    /// Number of starts that waiters may have under way here, including those of groups.
    need: u64,
    /// Waiters that may have starts under way here, including those for its group.
    needy: List<WaiterId>,
    placed: PlacedWaiters,
    /// Waiters for the end of a check.
    no_wait: List<WaiterId>,
    /// First waiter for several members that could have them, at the last look.
    reserving: Option<WaiterId>,
    /// Number of members that were neither stopped nor kept out, at the last look.
    usable: u64,
    /// Last class to which the free members were offered, while that goes on.
    cursor: Option<Cursor>,
    deep: Deep,
}

/// All waiters, in the queues of their pools and groups.
pub(super) struct Waiters {
    waiters: Slab<Waiter>,
    links: Links,
    need_links: Links,
    check_links: Links,
    classes: Classes,
    next_arrival: u64,
    by_pool: SideTable<PoolId, PoolWaiters>,
    by_group: SideTable<GroupId, GroupWaiters>,
    by_conn: SideTable<ConnId, Option<WaiterId>>,
    /// Links of the lists `placed` and `unplaced`.
    place_links: Links,
}

/// The waiters of a group.
#[derive(Default)]
struct GroupWaiters {
    queue: WaitQueue,
    /// Waiters that need starts, and cause them in no pool.
    unplaced: List<WaiterId>,
    /// Searches among these for some that may take from a pool, while they go on.
    searches: BTreeMap<PoolId, Search>,
}

impl Default for Waiters {
    fn default() -> Self {
        Waiters {
            waiters: Slab::new(),
            links: Links::default(),
            need_links: Links::default(),
            check_links: Links::default(),
            classes: Classes::default(),
            next_arrival: first_before(u32::MAX.into()),
            by_pool: SideTable::default(),
            by_group: SideTable::default(),
            by_conn: SideTable::default(),
            place_links: Links::default(),
        }
    }
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

    /// Returns a waiter, unless it has been served or refused.
    pub fn find(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(id.index())
    }

    pub fn of_conn(&self, conn: ConnId) -> Option<WaiterId> {
        *self.by_conn.get(conn)
    }

    /// Returns a number above every connection that waits.
    pub fn conns(&self) -> usize {
        self.by_conn.len()
    }

    /// Returns the number of the next arrival.
    pub fn next_arrival(&self) -> u64 {
        self.next_arrival
    }

    /// Sets the number of the next arrival.
    pub fn number_from(&mut self, arrival: u64) {
        self.next_arrival = arrival;
    }

    /// Returns the first waiter for several members of a pool that `look` finds, among those that are examined.
    pub fn first_for_several(
        &self,
        (pool, group): (PoolId, Option<GroupId>),
        now: Time,
        mut look: impl FnMut(WaiterId) -> Look,
    ) -> Option<(Rank, WaiterId)> {
        let lists = self.queues(pool, group).flat_map(|queue| queue.lists[Demand::Several as usize].iter());
        let firsts = lists.filter(|list| !list.is_empty()).filter_map(|list| {
            let looks = list.iter(&self.links).take(MOST_LOOKED_AT).metered().map(|id| (id, look(id)));
            let (id, look) = looks.into_iter().find(|(_, look)| *look != Look::Other)?;
            (look == Look::Found).then(|| (self.get(id).rank(now), id))
        });
        firsts.min()
    }

    /// Returns the waiter for several members for which members of a pool are reserved.
    #[inline]
    pub fn reserving(&self, pool: PoolId) -> Option<WaiterId> {
        self.by_pool.get(pool).reserving
    }

    /// Returns the number of usable members of a pool at the last look at its waiters for several.
    pub fn usable(&self, pool: PoolId) -> u64 {
        self.by_pool.get(pool).usable
    }

    /// Sets the number of usable members of a pool with waiters.
    pub fn set_usable(&mut self, pool: PoolId, usable: u64) {
        self.by_pool.get_mut(pool).usable = usable;
    }

    /// Sets the waiter for several members for which members of a pool are reserved. Returns the previous one if it was
    /// another.
    pub fn set_reserving(&mut self, pool: PoolId, id: Option<WaiterId>) -> Option<WaiterId> {
        if self.by_pool.get(pool).reserving == id {
            return None;
        }
        std::mem::replace(&mut self.by_pool.get_mut(pool).reserving, id)
    }

    /// Notes that a waiter leaves. Returns whether members of the pool were reserved for it.
    pub fn end_reserving(&mut self, pool: PoolId, id: WaiterId) -> bool {
        let is_reserving = self.by_pool.get(pool).reserving == Some(id);
        is_reserving && self.set_reserving(pool, None).is_some()
    }

    /// Clears the state of a pool without waiters.
    pub fn forget(&mut self, pool: PoolId) {
        self.by_pool.clear(pool);
    }

    /// Returns the class to which the free members of a pool were offered last.
    pub fn cursor(&self, pool: PoolId) -> Option<Cursor> {
        self.by_pool.get(pool).cursor
    }

    /// Sets the class to which the free members of a pool were offered last.
    pub fn set_cursor(&mut self, pool: PoolId, cursor: Option<Cursor>) {
        if self.cursor(pool) != cursor {
            self.by_pool.get_mut(pool).cursor = cursor;
        }
    }

    /// Returns the class of waiters for members of a pool, or of its group, behind another one.
    pub fn class_after(&self, pool: PoolId, group: Option<GroupId>, after: Option<Cursor>) -> Option<Cursor> {
        let of_group = || self.classes.after(Place::Group(group?), after);
        self.classes.after(Place::Pool(pool), after).or_else(of_group)
    }

    /// Returns the classes of waiters for members of a pool, or of its group, that may suit a member, including all
    /// that it does suit.
    pub fn classes_under<'a>(
        &'a self,
        pool: PoolId,
        group: Option<GroupId>,
        name: &'a [u8],
        attributes: Option<&'a Attributes>,
    ) -> impl Iterator<Item = ClassId> + 'a {
        let group = group.filter(|group| self.by_group.get(*group).queue.has_classes()).map(Place::Group);
        let pool = Some(Place::Pool(pool)).filter(|_| self.by_pool.get(pool).queue.has_classes());
        pool.into_iter().chain(group).flat_map(move |place| self.classes.under(place, name, attributes))
    }

    /// Returns the number of waiters for members of a pool, including those for its group.
    pub fn queued(&self, pool: PoolId, group: Option<GroupId>) -> u32 {
        self.by_pool.get(pool).queue.len + group.map_or(0, |group| self.by_group.get(group).queue.len)
    }

    fn queues(&self, pool: PoolId, group: Option<GroupId>) -> impl Iterator<Item = &WaitQueue> {
        let group = group.map(|group| &self.by_group.get(group).queue);
        [&self.by_pool.get(pool).queue].into_iter().chain(group)
    }

    /// Returns the waiters for members of a pool, including those for its group, in no order.
    pub fn for_pool(&self, pool: PoolId, group: Option<GroupId>) -> impl Iterator<Item = WaiterId> {
        self.queues(pool, group).flat_map(|queue| self.all_in(queue))
    }

    fn all_in(&self, queue: &WaitQueue) -> impl Iterator<Item = WaiterId> {
        queue.lists.iter().flatten().flat_map(|list| list.iter(&self.links))
    }

    /// Returns a waiter for a pool alone, the first of its kind.
    pub fn any_of_pool(&self, pool: PoolId) -> Option<WaiterId> {
        self.by_pool.get(pool).queue.lists.iter().flatten().find_map(List::front)
    }

    /// Returns a waiter for a group, the first of its kind.
    pub fn any_of_group(&self, group: GroupId) -> Option<WaiterId> {
        self.by_group.get(group).queue.lists.iter().flatten().find_map(List::front)
    }

    /// Returns the newest of the waiters for a pool alone, without those for a check.
    pub fn newest_of_pool(&self, pool: PoolId) -> Option<WaiterId> {
        let lists = self.by_pool.get(pool).queue.lists.iter().flatten().filter(|list| !list.is_empty());
        let newest = lists.filter_map(|list| list.iter_back(&self.links).find(|id| !self.get(*id).no_wait));
        newest.max_by_key(|id| self.get(*id).arrival)
    }

    /// Returns the first waiter for members of a pool with this demand for which `is_meant` is true.
    pub fn first(
        &self,
        (pool, group): (PoolId, Option<GroupId>),
        demand: Demand,
        now: Time,
        is_meant: impl Fn(WaiterId) -> bool,
    ) -> Option<Next> {
        let lists = self.queues(pool, group).flat_map(|queue| queue.lists[demand as usize].iter());
        let lists = lists.filter(|list| !list.is_empty());
        lists.filter_map(|list| self.next_of(list.iter(&self.links), now, &is_meant)).min()
    }

    /// Returns the first waiter of a class for which `is_meant` is true.
    pub fn first_of_class(&self, class: ClassId, now: Time, is_meant: impl Fn(WaiterId) -> bool) -> Option<Next> {
        self.next_of(self.classes.waiters(class), now, is_meant)
    }

    fn next_of(
        &self,
        waiters: impl Iterator<Item = WaiterId>,
        now: Time,
        is_meant: impl Fn(WaiterId) -> bool,
    ) -> Option<Next> {
        let next = waiters.enumerate().find(|(passed, id)| *passed == MOST_PASSED || is_meant(*id));
        let (passed, waiter) = next?;
        Some(Next { rank: self.get(waiter).rank(now), waiter, is_known: passed < MOST_PASSED })
    }

    /// Adds a waiter with a number of its own, last in the order of its priority.
    pub fn add(&mut self, mut waiter: Waiter, step: &mut Step<'_, '_>) {
        waiter.arrival = self.next_arrival;
        self.next_arrival += 1;
        self.insert(waiter, step);
    }

    /// Adds a waiter, last in the order of its priority. Returns None if its connection waits already, or it has no
    /// such priority.
    pub fn insert(&mut self, mut waiter: Waiter, step: &mut Step<'_, '_>) -> Option<()> {
        let id = WaiterId::from_index(self.waiters.vacant_key());
        let of_conn = self.by_conn.get_mut(waiter.conn);
        (of_conn.is_none() && usize::from(waiter.priority) < PRIORITIES).then_some(())?;
        *of_conn = Some(id);
        let queue = queue_of(&mut self.by_pool, &mut self.by_group, waiter.source);
        queue.len += 1;
        queue.list_of(&waiter).push_back(&mut self.links, id);
        self.count_starts(id, waiter.source, waiter.want, waiter.no_wait);
        waiter.timer = Some(step.timers.arm(waiter.next_timer(step.now), Timer::Wait(id)));
        if waiter.demand() != Demand::Any {
            waiter.class = Some(self.classes.insert(id, &waiter, &self.waiters));
        }
        self.waiters.insert(waiter);
        Some(())
    }

    /// Removes a waiter and cancels its timer.
    pub fn remove(&mut self, id: WaiterId, step: &mut Step<'_, '_>) -> Waiter {
        self.waiters[id.index()].timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        let mut waiter = self.waiters.remove(id.index());
        waiter.class.take().into_iter().for_each(|class| self.classes.remove(class, id));
        let queue = queue_of(&mut self.by_pool, &mut self.by_group, waiter.source);
        queue.len -= 1;
        queue.list_of(&waiter).remove(&mut self.links, id);
        self.uncount_starts(id, waiter.source, waiter.want, waiter.no_wait);
        self.by_conn.clear(waiter.conn);
        waiter
    }

    /// Takes the timer of a waiter, which has fired. Returns false if its wait goes on: it has lasted for
    /// [`LONG_WAIT`].
    pub fn fired(&mut self, id: WaiterId, step: &mut Step<'_, '_>) -> bool {
        let waiter = &mut self.waiters[id.index()];
        waiter.timer.take().into_iter().for_each(TimerId::fired);
        if waiter.until > step.now {
            waiter.timer = Some(step.timers.arm(waiter.until, Timer::Wait(id)));
        }
        waiter.timer.is_none()
    }
}

impl WaitQueue {
    /// Returns whether there are waiters for some members or several.
    fn has_classes(&self) -> bool {
        let [any, ..] = &self.lists;
        any.iter().map(List::len).sum::<u32>() < self.len
    }

    fn list_of(&mut self, waiter: &Waiter) -> &mut List<WaiterId> {
        &mut self.lists[waiter.demand() as usize][usize::from(waiter.priority)]
    }
}

fn queue_of<'a>(
    by_pool: &'a mut SideTable<PoolId, PoolWaiters>,
    by_group: &'a mut SideTable<GroupId, GroupWaiters>,
    source: WaitSource,
) -> &'a mut WaitQueue {
    match source {
        WaitSource::Pool(pool) => &mut by_pool.get_mut(pool).queue,
        WaitSource::Group(group, _) => &mut by_group.get_mut(group).queue,
    }
}
