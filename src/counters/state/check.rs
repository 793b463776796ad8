//! The proof that the tables of the counters agree with each other. It changes nothing.

use super::{CounterId, Holdings, State};
use crate::id::Id;

impl State {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        let mut held = vec![0; self.slots];
        let mut holdings = 0;
        for (counter, resources) in self.clients.iter().flat_map(Holdings::iter) {
            assert!(resources > 0, "what is held is something");
            held[counter.index()] += u64::from(resources);
            holdings += 1;
        }
        assert_eq!(self.holdings, holdings, "the count of holdings");
        let mut name_bytes = 0;
        for (index, counter) in &self.counters {
            assert_eq!(u64::from(counter.consumption), held[index], "what is consumed is what all hold together");
            let found =
                self.names.find(self.names.hash(&counter.name), |id| self.counters[id.index()].name == counter.name);
            assert_eq!(found, Some(CounterId::from_index(index)), "a counter is found by its name");
            assert!(
                counter.used_in <= self.interval && counter.peak_in <= self.interval,
                "nothing is used in the future"
            );
            assert!(counter.peak >= counter.consumption, "the peak is the highest");
            name_bytes += counter.name.len() as u64;
        }
        assert_eq!(self.names.len(), self.counters.len(), "each counter has one name");
        assert_eq!(self.name_bytes, name_bytes, "the count of the names' bytes");
        assert!(self.sweep.is_none() || !self.counters.is_empty(), "a sweep ends when there is nothing left");
        assert_eq!(self.timer.is_some(), !self.counters.is_empty(), "the timer is armed while there are counters");
    }
}
