//! Work that goes on in slices, so that others are served between them: long commands, and what is given back, dropped or forgotten
//! bit by bit.

use super::sweeps::{Sweep, SweepId};
use super::{DUE_AT_ONCE, PAUSE_BETWEEN_SLICES, Step, Timer};
use poolcounter_core::id::Id;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, Timers};
use slab::Slab;
use std::ops::{Index, IndexMut};

/// Largest distance of a timer from where it should be: one turn of the wheel.
const TICK: Span = Span::from_millis(1);

/// A kind of work that has one timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Single {
    /// Jobs of connections that are gone are given back.
    Orphans,
    /// Root jobs and hidden tubes are forgotten.
    Forget,
    /// Connections that wait are served, and sets of watches dropped.
    Serve,
}

/// Commands under way, timers of the other work, and how much may become due at once.
pub(super) struct Background {
    sweeps: Slab<Sweep>,
    /// By [`Single`].
    timers: [Option<TimerId>; 3],
    /// The last round of timers, and how many more jobs may become ready in it.
    round: (Time, u32),
}

impl Default for Background {
    fn default() -> Self {
        Background { sweeps: Slab::new(), timers: [const { None }; 3], round: (Time::START, DUE_AT_ONCE) }
    }
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

    /// Returns some command.
    pub fn first_sweep(&self) -> Option<SweepId> {
        self.sweeps().next().map(|(id, _)| id)
    }

    /// Returns true when no command is under way.
    pub fn has_no_sweeps(&self) -> bool {
        self.sweeps.is_empty()
    }

    /// Ends the wait of a command for its next slice.
    pub fn cancel_sweep_timer(&mut self, id: SweepId, timers: &mut Timers<'_, Timer>) {
        self[id].timer.take().into_iter().for_each(|timer| timers.cancel(timer));
    }

    /// Returns whether work of this kind is to go on.
    pub fn is_armed(&self, kind: Single) -> bool {
        self.timers[kind as usize].is_some()
    }

    /// Continues work of this kind in the next round of timers.
    pub fn go_on(&mut self, kind: Single, step: &mut Step<'_, '_>) {
        let at = step.now + PAUSE_BETWEEN_SLICES;
        self.timers[kind as usize].get_or_insert_with(|| step.timers.arm(at, kind.key()));
    }

    /// Keeps the timer of this kind at this time, or earlier.
    pub fn keep_at(&mut self, kind: Single, next: Option<Time>, timers: &mut Timers<'_, Timer>) {
        keep_timer_at(&mut self.timers[kind as usize], next, kind.key(), timers);
    }

    /// Ends the wait of work of this kind, and returns whether it waited.
    pub fn cancel(&mut self, kind: Single, timers: &mut Timers<'_, Timer>) -> bool {
        let timer = self.timers[kind as usize].take();
        timer.map(|timer| timers.cancel(timer)).is_some()
    }

    /// Notes that the timer of this kind has fired.
    pub fn fired(&mut self, kind: Single) {
        self.timers[kind as usize].take().into_iter().for_each(TimerId::fired);
    }

    /// Counts a job that becomes ready because its time has come. Returns false when others must be served before.
    pub fn may_end_one(&mut self, now: Time) -> bool {
        if self.round.0 != now {
            self.round = (now, DUE_AT_ONCE);
        }
        let has_time = self.round.1 > 0;
        self.round.1 -= u32::from(has_time);
        has_time
    }

    /// Returns how many timers are armed.
    pub fn timers(&self) -> usize {
        self.sweeps.len() + self.timers.iter().flatten().count()
    }

    /// Returns all timers, which are taken out.
    pub fn take_timers(&mut self) -> Vec<TimerId> {
        let of_sweeps = self.sweeps.iter_mut().filter_map(|(_, sweep)| sweep.timer.take());
        of_sweeps.chain(self.timers.iter_mut().filter_map(Option::take)).collect()
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

impl Single {
    fn key(self) -> Timer {
        match self {
            Single::Orphans => Timer::Orphans,
            Single::Forget => Timer::Forget,
            Single::Serve => Timer::Serve,
        }
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
