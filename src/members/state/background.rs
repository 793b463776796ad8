//! Background work: what is too much for one step goes on in slices of the tick's budget, while others are served in between.

use super::*;
use poolcounter_core::slices::Slices;

/// Cost of a member that is stopped, lost, returned or timed anew: half a microsecond, or one where it has a holder.
pub(super) const COST: u32 = 2;

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
    /// Offers the free members of a pool to its waiters.
    Offer(PoolId),
    /// Places waiters of a group where starts are possible.
    Place(GroupId),
    /// Refuses the waiters of a group all pools of which are being removed, and removes it when it has none.
    EndGroup(GroupId),
    /// Removes the first pools of a group, so many, gracefully or at once.
    RemoveGroup(GroupId, bool, usize),
    /// Refuses the newest waiters of a pool, so many, because its queue is too long.
    Shorten(PoolId, u32),
    /// Settles a pool that has too many members, or some that wait to be cleaned and need not.
    Settle(PoolId),
}

impl BackgroundTask {
    /// Returns the pool of a task that is about one.
    pub fn pool(&self) -> Option<PoolId> {
        match self {
            BackgroundTask::Holding(_)
            | BackgroundTask::Agent(_)
            | BackgroundTask::Place(_)
            | BackgroundTask::RemoveGroup(..)
            | BackgroundTask::EndGroup(_) => None,
            BackgroundTask::Remove(id)
            | BackgroundTask::Retire(id, _)
            | BackgroundTask::Retime(id, _)
            | BackgroundTask::Offer(id)
            | BackgroundTask::Shorten(id, _)
            | BackgroundTask::Settle(id) => Some(*id),
        }
    }
}

/// The tasks that go on.
#[derive(Default)]
pub(super) struct Background {
    tasks: Slices<BackgroundTask>,
    by_pool: SideTable<PoolId, PoolTasks>,
}

/// The tasks under way for a pool.
#[derive(Clone, Copy, Default)]
pub(super) struct PoolTasks {
    pub is_retiring: bool,
    pub is_retiming: bool,
    pub is_offering: bool,
    /// True while a [`BackgroundTask::Settle`] is to come.
    pub is_behind: bool,
}

impl Background {
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns the tasks under way for a pool.
    pub fn of_pool(&self, pool: PoolId) -> PoolTasks {
        *self.by_pool.get(pool)
    }

    /// Asks for a slice, if there are tasks.
    pub fn go_on(&self, timers: &mut Timers<'_, Timer>) {
        self.tasks.go_on(Timer::Background, timers);
    }

    /// Adds a task behind the others.
    pub fn push(&mut self, task: BackgroundTask) {
        self.mark(&task, true);
        self.tasks.push(task);
    }

    /// Removes and returns the first task.
    pub fn pop(&mut self) -> Option<BackgroundTask> {
        let task = self.tasks.pop()?;
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
        let removed = self.tasks.remove(is_over);
        removed.iter().for_each(|task| self.mark(task, false));
        removed
    }

    fn mark(&mut self, task: &BackgroundTask, is_queued: bool) {
        match task {
            BackgroundTask::Retire(id, _) => self.by_pool.get_mut(*id).is_retiring = is_queued,
            BackgroundTask::Retime(id, _) => self.by_pool.get_mut(*id).is_retiming = is_queued,
            BackgroundTask::Offer(id) => self.by_pool.get_mut(*id).is_offering = is_queued,
            BackgroundTask::Settle(id) => self.by_pool.get_mut(*id).is_behind = is_queued,
            BackgroundTask::Holding(_)
            | BackgroundTask::Agent(_)
            | BackgroundTask::Remove(_)
            | BackgroundTask::Place(_)
            | BackgroundTask::RemoveGroup(..)
            | BackgroundTask::EndGroup(_)
            | BackgroundTask::Shorten(..) => {}
        }
    }

    /// Returns the tasks that go on, first one first.
    pub fn tasks(&self) -> impl Iterator<Item = &BackgroundTask> {
        self.tasks.iter()
    }

    /// Returns the number of tasks about which `is_it` is true.
    pub fn count(&self, is_it: impl Fn(&BackgroundTask) -> bool) -> usize {
        self.tasks.iter().filter(|task| is_it(task)).count()
    }

    /// Compares the flags of pools with the tasks.
    pub fn check(&self) {
        for (id, of_pool) in self.by_pool.iter() {
            let counts = [
                self.count(|task| matches!(task, BackgroundTask::Retire(of, _) if *of == id)),
                self.count(|task| matches!(task, BackgroundTask::Retime(of, _) if *of == id)),
                self.count(|task| matches!(task, BackgroundTask::Offer(of) if *of == id)),
                self.count(|task| matches!(task, BackgroundTask::Settle(of) if *of == id)),
            ];
            let flags = [of_pool.is_retiring, of_pool.is_retiming, of_pool.is_offering, of_pool.is_behind];
            assert_eq!(counts, flags.map(usize::from), "the tasks of a pool");
        }
    }
}
