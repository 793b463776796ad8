//! Statistics by type of work, which is the part of a key before its first `:`. This module knows types and counters
//! only.

use poolcounter_core::id::{id, index_by};
use poolcounter_core::{Count, Histogram, Id, Names};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use serde::{Deserialize, Serialize};

/// Most types that are counted apart. Later types count under [`OTHER`].
pub const MOST_TYPES: usize = 256;
/// Longest name of a type in bytes. A key without a colon within one byte more has no type.
pub const TYPE_BYTES: usize = 64;
/// Type of all keys whose types came after the table was full.
pub const OTHER: &[u8] = b"other";
/// Statistic that is a sum over the types, and its value for one.
type Sum = (Stat, fn(&WorkType) -> u64);
/// Statistics that are sums over the types: a request counts them once.
pub const SUMS: [Sum; 6] = [
    (Stat::TotalAcquired, |one| one.acquired.get()),
    (Stat::ProcessedCount, |one| one.holds.count()),
    (Stat::ProcessingTime, |one| one.holds.sum()),
    (Stat::LostLocks, |one| one.lost.get()),
    (Stat::ExpiredHolds, |one| one.expired.get()),
    (Stat::GivenUpWaits, |one| one.given_up.get()),
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
    names: Names<TypeId>,
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
        let mut types = Types { names: Names::default(), types: Vec::new(), last: TypeId(0) };
        types.add(OTHER);
        types
    }
}

impl Types {
    /// Returns the type of a key, and adds it if it is new.
    pub fn of(&mut self, key: &[u8]) -> TypeId {
        let is_last = key.strip_prefix(&self[self.last].name[..]).is_some_and(|rest| rest.first() == Some(&b':'));
        if !is_last {
            let name = name_of(key);
            self.last = self.find(name).unwrap_or_else(|| self.add(name));
        }
        self.last
    }

    /// Returns the type with this name, or else [`OTHER`].
    pub fn named(&self, name: &[u8]) -> TypeId {
        self.find(name).unwrap_or(TypeId(0))
    }

    /// Returns every type with any count, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &WorkType> {
        self.types.iter().filter(|one| one.is_used())
    }

    /// Returns the sum over all types for one of [`SUMS`]; zero for another statistic.
    pub fn total(&self, stat: Stat) -> u64 {
        let Some((_, of_one)) = SUMS.iter().find(|(sum, _)| *sum == stat) else { return 0 };
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
            let id = self.find(&one.name).unwrap_or_else(|| self.add(&one.name));
            self[id] = one;
        }
    }

    fn find(&self, name: &[u8]) -> Option<TypeId> {
        self.names.find(self.names.hash(name), |id| self[id].name == name)
    }

    fn add(&mut self, name: &[u8]) -> TypeId {
        if self.types.len() > MOST_TYPES {
            return TypeId(0);
        }
        let id = TypeId::from_index(self.types.len());
        // The numbers of holders and waiters are computed from these and the histograms, which begin at zero, too.
        let [acquired, queued] = [Count::ZERO; 2];
        self.types.push(WorkType { name: name.into(), acquired, queued, ..WorkType::default() });
        let hashing = self.names.hashing();
        self.names.insert(hashing.hash(name), id, |id| hashing.hash(&self.types[id.index()].name));
        id
    }
}

index_by! { TypeId => Types.types: WorkType }

/// Returns the name of a key's type.
fn name_of(key: &[u8]) -> &[u8] {
    match key.iter().take(TYPE_BYTES + 1).position(|byte| *byte == b':') {
        Some(end @ 1..) => &key[..end],
        _ => NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(name_of(key), name);
        }
        let longest = [b'x'; TYPE_BYTES];
        assert_eq!(name_of(&[&longest[..], b":k"].concat()), longest);
        assert_eq!(name_of(&[&longest[..], b"x:k"].concat()), NONE);
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
