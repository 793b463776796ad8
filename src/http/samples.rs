//! How things stood in the last ten minutes, or another time: samples at equal distances. They are taken when something happens
//! anyway; where nothing happened, things stood as they do now.

use poolcounter_core::time::{Span, Time};
use poolcounter_service::report::snapshot::Values;
use poolcounter_service::report::{Series, SeriesInfo};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The time from one sample to the next.
pub const INTERVAL: Span = Span::from_secs(3);
/// How many samples are kept: ten minutes.
pub const KEPT: usize = 201;

/// The samples of the last ten minutes; with a longer interval, of as much more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Samples {
    /// The time from one sample to the next. Those that another process hands over have the common one.
    #[serde(skip, default = "common_interval")]
    interval: Span,
    /// When the next one is due.
    next: Time,
    /// One for each series, in the order in which they are noted.
    curves: Vec<Curve>,
}

/// What is remembered of one series.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Curve {
    service: String,
    /// The name of the series; empty until it is noted, if version 0.9.0 left the values.
    name: String,
    /// Oldest first. A series that is new has fewer than the others.
    values: VecDeque<u64>,
}

/// What version 0.9.0 remembered: four series, which had no names.
#[derive(Deserialize)]
pub struct Unnamed {
    next: Time,
    kept: Vec<[u64; 4]>,
}

/// In which order these four are noted now.
const ORDER_OF_UNNAMED: [usize; 4] = [0, 2, 3, 1];

fn common_interval() -> Span {
    INTERVAL
}

impl Default for Samples {
    fn default() -> Self {
        Samples::every(INTERVAL)
    }
}

impl From<Unnamed> for Samples {
    fn from(Unnamed { next, kept }: Unnamed) -> Self {
        let curve = |column: usize| Curve {
            values: kept.iter().rev().take(KEPT).rev().map(|sample| sample[column]).collect(),
            ..Curve::new("", "")
        };
        Samples { next, curves: ORDER_OF_UNNAMED.map(curve).into(), ..Samples::default() }
    }
}

impl Samples {
    /// Returns no samples yet, at such a distance.
    pub fn every(interval: Span) -> Self {
        Samples { interval, next: Time::default(), curves: Vec::new() }
    }

    /// Returns when the next sample is due.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Notes how things stand now, and have stood since the last tick, if a sample is due. `tell` is called for the values of
    /// every series, with the name of its service.
    pub fn note(&mut self, now: Time, tell: impl FnOnce(&mut dyn FnMut(&'static str, Series))) {
        if now < self.next {
            return;
        }
        let interval = self.interval.as_micros();
        let due = 1 + now.since(self.next).as_micros() / interval;
        self.next = self.next + Span::from_micros(due.saturating_mul(interval));
        let mut place = 0;
        tell(&mut |service, (info, value)| {
            self.curve_at(place, service, info.name).push(value, due);
            place += 1;
        });
        // Nobody tells of the others any more.
        self.curves.truncate(place);
    }

    /// Returns the curve of a series, and has it stand at a place before which all are others.
    fn curve_at(&mut self, place: usize, service: &str, name: &str) -> &mut Curve {
        let found = self.curves[place..].iter().position(|curve| curve.is_of(service, name));
        match found {
            Some(distance) => self.curves.swap(place, place + distance),
            None => self.curves.insert(place, Curve::new(service, name)),
        }
        let curve = &mut self.curves[place];
        if curve.name.is_empty() {
            (curve.service, curve.name) = (service.into(), name.into());
        }
        curve
    }

    /// Returns what is shown of a series: its values, or how much it grew in each second, of so many intervals at most.
    pub fn shown(&self, service: &str, info: &SeriesInfo, most: usize) -> Values {
        // The first sample only says what the second is compared with.
        let known = self.values(service, info.name).skip(1).count();
        let skipped = known.saturating_sub(most);
        match info.is_rate {
            true => Values::Rates(self.rates(service, info.name).skip(skipped).collect()),
            false => Values::Levels(self.values(service, info.name).skip(1 + skipped).collect()),
        }
    }

    /// Returns the values of a series, oldest first.
    fn values(&self, service: &str, name: &str) -> impl Iterator<Item = u64> + Clone {
        let curve = self.curves.iter().find(|curve| curve.service == service && curve.name == name);
        curve.into_iter().flat_map(|curve| curve.values.iter().copied())
    }

    /// Returns how much a value became more, in each second, from one sample to the next.
    fn rates(&self, service: &str, name: &str) -> impl Iterator<Item = f64> {
        let seconds = self.interval.as_micros() as f64 / 1e6;
        let values = self.values(service, name);
        values.clone().zip(values.skip(1)).map(move |(before, after)| after.saturating_sub(before) as f64 / seconds)
    }
}

impl Curve {
    fn new(service: &str, name: &str) -> Self {
        Curve { service: service.into(), name: name.into(), values: VecDeque::with_capacity(KEPT) }
    }

    fn is_of(&self, service: &str, name: &str) -> bool {
        self.name.is_empty() || self.service == service && self.name == name
    }

    /// Adds a value as often as it was due.
    fn push(&mut self, value: u64, due: u64) {
        for _ in 0..due.min(KEPT as u64) {
            if self.values.len() == KEPT {
                self.values.pop_front();
            }
            self.values.push_back(value);
        }
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

    fn note(samples: &mut Samples, now: Time, value: u64) {
        samples.note(now, |tell| tell("one", (&ALL[0], value)));
    }

    fn values(samples: &Samples) -> Vec<u64> {
        samples.values("one", "a").collect()
    }

    #[test]
    fn gaps_are_flat() {
        let mut samples = Samples::default();
        note(&mut samples, at(0), 0);
        assert!(samples.next() > at(2));
        note(&mut samples, at(2), 3);
        assert_eq!(values(&samples), [0], "none was due");
        note(&mut samples, at(13), 6);
        assert_eq!(values(&samples), [0, 6, 6, 6, 6]);
        assert_eq!(samples.rates("one", "a").collect::<Vec<_>>(), [2.0, 0.0, 0.0, 0.0]);
        assert!(samples.next() <= at(15) && samples.next() > at(14));
    }

    #[test]
    fn the_last_moment_is_one_like_others() {
        let mut samples = Samples::default();
        note(&mut samples, Time::from_micros(u64::MAX), 7);
        note(&mut samples, Time::from_micros(u64::MAX), 8);
        assert_eq!(values(&samples).len(), KEPT);
    }

    #[test]
    fn ten_minutes_are_kept() {
        let mut samples = Samples::default();
        note(&mut samples, at(0), 0);
        note(&mut samples, at(1_000_000_000), 1);
        assert_eq!(values(&samples), [1; KEPT]);
        assert!(samples.next() > at(1_000_000_000) && samples.next() <= at(1_000_000_003), "its rhythm goes on");
        note(&mut samples, at(1_000_000_003), 2);
        assert_eq!((values(&samples).len(), values(&samples)[KEPT - 2..].to_vec()), (KEPT, vec![1, 2]));
        assert_eq!(samples.rates("one", "a").count(), 200);
    }

    /// Another version of the program may have other series, in another order.
    #[test]
    fn series_come_and_go() {
        let mut samples = Samples::default();
        samples.note(at(0), |tell| (0..4).for_each(|n| tell("one", (&ALL[n], n as u64))));
        samples.note(at(3), |tell| [4, 2, 0].into_iter().for_each(|n| tell("one", (&ALL[n], 9))));
        let kept = |name| samples.values("one", name).collect::<Vec<_>>();
        assert_eq!([kept("new"), kept("c"), kept("a"), kept("b")], [vec![9], vec![2, 9], vec![0, 9], vec![]]);
        assert_eq!(samples.values("other", "a").count(), 0);
    }

    #[test]
    fn the_unnamed_get_their_names() {
        let unnamed = Unnamed { next: at(6), kept: vec![[10, 20, 30, 40], [11, 21, 31, 41]] };
        let mut samples = Samples::from(unnamed);
        samples.note(at(6), |tell| {
            (0..4).for_each(|n| tell("one", (&ALL[n], 0)));
            tell("other", (&ALL[4], 7));
        });
        let kept = |name| samples.values("one", name).collect::<Vec<_>>();
        let wanted = [vec![10, 11, 0], vec![30, 31, 0], vec![40, 41, 0], vec![20, 21, 0]];
        assert_eq!(["a", "b", "c", "d"].map(kept), wanted);
        assert_eq!(samples.values("other", "new").collect::<Vec<_>>(), [7]);
    }
}
