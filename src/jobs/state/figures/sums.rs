//! Sums over tubes whose names have the same first part, and over tubes with the same last part, updated as jobs move,
//! so that showing them costs the same at any number of tubes and jobs.
//!
//! Cost: an event of a job adds to its tube and to two sums. A sum that never had a second tube has the events of that
//! tube, and none of its own. If the first ready job of its tube changes to one of another second, the tube moves in the
//! order of ages of two sums. At most [`MOST_FOLLOWED`] first parts and as many last parts are followed: they have
//! curves, and metrics of their own. Events of the other parts are counted under `other` as well.

mod choice;

use crate::state::JobState;
use crate::state::ids::TubeId;
use crate::state::tally::{LastError, Noted, Tally};
use choice::Survey;
use poolcounter_core::id::{Id, id};
use poolcounter_core::names::{Hash, Names};
use poolcounter_core::sorted::Sorted;
use poolcounter_core::time::Time;
use poolcounter_protocol::jobs::name::{first_part, last_part};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::BTreeSet;
use std::ops::Index;

/// Number of tubes or connections that a report examines: a few milliseconds. Counts and rates include all.
pub(in crate::state) const MOST_SURVEYED: usize = 32_768;

/// Most first parts that are followed, and most last parts: as many as a page of metrics has room for.
const MOST_FOLLOWED: usize = 256;
/// Precision of the order of ages: a power of two of microseconds, about a second. The next job of a tube is mostly as
/// old as the last, and then nothing moves.
const AGE_BITS: u32 = 20;

id! {
    /// Id of a sum of a first or a last part.
    SumId
}

/// Part of their names by which tubes are summed up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum SumBy {
    /// First part.
    FirstPart,
    /// Last part.
    LastPart,
}

impl SumBy {
    /// Both kinds.
    pub const ALL: [SumBy; 2] = [SumBy::FirstPart, SumBy::LastPart];
}

/// Events of a tube, and its position in the order of ages.
pub(in crate::state) type Part<'a> = (&'a Tally, Option<u32>);

/// Sum of the tubes with one first part, or one last part. It exists as long as one of them does, hidden or not.
pub(in crate::state) struct Sum {
    pub by: SumBy,
    pub name: Box<[u8]>,
    hash: Hash,
    pub tubes: Sorted<TubeId>,
    /// Jobs by [`JobState`].
    pub counts: [u64; 4],
    /// Delayed jobs that wait to be tried again.
    pub retrying: u64,
    /// None while it never had a second tube: then the tally of its tube counts.
    pub own: Option<Box<Own>>,
    /// Puts and deletes at the time from which it is followed and its curves count; None if it is not followed.
    pub followed_from: Option<Box<[u64; 2]>>,
}

/// Figures of a sum of several tubes.
pub(in crate::state) struct Own {
    pub tally: Tally,
    /// Tubes with ready jobs, by the time since which the first of these is ready, in units of about a second; perhaps
    /// one without.
    pub ages: Sorted<(u32, TubeId)>,
}

/// Sums by every first part and every last part.
#[derive(Default)]
pub(in crate::state) struct Sums {
    all: Slab<Sum>,
    names: Names<SumId>,
    /// Followed sums, by first and by last part.
    followed: [BTreeSet<SumId>; 2],
    /// Events of first parts, and of last parts, while they were not followed.
    others: [Tally; 2],
    /// Time of the next choice of followed sums.
    pub next_choice: Time,
    /// Bytes of the tallies of all sums.
    pub tally_bytes: usize,
    survey: Survey,
}

impl Sums {
    /// Returns the kinds and names of the sums of a tube.
    fn of(tube: &[u8]) -> [(SumBy, &[u8]); 2] {
        [(SumBy::FirstPart, first_part(tube)), (SumBy::LastPart, last_part(tube))]
    }

    /// Returns the number of sums that do not exist and would with these tubes.
    pub fn new_with<'a>(&self, tubes: impl Iterator<Item = &'a [u8]>) -> usize {
        let sums: BTreeSet<(SumBy, &[u8])> = tubes.flat_map(Sums::of).collect();
        sums.into_iter().filter(|(by, name)| self.find(*by, name).is_none()).count()
    }

    /// Returns the sums of a tube, and adds the tube to them. `part_of` returns the events of another tube, and its
    /// position in the order of ages.
    pub fn enter<'a>(&mut self, id: TubeId, tube: &[u8], part_of: impl Fn(TubeId) -> Part<'a>) -> [SumId; 2] {
        Sums::of(tube).map(|(by, name)| {
            let hash = self.names.hash(name);
            let sum = self.named(hash, by, name).unwrap_or_else(|| {
                let followed = &mut self.followed[by as usize];
                let is_followed = followed.len() < MOST_FOLLOWED;
                let sum = SumId::from_index(self.all.insert(Sum::new(by, name, hash, is_followed)));
                followed.extend(is_followed.then_some(sum));
                self.names.insert(hash, sum, |sum| self.all[sum.index()].hash);
                sum
            });
            self.share(sum, &part_of);
            self.all[sum.index()].tubes.insert(id);
            sum
        })
    }

    /// Gives a sum of one tube a tally of its own.
    fn share<'a>(&mut self, id: SumId, part_of: &impl Fn(TubeId) -> Part<'a>) {
        let sum = &mut self.all[id.index()];
        if let Some(only) = sum.only() {
            let (tally, age) = part_of(only);
            let mut own = Own { tally: tally.clone(), ages: Sorted::default() };
            age.into_iter().for_each(|age| _ = own.ages.insert((age, only)));
            self.tally_bytes += tally.bytes();
            sum.own = Some(Box::new(own));
        }
    }

    fn named(&self, hash: Hash, by: SumBy, name: &[u8]) -> Option<SumId> {
        self.names.find(hash, |id| {
            let sum = &self.all[id.index()];
            sum.by == by && *sum.name == *name
        })
    }

    fn id_of(&self, by: SumBy, name: &[u8]) -> Option<SumId> {
        self.named(self.names.hash(name), by, name)
    }

    /// Returns whether one of these sums has the events of its only tube.
    #[inline]
    pub fn has_alone(&self, sums: [SumId; 2]) -> bool {
        sums.into_iter().any(|id| self.all[id.index()].own.is_none())
    }

    /// Removes a tube from its sums. The last one removes the sum.
    pub fn leave(&mut self, id: TubeId, sums: [SumId; 2]) {
        for sum in sums {
            self.all[sum.index()].tubes.remove(&id);
            if self.all[sum.index()].tubes.is_empty() {
                let Sum { by, hash, own, .. } = self.all.remove(sum.index());
                self.tally_bytes -= own.map_or(0, |own| own.tally.bytes());
                self.followed[by as usize].remove(&sum);
                self.names.remove(hash, sum);
                let Sums { names, all, .. } = self;
                names.shrink(|sum| all[sum.index()].hash);
            }
        }
    }

    /// Returns the sum with this name.
    pub fn find(&self, by: SumBy, name: &[u8]) -> Option<&Sum> {
        self.id_of(by, name).map(|id| &self.all[id.index()])
    }

    /// Returns the number of sums of both kinds.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns every sum.
    pub fn iter(&self) -> impl Iterator<Item = (SumId, &Sum)> {
        self.all.iter().map(|(place, sum)| (SumId::from_index(place), sum))
    }

    /// Returns the sums of one kind, among the first [`MOST_SURVEYED`] sums.
    pub fn surveyed(&self, by: SumBy) -> impl Iterator<Item = (SumId, &Sum)> {
        self.iter().take(MOST_SURVEYED).filter(move |(_, sum)| sum.by == by)
    }

    /// Returns the sums of one kind at the `most` positions from `first` on, and the next position.
    pub fn slice(&self, by: SumBy, first: usize, most: usize) -> (impl Iterator<Item = &Sum>, Option<usize>) {
        let end = first.saturating_add(most);
        let places = first..end.min(self.all.capacity());
        let sums = places.filter_map(|place| self.all.get(place)).filter(move |sum| sum.by == by);
        (sums, (end < self.all.capacity()).then_some(end))
    }

    /// Returns the followed sums of one kind.
    pub fn followed(&self, by: SumBy) -> impl Iterator<Item = &Sum> {
        self.followed[by as usize].iter().map(|id| &self.all[id.index()])
    }

    /// Returns true if all sums of one kind are followed, as far as a report examines them.
    pub fn are_all_followed(&self, by: SumBy) -> bool {
        self.all.len() <= MOST_SURVEYED && self.surveyed(by).count() == self.followed[by as usize].len()
    }

    /// Returns the events of the sums that were not followed.
    pub fn others(&self, by: SumBy) -> &Tally {
        &self.others[by as usize]
    }

    /// Counts a job of a tube with these sums out of a state and into another.
    #[inline]
    pub fn shift(&mut self, sums: [SumId; 2], from: Option<JobState>, to: Option<JobState>) {
        for id in sums {
            let counts = &mut self.all[id.index()].counts;
            if let Some(from) = from {
                counts[from as usize] -= 1;
            }
            if let Some(to) = to {
                counts[to as usize] += 1;
            }
        }
    }

    /// Changes the sums of a tube.
    pub fn change(&mut self, sums: [SumId; 2], mut change: impl FnMut(&mut Sum)) {
        sums.into_iter().for_each(|id| change(&mut self.all[id.index()]));
    }

    /// Changes the tally of a sum, if it has one of its own.
    fn change_tally(&mut self, id: SumId, change: impl FnOnce(&mut Tally)) {
        if let Some(own) = &mut self.all[id.index()].own {
            self.tally_bytes -= own.tally.bytes();
            change(&mut own.tally);
            self.tally_bytes += own.tally.bytes();
        }
    }

    /// Notes the text of a failure in a tube with these sums.
    pub fn note_error(&mut self, sums: [SumId; 2], error: &Option<Box<LastError>>) {
        sums.into_iter().for_each(|id| self.change_tally(id, |tally| tally.last_error.clone_from(error)));
    }

    /// Counts an event of a tube with these sums.
    pub fn note(&mut self, sums: [SumId; 2], noted: Noted, now: Time) {
        for id in sums {
            let sum = &mut self.all[id.index()];
            if let Some(own) = &mut sum.own {
                self.tally_bytes += own.tally.note(noted, now);
            }
            if sum.followed_from.is_none() {
                self.others[sum.by as usize].note(noted, now);
            }
        }
    }

    /// Moves a tube with these sums in their orders of ages.
    pub fn move_age(&mut self, id: TubeId, sums: [SumId; 2], old: Option<u32>, new: Option<u32>) {
        for sum in sums {
            let Some(own) = &mut self.all[sum.index()].own else { continue };
            if let Some(old) = old {
                own.ages.remove(&(old, id));
            }
            if let Some(new) = new {
                own.ages.insert((new, id));
            }
        }
    }

    /// Returns the sums that a handover needs: all that have events of their own or are followed.
    pub fn to_save(&self) -> impl Iterator<Item = &Sum> {
        let has_events = |sum: &Sum| sum.own.as_ref().is_some_and(|own| own.tally.has_events());
        self.iter().map(|(_, sum)| sum).filter(move |sum| has_events(sum) || sum.followed_from.is_some())
    }

    /// Adds the events of a tube from before it was added.
    pub fn add(&mut self, sums: [SumId; 2], tally: &Tally, now: Time) {
        sums.into_iter().for_each(|id| self.change_tally(id, |own| own.add(tally, now)));
    }

    /// Sets the events of the sums that were not followed, and the time of the next choice. No sum is followed then.
    pub fn restore_others(&mut self, by: SumBy, tally: Tally, next_choice: Time) {
        for id in std::mem::take(&mut self.followed[by as usize]) {
            self.all[id.index()].followed_from = None;
        }
        self.others[by as usize] = tally;
        self.next_choice = next_choice;
    }

    /// Sets the tally of a sum, if it had one of its own, and the counts from which it is followed, if it is. Called after
    /// [`Sums::restore_others`]. If too many are followed then, the next choice drops some.
    pub fn restore<'a>(
        &mut self,
        (by, name): (SumBy, &[u8]),
        tally: Option<Box<Tally>>,
        followed_from: Option<[u64; 2]>,
        part_of: impl Fn(TubeId) -> Part<'a>,
    ) {
        let Some(id) = self.id_of(by, name) else { return };
        if let Some(tally) = tally {
            self.share(id, &part_of);
            self.change_tally(id, |own| *own = *tally);
        }
        if followed_from.is_some() {
            self.followed[by as usize].insert(id);
            self.all[id.index()].followed_from = followed_from.map(Box::new);
        }
    }

    /// Compares the tables with each other, and panics if they differ.
    pub fn check(&self) {
        assert_eq!(self.names.len(), self.all.len(), "each sum has a name");
        let tally_bytes = self.all.iter().filter_map(|(_, sum)| Some(sum.own.as_ref()?.tally.bytes())).sum::<usize>();
        assert_eq!(self.tally_bytes, tally_bytes, "bytes of tallies are counted");
        for by in SumBy::ALL {
            let followed = self.iter().filter(|(_, sum)| sum.by == by && sum.followed_from.is_some());
            assert!(
                self.followed[by as usize].iter().copied().eq(followed.map(|(id, _)| id)),
                "a followed sum is in the list of followed sums"
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
    fn new(by: SumBy, name: &[u8], hash: Hash, is_followed: bool) -> Sum {
        Sum {
            by,
            name: name.into(),
            hash,
            tubes: Sorted::default(),
            counts: [0; 4],
            retrying: 0,
            own: None,
            followed_from: is_followed.then(Box::default),
        }
    }

    /// Returns its only tube, if it never had a second one.
    pub fn only(&self) -> Option<TubeId> {
        self.tubes.first().copied().filter(|_| self.own.is_none())
    }

    /// Returns the tally of its events. `part_of` returns the tally of a tube.
    pub fn tally<'a, 'p: 'a>(&'a self, part_of: impl Fn(TubeId) -> Part<'p>) -> &'a Tally {
        match &self.own {
            Some(own) => &own.tally,
            None => part_of(*self.tubes.first().expect("a sum has a tube")).0,
        }
    }
}

/// Returns the position of a moment in the order of ages.
pub(in crate::state) fn age_of(at: Time) -> u32 {
    u32::try_from(at.as_micros() >> AGE_BITS).unwrap_or(u32::MAX)
}
