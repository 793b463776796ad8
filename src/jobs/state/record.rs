//! Jobs and settings as a store or another process has them.

use super::job::{History, Job, JobId, JobPlacement, Until};
use super::limits::Limits;
use super::tubes::Tubes;
use poolcounter_core::count::SmallCount;
use poolcounter_core::id::Id;
use poolcounter_core::time::Time;
use poolcounter_protocol::jobs::values::Body;
use serde::{Deserialize, Serialize};

/// A job without its body, as a store or another process has it. Times are microseconds since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record<'a> {
    /// Its number.
    pub id: JobId,
    /// Its tube.
    pub tube: &'a [u8],
    /// Its priority.
    pub pri: u32,
    /// The delay that was last asked for, in seconds.
    pub delay: u32,
    /// Its TTR in seconds.
    pub ttr: u32,
    /// Time of its put.
    pub created: i64,
    /// End of its delay.
    pub delayed: Option<Time>,
    /// Whether it is buried.
    pub is_buried: bool,
    /// Number of its reservations.
    pub reserves: SmallCount,
    /// Counts of its other changes.
    pub history: History,
    /// Its key; empty without.
    pub key: &'a [u8],
    /// End of the time in which it keeps others with its key out.
    pub until: Until,
    /// The root job that it belongs to, and when that began.
    pub root: Option<(&'a [u8], u64)>,
    /// Its group; empty without.
    pub group: &'a [u8],
    /// The text of its last failure.
    pub error: &'a [u8],
}

/// A setting, or what is left of one: its absence.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Setting<'a> {
    /// A limit of tubes: how many, and whether all together.
    Limit(&'a [u8], Option<(u32, bool)>),
    /// A limit of a group.
    GroupLimit(&'a [u8], Option<u32>),
    /// A backoff.
    Retry(&'a [u8], Option<super::Backoff>),
    /// Tube of jobs after their last attempt.
    DeadLetter(&'a [u8], Option<&'a [u8]>),
    /// A pause: until when, and how many seconds it was.
    Pause(&'a [u8], Option<(Time, u32)>),
    /// A setting of the configuration file that was set last: its name, and its value.
    File(&'a [u8], Option<&'a [u8]>),
    /// A pause that ends with its tube.
    TubePause(&'a [u8], Option<(Time, u32)>),
}

impl<'a> Setting<'a> {
    /// Kinds of settings.
    pub const KINDS: [&'static str; 6] = ["limit", "group-limit", "retry", "dead-letter", "pause", "file"];

    /// Returns its kind, and what it is of.
    pub fn name(&self) -> (&'static str, &'a [u8]) {
        match *self {
            Setting::Limit(pattern, _) => (Self::KINDS[0], pattern),
            Setting::GroupLimit(group, _) => (Self::KINDS[1], group),
            Setting::Retry(pattern, _) => (Self::KINDS[2], pattern),
            Setting::DeadLetter(pattern, _) => (Self::KINDS[3], pattern),
            Setting::Pause(pattern, _) | Setting::TubePause(pattern, _) => (Self::KINDS[4], pattern),
            Setting::File(name, _) => (Self::KINDS[5], name),
        }
    }

    /// Returns its value as text; None if it is gone. `wall` tells the time of day of a moment.
    pub fn value(&self, wall: impl Fn(Time) -> i64) -> Option<Vec<u8>> {
        match *self {
            Setting::Limit(_, limit) => {
                limit.map(|(most, is_all)| format!("{most} {}", if is_all { "all" } else { "each" }).into())
            }
            Setting::GroupLimit(_, limit) => limit.map(|most| most.to_string().into()),
            Setting::Retry(_, backoff) => backoff.map(|super::Backoff { attempts, first, factor, max }| {
                format!("{attempts} {first} {factor} {max}").into()
            }),
            Setting::DeadLetter(_, text) | Setting::File(_, text) => text.map(Into::into),
            Setting::Pause(_, pause) => pause.map(|(until, seconds)| format!("{} {seconds}", wall(until)).into()),
            Setting::TubePause(_, pause) => {
                pause.map(|(until, seconds)| format!("{} {seconds} tube", wall(until)).into())
            }
        }
    }
}

/// One change, for the store.
pub enum Stored<'a> {
    /// A job that the store does not have.
    Put(Record<'a>, &'a mut Body),
    /// A job that it has.
    Update(Record<'a>),
    /// A job that is gone.
    Delete(JobId),
    /// The newest timestamp of a root job, and when it changed, in microseconds since the start.
    Root(&'a [u8], &'a [u8], u64, i64),
    /// A root job that is forgotten.
    RootGone(&'a [u8], &'a [u8]),
    /// A setting.
    Setting(Setting<'a>),
    /// No number below this will be given out again.
    NextId(u64),
}

/// Returns a job as a store has it. One that is reserved is ready there: reservations are not stored.
pub(super) fn record_of<'a>(job: &'a Job, tubes: &'a Tubes, limits: &'a Limits) -> Record<'a> {
    let extra = job.extra();
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
            JobPlacement::Delayed => Some(job.at),
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
        error: extra.error,
    }
}
