//! What one connection holds. Most hold units of a single counter, which takes no memory beyond this value.

use super::CounterId;
use crate::id::Id;
use crate::names::{Hash, Hashing};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Units held, by counter.
pub(super) enum Holdings {
    /// Of one counter, or of none when there are no units.
    One(Holding),
    /// Of several; or fewer, once there were several.
    Many(HashTable<Holding>),
}

/// Units of one counter.
#[derive(Clone, Copy)]
pub(super) struct Holding {
    counter: CounterId,
    resources: u32,
}

impl Default for Holdings {
    fn default() -> Self {
        Holdings::One(Holding { counter: CounterId::from_index(0), resources: 0 })
    }
}

impl Holdings {
    /// How much is held of a counter.
    pub fn of(&self, counter: CounterId, hashing: &Hashing) -> u32 {
        let holding = match self {
            Holdings::One(holding) => Some(holding).filter(|holding| holding.counter == counter),
            Holdings::Many(table) => table.find(hash(counter, hashing), |holding| holding.counter == counter),
        };
        holding.map_or(0, |holding| holding.resources)
    }

    /// Sets how much is held of a counter, and tells whether something was held before.
    pub fn set(&mut self, counter: CounterId, resources: u32, hashing: &Hashing) -> bool {
        let holding = Holding { counter, resources };
        match self {
            Holdings::One(held) if held.counter == counter || held.resources == 0 => {
                std::mem::replace(held, holding).resources > 0
            }
            Holdings::One(_) if resources == 0 => false,
            Holdings::One(held) => {
                let mut table = HashTable::new();
                set_in(&mut table, *held, hashing);
                set_in(&mut table, holding, hashing);
                *self = Holdings::Many(table);
                false
            }
            Holdings::Many(table) => set_in(table, holding, hashing),
        }
    }

    /// Every counter of which something is held, with how much.
    pub fn iter(&self) -> impl Iterator<Item = (CounterId, u32)> {
        let (one, many) = match self {
            Holdings::One(holding) => (Some(holding).filter(|holding| holding.resources > 0), None),
            Holdings::Many(table) => (None, Some(table)),
        };
        let holdings = one.into_iter().chain(many.into_iter().flatten());
        holdings.map(|holding| (holding.counter, holding.resources))
    }
}

fn set_in(table: &mut HashTable<Holding>, holding: Holding, hashing: &Hashing) -> bool {
    let Holding { counter, resources } = holding;
    let entry = table.entry(hash(counter, hashing), |held| held.counter == counter, |held| hash(held.counter, hashing));
    match entry {
        Entry::Occupied(held) if resources == 0 => {
            held.remove();
            true
        }
        Entry::Occupied(mut held) => {
            *held.get_mut() = holding;
            true
        }
        Entry::Vacant(_) if resources == 0 => false,
        Entry::Vacant(place) => {
            place.insert(holding);
            false
        }
    }
}

/// Counters are numbered as they come, so a client could choose numbers that collide, if their hash were not a secret.
fn hash(counter: CounterId, hashing: &Hashing) -> u64 {
    let Hash(hash) = hashing.hash(&counter.index().to_ne_bytes());
    hash
}
