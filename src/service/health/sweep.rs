//! A look at very many things, some in each look.

use super::{Condition, Look, MOST_CONDITIONS};

/// Conditions of many things that are looked at in parts. The conditions of the last whole round hold until the next round is complete.
#[derive(Debug)]
pub struct Sweep<P> {
    next: Option<P>,
    found: Round,
    complete: Round,
}

/// Conditions of a round, and the number of those that were not kept.
#[derive(Debug, Default)]
struct Round(Vec<Condition>, usize);

impl<P> Default for Sweep<P> {
    fn default() -> Self {
        Sweep { next: None, found: Round::default(), complete: Round::default() }
    }
}

impl<P> Sweep<P> {
    /// Returns where the next part begins; `None`: at the first thing.
    pub fn begin_part(&mut self) -> Option<P> {
        self.next.take()
    }

    /// Adds a condition that the part has found.
    pub fn found(&mut self, condition: Condition) {
        let Round(conditions, more) = &mut self.found;
        if conditions.len() < MOST_CONDITIONS {
            conditions.push(condition);
        } else {
            *more += 1;
        }
    }

    /// Ends a part, with where the next one begins; `None` if this was the last of the round. Notes the conditions of the last round.
    pub fn end_part(&mut self, next: Option<P>, look: &mut Look<'_>) {
        if next.is_none() {
            self.complete = std::mem::take(&mut self.found);
        }
        self.next = next;
        let Round(conditions, more) = &self.complete;
        conditions.iter().for_each(|condition| look.note(condition.clone()));
        look.note_more(*more);
    }
}
