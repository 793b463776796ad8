//! Locks that are held, in the order of their grants, so that the oldest are found at once.

use super::{Claim, ClaimId, ClaimPhase, PoolsState, PoolsStep, PoolsTimer, Reply};
use poolcounter_core::{ConnId, Id, Span, TimerId, top_keys};
use poolcounter_protocol::pools::stats::PoolStat as Stat;

/// Lock that was taken back earlier than its client asked for: its connection must be ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TakenBack {
    /// Key of the lock, cut to [`top_keys::KEY_BYTES`].
    pub key: Vec<u8>,
    /// Connection that held it.
    pub conn: ConnId,
    /// Name that its client gave; empty without one.
    pub who: Box<[u8]>,
    /// Time for which it was held.
    pub held: Span,
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
        let (key, who) = (top_keys::truncated(self.key_of(id)).into(), self.whos.get(id).clone());
        self.figures.count(Stat::TakenBack);
        step.replies.push((conn, Reply::NotLocked));
        step.taken_back.push(TakenBack { key, conn, who, held: step.now.since(since) });
        self.give_back(id, true, step);
        self.close(conn, step);
    }

    pub(super) fn check_held(&self) {
        let mut newest = None;
        for claim in self.held.iter().map(|id| &self.claims[id.index()]) {
            assert!(matches!(claim.phase, ClaimPhase::Holding { .. }), "only locks that are held are listed");
            assert!(newest <= Some(claim.since), "locks stand in the order of their grants");
            newest = Some(claim.since);
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
