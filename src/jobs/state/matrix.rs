//! Wikis against types: how many ready jobs there are of each type in each wiki, and how old the oldest is. The worst come first:
//! those that are about twice as late as others, and of those that are about as late the ones with more jobs. What is not shown is
//! summed up, so that what is shown and the rest are all that there is.
//!
//! Cost: a look at each wiki and each type, of `MOST_SURVEYED` at most, and at the tubes with ready jobs of the wikis that are shown,
//! `MOST_TUBES` in all.

use super::State;
use super::queries::MOST_SURVEYED;
use super::sums::{Sum, SumBy, SumId};
use poolcounter_core::id::Id;
use poolcounter_core::time::{Span, Time};
use std::collections::BTreeMap;

/// How many tubes are looked at: some two milliseconds.
const MOST_TUBES: usize = 16_384;

/// How many ready jobs there are, and for how long the oldest is ready.
pub type Heat = (u64, Span);

/// The matrix. A line has a value for each column, one for all other types, and one for all types.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobMatrix {
    /// The types, worst first.
    pub columns: Vec<Vec<u8>>,
    /// The wikis, worst first, with their lines.
    pub rows: Vec<(Vec<u8>, Vec<Heat>)>,
    /// The line of all other wikis.
    pub others: Vec<Heat>,
    /// The line of all wikis.
    pub all: Vec<Heat>,
    /// How many wikis and how many types with ready jobs are not shown by themselves.
    pub folded: [usize; 2],
}

/// A wiki or a type with ready jobs.
struct Late {
    id: SumId,
    heat: Heat,
}

/// A matrix in the making.
struct Maker<'a> {
    state: &'a State,
    now: Time,
    /// The place of each type that is shown.
    places: BTreeMap<SumId, usize>,
    /// How many more tubes may be looked at.
    budget: usize,
}

impl State {
    /// Returns the matrix of so many wikis and so many types at most.
    pub fn matrix(&self, most_wikis: usize, most_types: usize, now: Time) -> JobMatrix {
        let (wikis, types) = (self.worst(SumBy::Wiki, now), self.worst(SumBy::Type, now));
        let shown_types = types.len().min(most_types);
        let places = types[..shown_types].iter().enumerate().map(|(place, late)| (late.id, place)).collect();
        let mut maker = Maker { state: self, now, places, budget: MOST_TUBES };
        let mut rows = Vec::new();
        for late in wikis.iter().take(most_wikis) {
            if maker.budget == 0 {
                break;
            }
            let sum = &self.sums.all[late.id.index()];
            rows.push((sum.name.to_vec(), maker.line_of(sum, late.heat)));
        }
        let mut all: Vec<Heat> = types[..shown_types].iter().map(|late| late.heat).collect();
        all.push((self.ready - all.iter().map(|(ready, _)| ready).sum::<u64>(), oldest_of(&types[shown_types..])));
        all.push((self.ready, oldest_of(&wikis)));
        let others = maker.line_of_others(&rows, &wikis[rows.len()..], &types[..shown_types], &all);
        let folded = [wikis.len() - rows.len(), types.len() - shown_types];
        let columns = types[..shown_types].iter().map(|late| self.sums.all[late.id.index()].name.to_vec()).collect();
        JobMatrix { columns, rows, others, all, folded }
    }

    /// Returns the wikis or types with ready jobs, the worst first.
    fn worst(&self, by: SumBy, now: Time) -> Vec<Late> {
        let sums = self.sums.all.iter().take(MOST_SURVEYED).filter(|(_, sum)| sum.by == by && sum.counts[0] > 0);
        let mut worst: Vec<Late> = sums
            .map(|(place, sum)| Late {
                id: SumId::from_index(place),
                heat: (sum.counts[0], self.oldest_of_sum(sum, now)),
            })
            .collect();
        let badness = |late: &Late| ((late.heat.1.as_micros() / 1_000_000 + 1).ilog2(), late.heat, late.id);
        worst.sort_unstable_by_key(|late| std::cmp::Reverse(badness(late)));
        worst
    }
}

fn oldest_of(late: &[Late]) -> Span {
    late.iter().map(|late| late.heat.1).max().unwrap_or(Span::ZERO)
}

impl Maker<'_> {
    /// Returns the line of a wiki, whose jobs are all these.
    fn line_of(&mut self, wiki: &Sum, all: Heat) -> Vec<Heat> {
        let others = self.places.len();
        let mut line = vec![(0, Span::ZERO); others + 1];
        for (_, id) in wiki.ages.iter().take(self.budget) {
            let tube = &self.state.tubes[id.index()];
            let (ready, age) = &mut line[self.places.get(&tube.sums[1]).copied().unwrap_or(others)];
            *ready += u64::from(tube.waiting.len());
            *age = self.state.oldest_of(tube, self.now).max(*age);
        }
        self.budget = self.budget.saturating_sub(wiki.ages.len());
        // Tubes that were not looked at are among the others.
        line[others].0 = all.0 - line[..others].iter().map(|(ready, _)| ready).sum::<u64>();
        line.push(all);
        line
    }

    /// Returns the line of the wikis that are not shown: of all jobs, those that the lines above do not have.
    fn line_of_others(
        &mut self,
        rows: &[(Vec<u8>, Vec<Heat>)],
        folded: &[Late],
        types: &[Late],
        all: &[Heat],
    ) -> Vec<Heat> {
        let shown = |column: usize| rows.iter().map(|(_, line)| line[column].0).sum::<u64>();
        let mut line: Vec<Heat> =
            (0..all.len()).map(|column| (all[column].0.saturating_sub(shown(column)), Span::ZERO)).collect();
        // The order of ages has the oldest first: the first tube of a wiki that is not shown is the one.
        let folded_ids: std::collections::BTreeSet<SumId> = folded.iter().map(|late| late.id).collect();
        for (column, late) in types.iter().enumerate() {
            let mut tubes = self.state.sums.all[late.id.index()].ages.iter().take(MOST_TUBES).map(|(_, tube)| tube);
            let oldest = tubes.find(|tube| folded_ids.contains(&self.state.tubes[tube.index()].sums[0]));
            line[column].1 =
                oldest.map_or(Span::ZERO, |tube| self.state.oldest_of(&self.state.tubes[tube.index()], self.now));
        }
        let oldest = oldest_of(folded);
        let others = all.len() - 2;
        line[others].1 = all[others].1.min(oldest);
        line[others + 1].1 = oldest;
        line
    }
}
