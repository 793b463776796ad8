//! Comparison of the tables of pools with each other. It changes nothing.

use super::*;

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
            let is_in_group = pool.group.is_none_or(|group| self.group(group).pools.contains(&id));
            assert!(is_in_group, "a pool is in its group");
        }
        assert_eq!(self.group_names.len(), self.groups.len(), "each group has one name");
        for (id, group) in self.groups() {
            assert!(group.pools.iter().all(|pool| self.get(*pool).group == Some(id)), "the pools of a group know it");
        }
    }
}
