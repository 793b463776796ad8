//! Backoff of a provider: the time without requests for starts after one has failed.

use super::AgentId;
use crate::state::{Step, Timer};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::TimerId;
use serde::{Deserialize, Serialize};

/// Backoff after a first failure, before its jitter; it doubles with each further one.
const FIRST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(60);
/// Time since the failure before, after which a failure is a first one.
const CALM: Span = Span::from_secs(300);
/// Age from which the death of a member is no failure of its provider.
pub(in crate::state) const PROVEN_AGE: Span = Span::from_secs(10);

/// Backoff of a provider.
#[derive(Serialize, Deserialize)]
pub(in crate::state) struct Backoff {
    /// Timer of the end of the backoff; None while the provider may be asked for starts.
    #[serde(skip)]
    pub timer: Option<TimerId>,
    /// Next backoff, before its jitter.
    next: Span,
    /// Time of the failure that began the last backoff.
    failed: Time,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { timer: None, next: FIRST, failed: Time::START }
    }
}

impl Backoff {
    /// Returns a copy without its timer, for a record.
    pub fn to_save(&self) -> Self {
        Backoff { timer: None, ..*self }
    }

    /// Starts a backoff after a failure. Failures during one change nothing.
    pub fn begin(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        if self.timer.is_some() {
            return;
        }
        let now = step.now;
        let next = if now.since(self.failed) >= CALM { FIRST } else { self.next };
        self.timer = Some(step.timers.arm(now + step.random.jitter(next, 75, 125), Timer::Backoff(id)));
        (self.next, self.failed) = ((next + next).min(LONGEST), now);
    }
}
