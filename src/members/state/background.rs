//! Background work: work that is too much for one step goes on in slices of the tick's budget, while others are served
//! in between. A task brings one thing in line with what was decided about it; what it has not reached yet goes on as
//! before the decision. Each thing has one task at most, and a task whose thing has ended finds nothing to do.

use super::history::{End, Ending};
use super::waiters::Place;
use super::{AgentId, GroupId, HoldingId, Lost, MemberId, NoMembers, Phase, PoolId, Stat, State, Step, Timer, What};
use poolcounter_core::Timers;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Cost of a member that is stopped, lost, returned or timed anew: half a microsecond, or a whole one with a holder.
pub(super) const COST: u32 = 2;

/// Spends the cost of an entry, or what is left of the budget for it. Returns false if too little is left.
pub(super) fn spend(cost: u32, step: &mut Step<'_, '_>) -> bool {
    step.timers.spend(cost.min(step.timers.budget().max(COST)))
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Return the members of a connection that has closed.
    Holding(HoldingId),
    /// End the members of a lost provider, suspend them for its grace, or pass them to its new connection.
    Agent(AgentId),
    /// Bring the members and waiters of a pool in line with its settings, and settle it.
    Pool(PoolId),
    /// Remove the pools of a group, refuse its waiters, or offer them free members and start more.
    Group(GroupId),
    /// Offer the free members of pools again.
    Offers,
}

/// Queue of the tasks.
#[derive(Default)]
pub(super) struct Background {
    tasks: VecDeque<Task>,
    queued: BTreeSet<Task>,
}

impl Background {
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn has(&self, task: Task) -> bool {
        self.queued.contains(&task)
    }

    /// Asks for a slice, if there are tasks.
    pub fn go_on(&self, timers: &mut Timers<'_, Timer>) {
        if !self.tasks.is_empty() {
            timers.go_on(Timer::Background);
        }
    }

    /// Adds a task as the last one, unless it is queued.
    pub fn push(&mut self, task: Task) {
        if self.queued.insert(task) {
            self.tasks.push_back(task);
        }
    }
}

impl State {
    /// Runs a task as far as the budget lasts, and queues the rest.
    pub(super) fn begin(&mut self, task: Task, step: &mut Step<'_, '_>) {
        let is_more = match task {
            Task::Holding(id) => self.drain_holding(id, step),
            Task::Agent(id) => self.reconcile_agent(id, step),
            Task::Pool(id) => self.reconcile_pool(id, step),
            Task::Group(id) => self.reconcile_group(id, step),
            Task::Offers => self.offer_again(step),
        };
        if is_more {
            self.background.push(task);
        }
    }

    /// Continues each task in turn, as far as the budget lasts. Those whose turn does not come are the first next time.
    pub(super) fn resume_background(&mut self, step: &mut Step<'_, '_>) {
        for _ in 0..self.background.tasks.len() {
            let Some(task) = self.background.tasks.pop_front() else { return };
            self.background.queued.remove(&task);
            self.begin(task, step);
            if step.timers.budget() < COST {
                return;
            }
        }
    }

    /// Settles a pool later: it has too many members, or some that wait to be cleaned and need not.
    pub(super) fn fall_behind(&mut self, id: PoolId) {
        self.pools.get_mut(id).is_behind = true;
        self.background.push(Task::Pool(id));
    }

    /// Settles a pool, and brings it in line with its settings. Returns whether there is more to do.
    fn reconcile_pool(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        if !self.pools.has(id) {
            return false;
        }
        if std::mem::take(&mut self.pools.get_mut(id).is_behind) {
            // Fixed members in excess of the maximum are not stopped, and so are free for waiters.
            self.pools.reconsider(id);
            // It is settled now, while the other tasks have left some of the budget.
            self.settle_pool(id, step);
        }
        // The walk comes last: it may be over many members.
        self.pools.has(id) && (self.shorten_queue(id, step) || self.walk(id, step))
    }

    /// Brings each member of a pool in line with the pool, which is being removed or has other settings.
    pub(super) fn begin_walk(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        self.pools.get_mut(id).walk = Some(Arc::default());
        if self.walk(id, step) {
            self.background.push(Task::Pool(id));
        }
    }

    /// Goes on with the walk over the members of a pool, if there is one. Returns whether there are more.
    fn walk(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        let Some(after) = self.pools.get_mut(id).walk.take() else { return false };
        let is_leaving = self.pool(id).is_leaving;
        let rest = match is_leaving && (self.end_starts(id, step) || self.refuse_waiters(Place::Pool(id), step)) {
            true => Some(after),
            false => self.walk_slice(id, &after, step),
        };
        let is_more = rest.is_some();
        self.pools.get_mut(id).walk = rest;
        self.pools.touch(id);
        is_more
    }

    /// Walks over members with a name behind `after`, as many as the budget allows; returns the name of the last one if
    /// there are more.
    fn walk_slice(&mut self, id: PoolId, after: &Arc<[u8]>, step: &mut Step<'_, '_>) -> Option<Arc<[u8]>> {
        let mut behind = self.members.named_after(id, Some(after));
        let most = step.timers.budget() / COST;
        let slice: Vec<(&Arc<[u8]>, MemberId)> = behind.by_ref().take(most as usize).collect();
        let last = slice.last().map_or(after, |(name, _)| *name).clone();
        let rest = behind.next().map(|_| last);
        drop(behind);
        let slice: Vec<MemberId> = slice.into_iter().map(|(_, member)| member).collect();
        // Lossless: it is at most the budget.
        step.timers.spend(slice.len() as u32 * COST);
        slice.into_iter().for_each(|member| self.reconcile_member(member, step));
        rest
    }

    /// Ends a member of a pool that is being removed, unless it is in use and may be until its return, or times one of
    /// another pool anew.
    pub(super) fn reconcile_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let (pool, kind) = (self.pools.get(self.members.get(id).pool), self.phase_of(id));
        if pool.is_removed {
            return self.remove_member(id, step);
        }
        if pool.is_leaving && !matches!(kind, Phase::InUse | Phase::Stopping) {
            self.keep_unknown(id, step);
            return self.stop_member(id, Stat::Reconfigured, step);
        }
        self.members.arm_life(id, &pool.settings, step);
        match self.members.get(id).lease() {
            Some(lease) => self.leases.arm(lease, &pool.settings, step),
            None if kind == Phase::Free => self.members.arm_check(id, &pool.settings, step),
            None => {}
        }
    }

    /// Stops a member of a pool that was removed, and removes it at once.
    fn remove_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        if let Some(lease) = self.member(id).lease() {
            self.end_lease(lease, End::plain(Ending::Lost(Lost::Removed)), step);
        }
        if self.phase_of(id) != Phase::Stopping {
            self.count_end(self.member(id).pool, Stat::Reconfigured);
            if let Some(conn) = self.conn_of(id) {
                let (pool, member) = self.names_of(id);
                step.tell(conn, What::Stop { pool, member });
            }
        }
        self.drop_member(id, step);
    }

    /// Ends the starts of a pool that is being removed. Returns whether there are more.
    fn end_starts(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        while let Some(start) = self.starts.in_pool(id).front() {
            if !step.timers.spend(COST) {
                return true;
            }
            self.finish_start(start, step);
        }
        false
    }

    /// Refuses the waiters for a pool or group that is being removed. Returns whether there are more.
    fn refuse_waiters(&mut self, place: Place, step: &mut Step<'_, '_>) -> bool {
        while let Some(waiter) = self.waiters.first(place) {
            if !step.timers.spend(COST) {
                return true;
            }
            self.refuse_wait(waiter, What::NoMembers(NoMembers::Removed), step);
        }
        false
    }

    /// Refuses the newest waiters of a pool, as many as were too many, as long as its queue is too long. Returns whether
    /// there are more.
    pub(super) fn shorten_queue(&mut self, id: PoolId, step: &mut Step<'_, '_>) -> bool {
        while self.pool(id).excess > 0
            && self.queued(id) > self.pool(id).settings.queue
            && let Some(waiter) = self.waiters.newest(Place::Pool(id))
        {
            if !step.timers.spend(COST) {
                return true;
            }
            self.pools.get_mut(id).excess -= 1;
            self.pools.count(id, Stat::QueueFull);
            self.refuse_wait(waiter, What::QueueFull, step);
        }
        self.pools.get_mut(id).excess = 0;
        false
    }

    /// Ends or suspends the members of a lost provider, or passes them to its new connection. Returns whether there are
    /// more.
    fn reconcile_agent(&mut self, id: AgentId, step: &mut Step<'_, '_>) -> bool {
        let Some(pool) = self.agents.find(id).map(|agent| agent.pool) else { return false };
        while let Some(agent) = self.agents.find(id).filter(|agent| agent.is_pending())
            && let Some(member) = self.members.of_agent(id).front()
        {
            let is_lost = agent.is_gone();
            if !step.timers.spend(COST) {
                return true;
            }
            if is_lost {
                let stat = (self.phase_of(member) != Phase::Stopping).then_some(Stat::ProviderLost);
                self.end_anywhere(member, Lost::ProviderLost, String::new(), stat, step);
                continue;
            }
            self.members.set_owner(member, id);
            self.agents.get_mut(id).to_pass -= 1;
            match self.conn_of(member) {
                Some(conn) => self.resume_member(member, conn, step),
                // Its provider is in its grace.
                None => match self.phase_of(member) {
                    Phase::Stopping => self.end_member(member, None, step),
                    Phase::Free | Phase::Checking => self.leave_state(member, step),
                    _ => {}
                },
            }
        }
        if self.agents.find(id).is_some() {
            self.agents.get_mut(id).to_pass = 0;
            self.drop_owner_if_over(Some(id), step);
        }
        self.pools.reconsider(pool);
        false
    }

    /// Removes the pools of a group that are to be removed, refuses its waiters if no pool is left for them, or offers
    /// them free members and starts more. Returns whether there is more to do.
    fn reconcile_group(&mut self, id: GroupId, step: &mut Step<'_, '_>) -> bool {
        if !self.pools.has_group(id) {
            return false;
        }
        if self.remove_pools(id, step) || !self.pools.is_lasting(id) && self.refuse_waiters(Place::Group(id), step) {
            return true;
        }
        if self.pools.group(id).pools.is_empty() {
            self.pools.remove_group(id);
            return false;
        }
        self.settle_group(id, step)
    }

    /// Removes the pools of a group that have joined it before it was removed, last one first. Returns whether there are
    /// more.
    fn remove_pools(&mut self, id: GroupId, step: &mut Step<'_, '_>) -> bool {
        while let Some((graceful, before)) = self.pools.group(id).removal {
            let Some((joined, pool)) = self.pools.last_joined(id, before) else {
                self.pools.group_mut(id).removal = None;
                break;
            };
            if !step.timers.spend(COST) {
                return true;
            }
            self.pools.group_mut(id).removal = Some((graceful, joined));
            if !graceful || !self.pool(pool).is_leaving {
                self.remove(pool, graceful, step);
            }
        }
        false
    }
}
