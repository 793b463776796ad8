//! Groups of pools: their demand is a number, and their pools are in the order of their providers' room.

use super::super::agents::Share;
use super::{GroupId, PoolId, Pools};
use poolcounter_core::Id as _;
use poolcounter_protocol::members::request::NoMembers;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pools from which members are taken together.
#[derive(Default)]
pub(in crate::state) struct Group {
    pub name: Arc<[u8]>,
    /// Its pools by the number of their entry.
    pub pools: BTreeMap<u64, PoolId>,
    /// Sums over its pools, by [`Part`].
    pub(super) sums: [u64; PARTS],
    /// Pools by the number of waiters for whom they have places, besides waiters for the group.
    pub places: BTreeSet<(u32, PoolId)>,
    /// Pools that can start members now, by the share of room of their provider with most.
    pub(super) able: BTreeSet<(Share, Reverse<PoolId>)>,
    /// Pools with a `per_client`, by that.
    pub limits: BTreeSet<(u32, PoolId)>,
    /// Number of pools, from this place on and round, whose free members are to be offered again.
    pub to_reconsider: usize,
    next: u64,
    /// Removal of the pools that joined it with a number below this one, gracefully (true) or at once.
    pub removal: Option<(bool, u64)>,
    /// True if it is in [`Pools::touched_groups`], or background work settles it.
    pub is_touched: bool,
}

/// Number that a group sums over its pools. A pool that is being removed counts as zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::state) enum Part {
    /// Starts and checks under way that no waiter for the pool alone needs.
    Spare,
    /// Free members that are kept for the group's first waiter for several.
    Kept,
    /// Maximum of members.
    Most,
    /// Pools.
    Lasting,
    /// Pools with fixed members.
    Fixed,
    /// Pools with providers.
    Provided,
    /// Pools in which a start is under way or waits for a backoff.
    Starting,
    /// Pools at their capacity.
    AtCapacity,
}

pub(in crate::state) const PARTS: usize = Part::AtCapacity as usize + 1;

/// Supply of a pool for its group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::state) struct Supply {
    /// Numbers in the order of [`Part`].
    pub parts: [u64; PARTS],
    /// Share of room of its provider with most; None if the pool can start nothing now.
    pub room: Option<Share>,
    /// Number of waiters for whom it has places, besides waiters for the group.
    pub places: u32,
    /// Its `per_client`.
    pub limit: u32,
}

impl Group {
    /// Returns the sum of a number over its pools.
    pub fn sum(&self, part: Part) -> u64 {
        self.sums[part as usize]
    }
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

    /// Puts a pool into the group of this name, and creates the group if it is new.
    pub fn join_group(&mut self, pool: PoolId, name: &Arc<[u8]>) {
        let id = self.find_or_add_group(name);
        let (group, member) = (&mut self.groups[id.index()], &mut self.pools[pool.index()]);
        group.pools.insert(self.joins, pool);
        (member.group, member.joined) = (Some(id), self.joins);
        self.joins = self.joins.saturating_add(1);
    }

    /// Returns the pool of a group that has joined it last before a number, and its own number.
    pub fn last_joined(&self, id: GroupId, before: u64) -> Option<(u64, PoolId)> {
        let (joined, pool) = self.group(id).pools.range(..before).next_back()?;
        Some((*joined, *pool))
    }

    pub fn find_or_add_group(&mut self, name: &Arc<[u8]>) -> GroupId {
        self.find_group(name).unwrap_or_else(|| {
            let group = Group { name: name.clone(), ..Group::default() };
            let id = GroupId::from_index(self.groups.insert(group));
            self.group_names.insert(name.clone(), id);
            id
        })
    }

    /// Returns whether a group has a pool that is not being removed.
    pub fn is_lasting(&self, id: GroupId) -> bool {
        self.group(id).sum(Part::Lasting) > 0
    }

    /// Removes a pool from its group, and returns the group.
    pub fn leave_group(&mut self, pool: PoolId) -> Option<GroupId> {
        self.set_supply(pool, Supply::default());
        let id = self.pools[pool.index()].group.take()?;
        let group = &mut self.groups[id.index()];
        group.pools.remove(&self.pools[pool.index()].joined);
        Some(id)
    }

    /// Removes a group without pools.
    pub fn remove_group(&mut self, id: GroupId) {
        let group = self.groups.remove(id.index());
        self.touched_groups.retain(|other| *other != id);
        self.group_names.remove(&group.name);
    }

    /// Sets the part that a pool has in the supply of its group.
    pub fn set_supply(&mut self, id: PoolId, supply: Supply) {
        let pool = &mut self.pools[id.index()];
        let before = std::mem::replace(&mut pool.supply, supply);
        let Some(group) = pool.group.filter(|_| before != supply) else { return };
        let group = &mut self.groups[group.index()];
        for (sum, (part, before)) in group.sums.iter_mut().zip(supply.parts.into_iter().zip(before.parts)) {
            *sum = *sum + part - before;
        }
        group.places.remove(&(before.places, id));
        group.places.extend((supply.places > 0).then_some((supply.places, id)));
        group.limits.remove(&(before.limit, id));
        group.limits.extend((supply.limit > 0).then_some((supply.limit, id)));
        before.room.into_iter().for_each(|room| _ = group.able.remove(&(room, Reverse(id))));
        group.able.extend(supply.room.map(|room| (room, Reverse(id))));
    }

    /// Returns the pool of a group whose provider with most room has the most of all.
    pub fn roomiest(&self, id: GroupId) -> Option<PoolId> {
        self.group(id).able.last().map(|(_, Reverse(pool))| *pool)
    }

    /// Returns why a take has no member of a group: the best reason of its pools.
    pub fn reason_in(&self, id: GroupId) -> NoMembers {
        match (self.group(id).sum(Part::Starting), self.group(id).sum(Part::AtCapacity)) {
            (1.., _) => NoMembers::Starting,
            (_, 1..) => NoMembers::AtCapacity,
            _ => NoMembers::NoProvider,
        }
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
        let group = &mut self.groups[id.index()];
        group.to_reconsider = group.pools.len();
        self.touch_group(id);
    }

    /// Takes the next pool of a group whose free members are to be offered again.
    pub fn next_to_reconsider(&mut self, id: GroupId) -> Option<PoolId> {
        let group = &mut self.groups[id.index()];
        group.to_reconsider = group.to_reconsider.checked_sub(1)?;
        let (joined, pool) = group.pools.range(group.next..).next().or_else(|| group.pools.iter().next())?;
        group.next = joined.saturating_add(1);
        Some(*pool)
    }
}
