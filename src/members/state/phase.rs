//! Phases of a member, each with its data.

use super::{AgentId, LeaseId};
use poolcounter_core::wheel::TimerId;
use serde::{Deserialize, Serialize};

/// Phase of a member, with its timer.
pub(super) type MemberPhase = Phase<TimerId>;

/// Phase of a member. `T` is its timer, or the deadline of that in a record.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) enum Phase<T> {
    /// Free, with the timer of the next check if members are checked while they are idle.
    Free(Option<T>),
    Checking(T),
    InUse(LeaseId),
    Stopping(T),
    /// Waits to be cleaned.
    Unclean,
    /// An agent cleans it; without a timer for longer than `clean_timeout`.
    Cleaning {
        agent: AgentId,
        timer: Option<T>,
    },
    /// In quarantine, with the timer of its automatic repair, if there is one.
    Quarantined(Option<T>),
    /// Held by an operator.
    Held(T),
    /// Kept out for `loss_delay` after its consumer has lost it.
    Delayed(T),
    /// Kept out because its provider is lost, or between two phases.
    #[default]
    Orphaned,
    /// Waits to be cleaned again: its cleaning has failed, or its cleaner is lost.
    CleanLater(T),
}

/// A phase without its data.
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
    CleanLater,
}

impl PhaseKind {
    pub const COUNT: usize = PhaseKind::CleanLater as usize + 1;
    /// Phases in which a member may have a reason of its own: it is kept out, or its holder is awaited.
    pub const REASONED: [PhaseKind; 6] = [
        PhaseKind::InUse,
        PhaseKind::Quarantined,
        PhaseKind::Held,
        PhaseKind::Delayed,
        PhaseKind::Cleaning,
        PhaseKind::CleanLater,
    ];
    /// Phases besides that of a lease which outlive the process.
    pub const KEPT: [PhaseKind; 6] = [
        PhaseKind::Unclean,
        PhaseKind::Cleaning,
        PhaseKind::CleanLater,
        PhaseKind::Quarantined,
        PhaseKind::Held,
        PhaseKind::Delayed,
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

impl<T> Phase<T> {
    pub fn kind(&self) -> PhaseKind {
        match self {
            Phase::Free(_) => PhaseKind::Free,
            Phase::Checking(_) => PhaseKind::Checking,
            Phase::InUse(_) => PhaseKind::InUse,
            Phase::Stopping(_) => PhaseKind::Stopping,
            Phase::Unclean => PhaseKind::Unclean,
            Phase::Cleaning { .. } => PhaseKind::Cleaning,
            Phase::Quarantined(_) => PhaseKind::Quarantined,
            Phase::Held(_) => PhaseKind::Held,
            Phase::Delayed(_) => PhaseKind::Delayed,
            Phase::Orphaned => PhaseKind::Orphaned,
            Phase::CleanLater(_) => PhaseKind::CleanLater,
        }
    }

    /// Returns the phase with another form of its timer.
    pub fn map<'a, U>(&'a self, map: impl FnOnce(&'a T) -> U) -> Phase<U> {
        match self {
            Phase::Free(timer) => Phase::Free(timer.as_ref().map(map)),
            Phase::Checking(timer) => Phase::Checking(map(timer)),
            Phase::InUse(lease) => Phase::InUse(*lease),
            Phase::Stopping(timer) => Phase::Stopping(map(timer)),
            Phase::Unclean => Phase::Unclean,
            Phase::Cleaning { agent, timer } => Phase::Cleaning { agent: *agent, timer: timer.as_ref().map(map) },
            Phase::Quarantined(timer) => Phase::Quarantined(timer.as_ref().map(map)),
            Phase::Held(timer) => Phase::Held(map(timer)),
            Phase::Delayed(timer) => Phase::Delayed(map(timer)),
            Phase::Orphaned => Phase::Orphaned,
            Phase::CleanLater(timer) => Phase::CleanLater(map(timer)),
        }
    }

    pub fn timer(&self) -> Option<&T> {
        self.map(|timer| timer).into_timer()
    }

    pub fn into_timer(self) -> Option<T> {
        match self {
            Phase::Free(timer) | Phase::Quarantined(timer) | Phase::Cleaning { timer, .. } => timer,
            Phase::Checking(timer)
            | Phase::Stopping(timer)
            | Phase::CleanLater(timer)
            | Phase::Held(timer)
            | Phase::Delayed(timer) => Some(timer),
            Phase::InUse(_) | Phase::Unclean | Phase::Orphaned => None,
        }
    }
}
