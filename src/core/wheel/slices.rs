//! Work in slices: work that would make a step long is done in parts, between which other clients are served.
//!
//! An owner of timers keeps its unfinished tasks in a queue and asks the wheel for its next slice
//! ([`Timers::go_on`](crate::wheel::Timers::go_on)). In each tick every owner that has asked gets one, through the same
//! call as a timer that is due. All share one budget: an owner spends from it for each entry that it visits, in a slice
//! as in a request, and stops when its part is used up ([`Timers::spend`](crate::wheel::Timers::spend)). While an owner
//! waits for a slice the loop does not sleep.

use super::{Due, Owner, TimerKey, Timers, Wheel};
use std::collections::VecDeque;

/// Most cost of the background work of a tick: about a millisecond. The unit is a visit of an entry; longer work costs
/// more.
pub const PER_TICK: u32 = 4096;

impl<K: TimerKey> Timers<'_, K> {
    /// Asks for a slice of background work in the next tick: [`Wheel::expire`] then returns `key`, or the key of an
    /// earlier request of this owner for that tick. It cannot be cancelled; a slice may find no work.
    pub fn go_on(&mut self, key: K) {
        let due = self.due(key);
        self.wheel.rounds.ask(due);
    }

    /// Spends from the budget of background work of this tick; returns false if less than `cost` is left.
    pub fn spend(&mut self, cost: u32) -> bool {
        self.wheel.rounds.spend(cost)
    }

    /// Spends up to this cost, for a slice of work that its owner cannot put off.
    pub fn charge(&mut self, cost: u32) {
        self.spend(cost.min(self.budget()));
    }

    /// Returns the rest of that budget.
    pub fn budget(&self) -> u32 {
        self.wheel.rounds.left()
    }

    /// Renews the budget of a tick, for work that must end within a step.
    pub fn renew_budget(&mut self) {
        self.wheel.rounds.end_tick();
    }

    /// Exhausts that budget: background work goes on in the next tick.
    pub fn exhaust_budget(&mut self) {
        self.wheel.rounds.exhaust();
    }
}

impl Wheel {
    /// Returns a wheel that allows this budget of background work in a tick.
    pub fn with_budget(per_tick: u32) -> Self {
        Wheel { rounds: Rounds::new(per_tick), ..Wheel::default() }
    }

    /// Ends the tick of the background work: each owner that has asked for a slice gets it in the next one.
    #[inline]
    pub fn end_tick(&mut self) {
        self.rounds.end_tick();
    }

    /// Returns true if some owner waits for a slice.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.rounds.is_pending()
    }
}

/// Owners that wait for a slice, and the budget of the tick.
pub(super) struct Rounds {
    per_tick: u32,
    waiting: VecDeque<Due>,
    /// Number of owners, from the front, that still have a slice in this tick.
    turns: usize,
    /// Budget of the slice or request that runs now.
    left: u32,
    /// Budget of the slices to come in this tick.
    reserved: u32,
    /// False while no owner waits and the budget is whole.
    is_active: bool,
}

impl Rounds {
    /// Returns rounds with this budget for a tick.
    pub fn new(per_tick: u32) -> Self {
        Rounds { per_tick, waiting: VecDeque::new(), turns: 0, left: per_tick, reserved: 0, is_active: false }
    }

    /// Returns true if some owner waits for a slice.
    #[inline]
    pub fn is_pending(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns true if this owner waits for a slice.
    pub fn is_waiting(&self, owner: Owner) -> bool {
        self.waiting.iter().any(|due| due.owner == owner)
    }

    /// Returns false while no owner waits and the budget is whole, so that there is no tick to end.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.is_active
    }

    /// Notes that an owner waits for a slice. It has one place, however often it asks.
    pub fn ask(&mut self, due: Due) {
        self.is_active = true;
        if !self.is_waiting(due.owner) {
            self.waiting.push_back(due);
        }
    }

    /// Starts the next slice of this tick, with an equal part of the rest of the budget.
    #[inline]
    pub fn next(&mut self) -> Option<Due> {
        if self.turns == 0 {
            return None;
        }
        let whole = self.left + self.reserved;
        // Lossless: there are few owners.
        self.left = whole / self.turns as u32;
        self.reserved = whole - self.left;
        self.turns -= 1;
        self.waiting.pop_front()
    }

    /// Ends the tick. In the next one requests may spend half of the budget if owners wait for slices, else all of it.
    pub fn end_tick(&mut self) {
        self.turns = self.waiting.len();
        self.is_active = self.turns > 0;
        self.reserved = if self.turns > 0 { self.per_tick / 2 } else { 0 };
        self.left = self.per_tick - self.reserved;
    }

    /// Exhausts the budget of this tick.
    pub fn exhaust(&mut self) {
        self.is_active = true;
        (self.left, self.reserved) = (0, 0);
    }

    /// Spends from the budget; returns false if less than `cost` is left.
    pub fn spend(&mut self, cost: u32) -> bool {
        self.is_active = true;
        let has_enough = self.left >= cost;
        self.left -= if has_enough { cost } else { 0 };
        has_enough
    }

    /// Returns the budget left for the slice or request that runs now.
    pub fn left(&self) -> u32 {
        self.left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ConnId, Id};
    use crate::time::Time;

    /// Returns the owner of the next slice, with its part of the budget.
    fn next(wheel: &mut Wheel) -> Option<(u8, u32)> {
        let due = wheel.expire(Time::START)?;
        let left = wheel.of::<ConnId>(due.owner).budget();
        Some((due.owner.0, left))
    }

    fn go_on(wheel: &mut Wheel, owner: u8) {
        wheel.of(Owner(owner)).go_on(ConnId::from_index(0));
    }

    #[test]
    fn owners_share_the_budget_of_a_tick() {
        let mut wheel = Wheel::default();
        [1, 2, 1, 3, 1].into_iter().for_each(|owner| go_on(&mut wheel, owner));
        assert_eq!((next(&mut wheel), wheel.next()), (None, Some(Time::START)), "the next tick has slices");
        assert_eq!(next(&mut wheel), Some((1, PER_TICK / 3)));
        // It asks again, but not for this tick.
        go_on(&mut wheel, 1);
        assert!(wheel.of::<ConnId>(Owner(1)).spend(PER_TICK / 3));
        assert!(!wheel.of::<ConnId>(Owner(1)).spend(1), "its part is used up");
        let (owner, second) = next(&mut wheel).expect("another waits");
        assert!(owner == 2 && second >= PER_TICK / 3, "{second}");
        let (owner, third) = next(&mut wheel).expect("a third waits");
        assert!(owner == 3 && third >= second, "what one has not spent is for the next: {third}");
        assert_eq!(next(&mut wheel), None);
        assert_eq!(wheel.of::<ConnId>(Owner(9)).budget(), PER_TICK / 2, "requests leave half to the one that waits");
        assert_eq!(next(&mut wheel), Some((1, PER_TICK)));
        assert_eq!((next(&mut wheel), wheel.next()), (None, None));
    }

    #[test]
    fn tasks_go_on_until_none_is_left() {
        let (mut wheel, mut tasks, mut ticks) = (Wheel::default(), VecDeque::from([3 * PER_TICK, 10]), 0);
        go_on(&mut wheel, 1);
        while wheel.next().is_some() {
            while let Some(due) = wheel.expire(Time::START) {
                assert_eq!(due.owner, Owner(1));
                let mut timers = wheel.of::<ConnId>(due.owner);
                while let Some(entries) = tasks.pop_front() {
                    let done = timers.budget().min(entries);
                    timers.spend(done);
                    if done < entries {
                        tasks.push_back(entries - done);
                        break;
                    }
                }
                if !tasks.is_empty() {
                    go_on(&mut wheel, 1);
                }
            }
            ticks += 1;
        }
        assert_eq!((tasks.len(), ticks), (0, 5));
    }
}
