//! Fixed members that a pool has from one that is being removed: they are in its state, or held until one of their
//! name, still in use there, is returned.

use super::lending::Outcome;
use super::lifecycle::Cause;
use super::reasons::reason_of;
use super::*;
use std::collections::{BTreeSet, HashMap};

/// State of the members of one name in pools that are being removed, for a new member of that name.
#[derive(Default)]
pub(super) struct Inherited {
    used: Vec<MemberId>,
    kept_out: Option<InheritedPhase>,
    is_unclean: bool,
}

/// Phase in which a member is kept out, with its end.
struct InheritedPhase {
    kind: PhaseKind,
    until: Option<Time>,
    since: Time,
    reason: Reason,
}

/// States of fixed members in pools that are being removed, by name. Free members have none.
pub(super) type InheritedStates = HashMap<Arc<[u8]>, Inherited>;

/// Members that are awaited, by both sides.
#[derive(Default)]
pub(super) struct Awaited {
    /// Pairs of the member in use, and the one that is held for it.
    by_used: BTreeSet<(MemberId, MemberId)>,
    /// The same the other way round.
    by_held: BTreeSet<(MemberId, MemberId)>,
}

impl Awaited {
    /// Returns the held members, each with the member in use for which it is held.
    pub fn iter(&self) -> impl Iterator<Item = (MemberId, MemberId)> {
        self.by_held.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.by_held.is_empty()
    }

    pub fn add(&mut self, held: MemberId, used: MemberId) {
        self.by_held.insert((held, used));
        self.by_used.insert((used, held));
    }

    /// Removes a member that is not held any more.
    pub fn remove(&mut self, held: MemberId) {
        while let Some(used) = second_of(&self.by_held, held) {
            self.forget(held, used);
        }
    }

    fn forget(&mut self, held: MemberId, used: MemberId) {
        self.by_held.remove(&(held, used));
        self.by_used.remove(&(used, held));
    }

    /// Takes a member that was held until this one is returned, and returns whether it is held for no other.
    fn take_of(&mut self, used: MemberId) -> Option<(MemberId, bool)> {
        let held = second_of(&self.by_used, used)?;
        self.forget(held, used);
        Some((held, second_of(&self.by_held, held).is_none()))
    }
}

/// Returns the second of the first pair that begins with this member.
fn second_of(pairs: &BTreeSet<(MemberId, MemberId)>, first: MemberId) -> Option<MemberId> {
    let (of, second) = pairs.range((first, MemberId::from_index(0))..).next()?;
    (*of == first).then_some(*second)
}

impl State {
    /// Returns the states that fixed members in these pools pass on, by name.
    pub(super) fn inherited(&self, pools: impl Iterator<Item = PoolId>, step: &Step<'_, '_>) -> InheritedStates {
        let mut by_name = InheritedStates::new();
        for id in pools.flat_map(|pool| self.members.in_pool(pool).all()) {
            let Member { name, owner, phase, since, .. } = self.member(id);
            let kind = phase.kind();
            let is_free = matches!(phase, MemberPhase::Free(_) | MemberPhase::Held(None));
            if *owner != MemberOwner::Fixed || is_free {
                continue;
            }
            let inherited = by_name.entry(name.clone()).or_default();
            match kind {
                PhaseKind::InUse => inherited.used.push(id),
                PhaseKind::Unclean | PhaseKind::Cleaning => inherited.is_unclean = true,
                _ => {
                    let until = phase.timer().map(|timer| step.timers.deadline(timer));
                    let (since, reason) = match self.members.reason(id) {
                        Some((since, reason)) => (*since, reason.clone()),
                        None => (*since, Reason::new(reason_of(kind), String::new())),
                    };
                    inherited.kept_out = Some(InheritedPhase { kind, until, since, reason });
                }
            }
        }
        by_name
    }

    /// Puts a new member that is in no queue into the state of those of its name, or frees it.
    pub(super) fn inherit(&mut self, id: MemberId, inherited: Option<&Inherited>, step: &mut Step<'_, '_>) {
        let Some(Inherited { used, kept_out, is_unclean }) = inherited else {
            return self.release_member(id, Cause::Other, step);
        };
        // A pool that was put back into the file keeps its own.
        let used: Vec<MemberId> =
            used.iter().copied().filter(|used| self.pool(self.member(*used).pool).is_leaving).collect();
        if let Some(InheritedPhase { kind, until, since, reason }) = kept_out {
            let phase = match (kind, until.map(|until| step.timers.arm(until, Timer::Phase(id)))) {
                (PhaseKind::Delayed, Some(timer)) => MemberPhase::Delayed(timer),
                (PhaseKind::Held, timer) => MemberPhase::Held(timer),
                (_, timer) => MemberPhase::Quarantined(timer),
            };
            self.members.keep_out(id, phase, *since, reason.clone());
        } else if !used.is_empty() {
            self.await_members(id, &used, step);
        } else if *is_unclean {
            self.return_member(id, step);
        } else {
            self.release_member(id, Cause::Other, step);
        }
    }

    /// Holds a member that is in no queue until others of its name are returned.
    fn await_members(&mut self, held: MemberId, used: &[MemberId], step: &mut Step<'_, '_>) {
        let holder = match self.member(used[0]).phase {
            MemberPhase::InUse(lease) => self.leases.holder_text(lease, step.peer),
            _ => String::new(),
        };
        let reason = Reason::new("in use in a pool that is being removed", holder);
        self.members.keep_out(held, MemberPhase::Held(None), step.now, reason);
        used.iter().for_each(|used| self.members.awaited().add(held, *used));
    }

    /// Passes the outcome of a lease on to the members that were held until its end, with a hold to come. One that was
    /// held for several is free when all are returned, and fails with the first that does.
    pub(super) fn end_awaiting(&mut self, used: MemberId, outcome: &Outcome, step: &mut Step<'_, '_>) {
        while let Some((held, is_last)) = self.members.awaited().take_of(used) {
            let has_failed = match outcome {
                Outcome::Good => false,
                Outcome::Failed(..) => true,
                Outcome::Lost(_) => self.pool(self.member(held).pool).settings.on_loss == OnLoss::Fail,
            };
            if is_last || has_failed {
                if let Some((span, reason)) = self.members.hold(used).cloned() {
                    self.members.set_hold(held, span, reason);
                }
                self.leave_state(held, step);
                self.conclude(held, outcome.clone(), step);
            }
        }
    }
}
