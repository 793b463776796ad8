//! What one connection holds. Most hold units of a few counters, which take no memory beyond this value.
//!
//! They are released in the order of the table, so that a replay does the same. More than a few are in a tree, which shrinks as
//! they are released: a connection that has given much back needs no more memory than one that never held it.

use super::CounterId;
use poolcounter_core::id::Id;
use std::collections::BTreeMap;

/// How many are a few: as many as fit into the room of a tree.
const FEW: usize = 3;

/// Units held, by counter.
pub(super) enum Holdings {
    /// Of a few counters. An entry without units is free.
    Few([(CounterId, u32); FEW]),
    /// Of more; or of fewer, once there were more.
    Many(BTreeMap<CounterId, u32>),
}

impl Default for Holdings {
    fn default() -> Self {
        Holdings::Few([(CounterId::from_index(0), 0); FEW])
    }
}

impl Holdings {
    /// Returns how much is held of a counter.
    pub fn of(&self, counter: CounterId) -> u32 {
        match self {
            // A free entry may name the counter too, and then it is right in that it has no units.
            Holdings::Few(entries) => entries.iter().filter(|(own, _)| *own == counter).map(|(_, held)| *held).sum(),
            Holdings::Many(holdings) => holdings.get(&counter).copied().unwrap_or(0),
        }
    }

    /// Sets how much is held of a counter. Returns true when something was held before.
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

    /// Returns true when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Removes and returns the first counter, with how much was held of it.
    pub fn pop(&mut self) -> Option<(CounterId, u32)> {
        match self {
            Holdings::Few(entries) => {
                let (counter, held) = entries.iter_mut().filter(|(_, held)| *held > 0).min_by_key(|(own, _)| *own)?;
                Some((*counter, std::mem::take(held)))
            }
            Holdings::Many(holdings) => holdings.pop_first(),
        }
    }

    /// Returns of how many counters something is held.
    pub fn len(&self) -> usize {
        match self {
            Holdings::Few(entries) => entries.iter().filter(|(_, held)| *held > 0).count(),
            Holdings::Many(holdings) => holdings.len(),
        }
    }

    /// Returns, in order, every counter of which something is held, with how much.
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

/// From holdings in the order of the counters, which takes much less time than one after the other.
impl FromIterator<(CounterId, u32)> for Holdings {
    fn from_iter<I: IntoIterator<Item = (CounterId, u32)>>(holdings: I) -> Self {
        let mut rest = holdings.into_iter();
        let mut few = [(CounterId::from_index(0), 0); FEW];
        let mut len = 0;
        for (entry, holding) in few.iter_mut().zip(rest.by_ref()) {
            *entry = holding;
            len += 1;
        }
        match rest.next() {
            None => Holdings::Few(few),
            Some(next) => Holdings::Many(few.into_iter().take(len).chain([next]).chain(rest).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It does what a plain map does, however few or many there are.
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
