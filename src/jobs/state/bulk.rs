//! Questions about very many tubes, jobs or connections: answered bit by bit, so that others are served between. Each answer
//! goes on from a place in a table, and tells of what is there when its turn comes.

use super::State;
use super::conns::Held;
use super::ids::TubeId;
use super::job::{Job, JobId};
use super::queries::{JobStats, Summary};
use super::sums::SumBy;
use super::sweeps::JobState;
use poolcounter_core::meter::Metered as _;
use poolcounter_core::time::Time;
use poolcounter_protocol::jobs::name::TubeName;
use std::collections::{BTreeMap, BinaryHeap};

/// Summaries with the names of what they are of.
pub type Summaries = Vec<(Vec<u8>, Summary)>;

/// A `list-jobs` under way.
#[derive(Debug)]
pub struct Listing {
    tube: Box<[u8]>,
    state: JobState,
    limit: usize,
    after: JobId,
    /// The lowest numbers that were found.
    lowest: BinaryHeap<JobId>,
}

impl Listing {
    /// Begins to list the jobs of a tube in this state with the lowest numbers above `after`.
    pub fn new(tube: TubeName<'_>, state: JobState, limit: u32, after: JobId) -> Self {
        Listing { tube: tube.bytes().into(), state, limit: limit as usize, after, lowest: BinaryHeap::new() }
    }

    /// Returns true when a job is one of those that are listed.
    pub fn has(&self, job: &JobStats<'_>) -> bool {
        job.state == self.state && *job.tube == *self.tube
    }

    /// Returns how many bytes the numbers that were found take.
    pub fn bytes(&self) -> usize {
        self.lowest.capacity() * size_of::<JobId>()
    }

    /// Returns the numbers that were found, ascending. Some may be elsewhere by now.
    pub fn take(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.lowest).into_sorted_vec()
    }

    fn add(&mut self, id: JobId) {
        if id <= self.after {
            return;
        }
        if self.lowest.len() < self.limit {
            self.lowest.push(id);
        } else if let Some(mut highest) = self.lowest.peek_mut()
            && id < *highest
        {
            *highest = id;
        }
    }

    fn wants(&self, tube: TubeId, job: &Job) -> bool {
        job.tube == tube && job.state() == Some(self.state)
    }
}

impl State {
    /// Looks at the jobs in so many places of their table from this one on, and returns the next place if there are more. A queue
    /// that is no longer than that is gone through at once.
    pub fn list_more(&self, listing: &mut Listing, first: usize, most: usize) -> Option<usize> {
        let id = self.tubes.find(&listing.tube)?;
        let tube = &self.tubes[id];
        let length = match listing.state {
            // What is reserved is known by its holder.
            JobState::Reserved => self.conns.len() as u64 + self.count_in(JobState::Reserved),
            state => tube.counts()[state as usize],
        };
        if first == 0 && length <= most as u64 {
            match listing.state {
                JobState::Ready => tube.waiting.iter(&self.jobs).for_each(|key| listing.add(self.jobs[key].id)),
                JobState::Buried => tube.buried.iter(&self.jobs).for_each(|key| listing.add(self.jobs[key].id)),
                JobState::Delayed => tube.delayed.iter().metered().for_each(|(_, job)| listing.add(*job)),
                JobState::Reserved => self.list_reserved(listing, id),
            }
            return None;
        }
        let (jobs, next) = self.jobs.iter_from(first, most);
        for (_, job) in jobs.metered() {
            if listing.wants(id, job) {
                listing.add(job.id);
            }
        }
        next
    }

    fn list_reserved(&self, listing: &mut Listing, tube: TubeId) {
        for (_, id) in self.conns.all_held().metered().flat_map(Held::keys).metered() {
            if self.jobs.find(*id).is_some_and(|key| self.jobs[key].tube == tube) {
                listing.add(*id);
            }
        }
    }

    /// Returns the names of so many tubes at most from this place on, and the place of those behind them.
    pub fn tubes_from(&self, first: usize, most: usize) -> (impl Iterator<Item = &[u8]>, Option<usize>) {
        let (tubes, next) = self.tubes.slice(first, most);
        (tubes.map(|tube| &*tube.name), next)
    }

    /// Returns what there is to know of so many tubes at most from this place on, and the place of those behind them.
    pub fn summary_of_tubes(&self, first: usize, most: usize, now: Time) -> (Summaries, Option<usize>) {
        let (tubes, next) = self.tubes.slice(first, most);
        (tubes.map(|tube| self.summary_of_tube(tube, now)).collect(), next)
    }

    /// Returns what there is to know of so many sums at most from this place on, by name, and the place of those behind
    /// them.
    pub fn summary_of_sums(&self, by: SumBy, first: usize, most: usize, now: Time) -> (Summaries, Option<usize>) {
        let (sums, next) = self.tubes.sums.slice(by, first, most);
        let summaries = sums.map(|sum| (sum.name.to_vec(), self.summary_of(sum, now)));
        let mut summaries: Summaries = summaries.collect();
        summaries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        (summaries, next)
    }

    /// Adds what there is to know of so many connections at most from this place on to what is known of their runners, and returns
    /// the place of those behind them.
    pub fn add_runners(
        &self,
        runners: &mut BTreeMap<Vec<u8>, Summary>,
        first: usize,
        most: usize,
        now: Time,
    ) -> Option<usize> {
        let (conns, next) = self.conns.slice(first, most);
        for (_, conn) in conns.filter(|(_, conn)| conn.is_worker || !conn.name.is_empty()) {
            let entry = runners.entry(conn.name.to_vec()).or_default();
            entry.counts[JobState::Reserved as usize] += conn.held.len() as u64;
            entry.rates.add(&conn.rates, now);
            entry.conns += 1;
            entry.waiting += u64::from(conn.wait.is_some());
            entry.failures += conn.failures;
            if let Some((job, since)) = conn.first_held()
                && entry.busy.as_ref().is_none_or(|(_, span)| *span < now.since(since))
                && let Some(key) = self.jobs.find(job)
            {
                entry.busy = Some((self.tubes[self.jobs[key].tube].name.to_vec(), now.since(since)));
            }
        }
        next
    }
}
