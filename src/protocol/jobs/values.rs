//! Values in requests and replies: puts with their bodies, options, and results.

use super::commands::JobCommand;
use super::name::Pattern;
use super::request::{JobId, Until};
use poolcounter_core::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Most jobs in an answer to `list-jobs`.
pub const MOST_LISTED: u32 = 1000;

/// Body of a job. A large one can be shared with a store or a slow reader without being copied.
pub enum Body {
    /// Owned by the job alone.
    Own(Box<[u8]>),
    /// Shared, perhaps with other jobs.
    Shared(Arc<Box<[u8]>>),
}

impl Body {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Body::Own(bytes) => bytes,
            Body::Shared(bytes) => bytes,
        }
    }

    /// Turns the body into a shared one, and returns it.
    pub fn share(&mut self) -> Arc<Box<[u8]>> {
        let shared = match self {
            Body::Own(bytes) => Arc::new(std::mem::take(bytes)),
            Body::Shared(shared) => return Arc::clone(shared),
        };
        *self = Body::Shared(Arc::clone(&shared));
        shared
    }
}

/// Values of a put.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Put {
    /// Priority; lower is sooner.
    pub pri: u32,
    /// Delay in seconds until it is ready.
    pub delay: u32,
    /// Seconds for which a runner may hold it; 0 counts as 1.
    pub ttr: u32,
    /// Options of put-job; None for a put.
    pub options: Option<Box<PutOptions>>,
}

/// Options of put-job. An empty name is a missing one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PutOptions {
    /// Tube, if it is not the used one.
    pub tube: Box<[u8]>,
    /// Key.
    pub key: Box<[u8]>,
    /// End of the time in which it keeps other jobs with its key out.
    pub until: Until,
    /// Seconds from its put on in which it does so in any case, even if it is done.
    pub keep: Option<u32>,
    /// Signature of the root job, and its timestamp.
    pub root: Option<(Box<[u8]>, u64)>,
    /// Group.
    pub group: Box<[u8]>,
    /// Times at which it is put; None for now.
    pub schedule: Option<Box<Schedule>>,
}

/// Name and times of a periodic job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// Name.
    pub name: Box<[u8]>,
    /// Times.
    pub times: ScheduleTimes,
    /// True if a job is put late for a time that was missed.
    pub is_made_up: bool,
}

/// Times of a periodic job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ScheduleTimes {
    /// Each time that this many seconds are over, beginning with the request.
    Every(u32),
    /// By the time of day in a zone.
    Cron {
        /// Expression of cron, with five fields, or six of which the first is the second.
        expression: Box<str>,
        /// Name of the zone in the database of IANA.
        timezone: Box<str>,
    },
}

/// Reason for which a put is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Its line is malformed.
    BadFormat,
    /// The command is unknown.
    UnknownCommand,
    /// The body is longer than allowed.
    JobTooBig,
    /// The body is not followed by CR LF.
    ExpectedCrlf,
    /// There is no memory for the body.
    OutOfMemory,
    /// The line is malformed for this extension.
    WrongForm(#[serde(with = "by_word")] JobCommand),
}

impl JobCommand {
    /// Returns the refusal of a malformed line of this command; for an extension, with its syntax.
    pub fn wrong_form(self) -> Refusal {
        if self.traits().is_extension { Refusal::WrongForm(self) } else { Refusal::BadFormat }
    }
}

/// Commands in a handover, by their words, as their numbers differ between versions.
mod by_word {
    use super::JobCommand;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(command: &JobCommand, serializer: S) -> Result<S::Ok, S::Error> {
        command.row().word.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<JobCommand, D::Error> {
        let word = String::deserialize(deserializer)?;
        JobCommand::of_word(word.as_bytes()).ok_or_else(|| D::Error::custom("there is no such command"))
    }
}

/// Entry of a put-many.
pub enum ManyEntry {
    /// Put with its body.
    Put(Put, Body),
    /// Put that is refused already.
    Refused(Refusal),
}

impl ManyEntry {
    /// Returns the number of its bytes, with its body and its names.
    pub fn kept_bytes(&self) -> usize {
        let ManyEntry::Put(put, body) = self else { return size_of::<ManyEntry>() };
        let names = put.options.as_ref().map_or(0, |options| {
            let PutOptions { tube, key, root, group, .. } = &**options;
            let root = root.as_ref().map_or(0, |(signature, _)| signature.len());
            size_of::<PutOptions>() + tube.len() + key.len() + root + group.len()
        });
        size_of::<ManyEntry>() + body.bytes().len() + names
    }
}

/// Parameters of a reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// Longest wait in seconds; None without a limit.
    pub timeout: Option<u32>,
    /// Most jobs to take at once; None for one job.
    pub many: Option<u32>,
}

/// Job of the used tube that a peek returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peek {
    /// The next to be reserved.
    Ready,
    /// The next to become ready.
    Delayed,
    /// The next to be kicked.
    Buried,
}

/// Parameters of `fail`, beside its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Job.
    pub id: JobId,
    /// New priority.
    pub pri: u32,
    /// Least delay in seconds.
    pub delay: u32,
    /// True if it is buried even if attempts are left.
    pub buries: bool,
}

/// Delays of a job after attempts that ended badly, and the number of attempts after which it is buried.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Backoff {
    /// Number of attempts after which it is buried; 0 means never.
    pub attempts: u32,
    /// First delay in seconds.
    pub first: f64,
    /// Factor from each delay to the next.
    pub factor: f64,
    /// Longest delay in seconds.
    pub max: f64,
}

/// Tubes or group of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitOf<'a> {
    /// The tubes of a pattern.
    Tubes(Pattern<'a>),
    /// The group of this name; `*` is each group.
    Group(&'a [u8]),
}

/// Limit of the jobs that are reserved at a time, or of the jobs that start in a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Limit {
    /// Most jobs; 0 means any number.
    pub most: u32,
    /// Seconds of the period; None for a limit of reserved jobs.
    pub per: Option<u32>,
    /// Jobs that count together.
    pub scope: Scope,
}

/// Jobs that a limit counts together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Scope {
    /// Jobs of each tube.
    #[default]
    Each,
    /// Jobs of all tubes, of which there may not be any number.
    All,
    /// Jobs of a group.
    Group,
    /// Jobs of a group, which run in order.
    Ordered,
}

impl Limit {
    /// Reads the words of a limit, as [`Display`](fmt::Display) writes them.
    pub fn read(words: &[&str]) -> Option<Limit> {
        let (most, per, scope) = match *words {
            [most, "per", per, ref scope @ ..] => (most, Some(per.parse().ok()?), scope),
            [most, ref scope @ ..] => (most, None, scope),
            [] => return None,
        };
        let scope = match *scope {
            [] => Scope::Group,
            ["each"] => Scope::Each,
            ["all"] => Scope::All,
            ["ordered"] => Scope::Ordered,
            _ => return None,
        };
        Some(Limit { most: most.parse().ok()?, per, scope })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.most)?;
        if let Some(per) = self.per {
            write!(f, " per {per}")?;
        }
        f.write_str(match self.scope {
            Scope::Each => " each",
            Scope::All => " all",
            Scope::Group => "",
            Scope::Ordered => " ordered",
        })
    }
}

/// Jobs that a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobsOf<'a> {
    /// The job with this number.
    Job(JobId),
    /// All jobs of the tubes of a pattern.
    Pattern(Pattern<'a>),
}

/// Values of `set-job`; None for a value that stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JobChange {
    /// New priority.
    pub pri: Option<u32>,
    /// Seconds until it is ready, from now on.
    pub delay: Option<u32>,
    /// New TTR in seconds; 0 counts as 1.
    pub ttr: Option<u32>,
}

/// Longest backoff in seconds: the longest delay that a client can request.
const LONGEST: f64 = u32::MAX as f64;

impl Backoff {
    /// beanstalkd's behaviour: at once, and without end.
    pub const NONE: Backoff = Backoff { attempts: 0, first: 0.0, factor: 1.0, max: 0.0 };
    /// Backoff without a setting for jobs whose runner reports the failure, or has identified itself.
    pub const DEFAULT: Backoff = Backoff { attempts: 10, first: 10.0, factor: 2.0, max: 3600.0 };

    /// Returns the delay after the `attempt`-th attempt.
    pub fn delay(&self, attempt: u32) -> Span {
        let power = self.factor.powf(f64::from(attempt.saturating_sub(1)));
        // Zero times infinity counts as zero.
        let grown = if self.first > 0.0 { self.first * power } else { 0.0 };
        let seconds = grown.min(self.max).clamp(0.0, LONGEST);
        Span::from_micros((seconds * 1e6) as u64)
    }
}

/// Reply to a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The job was put.
    Inserted(JobId),
    /// The key keeps the put out: of this job, and true if that is buried.
    Duplicate(JobId, bool),
    /// The leaf belongs to an older root job than the known one.
    Superseded,
    /// Puts are refused.
    Draining,
    /// Puts are accepted again.
    Accepting,
    /// The request is refused, for this reason.
    Refused(Refusal),
    /// Only administrators may send the request, or clients with a rule of access that allows it.
    NotAllowed,
    /// The store is copied; this many bytes.
    Copied(u64),
    /// There is no memory, or there are too many tubes or watches.
    OutOfMemory,
    /// The connection uses another tube, whose name is written behind this.
    Using,
    /// Number of the connection's watches.
    Watching(usize),
    /// The last watch cannot be removed.
    NotIgnored,
    /// The connection holds the job, whose body follows.
    Reserved(JobId),
    /// End of the jobs of a `reserve-many`.
    End,
    /// A job that the connection holds is about to time out.
    DeadlineSoon,
    /// No job came in time.
    TimedOut,
    /// The outcome is unknown, or no jobs are given out at present.
    InternalError,
    /// The job or tube does not exist, or the connection does not hold it.
    NotFound,
    /// The job was cancelled by this client.
    CancelledBy(Arc<[u8]>),
    /// The job is deleted.
    Deleted,
    /// The job is ready or delayed again.
    Released,
    /// The job is buried.
    Buried,
    /// The job's TTR starts anew.
    Touched,
    /// The job has begun.
    Begun,
    /// Number of jobs that were kicked.
    Kicked(u64),
    /// The job was kicked.
    KickedJob,
    /// The pause was set or ended.
    Paused,
    /// Number of jobs that were deleted.
    Cleared(u64),
    /// Number of jobs that were moved.
    Moved(u64),
    /// Number of reserved jobs that were deleted.
    Cancelled(u64),
    /// The job has the new values.
    JobSet,
    /// Newest timestamp of the root job.
    Root(u64),
    /// Number of superseded jobs that were dropped since the last reply of this kind.
    Dropped(u64),
    /// The periodic job is set.
    Scheduled,
    /// The limit is set.
    Limit(u32),
    /// The backoff is set.
    Retry,
    /// Tube of jobs after their last attempt; none if this is empty.
    DeadLetter(Box<[u8]>),
    /// Name of the runner.
    Identified(Box<[u8]>),
}
