//! Work in slices, so that connections are served between them: long commands, and jobs and tubes that are given back,
//! dropped or forgotten.

use crate::state::ids::{GateId, SweepId};
use crate::state::watches::Watches;
use crate::state::{Reply, Step, Timer};
use poolcounter_core::id::index_by;
use poolcounter_core::{ConnId, Id, Span, Time, TimerId, Timers};
use slab::Slab;
use std::collections::VecDeque;
use std::sync::Arc;

/// Greatest inaccuracy of a timer: one turn of the wheel.
pub(in crate::state) const TICK: Span = Span::from_millis(1);
/// Cost of a job that changes its place, or of a tube that gets a setting: a microsecond.
pub(in crate::state) const COST: u32 = 4;
/// Number of commands without a client that go through tubes at once, before another that would is begun.
const MOST_ABANDONED: usize = 64;
/// Cost of a job that becomes ready because its time has come: half a microsecond.
pub(in crate::state) const DUE_COST: u32 = 2;

/// Kind of background work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::state) enum Task {
    /// Continue a command.
    Sweep(SweepId),
    /// Give back jobs of connections that have ended.
    Orphans,
    /// Remove watches of connections that have ended.
    Unwatch,
    /// Forget root jobs and hidden tubes, and delete buried jobs that expire.
    Forget,
    /// Store delays and pauses anew.
    Deadlines,
    /// Serve waiting connections.
    Serve,
}

/// Progress of storing all deadlines.
pub(in crate::state) enum DeadlinePlace {
    /// Behind this pause.
    Pauses((Time, Box<[u8]>)),
    /// Before the job at this position of the table.
    Jobs(usize),
}

/// Queue of a tube.
#[derive(Clone, Copy)]
pub(in crate::state) enum Queue {
    Ready,
    Delayed,
    Buried,
    /// Ready dead letters.
    Dead,
}

/// Work on each tube or job.
pub(in crate::state) enum Work {
    /// Update the tube's settings; a gate may be removed at the end.
    Refresh(Option<GateId>),
    /// Update the limits of the groups up to this position.
    Groups(usize),
    /// Delete reserved jobs, for this client. They are found in the table of jobs.
    Cancel(Arc<[u8]>),
    /// Delete the jobs of these queues, one queue after the other.
    Clear(&'static [Queue]),
    /// Move them to this tube.
    Move(&'static [Queue], Box<[u8]>),
    /// Make this many of them ready.
    Kick(&'static [Queue], u32),
}

/// Reply to a command that goes through tubes, with the number of its jobs or without.
pub(in crate::state) enum Answer {
    Fixed(Reply),
    Count(fn(u64) -> Reply),
}

/// A command under way.
pub(in crate::state) struct Sweep {
    /// Connection that gets the reply.
    pub conn: Option<ConnId>,
    pub pattern: Box<[u8]>,
    /// Time of the request.
    pub since: Time,
    /// Position of the next tube, group or job.
    pub next: usize,
    pub work: Work,
    pub answer: Answer,
    pub count: u64,
}

/// Commands under way, and other work in slices.
#[derive(Default)]
pub(in crate::state) struct Background {
    sweeps: Slab<Sweep>,
    /// Number of these without a client.
    abandoned_sweeps: usize,
    /// Commands that are not done, each once, and other tasks, at most one of a kind.
    pub queued_sweeps: VecDeque<SweepId>,
    tasks: VecDeque<Task>,
    /// True if the next slice begins with the commands.
    begins_with_sweeps: bool,
    /// Watches of connections that have ended.
    pub left_watches: Vec<Watches>,
    /// Progress of storing delays and pauses anew.
    pub deadlines: Option<DeadlinePlace>,
    /// Timer of the next slice while the store is as busy as it may be.
    pub pause: Option<TimerId>,
    /// Timer of the next root job or tube that is forgotten, or buried job that expires.
    pub forget: Option<TimerId>,
}

impl Background {
    /// Adds a command.
    pub fn insert(&mut self, sweep: Sweep) -> SweepId {
        self.abandoned_sweeps += usize::from(sweep.conn.is_none());
        SweepId::from_index(self.sweeps.insert(sweep))
    }

    /// Removes a command that is done.
    pub fn remove(&mut self, id: SweepId) -> Sweep {
        let sweep = self.sweeps.remove(id.index());
        self.abandoned_sweeps -= usize::from(sweep.conn.is_none());
        sweep
    }

    /// Lets a command go on without its client, and returns that.
    pub fn abandon(&mut self, id: SweepId) -> Option<ConnId> {
        let conn = self[id].conn.take();
        self.abandoned_sweeps += usize::from(conn.is_some());
        conn
    }

    /// Returns true while so many commands without a client are under way that no other is begun that goes through
    /// tubes: a client could begin one after the other, and leave.
    pub fn is_crowded(&self) -> bool {
        self.abandoned_sweeps >= MOST_ABANDONED
    }

    /// Returns every command.
    pub fn sweeps(&self) -> impl Iterator<Item = (SweepId, &Sweep)> {
        self.sweeps.iter().map(|(place, sweep)| (SweepId::from_index(place), sweep))
    }

    /// Returns true when no command is under way.
    pub fn has_no_sweeps(&self) -> bool {
        self.sweeps.is_empty()
    }

    /// Returns true when no command is under way, and the watches of connections that have ended are removed.
    pub fn is_done(&self) -> bool {
        self.has_no_sweeps() && self.left_watches.is_empty()
    }

    /// Returns whether this task is queued.
    pub fn has(&self, task: Task) -> bool {
        match task {
            Task::Sweep(id) => self.queued_sweeps.iter().any(|queued| *queued == id),
            task => self.tasks.iter().any(|queued| *queued == task),
        }
    }

    /// Returns whether all work that a handover cannot contain is done.
    pub fn is_settled(&self) -> bool {
        self.queued_sweeps.is_empty() && self.tasks.iter().all(|task| *task == Task::Forget)
    }

    /// Returns the tasks of a slice: the number of commands, and of other tasks, and whether the commands come first,
    /// which is so every other time.
    pub fn begin_slice(&mut self) -> (usize, usize, bool) {
        let is_first = self.begins_with_sweeps;
        self.begins_with_sweeps = !is_first;
        (self.queued_sweeps.len(), self.tasks.len(), is_first)
    }

    /// Adds a task behind the other tasks of its sort, unless it is queued already. A command never is: it is begun, or
    /// was removed for its slice.
    pub fn push(&mut self, task: Task) {
        match task {
            Task::Sweep(id) => self.queued_sweeps.push_back(id),
            task if self.has(task) => {}
            task => self.tasks.push_back(task),
        }
    }

    /// Removes and returns the next other task of a slice.
    pub fn pop(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }

    /// Asks for the next slice, if there are tasks: at once, or a little later while the store is as busy as it may be.
    pub fn go_on(&mut self, is_backed_up: bool, step: &mut Step<'_, '_>) {
        if self.tasks.is_empty() && self.queued_sweeps.is_empty() {
            return;
        }
        if !is_backed_up {
            step.timers.go_on(Timer::Work);
        } else if self.pause.is_none() {
            self.pause = Some(step.timers.arm(step.now + TICK, Timer::Room));
        }
    }

    /// Compares the commands with their number.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        let left = self.sweeps().filter(|(_, sweep)| sweep.conn.is_none()).count();
        assert_eq!(self.abandoned_sweeps, left, "commands without a client are counted");
        assert_eq!(self.queued_sweeps.len(), self.sweeps.len(), "each command goes on once");
    }

    /// Returns the number of armed timers.
    pub fn timers(&self) -> usize {
        [&self.pause, &self.forget].into_iter().flatten().count()
    }

    /// Takes out and returns all timers.
    pub fn take_timers(&mut self) -> impl Iterator<Item = TimerId> {
        [self.pause.take(), self.forget.take()].into_iter().flatten()
    }
}

index_by!(SweepId => Background.sweeps: Sweep);

/// Keeps a timer at this time, or earlier; cancels it if there is none.
pub(in crate::state) fn keep_timer_at(
    timer: &mut Option<TimerId>,
    next: Option<Time>,
    key: Timer,
    timers: &mut Timers<'_, Timer>,
) {
    let is_in_time = |timer: &TimerId| next.is_some_and(|next| timers.deadline(timer) <= next + TICK);
    if !timer.as_ref().is_some_and(is_in_time) {
        timer.take().into_iter().for_each(|timer| timers.cancel(timer));
        *timer = next.map(|next| timers.arm(next, key));
    }
}
