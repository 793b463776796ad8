//! Matrix of first parts of tubes' names against last parts: number of ready jobs of each pair, and age of the oldest.
//! The worst come first: the oldest, by powers of two of the age in seconds, and among those of one power, by number of
//! jobs and age. Parts that are not shown are summed up, so that the rows and the rest make up the total.
//!
//! Cost: a look at each first and each last part, as many as a report has time for, and at the tubes with ready jobs of
//! the first parts that are shown, `MOST_TUBES` in all.

use crate::JobQueue;
use crate::state::queries::first_in_order;
use crate::state::{State, SumBy, SumId};
use poolcounter_core::text::visible;
use poolcounter_core::{Span, Time};
use poolcounter_service::report::Matrix;
use poolcounter_service::report::matrix::MatrixLine;
use poolcounter_service::report::tables::NAME_BYTES;
use std::collections::{BTreeMap, BTreeSet};

/// Most tubes that are examined: some two milliseconds.
const MOST_TUBES: usize = 16_384;

/// Number of ready jobs, and age of the oldest.
type Heat = (u64, Span);

/// A first or a last part with ready jobs.
struct Late<'a> {
    id: SumId,
    name: &'a [u8],
    heat: Heat,
}

/// A matrix in the making.
struct Maker<'a> {
    state: &'a State,
    now: Time,
    /// Column of each last part that is shown.
    places: BTreeMap<SumId, usize>,
    /// Number of tubes that may still be examined.
    budget: usize,
}

impl JobQueue {
    /// Returns the matrix of the worst first and last parts, at most `most` of each.
    pub(crate) fn matrix(&self, most: [usize; 2], now: Time) -> Matrix {
        let state = &self.state;
        let [firsts, lasts] = SumBy::ALL.map(|by| worst(state, by, most[by as usize], now));
        let shown = lasts.len().min(most[1]);
        let places = lasts[..shown].iter().enumerate().map(|(place, late)| (late.id, place)).collect();
        let mut maker = Maker { state, now, places, budget: MOST_TUBES };
        let mut rows = Vec::new();
        for late in firsts.iter().take(most[0]) {
            if maker.budget == 0 {
                break;
            }
            rows.push((late.name.to_vec(), maker.line_of(late)));
        }
        let ready = state.totals()[2];
        let mut all: Vec<Heat> = lasts[..shown].iter().map(|late| late.heat).collect();
        all.push((ready - all.iter().map(|(ready, _)| ready).sum::<u64>(), oldest_of(&lasts[shown..])));
        all.push((ready, oldest_of(&firsts)));
        let others = maker.line_of_others(&rows, firsts.split_at(rows.len()), &lasts[..shown], &all);
        let [others, all] = [others, all].map(|line| line.into_iter().map(Into::into).collect());
        let line = |(name, line): (Vec<u8>, Vec<Heat>)| MatrixLine {
            name: visible(&name, NAME_BYTES),
            values: line.into_iter().map(Into::into).collect(),
        };
        Matrix {
            columns: lasts[..shown].iter().map(|late| visible(late.name, NAME_BYTES)).collect(),
            more_rows: firsts.len() - rows.len(),
            more_columns: lasts.len() - shown,
            rows: rows.into_iter().map(line).collect(),
            others,
            all,
            ..self.settings.part_names.matrix()
        }
    }
}

/// Returns the first or last parts with ready jobs: the `most` worst in order, then the others.
fn worst(state: &State, by: SumBy, most: usize, now: Time) -> Vec<Late<'_>> {
    let mut worst: Vec<Late<'_>> = state.late_sums(by, now).map(|(id, name, heat)| Late { id, name, heat }).collect();
    let badness = |late: &Late<'_>| ((late.heat.1.as_micros() / 1_000_000 + 1).ilog2(), late.heat, late.id);
    first_in_order(&mut worst, most, |one, other| badness(other).cmp(&badness(one)));
    worst
}

fn oldest_of(late: &[Late<'_>]) -> Span {
    late.iter().map(|late| late.heat.1).max().unwrap_or(Span::ZERO)
}

impl Maker<'_> {
    /// Returns the line of a first part.
    fn line_of(&mut self, first: &Late<'_>) -> Vec<Heat> {
        let others = self.places.len();
        let mut line = vec![(0, Span::ZERO); others + 1];
        for ([_, last], heat) in self.state.late_tubes(first.id, self.now).take(self.budget) {
            let (ready, age) = &mut line[self.places.get(&last).copied().unwrap_or(others)];
            *ready += heat.0;
            *age = heat.1.max(*age);
            self.budget -= 1;
        }
        // Tubes that were not examined count among the others.
        line[others].0 = first.heat.0 - line[..others].iter().map(|(ready, _)| ready).sum::<u64>();
        line.push(first.heat);
        line
    }

    /// Returns the line of the first parts that are not shown: the totals of all jobs minus the lines above.
    fn line_of_others(
        &self,
        rows: &[(Vec<u8>, Vec<Heat>)],
        (shown_rows, folded): (&[Late<'_>], &[Late<'_>]),
        lasts: &[Late<'_>],
        all: &[Heat],
    ) -> Vec<Heat> {
        let shown = |column: usize| rows.iter().map(|(_, line)| line[column].0).sum::<u64>();
        let mut line: Vec<Heat> =
            (0..all.len()).map(|column| (all[column].0.saturating_sub(shown(column)), Span::ZERO)).collect();
        // The oldest tubes come first, so the first one of a hidden first part has the greatest age.
        let shown_ids: BTreeSet<SumId> = shown_rows.iter().map(|late| late.id).collect();
        for (column, late) in lasts.iter().enumerate() {
            let mut tubes = self.state.late_tubes(late.id, self.now).take(MOST_TUBES);
            let oldest = tubes.find(|([first, _], _)| !shown_ids.contains(first));
            line[column].1 = oldest.map_or(Span::ZERO, |(_, (_, age))| age);
        }
        let oldest = oldest_of(folded);
        let others = all.len() - 2;
        line[others].1 = all[others].1.min(oldest);
        line[others + 1].1 = oldest;
        line
    }
}
