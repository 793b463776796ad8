//! Choice of the sums that are followed: the sums with the most puts, surveyed in slices.

use super::{MOST_FOLLOWED, Part, SumBy, SumId, Sums};
use crate::state::ids::TubeId;
use crate::state::tally::{Counted, Tally};
use poolcounter_core::{Count, Id, Metered as _, Span, Time};
use std::collections::BTreeSet;

/// Time between two choices of the followed sums.
const CHOICE_INTERVAL: Span = Span::from_secs(30);
/// Number of sums that a step surveys for a choice, followed or not. The same step may give back a slice of jobs of a
/// closed connection, and looks at three entries for each job.
const SURVEYED_AT_ONCE: usize = 512;

/// Survey of all sums for a choice, continued by one step after another.
#[derive(Default)]
pub(super) struct Survey {
    /// Time of its last part: requests that are served together survey one.
    at: Time,
    /// Position of the next sum.
    next: usize,
    /// Sums with the most puts so far, the fewest first, by first and by last part.
    largest: [BTreeSet<(Count, SumId)>; 2],
}

impl Sums {
    /// Surveys some more sums if a choice is due, and chooses the followed sums after the last. Called before each
    /// step; no timer is armed for it.
    pub fn choose_if_due<'a>(&mut self, now: Time, part_of: impl Fn(TubeId) -> Part<'a>) {
        if now < self.next_choice || now <= std::mem::replace(&mut self.survey.at, now) || !self.survey_some(&part_of) {
            return;
        }
        let passed = now.since(self.next_choice).as_micros() / CHOICE_INTERVAL.as_micros();
        let interval = CHOICE_INTERVAL.as_micros().saturating_mul(passed.saturating_add(1));
        self.next_choice = self.next_choice + Span::from_micros(interval);
        let largest = std::mem::take(&mut self.survey).largest;
        SumBy::ALL.into_iter().zip(largest).for_each(|(by, largest)| self.choose(by, largest, &part_of));
    }

    /// Continues the survey. Returns true after the last sum.
    fn survey_some<'a>(&mut self, part_of: &impl Fn(TubeId) -> Part<'a>) -> bool {
        let Survey { next, largest, .. } = &mut self.survey;
        let end = self.all.capacity().min(*next + SURVEYED_AT_ONCE);
        for place in (*next..end).metered() {
            let Some(sum) = self.all.get(place) else { continue };
            let largest = &mut largest[sum.by as usize];
            largest.insert((puts_of(sum.part(part_of).tally), SumId::from_index(place)));
            if largest.len() > MOST_FOLLOWED {
                largest.pop_first();
            }
        }
        *next = end;
        end == self.all.capacity()
    }

    /// Follows the sums with the most puts, among these and the followed sums.
    fn choose<'a>(&mut self, by: SumBy, largest: BTreeSet<(Count, SumId)>, part_of: &impl Fn(TubeId) -> Part<'a>) {
        // A surveyed sum may have ended, and another one have its id.
        let is_there = |id: &SumId| self.all.get(id.index()).is_some_and(|sum| sum.by == by);
        let surveyed: BTreeSet<SumId> = largest.into_iter().map(|(_, id)| id).filter(is_there).collect();
        let puts = |id: &SumId| (puts_of(self.all[id.index()].part(part_of).tally), *id);
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
            sum.followed_from = Some(Box::new(sum.part(part_of).tally.puts_and_deletes()));
        }
    }
}

fn puts_of(tally: &Tally) -> Count {
    tally.counts[Counted::Put as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::meter;

    fn part<'a>(names: &'a [String], tallies: &'a [Tally], tube: TubeId) -> Part<'a> {
        let name = names[tube.index()].as_bytes();
        Part { name, counts: [0; 4], retrying: 0, tally: &tallies[tube.index()], age: None }
    }

    /// Among very many sums the one with the most puts is followed, wherever it is, after a survey in slices.
    #[test]
    fn followed_sums_are_chosen_among_very_many_in_slices() {
        const MANY: usize = 100_000;
        let (mut sums, now) = (Sums::default(), Time::START + CHOICE_INTERVAL);
        let mut tallies = vec![Tally::default(); MANY];
        let names: Vec<String> = (0..MANY).map(|n| format!("w{n}/t")).collect();
        let enter = |n: usize, sums: &mut Sums| {
            sums.enter(TubeId::from_index(n), names[n].as_bytes(), |tube| part(&names, &tallies, tube))
        };
        let entered: Vec<[SumId; 2]> = (0..MANY).map(|n| enter(n, &mut sums)).collect();
        let last = entered[MANY - 1];
        tallies[MANY - 1].note((Counted::Put, None), now);
        sums.choose_if_due(now, |tube| part(&names, &tallies, tube));
        sums.shift(last, [None; 2], Some((Counted::Put, None)), now);
        let needed = sums.to_save().filter(|sum| sum.followed_from.is_none());
        assert_eq!(needed.count(), 0, "a handover needs no sums without events of their own");
        let mut steps = 0;
        while sums[last[0]].followed_from.is_none() {
            if steps == 3 {
                sums.leave(TubeId::from_index(0), entered[0]);
            }
            meter::begin_step();
            steps += 1;
            for _request in 0..9 {
                let now = now + CHOICE_INTERVAL + Span::from_micros(steps);
                sums.choose_if_due(now, |tube| part(&names, &tallies, tube));
            }
            assert!(meter::begin_step() <= meter::MOST_IN_A_STEP);
        }
        assert!(steps > (MANY / SURVEYED_AT_ONCE) as u64, "{steps}");
        assert_eq!(sums.followed(SumBy::FirstPart).count(), MOST_FOLLOWED);
        sums.check();
    }
}
