//! History of values: samples at equal intervals. Taken when the loop runs anyway; without events the values are the
//! same as now.

use super::recent::Range;
use poolcounter_core::{Reader, Span, Time, Writer};
use poolcounter_service::contract::Unreadable;
use poolcounter_service::report::{Series, SeriesInfo, Values};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::io;

/// Time between two samples of the services.
pub const INTERVAL: Span = Span::from_secs(3);
/// Number of samples of the services: ten minutes.
pub const KEPT: usize = 201;
/// Number of samples of things with pages of their own at the same interval: five minutes.
pub const KEPT_OF_THINGS: usize = 101;
/// Time between two samples of these things, and their number: an hour.
pub const HOUR_OF_THINGS: (Span, usize) = (Span::from_secs(30), 121);

/// Samples of several series. The default is a place for them, and takes none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Samples {
    interval: Span,
    most: usize,
    /// Time of the next sample.
    pub next: Time,
    /// Curves by their subject: the name of a service, or that with a slash and the path of a thing.
    curves: BTreeMap<Box<[u8]>, Vec<Curve>>,
    /// True if new subjects did not exist before, so that their counts start at 0.
    begins_at_zero: bool,
    has_begun: bool,
}

/// Values of one series, oldest first. A new series has fewer values.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Curve {
    name: String,
    values: VecDeque<u64>,
    is_noted: bool,
}

/// Saved form of samples: the time of the next one, and for each curve its subject, its name and its values.
#[derive(Serialize, Deserialize)]
struct SavedSamples {
    next: Time,
    curves: Vec<(Vec<u8>, String, VecDeque<u64>)>,
}

impl Samples {
    /// Returns a history without samples, of at most `most` samples at this interval.
    pub fn every(interval: Span, most: usize) -> Self {
        Samples { interval, most, ..Samples::default() }
    }

    /// Returns a history without samples for things that come and go: counts of new ones start at 0.
    pub fn of_things(interval: Span, most: usize) -> Self {
        Samples { begins_at_zero: true, ..Samples::every(interval, most) }
    }

    /// Returns the time between two samples, and the number of samples in a range: all without a range; None if the range is
    /// longer.
    pub fn within(&self, range: Option<Range>) -> Option<(Span, usize)> {
        let all = self.most - 1;
        let points = range.map_or(all, |range| range.points(self.interval));
        (points <= all).then_some((self.interval, points))
    }

    /// Records the current values, which have been the same since the last tick, if a sample is due. `tell` is called
    /// for the values of every series, with its subject.
    pub fn note(&mut self, now: Time, tell: impl FnOnce(&mut dyn FnMut(&[u8], Series))) {
        if now < self.next {
            return;
        }
        let interval = self.interval.as_micros();
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        // The values before the first sample are unknown.
        self.next = if has_begun { self.next } else { now };
        let due = 1 + now.since(self.next).as_micros() / interval;
        self.next = self.next + Span::from_micros(due.saturating_mul(interval));
        let begins_at_zero = self.begins_at_zero && has_begun;
        tell(&mut |of, (info, value)| {
            let curves = match self.curves.get_mut(of) {
                Some(curves) => curves,
                None => self.curves.entry(of.into()).or_default(),
            };
            let place = curves.iter().position(|curve| curve.name == info.name).unwrap_or_else(|| {
                let values = begins_at_zero.then_some(0).into_iter().collect();
                curves.push(Curve { name: info.name.into(), values, is_noted: false });
                curves.len() - 1
            });
            curves[place].is_noted = true;
            for back in (0..due.min(self.most as u64)).rev() {
                // An age has grown all the time.
                let is_age = info.unit == "seconds" && !info.is_rate;
                let passed = if is_age { back.saturating_mul(interval / 1_000_000) } else { 0 };
                curves[place].push(value.saturating_sub(passed), self.most);
            }
        });
        // Removes the series that are no longer reported.
        self.curves.retain(|_, curves| {
            curves.retain_mut(|curve| std::mem::take(&mut curve.is_noted));
            !curves.is_empty()
        });
    }

    /// Returns the values of a series, or its growth per time unit of the series, over at most `most` intervals.
    pub fn shown(&self, of: &[u8], info: &SeriesInfo, most: usize) -> Values {
        let values = || self.values(of, info.name);
        // The first sample is only the base of the second.
        let skipped = values().skip(1).count().saturating_sub(most);
        if !info.is_rate {
            return Values::Levels(values().skip(1 + skipped).collect());
        }
        let times = if info.unit == "per minute" { 60.0 } else { 1.0 } / (self.interval.as_micros() as f64 / 1e6);
        let grown = values().zip(values().skip(1)).map(|(before, after)| after.saturating_sub(before) as f64 * times);
        Values::Rates(grown.skip(skipped).collect())
    }

    /// Returns the values of a series, oldest first.
    fn values(&self, of: &[u8], name: &str) -> impl Iterator<Item = u64> {
        let curve = self.curves.get(of).and_then(|curves| curves.iter().find(|curve| curve.name == name));
        curve.into_iter().flat_map(|curve| curve.values.iter().copied())
    }

    /// Writes the samples for the handover.
    pub fn save(&self, out: &mut Writer<'_>) -> io::Result<()> {
        let curves = self.curves.iter().flat_map(|(of, curves)| curves.iter().map(move |curve| (of, curve)));
        let curves = curves.map(|(of, curve)| (of.to_vec(), curve.name.clone(), curve.values.clone()));
        out.put(&SavedSamples { next: self.next, curves: curves.collect() })
    }

    /// Continues from saved samples.
    ///
    /// # Errors
    ///
    /// Fails if the data is not in the format of [`Samples::save`].
    pub fn restore(&mut self, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        let SavedSamples { next, curves } = saved.take()?;
        self.next = next;
        self.has_begun = true;
        for (of, name, values) in curves {
            self.curves.entry(of.into()).or_default().push(Curve { name, values, is_noted: false });
        }
        Ok(())
    }
}

impl Curve {
    fn push(&mut self, value: u64, most: usize) {
        if self.values.len() == most {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_service::report::{Emphasis, SeriesInfo};

    const fn named(name: &'static str) -> SeriesInfo {
        SeriesInfo { name, title: "", unit: "", is_rate: true, emphasis: Emphasis::None }
    }

    static ALL: [SeriesInfo; 5] = [named("a"), named("b"), named("c"), named("d"), named("new")];

    fn at(s: u64) -> Time {
        Time::from_micros(s * 1_000_000)
    }

    fn new() -> Samples {
        Samples::every(INTERVAL, KEPT)
    }

    fn note(samples: &mut Samples, now: Time, value: u64) {
        samples.note(now, |tell| tell(b"one", (&ALL[0], value)));
    }

    fn values(samples: &Samples) -> Vec<u64> {
        samples.values(b"one", "a").collect()
    }

    fn rates(samples: &Samples) -> Vec<f64> {
        match samples.shown(b"one", &ALL[0], KEPT) {
            Values::Rates(rates) => rates,
            Values::Levels(levels) => panic!("{levels:?}"),
        }
    }

    /// Serialises a value as another process would.
    fn handed_over<R>(value: &impl Serialize, read: impl FnOnce(&mut Reader<'_>) -> R) -> R {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).put(value).expect("is written");
        read(&mut Reader::new(&mut &bytes[..]))
    }

    #[test]
    fn gaps_are_flat() {
        let mut samples = new();
        note(&mut samples, at(0), 0);
        assert!(samples.next > at(2));
        note(&mut samples, at(2), 3);
        assert_eq!(values(&samples), [0], "none was due");
        note(&mut samples, at(13), 6);
        assert_eq!(values(&samples), [0, 6, 6, 6, 6]);
        assert_eq!(rates(&samples), [2.0, 0.0, 0.0, 0.0]);
        assert!(samples.next <= at(15) && samples.next > at(14));
    }

    #[test]
    fn the_last_moment_is_one_like_others() {
        let mut samples = new();
        note(&mut samples, at(0), 7);
        note(&mut samples, Time::from_micros(u64::MAX), 7);
        note(&mut samples, Time::from_micros(u64::MAX), 8);
        assert_eq!(values(&samples).len(), KEPT);
    }

    #[test]
    fn ten_minutes_are_kept() {
        let mut samples = new();
        note(&mut samples, at(0), 0);
        note(&mut samples, at(1_000_000_000), 1);
        assert_eq!(values(&samples), [1; KEPT]);
        assert!(samples.next > at(1_000_000_000) && samples.next <= at(1_000_000_003), "its rhythm goes on");
        note(&mut samples, at(1_000_000_003), 2);
        assert_eq!((values(&samples).len(), values(&samples)[KEPT - 2..].to_vec()), (KEPT, vec![1, 2]));
        assert_eq!(rates(&samples).len(), 200);
    }

    /// Another version of the program may have other series, in another order.
    #[test]
    fn series_come_and_go() {
        let mut samples = new();
        samples.note(at(0), |tell| (0..4).for_each(|n| tell(b"one", (&ALL[n], n as u64))));
        samples.note(at(3), |tell| [4, 2, 0].into_iter().for_each(|n| tell(b"one", (&ALL[n], 9))));
        let kept = |name| samples.values(b"one", name).collect::<Vec<_>>();
        assert_eq!([kept("new"), kept("c"), kept("a"), kept("b")], [vec![9], vec![2, 9], vec![0, 9], vec![]]);
        assert_eq!(samples.values(b"other", "a").count(), 0);
    }

    /// The saved form is that of version 1: name of the service, name of the series, values.
    #[test]
    fn samples_go_on_in_another_process() {
        let version_1 = (at(6), vec![("one", "a", vec![7_u64, 8])]);
        let mut samples = new();
        handed_over(&version_1, |saved| samples.restore(saved)).expect("is read");
        note(&mut samples, at(6), 9);
        assert_eq!(values(&samples), [7, 8, 9]);
        let mut bytes = Vec::new();
        samples.save(&mut Writer::new(&mut bytes)).expect("is written");
        let mut other = new();
        other.restore(&mut Reader::new(&mut &bytes[..])).expect("is read");
        note(&mut other, at(9), 9);
        assert_eq!(values(&other), [7, 8, 9, 9]);
    }

    #[test]
    fn things_come_and_go_and_ages_grow_in_gaps() {
        static LAG: SeriesInfo =
            SeriesInfo { name: "lag", title: "", unit: "seconds", is_rate: false, emphasis: Emphasis::None };
        static PUT: SeriesInfo =
            SeriesInfo { name: "put", title: "", unit: "per minute", is_rate: true, emphasis: Emphasis::None };
        let mut samples = Samples::of_things(HOUR_OF_THINGS.0, HOUR_OF_THINGS.1);
        let shown = |samples: &Samples, of: &[u8]| match [&LAG, &PUT].map(|info| samples.shown(of, info, 3)) {
            [Values::Levels(lags), Values::Rates(puts)] => (lags, puts),
            _ => panic!("a level and a rate"),
        };
        samples.note(at(3_000), |tell| tell(b"jobs/old", (&PUT, 100)));
        assert!(shown(&samples, b"jobs/old").1.is_empty(), "nothing is known of the time before");
        samples.note(at(3_100), |tell| {
            [(&LAG, 70), (&PUT, 105)].into_iter().for_each(|series| tell(b"jobs/old", series));
            [(&LAG, 70), (&PUT, 5)].into_iter().for_each(|series| tell(b"jobs/new", series));
        });
        assert_eq!(shown(&samples, b"jobs/new"), (vec![10, 40, 70], vec![10.0, 0.0, 0.0]), "its counts began at 0");
        assert_eq!(shown(&samples, b"jobs/old").1, [10.0, 0.0, 0.0]);
        samples.note(at(3_120), |tell| tell(b"jobs/new", (&LAG, 0)));
        assert_eq!((shown(&samples, b"jobs/old"), shown(&samples, b"jobs/new").1), ((vec![], vec![]), vec![]));
    }
}
