//! Phases of a member.

use serde::{Deserialize, Serialize};

/// Phase of a member. The member has its timer, its lease and its cleaner.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(super) enum Phase {
    /// Free, with the timer of the next check if members are checked while they are idle.
    Free,
    Checking,
    InUse,
    Stopping,
    /// Waits to be cleaned.
    Unclean,
    /// An agent cleans it; without a timer for longer than `clean_timeout`.
    Cleaning,
    /// In quarantine, with the timer of its automatic repair, if there is one.
    Quarantined,
    /// Held by an operator.
    Held,
    /// Kept out for `loss_delay` after its consumer has lost it.
    Delayed,
    /// Kept out because its provider is lost, or between two phases.
    #[default]
    Orphaned,
    /// Waits to be cleaned again: its cleaning has failed, or its cleaner is lost.
    CleanLater,
}

impl Phase {
    pub const COUNT: usize = Phase::CleanLater as usize + 1;
    /// Phases in which a member may have a reason of its own: it is kept out, or its holder is awaited.
    pub const REASONED: [Phase; 6] =
        [Phase::InUse, Phase::Quarantined, Phase::Held, Phase::Delayed, Phase::Cleaning, Phase::CleanLater];
    /// Phases besides that of a lease which outlive the process.
    pub const KEPT: [Phase; 6] =
        [Phase::Unclean, Phase::Cleaning, Phase::CleanLater, Phase::Quarantined, Phase::Held, Phase::Delayed];
    /// Phases in which a member is kept out: it is neither used nor free.
    pub const KEPT_OUT: [Phase; 4] = [Phase::Quarantined, Phase::Held, Phase::Delayed, Phase::Orphaned];
    /// Phases in which a member is cleaned or waits for that.
    pub const CLEANED: [Phase; 3] = [Phase::Unclean, Phase::Cleaning, Phase::CleanLater];

    /// Returns whether a member may be in this phase with a timer, or without one.
    pub fn may_be(self, is_timed: bool) -> bool {
        match self {
            Phase::InUse | Phase::Unclean | Phase::Orphaned => !is_timed,
            Phase::Free | Phase::Cleaning | Phase::Quarantined => true,
            Phase::Checking | Phase::Stopping | Phase::Held | Phase::Delayed | Phase::CleanLater => is_timed,
        }
    }

    /// Returns the name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Free => "free",
            Phase::Checking => "checking",
            Phase::InUse => "in_use",
            Phase::Stopping => "stopping",
            Phase::Unclean | Phase::Cleaning | Phase::CleanLater => "cleaning",
            Phase::Quarantined => "quarantined",
            Phase::Held => "held",
            Phase::Delayed => "delayed",
            Phase::Orphaned => "orphaned",
        }
    }
}
