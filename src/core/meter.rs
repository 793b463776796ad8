//! Meter of the entries that a step visits. It counts in builds with debug assertions only: tests fail if a step visits
//! more than [`MOST_IN_A_STEP`], and a release build has no cost.
//!
//! A step is one call of a service by the loop. Loops over entries whose number a peer decides count each visit:
//! containers of this crate do so themselves, other loops by [`Metered::metered`] or [`visit`].

use std::cell::Cell;

/// Most entries that a step may visit.
pub const MOST_IN_A_STEP: u64 = 4096;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the visit of an entry.
#[inline]
pub fn visit() {
    visit_many(1);
}

/// Counts the visits of some entries.
#[inline]
pub fn visit_many(entries: usize) {
    if cfg!(debug_assertions) {
        VISITS.set(VISITS.get() + entries as u64);
    }
}

/// Starts a step. Returns the number of visits since the last one began, or zero without debug assertions.
#[inline]
pub fn begin_step() -> u64 {
    if cfg!(debug_assertions) { VISITS.replace(0) } else { 0 }
}

/// Ends a step.
///
/// # Panics
///
/// Panics if the step has visited more than [`MOST_IN_A_STEP`], in builds with debug assertions.
#[inline]
pub fn end_step() {
    let visits = begin_step();
    debug_assert!(visits <= MOST_IN_A_STEP, "a step looked at {visits} entries, and {MOST_IN_A_STEP} is the most");
}

/// Calls `work` without counting its visits: a check of all tables, or a handover.
pub fn exempt<R>(work: impl FnOnce() -> R) -> R {
    let before = VISITS.get();
    let result = work();
    VISITS.set(before);
    result
}

/// Iterators whose items can be counted.
pub trait Metered: Iterator + Sized {
    /// Returns an iterator over the same items, each of which counts as a visit.
    fn metered(self) -> Meter<Self> {
        Meter { items: self }
    }
}

impl<I: Iterator> Metered for I {}

/// Iterator whose items count as visits.
#[derive(Clone, Debug)]
pub struct Meter<I> {
    items: I,
}

impl<I: Iterator> Iterator for Meter<I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        visit();
        self.items.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<I: DoubleEndedIterator> DoubleEndedIterator for Meter<I> {
    #[inline]
    fn next_back(&mut self) -> Option<I::Item> {
        visit();
        self.items.next_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_that_are_looked_at_count() {
        begin_step();
        assert_eq!((0..9).metered().rev().take(3).count(), 3);
        assert_eq!(begin_step(), 3);
        visit_many(MOST_IN_A_STEP as usize);
        end_step();
    }

    #[test]
    #[should_panic(expected = "a step looked at 4097 entries")]
    fn step_that_looks_at_too_many_fails() {
        begin_step();
        visit_many(MOST_IN_A_STEP as usize + 1);
        end_step();
    }
}
