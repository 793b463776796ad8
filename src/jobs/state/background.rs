//! Work that goes on in slices, so that others are served between them: long commands, and what is given back, dropped or forgotten
//! bit by bit.

use super::sweeps::{Sweep, SweepId};
use super::{Step, Timer};
use poolcounter_core::id::Id;
use poolcounter_core::slices::Slices;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, Timers};
use slab::Slab;
use std::ops::{Index, IndexMut};

/// Largest distance of a timer from where it should be: one turn of the wheel.
const TICK: Span = Span::from_millis(1);
/// Cost of a job that changes its place, or of a tube that learns of a setting: a microsecond.
pub(super) const COST: u32 = 4;
/// Cost of a job that becomes ready because its time has come: half a microsecond.
pub(super) const DUE_COST: u32 = 2;

/// A kind of background work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// A command goes on.
    Sweep(SweepId),
    /// Jobs of connections that are gone are given back.
    Orphans,
    /// Root jobs and hidden tubes are forgotten.
    Forget,
    /// Connections that wait are served.
    Serve,
}

/// Commands under way, and the work that goes on in slices.
#[derive(Default)]
pub(super) struct Background {
    sweeps: Slab<Sweep>,
    tasks: Slices<Task>,
    /// Armed for the next slice while the store has as much to do as it may.
    pause: Option<TimerId>,
    /// Armed for what is to be forgotten next.
    forget: Option<TimerId>,
}

impl Background {
    /// Adds a command.
    pub fn insert(&mut self, sweep: Sweep) -> SweepId {
        SweepId::from_index(self.sweeps.insert(sweep))
    }

    /// Removes a command that is done.
    pub fn remove(&mut self, id: SweepId) -> Sweep {
        self.sweeps.remove(id.index())
    }

    /// Returns every command.
    pub fn sweeps(&self) -> impl Iterator<Item = (SweepId, &Sweep)> {
        self.sweeps.iter().map(|(place, sweep)| (SweepId::from_index(place), sweep))
    }

    /// Returns every command, to be changed.
    pub fn sweeps_mut(&mut self) -> impl Iterator<Item = &mut Sweep> {
        self.sweeps.iter_mut().map(|(_, sweep)| sweep)
    }

    /// Returns true when no command is under way.
    pub fn has_no_sweeps(&self) -> bool {
        self.sweeps.is_empty()
    }

    /// Returns whether this work is to go on.
    pub fn has(&self, task: Task) -> bool {
        self.tasks.iter().any(|queued| *queued == task)
    }

    /// Returns whether all work that a handover cannot have is done.
    pub fn is_settled(&self) -> bool {
        self.tasks.iter().all(|task| *task == Task::Forget)
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Adds a task behind the others, unless it is there.
    pub fn push(&mut self, task: Task) {
        if !self.has(task) {
            self.tasks.push(task);
        }
    }

    /// Removes and returns the next task of a slice.
    pub fn pop(&mut self) -> Option<Task> {
        self.tasks.pop()
    }

    /// Asks for the next slice, if there are tasks: at once, or a little later while the store has as much to do as it may.
    pub fn go_on(&mut self, is_backed_up: bool, step: &mut Step<'_, '_>) {
        if !is_backed_up {
            self.tasks.go_on(Timer::Work, step.timers);
        } else if self.pause.is_none() && !self.tasks.is_empty() {
            self.pause = Some(step.timers.arm(step.now + TICK, Timer::Room));
        }
    }

    /// Notes that the pause for the store is over.
    pub fn end_pause(&mut self) {
        self.pause.take().into_iter().for_each(TimerId::fired);
    }

    /// Keeps the timer for what is to be forgotten next at this time, or earlier.
    pub fn forget_at(&mut self, next: Option<Time>, timers: &mut Timers<'_, Timer>) {
        keep_timer_at(&mut self.forget, next, Timer::Forget, timers);
    }

    /// Notes that this timer has fired.
    pub fn forget_is_due(&mut self) {
        self.forget.take().into_iter().for_each(TimerId::fired);
    }

    /// Returns whether something is to be forgotten.
    pub fn will_forget(&self) -> bool {
        self.forget.is_some() || self.has(Task::Forget)
    }

    /// Returns how many timers are armed.
    pub fn timers(&self) -> usize {
        [&self.pause, &self.forget].into_iter().flatten().count()
    }

    /// Returns all timers, which are taken out.
    pub fn take_timers(&mut self) -> impl Iterator<Item = TimerId> {
        [self.pause.take(), self.forget.take()].into_iter().flatten()
    }
}

impl Index<SweepId> for Background {
    type Output = Sweep;

    fn index(&self, id: SweepId) -> &Sweep {
        &self.sweeps[id.index()]
    }
}

impl IndexMut<SweepId> for Background {
    fn index_mut(&mut self, id: SweepId) -> &mut Sweep {
        &mut self.sweeps[id.index()]
    }
}

/// Keeps a timer at this time, or earlier; cancels it if there is none.
pub(super) fn keep_timer_at(
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
