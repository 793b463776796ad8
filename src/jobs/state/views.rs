//! Contents of pages: one sum or one runner, buried jobs, and sums that are followed.

use super::State;
use super::bulk::Summaries;
use super::ids::TubeId;
use super::job::JobId;
use super::queries::{JobStats, MOST_SURVEYED, Summary, largest_of};
use super::sums::{Sum, SumBy, SumId};
use super::sweeps::{ALL_STATES, JobState};
use super::tally::{Rated, Tally};
use super::tube::Tube;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::{Span, Time};

/// The name of those together that are not followed.
const OTHER: &[u8] = b"other";

/// A connection of a runner.
#[derive(Clone, PartialEq, Debug)]
pub struct RunnerConn<'a> {
    /// Which.
    pub conn: ConnId,
    /// Number of its jobs.
    pub held: u64,
    /// Of these the one whose TTR ends first, its tube, and how long it has had it.
    pub job: Option<(JobId, &'a [u8], Span)>,
    /// Whether it waits for a job.
    pub is_waiting: bool,
    /// Jobs reserved and deleted a second over the last minute.
    pub rates: [f64; 2],
    /// Reservations that ended without the job being done.
    pub failures: u64,
}

/// Levels and counts of a sum that is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels {
    /// Ready jobs.
    pub ready: u64,
    /// Time for which the oldest of them has been ready.
    pub oldest_ready: Span,
    /// Jobs put since it is followed.
    pub put: u64,
    /// Jobs deleted by clients since then.
    pub deleted: u64,
}

impl State {
    /// Returns what there is to know of a sum, and of its tubes with the most jobs; None if it has none.
    pub fn sum_with_tubes(&self, by: SumBy, name: &[u8], most: usize, now: Time) -> Option<(Summary, Summaries)> {
        let sum = self.tubes.sums.find(by, name)?;
        let tubes = self.visible_tubes(sum).map(|(id, tube)| (tube.jobs(), tube.total_jobs.get(), id.index()));
        let tubes = largest_of(tubes.collect(), most).map(|place| &self.tubes[TubeId::from_index(place)]);
        Some((self.summary_of(sum, now), tubes.map(|tube| self.summary_of_tube(tube, now)).collect()))
    }

    /// Returns the tubes of a sum, as many as are looked at.
    fn visible_tubes<'a>(&'a self, sum: &'a Sum) -> impl Iterator<Item = (TubeId, &'a Tube)> {
        let tubes = sum.tubes.iter().take(MOST_SURVEYED).map(|id| (*id, &self.tubes[*id]));
        tubes.filter(|(_, tube)| tube.hidden.is_none())
    }

    /// Returns buried jobs of a sum, and for how long they are: those that were buried last in each tube.
    pub fn buried_of(&self, by: SumBy, name: &[u8], most: usize, now: Time) -> Vec<(JobStats<'_>, Span)> {
        let sum = self.tubes.sums.find(by, name);
        let mut buried = Vec::new();
        self.add_buried(sum.into_iter(), most, now, &mut buried);
        buried
    }

    /// Returns buried jobs of all first parts, of those with the most first.
    pub fn buried(&self, most: usize, now: Time) -> Vec<(JobStats<'_>, Span)> {
        let sizes = self.tubes.sums.surveyed(SumBy::FirstPart);
        let sizes = sizes.map(|(id, sum)| (sum.counts[JobState::Buried as usize], 0, id.index()));
        let places = largest_of(sizes.filter(|(buried, ..)| *buried > 0).collect(), most);
        let mut buried = Vec::new();
        self.add_buried(places.map(|place| &self.tubes.sums[SumId::from_index(place)]), most, now, &mut buried);
        buried
    }

    fn add_buried<'a>(
        &'a self,
        sums: impl Iterator<Item = &'a Sum>,
        most: usize,
        now: Time,
        buried: &mut Vec<(JobStats<'a>, Span)>,
    ) {
        let mut looked_at = MOST_SURVEYED;
        for sum in sums {
            for (_, tube) in self.visible_tubes(sum).take(looked_at).filter(|(_, tube)| tube.buried.len() > 0) {
                for key in tube.buried.iter_back(&self.jobs).take(most - buried.len()) {
                    let job = self.job_stats(self.jobs[key].id, now).expect("a buried job is committed");
                    buried.push((job, now.since(self.jobs[key].at)));
                }
            }
            looked_at = looked_at.saturating_sub(sum.tubes.len());
            if buried.len() == most || looked_at == 0 {
                return;
            }
        }
    }

    /// Returns the sums with ready jobs: how many, and for how long the oldest is ready.
    pub fn late_sums(&self, by: SumBy, now: Time) -> impl Iterator<Item = (SumId, &[u8], (u64, Span))> {
        let late = self.tubes.sums.surveyed(by).filter(|(_, sum)| sum.counts[JobState::Ready as usize] > 0);
        late.map(move |(id, sum)| {
            (id, &*sum.name, (sum.counts[JobState::Ready as usize], self.oldest_of_sum(sum, now)))
        })
    }

    /// Returns the tubes of a sum with ready jobs, the oldest first: their sums, how many jobs, and for how long the oldest is ready.
    pub fn late_tubes(&self, id: SumId, now: Time) -> impl Iterator<Item = ([SumId; 2], (u64, Span))> {
        let tubes = self.tubes.sums[id].ages.iter().map(|(_, tube)| &self.tubes[*tube]);
        tubes.map(move |tube| (tube.sums, (u64::from(tube.waiting.len()), self.oldest_of(tube, now))))
    }

    /// Returns the connections of the runners of that name, as many as are looked at.
    pub fn conns_of_runner(&self, name: &[u8], most: usize, now: Time) -> Vec<RunnerConn<'_>> {
        let (conns, _) = self.conns.slice(0, MOST_SURVEYED);
        let own = conns.filter(|(_, conn)| *conn.name == *name && (conn.is_worker || !name.is_empty()));
        let told = own.map(|(id, conn)| RunnerConn {
            conn: id,
            held: conn.held.len() as u64,
            job: conn.first_held().and_then(|(job, since)| {
                let key = self.jobs.find(job)?;
                Some((job, &*self.tubes[self.jobs[key].tube].name, now.since(since)))
            }),
            is_waiting: conn.wait.is_some(),
            rates: [Rated::Reserve, Rated::Delete].map(|event| conn.rates.of(event, now)[0]),
            failures: conn.failures.get(),
        });
        told.take(most).collect()
    }

    /// Returns the tally of each sum; None if not all of them are followed.
    pub fn tallies(&self, by: SumBy) -> Option<impl Iterator<Item = (&[u8], &Tally)>> {
        let sums = self.tubes.sums.followed(by);
        self.tubes.sums.are_all_followed(by).then(|| sums.map(|sum| (&*sum.name, &sum.tally)))
    }

    /// Returns the sums that are followed, those with the most puts first, behind all others together.
    pub fn followed(&self, by: SumBy, now: Time) -> Summaries {
        let mut followed: Vec<&Sum> = self.tubes.sums.followed(by).collect();
        followed.sort_by_key(|sum| std::cmp::Reverse(sum.tally.events[Rated::Put as usize]));
        let total = ALL_STATES.map(|state| self.count_in(state));
        let counts = std::array::from_fn(|n| total[n] - followed.iter().map(|sum| sum.counts[n]).sum::<u64>());
        let others = self.tubes.sums.surveyed(by).filter(|(_, sum)| sum.followed_from.is_none());
        let oldest = others.map(|(_, sum)| self.oldest_of_sum(sum, now)).max().unwrap_or(Span::ZERO);
        let other = Summary::of(counts, oldest, self.tubes.sums.others(by));
        let named = followed.into_iter().map(|sum| (sum.name.to_vec(), self.summary_of(sum, now)));
        [(OTHER.to_vec(), other)].into_iter().chain(named).collect()
    }

    /// Returns whether a sum is followed; false if there is none of that name.
    pub fn is_followed(&self, by: SumBy, name: &[u8]) -> bool {
        self.tubes.sums.find(by, name).is_some_and(|sum| sum.followed_from.is_some())
    }

    /// Returns the levels of the sums that are followed, for their curves.
    pub fn levels(&self, by: SumBy, now: Time) -> impl Iterator<Item = (&[u8], Levels)> {
        self.tubes.sums.followed(by).map(move |sum| {
            let [from_put, from_deleted] = sum.followed_from.unwrap_or_default();
            let [put, deleted] = sum.tally.puts_and_deletes();
            let levels = Levels {
                ready: sum.counts[JobState::Ready as usize],
                oldest_ready: self.oldest_of_sum(sum, now),
                put: put.saturating_sub(from_put),
                deleted: deleted.saturating_sub(from_deleted),
            };
            (&*sum.name, levels)
        })
    }
}
