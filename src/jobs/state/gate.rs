//! What keeps jobs from being given out while another process may give them out, too; and what ends a state whose jobs are
//! another's.

use super::{SetId, State, Step, Timer};
use poolcounter_core::id::Id;
use poolcounter_core::wheel::Timers;

impl State {
    /// Gives out no jobs until the first [`State::set_shut`]: what is restored may hold some that could not be given out.
    pub fn begin_shut(&mut self) {
        self.is_shut = true;
    }

    /// Gives out no jobs from now on, or gives them out again; those who wait for one go on to wait.
    pub fn set_shut(&mut self, is_shut: bool, step: &mut Step<'_, '_>) {
        if std::mem::replace(&mut self.is_shut, is_shut) == is_shut || is_shut {
            return;
        }
        let waited_for = self.sets.iter().filter(|(_, set)| !set.waiting.is_empty());
        let sets: Vec<SetId> = waited_for.map(|(index, _)| SetId::from_index(index)).collect();
        for set in sets {
            if !self.awake.contains(&set) {
                self.awake.push(set);
            }
        }
        self.serve_waiting(step);
    }

    /// Returns a state without anything, with the same bounds. Nothing is left to do for this one: it has no timers.
    pub fn begin_anew(&mut self, timers: &mut Timers<'_, Timer>) -> State {
        let sweeps: Vec<usize> = self.sweeps.iter().map(|(index, _)| index).collect();
        sweeps.into_iter().for_each(|index| self.cancel_sweep_timer(super::SweepId::from_index(index), timers));
        let of_conns = self.conns.iter_mut().flatten().filter_map(|conn| conn.timer.take());
        let of_tubes = self.tubes.iter_mut().filter_map(|(_, tube)| tube.delay_timer.take());
        of_conns.chain(of_tubes).for_each(|timer| timers.cancel(timer));
        let single =
            [&mut self.forget_timer, &mut self.serve_timer, &mut self.orphan_timer, &mut self.settings.pause_timer];
        single.into_iter().filter_map(Option::take).for_each(|timer| timers.cancel(timer));
        let mut state = State::new(self.bounds);
        let (changes, bytes) = self.queue();
        state.set_queue(changes, bytes);
        state
    }
}
