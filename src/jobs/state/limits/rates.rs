//! Rates: numbers of starts in a period, which close gates beside the limits of reserved jobs. Starts are kept by the name
//! of their tube, group or pattern, so that they count even when that is gone for a while.

use poolcounter_core::{Span, Time, TimerId};
use poolcounter_protocol::jobs::values::Limit;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most starts in a period that are kept one by one. Of more, those within a 64th of the period are kept together, and
/// count until the last of them is over.
const EXACT: u32 = 64;
/// Bytes of a log beside its name, and of an entry of one.
const LOG_BYTES: usize = 200;
const ENTRY_BYTES: usize = size_of::<Starts>();

/// First bytes of the names of logs.
pub(in crate::state) const OF_TUBE: u8 = b't';
pub(in crate::state) const OF_PATTERN: u8 = b'p';
pub(in crate::state) const OF_GROUP: u8 = b'g';

/// Rate of a tube or of a gate.
pub(in crate::state) struct Rate {
    pub log: Box<[u8]>,
    pub limit: Limit,
    /// True while as many jobs have started as may.
    pub is_full: bool,
}

/// Starts that count until the same time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Starts {
    first: Time,
    end: Time,
    count: u32,
}

#[derive(Default)]
struct Log {
    starts: VecDeque<Starts>,
    sum: u64,
}

/// The starts that count.
#[derive(Default)]
pub(in crate::state) struct Rates {
    logs: BTreeMap<Box<[u8]>, Log>,
    /// Logs by the end of their first starts, or an earlier time.
    ends: BTreeSet<(Time, Box<[u8]>)>,
    entries: usize,
    pub timer: Option<TimerId>,
}

impl Rate {
    /// Notes the number of starts that count.
    pub fn note(&mut self, sum: u64) {
        self.is_full = sum >= u64::from(self.limit.most);
    }
}

impl Log {
    /// Returns the time at which less than this number of starts count.
    fn opens(&self, most: u32) -> Option<Time> {
        let mut left = self.sum;
        self.starts
            .iter()
            .take_while(|starts| {
                let is_full = left >= u64::from(most);
                left -= u64::from(starts.count);
                is_full
            })
            .last()
            .map(|starts| starts.end)
    }
}

impl Rates {
    /// Returns the name of a log.
    pub fn log_of(kind: u8, name: &[u8]) -> Box<[u8]> {
        [&[kind], name].concat().into()
    }

    /// Returns the rate of this log; None for any number.
    pub fn rate(&self, kind: u8, name: &[u8], limit: Limit) -> Option<Box<Rate>> {
        let log = Rates::log_of(kind, name);
        let is_full = self.sum(&log) >= u64::from(limit.most);
        (limit.most > 0 && limit.per.is_some()).then(|| Box::new(Rate { log, limit, is_full }))
    }

    /// Returns the number of starts that count.
    pub fn sum(&self, log: &[u8]) -> u64 {
        self.logs.get(log).map_or(0, |log| log.sum)
    }

    /// Forgets the starts of a log.
    pub fn forget(&mut self, name: &[u8]) {
        if let Some(log) = self.logs.remove(name) {
            self.entries -= log.starts.len();
        }
    }

    /// Returns the time until a rate allows the next start; None if it does now.
    pub fn left(&self, rate: &Rate, now: Time) -> Option<Span> {
        let log = self.logs.get(&rate.log).filter(|_| rate.is_full)?;
        Some(log.opens(rate.limit.most)?.since(now))
    }

    /// Counts a start.
    pub fn start(&mut self, rate: &mut Rate, now: Time) {
        let Limit { most, per, .. } = rate.limit;
        let per = Span::from_secs(u64::from(per.unwrap_or_default()));
        if !self.logs.contains_key(&rate.log) {
            self.ends.insert((now + per, rate.log.clone()));
            self.logs.insert(rate.log.clone(), Log::default());
        }
        let log = self.logs.get_mut(&rate.log).expect("it is there, or was added");
        log.sum += 1;
        let fine = Span::from_micros(per.as_micros() / u64::from(EXACT));
        match log.starts.back_mut().filter(|last| most > EXACT && last.first + fine > now) {
            Some(last) => (last.end, last.count) = (now + per, last.count.saturating_add(1)),
            None => {
                log.starts.push_back(Starts { first: now, end: now + per, count: 1 });
                self.entries += 1;
            }
        }
        rate.note(log.sum);
    }

    /// Drops what is over of the log with the first end, and returns its name and the number of starts that count.
    pub fn end_first(&mut self, now: Time) -> Option<(Box<[u8]>, u64)> {
        let (_, name) = self.ends.first().filter(|(end, _)| *end <= now)?.clone();
        self.ends.pop_first();
        let Some(log) = self.logs.get_mut(&name) else { return Some((name, 0)) };
        while let Some(starts) = log.starts.front().filter(|starts| starts.end <= now).copied() {
            log.sum -= u64::from(starts.count);
            log.starts.pop_front();
            self.entries -= 1;
        }
        let (sum, next) = (log.sum, log.starts.front().map(|starts| starts.end));
        match next {
            Some(end) => _ = self.ends.insert((end, name.clone())),
            None => _ = self.logs.remove(&name),
        }
        Some((name, sum))
    }

    /// Returns the time of the first end, or an earlier one.
    pub fn first_end(&self) -> Option<Time> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Restores the starts of a log, as [`Rates::saved`] has returned them.
    pub fn restore(&mut self, name: &[u8], starts: Vec<Starts>) {
        self.forget(name);
        let Some(first) = starts.first() else { return };
        self.ends.insert((first.end, name.into()));
        self.entries += starts.len();
        let sum = starts.iter().map(|starts| u64::from(starts.count)).sum();
        self.logs.insert(name.into(), Log { starts: starts.into(), sum });
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        let Rates { logs, ends, entries, timer, .. } = self;
        assert_eq!(*entries, logs.values().map(|log| log.starts.len()).sum::<usize>(), "entries are counted");
        assert!(timer.is_some() || ends.is_empty(), "logs have a timer");
        for (name, log) in logs {
            let first = log.starts.front().expect("a log has starts");
            assert!(ends.iter().any(|(end, other)| other == name && *end <= first.end), "a log ends");
            assert_eq!(log.sum, log.starts.iter().map(|starts| u64::from(starts.count)).sum::<u64>());
        }
    }

    /// Returns the bytes of logs.
    pub fn bytes(&self) -> usize {
        self.entries * ENTRY_BYTES + self.logs.len() * LOG_BYTES
    }

    /// Returns the starts that count, for a handover, by the name of their log.
    pub fn saved(&self) -> impl Iterator<Item = (&[u8], Vec<Starts>)> {
        self.logs.iter().map(|(name, log)| (&**name, log.starts.iter().copied().collect()))
    }
}
