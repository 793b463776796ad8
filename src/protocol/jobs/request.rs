//! What both sides of a connection speak of: jobs, their states, and how they are added up.

#[cfg(feature = "daemon")]
use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a job, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "daemon", derive(Serialize, Deserialize))]
pub struct JobId(pub u64);

/// Until when a job keeps others with its key out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "daemon", derive(Serialize, Deserialize))]
pub enum Until {
    /// Until it is reserved or buried; again when it comes back.
    #[default]
    Reserved,
    /// Until it is deleted.
    Deleted,
}

/// The states of jobs that can be told apart by a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobState {
    /// Waits for a runner.
    Ready,
    /// A runner has it.
    Reserved,
    /// Its delay is not over.
    Delayed,
    /// Waits for a kick.
    Buried,
}

/// Every state, in the order of beanstalkd's figures.
pub const ALL_STATES: [JobState; 4] = [JobState::Ready, JobState::Reserved, JobState::Delayed, JobState::Buried];

/// By what a summary adds up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SummaryBy {
    /// The first part of tubes' names.
    Wiki,
    /// The last part.
    Type,
    /// Each tube.
    Tube,
    /// The names of runners.
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

    /// Returns the state that a word is for.
    pub fn of_word(word: &str) -> Option<JobState> {
        ALL_STATES.into_iter().find(|state| state.word() == word)
    }
}

impl SummaryBy {
    /// Every way.
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
