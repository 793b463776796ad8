//! Locks that are held, in the order of their grants, so that the oldest are found at once.
//!
//! The ages at which a lock is reported are its milestones: the first is set by the operator, and each is twice the one
//! before. Locks that have passed equally many are in one queue.

use super::{Claim, ClaimId, ClaimPhase, PoolEvent, PoolsState, PoolsStep, PoolsTimer, Reply};
use poolcounter_core::id::Id;
use poolcounter_core::list::{Links, List};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::top_keys;
use poolcounter_core::wheel::TimerId;
use poolcounter_protocol::pools::stats::PoolStat as Stat;

/// Number of queues. No lock passes more milestones: the last would be 2^63 us.
const QUEUES: usize = 64;

/// Locks that are held. Locks in a queue were granted before all locks in the queues before it.
pub(super) struct HeldLocks {
    /// Queues of locks by the number of milestones that they have passed.
    queues: [List<ClaimId>; QUEUES],
    links: Links,
}

impl Default for HeldLocks {
    fn default() -> Self {
        HeldLocks { queues: std::array::from_fn(|_| List::default()), links: Links::default() }
    }
}

impl HeldLocks {
    /// Returns the number of locks.
    pub fn len(&self) -> u64 {
        self.queues.iter().map(|queue| u64::from(queue.len())).sum()
    }

    /// Returns the number of locks that have passed a milestone.
    pub fn overdue(&self) -> u64 {
        self.len() - u64::from(self.queues[0].len())
    }

    /// Returns all locks, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = ClaimId> {
        self.queues.iter().rev().flat_map(|queue| queue.iter(&self.links))
    }

    /// Returns the oldest lock of each queue, with the number of milestones that it has passed; the oldest first.
    fn fronts(&self) -> impl Iterator<Item = (u8, ClaimId)> {
        (0..QUEUES as u8).zip(&self.queues).rev().filter_map(|(passed, queue)| Some((passed, queue.front()?)))
    }

    /// Adds the newest lock that has passed this number of milestones.
    #[inline]
    pub fn push(&mut self, id: ClaimId, passed: u8) {
        self.queues[usize::from(passed)].push_back(&mut self.links, id);
    }

    #[inline]
    pub fn remove(&mut self, id: ClaimId, passed: u8) {
        self.queues[usize::from(passed)].remove(&mut self.links, id);
    }
}

impl PoolsState {
    /// Arms the timer of the end of a hold that begins now, if it has a limit.
    #[inline]
    pub(super) fn arm_end(id: ClaimId, hold: Span, step: &mut PoolsStep<'_, '_>) -> Option<TimerId> {
        (hold != Span::FOREVER).then(|| step.timers.arm(step.now + hold, PoolsTimer::Claim(id)))
    }

    /// Notifies a holder whose hold ends earlier than it asked for, and gives back all claims of its connection, this one first.
    #[cold]
    pub(super) fn take_back(&mut self, id: ClaimId, step: &mut PoolsStep<'_, '_>) {
        let Claim { conn, since, .. } = self.claims[id.index()];
        let (key, who) = (top_keys::truncated(self.key_of(id)).into(), self.whos.of(id).into());
        self.figures.count(Stat::TakenBack);
        step.replies.push((conn, Reply::NotLocked));
        step.events.push(PoolEvent::TakenBack { key, conn, who, held: step.now.since(since) });
        self.give_back(id, true, step);
        self.close(conn, step);
    }

    /// Returns the first time at which a lock passes a milestone; None if none ever does.
    pub(super) fn next_milestone(&self) -> Option<Time> {
        self.held.fronts().map(|(passed, id)| self.milestone(self.claims[id.index()].since, passed)).min()
    }

    /// Returns the oldest lock that has reached a milestone and was not moved past it.
    pub(super) fn oldest_at_milestone(&self, now: Time) -> Option<ClaimId> {
        let is_there = |(passed, id): &(u8, ClaimId)| self.milestone(self.claims[id.index()].since, *passed) <= now;
        self.held.fronts().find(is_there).map(|(_, id)| id)
    }

    /// Moves the oldest locks past the milestones that they have reached, at most `most` locks.
    pub(super) fn pass_milestones(&mut self, now: Time, most: usize) {
        for _ in 0..most {
            let Some(id) = self.oldest_at_milestone(now) else { return };
            let ClaimPhase::Holding { passed, .. } = self.claims[id.index()].phase else {
                unreachable!("only locks that are held are in these queues");
            };
            self.held.remove(id, passed);
            self.queue_held(id, now);
        }
    }

    /// Appends a lock to the queue of its milestone. Locks must be added oldest first.
    pub(super) fn queue_held(&mut self, id: ClaimId, now: Time) {
        let since = self.claims[id.index()].since;
        let reached = (0..QUEUES as u8 - 1).take_while(|passed| self.milestone(since, *passed) <= now).count() as u8;
        if let ClaimPhase::Holding { passed, .. } = &mut self.claims[id.index()].phase {
            *passed = reached;
            self.held.push(id, reached);
        }
    }

    /// Returns the time at which a lock reaches its next milestone.
    fn milestone(&self, since: Time, passed: u8) -> Time {
        since + Span::from_micros(self.settings.warn_hold.as_micros().saturating_mul(1 << passed))
    }

    pub(super) fn check_held(&self) {
        let mut newest = None;
        for (passed, queue) in (0..QUEUES as u8).zip(&self.held.queues).rev() {
            for claim in queue.iter(&self.held.links).map(|id| &self.claims[id.index()]) {
                let is_in_place = matches!(claim.phase, ClaimPhase::Holding { passed: own, .. } if own == passed);
                assert!(is_in_place, "a lock stands in the queue of the milestones that it has passed");
                assert!(newest <= Some(claim.since), "locks stand in the order of their grants");
                newest = Some(claim.since);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Claim, Pool};

    /// Memory of an idle lock, together with its links, its name in the table and the entry of its connection.
    #[test]
    fn idle_lock_takes_little() {
        assert_eq!((size_of::<Option<Pool>>(), size_of::<Option<Claim>>()), (72, 32));
    }
}
