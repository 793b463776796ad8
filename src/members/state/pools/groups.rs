//! Groups of pools: takes and waiters of a group get members of any of its pools.

use super::*;
use poolcounter_core::meter::Metered as _;

/// Most pools of a group: a take from it looks at all of them.
const MOST_IN_GROUP: usize = 256;

/// Pools from which members are taken together.
pub(in crate::state) struct Group {
    pub name: Arc<[u8]>,
    /// Its pools, first come first.
    pub pools: Vec<PoolId>,
    /// True if it is in [`Pools::touched_groups`], or background work settles it.
    pub is_touched: bool,
}

/// Part that a pool has in the supply of its group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::state) struct Supply {
    /// Number of starts and checks under way that no waiter for the pool alone needs.
    pub spare: u64,
    /// Number of free members that are kept for the group's first waiter for several.
    pub kept: u64,
}

impl Pools {
    pub fn group(&self, id: GroupId) -> &Group {
        &self.groups[id.index()]
    }

    pub fn group_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.groups[id.index()]
    }

    /// Returns whether a group has not ended.
    pub fn has_group(&self, id: GroupId) -> bool {
        self.groups.contains(id.index())
    }

    pub fn find_group(&self, name: &[u8]) -> Option<GroupId> {
        self.group_names.get(name).copied()
    }

    pub fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().map(|(index, group)| (GroupId::from_index(index), group))
    }

    /// Returns the pools of a group that are not being removed, first come first.
    pub fn lasting_in(&self, id: GroupId) -> impl Iterator<Item = PoolId> {
        self.group(id).pools.iter().copied().metered().filter(|pool| !self.get(*pool).is_leaving)
    }

    /// Returns whether there is room for a pool, or for a known one with other settings: in all, and in its group.
    pub fn has_place(&self, known: Option<PoolId>, settings: &Settings) -> bool {
        let group = settings.group.as_ref().and_then(|name| self.find_group(name)).map(|id| self.group(id));
        let is_in = |group: &Group| known.is_some_and(|known| group.pools.contains(&known));
        (known.is_some() || self.len() < MOST_POOLS)
            && group.is_none_or(|group| group.pools.len() < MOST_IN_GROUP || is_in(group))
    }

    /// Puts a pool into the group of this name, and creates the group if it is new.
    pub fn join_group(&mut self, pool: PoolId, name: &Arc<[u8]>) {
        let id = self.find_or_add_group(name);
        self.groups[id.index()].pools.push(pool);
        self.pools[pool.index()].group = Some(id);
    }

    pub fn find_or_add_group(&mut self, name: &Arc<[u8]>) -> GroupId {
        self.find_group(name).unwrap_or_else(|| {
            let group = Group { name: name.clone(), pools: Vec::new(), is_touched: false };
            let id = GroupId::from_index(self.groups.insert(group));
            self.group_names.insert(name.clone(), id);
            id
        })
    }

    /// Removes a pool from its group, and returns the group.
    pub fn leave_group(&mut self, pool: PoolId) -> Option<GroupId> {
        let of_pool = &mut self.pools[pool.index()];
        of_pool.supply = Supply::default();
        let id = of_pool.group.take()?;
        self.groups[id.index()].pools.retain(|other| *other != pool);
        Some(id)
    }

    /// Removes a group without pools.
    pub fn remove_group(&mut self, id: GroupId) {
        let group = self.groups.remove(id.index());
        self.touched_groups.retain(|other| *other != id);
        self.group_names.remove(&group.name);
    }

    /// Returns what the pools of a group have for its waiters.
    pub fn supply_in(&self, id: GroupId) -> Supply {
        let add = |sum: Supply, of: Supply| Supply { spare: sum.spare + of.spare, kept: sum.kept + of.kept };
        self.group(id).pools.iter().map(|pool| self.get(*pool).supply).fold(Supply::default(), add)
    }

    /// Notes that the demand or supply of a group has changed, so that it is settled at the end of the step.
    pub fn touch_group(&mut self, id: GroupId) {
        let group = &mut self.groups[id.index()];
        if !group.is_touched {
            group.is_touched = true;
            self.touched_groups.push(id);
        }
    }

    /// Touches a group, and notes that its waiters may want members that are free in any of its pools.
    pub fn reconsider_group(&mut self, id: GroupId) {
        for pool in &self.groups[id.index()].pools {
            self.pools[pool.index()].is_to_reconsider = true;
        }
        self.touch_group(id);
    }
}
