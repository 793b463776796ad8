//! Phases of a member, each with its data.

use super::*;
use serde::{Deserialize, Serialize};

pub(super) enum MemberPhase {
    /// Free, with the timer of the next check if members are checked while they are idle.
    Free(Option<TimerId>),
    Checking(TimerId),
    InUse(LeaseId),
    Stopping(TimerId),
    /// Waits to be cleaned.
    Unclean,
    /// An agent cleans it; without a timer for longer than `clean_timeout`.
    Cleaning {
        agent: AgentId,
        timer: Option<TimerId>,
    },
    /// In quarantine, with the timer of its automatic repair, if there is one.
    Quarantined(Option<TimerId>),
    /// Held by an operator.
    Held(TimerId),
    /// Kept out for `loss_delay` after its consumer has lost it.
    Delayed(TimerId),
    /// Kept out because its provider is lost, or between two phases.
    Orphaned,
    /// Waits to be cleaned again: its cleaning has failed, or its cleaner is lost.
    CleanLater(TimerId),
}

/// A phase without its data. The handover has their numbers: a new one is added at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum PhaseKind {
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
    CleanLater,
}

impl PhaseKind {
    /// Every phase, by its number.
    pub const ALL: [PhaseKind; PhaseKind::CleanLater as usize + 1] = [
        PhaseKind::Free,
        PhaseKind::Checking,
        PhaseKind::InUse,
        PhaseKind::Stopping,
        PhaseKind::Unclean,
        PhaseKind::Cleaning,
        PhaseKind::Quarantined,
        PhaseKind::Held,
        PhaseKind::Delayed,
        PhaseKind::Orphaned,
        PhaseKind::CleanLater,
    ];
    pub const COUNT: usize = PhaseKind::ALL.len();
    /// Phases in which a member may have a reason of its own: it is kept out, or its holder is awaited.
    pub const REASONED: [PhaseKind; 6] = [
        PhaseKind::InUse,
        PhaseKind::Quarantined,
        PhaseKind::Held,
        PhaseKind::Delayed,
        PhaseKind::Cleaning,
        PhaseKind::CleanLater,
    ];
    /// Phases in which a member is kept out: it is neither used nor free.
    pub const KEPT_OUT: [PhaseKind; 4] =
        [PhaseKind::Quarantined, PhaseKind::Held, PhaseKind::Delayed, PhaseKind::Orphaned];

    /// Returns the name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            PhaseKind::Free => "free",
            PhaseKind::Checking => "checking",
            PhaseKind::InUse => "in_use",
            PhaseKind::Stopping => "stopping",
            PhaseKind::Unclean | PhaseKind::Cleaning | PhaseKind::CleanLater => "cleaning",
            PhaseKind::Quarantined => "quarantined",
            PhaseKind::Held => "held",
            PhaseKind::Delayed => "delayed",
            PhaseKind::Orphaned => "orphaned",
        }
    }
}

impl MemberPhase {
    pub fn kind(&self) -> PhaseKind {
        match self {
            MemberPhase::Free(_) => PhaseKind::Free,
            MemberPhase::Checking(_) => PhaseKind::Checking,
            MemberPhase::InUse(_) => PhaseKind::InUse,
            MemberPhase::Stopping(_) => PhaseKind::Stopping,
            MemberPhase::Unclean => PhaseKind::Unclean,
            MemberPhase::Cleaning { .. } => PhaseKind::Cleaning,
            MemberPhase::Quarantined(_) => PhaseKind::Quarantined,
            MemberPhase::Held(_) => PhaseKind::Held,
            MemberPhase::Delayed(_) => PhaseKind::Delayed,
            MemberPhase::Orphaned => PhaseKind::Orphaned,
            MemberPhase::CleanLater(_) => PhaseKind::CleanLater,
        }
    }

    pub fn timer(&self) -> Option<&TimerId> {
        match self {
            MemberPhase::Free(timer) | MemberPhase::Quarantined(timer) | MemberPhase::Cleaning { timer, .. } => {
                timer.as_ref()
            }
            MemberPhase::Checking(timer)
            | MemberPhase::Stopping(timer)
            | MemberPhase::CleanLater(timer)
            | MemberPhase::Held(timer)
            | MemberPhase::Delayed(timer) => Some(timer),
            MemberPhase::InUse(_) | MemberPhase::Unclean | MemberPhase::Orphaned => None,
        }
    }

    pub fn into_timer(self) -> Option<TimerId> {
        match self {
            MemberPhase::Free(timer) | MemberPhase::Quarantined(timer) | MemberPhase::Cleaning { timer, .. } => timer,
            MemberPhase::Checking(timer)
            | MemberPhase::Stopping(timer)
            | MemberPhase::CleanLater(timer)
            | MemberPhase::Held(timer)
            | MemberPhase::Delayed(timer) => Some(timer),
            MemberPhase::InUse(_) | MemberPhase::Unclean | MemberPhase::Orphaned => None,
        }
    }
}
