//! The stages that a member goes through, each with what belongs to it.

use super::*;

/// What a member does, with the timer of it.
pub(super) enum Stage {
    /// The timer is armed when it is to be checked after a while.
    Free(Option<TimerId>),
    Checking(TimerId),
    InUse(LeaseId),
    Stopping(TimerId),
    /// It waits to be cleaned.
    Unclean,
    Cleaning {
        agent: AgentId,
        timer: TimerId,
    },
    /// The timer is armed when it is repaired by itself.
    Quarantined(Option<TimerId>),
    /// An operator holds it.
    Held(TimerId),
    /// It was lost by its consumer, and kept out for a while.
    Delayed(TimerId),
    Orphaned,
}

/// A stage without what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StageKind {
    Free,
    Checking,
    InUse,
    Stopping,
    Unclean,
    Cleaning,
    Quarantined,
    Held,
    Delayed,
    Orphaned,
}

impl StageKind {
    pub const COUNT: usize = StageKind::Orphaned as usize + 1;
}

impl Stage {
    pub fn kind(&self) -> StageKind {
        match self {
            Stage::Free(_) => StageKind::Free,
            Stage::Checking(_) => StageKind::Checking,
            Stage::InUse(_) => StageKind::InUse,
            Stage::Stopping(_) => StageKind::Stopping,
            Stage::Unclean => StageKind::Unclean,
            Stage::Cleaning { .. } => StageKind::Cleaning,
            Stage::Quarantined(_) => StageKind::Quarantined,
            Stage::Held(_) => StageKind::Held,
            Stage::Delayed(_) => StageKind::Delayed,
            Stage::Orphaned => StageKind::Orphaned,
        }
    }

    pub fn timer(&self) -> Option<&TimerId> {
        match self {
            Stage::Free(timer) | Stage::Quarantined(timer) => timer.as_ref(),
            Stage::Checking(timer)
            | Stage::Stopping(timer)
            | Stage::Cleaning { timer, .. }
            | Stage::Held(timer)
            | Stage::Delayed(timer) => Some(timer),
            Stage::InUse(_) | Stage::Unclean | Stage::Orphaned => None,
        }
    }

    pub fn into_timer(self) -> Option<TimerId> {
        match self {
            Stage::Free(timer) | Stage::Quarantined(timer) => timer,
            Stage::Checking(timer)
            | Stage::Stopping(timer)
            | Stage::Cleaning { timer, .. }
            | Stage::Held(timer)
            | Stage::Delayed(timer) => Some(timer),
            Stage::InUse(_) | Stage::Unclean | Stage::Orphaned => None,
        }
    }
}
