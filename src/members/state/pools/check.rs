//! Comparison of the tables of pools with each other. It changes nothing.

use super::*;
use std::cmp::Reverse;
use std::collections::BTreeSet;

impl Pools {
    /// Compares the names, groups and notes with the pools.
    pub fn check(&self) {
        assert!(self.touched.is_empty() && self.touched_groups.is_empty(), "a step settles what it has touched");
        let named = self.iter().filter(|(_, pool)| !pool.is_removed).count();
        assert_eq!((self.names.len(), self.by_name.len()), (named, named), "each pool has one name");
        assert!(self.cramped.iter().all(|id| self.pools.contains(id.index())), "only pools lack room");
        for (id, pool) in self.iter() {
            let is_found = self.find(&pool.name) == Ok(id) && self.by_name.get(&pool.name) == Some(&id);
            assert!(pool.is_removed || is_found, "a pool is found by its name");
            assert!(!pool.is_touched && !pool.is_to_grow, "a step settles what it has touched");
            assert!(pool.owed <= pool.settings.max, "no more is owed than there may be");
            let is_in_group = pool.group.is_none_or(|group| self.group(group).pools.contains(&id));
            assert!(is_in_group, "a pool is in its group");
        }
        assert_eq!(self.group_names.len(), self.groups.len(), "each group has one name");
        for (index, group) in &self.groups {
            let id = GroupId::from_index(index);
            let lasting = group.pools.iter().filter(|pool| !self.get(**pool).is_leaving).count();
            assert_eq!(group.lasting, lasting, "pools of a group that are not being removed");
            let supplies = || group.pools.iter().map(|pool| (self.get(*pool).supply, *pool));
            let [spare, kept] = [supplies().map(|(of, _)| of.spare).sum(), supplies().map(|(of, _)| of.kept).sum()];
            assert_eq!((group.spare, group.kept), (spare, kept), "the supply of a group");
            let able = supplies().filter_map(|(of, pool)| Some((of.room?, Reverse(pool)))).collect();
            assert_eq!(group.able, able, "pools that can start members");
            let limit_of = |pool: &PoolId| Some((self.get(*pool).settings.per_client, *pool)).filter(|(of, _)| *of > 0);
            assert!(group.limits.iter().copied().eq(group.pools.iter().filter_map(limit_of).collect::<BTreeSet<_>>()));
            assert!(group.is_touched || group.to_reconsider == 0, "free members of a group are offered");
            assert!(group.pools.iter().all(|pool| self.get(*pool).group == Some(id)), "the pools of a group know it");
        }
    }
}
