//! Queries for the health of the jobs: last parts that are late, fail or have buried jobs, and runners with long holds.

use crate::state::conns::Conn;
use crate::state::sums::{Part, Sum, SumBy};
use crate::state::{JobState, State};
use poolcounter_core::count::Count;
use poolcounter_core::id::ConnId;
use poolcounter_core::meter::Metered as _;
use poolcounter_core::time::{Span, Time};

/// Jobs of the tubes with the same last part.
pub struct PartHealth<'a> {
    /// The last part.
    pub name: &'a [u8],
    /// Ready jobs.
    pub ready: u64,
    /// Buried jobs.
    pub buried: u64,
    /// Reserved jobs.
    pub reserved: u64,
    /// Age of the oldest ready job.
    pub oldest: Span,
    /// Tube of that job, or any of them if none is ready.
    pub tube: &'a [u8],
    /// Reservations, jobs done, and attempts that failed.
    pub events: [u64; 3],
}

/// A connection that holds a job.
pub struct HeldJob<'a> {
    /// The connection.
    pub conn: ConnId,
    /// Name given by the client; empty without one.
    pub runner: &'a [u8],
    /// Number of the job whose time to run ends first.
    pub job: u64,
    /// Tube of that job.
    pub tube: &'a [u8],
    /// Time since its reservation.
    pub span: Span,
}

impl State {
    /// Returns the last parts at the `most` positions from `first` on, and the next position.
    pub fn parts_health(&self, first: usize, most: usize, now: Time) -> (Vec<PartHealth<'_>>, Option<usize>) {
        let (sums, next) = self.tubes.sums.slice(SumBy::LastPart, first, most);
        (sums.metered().map(|sum| self.part_health(sum, now)).collect(), next)
    }

    fn part_health<'a>(&'a self, sum: &'a Sum, now: Time) -> PartHealth<'a> {
        let Part { name, counts, tally, .. } = self.tubes.part(sum);
        let [_, reserves, deletes] = tally.events;
        let oldest = self.tubes.by_age(sum).next();
        let tube = oldest.or(sum.tubes().next().map(|tube| &self.tubes[tube]));
        PartHealth {
            name,
            ready: counts[JobState::Ready as usize],
            buried: counts[JobState::Buried as usize],
            reserved: counts[JobState::Reserved as usize],
            oldest: oldest.map_or(Span::ZERO, |tube| self.oldest_of(tube, now)),
            tube: tube.map_or(name, |tube| &tube.name),
            events: [reserves, deletes, tally.failures].map(Count::get),
        }
    }

    /// Returns the jobs that connections at the `most` positions from `first` on have held for longer than `than`, and
    /// the next position.
    pub fn held_for<'a>(
        &'a self,
        than: Span,
        first: usize,
        most: usize,
        now: Time,
    ) -> (Vec<HeldJob<'a>>, Option<usize>) {
        let (conns, next) = self.conns.slice(first, most);
        let held = |(conn, of): (ConnId, &'a Conn)| -> Option<HeldJob<'a>> {
            let (job, since) = of.first_held().filter(|(_, since)| now.since(*since) > than)?;
            let tube = &self.tubes[self.jobs[self.jobs.find(job)?].tube].name;
            Some(HeldJob { conn, runner: &of.name, job: job.0, tube, span: now.since(since) })
        };
        (conns.metered().filter_map(held).collect(), next)
    }
}
