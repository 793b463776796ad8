//! Sums over tubes whose names have the same first part, and over tubes with the same last part, updated as jobs move,
//! so that showing them costs the same at any number of tubes and jobs.
//!
//! Cost: an event of a job adds to its tube and to two sums. A sum that never had a second tube has the figures of that
//! tube, and none of its own. If the first ready job of its tube changes to one of another second, the tube moves in the
//! order of ages of two sums. At most [`MOST_FOLLOWED`] first parts and as many last parts are followed: they have
//! curves, and metrics of their own. Events of the other parts are counted under `other` as well.

mod choice;

use crate::state::JobState;
use crate::state::ids::TubeId;
use crate::state::tally::{LastError, Noted, Tally};
use choice::Survey;
use poolcounter_core::id::{id, index_by};
use poolcounter_core::names::Hash;
use poolcounter_core::{Id, Names, Sorted, Time};
use poolcounter_protocol::jobs::name::{first_part, last_part};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::BTreeSet;

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

/// Name and figures of a tube, or of a sum.
pub struct Part<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Jobs by [`JobState`].
    pub counts: [u64; 4],
    /// Delayed jobs that wait to be tried again.
    pub retrying: u64,
    /// Events.
    pub tally: &'a Tally,
    /// Position of a tube in the order of ages.
    pub(in crate::state) age: Option<u32>,
}

/// Sum of the tubes with one first part, or one last part. It exists as long as one of them does, hidden or not.
pub(in crate::state) struct Sum {
    pub by: SumBy,
    hash: Hash,
    /// Its first tube: the only one while it has no figures of its own.
    only: TubeId,
    /// None while it never had a second tube: then the figures of its tube count.
    pub own: Option<Box<Own>>,
    /// Puts and deletes at the time from which it is followed and its curves count; None if it is not followed.
    pub followed_from: Option<Box<[u64; 2]>>,
}

/// Name, tubes and figures of a sum of several tubes.
pub(in crate::state) struct Own {
    name: Box<[u8]>,
    tubes: Sorted<TubeId>,
    counts: [u64; 4],
    pub retrying: u64,
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
    /// Returns the number of sums that do not exist and would with these tubes. `part_of` returns the figures of a tube,
    /// here and below.
    pub fn new_with<'a, 'p>(
        &self,
        tubes: impl Iterator<Item = &'a [u8]>,
        part_of: impl Fn(TubeId) -> Part<'p>,
    ) -> usize {
        let of = |tube: &'a [u8]| SumBy::ALL.map(|by| (by, by.part(tube)));
        let sums: BTreeSet<(SumBy, &[u8])> = tubes.flat_map(of).collect();
        sums.into_iter().filter(|(by, name)| self.find(*by, name, &part_of).is_none()).count()
    }

    /// Returns the sums of a tube, and adds the tube to them.
    pub fn enter<'p>(&mut self, id: TubeId, tube: &[u8], part_of: impl Fn(TubeId) -> Part<'p>) -> [SumId; 2] {
        SumBy::ALL.map(|by| {
            if let Some(sum) = self.find(by, by.part(tube), &part_of) {
                self.share(sum, &part_of).tubes.insert(id);
                return sum;
            }
            let hash = self.names.hash(by.part(tube));
            let followed = &mut self.followed[by as usize];
            let is_followed = followed.len() < MOST_FOLLOWED;
            let new = Sum { by, hash, only: id, own: None, followed_from: is_followed.then(Box::default) };
            let sum = SumId::from_index(self.all.insert(new));
            followed.extend(is_followed.then_some(sum));
            self.names.insert(hash, sum, |sum| self.all[sum.index()].hash);
            sum
        })
    }

    /// Gives a sum figures of its own, if it has none, and returns them.
    fn share<'p>(&mut self, id: SumId, part_of: &impl Fn(TubeId) -> Part<'p>) -> &mut Own {
        let Sum { by, only, own, .. } = &mut self.all[id.index()];
        own.get_or_insert_with(|| {
            let Part { name, counts, retrying, tally, age } = part_of(*only);
            self.tally_bytes += tally.bytes();
            let mut own = Own {
                name: by.part(name).into(),
                tubes: Sorted::default(),
                counts,
                retrying,
                tally: tally.clone(),
                ages: Sorted::default(),
            };
            own.tubes.insert(*only);
            age.into_iter().for_each(|age| _ = own.ages.insert((age, *only)));
            Box::new(own)
        })
    }

    /// Returns the sum with this name.
    pub fn find<'p>(&self, by: SumBy, name: &[u8], part_of: &impl Fn(TubeId) -> Part<'p>) -> Option<SumId> {
        let hash = self.names.hash(name);
        self.names.find(hash, |id| {
            let sum = &self.all[id.index()];
            sum.by == by && sum.hash == hash && *sum.part(part_of).name == *name
        })
    }

    /// Removes a tube from its sums. The last one removes the sum.
    pub fn leave(&mut self, id: TubeId, sums: [SumId; 2]) {
        for sum in sums {
            let own = &mut self.all[sum.index()].own;
            if own.as_mut().is_none_or(|own| own.tubes.remove(&id) && own.tubes.is_empty()) {
                let Sum { by, hash, own, .. } = self.all.remove(sum.index());
                self.tally_bytes -= own.map_or(0, |own| own.tally.bytes());
                self.followed[by as usize].remove(&sum);
                self.names.remove(hash, sum);
                let Sums { names, all, .. } = self;
                names.shrink(|sum| all[sum.index()].hash);
            }
        }
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

    /// Returns the events of the sums that were not followed.
    pub fn others(&self, by: SumBy) -> &Tally {
        &self.others[by as usize]
    }

    /// Counts a job of a tube with these sums out of a state and into another, and an event of the tube. Returns whether
    /// one of the sums has the figures of that tube alone.
    #[inline]
    pub fn shift(
        &mut self,
        sums: [SumId; 2],
        [from, to]: [Option<JobState>; 2],
        noted: Option<Noted>,
        now: Time,
    ) -> bool {
        let mut shift = |id: SumId| {
            let Sum { by, own, followed_from, .. } = &mut self.all[id.index()];
            if let Some(noted) = noted.filter(|_| followed_from.is_none()) {
                self.others[*by as usize].note(noted, now);
            }
            let Some(own) = own else { return true };
            if let Some(from) = from {
                own.counts[from as usize] -= 1;
            }
            if let Some(to) = to {
                own.counts[to as usize] += 1;
            }
            self.tally_bytes += noted.map_or(0, |noted| own.tally.note(noted, now));
            false
        };
        // A loop over both takes 40 instructions more.
        shift(sums[0]) | shift(sums[1])
    }

    /// Changes the figures that the sums of a tube have of their own.
    pub fn change(&mut self, sums: [SumId; 2], mut change: impl FnMut(&mut Own)) {
        for id in sums {
            if let Some(own) = &mut self.all[id.index()].own {
                change(own);
            }
        }
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

    /// Moves a tube with these sums in their orders of ages.
    pub fn move_age(&mut self, id: TubeId, sums: [SumId; 2], old: Option<u32>, new: Option<u32>) {
        self.change(sums, |own| {
            if let Some(old) = old {
                own.ages.remove(&(old, id));
            }
            if let Some(new) = new {
                own.ages.insert((new, id));
            }
        });
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
        let Some(id) = self.find(by, name, &part_of) else { return };
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

index_by!(SumId => Sums.all: Sum);

impl SumBy {
    /// Both kinds.
    pub const ALL: [SumBy; 2] = [SumBy::FirstPart, SumBy::LastPart];

    /// Returns this part of the name of a tube.
    fn part(self, tube: &[u8]) -> &[u8] {
        match self {
            SumBy::FirstPart => first_part(tube),
            SumBy::LastPart => last_part(tube),
        }
    }
}

impl Sum {
    /// Returns the number of its tubes.
    pub fn len(&self) -> usize {
        self.own.as_ref().map_or(1, |own| own.tubes.len())
    }

    /// Returns its tubes.
    pub fn tubes(&self) -> impl Iterator<Item = TubeId> {
        let several = self.own.iter().flat_map(|own| own.tubes.iter().copied());
        several.chain(self.own.is_none().then_some(self.only))
    }

    /// Returns its tubes with ready jobs, perhaps with one without: the one with the oldest first.
    pub fn by_age(&self) -> impl Iterator<Item = TubeId> {
        let several = self.own.iter().flat_map(|own| own.ages.iter().map(|(_, tube)| *tube));
        several.chain(self.own.is_none().then_some(self.only))
    }

    /// Returns its name and its figures.
    pub fn part<'a, 'p: 'a>(&'a self, part_of: impl Fn(TubeId) -> Part<'p>) -> Part<'a> {
        match &self.own {
            Some(own) => {
                let Own { name, counts, retrying, tally, .. } = &**own;
                Part { name, counts: *counts, retrying: *retrying, tally, age: None }
            }
            None => {
                let part = part_of(self.only);
                Part { name: self.by.part(part.name), ..part }
            }
        }
    }
}

/// Returns the position of a moment in the order of ages.
pub(in crate::state) fn age_of(at: Time) -> u32 {
    u32::try_from(at.as_micros() >> AGE_BITS).unwrap_or(u32::MAX)
}
