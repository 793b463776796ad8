//! Form of jobs and settings in a store or a handover.

use super::job::{History, JobId, JobKey, JobPlacement, OriginOf, Until};
use super::jobs::Jobs;
use super::limits::Limits;
use super::setting::Setting;
use super::tubes::Tubes;
use poolcounter_core::{Id, SmallCount, Time};
use poolcounter_protocol::jobs::values::Body;
use serde::{Deserialize, Serialize};

/// A job without its body, in a handover. Times are microseconds since the start.
pub type Record<'a> = RecordOf<&'a [u8]>;

/// A job without its body, with texts of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecordOf<T> {
    /// Number.
    pub id: JobId,
    /// Tube.
    pub tube: T,
    /// Priority.
    pub pri: u32,
    /// Last requested delay in seconds.
    pub delay: u32,
    /// TTR in seconds.
    pub ttr: u32,
    /// Time of its put.
    pub created: i64,
    /// End of its delay; of a buried job, the time of its burial. The microseconds are signed.
    pub delayed: Option<Time>,
    /// True if it is buried.
    pub is_buried: bool,
    /// Number of its reservations.
    pub reserves: SmallCount,
    /// Numbers of its other changes.
    pub history: History,
    /// Key; empty without one.
    pub key: T,
    /// End of the time in which it keeps other jobs with its key out.
    pub until: Until,
    /// Root job that it belongs to, and the timestamp of that.
    pub root: Option<(T, u64)>,
    /// Group; empty without one.
    pub group: T,
    /// Where it comes from, if it is a dead letter.
    pub origin: Option<OriginOf<T>>,
    /// Text of its last failure.
    pub error: T,
}

impl<T: Copy> RecordOf<T> {
    /// Returns the job with texts of another type, and with times that count from a moment so many microseconds earlier.
    pub fn map<U>(&self, earlier: i64, mut text: impl FnMut(T) -> U) -> RecordOf<U> {
        let since = |at: i64| at.saturating_add(earlier);
        RecordOf {
            id: self.id,
            tube: text(self.tube),
            pri: self.pri,
            delay: self.delay,
            ttr: self.ttr,
            created: since(self.created),
            delayed: self.delayed.map(|at| Time::from_micros(since(at.as_micros().cast_signed()).cast_unsigned())),
            is_buried: self.is_buried,
            reserves: self.reserves,
            history: self.history,
            key: text(self.key),
            until: self.until,
            root: self.root.map(|(signature, timestamp)| (text(signature), timestamp)),
            group: text(self.group),
            origin: self.origin.map(|OriginOf { tube, attempts, at }| OriginOf {
                tube: text(tube),
                attempts,
                at: since(at),
            }),
            error: text(self.error),
        }
    }
}

/// One change, for the store.
pub enum Stored<'a> {
    /// New job.
    Put(Record<'a>, &'a mut Body),
    /// New values of a job that the store has.
    Update(Record<'a>),
    /// Removed job.
    Delete(JobId),
    /// Newest timestamp of a root job, and the time of its change in microseconds since the start.
    Root(&'a [u8], &'a [u8], u64, i64),
    /// Root job that is forgotten.
    RootGone(&'a [u8], &'a [u8]),
    /// A setting.
    Setting(Setting),
    /// Next number of a job: lower ones will not be given out again.
    NextId(u64),
    /// Row of the inbox that was taken, and the reason for which it is refused; empty if it is not.
    Taken(i64, &'a str),
    /// True while the store has only a part of a copy: no daemon may serve it.
    Unfinished(bool),
}

/// Returns a job as a store has it. A reserved job is ready there: reservations are not stored.
pub(super) fn record_of<'a>(jobs: &'a Jobs, key: JobKey, tubes: &'a Tubes, limits: &'a Limits) -> Record<'a> {
    let (job, extra) = (&jobs[key], jobs.extra(key));
    let pending_until = || {
        let due = u64::try_from(job.created).unwrap_or(0).saturating_add(u64::from(job.delay) * 1_000_000);
        (job.delay > 0).then_some(Time::from_micros(due))
    };
    Record {
        id: job.id,
        tube: &tubes[job.tube].name,
        pri: job.pri,
        delay: job.delay,
        ttr: job.ttr,
        created: job.created,
        delayed: match job.place {
            JobPlacement::Delayed | JobPlacement::Buried => Some(job.at),
            JobPlacement::Pending => pending_until(),
            _ => None,
        },
        is_buried: job.place == JobPlacement::Buried,
        reserves: job.reserves,
        history: extra.history,
        key: extra.key,
        until: extra.until,
        root: extra.root,
        group: extra.group.map_or(&[], |group| &limits.groups[group.index()].name),
        origin: extra.origin,
        error: extra.error,
    }
}
