//! A tube: its queues, its users, and its recent events.

pub(super) mod index;
pub(super) mod placement;
pub(super) mod tubes;

use super::feeds::Standing;
use super::ids::{BucketId, FeedId, GateId, GroupId, LaneId, TubeId};
use super::job::{JobId, JobKey};
use super::jobs::Jobs;
use super::rates::Rate;
use super::setting::Paused;
use super::sums::SumId;
use super::tally::Tally;
use poolcounter_core::names::Hash;
use poolcounter_core::{Count, Id, Sorted, Time, TimerId, meter};
use poolcounter_protocol::jobs::name::TubeName;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::LazyLock;

/// Rank of a job in its bucket: priority, then number. Three words, so that a tree of them is dense.
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
    pub group: GroupId,
    pub ready: Sorted<Rank>,
    /// Its key among the buckets that its group's gate holds back, if it was found so.
    pub parked: Option<(u32, u64)>,
    /// Stamp at which the limit first held back its first job; 0 if it did not.
    pub held_since: u64,
}

/// Queue of jobs, linked through the jobs themselves.
#[derive(Default)]
pub(super) struct Chain {
    ends: Option<(JobKey, JobKey)>,
    pub len: u32,
}

const END: u32 = u32::MAX;
/// Number of priorities at which a tube keeps its stamp while it has better jobs.
const MOST_STAMPS: usize = 8;
/// Number of stamps for which a tube without a job to give keeps room.
const KEPT_STAMPS: usize = 4;

/// A tube.
#[derive(Default)]
pub(super) struct Tube {
    pub name: Box<[u8]>,
    pub hash: Hash,
    /// The ready jobs without a group.
    pub ready: Sorted<Rank>,
    /// The job that it can give; None while it is at its limit or paused.
    pub first: Option<Rank>,
    /// Stack of priorities and stamps in feeds, the priority of the first job last. The stamps before it keep the
    /// position at worse priorities. Empty while the tube has no job to give.
    pub stamps: Vec<(u32, u64)>,
    /// Lane of the limits that hold it back together with other tubes.
    pub lane: LaneId,
    /// Feeds that cover it, the most literal first, as of this epoch.
    pub feeds: Vec<FeedId>,
    pub epoch: u64,
    /// Ready jobs, by the time since which they are.
    pub waiting: Chain,
    /// Position in the order of ages of its sums.
    pub ready_since: Option<u32>,
    /// None while it has nothing of that.
    rare: Option<Box<Rare>>,
    pub pending: u32,
    pub urgent: u64,
    pub reserved: u32,
    /// Numbers of connections that use it, and that watch it by its name.
    pub using: u32,
    pub watching: u32,
    /// Time at which it was left without jobs, users and watchers. Clients do not see it then, but its rates are kept
    /// for a while.
    pub hidden: Option<Time>,
    pub total_jobs: Count,
    pub deletes: Count,
    /// Sums of its first and of its last part.
    pub sums: [SumId; 2],
    pub tally: Tally,
}

/// Queues, settings and counts that few tubes have.
#[derive(Default)]
pub(super) struct Rare {
    pub by_group: BTreeMap<GroupId, BucketId>,
    /// First job of each bucket of a group.
    pub firsts: BTreeSet<(Rank, BucketId)>,
    /// First jobs of the buckets that no limit holds back, as far as is known.
    pub open: BTreeSet<(Rank, BucketId)>,
    /// Ready dead letters, which a kick sends back.
    pub dead: BTreeSet<JobId>,
    pub buried: Chain,
    pub delayed: Sorted<(Time, JobId)>,
    pub delay_timer: Option<TimerId>,
    /// Number of delayed jobs that wait to be tried again.
    pub retrying: u64,
    /// Most jobs that may be reserved at once; 0 means any number.
    pub limit: u32,
    /// Limits that count its reserved jobs, and limits that hold its jobs back.
    pub counted: Vec<GateId>,
    pub held: Vec<GateId>,
    /// Rate of its own.
    pub rate: Option<Box<Rate>>,
    pub paused: Option<Paused>,
    /// Number of pause-tube commands.
    pub pauses: u64,
    /// Number of superseded jobs that were dropped since it was last taken. Not handed over.
    pub dropped: u64,
}

impl Rare {
    fn is_none(&self) -> bool {
        let has_ready = !self.by_group.is_empty() || !self.dead.is_empty();
        let has_jobs = has_ready || self.buried.len > 0 || !self.delayed.is_empty();
        let has_limits = self.limit > 0 || !self.counted.is_empty() || self.rate.is_some();
        !has_jobs && !has_limits && self.paused.is_none() && self.pauses.max(self.dropped) == 0
    }
}

impl Deref for Tube {
    type Target = Rare;

    #[inline]
    fn deref(&self) -> &Rare {
        static NONE: LazyLock<Rare> = LazyLock::new(Rare::default);
        self.rare.as_deref().unwrap_or_else(|| &NONE)
    }
}

impl Tube {
    /// Returns the total counts of jobs, deletes and pauses.
    pub fn totals(&self) -> [Count; 3] {
        [self.total_jobs, self.deletes, self.pauses.into()]
    }

    /// Sets the total counts of jobs, deletes and pauses.
    pub fn set_totals(&mut self, totals: [Count; 3]) {
        let pauses;
        [self.total_jobs, self.deletes, pauses] = totals;
        if pauses.get() != self.pauses {
            self.rare().pauses = pauses.get();
        }
    }

    /// Returns what few tubes have, for changes.
    pub fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Returns the same, if it has some of that.
    #[inline]
    pub fn some_rare(&mut self) -> Option<&mut Rare> {
        self.rare.as_deref_mut()
    }

    /// Forgets what few tubes have if it has nothing of that any more.
    pub fn tidy(&mut self) {
        self.rare = self.rare.take().filter(|rare| !rare.is_none());
    }

    /// Returns true if none of its jobs can be reserved through watches.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.paused.is_some()) || self.is_at_limit()
    }

    /// Returns true if it has reached its limit of reserved jobs, or of starts.
    #[inline]
    pub fn is_at_limit(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| {
            rare.limit > 0 && self.reserved >= rare.limit || rare.rate.as_ref().is_some_and(|rate| rate.is_full)
        })
    }

    /// Returns true if it has no jobs, users and watchers. The tube `default` always exists.
    pub fn is_unused(&self) -> bool {
        self.jobs() == 0 && self.using == 0 && self.watching == 0 && *self.name != *TubeName::DEFAULT.bytes()
    }

    /// Returns its ready job with the lowest priority and number, held back or not.
    pub fn first_ready(&self) -> Option<Rank> {
        let of_group = self.firsts.first().map(|(rank, _)| rank);
        self.ready.first().into_iter().chain(of_group).min().copied()
    }

    /// Returns its entry in a lane of the feeds that cover it.
    pub fn standing(&self, id: TubeId) -> Option<Standing> {
        let (pri, stamp) = self.stamps.last()?;
        Some((*pri, *stamp, id))
    }

    /// Sets its priority, or none. It keeps its stamp at a priority to which it returns from a better one.
    pub fn stand_at(&mut self, pri: Option<u32>, next_stamp: impl FnOnce() -> u64) {
        let Some(pri) = pri else {
            self.stamps.clear();
            return self.stamps.shrink_to(KEPT_STAMPS);
        };
        while self.stamps.last().is_some_and(|(other, _)| *other < pri) {
            meter::visit();
            self.stamps.pop();
        }
        if self.stamps.last().is_none_or(|(other, _)| *other != pri) {
            if self.stamps.len() == MOST_STAMPS {
                self.stamps.remove(0);
            }
            if self.stamps.capacity() == 0 {
                // Most tubes have jobs of one priority.
                self.stamps.reserve_exact(1);
            }
            self.stamps.push((pri, next_stamp()));
        }
    }

    /// Returns its jobs by state, in the order of [`JobState::ALL`].
    pub fn counts(&self) -> [u64; 4] {
        let [ready, reserved, buried] = [self.waiting.len, self.reserved, self.buried.len].map(u64::from);
        [ready, reserved, self.delayed.len() as u64, buried]
    }

    /// Returns the number of its jobs, in any state.
    pub fn jobs(&self) -> u64 {
        u64::from(self.pending)
            + u64::from(self.waiting.len)
            + u64::from(self.reserved)
            + u64::from(self.buried.len)
            + self.delayed.len() as u64
    }
}

impl Chain {
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

    /// Returns the jobs, the last added first.
    pub fn iter_back<'a>(&self, jobs: &'a Jobs) -> impl Iterator<Item = JobKey> + use<'a> {
        std::iter::successors(self.ends.map(|(_, last)| last), move |key| {
            let before = jobs[*key].links.0;
            (before != END).then(|| JobKey::from_index(before as usize))
        })
    }

    /// Returns the jobs, the first added first.
    pub fn iter<'a>(&self, jobs: &'a Jobs) -> impl Iterator<Item = JobKey> + use<'a> {
        std::iter::successors(self.front(), move |key| {
            let next = jobs[*key].links.1;
            (next != END).then(|| JobKey::from_index(next as usize))
        })
    }
}
