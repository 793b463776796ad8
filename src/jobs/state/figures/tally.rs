//! Tallies of a tube, of several, or of a runner: counts, times, and events a second over the last 1, 5 and 15 minutes.

use poolcounter_core::{Count, Histogram, SmallCount, Span, Time};
use serde::{Deserialize, Serialize};

/// Event of a tube that is counted. Of the first three there are rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// A job was put.
    Put,
    /// A job was reserved.
    Reserve,
    /// A job was deleted by a client.
    Delete,
    /// A job was refused because of its key.
    Duplicate,
    /// A leaf was refused or dropped because of a newer root job.
    Superseded,
    /// A reservation ended without the job being done.
    Failure,
}

/// Number of events with rates.
const RATED: usize = 3;

/// An event, and the time for which the job was ready before its reservation, or reserved before its deletion, if it was.
pub(in crate::state) type Noted = (Counted, Option<Span>);

/// Events of one tube or several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Times for which jobs were ready before they were reserved.
    pub pickups: Histogram,
    /// Puts, reserves and deletes a second.
    pub rates: Rates,
    /// Numbers of events, by [`Counted`].
    pub counts: [Count; 6],
    /// Times for which jobs were reserved before they were deleted; of a tube only while it is alone in a sum.
    pub runs: Histogram,
    /// The last failure with a text.
    pub last_error: Option<Box<LastError>>,
}

/// A failure with a text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastError {
    /// Time of the failure.
    pub at: Time,
    /// The first bytes of the text.
    pub text: Box<[u8]>,
}

/// Number of bytes that are kept of the text of a last failure: a line of a page.
const ERROR_BYTES: usize = 200;

impl LastError {
    pub(in crate::state) fn new(at: Time, text: &[u8]) -> LastError {
        LastError { at, text: text[..text.len().min(ERROR_BYTES)].into() }
    }
}

impl Tally {
    /// Returns the bytes of its histograms and of its last error.
    pub(in crate::state) fn bytes(&self) -> usize {
        let error = self.last_error.as_ref().map_or(0, |error| size_of::<LastError>() + error.text.len());
        self.pickups.bytes() + self.runs.bytes() + error
    }

    /// Returns true if something was counted.
    pub(in crate::state) fn has_events(&self) -> bool {
        let Tally { pickups, rates: _, counts, runs, last_error } = self;
        pickups.count() + runs.count() > 0 || last_error.is_some() || *counts != [Count::ZERO; 6]
    }

    /// Returns the counts for curves.
    pub fn puts_and_deletes(&self) -> [u64; 2] {
        [Counted::Put, Counted::Delete].map(|event| self.counts[event as usize].get())
    }

    /// Counts an event, and returns by how many [`Tally::bytes`] the tally has grown.
    #[inline]
    pub(in crate::state) fn note(&mut self, (event, time): Noted, now: Time) -> usize {
        self.counts[event as usize].bump();
        self.rates.count(event, now);
        let Some(time) = time else { return 0 };
        let histogram = if event == Counted::Delete { &mut self.runs } else { &mut self.pickups };
        let before = histogram.bytes();
        histogram.record(time);
        histogram.bytes() - before
    }

    /// Adds another tally.
    pub(in crate::state) fn add(&mut self, other: &Tally, now: Time) {
        self.pickups.add(&other.pickups);
        self.rates.add(&other.rates, now);
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self.runs.add(&other.runs);
    }
}

/// Lengths of the averages in seconds.
pub const WINDOWS: [u32; 3] = [60, 300, 900];
/// Seconds without an event after which the longest average is below a thousandth of its value.
const FORGOTTEN: u32 = 7 * 900;

/// Averages that fade: an event weighs less by the factor e after each length of the window.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    second: u32,
    /// Events of that second.
    counts: [SmallCount; RATED],
    /// Averages of the seconds before; None if there were no events.
    averages: Option<Box<[[f32; 3]; RATED]>>,
}

impl Rates {
    /// Counts an event, if there are rates of it. The averages are updated at most once a second.
    #[inline]
    pub fn count(&mut self, event: Counted, now: Time) {
        if event as usize >= RATED {
            return;
        }
        let second = second_of(now);
        if second > self.second {
            self.go_to(second);
        }
        self.counts[event as usize].bump();
    }

    /// Returns the events a second over each of [`WINDOWS`]: of puts, reserves or deletes, as there are no other rates.
    pub fn of(&self, event: Counted, now: Time) -> [f64; 3] {
        let second = second_of(now);
        std::array::from_fn(|window| self.faded(event as usize, window, second).into())
    }

    /// Adds up two rates at the same moment.
    pub fn add(&mut self, other: &Rates, now: Time) {
        let second = second_of(now);
        self.go_to(second);
        let averages = self.averages.get_or_insert_default();
        for (event, averages) in averages.iter_mut().enumerate() {
            for (window, average) in averages.iter_mut().enumerate() {
                *average += other.faded(event, window, second);
            }
        }
    }

    /// Returns an average at a later second.
    fn faded(&self, event: usize, window: usize, second: u32) -> f32 {
        let (passed, length) = (second.saturating_sub(self.second), WINDOWS[window] as f32);
        let fading = if passed > FORGOTTEN { 0.0 } else { (-(passed as f32) / length).exp() };
        let average = self.averages.as_ref().map_or(0.0, |averages| averages[event][window]);
        (average + self.counts[event].get() as f32 / length) * fading
    }

    fn go_to(&mut self, second: u32) {
        if self.averages.is_some() || self.counts != [SmallCount::ZERO; RATED] {
            let later = |event| std::array::from_fn(|window| self.faded(event, window, second));
            let later = std::array::from_fn(later);
            **self.averages.get_or_insert_default() = later;
        }
        (self.second, self.counts) = (self.second.max(second), [SmallCount::ZERO; RATED]);
    }
}

/// Returns the second of a moment: a process does not run for longer than there are.
fn second_of(now: Time) -> u32 {
    u32::try_from(now.as_micros() / 1_000_000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_events_are_their_rate() {
        let mut rates = Rates::default();
        let mut now = Time::START;
        for _ in 0..20_000 {
            rates.count(Counted::Put, now);
            now = now + Span::from_millis(500);
        }
        for rate in rates.of(Counted::Put, now) {
            assert!((rate - 2.0).abs() < 0.05, "{rate}");
        }
        assert_eq!(rates.of(Counted::Delete, now), [0.0; 3]);
        let [one, five, fifteen] = rates.of(Counted::Put, now + Span::from_secs(60));
        assert!((one - 2.0 / std::f64::consts::E).abs() < 0.05 && one < five && five < fifteen);
        assert_eq!(rates.of(Counted::Put, now + Span::from_secs(10_000)), [0.0; 3]);
    }
}
