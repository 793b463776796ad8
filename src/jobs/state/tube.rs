//! A tube: what waits in it, who uses it, and what happened in it lately.

use super::ids::{BucketId, FeedId, GateId, GroupId, LaneId, TubeId};
use super::job::{JobId, JobKey};
use super::jobs::Jobs;
use super::sums::SumId;
use super::tally::Tally;
use poolcounter_core::count::Count;
use poolcounter_core::id::Id;
use poolcounter_core::meter;
use poolcounter_core::names::Hash;
use poolcounter_core::time::Time;
use poolcounter_core::wheel::TimerId;
use poolcounter_protocol::jobs::name::TubeName;
use std::collections::{BTreeMap, BTreeSet};

/// The order in which the jobs of a bucket are served: priority, then number. Three words, so that a tree of them is dense.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank([u32; 3]);

impl Rank {
    pub fn new(pri: u32, id: JobId) -> Rank {
        Rank([pri, (id.0 >> 32) as u32, id.0 as u32])
    }

    pub fn pri(self) -> u32 {
        self.0[0]
    }

    pub fn id(self) -> JobId {
        JobId(u64::from(self.0[1]) << 32 | u64::from(self.0[2]))
    }
}

/// Ready jobs of a tube that a limit of their group holds back together.
pub(super) struct Bucket {
    pub tube: TubeId,
    pub group: Option<GroupId>,
    pub ready: BTreeSet<Rank>,
    /// Its place among those that the gate of its group holds back, if it was found so.
    pub parked: Option<(u32, u64)>,
    /// Stamp since which its first job was found held back, perhaps several times; 0 if it was not.
    pub held_since: u64,
}

/// A queue of jobs that is kept in their links.
#[derive(Default)]
pub(super) struct Chain {
    ends: Option<(JobKey, JobKey)>,
    len: u32,
}

const END: u32 = u32::MAX;
/// Number of priorities at which a tube keeps its stamp while it has better jobs.
const MOST_STAMPS: usize = 8;

/// A pause of a tube, by the setting that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Paused {
    pub until: Time,
    pub seconds: u32,
    /// True when it is of one tube, and ends with that.
    pub ends_with_tube: bool,
}

/// A tube.
pub(super) struct Tube {
    pub name: Box<[u8]>,
    pub hash: Hash,
    /// The ready jobs without a group.
    pub main: BucketId,
    pub by_group: BTreeMap<GroupId, BucketId>,
    /// The first jobs of the buckets of groups; then of those that were not found held back.
    pub firsts: BTreeSet<(Rank, BucketId)>,
    pub open: BTreeSet<(Rank, BucketId)>,
    /// The job that it has to give; none while it is at its limit or paused.
    pub first: Option<Rank>,
    /// Stamps since which it stands at priorities, the one of its first job last, before that others at which it would stand
    /// without better jobs; none while it has no job to give.
    pub stamps: Vec<(u32, u64)>,
    /// By what holds it back together with other tubes.
    pub lane: LaneId,
    /// The feeds that cover it, the most literal first, as of this epoch.
    pub feeds: Vec<FeedId>,
    pub epoch: u64,
    /// The ready jobs, by since when they are.
    pub waiting: Chain,
    /// Its place in the order of ages of its sums.
    pub ready_since: Option<u64>,
    pub buried: Chain,
    pub delayed: BTreeSet<(Time, JobId)>,
    pub delay_timer: Option<TimerId>,
    pub pending: u32,
    pub urgent: u32,
    pub reserved: u32,
    /// Number of connections that use it, and that watch it by its name.
    pub using: u32,
    pub watching: u32,
    /// Number of jobs that may be reserved at once; 0 means any number.
    pub limit: u32,
    /// The limits that count its reserved jobs, and those that hold them back.
    pub counted: Box<[GateId]>,
    pub held: Box<[GateId]>,
    pub paused: Option<Paused>,
    /// Time at which the tube was left without jobs, users and watchers. It is no tube then, but its rates are kept for a while.
    pub hidden: Option<Time>,
    pub total_jobs: Count,
    pub deletes: Count,
    pub pauses: Count,
    /// The sums of its first and of its last part.
    pub sums: [SumId; 2],
    pub tally: Tally,
}

impl Tube {
    /// Returns a tube without anything.
    pub fn new(name: &[u8], hash: Hash, main: BucketId, lane: LaneId, sums: [SumId; 2]) -> Tube {
        Tube {
            name: name.into(),
            hash,
            main,
            by_group: BTreeMap::new(),
            firsts: BTreeSet::new(),
            open: BTreeSet::new(),
            first: None,
            stamps: Vec::new(),
            lane,
            feeds: Vec::new(),
            epoch: 0,
            waiting: Chain::default(),
            ready_since: None,
            buried: Chain::default(),
            delayed: BTreeSet::new(),
            delay_timer: None,
            pending: 0,
            urgent: 0,
            reserved: 0,
            using: 0,
            watching: 0,
            limit: 0,
            counted: Box::default(),
            held: Box::default(),
            paused: None,
            hidden: None,
            total_jobs: Count::default(),
            deletes: Count::default(),
            pauses: Count::default(),
            sums,
            tally: Tally::default(),
        }
    }

    /// Returns true when no job of it may be reserved by who watches it.
    pub fn is_blocked(&self) -> bool {
        self.paused.is_some() || self.is_at_limit()
    }

    /// Returns true when as many of its jobs are reserved as may be.
    pub fn is_at_limit(&self) -> bool {
        self.limit > 0 && self.reserved >= self.limit
    }

    /// Returns true when it has no jobs, and nobody names it. The tube `default` is always there.
    pub fn is_unused(&self) -> bool {
        self.jobs() == 0 && self.using == 0 && self.watching == 0 && *self.name != *TubeName::DEFAULT.bytes()
    }

    /// Returns its buckets: those of groups, then the one of jobs without a group.
    pub fn buckets(&self) -> impl Iterator<Item = BucketId> {
        self.by_group.values().copied().chain([self.main])
    }

    /// Returns its ready job with the lowest priority and number, held back or not.
    pub fn first_ready(&self, main: &Bucket) -> Option<Rank> {
        let of_group = self.firsts.first().map(|(rank, _)| rank);
        main.ready.first().into_iter().chain(of_group).min().copied()
    }

    /// Returns its place in a lane of the feeds that cover it.
    pub fn standing(&self, id: TubeId) -> Option<(u32, u64, TubeId)> {
        let (pri, stamp) = self.stamps.last()?;
        Some((*pri, *stamp, id))
    }

    /// Stands at another priority, or at none, from now on. It keeps its stamp at one to which it comes back from a better one.
    pub fn stand_at(&mut self, pri: Option<u32>, next_stamp: impl FnOnce() -> u64) {
        let Some(pri) = pri else { return self.stamps = Vec::new() };
        while self.stamps.last().is_some_and(|(other, _)| *other < pri) {
            meter::visit();
            self.stamps.pop();
        }
        if self.stamps.last().is_none_or(|(other, _)| *other != pri) {
            if self.stamps.len() == MOST_STAMPS {
                self.stamps.remove(0);
            }
            self.stamps.push((pri, next_stamp()));
        }
    }

    /// Returns its jobs by state, in the order of [`super::ALL_STATES`].
    pub fn counts(&self) -> [u64; 4] {
        let [ready, reserved, buried] = [self.waiting.len(), self.reserved, self.buried.len()].map(u64::from);
        [ready, reserved, self.delayed.len() as u64, buried]
    }

    /// Returns how many jobs it has, wherever they are.
    pub fn jobs(&self) -> u64 {
        u64::from(self.pending)
            + u64::from(self.waiting.len())
            + u64::from(self.reserved)
            + u64::from(self.buried.len())
            + self.delayed.len() as u64
    }
}

impl Chain {
    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn front(&self) -> Option<JobKey> {
        self.ends.map(|(first, _)| first)
    }

    pub fn push_back(&mut self, jobs: &mut Jobs, key: JobKey) {
        // Lossless, here and below: every Id is made from a u32.
        let last = self.ends.map_or(END, |(_, last)| last.index() as u32);
        jobs[key].links = (last, END);
        self.ends = match self.ends {
            Some((first, last)) => {
                jobs[last].links.1 = key.index() as u32;
                Some((first, key))
            }
            None => Some((key, key)),
        };
        self.len += 1;
    }

    pub fn remove(&mut self, jobs: &mut Jobs, key: JobKey) {
        let key_of = |link: u32| (link != END).then(|| JobKey::from_index(link as usize));
        let (before, after) = (key_of(jobs[key].links.0), key_of(jobs[key].links.1));
        let (mut first, mut last) = self.ends.expect("a chain with a job in it has ends");
        match before {
            Some(before) => jobs[before].links.1 = after.map_or(END, |after| after.index() as u32),
            None => first = after.unwrap_or(first),
        }
        match after {
            Some(after) => jobs[after].links.0 = before.map_or(END, |before| before.index() as u32),
            None => last = before.unwrap_or(last),
        }
        self.len -= 1;
        self.ends = (self.len > 0).then_some((first, last));
    }

    /// Returns the jobs, last come first.
    pub fn iter_back<'a>(&self, jobs: &'a Jobs) -> impl Iterator<Item = JobKey> + use<'a> {
        std::iter::successors(self.ends.map(|(_, last)| last), move |key| {
            let before = jobs[*key].links.0;
            (before != END).then(|| JobKey::from_index(before as usize))
        })
    }

    /// Returns the jobs, first come first.
    pub fn iter<'a>(&self, jobs: &'a Jobs) -> impl Iterator<Item = JobKey> + use<'a> {
        std::iter::successors(self.front(), move |key| {
            let next = jobs[*key].links.1;
            (next != END).then(|| JobKey::from_index(next as usize))
        })
    }
}
