//! Queries for operators: the busiest counters, and their holders. They change nothing, and examine a limited part of
//! the tables.

use super::{CounterId, CounterRecord, CountersState};
use poolcounter_core::{ConnId, Id, Metered as _};
use std::cmp::Reverse;

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
        let mut found: Vec<LevelOf<'_>> =
            (0..self.slots.min(SLOTS_LOOKED_AT)).filter_map(|slot| self.level(slot)).filter(include).collect();
        if found.len() > most {
            found.select_nth_unstable_by(most, |one, other| key(one).cmp(&key(other)).then(one.name.cmp(other.name)));
            found.truncate(most);
        }
        found.sort_unstable_by(|one, other| key(one).cmp(&key(other)).then(one.name.cmp(other.name)));
        found
    }

    /// Returns the counter of this name.
    pub fn level_of(&self, name: &[u8]) -> Option<LevelOf<'_>> {
        self.level(self.named(name)?.index())
    }

    /// Returns the name of the counter with this prefix that has most units, of the first `SLOTS_LOOKED_AT` slots.
    pub fn name_beginning(&self, beginning: &[u8]) -> Option<&[u8]> {
        let largest = self.largest(1, |level| level.name.starts_with(beginning), |level| Reverse(level.units));
        largest.first().map(|level| level.name)
    }

    /// Returns the connections with holdings, at most the first `CLIENTS_LOOKED_AT`.
    pub fn holders(&self) -> impl Iterator<Item = ConnId> {
        let clients = self.clients.iter().filter(|(_, held)| !held.is_empty());
        clients.map(|(conn, _)| conn).take(CLIENTS_LOOKED_AT)
    }

    /// Returns the examined connections that hold units of a counter, with the number of units.
    pub fn holders_of(&self, name: &[u8]) -> impl Iterator<Item = (ConnId, u32)> {
        let id = self.named(name);
        let units = move |conn: ConnId| id.map_or(0, |id| self.held(conn, id));
        self.holders().map(move |conn| (conn, units(conn))).filter(|(_, units)| *units > 0)
    }

    /// Returns the counters of which a connection holds units, and their number.
    pub fn holdings_of(&self, conn: ConnId) -> impl Iterator<Item = (&[u8], u32)> {
        let held = self.clients.get(conn).iter().metered();
        held.map(|(id, units)| (self.counters[id.index()].name(), units))
    }

    fn level(&self, slot: usize) -> Option<LevelOf<'_>> {
        let CounterRecord { name, consumption, peak } = self.record(slot)?;
        let maximum = Some(*self.maxima.get(CounterId::from_index(slot))).filter(|maximum| *maximum > 0);
        Some(LevelOf { name, units: consumption, peak, maximum })
    }
}
