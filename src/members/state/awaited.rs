//! Fixed members that are held until one of their name, still in use in a pool that is being removed, has come back.

use super::lifecycle::Cause;
use super::*;
use std::collections::{BTreeSet, HashMap};

/// Members that are awaited, by both sides.
#[derive(Default)]
pub(super) struct Awaited {
    /// The member in use, and the one that is held for it.
    by_used: BTreeSet<(MemberId, MemberId)>,
    by_held: BTreeMap<MemberId, MemberId>,
}

impl Awaited {
    /// Returns the members that are held, with those that they are held for.
    pub fn iter(&self) -> impl Iterator<Item = (MemberId, MemberId)> {
        self.by_held.iter().map(|(held, used)| (*held, *used))
    }

    pub fn is_empty(&self) -> bool {
        self.by_held.is_empty()
    }

    pub fn add(&mut self, held: MemberId, used: MemberId) {
        self.by_held.insert(held, used);
        self.by_used.insert((used, held));
    }

    /// Forgets a member that is held no longer.
    pub fn remove(&mut self, held: MemberId) {
        if let Some(used) = self.by_held.remove(&held) {
            self.by_used.remove(&(used, held));
        }
    }

    /// Returns a member that is held until this one comes back.
    fn first_of(&self, used: MemberId) -> Option<MemberId> {
        let from = (used, MemberId::from_index(0));
        self.by_used.range(from..).next().filter(|(of, _)| *of == used).map(|(_, held)| *held)
    }
}

impl State {
    /// Returns the fixed members that are in use in pools that are being removed, by name.
    pub(super) fn used_in_leaving_pools(&self) -> HashMap<Arc<[u8]>, MemberId> {
        let leaving = self.pools.after(None).filter(|id| self.pool(*id).is_leaving);
        let members = leaving.flat_map(|id| self.members.in_pool(id).all());
        let used = members.filter(|id| {
            let Member { owner, phase, .. } = self.member(*id);
            *owner == MemberOwner::Fixed && phase.kind() == PhaseKind::InUse
        });
        used.map(|id| (self.member(id).name.clone(), id)).collect()
    }

    /// Holds a member that is in no queue until another one of its name has come back.
    pub(super) fn await_member(&mut self, held: MemberId, used: MemberId, step: &mut Step<'_, '_>) {
        let holder = match self.member(used).phase {
            MemberPhase::InUse(lease) => self.leases.holder_text(lease, step.peer),
            _ => String::new(),
        };
        let reason = Reason::new("in use in a pool that is being removed", holder);
        self.members.keep_out(held, MemberPhase::Held(None), step.now, reason);
        self.members.awaited().add(held, used);
    }

    /// Frees the members that are held until this one comes back.
    pub(super) fn free_awaiting(&mut self, used: MemberId, step: &mut Step<'_, '_>) {
        while let Some(held) = self.members.awaited().first_of(used) {
            self.leave_state(held, step);
            self.release_member(held, Cause::Other, step);
        }
    }
}
