//! The phases that a member goes through, each with what belongs to it.

use super::*;

pub(super) enum MemberPhase {
    /// The timer is armed for the next check, if members are checked while they are idle.
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
    /// An operator holds it; without a timer, until a member of its name comes back in a pool that is being removed.
    Held(Option<TimerId>),
    /// Its consumer has lost it, and it is kept out for `loss_delay`.
    Delayed(TimerId),
    /// Its provider is lost, or it is between two phases.
    Orphaned,
}

/// A phase without what belongs to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
}

impl PhaseKind {
    pub const COUNT: usize = PhaseKind::Orphaned as usize + 1;
    /// Phases in which a member is kept out: it is neither used nor free.
    pub const KEPT_OUT: [PhaseKind; 4] =
        [PhaseKind::Quarantined, PhaseKind::Held, PhaseKind::Delayed, PhaseKind::Orphaned];

    /// Returns whether a member in it is neither stopped nor kept out.
    pub fn is_usable(self) -> bool {
        self != PhaseKind::Stopping && !PhaseKind::KEPT_OUT.contains(&self)
    }

    /// Returns the name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            PhaseKind::Free => "free",
            PhaseKind::Checking => "checking",
            PhaseKind::InUse => "in_use",
            PhaseKind::Stopping => "stopping",
            PhaseKind::Unclean | PhaseKind::Cleaning => "cleaning",
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
        }
    }

    pub fn timer(&self) -> Option<&TimerId> {
        match self {
            MemberPhase::Free(timer) | MemberPhase::Quarantined(timer) | MemberPhase::Held(timer) => timer.as_ref(),
            MemberPhase::Checking(timer)
            | MemberPhase::Stopping(timer)
            | MemberPhase::Cleaning { timer, .. }
            | MemberPhase::Delayed(timer) => Some(timer),
            MemberPhase::InUse(_) | MemberPhase::Unclean | MemberPhase::Orphaned => None,
        }
    }

    pub fn into_timer(self) -> Option<TimerId> {
        match self {
            MemberPhase::Free(timer) | MemberPhase::Quarantined(timer) | MemberPhase::Held(timer) => timer,
            MemberPhase::Checking(timer)
            | MemberPhase::Stopping(timer)
            | MemberPhase::Cleaning { timer, .. }
            | MemberPhase::Delayed(timer) => Some(timer),
            MemberPhase::InUse(_) | MemberPhase::Unclean | MemberPhase::Orphaned => None,
        }
    }
}
