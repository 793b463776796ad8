//! Queries for the health of the jobs: last parts that are late, fail or have buried jobs, and runners with long holds.

use crate::state::State;
use crate::state::sums::{Part, SumBy};
use crate::state::views::RunnerConn;
use poolcounter_core::{Metered as _, Span, Time};

/// Jobs of the tubes with the same last part.
pub struct PartHealth<'a> {
    /// Its figures.
    pub part: Part<'a>,
    /// Age of the oldest ready job.
    pub oldest: Span,
    /// Tube of that job, or any of them if none is ready.
    pub tube: &'a [u8],
}

impl State {
    /// Returns the last parts at the `most` positions from `first` on, and the next position.
    pub fn parts_health(&self, first: usize, most: usize, now: Time) -> (Vec<PartHealth<'_>>, Option<usize>) {
        let (sums, next) = self.tubes.sums.slice(SumBy::LastPart, first, most);
        let health = sums.metered().map(|sum| {
            let (part, oldest) = (self.tubes.part(sum), self.tubes.by_age(sum).next());
            let tube = oldest.or(sum.tubes().next().map(|tube| &self.tubes[tube])).map_or(part.name, |tube| &tube.name);
            PartHealth { part, oldest: oldest.map_or(Span::ZERO, |tube| self.oldest_of(tube, now)), tube }
        });
        (health.collect(), next)
    }

    /// Returns the connections at the `most` positions from `first` on whose first job was held for longer than `than`,
    /// and the next position.
    pub fn held_for(&self, than: Span, first: usize, most: usize, now: Time) -> (Vec<RunnerConn<'_>>, Option<usize>) {
        let (conns, next) = self.conns.slice(first, most);
        let held =
            conns.metered().filter(|(_, conn)| conn.first_held().is_some_and(|(_, since)| now.since(since) > than));
        (held.map(|(id, conn)| self.runner_conn(id, conn, now)).collect(), next)
    }
}
