//! Backoff of a provider: the time without requests for starts after one has failed.

use super::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Backoff after a first failure, before its jitter; it doubles with each further one.
const FIRST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(60);
/// Age at which a member proves that starts succeed.
pub(in crate::state) const PROVEN_AGE: Span = Span::from_secs(10);

/// Backoff of a provider, and the members that may end its growth.
#[derive(Serialize, Deserialize)]
pub(in crate::state) struct Backoff {
    /// Timer of the end of the backoff; None while the provider may be asked for starts.
    #[serde(skip)]
    pub timer: Option<TimerId>,
    /// Next backoff, before its jitter.
    next: Span,
    /// Time of the failure that began the last backoff; None once a later member has proved that starts succeed.
    failed: Option<Time>,
    /// Members since that failure, oldest first.
    #[serde(skip)]
    young: BTreeSet<(Time, MemberId)>,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { timer: None, next: FIRST, failed: None, young: BTreeSet::new() }
    }
}

impl Backoff {
    pub fn is_running(&self) -> bool {
        self.timer.is_some()
    }

    /// Returns a copy without its timer and members, for a record.
    pub fn to_save(&self) -> Self {
        Backoff { timer: None, young: BTreeSet::new(), ..*self }
    }

    /// Starts a backoff after a failure. Failures during one change nothing.
    pub fn begin(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        if self.timer.is_some() {
            return;
        }
        self.note_age(step.now);
        let span = step.random.jitter(self.next, 75, 125);
        self.timer = Some(step.timers.arm(step.now + span, Timer::Backoff(id)));
        self.next = (self.next + self.next).min(LONGEST);
        self.failed = Some(step.now);
        self.young.clear();
    }

    /// Ends a backoff whose timer has fired.
    pub fn fired(&mut self) {
        self.timer.take().into_iter().for_each(TimerId::fired);
    }

    pub fn cancel(&mut self, step: &mut Step<'_, '_>) {
        self.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
    }

    /// Notes a new member of the provider.
    pub fn add(&mut self, member: MemberId, born: Time) {
        if self.failed.is_some_and(|failed| born > failed) {
            self.young.insert((born, member));
        }
    }

    /// Notes that a member of the provider ends. Returns whether it has proved that starts succeed again.
    pub fn remove(&mut self, member: MemberId, born: Time, now: Time) -> bool {
        // Most providers have never failed.
        if self.young.is_empty() {
            return false;
        }
        let is_proven = self.note_age(now);
        self.young.remove(&(born, member));
        is_proven
    }

    /// Notes that a member was returned in good state. Returns whether it has proved that starts succeed again.
    pub fn note_returned(&mut self, member: MemberId, born: Time) -> bool {
        let is_proven = !self.young.is_empty() && self.young.contains(&(born, member));
        if is_proven {
            self.reset();
        }
        is_proven
    }

    /// Returns whether a member has lived for [`PROVEN_AGE`], and resets the backoff then.
    fn note_age(&mut self, now: Time) -> bool {
        let is_proven = self.young.first().is_some_and(|(born, _)| now.since(*born) >= PROVEN_AGE);
        if is_proven {
            self.reset();
        }
        is_proven
    }

    fn reset(&mut self) {
        (self.next, self.failed) = (FIRST, None);
        self.young.clear();
    }

    /// Compares the young members with all of the provider; `born_of` returns the time of birth of one of its members.
    pub fn check(&self, born_of: impl Fn(MemberId) -> Option<Time>) {
        assert!(self.failed.is_some() || self.young.is_empty(), "members are noted after a failure");
        assert!(self.young.iter().all(|(born, id)| born_of(*id) == Some(*born)), "they are the provider's");
    }
}
