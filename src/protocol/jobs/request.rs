//! Terms of both sides of a connection: jobs, their states, and the kinds of summaries.

use poolcounter_core::words;
#[cfg(feature = "daemon")]
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of a job, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "daemon", derive(Serialize, Deserialize))]
pub struct JobId(pub u64);

/// End of the time in which a job keeps other jobs with its key out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "daemon", derive(Serialize, Deserialize))]
pub enum Until {
    /// Its reservation or burial; the job is unique again when it is back in the queue.
    #[default]
    Reserved,
    /// Its deletion.
    Deleted,
}

words! {
    /// States of jobs in commands and replies, in the order of beanstalkd's figures.
    pub enum JobState, word {
        /// Ready for a runner.
        Ready = "ready",
        /// Held by a runner.
        Reserved = "reserved",
        /// Delayed.
        Delayed = "delayed",
        /// Buried until a kick.
        Buried = "buried",
    }
}

words! {
    /// Kind of a summary.
    pub enum SummaryBy, word {
        /// Sums by the first part of tubes' names.
        Wiki = "wiki",
        /// Sums by the last part.
        Type = "type",
        /// Each tube.
        Tube = "tube",
        /// Sums by the names of runners.
        Runner = "runner",
    }
}

impl JobState {
    /// Returns the state of a word; None for an unknown one.
    pub fn of_word(word: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
