//! Backoff of a provider: for how long it is asked for no start after one has failed.

use super::*;
use std::collections::BTreeSet;

/// Backoff after a first failure, before its jitter; it doubles with each further one.
const FIRST: Span = Span::from_secs(1);
const LONGEST: Span = Span::from_secs(60);
/// Age at which a member shows that starts succeed.
pub(in crate::state) const PROVEN_AGE: Span = Span::from_secs(10);

/// The backoff of a provider, and the members that may end its growth.
pub(in crate::state) struct Backoff {
    /// Armed while the provider is asked for no start.
    timer: Option<TimerId>,
    /// The next backoff, before its jitter.
    next: Span,
    /// Time of the failure that began the last backoff; None when a member that came after it has shown that starts succeed.
    failed: Option<Time>,
    /// Members that came after that failure, oldest first.
    young: BTreeSet<(Time, MemberId)>,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff { timer: None, next: FIRST, failed: None, young: BTreeSet::new() }
    }
}

impl Backoff {
    /// Returns a backoff that another process saved, with its timer.
    pub fn restored(timer: Option<TimerId>, next: Span, failed: Option<Time>) -> Self {
        Backoff { timer, next: next.clamp(FIRST, LONGEST), failed, young: BTreeSet::new() }
    }

    pub fn is_running(&self) -> bool {
        self.timer.is_some()
    }

    /// Returns what is saved of it: its deadline, the next one, and the last failure. None when there was no failure.
    pub fn to_save(&self, timers: &Timers<'_, Timer>) -> Option<(Option<Time>, Span, Option<Time>)> {
        let until = self.timer.as_ref().map(|timer| timers.deadline(timer));
        (until.is_some() || self.failed.is_some()).then_some((until, self.next, self.failed))
    }

    /// Begins a backoff after a failure. Failures while one runs change nothing.
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

    /// Notes that a member of the provider ends. Returns whether it has shown that starts succeed again.
    pub fn remove(&mut self, member: MemberId, born: Time, now: Time) -> bool {
        // Most providers have never failed.
        if self.young.is_empty() {
            return false;
        }
        let is_proven = self.note_age(now);
        self.young.remove(&(born, member));
        is_proven
    }

    /// Notes that a member was returned in good state. Returns whether it has shown that starts succeed again.
    pub fn note_returned(&mut self, member: MemberId, born: Time) -> bool {
        let is_proven = !self.young.is_empty() && self.young.contains(&(born, member));
        if is_proven {
            self.reset();
        }
        is_proven
    }

    /// Notes that a member has lived for [`PROVEN_AGE`], if one has. Returns whether it has.
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

    /// Compares the young members with all of the provider; `born_of` returns when one of its members was born.
    pub fn check(&self, born_of: impl Fn(MemberId) -> Option<Time>) {
        assert!(self.failed.is_some() || self.young.is_empty(), "members are noted after a failure");
        assert!(self.young.iter().all(|(born, id)| born_of(*id) == Some(*born)), "they are the provider's");
    }
}
