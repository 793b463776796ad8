//! Holdings of one connection. Most are of a few counters, and take no memory beyond this value.
//!
//! Holdings are released in the order of the table, so that a replay does the same. More than a few are in a tree,
//! which shrinks as they are released: a connection that has released much needs no more memory than before.

use super::CounterId;
use poolcounter_core::Id;
use std::collections::BTreeMap;

/// Most holdings without a tree: as many as fit into the room of one.
const FEW: usize = 3;

/// Held units, by counter.
pub(super) enum Holdings {
    /// Units of a few counters. An entry without units is free.
    Few([(CounterId, u32); FEW]),
    /// Units of more counters; or of fewer, once there were more.
    Many(BTreeMap<CounterId, u32>),
}

impl Default for Holdings {
    fn default() -> Self {
        Holdings::Few([(CounterId::from_index(0), 0); FEW])
    }
}

impl Holdings {
    /// Returns the held units of a counter.
    pub fn of(&self, counter: CounterId) -> u32 {
        match self {
            // A free entry may name the counter, too; it adds no units.
            Holdings::Few(entries) => entries.iter().filter(|(own, _)| *own == counter).map(|(_, held)| *held).sum(),
            Holdings::Many(holdings) => holdings.get(&counter).copied().unwrap_or(0),
        }
    }

    /// Sets the held units of a counter. Returns true if some were held before.
    pub fn set(&mut self, counter: CounterId, resources: u32) -> bool {
        match self {
            Holdings::Few(entries) => {
                if let Some((_, held)) = entries.iter_mut().find(|(own, held)| *own == counter && *held > 0) {
                    *held = resources;
                    return true;
                }
                if resources == 0 {
                    return false;
                }
                match entries.iter_mut().find(|(_, held)| *held == 0) {
                    Some(free) => *free = (counter, resources),
                    None => *self = Holdings::Many(entries.iter().copied().chain([(counter, resources)]).collect()),
                }
                false
            }
            Holdings::Many(holdings) if resources == 0 => holdings.remove(&counter).is_some(),
            Holdings::Many(holdings) => holdings.insert(counter, resources).is_some(),
        }
    }

    /// Returns true if no units are held.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Removes and returns the first counter, with its held units.
    pub fn pop(&mut self) -> Option<(CounterId, u32)> {
        match self {
            Holdings::Few(entries) => {
                let (counter, held) = entries.iter_mut().filter(|(_, held)| *held > 0).min_by_key(|(own, _)| *own)?;
                Some((*counter, std::mem::take(held)))
            }
            Holdings::Many(holdings) => holdings.pop_first(),
        }
    }

    /// Returns the number of counters with held units.
    pub fn len(&self) -> usize {
        match self {
            Holdings::Few(entries) => entries.iter().filter(|(_, held)| *held > 0).count(),
            Holdings::Many(holdings) => holdings.len(),
        }
    }

    /// Returns every counter with held units and their number, in order.
    pub fn iter(&self) -> impl Iterator<Item = (CounterId, u32)> {
        let (few, many) = match self {
            Holdings::Few(entries) => {
                let mut entries = *entries;
                entries.sort_unstable();
                (Some(entries), None)
            }
            Holdings::Many(holdings) => (None, Some(holdings)),
        };
        let few = few.into_iter().flatten().filter(|(_, held)| *held > 0);
        few.chain(many.into_iter().flatten().map(|(counter, held)| (*counter, *held)))
    }
}

/// Makes holdings of a list in the order of the counters, which takes much less time than adding one after the other.
impl From<Vec<(CounterId, u32)>> for Holdings {
    fn from(list: Vec<(CounterId, u32)>) -> Self {
        if list.len() > FEW {
            return Holdings::Many(list.into_iter().collect());
        }
        let mut few = [(CounterId::from_index(0), 0); FEW];
        few[..list.len()].copy_from_slice(&list);
        Holdings::Few(few)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any number of holdings behaves like a plain map.
    #[test]
    fn behaves_like_a_map() {
        let mut holdings = Holdings::default();
        let mut model = BTreeMap::new();
        let mut seed = 3_u64;
        for round in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let counter = CounterId::from_index((seed >> 33) as usize % 6);
            match (seed >> 60) as u32 {
                0..=8 => assert_eq!(holdings.set(counter, 0), model.remove(&counter).is_some()),
                resources @ 9..=13 => {
                    assert_eq!(holdings.set(counter, resources), model.insert(counter, resources).is_some());
                }
                _ => assert_eq!(holdings.pop(), model.pop_first()),
            }
            assert_eq!(holdings.of(counter), model.get(&counter).copied().unwrap_or(0));
            assert_eq!(holdings.iter().collect::<BTreeMap<_, _>>(), model);
            assert_eq!(holdings.iter().count(), model.len());
            if round % 100 == 0 {
                (holdings, model) = (Holdings::default(), BTreeMap::new());
            }
        }
    }
}
