//! Hash table from names to slab keys. The names stay in the entities: the table has only keys, and the caller
//! compares.

mod siphash;

use crate::id::Id;
use hashbrown::{HashTable, TryReserveError};
use siphash::siphash;
use std::hash::{BuildHasher, RandomState};

/// Initial capacity in names: 10 KiB, so that a table of few names, which tombstones fill soonest, never grows.
const FIRST_CAPACITY: usize = 1024;

/// Number of names from which a table grows incrementally: moving all names at once would take milliseconds.
const MANY: usize = 16_384;
/// Number of buckets of the old table that each insertion empties. The new table has twice the room, so the old one is
/// empty long before the new one is full.
const BUCKETS_EMPTIED: usize = 8;

/// Index of entities by name.
///
/// The hash is SipHash with random keys: names come from peers, which must not be able to make them collide.
pub struct Names<K> {
    table: HashTable<K>,
    /// Table before it grew, without the keys that have moved, and its first bucket that is not emptied.
    old: Option<(HashTable<K>, usize)>,
    hashing: Hashing,
}

impl<K> Default for Names<K> {
    fn default() -> Self {
        Names::with_capacity(FIRST_CAPACITY)
    }
}

/// Hash of a name. An entity that keeps it need not be hashed again when the table grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hash(pub u64);

/// Hash function of names: SipHash with random keys.
#[derive(Clone)]
pub struct Hashing([u64; 2]);

impl Default for Hashing {
    fn default() -> Self {
        let random = RandomState::new();
        Hashing([0, 1].map(|n| random.hash_one(n)))
    }
}

impl Hashing {
    /// Returns the hash of a name.
    pub fn hash(&self, name: &[u8]) -> Hash {
        Hash(siphash(self.0, name))
    }
}

impl<K> Names<K> {
    /// Returns an index with room for `names` names.
    pub fn with_capacity(names: usize) -> Self {
        Names { table: HashTable::with_capacity(names), old: None, hashing: Hashing::default() }
    }

    /// Makes room for `names` names in an empty table.
    pub fn reserve(&mut self, names: usize) {
        self.table.reserve(names, |_| unreachable!("nothing is moved in an empty table"));
    }

    /// Makes room for `names` names in an empty table, if there is memory for them.
    ///
    /// # Errors
    ///
    /// Fails if there is not.
    pub fn try_reserve(&mut self, names: usize) -> Result<(), TryReserveError> {
        self.table.try_reserve(names, |_| unreachable!("nothing is moved in an empty table"))
    }

    /// Returns the hash function of this table, for entities that do not keep their hash.
    pub fn hashing(&self) -> Hashing {
        self.hashing.clone()
    }
}

impl<K: Id> Names<K> {
    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.table.len() + self.old.as_ref().map_or(0, |(old, _)| old.len())
    }

    /// Returns true if there are no names.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the hash of a name in this table.
    pub fn hash(&self, name: &[u8]) -> Hash {
        self.hashing.hash(name)
    }

    /// Returns the key with this hash for which `is_named` is true.
    pub fn find(&self, hash: Hash, is_named: impl Fn(K) -> bool) -> Option<K> {
        let found = self.table.find(hash.0, |key| is_named(*key)).copied();
        found.or_else(|| self.old.as_ref()?.0.find(hash.0, |key| is_named(*key)).copied())
    }

    /// Adds a key whose name must not be in the table yet. `hash_of` returns the hash of any key in it.
    pub fn insert(&mut self, hash: Hash, key: K, hash_of: impl Fn(K) -> Hash) {
        if self.table.len() == self.table.capacity() && self.table.len() >= MANY {
            self.empty_old(usize::MAX, &hash_of);
            let larger = HashTable::with_capacity(2 * self.table.len());
            self.old = Some((std::mem::replace(&mut self.table, larger), 0));
        }
        if self.old.is_some() {
            self.empty_old(BUCKETS_EMPTIED, &hash_of);
        }
        self.table.insert_unique(hash.0, key, |key| hash_of(*key).0);
    }

    /// Moves the keys in the next buckets of the old table.
    #[cold]
    fn empty_old(&mut self, buckets: usize, hash_of: &impl Fn(K) -> Hash) {
        let Some((mut old, next)) = self.old.take() else { return };
        let end = old.num_buckets().min(next.saturating_add(buckets));
        for bucket in next..end {
            if let Ok(entry) = old.get_bucket_entry(bucket) {
                let (key, _) = entry.remove();
                self.table.insert_unique(hash_of(key).0, key, |key| hash_of(*key).0);
            }
        }
        self.old = (!old.is_empty()).then_some((old, end));
    }

    /// Replaces a table that has become far too large by a smaller one, in steps: to be called after each removal from
    /// a table whose memory should be freed.
    pub fn shrink(&mut self, hash_of: impl Fn(K) -> Hash) {
        if self.old.is_some() {
            self.empty_old(2 * BUCKETS_EMPTIED, &hash_of);
        } else if self.table.capacity() > MANY && self.table.len() < self.table.capacity() / 8 {
            let smaller = HashTable::with_capacity(self.table.capacity() / 4);
            self.old = Some((std::mem::replace(&mut self.table, smaller), 0));
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, hash: Hash, key: K) {
        for table in [&mut self.table].into_iter().chain(self.old.as_mut().map(|(old, _)| old)) {
            if let Ok(entry) = table.find_entry(hash.0, |other| *other == key) {
                entry.remove();
                return;
            }
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
    fn grows_incrementally_and_finds_every_name_meanwhile() {
        let mut names: Names<ConnId> = Names::default();
        let hash = |key: ConnId| Hash((key.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let asked = std::cell::Cell::new(0);
        let hash_of = |key| {
            asked.set(asked.get() + 1);
            hash(key)
        };
        let has = |names: &Names<ConnId>, n| names.find(hash(id(n)), |key| key == id(n)).is_some();
        let mut most = 0;
        for n in 0..10 * MANY {
            asked.set(0);
            names.insert(hash(id(n)), id(n), hash_of);
            most = most.max(if names.len() > MANY { asked.get() } else { 0 });
            // The oldest third is removed again, from either table.
            let gone = (n + 1) / 3;
            if n % 3 == 2 {
                names.remove(hash(id(gone - 1)), id(gone - 1));
                assert!(!has(&names, gone - 1));
            }
            assert!(has(&names, n) && has(&names, gone));
            assert_eq!(names.len(), n + 1 - gone);
        }
        assert_eq!(most, BUCKETS_EMPTIED);
        assert!(names.table.capacity() < 32 * MANY);
    }

    #[test]
    fn gives_memory_back_bit_by_bit() {
        let mut names: Names<ConnId> = Names::default();
        let hash = |key: ConnId| Hash((key.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..20 * MANY).for_each(|n| names.insert(hash(id(n)), id(n), hash));
        for n in 0..20 * MANY {
            names.remove(hash(id(n)), id(n));
            names.shrink(hash);
            let last = id(20 * MANY - 1);
            assert_eq!(names.find(hash(last), |key| key == last).is_some(), n < last.index());
            if n % 1_000 == 0 {
                names.insert(hash(id(n)), id(n), hash);
                assert!(names.find(hash(id(n)), |key| key == id(n)).is_some());
                names.remove(hash(id(n)), id(n));
            }
        }
        assert!(names.is_empty() && names.old.is_none());
        assert!(names.table.capacity() <= 2 * MANY);
    }

    fn id(n: usize) -> ConnId {
        ConnId::from_index(n)
    }

    #[test]
    fn behaves_like_a_map() {
        let mut entities: Slab<Vec<u8>> = Slab::new();
        let mut names: Names<ConnId> = Names::default();
        let mut model: HashMap<Vec<u8>, ConnId> = HashMap::new();
        let mut hashes: HashMap<ConnId, Hash> = HashMap::new();
        let mut seed = 5_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let name = vec![b'x'; (seed >> 33) as usize % 300];
            let hash = names.hash(&name);
            let found = names.find(hash, |key| entities[key.index()] == name);
            assert_eq!(found, model.get(&name).copied());
            if let Some(key) = found {
                names.remove(hash, key);
                entities.remove(key.index());
                model.remove(&name);
            } else {
                let key = ConnId::from_index(entities.insert(name.clone()));
                hashes.insert(key, hash);
                names.insert(hash, key, |key| hashes[&key]);
                model.insert(name, key);
            }
            assert_eq!(names.len(), model.len());
        }
    }
}
