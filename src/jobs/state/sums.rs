//! Sums over tubes whose names have the same first part, and over those with the same last part, kept as jobs move, so that they
//! cost the same to show however many tubes and jobs there are.
//!
//! Cost: an event of a job adds to its tube and to two sums, and where that is the first ready job of its tube, of another second
//! than the one before, moves the tube in the order of ages of two sums. At most [`MOST_FOLLOWED`] first parts and as many last parts
//! are followed: they have curves, and metrics of their own. Events of the others are counted under `other` as well.

use super::ids::TubeId;
use super::queries::MOST_SURVEYED;
use super::sweeps::JobState;
use super::tally::{Noted, Rated, Tally};
use poolcounter_core::count::Count;
use poolcounter_core::id::{Id, id};
use poolcounter_core::time::{Span, Time};
use poolcounter_protocol::jobs::name::{first_part, last_part};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

/// Largest number of first parts that are followed, and of last parts: what a page of metrics has room for.
const MOST_FOLLOWED: usize = 256;
/// Time from one choice of those that are followed to the next.
const CHOICE_INTERVAL: Span = Span::from_secs(30);
/// The order of ages is right to so many microseconds as a power of two, which is a second: the next job of a tube is mostly as old
/// as the last, and then nothing moves.
const AGE_BITS: u32 = 20;

id! {
    /// A first or a last part of tubes' names.
    SumId
}

/// By which part of their names tubes are summed up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum SumBy {
    /// The first part.
    FirstPart,
    /// The last part.
    LastPart,
}

impl SumBy {
    /// Both.
    pub const ALL: [SumBy; 2] = [SumBy::FirstPart, SumBy::LastPart];
}

/// The tubes with one first part, or one last part. It is there as long as one of them is remembered.
pub(super) struct Sum {
    pub by: SumBy,
    pub name: Box<[u8]>,
    pub tubes: BTreeSet<TubeId>,
    /// The tubes with ready jobs, by since when the first of these is ready, in seconds or so.
    pub ages: BTreeSet<(u64, TubeId)>,
    /// Jobs by [`JobState`].
    pub counts: [u64; 4],
    pub tally: Tally,
    /// Puts and deletes when it began to be followed, from which its curves count; None if it is not.
    pub followed_from: Option<[u64; 2]>,
}

/// Sums by every first part and every last part.
#[derive(Default)]
pub(super) struct Sums {
    all: Slab<Sum>,
    names: BTreeMap<(SumBy, Box<[u8]>), SumId>,
    /// Sums that are followed, by first and by last part.
    followed: [BTreeSet<SumId>; 2],
    /// Events of first parts, and of last parts, while they were not followed.
    others: [Tally; 2],
    /// Time of the next choice of those that are followed.
    next_choice: Time,
}

impl Sums {
    /// Returns the sums of a tube, for one tube more.
    pub fn enter(&mut self, id: TubeId, tube: &[u8]) -> [SumId; 2] {
        [(SumBy::FirstPart, first_part(tube)), (SumBy::LastPart, last_part(tube))].map(|(by, name)| {
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

    /// Forgets a tube, and with its last tube a sum.
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

    /// Number of sums of both kinds.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns every sum.
    pub fn iter(&self) -> impl Iterator<Item = (SumId, &Sum)> {
        self.all.iter().map(|(place, sum)| (SumId::from_index(place), sum))
    }

    /// Returns the sums of one kind, as many as a report has time for.
    pub fn surveyed(&self, by: SumBy) -> impl Iterator<Item = (SumId, &Sum)> {
        self.iter().take(MOST_SURVEYED).filter(move |(_, sum)| sum.by == by)
    }

    /// Returns the sums of one kind in so many places of the table at most from this one on, and the place of those behind them.
    pub fn slice(&self, by: SumBy, first: usize, most: usize) -> (impl Iterator<Item = &Sum>, Option<usize>) {
        let end = first.saturating_add(most);
        let places = first..end.min(self.all.capacity());
        let sums = places.filter_map(|place| self.all.get(place)).filter(move |sum| sum.by == by);
        (sums, (end < self.all.capacity()).then_some(end))
    }

    /// Returns the sums of one kind that are followed.
    pub fn followed(&self, by: SumBy) -> impl Iterator<Item = &Sum> {
        self.followed[by as usize].iter().map(|id| &self.all[id.index()])
    }

    /// Returns true when all sums of one kind are followed, as far as a report has time to see.
    pub fn are_all_followed(&self, by: SumBy) -> bool {
        self.all.len() <= MOST_SURVEYED && self.surveyed(by).count() == self.followed[by as usize].len()
    }

    /// Returns the events of those together that were not followed.
    pub fn others(&self, by: SumBy) -> &Tally {
        &self.others[by as usize]
    }

    /// Counts a job of a tube with these sums that is in this state from now on.
    pub fn gain(&mut self, sums: [SumId; 2], state: JobState) {
        sums.into_iter().for_each(|id| self.all[id.index()].counts[state as usize] += 1);
    }

    /// Counts a job of a tube with these sums that is not in this state any more.
    pub fn lose(&mut self, sums: [SumId; 2], state: JobState) {
        sums.into_iter().for_each(|id| self.all[id.index()].counts[state as usize] -= 1);
    }

    /// Counts an event of a tube with these sums.
    pub fn note(&mut self, sums: [SumId; 2], noted: Noted, now: Time) {
        for id in sums {
            let sum = &mut self.all[id.index()];
            sum.tally.note(noted, now);
            if sum.followed_from.is_none() {
                self.others[sum.by as usize].note(noted, now);
            }
        }
    }

    /// Moves a tube with these sums in their orders of ages.
    pub fn move_age(&mut self, id: TubeId, sums: [SumId; 2], old: Option<u64>, new: Option<u64>) {
        for sum in sums {
            let ages = &mut self.all[sum.index()].ages;
            if let Some(old) = old {
                ages.remove(&(old, id));
            }
            ages.extend(new.map(|new| (new, id)));
        }
    }

    /// Adds the events of a tube from before it was known here.
    pub fn add(&mut self, sums: [SumId; 2], tally: &Tally, now: Time) {
        sums.into_iter().for_each(|id| self.all[id.index()].tally.add(tally, now));
    }

    /// Sets the tally of a sum.
    pub fn restore(&mut self, by: SumBy, name: &[u8], tally: Tally) {
        if let Some(id) = self.names.get(&(by, name.into())) {
            let failures = self.all[id.index()].tally.failures;
            self.all[id.index()].tally = Tally { failures, ..tally };
        }
    }

    /// Sets whether a sum is followed, and from which counts. Those that are too many then are not followed any more from the next
    /// choice on.
    pub fn restore_followed(&mut self, by: SumBy, name: &[u8], failures: Count, followed_from: Option<[u64; 2]>) {
        if let Some(id) = self.names.get(&(by, name.into())) {
            let sum = &mut self.all[id.index()];
            sum.tally.failures = failures;
            match followed_from {
                Some(_) => self.followed[by as usize].insert(*id),
                None => self.followed[by as usize].remove(id),
            };
            sum.followed_from = followed_from;
        }
    }

    /// Sets the events of those that were not followed, and when those that are followed are chosen next.
    pub fn restore_others(&mut self, by: SumBy, tally: Tally, next_choice: Time) {
        self.others[by as usize] = tally;
        self.next_choice = next_choice;
    }

    /// Returns when those that are followed are chosen next.
    pub fn next_choice(&self) -> Time {
        self.next_choice
    }

    /// Chooses those that are followed, if that is due. It is called before each step; nothing wakes up for it.
    pub fn choose_if_due(&mut self, now: Time) {
        if now < self.next_choice {
            return;
        }
        let passed = now.since(self.next_choice).as_micros() / CHOICE_INTERVAL.as_micros();
        let interval = CHOICE_INTERVAL.as_micros().saturating_mul(passed.saturating_add(1));
        self.next_choice = self.next_choice + Span::from_micros(interval);
        SumBy::ALL.into_iter().for_each(|by| self.choose(by));
    }

    /// Chooses those with the most puts where there are more than can be followed.
    fn choose(&mut self, by: SumBy) {
        let places: BTreeSet<SumId> = self.surveyed(by).map(|(id, _)| id).collect();
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
            self.all[id.index()].followed_from = None;
        }
        for id in &self.followed[by as usize] - &old {
            let sum = &mut self.all[id.index()];
            sum.followed_from = Some(sum.tally.puts_and_deletes());
        }
    }

    /// Compares the tables with each other.
    pub fn check(&self) {
        assert_eq!(self.names.len(), self.all.len(), "each sum has a name");
        for by in SumBy::ALL {
            let followed = self.iter().filter(|(_, sum)| sum.by == by && sum.followed_from.is_some());
            assert!(
                self.followed[by as usize].iter().copied().eq(followed.map(|(id, _)| id)),
                "those that are followed"
            );
        }
    }
}

impl Index<SumId> for Sums {
    type Output = Sum;

    fn index(&self, id: SumId) -> &Sum {
        &self.all[id.index()]
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
            followed_from: is_followed.then_some([0; 2]),
        }
    }
}

/// Returns the place of a moment in the order of ages.
pub(super) fn age_of(at: Time) -> u64 {
    at.as_micros() >> AGE_BITS
}
