//! What one connection holds. Most hold units of a single counter, which takes no memory beyond this value.
//!
//! Several stand in the order of the table, so that what closes gives back in the same order whenever the same is played; and
//! in a tree, whose memory goes as they do: a connection that has given much back costs no more than one that never held it.

use super::CounterId;
use crate::id::Id;
use std::collections::BTreeMap;

/// Units held, by counter.
pub(super) enum Holdings {
    /// Of one counter, or of none when there are no units.
    One(CounterId, u32),
    /// Of several; or fewer, once there were several.
    Many(BTreeMap<CounterId, u32>),
}

impl Default for Holdings {
    fn default() -> Self {
        Holdings::One(CounterId::from_index(0), 0)
    }
}

impl Holdings {
    /// How much is held of a counter.
    pub fn of(&self, counter: CounterId) -> u32 {
        match self {
            Holdings::One(own, resources) if *own == counter => *resources,
            Holdings::One(..) => 0,
            Holdings::Many(holdings) => holdings.get(&counter).copied().unwrap_or(0),
        }
    }

    /// Sets how much is held of a counter, and tells whether something was held before.
    pub fn set(&mut self, counter: CounterId, resources: u32) -> bool {
        match self {
            Holdings::One(own, held) if *own == counter || *held == 0 => {
                *own = counter;
                std::mem::replace(held, resources) > 0
            }
            Holdings::One(..) if resources == 0 => false,
            Holdings::One(own, held) => {
                *self = Holdings::Many(BTreeMap::from([(*own, *held), (counter, resources)]));
                false
            }
            Holdings::Many(holdings) if resources == 0 => holdings.remove(&counter).is_some(),
            Holdings::Many(holdings) => holdings.insert(counter, resources).is_some(),
        }
    }

    /// Takes one counter out, with how much was held of it.
    pub fn pop(&mut self) -> Option<(CounterId, u32)> {
        match self {
            Holdings::One(own, held) => Some((*own, std::mem::take(held))).filter(|(_, resources)| *resources > 0),
            Holdings::Many(holdings) => holdings.pop_first(),
        }
    }

    /// Every counter of which something is held, with how much.
    pub fn iter(&self) -> impl Iterator<Item = (CounterId, u32)> {
        let (one, many) = match self {
            Holdings::One(counter, resources) => (Some((*counter, *resources)), None),
            Holdings::Many(holdings) => (None, Some(holdings)),
        };
        let one = one.into_iter().filter(|(_, resources)| *resources > 0);
        one.chain(many.into_iter().flatten().map(|(counter, resources)| (*counter, *resources)))
    }
}
