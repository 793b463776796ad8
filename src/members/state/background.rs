//! Background work: what is too much for one step goes on in slices of the tick's budget, while others are served in between.

use super::*;
use std::collections::VecDeque;

/// Number of members that are stopped, lost, returned or timed anew in a tick: about a millisecond of work, two where each has a
/// holder.
pub(super) const SLICE: u32 = 2_048;
/// Time after which another tick has begun: no tick serves longer. All background work that begins in a tick shares its budget.
const LONGEST_TICK: Span = Span::from_millis(10);
/// Time until background work goes on.
const RESUME_DELAY: Span = Span::from_millis(1);

pub(super) enum BackgroundTask {
    /// Returns what a connection held that is gone.
    Holding(HoldingId),
    /// Ends the members of a lost provider, or suspends them for its grace.
    Agent(AgentId),
    /// Stops the members of a pool that was removed at once.
    Remove(PoolId),
    /// Stops the members that are not in use of a pool that is being removed, those after this name.
    Retire(PoolId, Option<Arc<[u8]>>),
    /// Times the members of a pool anew, those after this name.
    Retime(PoolId, Option<Arc<[u8]>>),
    /// Settles a pool that has too many members, or some that wait to be cleaned and need not.
    Settle(PoolId),
}

impl BackgroundTask {
    /// Returns the pool of a task that is about one.
    pub fn pool(&self) -> Option<PoolId> {
        match self {
            BackgroundTask::Holding(_) | BackgroundTask::Agent(_) => None,
            BackgroundTask::Remove(id)
            | BackgroundTask::Retire(id, _)
            | BackgroundTask::Retime(id, _)
            | BackgroundTask::Settle(id) => Some(*id),
        }
    }
}

/// The tasks that go on, and the budget of the tick.
pub(super) struct Background {
    tasks: VecDeque<BackgroundTask>,
    /// Armed while there are tasks.
    timer: Option<TimerId>,
    slice: u32,
    /// Number of members that may still be worked on in this tick.
    budget: u32,
    budget_since: Time,
    by_pool: SideTable<PoolId, PoolTasks>,
}

/// The tasks under way for a pool.
#[derive(Clone, Copy, Default)]
pub(super) struct PoolTasks {
    pub is_retiring: bool,
    pub is_retiming: bool,
    /// True while a [`BackgroundTask::Settle`] is to come.
    pub is_behind: bool,
}

impl Background {
    pub fn new(slice: u32) -> Self {
        Background {
            tasks: VecDeque::new(),
            timer: None,
            slice,
            budget: slice,
            budget_since: Time::START,
            by_pool: SideTable::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn armed_timers(&self) -> usize {
        usize::from(self.timer.is_some())
    }

    /// Returns the tasks under way for a pool.
    pub fn of_pool(&self, pool: PoolId) -> PoolTasks {
        *self.by_pool.get(pool)
    }

    /// Fills the budget if another tick has begun.
    pub fn refill(&mut self, now: Time) {
        if now.since(self.budget_since) >= LONGEST_TICK {
            (self.budget, self.budget_since) = (self.slice, now);
        }
    }

    /// Fills the budget, or empties it until [`Background::refill`] or [`Background::resume`].
    pub fn set_budget(&mut self, is_full: bool, now: Time) {
        (self.budget, self.budget_since) = (if is_full { self.slice } else { 0 }, now);
    }

    /// Returns the number of members that may still be worked on in this tick.
    pub fn budget(&self) -> usize {
        self.budget as usize
    }

    /// Spends the budget of one member; returns false when there is none.
    pub fn spend(&mut self) -> bool {
        let has_some = self.budget > 0;
        self.budget -= u32::from(has_some);
        has_some
    }

    /// Spends the budget of some members, no more than [`Background::budget`].
    pub fn spend_many(&mut self, members: usize) {
        // Lossless: the budget is an u32.
        self.budget -= members as u32;
    }

    /// Arms the timer if there are tasks, and cancels it otherwise.
    pub fn arm(&mut self, step: &mut Step<'_, '_>) {
        if self.tasks.is_empty() {
            self.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        } else if self.timer.is_none() {
            self.timer = Some(step.timers.arm(step.now + RESUME_DELAY, Timer::Background));
        }
    }

    /// Begins the slice of a timer that has fired.
    pub fn resume(&mut self, now: Time) {
        self.timer.take().into_iter().for_each(TimerId::fired);
        self.set_budget(true, now);
    }

    /// Adds a task behind the others.
    pub fn push(&mut self, task: BackgroundTask) {
        self.mark(&task, true);
        self.tasks.push_back(task);
    }

    /// Removes and returns the first task.
    pub fn pop(&mut self) -> Option<BackgroundTask> {
        let task = self.tasks.pop_front()?;
        self.mark(&task, false);
        Some(task)
    }

    /// Adds a task that settles a pool later, unless there is one.
    pub fn fall_behind(&mut self, pool: PoolId) {
        if !self.of_pool(pool).is_behind {
            self.push(BackgroundTask::Settle(pool));
        }
    }

    /// Removes the tasks about which `is_over` is true, and returns them.
    pub fn remove(&mut self, is_over: impl Fn(&BackgroundTask) -> bool) -> Vec<BackgroundTask> {
        let mut removed = Vec::new();
        for task in std::mem::take(&mut self.tasks) {
            if is_over(&task) {
                self.mark(&task, false);
                removed.push(task);
            } else {
                self.tasks.push_back(task);
            }
        }
        removed
    }

    fn mark(&mut self, task: &BackgroundTask, is_queued: bool) {
        match task {
            BackgroundTask::Retire(id, _) => self.by_pool.get_mut(*id).is_retiring = is_queued,
            BackgroundTask::Retime(id, _) => self.by_pool.get_mut(*id).is_retiming = is_queued,
            BackgroundTask::Settle(id) => self.by_pool.get_mut(*id).is_behind = is_queued,
            BackgroundTask::Holding(_) | BackgroundTask::Agent(_) | BackgroundTask::Remove(_) => {}
        }
    }

    /// Returns the number of tasks about which `is_it` is true.
    pub fn count(&self, is_it: impl Fn(&BackgroundTask) -> bool) -> usize {
        self.tasks.iter().filter(|task| is_it(task)).count()
    }

    /// Compares the timer and the flags of pools with the tasks.
    pub fn check(&self) {
        assert_eq!(self.tasks.is_empty(), self.timer.is_none(), "tasks go on some time");
        for (id, of_pool) in self.by_pool.iter() {
            let counts = [
                self.count(|task| matches!(task, BackgroundTask::Retire(of, _) if *of == id)),
                self.count(|task| matches!(task, BackgroundTask::Retime(of, _) if *of == id)),
                self.count(|task| matches!(task, BackgroundTask::Settle(of) if *of == id)),
            ];
            let flags = [of_pool.is_retiring, of_pool.is_retiming, of_pool.is_behind];
            assert_eq!(counts, flags.map(usize::from), "the tasks of a pool");
        }
    }
}
