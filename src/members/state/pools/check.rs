//! Comparison of the tables of pools with each other. It changes nothing.

use super::{GroupId, PoolId, Pools};
use poolcounter_core::id::Id as _;
use poolcounter_protocol::members::request::NoMembers;
use std::cmp::Reverse;
use std::collections::BTreeSet;

impl Pools {
    /// Compares the names, groups and notes with the pools.
    pub fn check(&self) {
        assert!(self.touched.is_empty() && self.touched_groups.is_empty(), "a step settles what it has touched");
        let named = self.iter().filter(|(_, pool)| !pool.is_removed).count();
        assert_eq!(self.by_name.len(), named, "each pool has one name");
        assert!(self.cramped.iter().all(|id| self.pools.contains(id.index())), "only pools lack room");
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
            let lasting = group.pools.values().filter(|pool| !self.get(**pool).is_leaving).count();
            assert_eq!(group.lasting, lasting, "pools of a group that are not being removed");
            let supplies = || group.pools.values().map(|pool| (self.get(*pool).supply, *pool));
            let [spare, kept] = [supplies().map(|(of, _)| of.spare).sum(), supplies().map(|(of, _)| of.kept).sum()];
            assert_eq!((group.spare, group.kept), (spare, kept), "the supply of a group");
            assert_eq!(group.most, supplies().map(|(of, _)| u64::from(of.most)).sum::<u64>(), "the maximum of a group");
            assert_eq!(group.fixed, supplies().filter(|(of, _)| of.is_fixed).count(), "pools with fixed members");
            assert_eq!(group.provided, supplies().filter(|(of, _)| of.is_provided).count(), "pools with providers");
            let count = |reason| supplies().filter(|(of, _)| of.reason == Some(reason)).count();
            let reasons = [NoMembers::Starting, NoMembers::AtCapacity].map(count);
            assert_eq!([group.starting, group.at_capacity], reasons, "reasons for which members are missing");
            let places = supplies().filter(|(of, _)| of.places > 0).map(|(of, pool)| (of.places, pool)).collect();
            assert_eq!(group.places, places, "pools with places for waiters");
            let able = supplies().filter_map(|(of, pool)| Some((of.room?, Reverse(pool)))).collect();
            assert_eq!(group.able, able, "pools that can start members");
            let limit_of = |pool: &PoolId| Some((self.get(*pool).settings.per_client, *pool)).filter(|(of, _)| *of > 0);
            assert!(
                group.limits.iter().copied().eq(group.pools.values().filter_map(limit_of).collect::<BTreeSet<_>>())
            );
            assert!(group.is_touched || group.to_reconsider == 0, "free members of a group are offered");
            assert!(group.pools.values().all(|pool| self.get(*pool).group == Some(id)), "the pools of a group know it");
        }
    }
}
