//! Background work: work that is too much for one step goes on in slices of the tick's budget, while others are served
//! in between.

use super::*;
use poolcounter_core::slices::Slices;

/// Cost of a member that is stopped, lost, returned or timed anew: half a microsecond, or a whole one with a holder.
pub(super) const COST: u32 = 2;

/// Spends the cost of an entry, or what is left of the budget for it. Returns false if too little is left.
pub(super) fn spend(cost: u32, step: &mut Step<'_, '_>) -> bool {
    step.timers.spend(cost.min(step.timers.budget().max(COST)))
}

pub(super) enum BackgroundTask {
    /// Return the members of a connection that has closed.
    Holding(HoldingId),
    /// End the members of a lost provider, or suspend them for its grace.
    Agent(AgentId),
    /// Stop the members of a pool that was removed at once.
    Remove(PoolId),
    /// Stop the unused members of a pool that is being removed, from the one after this name on.
    Retire(PoolId, Option<Arc<[u8]>>),
    /// Time the members of a pool anew, from the one after this name on.
    Retime(PoolId, Option<Arc<[u8]>>),
    /// Offer the free members of a pool to its waiters, from the class behind this one on.
    Offer(PoolId, Option<Cursor>),
    /// Offer the free members of a group's pools again, and start members for its waiters.
    Group(GroupId),
    /// Refuse the waiters of a group all pools of which are being removed, and remove it once it has none.
    EndGroup(GroupId),
    /// Remove the pools of a group that joined it with a serial number below this one, gracefully (true) or at once.
    RemoveGroup(GroupId, bool, u64),
    /// Refuse this number of the newest waiters of a pool, because its queue is too long.
    Shorten(PoolId, u32),
    /// Settle a pool that has too many members, or some that wait to be cleaned and need not.
    Settle(PoolId),
    /// Settle the pools that lacked room for starts.
    Launch,
}

impl BackgroundTask {
    /// Returns the pool of a task, if it concerns one.
    pub fn pool(&self) -> Option<PoolId> {
        match self {
            BackgroundTask::Holding(_)
            | BackgroundTask::Agent(_)
            | BackgroundTask::Group(_)
            | BackgroundTask::RemoveGroup(..)
            | BackgroundTask::EndGroup(_)
            | BackgroundTask::Launch => None,
            BackgroundTask::Remove(id)
            | BackgroundTask::Retire(id, _)
            | BackgroundTask::Retime(id, _)
            | BackgroundTask::Offer(id, _)
            | BackgroundTask::Shorten(id, _)
            | BackgroundTask::Settle(id) => Some(*id),
        }
    }
}

/// Queue of the tasks.
#[derive(Default)]
pub(super) struct Background {
    tasks: Slices<BackgroundTask>,
    by_pool: SideTable<PoolId, PoolTasks>,
    by_group: SideTable<GroupId, GroupTasks>,
    /// True while a [`BackgroundTask::Launch`] is queued.
    is_launching: bool,
}

/// Tasks under way for a pool.
#[derive(Clone, Copy, Default)]
pub(super) struct PoolTasks {
    /// Number of all of them.
    pub queued: u32,
    pub is_retiring: bool,
    pub is_retiming: bool,
    pub is_offering: bool,
    /// True while a [`BackgroundTask::Settle`] is queued.
    pub is_behind: bool,
}

/// Tasks under way for a group.
#[derive(Clone, Copy, Default)]
pub(super) struct GroupTasks {
    /// Number of all but [`BackgroundTask::EndGroup`].
    pub queued: u32,
    pub is_ending: bool,
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

    /// Returns the tasks under way for a group.
    pub fn of_group(&self, group: GroupId) -> GroupTasks {
        *self.by_group.get(group)
    }

    /// Returns whether pools that lacked room for starts are to be settled.
    pub fn is_launching(&self) -> bool {
        self.is_launching
    }

    /// Asks for a slice, if there are tasks.
    pub fn go_on(&self, timers: &mut Timers<'_, Timer>) {
        self.tasks.go_on(Timer::Background, timers);
    }

    /// Adds a task as the last one.
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

    /// Removes and returns the tasks for which `is_over` is true.
    pub fn remove(&mut self, is_over: impl Fn(&BackgroundTask) -> bool) -> Vec<BackgroundTask> {
        let removed = self.tasks.remove(is_over);
        removed.iter().for_each(|task| self.mark(task, false));
        removed
    }

    fn mark(&mut self, task: &BackgroundTask, is_queued: bool) {
        let count = |queued: &mut u32| *queued = if is_queued { *queued + 1 } else { *queued - 1 };
        if let Some(pool) = task.pool() {
            let of_pool = self.by_pool.get_mut(pool);
            count(&mut of_pool.queued);
            match task {
                BackgroundTask::Retire(..) => of_pool.is_retiring = is_queued,
                BackgroundTask::Retime(..) => of_pool.is_retiming = is_queued,
                BackgroundTask::Offer(..) => of_pool.is_offering = is_queued,
                BackgroundTask::Settle(_) => of_pool.is_behind = is_queued,
                _ => {}
            }
        }
        match task {
            BackgroundTask::Group(id) | BackgroundTask::RemoveGroup(id, ..) => {
                count(&mut self.by_group.get_mut(*id).queued);
            }
            BackgroundTask::EndGroup(id) => self.by_group.get_mut(*id).is_ending = is_queued,
            BackgroundTask::Launch => self.is_launching = is_queued,
            _ => {}
        }
    }

    /// Returns the tasks, the first one first.
    pub fn tasks(&self) -> impl Iterator<Item = &BackgroundTask> {
        self.tasks.iter()
    }

    /// Returns the number of tasks for which `is_it` is true.
    pub fn count(&self, is_it: impl Fn(&BackgroundTask) -> bool) -> usize {
        self.tasks.iter().filter(|task| is_it(task)).count()
    }

    /// Compares the flags of pools with the tasks.
    pub fn check(&self) {
        let launches = self.count(|task| matches!(task, BackgroundTask::Launch));
        assert_eq!(launches, usize::from(self.is_launching), "pools that lacked room are settled by one task");
        for (id, of_pool) in self.by_pool.iter() {
            let counts = [
                self.count(|task| matches!(task, BackgroundTask::Retire(of, _) if *of == id)),
                self.count(|task| matches!(task, BackgroundTask::Retime(of, _) if *of == id)),
                self.count(|task| matches!(task, BackgroundTask::Offer(of, _) if *of == id)),
                self.count(|task| matches!(task, BackgroundTask::Settle(of) if *of == id)),
            ];
            let flags = [of_pool.is_retiring, of_pool.is_retiming, of_pool.is_offering, of_pool.is_behind];
            assert_eq!(counts, flags.map(usize::from), "the tasks of a pool");
            let queued = self.count(|task| task.pool() == Some(id));
            assert_eq!(of_pool.queued as usize, queued, "number of the tasks of a pool");
        }
    }
}
