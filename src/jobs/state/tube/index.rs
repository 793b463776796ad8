//! Hash table of jobs whose memory grows and shrinks with them. It knows neither their numbers nor their keys: the
//! caller hashes and compares.
//!
//! A table that doubles takes three times the memory for a while, and moves all its jobs. So there are many small ones,
//! each with a larger share of the jobs than the one before it, the last twice that of the first: they double one after
//! the other, and at any number of jobs a table has about 8 bytes for each.

use crate::state::job::JobKey;
use hashbrown::HashTable;
use poolcounter_core::names::Hash;

/// Number of small tables: with a million jobs, a thousand are moved when one of them doubles. They take 32 KiB when
/// all are empty.
const SHARDS: u64 = 1024;
/// Room of a table above which it shrinks when less than an eighth is used.
const LEAST_SHRUNK: usize = 64;

/// Jobs by hash.
pub(in crate::state) struct JobIndex {
    shards: Box<[HashTable<JobKey>]>,
    len: usize,
}

impl Default for JobIndex {
    fn default() -> Self {
        JobIndex { shards: (0..SHARDS).map(|_| HashTable::new()).collect(), len: 0 }
    }
}

impl JobIndex {
    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the job with this hash for which `is_it` is true.
    pub fn find(&self, hash: Hash, is_it: impl Fn(JobKey) -> bool) -> Option<JobKey> {
        self.shards[shard_of(hash)].find(hash.0, |key| is_it(*key)).copied()
    }

    /// Adds a job that is not in the table. `hash_of` returns the hash of any job in it.
    pub fn insert(&mut self, hash: Hash, key: JobKey, hash_of: impl Fn(JobKey) -> Hash) {
        self.shards[shard_of(hash)].insert_unique(hash.0, key, |key| hash_of(*key).0);
        self.len += 1;
    }

    /// Removes a job, and frees memory that is not needed any more.
    pub fn remove(&mut self, hash: Hash, key: JobKey, hash_of: impl Fn(JobKey) -> Hash) {
        let shard = &mut self.shards[shard_of(hash)];
        let Ok(entry) = shard.find_entry(hash.0, |other| *other == key) else { return };
        entry.remove();
        self.len -= 1;
        if shard.capacity() > LEAST_SHRUNK && shard.len() < shard.capacity() / 8 {
            shard.shrink_to(2 * shard.len(), |key| hash_of(*key).0);
        }
    }
}

/// Returns the table of a hash. Their shares grow by the same factor from one to the next: the index is the logarithm
/// of a number from 1 to 2, by a parabola that is accurate to a hundredth.
fn shard_of(hash: Hash) -> usize {
    // These bits are not used by the tables themselves.
    let x = hash.0 >> 32 & 0xffff;
    let bent = x * (0x1_0000 - x) / 0x1_0000 * 11 / 32;
    // Lossless: less than SHARDS.
    ((x + bent) * SHARDS / 0x1_0000) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::Id;

    fn hash(n: usize) -> Hash {
        Hash((n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn bytes(index: &JobIndex) -> usize {
        index.shards.iter().map(HashTable::allocation_size).sum()
    }

    #[test]
    fn a_job_takes_as_much_however_many_there_are() {
        let mut index = JobIndex::default();
        let hash_of = |key: JobKey| hash(key.index());
        for n in 0..300_000 {
            index.insert(hash(n), JobKey::from_index(n), hash_of);
            if n > 50_000 && n % 1_000 == 0 {
                let each = bytes(&index) as f64 / index.len() as f64;
                assert!((6.0..9.5).contains(&each), "{each} bytes each of {n}");
            }
        }
        for n in 0..300_000 {
            assert_eq!(index.find(hash(n), |key| key.index() == n), Some(JobKey::from_index(n)));
            index.remove(hash(n), JobKey::from_index(n), hash_of);
            assert_eq!(index.find(hash(n), |key| key.index() == n), None);
        }
        assert_eq!(index.len(), 0);
        assert!(bytes(&index) < 200_000, "{} bytes are left", bytes(&index));
    }

    #[test]
    fn every_hash_has_its_table() {
        assert_eq!((shard_of(Hash(0)), shard_of(Hash(u64::MAX))), (0, SHARDS as usize - 1));
        let places: Vec<usize> = (0..=0xffff).map(|x: u64| shard_of(Hash(x << 32))).collect();
        assert!(places.is_sorted(), "the larger the hash, the later its table");
    }
}
