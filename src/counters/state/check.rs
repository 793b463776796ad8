//! Comparison of the tables of the counters with each other. It changes nothing.

use super::{CounterId, CountersState, Holdings, bytes_of};
use poolcounter_core::Id;

impl CountersState {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        if self.loading.is_some() {
            // The tables are not complete.
            return assert!(self.timer.is_none() && self.closing.is_empty(), "nothing happens while counters are read");
        }
        let mut held = vec![0; self.slots];
        let mut holdings = 0;
        let closing = self.closing.iter().flat_map(Holdings::iter);
        for (counter, resources) in self.clients.iter().flat_map(|(_, held)| held.iter()).chain(closing) {
            assert!(resources > 0, "a holding has at least one unit");
            held[counter.index()] += u64::from(resources);
            holdings += 1;
        }
        assert_eq!(self.holdings, holdings, "the holdings are counted");
        let (mut name_bytes, mut idle_bytes) = (0, 0);
        for (index, counter) in &self.counters {
            let (consumption, name) = (u64::from(counter.levels().consumption()), counter.name());
            assert_eq!(consumption, held[index], "the consumption is the sum of the holdings");
            let found = self.names.find(self.names.hash(name), |id| self.counters[id.index()].name() == name);
            assert_eq!(found, Some(CounterId::from_index(index)), "a counter is found by its name");
            counter.levels().check(self.interval);
            name_bytes += name.len() as u64;
            idle_bytes += if consumption == 0 { bytes_of(name) } else { 0 };
        }
        let idle = || self.idle.queue.iter().map(|id| self.counters[id.index()].levels());
        assert!(idle().all(|levels| levels.consumption() == 0), "an idle counter has no units in use");
        let is_sorted = idle().is_sorted_by_key(|levels| !levels.is_expired(self.interval));
        assert!(is_sorted, "expired counters are first in the idle queue");
        assert_eq!(self.idle.bytes, idle_bytes, "the memory of idle counters is counted");
        assert_eq!(self.names.len(), self.counters.len(), "each counter has one name");
        assert_eq!(self.name_bytes, name_bytes, "the bytes of the names are counted");
        assert!(self.sweep.is_none() || !self.counters.is_empty(), "a sweep has counters left");
        assert_eq!(self.timer.is_some(), !self.counters.is_empty(), "the timer is armed while there are counters");
    }
}
