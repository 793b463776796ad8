//! Comparison of the tables of pools with each other. It changes nothing.

use super::{GroupId, Pools};
use poolcounter_core::Id as _;
use std::cmp::Reverse;

impl Pools {
    /// Compares the names, groups and notes with the pools.
    pub fn check(&self) {
        assert!(self.touched.is_empty() && self.touched_groups.is_empty(), "a step settles what it has touched");
        let named = self.iter().filter(|(_, pool)| !pool.is_removed).count();
        assert_eq!(self.by_name.len(), named, "each pool has one name");
        assert!(self.cramped.iter().all(|id| self.pools.contains(id.index())), "only pools lack room");
        let offering = self.iter().filter_map(|(id, pool)| Some((pool.offering?, id)));
        assert_eq!(self.offers, offering.collect(), "only pools offer their members");
        for (id, pool) in self.iter() {
            assert!(pool.is_removed || self.find(&pool.name) == Ok(id), "a pool is found by its name");
            assert!(!pool.is_touched && !pool.is_to_grow, "a step settles what it has touched");
            assert!(pool.owed <= pool.settings.max, "no more is owed than there may be");
            let is_in_group = pool.group.is_none_or(|group| self.group(group).pools.get(&pool.joined) == Some(&id));
            assert!(is_in_group, "a pool is in its group");
        }
        assert_eq!(self.group_names.len(), self.groups.len(), "each group has one name");
        for (index, group) in &self.groups {
            let id = GroupId::from_index(index);
            let supplies = || group.pools.values().map(|pool| (self.get(*pool).supply, *pool));
            for (part, sum) in group.sums.iter().enumerate() {
                let sum_of_pools: u64 = supplies().map(|(of, _)| of.parts[part]).sum();
                assert_eq!(*sum, sum_of_pools, "part {part} of the supply of a group");
            }
            let places = supplies().filter(|(of, _)| of.places > 0).map(|(of, pool)| (of.places, pool)).collect();
            assert_eq!(group.places, places, "pools with places for waiters");
            let able = supplies().filter_map(|(of, pool)| Some((of.room?, Reverse(pool)))).collect();
            assert_eq!(group.able, able, "pools that can start members");
            let limits = supplies().filter(|(of, _)| of.limit > 0).map(|(of, pool)| (of.limit, pool)).collect();
            assert_eq!(group.limits, limits, "pools with a limit of members of a client");
            assert!(group.is_touched || group.to_reconsider == 0, "free members of a group are offered");
            assert!(group.pools.values().all(|pool| self.get(*pool).group == Some(id)), "the pools of a group know it");
        }
    }
}
