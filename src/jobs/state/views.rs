//! What is told of one wiki, one type or one runner, of buried jobs, and of those that are followed.

use super::State;
use super::bulk::Summaries;
use super::job::JobId;
use super::queries::{JobStats, MOST_SURVEYED, Summary, counts_of, largest_of};
use super::rates::Rated;
use super::sums::{Sum, SumBy, Tally};
use super::sweeps::JobState;
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
    /// How many jobs it has.
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

impl State {
    /// Returns what there is to know of a wiki or a type, and of its tubes with the most jobs; None if it has none.
    pub fn sum_with_tubes(&self, by: SumBy, name: &[u8], most: usize, now: Time) -> Option<(Summary, Summaries)> {
        let sum = self.sums.find(by, name)?;
        let tubes = self.visible_tubes(sum).map(|(place, tube)| (tube.jobs(), tube.total_jobs.get(), place));
        let tubes = largest_of(tubes.collect(), most).map(|place| &self.tubes[place]);
        let summary =
            |tube: &Tube| (tube.name.to_vec(), Summary::of(counts_of(tube), self.oldest_of(tube, now), &tube.tally));
        Some((self.summary_of(sum, now), tubes.map(summary).collect()))
    }

    /// Returns the tubes of a wiki or a type, as many as are looked at.
    fn visible_tubes<'a>(&'a self, sum: &'a Sum) -> impl Iterator<Item = (usize, &'a Tube)> {
        let tubes = sum.tubes.iter().take(MOST_SURVEYED).map(|id| (id.index(), &self.tubes[id.index()]));
        tubes.filter(|(_, tube)| tube.hidden.is_none())
    }

    /// Returns buried jobs of a wiki or a type, and for how long they are: those that were buried last in each tube.
    pub fn buried_of(&self, by: SumBy, name: &[u8], most: usize, now: Time) -> Vec<(JobStats<'_>, Span)> {
        let sum = self.sums.find(by, name);
        let mut buried = Vec::new();
        self.add_buried(sum.into_iter(), most, now, &mut buried);
        buried
    }

    /// Returns buried jobs of all wikis, of those with the most first.
    pub fn buried(&self, most: usize, now: Time) -> Vec<(JobStats<'_>, Span)> {
        let with_buried = |(_, sum): &(usize, &Sum)| sum.by == SumBy::Wiki && sum.counts[JobState::Buried as usize] > 0;
        let wikis = self.sums.all.iter().take(MOST_SURVEYED).filter(with_buried);
        let sizes = wikis.map(|(place, sum)| (sum.counts[JobState::Buried as usize], 0, place));
        let mut buried = Vec::new();
        let places = largest_of(sizes.collect(), most);
        self.add_buried(places.map(|place| &self.sums.all[place]), most, now, &mut buried);
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

    /// Returns the connections of the runners of that name, as many as are looked at.
    pub fn conns_of_runner(&self, name: &[u8], most: usize, now: Time) -> Vec<RunnerConn<'_>> {
        let conns = self.conns.iter().enumerate().take(MOST_SURVEYED);
        let own = conns.filter_map(|(index, conn)| Some((ConnId::from_index(index), conn.as_deref()?)));
        let own = own.filter(|(_, conn)| *conn.name == *name && (conn.is_worker || !name.is_empty()));
        let told = own.map(|(id, conn)| RunnerConn {
            conn: id,
            held: conn.held.len() as u64,
            job: conn.first_held().and_then(|(job, since)| {
                let key = self.jobs.find(job)?;
                Some((job, &*self.tubes[self.jobs[key].tube.index()].name, now.since(since)))
            }),
            is_waiting: conn.wait.is_some(),
            rates: [Rated::Reserve, Rated::Delete].map(|event| conn.rates.of(event, now)[0]),
            failures: conn.failures.get(),
        });
        told.take(most).collect()
    }

    /// Returns what was counted of each wiki, or of each type; None if not all of them are followed.
    pub fn tallies(&self, by: SumBy) -> Option<impl Iterator<Item = (&[u8], &Tally)>> {
        let all = self.sums.all.iter().take(MOST_SURVEYED).filter(|(_, sum)| sum.by == by).count();
        let followed = &self.sums.followed[by as usize];
        let sums = followed.iter().map(|id| &self.sums.all[id.index()]);
        let are_all = self.sums.all.len() <= MOST_SURVEYED && all == followed.len();
        are_all.then(|| sums.map(|sum| (&*sum.name, &sum.tally)))
    }

    /// Returns the wikis or types that are followed, those with the most puts first, behind all others together.
    pub fn followed(&self, by: SumBy, now: Time) -> Summaries {
        let mut followed: Vec<&Sum> =
            self.sums.followed[by as usize].iter().map(|id| &self.sums.all[id.index()]).collect();
        followed.sort_by_key(|sum| std::cmp::Reverse(sum.tally.events[Rated::Put as usize]));
        let (counts, oldest) = self.levels_of_others(by, now);
        let other = Summary::of(counts, oldest, &self.sums.others[by as usize].tally);
        let named = followed.into_iter().map(|sum| (sum.name.to_vec(), self.summary_of(sum, now)));
        [(OTHER.to_vec(), other)].into_iter().chain(named).collect()
    }
}
