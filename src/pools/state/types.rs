//! Statistics by type of work, which is the part of a key before its first `:`. This module knows types and counters
//! only.

use hashbrown::HashTable;
use poolcounter_core::id::id;
use poolcounter_core::{Count, Histogram, Id};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};

/// Most types that are counted apart. Later types count under [`OTHER`].
pub const MOST_TYPES: usize = 256;
/// Longest name of a type in bytes. A key without a colon within one byte more has no type.
pub const TYPE_BYTES: usize = 64;
/// Type of all keys whose types came after the table was full.
pub const OTHER: &[u8] = b"other";
/// Statistics that are sums over the types: a request counts them once.
pub const SUMS: &[Stat] = &[
    Stat::TotalAcquired,
    Stat::ProcessedCount,
    Stat::ProcessingTime,
    Stat::LostLocks,
    Stat::ExpiredHolds,
    Stat::GivenUpWaits,
];
/// Type of keys without one.
pub const NONE: &[u8] = b"-";

id! { TypeId }

/// Statistics of one type.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WorkType {
    /// Part of the key before the colon.
    pub name: Vec<u8>,
    /// Number of locks granted.
    pub acquired: Count,
    /// Number of waits begun.
    pub queued: Count,
    /// Number of waits that ended in DONE.
    pub done: Count,
    /// Number of QUEUE_FULL replies.
    pub full: Count,
    /// Number of TIMEOUT replies.
    pub timeouts: Count,
    /// Number of locks that ended with their connection.
    pub lost: Count,
    /// Number of locks whose hold was over.
    pub expired: Count,
    /// Number of waits that clients gave up.
    pub given_up: Count,
    /// Lengths of the waits that ended, by any event.
    pub waits: Histogram,
    /// Times for which ended locks were held, however they ended.
    pub holds: Histogram,
}

/// Table of the types, by name.
pub(super) struct Types {
    ids: HashTable<TypeId>,
    types: Vec<WorkType>,
    /// Type of the last look-up: most keys of a fleet have one of few types.
    last: TypeId,
}

impl WorkType {
    /// Returns the number of locks that are held now.
    pub fn working(&self) -> u64 {
        self.acquired.get().saturating_sub(self.holds.count())
    }

    /// Returns the number of requests that wait now.
    pub fn waiting(&self) -> u64 {
        self.queued.get().saturating_sub(self.waits.count())
    }

    /// Returns true if it has any counts.
    fn is_used(&self) -> bool {
        [self.acquired, self.queued, self.full, self.timeouts].iter().any(|count| *count > Count::ZERO)
    }
}

impl Default for Types {
    fn default() -> Self {
        let mut types = Types { ids: HashTable::with_capacity(MOST_TYPES + 1), types: Vec::new(), last: TypeId(0) };
        types.add(fold(OTHER), OTHER);
        types
    }
}

impl Types {
    /// Returns the type of a key, and adds it if it is new.
    pub fn of(&mut self, key: &[u8]) -> TypeId {
        let is_last = key.strip_prefix(&self[self.last].name[..]).is_some_and(|rest| rest.first() == Some(&b':'));
        if !is_last {
            let (name, hash) = name_of(key);
            let known = self.ids.find(hash, |id| self[*id].name == name).copied();
            self.last = known.unwrap_or_else(|| self.add(hash, name));
        }
        self.last
    }

    /// Returns the type with this name, or else [`OTHER`].
    pub fn named(&self, name: &[u8]) -> TypeId {
        self.ids.find(fold(name), |id| self[*id].name == name).copied().unwrap_or(TypeId(0))
    }

    /// Returns every type with any count, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &WorkType> {
        self.types.iter().filter(|one| one.is_used())
    }

    /// Returns the sum over all types for one of [`SUMS`]; zero for another statistic.
    pub fn total(&self, stat: Stat) -> u64 {
        let of_one: fn(&WorkType) -> u64 = match stat {
            Stat::TotalAcquired => |one| one.acquired.get(),
            Stat::ProcessedCount => |one| one.holds.count(),
            Stat::ProcessingTime => |one| one.holds.sum(),
            Stat::LostLocks => |one| one.lost.get(),
            Stat::ExpiredHolds => |one| one.expired.get(),
            Stat::GivenUpWaits => |one| one.given_up.get(),
            _ => return 0,
        };
        self.types.iter().map(|one| Count::from(of_one(one))).sum::<Count>().get()
    }

    /// Returns all types, for a handover.
    pub fn save(&self) -> Vec<WorkType> {
        self.types.clone()
    }

    /// Restores the types of a handover.
    pub fn restore(&mut self, saved: Vec<WorkType>) {
        *self = Types::default();
        for one in saved {
            let hash = fold(&one.name);
            let known = self.ids.find(hash, |id| self[*id].name == one.name).copied();
            let id = known.unwrap_or_else(|| self.add(hash, &one.name));
            self[id] = one;
        }
    }

    fn add(&mut self, hash: u64, name: &[u8]) -> TypeId {
        if self.types.len() > MOST_TYPES {
            return TypeId(0);
        }
        let id = TypeId::from_index(self.types.len());
        // The numbers of holders and waiters are computed from these and the histograms, which begin at zero, too.
        let [acquired, queued] = [Count::ZERO; 2];
        self.types.push(WorkType { name: name.into(), acquired, queued, ..WorkType::default() });
        self.ids.insert_unique(hash, id, |id| fold(&self.types[id.index()].name));
        id
    }
}

impl Index<TypeId> for Types {
    type Output = WorkType;

    fn index(&self, id: TypeId) -> &WorkType {
        &self.types[id.index()]
    }
}

impl IndexMut<TypeId> for Types {
    fn index_mut(&mut self, id: TypeId) -> &mut WorkType {
        &mut self.types[id.index()]
    }
}

/// Returns the name of a key's type with its hash, in one pass, because each new pool needs both.
fn name_of(key: &[u8]) -> (&[u8], u64) {
    let mut hash = 0;
    for (end, byte) in key.iter().take(TYPE_BYTES + 1).enumerate() {
        if *byte == b':' {
            return if end > 0 { (&key[..end], hash) } else { (NONE, fold(NONE)) };
        }
        hash = mix(hash, *byte);
    }
    (NONE, fold(NONE))
}

/// Returns a hash that is quick for short names. Peers can make names collide, but at most [`MOST_TYPES`] of them.
fn fold(name: &[u8]) -> u64 {
    name.iter().fold(0, |hash, byte| mix(hash, *byte))
}

fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_of(key: &[u8]) -> &[u8] {
        name_of(key).0
    }

    #[test]
    fn type_is_the_part_before_the_first_colon() {
        for (key, name) in [
            (&b"ArticleView:a:b"[..], &b"ArticleView"[..]),
            (b"\xff\r:", b"\xff\r"),
            (b"k", NONE),
            (b":k", NONE),
            (b"-:k", NONE),
            (b"other:k", OTHER),
        ] {
            assert_eq!(type_of(key), name);
            assert_eq!(name_of(key).1, fold(name));
        }
        let longest = [b'x'; TYPE_BYTES];
        assert_eq!(type_of(&[&longest[..], b":k"].concat()), longest);
        assert_eq!(type_of(&[&longest[..], b"x:k"].concat()), NONE);
    }

    #[test]
    fn later_types_are_others() {
        let mut types = Types::default();
        let first = types.of(b"first:k");
        let ids: Vec<TypeId> = (0..1_000).map(|n| types.of(format!("type{n}:k").as_bytes())).collect();
        assert!(ids[..MOST_TYPES - 1].iter().all(|id| types[*id].name != OTHER));
        assert!(ids[MOST_TYPES - 1..].iter().all(|id| types[*id].name == OTHER));
        assert_eq!(types.of(b"first:other"), first);
        assert_eq!(types.of(b"type7:k"), ids[7]);
        assert_eq!(types.iter().count(), 0, "nothing happened to any");
        let mut next = Types::default();
        types[first].full = 3.into();
        next.restore(types.save());
        assert_eq!((next[first].full, next.of(b"type999:x")), (3.into(), ids[999]));
    }
}
