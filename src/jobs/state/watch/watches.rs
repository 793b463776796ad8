//! Watches of a connection: found by their patterns, and listed in the order in which they came.

use crate::state::sets::Watch;
use poolcounter_core::Metered as _;
use poolcounter_protocol::jobs::name::TubeName;

/// Watches of different patterns.
#[derive(Default)]
pub(in crate::state) struct Watches {
    /// By pattern.
    pub sorted: Vec<Watch>,
    /// Serial number of each.
    ages: Vec<u64>,
    last_age: u64,
    pub bytes: usize,
}

impl Watches {
    /// Returns these watches. Of several with the same pattern, the last one applies.
    pub fn new(all: Vec<Watch>) -> Watches {
        let mut watches = Watches::default();
        all.into_iter().for_each(|watch| watches.set(watch));
        watches
    }

    /// Returns the watches of a new connection.
    pub fn of_default() -> Watches {
        let pattern = TubeName::DEFAULT.bytes().into();
        Watches::new(vec![Watch { pattern, weight: 1, is_weighted: false }])
    }

    /// Returns the watch of exactly this pattern.
    pub fn of(&self, pattern: &[u8]) -> Option<&Watch> {
        self.place_of(pattern).ok().map(|place| &self.sorted[place])
    }

    /// Adds a watch, or replaces the one of this pattern.
    pub fn set(&mut self, watch: Watch) {
        match self.place_of(&watch.pattern) {
            Ok(place) => self.sorted[place] = watch,
            Err(place) => {
                self.last_age += 1;
                self.bytes += watch.bytes();
                self.sorted.insert(place, watch);
                self.ages.insert(place, self.last_age);
            }
        }
    }

    /// Removes the watch of this pattern. Returns false if there is none.
    pub fn remove(&mut self, pattern: &[u8]) -> bool {
        let Ok(place) = self.place_of(pattern) else { return false };
        self.bytes -= self.sorted.remove(place).bytes();
        self.ages.remove(place);
        true
    }

    /// Removes and returns a watch.
    pub fn pop(&mut self) -> Option<Watch> {
        let watch = self.sorted.pop()?;
        self.ages.pop();
        self.bytes -= watch.bytes();
        Some(watch)
    }

    /// Returns the watches in the order in which they came.
    pub fn in_order(&self) -> impl Iterator<Item = &Watch> {
        let mut places: Vec<usize> = (0..self.sorted.len()).metered().collect();
        places.sort_unstable_by_key(|place| self.ages[*place]);
        places.into_iter().map(|place| &self.sorted[place])
    }

    fn place_of(&self, pattern: &[u8]) -> Result<usize, usize> {
        self.sorted.binary_search_by(|watch| (*watch.pattern).cmp(pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_listed_in_the_order_of_their_commands() {
        let watch = |pattern: &str, weight| Watch { pattern: pattern.as_bytes().into(), weight, is_weighted: false };
        let mut watches = Watches::new(vec![watch("m", 1), watch("z", 1)]);
        [watch("a", 1), watch("z", 2), watch("b", 1)].into_iter().for_each(|watch| watches.set(watch));
        assert!(watches.remove(b"m") && !watches.remove(b"m"));
        watches.set(watch("m", 3));
        let names: Vec<&[u8]> = watches.in_order().map(|watch| &*watch.pattern).collect();
        assert_eq!(names, [b"z", b"a", b"b", b"m"]);
        assert!(watches.sorted.is_sorted() && watches.sorted.len() == 4);
        assert_eq!(watches.of(b"z").map(|watch| watch.weight), Some(2));
    }
}
