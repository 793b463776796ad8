//! Queries for operators: the busiest counters, and their holders. They change nothing, and examine a limited part of
//! the tables.

use super::{CounterRecord, CountersState};
use poolcounter_core::id::{ConnId, Id};

/// Most slots, and most connections, that are examined for a page, whose answer is made in one piece.
pub const SLOTS_LOOKED_AT: usize = 32_768;
pub const CLIENTS_LOOKED_AT: usize = 4_096;

/// A counter as operators see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LevelOf<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Number of held units.
    pub units: u32,
    /// Most units that were held at a time in this interval.
    pub peak: u32,
    /// Maximum that the last request named; None without one since the last upgrade.
    pub maximum: Option<u32>,
}

impl CountersState {
    /// Returns the first `most` counters for which the filter is true, in the order of their keys, of the first
    /// `SLOTS_LOOKED_AT` slots.
    pub fn largest<K: Ord>(
        &self,
        most: usize,
        include: impl Fn(&LevelOf<'_>) -> bool,
        key: impl Fn(&LevelOf<'_>) -> K,
    ) -> Vec<LevelOf<'_>> {
        let level = |slot: usize| {
            let CounterRecord { name, consumption, peak } = self.record(slot)?;
            let maximum = self.maxima.get(slot).copied().filter(|maximum| *maximum > 0);
            Some(LevelOf { name, units: consumption, peak, maximum })
        };
        let mut found: Vec<LevelOf<'_>> =
            (0..self.slots.min(SLOTS_LOOKED_AT)).filter_map(level).filter(|level| include(level)).collect();
        if found.len() > most {
            found.select_nth_unstable_by(most, |one, other| key(one).cmp(&key(other)).then(one.name.cmp(other.name)));
            found.truncate(most);
        }
        found.sort_unstable_by(|one, other| key(one).cmp(&key(other)).then(one.name.cmp(other.name)));
        found
    }

    /// Returns the connections with holdings, at most the first `CLIENTS_LOOKED_AT`, with the name and the units of
    /// each counter.
    pub fn holders(&self) -> impl Iterator<Item = (ConnId, impl Iterator<Item = (&[u8], u32)>)> {
        let clients = self.clients.iter().enumerate().filter(|(_, held)| !held.is_empty()).take(CLIENTS_LOOKED_AT);
        clients.map(|(index, held)| {
            let held = held.iter().map(|(id, units)| (self.counters[id.index()].name(), units));
            (ConnId::from_index(index), held)
        })
    }
}
