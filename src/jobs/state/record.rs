//! Form of jobs and settings in a store or a handover.

use super::job::{History, JobId, JobKey, JobPlacement, Origin, Until};
use super::jobs::Jobs;
use super::limits::Limits;
use super::tubes::Tubes;
use poolcounter_core::count::SmallCount;
use poolcounter_core::id::Id;
use poolcounter_core::time::Time;
use poolcounter_protocol::jobs::values::Body;
use serde::{Deserialize, Serialize};

/// A job without its body, in a store or a handover. Times are microseconds since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record<'a> {
    /// Number.
    pub id: JobId,
    /// Tube.
    pub tube: &'a [u8],
    /// Priority.
    pub pri: u32,
    /// Last requested delay in seconds.
    pub delay: u32,
    /// TTR in seconds.
    pub ttr: u32,
    /// Time of its put.
    pub created: i64,
    /// End of its delay; of a buried job, the time of its burial, of which the microseconds are signed.
    pub delayed: Option<Time>,
    /// True if it is buried.
    pub is_buried: bool,
    /// Number of its reservations.
    pub reserves: SmallCount,
    /// Numbers of its other changes.
    pub history: History,
    /// Key; empty without one.
    pub key: &'a [u8],
    /// End of the time in which it keeps other jobs with its key out.
    pub until: Until,
    /// Root job that it belongs to, and the timestamp of that.
    pub root: Option<(&'a [u8], u64)>,
    /// Group; empty without one.
    pub group: &'a [u8],
    /// Where it comes from, if it is a dead letter.
    pub origin: Option<Origin<'a>>,
    /// Text of its last failure.
    pub error: &'a [u8],
}

/// A setting, or its removal.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Setting<'a> {
    /// Limit of tubes: the number, and true if it is of all together.
    Limit(&'a [u8], Option<(u32, bool)>),
    /// Limit of a group: the number, and true if its jobs run in order.
    GroupLimit(&'a [u8], Option<(u32, bool)>),
    /// Backoff.
    Retry(&'a [u8], Option<super::Backoff>),
    /// Tube of jobs after their last attempt.
    DeadLetter(&'a [u8], Option<&'a [u8]>),
    /// Pause: its end, and its length in seconds.
    Pause(&'a [u8], Option<(Time, u32)>),
    /// Last applied setting of the configuration file: its name, and its value.
    File(&'a [u8], Option<&'a [u8]>),
    /// Pause that ends with its tube.
    TubePause(&'a [u8], Option<(Time, u32)>),
    /// Periodic job: what has become of it, and its definition, which is its line in `schedule-put` behind its name, a
    /// line feed, and its body.
    Schedule(&'a [u8], Option<(Progress, &'a [u8])>),
    /// Rate of tubes: starts, seconds, and true if it is of all together.
    Rate(&'a [u8], Option<(u32, u32, bool)>),
    /// Rate of a group: starts and seconds.
    GroupRate(&'a [u8], Option<(u32, u32)>),
}

/// Progress of a periodic job, by the time of day in microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Times up to this one are over.
    pub from: i64,
    /// Time for which a job was put last.
    pub last: Option<i64>,
    /// Number of times at which none was put.
    pub skipped: u64,
}

impl Progress {
    fn text(&self) -> String {
        let last = self.last.map_or("-".into(), |last| last.to_string());
        format!("{} {last} {}", self.from, self.skipped)
    }

    /// Returns the progress in the value of a setting, and the definition behind it.
    pub fn split(value: &[u8]) -> Option<(Progress, &[u8])> {
        let mut words = value.splitn(4, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (from, last, skipped) = (word()?.parse().ok()?, word()?, word()?.parse().ok()?);
        let last = if last == "-" { None } else { Some(last.parse().ok()?) };
        Some((Progress { from, last, skipped }, words.next()?))
    }
}

impl<'a> Setting<'a> {
    /// Kinds of settings.
    pub const KINDS: [&'static str; 9] =
        ["limit", "group-limit", "retry", "dead-letter", "pause", "file", "schedule", "rate", "group-rate"];

    /// Returns its kind, and its pattern or group.
    pub fn name(&self) -> (&'static str, &'a [u8]) {
        match *self {
            Setting::Limit(pattern, _) => (Self::KINDS[0], pattern),
            Setting::GroupLimit(group, _) => (Self::KINDS[1], group),
            Setting::Retry(pattern, _) => (Self::KINDS[2], pattern),
            Setting::DeadLetter(pattern, _) => (Self::KINDS[3], pattern),
            Setting::Pause(pattern, _) | Setting::TubePause(pattern, _) => (Self::KINDS[4], pattern),
            Setting::File(name, _) => (Self::KINDS[5], name),
            Setting::Schedule(name, _) => (Self::KINDS[6], name),
            Setting::Rate(pattern, _) => (Self::KINDS[7], pattern),
            Setting::GroupRate(group, _) => (Self::KINDS[8], group),
        }
    }

    /// Returns its value as text; None if it is removed. `wall` returns the time of day of a moment.
    pub fn value(&self, wall: impl Fn(Time) -> i64) -> Option<Vec<u8>> {
        match *self {
            Setting::Limit(_, limit) => {
                limit.map(|(most, is_all)| format!("{most} {}", if is_all { "all" } else { "each" }).into())
            }
            Setting::Rate(_, rate) => rate
                .map(|(most, per, is_all)| format!("{most} per {per} {}", if is_all { "all" } else { "each" }).into()),
            Setting::GroupRate(_, rate) => rate.map(|(most, per)| format!("{most} per {per}").into()),
            Setting::GroupLimit(_, limit) => {
                limit.map(|(most, is_ordered)| format!("{most}{}", if is_ordered { " ordered" } else { "" }).into())
            }
            Setting::Retry(_, backoff) => backoff.map(|super::Backoff { attempts, first, factor, max }| {
                format!("{attempts} {first} {factor} {max}").into()
            }),
            Setting::DeadLetter(_, text) | Setting::File(_, text) => text.map(Into::into),
            Setting::Schedule(_, schedule) => {
                schedule.map(|(progress, definition)| [progress.text().as_bytes(), b" ", definition].concat())
            }
            Setting::Pause(_, pause) => pause.map(|(until, seconds)| format!("{} {seconds}", wall(until)).into()),
            Setting::TubePause(_, pause) => {
                pause.map(|(until, seconds)| format!("{} {seconds} tube", wall(until)).into())
            }
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
    Setting(Setting<'a>),
    /// Next number of a job: lower ones will not be given out again.
    NextId(u64),
    /// Row of the inbox that was taken, or is refused.
    Taken(Taken<'a>),
    /// True while the store has only a part of a copy: no daemon may serve it.
    Unfinished(bool),
}

/// Result of a row of the inbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken<'a> {
    /// Number of the row.
    pub id: i64,
    /// Number of its job, if one was put.
    pub job: Option<JobId>,
    /// Reason for which the row is refused; empty if it is not.
    pub refused: &'a str,
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
