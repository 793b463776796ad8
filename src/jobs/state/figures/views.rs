//! Contents of pages: one sum or one runner, buried jobs, and sums that are followed.

use crate::state::conns::Conn;
use crate::state::ids::TubeId;
use crate::state::job::{JobId, JobKey, micros};
use crate::state::queries::{JobStats, Summaries, Summary, largest_of};
use crate::state::sums::{MOST_SURVEYED, Part, Sum, SumBy, SumId};
use crate::state::tally::{Counted, Tally};
use crate::state::tube::Tube;
use crate::state::{JobState, State};
use poolcounter_core::{ConnId, Id, Span, Time};

/// Name of the sums that are not followed, taken together.
const OTHER: &[u8] = b"other";

/// A connection of a runner.
#[derive(Clone, PartialEq, Debug)]
pub struct RunnerConn<'a> {
    /// Id.
    pub conn: ConnId,
    /// Name of its runner.
    pub runner: &'a [u8],
    /// Number of its jobs.
    pub held: u64,
    /// Its job with the first deadline, the tube of that job, and the time since its reservation.
    pub job: Option<(JobId, &'a [u8], Span)>,
    /// True if it waits for a job.
    pub is_waiting: bool,
    /// Jobs reserved and deleted a second over the last minute.
    pub rates: [f64; 2],
    /// Reservations that ended without the job being done.
    pub failures: u64,
}

impl State {
    /// Returns the summary of a sum, and of its tubes with the most jobs; None if there is no such sum.
    pub fn sum_with_tubes(&self, by: SumBy, name: &[u8], most: usize, now: Time) -> Option<(Summary, Summaries)> {
        let sum = self.tubes.find_sum(by, name)?;
        let tubes =
            self.visible_tubes([sum].into_iter()).map(|(id, tube)| (tube.jobs(), tube.total_jobs.get(), id.index()));
        let tubes = largest_of(tubes.collect(), most).map(|place| &self.tubes[TubeId::from_index(place)]);
        Some((self.summary_of(sum, now).1, tubes.map(|tube| self.summary_of_tube(tube, now)).collect()))
    }

    /// Returns the visible tubes of sums, at most the first [`MOST_SURVEYED`].
    fn visible_tubes<'a>(&'a self, sums: impl Iterator<Item = &'a Sum>) -> impl Iterator<Item = (TubeId, &'a Tube)> {
        let tubes = sums.flat_map(Sum::tubes).take(MOST_SURVEYED).map(|id| (id, &self.tubes[id]));
        tubes.filter(|(_, tube)| tube.hidden.is_none())
    }

    /// Returns buried jobs of a sum, and the time since they were buried: the last ones of each tube.
    pub fn buried_of(&self, by: SumBy, name: &[u8], most: usize, now: Time) -> Vec<(JobStats<'_>, Span)> {
        self.buried_in(self.visible_tubes(self.tubes.find_sum(by, name).into_iter()), most, now)
    }

    /// Returns buried jobs of all first parts, the parts with the most first.
    pub fn buried(&self, most: usize, now: Time) -> Vec<(JobStats<'_>, Span)> {
        let sizes = self.tubes.sums.surveyed(SumBy::FirstPart);
        let sizes = sizes.map(|(id, sum)| (self.tubes.part(sum).counts[JobState::Buried as usize], 0, id.index()));
        let places = largest_of(sizes.filter(|(buried, ..)| *buried > 0).collect(), most);
        let sums = places.map(|place| &self.tubes.sums[SumId::from_index(place)]);
        self.buried_in(self.visible_tubes(sums), most, now)
    }

    /// Returns the last buried jobs of a tube, each with the time since its burial.
    pub fn buried_of_tube(&self, name: &[u8], most: usize, now: Time) -> Vec<(JobStats<'_>, Span)> {
        self.buried_in(self.tubes.find_visible(name).into_iter().map(|id| (id, &self.tubes[id])), most, now)
    }

    fn buried_in<'a>(
        &'a self,
        tubes: impl Iterator<Item = (TubeId, &'a Tube)>,
        most: usize,
        now: Time,
    ) -> Vec<(JobStats<'a>, Span)> {
        self.with_spans(tubes.flat_map(|(_, tube)| tube.buried.iter_back(&self.jobs)).take(most), now)
    }

    /// Returns the jobs of a tube that have been ready for longest, each with that time.
    pub fn ready_of_tube(&self, name: &[u8], most: usize, now: Time) -> Vec<(JobStats<'_>, Span)> {
        let tube = self.tubes.find_visible(name).map(|id| &self.tubes[id]);
        self.with_spans(tube.into_iter().flat_map(|tube| tube.waiting.iter(&self.jobs)).take(most), now)
    }

    fn with_spans(&self, keys: impl Iterator<Item = JobKey>, now: Time) -> Vec<(JobStats<'_>, Span)> {
        let job = |key: JobKey| {
            let span = micros(now).saturating_sub(self.jobs[key].buried_at());
            Some((self.job_stats(self.jobs[key].id, now)?, Span::from_micros(u64::try_from(span).unwrap_or(0))))
        };
        keys.filter_map(job).collect()
    }

    /// Returns a job that clients can see, with the time for which it has been ready or buried.
    pub fn job_with_span(&self, id: JobId, now: Time) -> Option<(JobStats<'_>, Span)> {
        self.with_spans(self.visible(id).into_iter(), now).pop()
    }

    /// Returns the summary of a tube; `None` if no tube has that name.
    pub fn summary_of_tube_named(&self, name: &[u8], now: Time) -> Option<(Vec<u8>, Summary)> {
        Some(self.summary_of_tube(&self.tubes[self.tubes.find_visible(name)?], now))
    }

    /// Returns the sums with ready jobs, the number of these, and the age of the oldest.
    pub fn late_sums(&self, by: SumBy, now: Time) -> impl Iterator<Item = (SumId, &[u8], (u64, Span))> {
        self.tubes.sums.surveyed(by).filter_map(move |(id, sum)| {
            let part = self.tubes.part(sum);
            let ready = part.counts[JobState::Ready as usize];
            (ready > 0).then(|| (id, part.name, (ready, self.oldest_of_sum(sum, now))))
        })
    }

    /// Returns the tubes of a sum with ready jobs, the oldest first: their sums, the number of jobs, and the age of the
    /// oldest.
    pub fn late_tubes(&self, id: SumId, now: Time) -> impl Iterator<Item = ([SumId; 2], (u64, Span))> {
        let tubes = self.tubes.by_age(&self.tubes.sums[id]);
        tubes.map(move |tube| (tube.sums, (u64::from(tube.waiting.len), self.oldest_of(tube, now))))
    }

    /// Returns the connections of the runners of that name, among the first `MOST_SURVEYED`.
    pub fn conns_of_runner(&self, name: &[u8], most: usize, now: Time) -> Vec<RunnerConn<'_>> {
        self.runner_conns(|conn| *conn.name == *name && (conn.is_worker || !name.is_empty()), most, now)
    }

    /// Returns the name of the runner of a connection; None if it is none, or has not begun.
    pub fn runner_of(&self, conn: ConnId) -> Option<&[u8]> {
        self.conns.get(conn).filter(|conn| conn.is_worker).map(|conn| &*conn.name)
    }

    /// Returns the name of a connection; empty without one.
    pub fn name_of(&self, conn: ConnId) -> &[u8] {
        self.conns.get(conn).map_or(&[], |conn| &*conn.name)
    }

    /// Returns the connections whose job with the first deadline is of this tube, among the first `MOST_SURVEYED`.
    pub fn conns_on_tube(&self, tube: &[u8], most: usize, now: Time) -> Vec<RunnerConn<'_>> {
        let Some(tube) = self.tubes.find_visible(tube) else { return Vec::new() };
        self.runner_conns(|conn| self.first_job(conn).is_some_and(|(key, _)| self.jobs[key].tube == tube), most, now)
    }

    fn runner_conns(&self, include: impl Fn(&Conn) -> bool, most: usize, now: Time) -> Vec<RunnerConn<'_>> {
        let (conns, _) = self.conns.slice(0, MOST_SURVEYED);
        let included = conns.filter(|(_, conn)| include(conn)).take(most);
        included.map(|(id, conn)| self.runner_conn(id, conn, now)).collect()
    }

    pub(super) fn runner_conn<'a>(&'a self, id: ConnId, conn: &'a Conn, now: Time) -> RunnerConn<'a> {
        RunnerConn {
            conn: id,
            runner: &conn.name,
            held: conn.held.len() as u64,
            job: self.first_job(conn).map(|(key, since)| {
                let job = &self.jobs[key];
                (job.id, &*self.tubes[job.tube].name, now.since(since))
            }),
            is_waiting: conn.wait.is_some(),
            rates: [Counted::Reserve, Counted::Delete].map(|event| conn.rates.of(event, now)[0]),
            failures: conn.failures.get(),
        }
    }

    /// Returns the job of a connection with the first deadline, and the time of its reservation.
    fn first_job(&self, conn: &Conn) -> Option<(JobKey, Time)> {
        let (id, since) = conn.first_held()?;
        Some((self.jobs.find(id)?, since))
    }

    /// Returns the tally of each sum; None if not all of them are followed.
    pub fn tallies(&self, by: SumBy) -> Option<impl Iterator<Item = (&[u8], &Tally)>> {
        let sums = self.tubes.sums.followed(by);
        let parts = sums.map(|sum| self.tubes.part(sum)).map(|part| (part.name, part.tally));
        let sums = &self.tubes.sums;
        let are_all = sums.len() <= MOST_SURVEYED && sums.surveyed(by).count() == sums.followed(by).count();
        are_all.then_some(parts)
    }

    /// Returns the followed sums, the sums with the most puts first, and after them all other sums together.
    pub fn followed(&self, by: SumBy, now: Time) -> Summaries {
        let mut followed: Vec<&Sum> = self.tubes.sums.followed(by).collect();
        followed.sort_by_key(|sum| std::cmp::Reverse(self.tubes.part(sum).tally.counts[Counted::Put as usize]));
        let total = JobState::ALL.map(|state| self.count_in(state));
        let parts = || followed.iter().map(|sum| self.tubes.part(sum));
        let counts = std::array::from_fn(|n| total[n] - parts().map(|part| part.counts[n]).sum::<u64>());
        let others = self.tubes.sums.surveyed(by).filter(|(_, sum)| sum.followed_from.is_none());
        let oldest = others.map(|(_, sum)| self.oldest_of_sum(sum, now)).max().unwrap_or(Span::ZERO);
        let retrying = self.tubes.retrying - parts().map(|part| part.retrying).sum::<u64>();
        let other = Summary::of((counts, retrying), oldest, self.tubes.sums.others(by));
        let named = followed.iter().map(|sum| self.summary_of(sum, now));
        [(OTHER.to_vec(), other)].into_iter().chain(named).collect()
    }

    /// Returns whether a sum is followed; false if there is none with this name.
    pub fn is_followed(&self, by: SumBy, name: &[u8]) -> bool {
        self.tubes.find_sum(by, name).is_some_and(|sum| sum.followed_from.is_some())
    }

    /// Returns figures of the followed sums, for their curves: ready jobs, the seconds for which the oldest has been ready,
    /// and the jobs that were put and deleted by clients since the sum was followed.
    pub fn levels(&self, by: SumBy, now: Time) -> impl Iterator<Item = (&[u8], [u64; 4])> {
        self.tubes.sums.followed(by).map(move |sum| {
            let [from_put, from_deleted] = sum.followed_from.as_deref().copied().unwrap_or_default();
            let Part { name, counts, tally, .. } = self.tubes.part(sum);
            let [put, deleted] = tally.puts_and_deletes();
            let oldest = self.oldest_of_sum(sum, now).as_micros() / 1_000_000;
            let ready = counts[JobState::Ready as usize];
            (name, [ready, oldest, put.saturating_sub(from_put), deleted.saturating_sub(from_deleted)])
        })
    }
}
