//! Changes on their way to the thread of a store, as a batch or as a slice of everything.

use super::contract::{Commit, Contents};
use poolcounter_core::time::Span;

/// Changes that are collected, and what the thread has of them.
pub struct Outbox<C: Contents> {
    collected: C::Batch,
    /// Number of the collected changes.
    changes: u64,
    /// Number of changes of the batch that is under way.
    under_way: Option<u64>,
    /// Number of the rewrite that is under way.
    pub rewrite: Option<u64>,
}

impl<C: Contents> Default for Outbox<C> {
    fn default() -> Self {
        Outbox { collected: C::Batch::default(), changes: 0, under_way: None, rewrite: None }
    }
}

impl<C: Contents> Outbox<C> {
    /// Adds a change. `epoch` is the time of day at [`Time::START`](poolcounter_core::time::Time::START).
    pub fn add(&mut self, change: C::Change<'_>, epoch: Span) {
        self.changes += 1;
        C::add(&mut self.collected, change, epoch);
    }

    /// Returns the changes as the batch of this number, which is under way from now on.
    pub fn begin(&mut self, commit: Commit) -> C::Batch {
        let mut batch = std::mem::take(&mut self.collected);
        *C::number(&mut batch) = commit;
        self.under_way = Some(std::mem::take(&mut self.changes));
        batch
    }

    /// Returns the changes as a slice, with the number of the rewrite; None if there is none, and they count for
    /// nothing.
    pub fn slice(&mut self) -> Option<(u64, C::Batch)> {
        let batch = std::mem::take(&mut self.collected);
        self.changes = 0;
        Some((self.rewrite?, batch))
    }

    /// Ends the batch that is under way, and returns the number of its changes.
    pub fn end(&mut self) -> u64 {
        self.under_way.take().unwrap_or(0)
    }

    /// Returns whether a batch is under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns whether a batch or a rewrite is under way.
    pub fn is_busy(&self) -> bool {
        self.is_under_way() || self.rewrite.is_some()
    }
}
