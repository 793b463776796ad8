//! Terms of both sides of a connection: jobs, their states, and the kinds of summaries.

#[cfg(feature = "daemon")]
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of a job, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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

/// States of jobs in commands and replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Ready for a runner.
    Ready,
    /// Held by a runner.
    Reserved,
    /// Delayed.
    Delayed,
    /// Buried until a kick.
    Buried,
}

/// Every state, in the order of beanstalkd's figures.
pub const ALL_STATES: [JobState; 4] = [JobState::Ready, JobState::Reserved, JobState::Delayed, JobState::Buried];

/// Kind of a summary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SummaryBy {
    /// Sums by the first part of tubes' names.
    Wiki,
    /// Sums by the last part.
    Type,
    /// Each tube.
    Tube,
    /// Sums by the names of runners.
    Runner,
}

impl JobState {
    /// Returns its word.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Ready => "ready",
            JobState::Reserved => "reserved",
            JobState::Delayed => "delayed",
            JobState::Buried => "buried",
        }
    }

    /// Returns the state of a word; None for an unknown one.
    pub fn of_word(word: &str) -> Option<JobState> {
        ALL_STATES.into_iter().find(|state| state.word() == word)
    }
}

impl SummaryBy {
    /// All kinds.
    pub const ALL: [SummaryBy; 4] = [SummaryBy::Wiki, SummaryBy::Type, SummaryBy::Tube, SummaryBy::Runner];

    /// Returns its word.
    pub fn word(self) -> &'static str {
        match self {
            SummaryBy::Wiki => "wiki",
            SummaryBy::Type => "type",
            SummaryBy::Tube => "tube",
            SummaryBy::Runner => "runner",
        }
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
