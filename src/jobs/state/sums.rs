//! What is known of wikis and of types of jobs: sums over their tubes, kept as jobs move, so that to tell them costs the same
//! however many tubes and jobs there are.
//!
//! Cost: an event of a job adds to its tube and to two sums, and where that is the first ready job of its tube, of another second
//! than the one before, moves the tube in the order of ages of two sums. At most [`MOST_FOLLOWED`] wikis and as many types are
//! followed: they have a curve, and metrics of their own. What happens in the others is counted under `other` as well.

use super::State;
use super::curves::{Curve, INTERVAL, Point};
use super::rates::{Rated, Rates};
use super::sweeps::JobState;
use super::tube::TubeId;
use poolcounter_core::count::Count;
use poolcounter_core::histogram::Histogram;
use poolcounter_core::id::{Id, id};
use poolcounter_core::time::{Span, Time};
use poolcounter_protocol::jobs::name::{type_of, wiki_of};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};

/// How many wikis are followed, and how many types: what a page of metrics has room for.
pub const MOST_FOLLOWED: usize = 256;
/// The order of ages is right to so many microseconds as a power of two, which is a second: the next job of a tube is mostly as old
/// as the last, and then nothing moves.
const AGE_BITS: u32 = 20;

id! {
    /// A wiki or a type of jobs.
    SumId
}

/// By which part of their names tubes are summed up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum SumBy {
    /// The first part.
    Wiki,
    /// The last part.
    Type,
}

/// What happens in a tube and is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noted {
    /// A job was put.
    Put,
    /// A job was reserved, and how long it was ready before if it was.
    Reserve(Option<Span>),
    /// A job was deleted by a client.
    Delete,
    /// A job was refused because of its key.
    Duplicate,
    /// A leaf was refused or dropped because of a newer root job.
    Superseded,
    /// A reservation ended without the job being done.
    Failure,
}

/// What happened, in one tube or several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// How long jobs were ready before they were reserved.
    pub pickups: Histogram,
    /// Puts, reserves and deletes a second.
    pub rates: Rates,
    /// Puts, reserves and deletes.
    pub events: [Count; 3],
    /// Jobs refused because of their key.
    pub duplicates: Count,
    /// Leaves refused or dropped because of a newer root job.
    pub superseded: Count,
    /// Reservations that ended without the job being done. Saved beside the tally, as earlier versions had none.
    #[serde(skip)]
    pub failures: Count,
}

impl Tally {
    #[inline]
    fn note(&mut self, noted: Noted, now: Time) {
        let event = match noted {
            Noted::Put => Rated::Put,
            Noted::Reserve(waited) => {
                waited.into_iter().for_each(|waited| self.pickups.record(waited));
                Rated::Reserve
            }
            Noted::Delete => Rated::Delete,
            Noted::Duplicate => return self.duplicates.bump(),
            Noted::Superseded => return self.superseded.bump(),
            Noted::Failure => return self.failures.bump(),
        };
        self.events[event as usize].bump();
        self.rates.count(event, now);
    }

    /// Adds what happened elsewhere.
    fn add(&mut self, other: &Tally, now: Time) {
        self.pickups.add(&other.pickups);
        self.rates.add(&other.rates, now);
        self.events.iter_mut().zip(other.events).for_each(|(sum, more)| *sum += more);
        self.duplicates += other.duplicates;
        self.superseded += other.superseded;
        self.failures += other.failures;
    }
}

/// A wiki or a type of jobs. It is there as long as one of its tubes is remembered.
pub(super) struct Sum {
    pub by: SumBy,
    pub name: Box<[u8]>,
    pub tubes: BTreeSet<TubeId>,
    /// The tubes with ready jobs, by since when the first of these is ready, in seconds or so.
    pub ages: BTreeSet<(u64, TubeId)>,
    /// Jobs by [`JobState`].
    pub counts: [u64; 4],
    pub tally: Tally,
    /// The last hour, if it is followed.
    pub curve: Option<Box<Curve>>,
}

/// Every wiki and every type.
#[derive(Default)]
pub(super) struct Sums {
    pub all: Slab<Sum>,
    names: BTreeMap<(SumBy, Box<[u8]>), SumId>,
    /// Those that are followed, of wikis and of types: they have a curve.
    pub followed: [BTreeSet<SumId>; 2],
    /// What happened in wikis, and in types, while they were not followed.
    pub others: [Others; 2],
    /// When the next point of the curves is due.
    next_point: Time,
}

/// What is known of those together that are not followed.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    pub tally: Tally,
    pub curve: Curve,
}

impl Sums {
    /// Returns the sums of a tube, for one tube more.
    pub fn enter(&mut self, id: TubeId, tube: &[u8]) -> [SumId; 2] {
        [(SumBy::Wiki, wiki_of(tube)), (SumBy::Type, type_of(tube))].map(|(by, name)| {
            let Sums { all, names, followed, .. } = self;
            let sum = *names.entry((by, name.into())).or_insert_with(|| {
                let followed = &mut followed[by as usize];
                let is_followed = followed.len() < MOST_FOLLOWED;
                let sum = SumId::from_index(all.insert(Sum::new(by, name, is_followed)));
                followed.extend(is_followed.then_some(sum));
                sum
            });
            all[sum.index()].tubes.insert(id);
            sum
        })
    }

    /// A tube is forgotten. With its last tube, so is a sum.
    pub fn leave(&mut self, id: TubeId, sums: [SumId; 2]) {
        for sum in sums {
            self.all[sum.index()].tubes.remove(&id);
            if self.all[sum.index()].tubes.is_empty() {
                let Sum { by, name, .. } = self.all.remove(sum.index());
                self.followed[by as usize].remove(&sum);
                self.names.remove(&(by, name));
            }
        }
    }

    /// Returns the sum of that name.
    pub fn find(&self, by: SumBy, name: &[u8]) -> Option<&Sum> {
        self.names.get(&(by, name.into())).map(|id| &self.all[id.index()])
    }

    /// A job of a tube with these sums is in this state from now on.
    pub fn gain(&mut self, sums: [SumId; 2], state: JobState) {
        sums.into_iter().for_each(|id| self.all[id.index()].counts[state as usize] += 1);
    }

    /// A job of a tube with these sums is not in this state any more.
    pub fn lose(&mut self, sums: [SumId; 2], state: JobState) {
        sums.into_iter().for_each(|id| self.all[id.index()].counts[state as usize] -= 1);
    }

    /// Adds what happened in a tube before it was known here.
    pub fn add(&mut self, sums: [SumId; 2], tally: &Tally, now: Time) {
        sums.into_iter().for_each(|id| self.all[id.index()].tally.add(tally, now));
    }

    /// Sets what is known of a wiki or a type.
    pub fn restore(&mut self, by: SumBy, name: &[u8], tally: Tally) {
        if let Some(id) = self.names.get(&(by, name.into())) {
            let failures = self.all[id.index()].tally.failures;
            self.all[id.index()].tally = Tally { failures, ..tally };
        }
    }

    /// Has a wiki or a type be followed, with what is known of its last hour. Those that are too many then are not followed any more
    /// from the next point on.
    pub fn restore_followed(&mut self, by: SumBy, name: &[u8], failures: Count, curve: Option<Curve>) {
        if let Some(id) = self.names.get(&(by, name.into())) {
            let sum = &mut self.all[id.index()];
            sum.tally.failures = failures;
            match curve.is_some() {
                true => self.followed[by as usize].insert(*id),
                false => self.followed[by as usize].remove(id),
            };
            sum.curve = curve.map(Box::new);
        }
    }

    /// Returns how many points are due.
    fn due_points(&self, now: Time) -> u64 {
        if now < self.next_point { 0 } else { 1 + now.since(self.next_point).as_micros() / INTERVAL.as_micros() }
    }

    /// Returns when the next point is due.
    pub fn next_point(&self) -> Time {
        self.next_point
    }

    /// The next point is due then.
    pub fn restore_next_point(&mut self, next: Time) {
        self.next_point = next;
    }

    /// Chooses those with the most puts where there are more than can be followed.
    fn choose_followed(&mut self, by: SumBy) {
        let own = self.all.iter().take(super::queries::MOST_SURVEYED).filter(|(_, sum)| sum.by == by);
        let places: BTreeSet<SumId> = own.map(|(place, _)| SumId::from_index(place)).collect();
        if self.followed[by as usize].is_superset(&places) && self.followed[by as usize].len() <= MOST_FOLLOWED {
            return;
        }
        let puts = |id: &SumId| (self.all[id.index()].tally.events[Rated::Put as usize], *id);
        let mut puts: Vec<(Count, SumId)> = places.union(&self.followed[by as usize]).map(puts).collect();
        puts.sort_unstable_by(|one, other| other.cmp(one));
        puts.truncate(MOST_FOLLOWED);
        let chosen: BTreeSet<SumId> = puts.into_iter().map(|(_, id)| id).collect();
        let old = std::mem::replace(&mut self.followed[by as usize], chosen);
        for id in &old - &self.followed[by as usize] {
            self.all[id.index()].curve = None;
        }
        for id in &self.followed[by as usize] - &old {
            let sum = &mut self.all[id.index()];
            sum.curve = Some(Box::new(Curve::beginning_with(&sum.tally)));
        }
    }

    /// Compares the tables with each other.
    pub fn check(&self) {
        assert_eq!(self.names.len(), self.all.len(), "each sum has a name");
        for by in [SumBy::Wiki, SumBy::Type] {
            let followed = self.all.iter().filter(|(_, sum)| sum.by == by && sum.curve.is_some());
            let followed = followed.map(|(place, _)| SumId::from_index(place));
            assert!(self.followed[by as usize].iter().copied().eq(followed), "those that are followed have a curve");
        }
    }
}

impl Sum {
    fn new(by: SumBy, name: &[u8], is_followed: bool) -> Sum {
        Sum {
            by,
            name: name.into(),
            tubes: BTreeSet::new(),
            ages: BTreeSet::new(),
            counts: [0; 4],
            tally: Tally::default(),
            curve: is_followed.then(Box::default),
        }
    }
}

impl State {
    /// Counts what happened in a tube.
    pub(super) fn note(&mut self, tube: TubeId, noted: Noted, now: Time) {
        let tube = &mut self.tubes[tube.index()];
        tube.tally.note(noted, now);
        for sum in tube.sums {
            let sum = &mut self.sums.all[sum.index()];
            sum.tally.note(noted, now);
            if sum.curve.is_none() {
                self.sums.others[sum.by as usize].tally.note(noted, now);
            }
        }
    }

    /// The first ready job of a tube may be another one now, or none.
    pub(super) fn note_first_ready(&mut self, id: TubeId) {
        let tube = &mut self.tubes[id.index()];
        let since = tube.waiting.front().map(|key| age_of(self.jobs[key].at));
        let old = std::mem::replace(&mut tube.ready_since, since);
        if old == since {
            return;
        }
        for sum in tube.sums {
            let ages = &mut self.sums.all[sum.index()].ages;
            if let Some(old) = old {
                ages.remove(&(old, id));
            }
            ages.extend(since.map(|since| (since, id)));
        }
    }

    /// Returns how long the ready job that is ready for longest has been so in a wiki or a type, right to a second.
    pub(super) fn oldest_of_sum(&self, sum: &Sum, now: Time) -> Span {
        sum.ages.first().map_or(Span::ZERO, |(_, tube)| self.oldest_of(&self.tubes[tube.index()], now))
    }

    /// Returns how long the ready job that is ready for longest has been so, of as many types as are looked at.
    pub fn oldest_ready(&self, now: Time) -> Span {
        let sums = self.sums.all.iter().take(super::queries::MOST_SURVEYED);
        sums.map(|(_, sum)| self.oldest_of_sum(sum, now)).max().unwrap_or(Span::ZERO)
    }

    /// Adds to the curves how things stand now, and have stood since the last step, where that is due. It is called before each
    /// step; nobody wakes up for it.
    pub fn note_time(&mut self, now: Time) {
        let due = self.sums.due_points(now);
        if due == 0 {
            return;
        }
        self.sums.next_point = self.sums.next_point + Span::from_micros(due.saturating_mul(INTERVAL.as_micros()));
        [SumBy::Wiki, SumBy::Type].into_iter().for_each(|by| self.sums.choose_followed(by));
        for by in [SumBy::Wiki, SumBy::Type] {
            let ([ready, ..], oldest) = self.levels_of_others(by, now);
            let other = &mut self.sums.others[by as usize];
            other.curve.push(ready, oldest, &other.tally, due);
            let followed: Vec<SumId> = self.sums.followed[by as usize].iter().copied().collect();
            for id in followed {
                let oldest = self.oldest_of_sum(&self.sums.all[id.index()], now);
                let Sum { curve, counts, tally, .. } = &mut self.sums.all[id.index()];
                curve.as_mut().expect("what is followed has a curve").push(counts[0], oldest, tally, due);
            }
        }
    }

    /// Returns how many jobs there are by state in the wikis or types that are not followed, and the age of the oldest ready one.
    pub(super) fn levels_of_others(&self, by: SumBy, now: Time) -> ([u64; 4], Span) {
        let total = [self.ready, self.reserved, self.delayed, self.buried];
        let followed = || self.sums.followed[by as usize].iter().map(|id| &self.sums.all[id.index()]);
        let counts = std::array::from_fn(|n| total[n] - followed().map(|sum| sum.counts[n]).sum::<u64>());
        let all = self.sums.all.iter().map(|(_, sum)| sum).take(super::queries::MOST_SURVEYED);
        let others = all.filter(|sum| sum.by == by && sum.curve.is_none());
        (counts, others.map(|sum| self.oldest_of_sum(sum, now)).max().unwrap_or(Span::ZERO))
    }

    /// Returns the last hour of a wiki or a type, if it is followed, with the points that are due.
    pub fn curve_of(&self, by: SumBy, name: &[u8], now: Time) -> Option<Vec<Point>> {
        let sum = self.sums.find(by, name)?;
        let mut curve = (**sum.curve.as_ref()?).clone();
        curve.push(sum.counts[0], self.oldest_of_sum(sum, now), &sum.tally, self.sums.due_points(now));
        Some(curve.points().collect())
    }
}

/// Returns what a moment is in the order of ages.
pub(super) fn age_of(at: Time) -> u64 {
    at.as_micros() >> AGE_BITS
}
