//! Questions about very many tubes, jobs or connections: answered in slices, so that connections are served between
//! them. Each answer goes on from a position in a table, and shows entries as they are when their slice comes.

use crate::state::conns::Held;
use crate::state::feeds::Feed;
use crate::state::ids::TubeId;
use crate::state::job::{Job, JobId};
use crate::state::queries::{JobStats, Summaries, Summary, TubeStats};
use crate::state::sums::SumBy;
use crate::state::tally::Counted;
use crate::state::{JobState, State};
use poolcounter_core::{Id as _, Metered as _, Time, meter};
use poolcounter_protocol::jobs::name::TubeName;
use std::collections::{BTreeMap, BinaryHeap};

/// A `list-jobs` under way.
#[derive(Debug)]
pub struct Listing {
    tube: Box<[u8]>,
    state: JobState,
    limit: usize,
    after: JobId,
    /// Lowest numbers found so far.
    lowest: BinaryHeap<JobId>,
}

impl Listing {
    /// Returns a list of the jobs of a tube in this state, with the lowest numbers above `after`.
    pub fn new(tube: TubeName<'_>, state: JobState, limit: u32, after: JobId) -> Self {
        Listing { tube: tube.bytes().into(), state, limit: limit as usize, after, lowest: BinaryHeap::new() }
    }

    /// Returns true if a job belongs to the list.
    pub fn has(&self, job: &JobStats<'_>) -> bool {
        job.state == self.state && *job.tube == *self.tube
    }

    /// Returns the bytes of the numbers found so far.
    pub fn bytes(&self) -> usize {
        self.lowest.capacity() * size_of::<JobId>()
    }

    /// Takes the numbers that were found, ascending. Some of these jobs may have moved by now.
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

/// A `stats-tube` under way: connections that have a watch which covers the tube, and the waiting ones of them.
#[derive(Debug)]
pub struct Watchers {
    tube: Box<[u8]>,
    /// Connections before this one have their sets of watches; None if all have.
    next_conn: Option<usize>,
    watching: u64,
    waiting: u64,
}

impl Watchers {
    /// Begins to count the connections that watch a tube.
    pub fn new(tube: TubeName<'_>) -> Self {
        Watchers { tube: tube.bytes().into(), next_conn: Some(0), watching: 0, waiting: 0 }
    }
}

impl State {
    /// Counts the watchers in at most `most` sets of watches, from the place `first` of their table on, once every
    /// connection has its set. Returns the next place if there are more.
    pub fn count_watchers(&mut self, watchers: &mut Watchers, first: usize, most: usize) -> Option<usize> {
        let before = self.visited;
        while let Some(conn) = watchers.next_conn.and_then(|next| self.conns.next_loose(next)) {
            if self.visited - before >= most {
                return Some(first);
            }
            watchers.next_conn = Some(conn.index() + 1);
            self.enter_set(conn);
            self.visited += 1;
        }
        if watchers.next_conn.take().is_some() && *watchers.tube == *TubeName::DEFAULT.bytes() {
            watchers.watching += self.conns.idle_count as u64;
        }
        let feeds: Vec<&Feed> = self.feeds.covering(&watchers.tube).map(|feed| &self.feeds[feed]).collect();
        // Each set is looked up in each feed.
        let of_set = 1 + feeds.len();
        let (sets, next) = self.sets.slice(first, most.div_ceil(of_set));
        let mut visited = feeds.len();
        for (id, set) in sets {
            visited += of_set;
            if feeds.iter().any(|feed| feed.sets.contains(&id)) {
                watchers.watching += u64::from(set.conns);
                watchers.waiting += u64::from(set.waiting.len());
            }
        }
        meter::visit_many(visited);
        self.visited += visited;
        next
    }

    /// Returns the statistics of a tube, with the counted watchers.
    pub fn tube_stats(&self, watchers: &Watchers, now: Time) -> Option<TubeStats<'_>> {
        let tube = &self.tubes[self.tubes.find_visible(&watchers.tube)?];
        let ([ready, reserved, delayed, buried], pause) = (tube.counts(), tube.paused);
        let figures = [
            ("current-jobs-urgent", tube.urgent),
            ("current-jobs-ready", ready),
            ("current-jobs-reserved", reserved),
            ("current-jobs-delayed", delayed),
            ("current-jobs-buried", buried),
            ("total-jobs", tube.total_jobs.get()),
            ("current-using", tube.using.into()),
            ("current-watching", watchers.watching),
            ("current-waiting", watchers.waiting),
            ("cmd-delete", tube.deletes.get()),
            ("cmd-pause-tube", tube.pauses),
            ("pause", pause.map_or(0, |pause| pause.seconds.into())),
            ("pause-time-left", pause.map_or(0, |pause| pause.until.since(now).as_micros() / 1_000_000)),
        ];
        Some((&tube.name, figures))
    }

    /// Examines the jobs at `most` positions of their table from `first` on, and returns the next position if there are
    /// more. A queue that is no longer than that is examined at once.
    pub fn list_more(&self, listing: &mut Listing, first: usize, most: usize) -> Option<usize> {
        let id = self.tubes.find(&listing.tube)?;
        let tube = &self.tubes[id];
        let length = match listing.state {
            // Reserved jobs are found through their holders.
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
        for held in self.conns.all_held().metered().flat_map(Held::iter).metered() {
            if self.jobs.find(held.id).is_some_and(|key| self.jobs[key].tube == tube) {
                listing.add(held.id);
            }
        }
    }

    /// Returns the names of at most `most` tubes from a position on, and the next position.
    pub fn tubes_from(&self, first: usize, most: usize) -> (impl Iterator<Item = &[u8]>, Option<usize>) {
        let (tubes, next) = self.tubes.slice(first, most);
        (tubes.map(|tube| &*tube.name), next)
    }

    /// Returns the summaries of at most `most` tubes from a position on, and the next position.
    pub fn summary_of_tubes(&self, first: usize, most: usize, now: Time) -> (Summaries, Option<usize>) {
        let (tubes, next) = self.tubes.slice(first, most);
        (tubes.map(|tube| self.summary_of_tube(tube, now)).collect(), next)
    }

    /// Returns the summaries of at most `most` sums from a position on, by name, and the next position.
    pub fn summary_of_sums(&self, by: SumBy, first: usize, most: usize, now: Time) -> (Summaries, Option<usize>) {
        let (sums, next) = self.tubes.sums.slice(by, first, most);
        let mut summaries: Summaries = sums.map(|sum| self.summary_of(sum, now)).collect();
        summaries.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        (summaries, next)
    }

    /// Adds the summaries of at most `most` connections from a position on to the summaries of their runners, and
    /// returns the next position.
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
            entry.tally.rates.add(&conn.rates, now);
            entry.conns += 1;
            entry.waiting += u64::from(conn.wait.is_some());
            entry.tally.counts[Counted::Failure as usize] += conn.failures;
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
