//! One counter: its name, and the number of its held units. It is 32 bytes long, including a short name.

/// Longest name that needs no memory of its own: with it, a counter is as long as with a pointer.
const SHORT_BYTES: usize = 18;

pub(super) enum Counter {
    /// With a short name.
    Short { levels: Levels, len: u8, name: [u8; SHORT_BYTES] },
    /// With a long name.
    Long { levels: Levels, name: Box<[u8]> },
}

/// Present and highest consumption of a counter.
pub(super) struct Levels {
    consumption: u32,
    /// Highest consumption in the interval of the last change.
    peak: u32,
    last_change: Stamp,
}

/// Number of an interval, and a bit that is set if a request has succeeded in it; the end of a connection changes a
/// counter, too.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp(u32);

impl Counter {
    /// Returns a counter that is created in this interval.
    pub fn new(name: &[u8], interval: u32) -> Counter {
        let levels = Levels { consumption: 0, peak: 0, last_change: Stamp::new(interval, true) };
        Counter::with(name, levels)
    }

    /// Returns a counter from a handover, without held units: with its peak, if it changed in this interval, and with
    /// `is_used` if a request has succeeded in it.
    pub fn restored(name: &[u8], peak: Option<u32>, is_used: bool, interval: u32) -> Counter {
        let last_change = match peak {
            Some(_) => Stamp::new(interval, is_used),
            None => Stamp::new(interval.saturating_sub(1), false),
        };
        Counter::with(name, Levels { consumption: 0, peak: peak.unwrap_or(0), last_change })
    }

    fn with(name: &[u8], levels: Levels) -> Counter {
        if name.len() > SHORT_BYTES {
            return Counter::Long { levels, name: name.into() };
        }
        let mut short = [0; SHORT_BYTES];
        short[..name.len()].copy_from_slice(name);
        Counter::Short { levels, len: name.len() as u8, name: short }
    }

    pub fn name(&self) -> &[u8] {
        match self {
            Counter::Short { len, name, .. } => &name[..usize::from(*len)],
            Counter::Long { name, .. } => name,
        }
    }

    pub fn levels(&self) -> &Levels {
        match self {
            Counter::Short { levels, .. } | Counter::Long { levels, .. } => levels,
        }
    }

    pub fn levels_mut(&mut self) -> &mut Levels {
        match self {
            Counter::Short { levels, .. } | Counter::Long { levels, .. } => levels,
        }
    }
}

impl Levels {
    /// Returns the number of held units.
    pub fn consumption(&self) -> u32 {
        self.consumption
    }

    /// Returns the most units that were held at a time in this interval.
    pub fn peak(&self, interval: u32) -> u32 {
        if self.has_changed(interval) { self.peak } else { self.consumption }
    }

    /// Returns true if the consumption has changed in this interval.
    pub fn has_changed(&self, interval: u32) -> bool {
        self.last_change.interval() == interval
    }

    /// Returns true if a request has succeeded in this interval.
    pub fn is_used(&self, interval: u32) -> bool {
        self.last_change == Stamp::new(interval, true)
    }

    /// Returns true if no units are held, and no request has succeeded in this interval.
    pub fn is_expired(&self, interval: u32) -> bool {
        self.consumption == 0 && !self.is_used(interval)
    }

    /// Sets the consumption after a request that succeeds.
    pub fn change_by_request(&mut self, consumption: u32, interval: u32) {
        self.change(consumption, interval);
        self.last_change = Stamp::new(interval, true);
    }

    /// Sets the consumption after the end of a connection.
    pub fn change(&mut self, consumption: u32, interval: u32) {
        if !self.has_changed(interval) {
            self.last_change = Stamp::new(interval, false);
            self.peak = self.consumption;
        }
        self.consumption = consumption;
        self.peak = self.peak.max(consumption);
    }

    /// Sets the consumption from a handover, without the time of the change.
    pub fn restore(&mut self, consumption: u32) {
        self.consumption = consumption;
        self.peak = self.peak.max(consumption);
    }

    /// Compares the numbers with each other.
    pub fn check(&self, interval: u32) {
        assert!(self.last_change.interval() <= interval, "the last change is not in the future");
        assert!(self.peak >= self.consumption, "the peak is no less than the consumption");
    }
}

impl Stamp {
    /// Returns the stamp. Numbers of intervals have a bit to spare.
    fn new(interval: u32, is_used: bool) -> Stamp {
        Stamp(interval << 1 | u32::from(is_used))
    }

    fn interval(self) -> u32 {
        self.0 >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_take_32_table_bytes() {
        for len in (0..=40).chain([255, 256, 65_535]) {
            let name: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let counter = Counter::new(&name, 7);
            assert_eq!(counter.name(), name);
            assert_eq!(matches!(counter, Counter::Short { .. }), len <= SHORT_BYTES);
        }
        // Layout of an entry of the slab.
        enum Entry {
            _Vacant(usize),
            _Occupied(Counter),
        }
        assert_eq!(size_of::<Entry>(), 32);
    }

    #[test]
    fn end_of_a_connection_is_no_use() {
        let mut levels = Levels { consumption: 0, peak: 0, last_change: Stamp::new(0, false) };
        levels.change_by_request(5, 1);
        assert!(levels.is_used(1) && levels.has_changed(1) && !levels.is_used(2));
        levels.change(3, 1);
        assert_eq!((levels.consumption(), levels.peak(1), levels.is_used(1)), (3, 5, true));
        assert_eq!(levels.peak(2), 3);
        levels.change(0, 2);
        assert_eq!((levels.peak(2), levels.is_used(2), levels.is_expired(2)), (3, false, true));
    }
}
