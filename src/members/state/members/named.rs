//! The members of a pool by name. The order has ids alone, and the names are read in the members, so that a name takes
//! memory once.

use super::{MemberId, MemberTable, PoolId};
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
}
