//! The members of a pool by name. The order has ids alone, and the names are read in the members, so that a name takes
//! memory once.

use super::{Member, MemberId, MemberTable, PoolId};
use poolcounter_core::id::Id as _;
use std::cmp::Ordering;
use std::sync::Arc;

impl MemberTable {
    /// Returns the member of this name in a pool.
    pub fn find_named(&self, pool: PoolId, name: &[u8]) -> Option<MemberId> {
        self.in_pool(pool).by_name.find_by(|id| (*self.get(*id).name).cmp(name)).copied()
    }

    /// Returns the members of a pool with a name behind `after`, by name.
    pub fn named_after(&self, pool: PoolId, after: Option<&[u8]>) -> impl Iterator<Item = (&Arc<[u8]>, MemberId)> {
        let by_name = &self.in_pool(pool).by_name;
        let ids = match after {
            None => by_name.iter(),
            Some(after) => by_name.range_by(|id| match *self.get(*id).name <= *after {
                true => Ordering::Less,
                false => Ordering::Greater,
            }),
        };
        ids.map(|id| (&self.get(*id).name, *id))
    }

    /// Adds the name of a member that is added next. Returns false, and changes nothing, if the pool has a member of
    /// this name.
    pub(super) fn add_name(&mut self, pool: PoolId, name: &[u8], id: MemberId) -> bool {
        let by_name = &mut self.by_pool.get_mut(pool).by_name;
        by_name.insert_by(id, |other| (*self.members[other.index()].name).cmp(name))
    }

    /// Removes the name of a member that is removed next.
    pub(super) fn remove_name(&mut self, id: MemberId) {
        let Member { pool, name, .. } = &self.members[id.index()];
        let by_name = &mut self.by_pool.get_mut(*pool).by_name;
        by_name.remove_by(|other| self.members[other.index()].name.cmp(name));
    }
}
