//! Keys with the most events lately, of any number of keys, in memory of a fixed size. It knows neither the clock nor
//! the meaning of its keys.
//!
//! This is the Space-Saving algorithm (Metwally, Agrawal and El Abbadi, 2005). There is a fixed number of counters; a
//! key without one takes over the counter with the smallest bound, and its own events may then be any number up to that
//! bound. A key with many events keeps its counter, and the error is at most the number of all events divided by the
//! number of counters.
//!
//! All counts are halved every half hour, so that they describe about the last one: an event weighs 1, then 1/2, then
//! 1/4.

use crate::count::Count;
use crate::histogram::Histogram;
use crate::id::{Id, id};
use crate::names::{Hash, Names};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Number of keys that are counted at a time.
pub const COUNTERS: usize = 256;
/// Bytes of a key that are kept: 256 KiB for all of them. Longer keys with the same beginning count as one.
pub const KEY_BYTES: usize = 1024;
/// Time until an event weighs half as much.
pub const HALF_LIFE: Span = Span::from_secs(30 * 60);

/// Event of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyEvent {
    /// Refused request.
    Refusal,
    /// Request that began to wait.
    Wait,
}

/// One key with its counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopKey<'a> {
    /// Key, cut to [`KEY_BYTES`].
    pub key: &'a [u8],
    /// Refusals, or fewer if the key had no counter for a while.
    pub refusals: u64,
    /// Waits, or fewer if the key had no counter for a while.
    pub waits: u64,
    /// Refusals in the present window.
    pub refusing: u64,
}

id! {
    /// Index of a counter.
    KeyCounterId
}

struct KeyCounter {
    key: Vec<u8>,
    hash: Hash,
    /// Refusals since the key has had this counter.
    refusals: Count,
    /// Waits since the key has had this counter.
    waits: Count,
    /// Number of a window, and refusals in it.
    in_window: (u64, Count),
    details: KeyDetails,
}

/// Details of a key since it has had its counter. They are not handed over.
#[derive(Clone, Debug, Default)]
pub struct KeyDetails {
    /// Limits of its last request that waited or was refused, in the order of the caller.
    pub limits: [u64; 3],
    /// Lengths of its waits.
    pub waits: Histogram,
}

/// Events of the keys with the most, in a fixed number of counters.
#[derive(Default)]
pub struct TopKeys {
    names: Names<KeyCounterId>,
    counters: Vec<KeyCounter>,
    /// For each counter, the upper bound of its key's events. They lie together, as all are searched for the smallest.
    bounds: Vec<Count>,
    /// Time of the last halving, or of the first event.
    halved_at: Time,
    /// Number of the present window.
    window: u64,
}

/// Handover: of each counter its key, bound, refusals, waits, and refusals in the window; the time of the last halving.
#[derive(Serialize, Deserialize)]
pub struct SavedTopKeys(Vec<(Vec<u8>, [Count; 4])>, Time);

/// Returns the first [`KEY_BYTES`] of a key, which are counted and shown in place of the whole.
pub fn truncated(key: &[u8]) -> &[u8] {
    &key[..key.len().min(KEY_BYTES)]
}

impl TopKeys {
    /// Counts one event, in a time that does not depend on the number of events.
    pub fn count(&mut self, key: &[u8], event: KeyEvent, now: Time) {
        self.halve(now);
        let key = truncated(key);
        let hash = self.names.hash(key);
        let found = self.names.find(hash, |id| self.counters[id.index()].key == key);
        let id = found.unwrap_or_else(|| self.counter_for(hash, key));
        let counter = &mut self.counters[id.index()];
        self.bounds[id.index()].bump();
        match event {
            KeyEvent::Refusal => counter.refuse(self.window),
            KeyEvent::Wait => counter.waits.bump(),
        }
    }

    /// Returns the details of a key that is counted.
    pub fn details(&self, key: &[u8]) -> Option<&KeyDetails> {
        self.find(key).map(|id| &self.counters[id.index()].details)
    }

    /// Returns the details of a key that is counted, to be changed.
    pub fn details_mut(&mut self, key: &[u8]) -> Option<&mut KeyDetails> {
        self.find(key).map(|id| &mut self.counters[id.index()].details)
    }

    fn find(&self, key: &[u8]) -> Option<KeyCounterId> {
        let key = truncated(key);
        self.names.find(self.names.hash(key), |id| self.counters[id.index()].key == key)
    }

    /// Starts a new window for the count of refusals.
    pub fn begin_window(&mut self) {
        self.window += 1;
    }

    /// Returns the refusals of each key in the present window, in no order. The number of a key that lost its counter
    /// meanwhile is too small.
    pub fn refusals_in_window(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let counts = self.counters.iter().map(|counter| (&counter.key[..], counter.refusals_in(self.window).get()));
        counts.filter(|(_, refusals)| *refusals > 0)
    }

    /// Returns each counted key, in no order.
    pub fn top(&self, now: Time) -> impl Iterator<Item = TopKey<'_>> {
        let halvings = self.pending_halvings(now);
        let counters = self.counters.iter().map(move |counter| TopKey {
            key: &counter.key,
            refusals: counter.refusals.get() >> halvings,
            waits: counter.waits.get() >> halvings,
            refusing: counter.refusals_in(self.window).get(),
        });
        counters.filter(|top| top.refusals.max(top.waits) > 0)
    }

    /// Returns the keys that are counted, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.counters.iter().map(|counter| &counter.key[..])
    }

    /// Returns the greatest number of events of a key that are not counted, also for a key without a counter.
    pub fn error(&self, now: Time) -> u64 {
        let halvings = self.pending_halvings(now);
        let bounds = || self.bounds.iter().map(|bound| rounded_up(bound.get(), halvings));
        let unknown = |(counter, bound): (&KeyCounter, u64)| {
            let known = [counter.refusals, counter.waits].map(|count| count.get() >> halvings);
            known.into_iter().fold(bound, u64::saturating_sub)
        };
        let of_others = bounds().min().filter(|_| self.counters.len() == COUNTERS).unwrap_or(0);
        self.counters.iter().zip(bounds()).map(unknown).max().unwrap_or(0).max(of_others)
    }

    /// Returns the handover.
    pub fn save(&self) -> SavedTopKeys {
        let save = |(counter, bound): (&KeyCounter, &Count)| {
            (counter.key.clone(), [*bound, counter.refusals, counter.waits, counter.refusals_in(self.window)])
        };
        SavedTopKeys(self.counters.iter().zip(&self.bounds).map(save).collect(), self.halved_at)
    }

    /// Restores a handover. Counters beyond the limit are left out.
    pub fn restore(&mut self, SavedTopKeys(counters, halved_at): SavedTopKeys) {
        *self = TopKeys { halved_at, ..TopKeys::default() };
        for (key, [bound, refusals, waits, in_window]) in counters.into_iter().take(COUNTERS) {
            let hash = self.names.hash(&key);
            let id = self.counter_for(hash, truncated(&key));
            let counter = &mut self.counters[id.index()];
            (counter.refusals, counter.waits, counter.in_window) = (refusals, waits, (self.window, in_window));
            self.bounds[id.index()] = bound;
        }
    }

    /// Returns a counter for a key that has none: a new one, or the counter with the smallest bound.
    fn counter_for(&mut self, hash: Hash, key: &[u8]) -> KeyCounterId {
        let least = || (0..COUNTERS).min_by_key(|at| self.bounds[*at]).map(KeyCounterId::from_index);
        let least = if self.counters.len() < COUNTERS { None } else { least() };
        let id = least.unwrap_or_else(|| self.add_counter());
        let counter = &mut self.counters[id.index()];
        self.names.remove(counter.hash, id);
        counter.hash = hash;
        counter.key.clear();
        counter.key.extend_from_slice(key);
        [counter.refusals, counter.waits, counter.in_window.1] = [Count::ZERO; 3];
        counter.details = KeyDetails::default();
        self.names.insert(hash, id, |id| self.counters[id.index()].hash);
        id
    }

    fn add_counter(&mut self) -> KeyCounterId {
        let (key, hash, details) = (Vec::new(), Hash::default(), KeyDetails::default());
        let ([refusals, waits], in_window) = ([Count::ZERO; 2], (0, Count::ZERO));
        self.counters.push(KeyCounter { key, hash, refusals, waits, in_window, details });
        self.bounds.push(Count::default());
        KeyCounterId::from_index(self.counters.len() - 1)
    }

    fn halve(&mut self, now: Time) {
        let halvings = self.pending_halvings(now);
        if self.counters.is_empty() {
            self.halved_at = now;
        } else if halvings > 0 {
            self.bounds.iter_mut().for_each(|bound| *bound = rounded_up(bound.get(), halvings).into());
            for counter in &mut self.counters {
                counter.refusals = (counter.refusals.get() >> halvings).into();
                counter.waits = (counter.waits.get() >> halvings).into();
            }
            let passed = now.since(self.halved_at).as_micros() % HALF_LIFE.as_micros();
            self.halved_at = Time::from_micros(now.as_micros() - passed);
        }
    }

    /// Returns the number of halvings that are due. More than this number make no difference.
    fn pending_halvings(&self, now: Time) -> u32 {
        (now.since(self.halved_at).as_micros() / HALF_LIFE.as_micros()).min(63) as u32
    }

    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert!(self.counters.len() <= COUNTERS && self.bounds.len() == self.counters.len());
        assert_eq!(self.names.len(), self.counters.len(), "each counter has one key");
        for (index, counter) in self.counters.iter().enumerate() {
            let id = KeyCounterId::from_index(index);
            let found =
                self.names.find(self.names.hash(&counter.key), |id| self.counters[id.index()].key == counter.key);
            assert_eq!(found, Some(id), "a counter is found by its key");
            let events: Count = [counter.refusals, counter.waits].into_iter().sum();
            assert!(events <= self.bounds[index], "a bound is one");
        }
    }
}

impl KeyCounter {
    fn refuse(&mut self, window: u64) {
        self.refusals.bump();
        self.in_window = (window, self.refusals_in(window));
        self.in_window.1.bump();
    }

    fn refusals_in(&self, window: u64) -> Count {
        if self.in_window.0 == window { self.in_window.1 } else { Count::ZERO }
    }
}

/// Returns a bound after some halvings, rounded up, so that it does not fall below the events.
fn rounded_up(bound: u64, halvings: u32) -> u64 {
    let half = bound >> halvings;
    half + u64::from(half << halvings != bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count;
    use std::collections::HashMap;

    fn at(minutes: u64) -> Time {
        Time::START + Span::from_secs(60 * minutes)
    }

    fn of(top_keys: &TopKeys, key: &[u8], now: Time) -> (u64, u64) {
        top_keys.top(now).find(|top| top.key == key).map_or((0, 0), |top| (top.refusals, top.waits))
    }

    #[test]
    fn details_end_with_the_counter() {
        let mut top_keys = TopKeys::default();
        assert!(top_keys.details(b"key").is_none());
        top_keys.count(b"key", KeyEvent::Wait, at(0));
        let details = top_keys.details_mut(b"key").expect("is counted");
        details.limits = [1, 2, 3];
        details.waits.record(Span::from_secs(4));
        assert_eq!(top_keys.details(b"key").map(|of| (of.limits, of.waits.count())), Some(([1, 2, 3], 1)));
        for n in 0..COUNTERS {
            (0..2).for_each(|_| top_keys.count(format!("key{n}").as_bytes(), KeyEvent::Wait, at(0)));
        }
        assert!(top_keys.details(b"key").is_none());
        assert!(top_keys.details(b"key255").is_some_and(|of| of.limits == [0; 3] && of.waits.count() == 0));
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut top_keys = TopKeys::default();
        for n in 0..COUNTERS - 1 {
            for _ in 0..=n {
                top_keys.count(format!("key{n}").as_bytes(), KeyEvent::Refusal, at(0));
                top_keys.count(format!("key{n}").as_bytes(), KeyEvent::Wait, at(0));
                top_keys.check();
            }
        }
        assert_eq!((of(&top_keys, b"key0", at(0)), of(&top_keys, b"key254", at(0))), ((1, 1), (255, 255)));
        assert_eq!(top_keys.error(at(0)), 0);
    }

    /// A new counter begins near the end, and takes over a smaller bound.
    #[test]
    fn restore_keeps_the_order_of_the_bounds() {
        let (mut top_keys, mut restored) = (TopKeys::default(), TopKeys::default());
        for key in [&b"a"[..], b"a", b"b"] {
            top_keys.count(key, KeyEvent::Wait, at(0));
        }
        count::begin_near_the_end(true);
        restored.restore(top_keys.save());
        count::begin_near_the_end(false);
        restored.check();
        assert_eq!(restored.bounds.iter().min(), Some(&Count::from(1)));
    }

    /// The halves are exact, without rounding.
    #[test]
    fn truth_lies_within_the_error() {
        let mut top_keys = TopKeys::default();
        let mut truth: HashMap<Vec<u8>, f64> = HashMap::new();
        let mut seed = 3_u64;
        for n in 0..200_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // A few keys have most of the events; most keys have few.
            let key = ((1_u64 << (seed >> 60)) + (seed >> 33) % (1 << (seed >> 60))).to_string().into_bytes();
            let event = if seed >> 40 & 1 == 0 { KeyEvent::Refusal } else { KeyEvent::Wait };
            let now = Time::START + Span::from_millis(n * 50);
            if n % 36_000 == 0 && n > 0 {
                truth.values_mut().for_each(|count| *count /= 2.0);
            }
            top_keys.count(&key, event, now);
            *truth.entry(key).or_default() += 1.0;
            if n % 1_000 == 999 {
                top_keys.check();
                let error = top_keys.error(now) as f64;
                for (key, count) in &truth {
                    let (refusals, waits) = of(&top_keys, key, now);
                    let known = (refusals + waits) as f64;
                    assert!(known <= *count && *count <= known + error, "{known} {count} {error}");
                }
            }
        }
        let most = truth.values().copied().fold(0.0, f64::max);
        assert!(
            truth.len() > 10 * COUNTERS && top_keys.error(at(166)) as f64 * 5.0 < most,
            "the largest are told apart"
        );
    }

    #[test]
    fn old_events_count_less_and_are_forgotten() {
        let mut top_keys = TopKeys::default();
        for _ in 0..100 {
            top_keys.count(b"k", KeyEvent::Wait, at(29));
        }
        let later = [58, 59, 89, 119, 1_000_000].map(|minutes| of(&top_keys, b"k", at(minutes)).1);
        assert_eq!(later, [100, 50, 25, 12, 0]);
        top_keys.count(b"other", KeyEvent::Wait, at(90));
        assert_eq!([90, 118, 119].map(|minutes| of(&top_keys, b"k", at(minutes)).1), [25, 25, 12]);
        top_keys.check();
    }

    #[test]
    fn window_counts_anew() {
        let mut top_keys = TopKeys::default();
        let in_window = |top_keys: &TopKeys| top_keys.refusals_in_window().map(|(_, refusals)| refusals).sum::<u64>();
        for (event, refusals) in [(KeyEvent::Refusal, 1), (KeyEvent::Wait, 1), (KeyEvent::Refusal, 2)] {
            top_keys.count(b"k", event, at(0));
            assert_eq!(in_window(&top_keys), refusals);
        }
        top_keys.begin_window();
        assert_eq!(top_keys.refusals_in_window().count(), 0);
        top_keys.count(b"k", KeyEvent::Refusal, at(1));
        assert_eq!(top_keys.refusals_in_window().collect::<Vec<_>>(), [(&b"k"[..], 1)]);
        assert_eq!(of(&top_keys, b"k", at(1)), (3, 1));
    }

    #[test]
    fn long_keys_are_cut() {
        let mut top_keys = TopKeys::default();
        let long = vec![b'x'; KEY_BYTES + 1];
        top_keys.count(&long, KeyEvent::Wait, at(0));
        top_keys.count(&long[..KEY_BYTES], KeyEvent::Wait, at(0));
        assert_eq!(of(&top_keys, &long[..KEY_BYTES], at(0)), (0, 2));
        top_keys.check();
    }

    #[test]
    fn another_process_goes_on() {
        let (mut top_keys, mut next) = (TopKeys::default(), TopKeys::default());
        for n in 0..1_000_u64 {
            top_keys.count((n % 300).to_string().as_bytes(), KeyEvent::Refusal, at(n));
        }
        next.restore(top_keys.save());
        next.check();
        let sorted = |top_keys: &TopKeys| {
            let mut all: Vec<_> = top_keys.top(at(1_000)).map(|top| (top.key.to_vec(), top.refusals)).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&next), sorted(&top_keys));
        assert_eq!(next.error(at(1_000)), top_keys.error(at(1_000)));
    }
}
