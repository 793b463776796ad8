//! From a name to the slab key of what it names. The names stay in the entities: this table holds only keys, and asks.

use crate::id::Id;
use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// An index of entities by name.
///
/// The hash is SipHash with random keys: names come from peers, who must not be able to make them collide.
pub struct Names<K> {
    table: HashTable<K>,
    hasher: RandomState,
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Names { table: HashTable::new(), hasher: RandomState::new() }
    }
}

impl<K: Id> Names<K> {
    /// How many names there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The key of `name`, where `name_of` tells the name of a key of this table.
    pub fn find<'a>(&self, name: &[u8], name_of: impl Fn(K) -> &'a [u8]) -> Option<K> {
        let hash = self.hasher.hash_one(name);
        self.table.find(hash, |key| name_of(*key) == name).copied()
    }

    /// Adds a key whose name is not in the table yet.
    pub fn insert<'a>(&mut self, key: K, name_of: impl Fn(K) -> &'a [u8]) {
        let hasher = &self.hasher;
        let hash_of = |key: &K| hasher.hash_one(name_of(*key));
        self.table.insert_unique(hash_of(&key), key, hash_of);
    }

    /// Takes a key out while `name_of` still knows it.
    pub fn remove<'a>(&mut self, key: K, name_of: impl Fn(K) -> &'a [u8]) {
        let hash = self.hasher.hash_one(name_of(key));
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == key) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ConnId;
    use slab::Slab;
    use std::collections::HashMap;

    #[test]
    fn behaves_like_a_map() {
        let mut entities: Slab<Vec<u8>> = Slab::new();
        let mut names: Names<ConnId> = Names::default();
        let mut model: HashMap<Vec<u8>, ConnId> = HashMap::new();
        let mut seed = 5_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let name = vec![b'x'; (seed >> 33) as usize % 300];
            let found = names.find(&name, |key| entities[key.index()].as_slice());
            assert_eq!(found, model.get(&name).copied());
            if let Some(key) = found {
                names.remove(key, |key| entities[key.index()].as_slice());
                entities.remove(key.index());
                model.remove(&name);
            } else {
                let key = ConnId::from_index(entities.insert(name.clone()));
                names.insert(key, |key| entities[key.index()].as_slice());
                model.insert(name, key);
            }
            assert_eq!(names.len(), model.len());
        }
    }
}
