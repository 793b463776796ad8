//! Where jobs are kept: what a store does for the service. It owns nothing of the state, and knows no connections.

use super::state::{Commit, Saved, Stored};
use crate::service::Wake;

/// Keeps batches of changes. One batch at a time is under way.
pub trait Store: Send {
    /// Takes what wakes the loop when a batch is finished.
    fn attach(&mut self, _wake: Wake) {}

    /// Visits all that it keeps, as another process would have saved it. Called once, before anything is served.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    fn load(&mut self, visit: &mut dyn FnMut(Saved<'_>)) -> Result<(), String>;

    /// Returns whether it keeps nothing, so that each request is committed at once and nothing is handed over: what it changed
    /// is there for the next request of the same connection, also when both came together, as clients of a beanstalkd expect it
    /// of one that does not sync. A store that takes its time must not have that: the first request of a tick would be a batch of
    /// its own, and all others wait for two commits.
    fn is_immediate(&self) -> bool {
        false
    }

    /// Returns whether a batch is under way. No other is begun before it is finished.
    fn is_busy(&self) -> bool;

    /// Returns whether it fails to commit, and tries again and again. Then no job is taken; what is under way goes on to wait.
    fn is_failing(&self) -> bool {
        false
    }

    /// Takes one change of the next batch.
    fn add(&mut self, change: Stored<'_>);

    /// Begins to commit the changes that were added, as the batch of this number.
    fn commit(&mut self, commit: Commit);

    /// Returns how the batch ended that was under way, once after it did.
    fn verdict(&mut self) -> Option<Verdict>;

    /// Copies all that is committed to a file, and returns how many bytes that is; None when it has nothing of its own.
    fn copy(&mut self, path: &[u8]) -> Option<u64>;
}

/// How a batch ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It outlives the process, as far as anything here does.
    Committed(Commit),
}

/// A store that keeps nothing: what the state has is all there is.
#[derive(Default)]
pub struct Memory;

impl Store for Memory {
    fn load(&mut self, _: &mut dyn FnMut(Saved<'_>)) -> Result<(), String> {
        Ok(())
    }

    fn is_immediate(&self) -> bool {
        true
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn add(&mut self, _: Stored<'_>) {}

    fn commit(&mut self, _: Commit) {}

    fn verdict(&mut self) -> Option<Verdict> {
        None
    }

    fn copy(&mut self, _: &[u8]) -> Option<u64> {
        None
    }
}
