//! Answers to operators: figures of the service, of a job and a tube, lists, and summaries by part of tubes' names, by
//! tube or by runner.

use crate::state::ids::TubeId;
use crate::state::job::{JobId, JobPlacement, micros};
use crate::state::roots::is_signature_of_key;
use crate::state::sums::{MOST_SURVEYED, Part, Sum, SumBy, SumId};
use crate::state::tally::{Counted, Tally};
use crate::state::tube::Tube;
use crate::state::{JobState, Record, State, Watch};
use crate::stats::Jobs as Stat;
use poolcounter_core::{ConnId, Figures, Histogram, Id, Span, Time};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;

/// Answer to `stats-job`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobStats<'a> {
    /// The job.
    pub record: Record<'a>,
    /// State.
    pub state: JobState,
    /// Seconds since its put.
    pub age: u64,
    /// Seconds until the end of its TTR or its delay.
    pub time_left: u64,
    /// Seconds for which its key is kept, whatever becomes of it.
    pub key_left: Option<u64>,
    /// Seconds since the last attempt of a dead letter.
    pub origin_age: u64,
    /// True if it will be dropped instead of being reserved.
    pub is_superseded: bool,
}

impl<'a> Deref for JobStats<'a> {
    type Target = Record<'a>;

    fn deref(&self) -> &Record<'a> {
        &self.record
    }
}

/// Answer to `stats-tube`: the name, and the figures by their names.
pub type TubeStats<'a> = (&'a [u8], [(&'static str, u64); 13]);

/// One entry of a summary.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Jobs by state: ready, reserved, delayed, buried.
    pub counts: [u64; 4],
    /// Delayed jobs that wait to be tried again.
    pub retrying: u64,
    /// Age of the oldest ready job.
    pub oldest_ready: Span,
    /// Events.
    pub tally: Tally,
    /// Connections of a runner.
    pub conns: u64,
    /// Number of these that wait for a job.
    pub waiting: u64,
    /// Tube of the job held longest, and the time since its reservation; only the job with the first deadline of each
    /// connection is considered.
    pub busy: Option<(Vec<u8>, Span)>,
}

/// Summaries with the names of their subjects.
pub type Summaries = Vec<(Vec<u8>, Summary)>;

impl State {
    /// Returns the number of jobs in a state.
    pub fn count_in(&self, state: JobState) -> u64 {
        self.tubes.count_in(state)
    }

    /// Returns the figures, with the levels as they are now.
    pub fn figures(&self) -> Figures<Stat> {
        let mut figures = self.figures.clone();
        let levels = [
            (Stat::Urgent, self.tubes.urgent),
            (Stat::Ready, self.count_in(JobState::Ready)),
            (Stat::Reserved, self.count_in(JobState::Reserved)),
            (Stat::Delayed, self.count_in(JobState::Delayed)),
            (Stat::Buried, self.count_in(JobState::Buried)),
            (Stat::Tubes, self.tubes.visible() as u64),
            (Stat::Waiting, self.sets.waiting),
            (Stat::UsedMemory, self.used_memory() as u64),
            (Stat::Uncommitted, self.uncommitted().0 as u64),
            (Stat::UncommittedBytes, self.uncommitted().1 as u64),
            (Stat::Roots, (self.roots.len() - self.roots.keys) as u64),
            (Stat::KeptKeys, self.roots.keys as u64),
            (Stat::Groups, self.limits.groups.len() as u64),
            (Stat::Retrying, self.tubes.retrying),
        ];
        levels.into_iter().for_each(|(stat, value)| figures.set(stat, value));
        figures
    }

    /// Returns the numbers of jobs ever put, of delete commands, and of ready jobs. It allocates nothing.
    pub fn totals(&self) -> [u64; 3] {
        [self.figures.of(Stat::TotalJobs), self.figures.of(Stat::Delete), self.count_in(JobState::Ready)]
    }

    /// Counts a command that changes nothing.
    pub fn count(&mut self, command: Stat) {
        self.figures.count(command);
    }

    /// Returns the number of connections that have put a job, and of connections that have reserved one.
    pub fn producers_and_workers(&self) -> (usize, usize) {
        self.conns.roles
    }

    /// Returns the body of a job; None if there is no such job.
    pub fn body(&self, id: JobId) -> Option<&[u8]> {
        self.jobs.find(id).map(|key| self.jobs[key].body.bytes())
    }

    /// Returns a shared body of a job: for a body that is too long to be written at once.
    pub fn share_body(&mut self, id: JobId) -> Option<std::sync::Arc<Box<[u8]>>> {
        let key = self.jobs.find(id)?;
        Some(self.jobs[key].body.share())
    }

    /// Returns the figures of a job; None if it is not visible.
    pub fn job_stats(&self, id: JobId, now: Time) -> Option<JobStats<'_>> {
        let key = self.jobs.find(id)?;
        let (job, record) = (&self.jobs[key], self.record(key));
        let state = job.state()?;
        let kept = self.roots.kept_key(record.tube, record.key, micros(now)).filter(|kept| kept.job == id);
        let seconds_since = |at: i64| u64::try_from(micros(now).saturating_sub(at)).unwrap_or(0) / 1_000_000;
        Some(JobStats {
            record,
            state,
            age: seconds_since(job.created),
            time_left: match state {
                JobState::Reserved | JobState::Delayed => job.at.since(now).as_micros() / 1_000_000,
                JobState::Ready | JobState::Buried => 0,
            },
            key_left: kept.map(|kept| (kept.until - micros(now)).unsigned_abs() / 1_000_000),
            origin_age: record.origin.map_or(0, |origin| seconds_since(origin.at)),
            is_superseded: state != JobState::Buried && self.is_superseded(key),
        })
    }

    /// Returns the name of the tube of a visible job.
    pub fn tube_of(&self, id: JobId) -> Option<&[u8]> {
        self.visible(id).map(|key| &*self.tubes[self.jobs[key].tube].name)
    }

    /// Returns whether a job is put and not committed.
    pub fn is_pending(&self, id: JobId) -> bool {
        self.jobs.find(id).is_some_and(|key| self.jobs[key].place == JobPlacement::Pending)
    }

    /// Returns whether there is a tube with this name.
    pub fn has_tube(&self, name: &[u8]) -> bool {
        self.tubes.find_visible(name).is_some()
    }

    /// Returns the names of all tubes.
    pub fn tubes(&self) -> impl Iterator<Item = &[u8]> {
        self.tubes.iter().filter(|(_, tube)| tube.hidden.is_none()).map(|(_, tube)| &*tube.name)
    }

    /// Returns the watches of a connection by pattern.
    pub fn watches(&self, conn: ConnId) -> &[Watch] {
        &self.conns[conn].watches.sorted
    }

    /// Returns the watches of a connection in the order of their commands.
    pub fn watches_in_order(&mut self, conn: ConnId) -> impl Iterator<Item = &Watch> {
        self.visited += self.conns[conn].watches.sorted.len();
        self.conns[conn].watches.in_order()
    }

    pub(in crate::state) fn oldest_of(&self, tube: &Tube, now: Time) -> Span {
        tube.waiting.front().map_or(Span::ZERO, |key| now.since(self.jobs[key].at))
    }

    /// Returns the sums with such names that have the most jobs, the largest first.
    pub fn largest_sums(&self, by: SumBy, has: &dyn Fn(&[u8]) -> bool, most: usize, now: Time) -> Summaries {
        let known = self.tubes.sums.surveyed(by).map(|(id, sum)| (id, self.tubes.part(sum)));
        let known = known.filter(|(_, part)| has(part.name));
        let sizes = known
            .map(|(id, part)| (part.counts.iter().sum(), part.tally.counts[Counted::Put as usize].get(), id.index()));
        let largest = largest_of(sizes.collect(), most).map(|place| &self.tubes.sums[SumId::from_index(place)]);
        sorted(largest.map(|sum| self.summary_of(sum, now)).collect(), most)
    }

    /// Returns the tubes with such names that have the most jobs, the largest first, of the first `MOST_SURVEYED`.
    pub fn largest_tubes(&self, has: &dyn Fn(&[u8]) -> bool, most: usize, now: Time) -> Summaries {
        let known = self.tubes.iter().take(MOST_SURVEYED);
        let known = known.filter(|(_, tube)| tube.hidden.is_none() && has(&tube.name));
        let sizes = known.map(|(id, tube)| (tube.jobs(), 0, id.index()));
        let largest = largest_of(sizes.collect(), most);
        let summary = |place| self.summary_of_tube(&self.tubes[TubeId::from_index(place)], now);
        sorted(largest.map(summary).collect(), most)
    }

    /// Returns the runners with such names that have the most jobs, the largest first, of the first `MOST_SURVEYED`
    /// connections.
    pub fn largest_runners(&self, has: &dyn Fn(&[u8]) -> bool, most: usize, now: Time) -> Summaries {
        let mut runners = BTreeMap::new();
        self.add_runners(&mut runners, 0, MOST_SURVEYED, now);
        sorted(runners.into_iter().filter(|(name, _)| has(name)).collect(), most)
    }

    /// Returns root jobs, each with its tube and its signature, the last changed first, of the last `MOST_SURVEYED`.
    pub fn roots(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let all = self.roots.iter().rev().take(MOST_SURVEYED).map(|(tube, signature, ..)| (tube, signature));
        all.filter(|(_, signature)| !is_signature_of_key(signature))
    }

    /// Returns the age of the oldest ready job of a sum, accurate to a second.
    pub(in crate::state) fn oldest_of_sum(&self, sum: &Sum, now: Time) -> Span {
        self.tubes.by_age(sum).next().map_or(Span::ZERO, |tube| self.oldest_of(tube, now))
    }

    /// Returns the age of the oldest ready job of the first `MOST_SURVEYED` sums.
    pub fn oldest_ready(&self, now: Time) -> Span {
        let sums = self.tubes.sums.iter().take(MOST_SURVEYED);
        sums.map(|(_, sum)| self.oldest_of_sum(sum, now)).max().unwrap_or(Span::ZERO)
    }

    pub(in crate::state) fn summary_of_tube(&self, tube: &Tube, now: Time) -> (Vec<u8>, Summary) {
        let counts = (tube.counts(), tube.retrying);
        let mut summary = Summary::of(counts, self.oldest_of(tube, now), &tube.tally);
        // Times of runs are the times of sums.
        summary.tally.runs = Histogram::default();
        (tube.name.to_vec(), summary)
    }

    pub(in crate::state) fn summary_of(&self, sum: &Sum, now: Time) -> (Vec<u8>, Summary) {
        let Part { name, counts, retrying, tally, .. } = self.tubes.part(sum);
        (name.to_vec(), Summary::of((counts, retrying), self.oldest_of_sum(sum, now), tally))
    }

    /// Returns whether there are more tubes, connections or sums than reports examine.
    pub fn is_too_many_to_survey(&self) -> bool {
        [self.tubes.len(), self.conns.len(), self.tubes.sums.len()].iter().any(|many| *many > MOST_SURVEYED)
    }
}

impl Summary {
    pub(in crate::state) fn of((counts, retrying): ([u64; 4], u64), oldest_ready: Span, tally: &Tally) -> Summary {
        Summary { counts, retrying, oldest_ready, tally: tally.clone(), ..Summary::default() }
    }

    /// Returns the rates of puts, reserves and deletes in events a second, over the last 1, 5 and 15 minutes.
    pub fn rates(&self, now: Time) -> [[f64; 3]; 3] {
        [Counted::Put, Counted::Reserve, Counted::Delete].map(|event| self.tally.rates.of(event, now))
    }
}

/// Returns the `most` largest summaries, the largest first.
fn sorted(mut all: Summaries, most: usize) -> Summaries {
    let size = |summary: &Summary| {
        (summary.counts.iter().sum::<u64>(), summary.conns, summary.tally.counts[Counted::Put as usize].get())
    };
    all.sort_by(|(name, one), (other_name, other)| size(other).cmp(&size(one)).then_with(|| name.cmp(other_name)));
    all.truncate(most);
    all
}

/// Sorts the first `most` of all to the front; the order of the others is left open.
pub fn first_in_order<T>(all: &mut [T], most: usize, order: impl Fn(&T, &T) -> Ordering) {
    let most = most.min(all.len());
    if most < all.len() {
        all.select_nth_unstable_by(most, &order);
    }
    all[..most].sort_unstable_by(order);
}

/// Returns the positions of the `most` largest, the largest first.
pub(in crate::state) fn largest_of(mut sizes: Vec<(u64, u64, usize)>, most: usize) -> impl Iterator<Item = usize> {
    first_in_order(&mut sizes, most, |one, other| other.cmp(one));
    sizes.into_iter().take(most).map(|(.., place)| place)
}
