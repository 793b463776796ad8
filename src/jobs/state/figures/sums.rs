//! Sums over tubes whose names have the same first part, and over tubes with the same last part, updated as jobs move,
//! so that showing them costs the same at any number of tubes and jobs.
//!
//! Cost: an event of a job adds to its tube and to two sums. If the first ready job of its tube changes to one of
//! another second, the tube moves in the order of ages of two sums. At most [`MOST_FOLLOWED`] first parts and as many
//! last parts are followed: they have curves, and metrics of their own. Events of the other parts are counted under
//! `other` as well.

use crate::state::JobState;
use crate::state::ids::TubeId;
use crate::state::tally::{LastError, Noted, Rated, Tally};
use poolcounter_core::count::Count;
use poolcounter_core::id::{Id, id};
use poolcounter_core::meter::Metered as _;
use poolcounter_core::sorted::Sorted;
use poolcounter_core::time::{Span, Time};
use poolcounter_protocol::jobs::name::{first_part, last_part};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Index;

/// Number of tubes or connections that a report examines: a few milliseconds. Counts and rates include all.
pub(in crate::state) const MOST_SURVEYED: usize = 32_768;

/// Most first parts that are followed, and most last parts: as many as a page of metrics has room for.
const MOST_FOLLOWED: usize = 256;
/// Time between two choices of the followed sums.
const CHOICE_INTERVAL: Span = Span::from_secs(30);
/// Number of sums that a step surveys for a choice, followed or not.
const SURVEYED_AT_ONCE: usize = 1024;
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

/// Sum of the tubes with one first part, or one last part. It exists as long as one of them does, hidden or not.
pub(in crate::state) struct Sum {
    pub by: SumBy,
    pub name: Box<[u8]>,
    pub tubes: BTreeSet<TubeId>,
    /// Tubes with ready jobs, by the time since which the first of these is ready, in units of about a second; perhaps
    /// one without.
    pub ages: Sorted<(u64, TubeId)>,
    /// Jobs by [`JobState`].
    pub counts: [u64; 4],
    /// Delayed jobs that wait to be tried again.
    pub retrying: u64,
    pub tally: Tally,
    /// Puts and deletes at the time from which it is followed and its curves count; None if it is not followed.
    pub followed_from: Option<[u64; 2]>,
}

/// Sums by every first part and every last part.
#[derive(Default)]
pub(in crate::state) struct Sums {
    all: Slab<Sum>,
    names: BTreeMap<(SumBy, Box<[u8]>), SumId>,
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

/// Survey of all sums for a choice, continued by one step after another.
#[derive(Default)]
struct Survey {
    /// Time of its last part: requests that are served together survey one.
    at: Time,
    /// Position of the next sum.
    next: usize,
    /// Sums with the most puts so far, the fewest first, by first and by last part.
    largest: [BTreeSet<(Count, SumId)>; 2],
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

    /// Returns the sums of a tube, and adds the tube to them.
    pub fn enter(&mut self, id: TubeId, tube: &[u8]) -> [SumId; 2] {
        Sums::of(tube).map(|(by, name)| {
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

    /// Removes a tube from its sums. The last one removes the sum.
    pub fn leave(&mut self, id: TubeId, sums: [SumId; 2]) {
        for sum in sums {
            self.all[sum.index()].tubes.remove(&id);
            if self.all[sum.index()].tubes.is_empty() {
                let Sum { by, name, tally, .. } = self.all.remove(sum.index());
                self.tally_bytes -= tally.bytes();
                self.followed[by as usize].remove(&sum);
                self.names.remove(&(by, name));
            }
        }
    }

    /// Returns the sum with this name.
    pub fn find(&self, by: SumBy, name: &[u8]) -> Option<&Sum> {
        self.names.get(&(by, name.into())).map(|id| &self.all[id.index()])
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

    fn change_tally(&mut self, id: SumId, change: impl FnOnce(&mut Tally)) {
        let tally = &mut self.all[id.index()].tally;
        self.tally_bytes -= tally.bytes();
        change(tally);
        self.tally_bytes += tally.bytes();
    }

    /// Notes the text of a failure in a tube with these sums.
    pub fn note_error(&mut self, sums: [SumId; 2], error: &Option<Box<LastError>>) {
        sums.into_iter().for_each(|id| self.change_tally(id, |tally| tally.last_error.clone_from(error)));
    }

    /// Counts an event of a tube with these sums.
    pub fn note(&mut self, sums: [SumId; 2], noted: Noted, now: Time) {
        for id in sums {
            let sum = &mut self.all[id.index()];
            self.tally_bytes += sum.tally.note(noted, now);
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
            if let Some(new) = new {
                ages.insert((new, id));
            }
        }
    }

    /// Returns the sums that a handover needs: all that have events or are followed.
    pub fn to_save(&self) -> impl Iterator<Item = &Sum> {
        self.iter().map(|(_, sum)| sum).filter(|sum| sum.tally.has_events() || sum.followed_from.is_some())
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

    /// Sets the tally of a sum, and the counts from which it is followed, if it is. Called after
    /// [`Sums::restore_others`]. If too many are followed then, the next choice drops some.
    pub fn restore(&mut self, by: SumBy, name: &[u8], tally: Tally, followed_from: Option<[u64; 2]>) {
        let Some(id) = self.names.get(&(by, name.into())).copied() else { return };
        self.change_tally(id, |own| *own = tally);
        if followed_from.is_some() {
            self.followed[by as usize].insert(id);
            self.all[id.index()].followed_from = followed_from;
        }
    }

    /// Surveys some more sums if a choice is due, and chooses the followed sums after the last. Called before each
    /// step; no timer is armed for it.
    pub fn choose_if_due(&mut self, now: Time) {
        if now < self.next_choice || now <= std::mem::replace(&mut self.survey.at, now) || !self.survey_some() {
            return;
        }
        let passed = now.since(self.next_choice).as_micros() / CHOICE_INTERVAL.as_micros();
        let interval = CHOICE_INTERVAL.as_micros().saturating_mul(passed.saturating_add(1));
        self.next_choice = self.next_choice + Span::from_micros(interval);
        let largest = std::mem::take(&mut self.survey).largest;
        SumBy::ALL.into_iter().zip(largest).for_each(|(by, largest)| self.choose(by, largest));
    }

    /// Continues the survey. Returns true after the last sum.
    fn survey_some(&mut self) -> bool {
        let Survey { next, largest, .. } = &mut self.survey;
        let end = self.all.capacity().min(*next + SURVEYED_AT_ONCE);
        for place in (*next..end).metered() {
            let Some(sum) = self.all.get(place) else { continue };
            let largest = &mut largest[sum.by as usize];
            largest.insert((sum.puts(), SumId::from_index(place)));
            if largest.len() > MOST_FOLLOWED {
                largest.pop_first();
            }
        }
        *next = end;
        end == self.all.capacity()
    }

    /// Follows the sums with the most puts, among these and the followed sums.
    fn choose(&mut self, by: SumBy, largest: BTreeSet<(Count, SumId)>) {
        // A surveyed sum may have ended, and another one have its id.
        let is_there = |id: &SumId| self.all.get(id.index()).is_some_and(|sum| sum.by == by);
        let surveyed: BTreeSet<SumId> = largest.into_iter().map(|(_, id)| id).filter(is_there).collect();
        let puts = |id: &SumId| (self.all[id.index()].puts(), *id);
        let mut puts: Vec<(Count, SumId)> = surveyed.union(&self.followed[by as usize]).metered().map(puts).collect();
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

    /// Compares the tables with each other, and panics if they differ.
    pub fn check(&self) {
        assert_eq!(self.names.len(), self.all.len(), "each sum has a name");
        let tally_bytes = self.all.iter().map(|(_, sum)| sum.tally.bytes()).sum::<usize>();
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
    fn new(by: SumBy, name: &[u8], is_followed: bool) -> Sum {
        Sum {
            by,
            name: name.into(),
            tubes: BTreeSet::new(),
            ages: Sorted::default(),
            counts: [0; 4],
            retrying: 0,
            tally: Tally::default(),
            followed_from: is_followed.then_some([0; 2]),
        }
    }

    fn puts(&self) -> Count {
        self.tally.events[Rated::Put as usize]
    }
}

/// Returns the position of a moment in the order of ages.
pub(in crate::state) fn age_of(at: Time) -> u64 {
    at.as_micros() >> AGE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::meter;

    /// Among very many sums the one with the most puts is followed, wherever it is, after a survey in slices.
    #[test]
    fn followed_sums_are_chosen_among_very_many_in_slices() {
        const MANY: usize = 100_000;
        let (mut sums, now) = (Sums::default(), Time::START + CHOICE_INTERVAL);
        let enter = |n: usize, sums: &mut Sums| sums.enter(TubeId::from_index(n), format!("w{n}/t").as_bytes());
        let entered: Vec<[SumId; 2]> = (0..MANY).map(|n| enter(n, &mut sums)).collect();
        let last = entered[MANY - 1];
        sums.choose_if_due(now);
        sums.note(last, Noted::Put, now);
        let needed = sums.to_save().filter(|sum| sum.followed_from.is_none());
        assert_eq!(needed.count(), 1, "a handover needs no sums without events");
        let mut steps = 0;
        while sums[last[0]].followed_from.is_none() {
            if steps == 3 {
                sums.leave(TubeId::from_index(0), entered[0]);
            }
            meter::begin_step();
            steps += 1;
            for _request in 0..9 {
                sums.choose_if_due(now + CHOICE_INTERVAL + Span::from_micros(steps));
            }
            assert!(meter::begin_step() <= meter::MOST_IN_A_STEP);
        }
        assert!(steps > (MANY / SURVEYED_AT_ONCE) as u64, "{steps}");
        assert_eq!(sums.followed(SumBy::FirstPart).count(), MOST_FOLLOWED);
        sums.check();
    }
}
