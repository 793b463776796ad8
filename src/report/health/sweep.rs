//! Looks at very many things in parts, a part in each look.

use super::{Condition, Look, MOST_CONDITIONS};

/// Conditions of many things, found in parts. The conditions of the last complete round are reported until the next
/// round is complete.
#[derive(Debug)]
pub struct Sweep<P> {
    next: Option<P>,
    found: Round,
    complete: Round,
}

/// Conditions of a round, and the number of conditions beyond the limit.
#[derive(Debug, Default)]
struct Round(Vec<Condition>, usize);

impl<P> Default for Sweep<P> {
    fn default() -> Self {
        Sweep { next: None, found: Round::default(), complete: Round::default() }
    }
}

impl<P> Sweep<P> {
    /// Returns the start of the next part; `None`: the first thing.
    pub fn begin_part(&mut self) -> Option<P> {
        self.next.take()
    }

    /// Adds a condition found in this part.
    pub fn found(&mut self, condition: Condition) {
        let Round(conditions, more) = &mut self.found;
        if conditions.len() < MOST_CONDITIONS {
            conditions.push(condition);
        } else {
            *more += 1;
        }
    }

    /// Ends a part; `next` is the start of the next one, `None` at the end of the round. Reports the conditions of the
    /// last complete round.
    pub fn end_part(&mut self, next: Option<P>, look: &mut Look<'_>) {
        if next.is_none() {
            self.complete = std::mem::take(&mut self.found);
        }
        self.next = next;
        let Round(conditions, more) = &self.complete;
        conditions.iter().for_each(|condition| look.note(condition.clone()));
        look.more += more;
    }
}
