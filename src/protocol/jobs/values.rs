//! Values that requests and replies consist of: puts with their bodies, what is asked for, what is answered.

use super::name::Pattern;
use super::request::{JobId, Until};
use poolcounter_core::time::Span;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How many jobs `list-jobs` tells of at most.
pub const MOST_LISTED: u32 = 1000;

/// The bytes of a job. A large body can be shared with a store or a slow reader without being copied.
pub enum Body {
    /// Only the job has it.
    Own(Box<[u8]>),
    /// Others may have it, too.
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

    /// Returns the body to be shared from now on.
    pub fn share(&mut self) -> Arc<Box<[u8]>> {
        let shared = match self {
            Body::Own(bytes) => Arc::new(std::mem::take(bytes)),
            Body::Shared(shared) => return Arc::clone(shared),
        };
        *self = Body::Shared(Arc::clone(&shared));
        shared
    }
}

/// What a put says of its job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Put {
    /// Lower is sooner.
    pub pri: u32,
    /// Seconds until it is ready.
    pub delay: u32,
    /// Seconds for which a runner may have it; 0 counts as 1.
    pub ttr: u32,
    /// What only put-job says.
    pub options: Option<Box<PutOptions>>,
}

/// The options of put-job. An empty name means that it was not said.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PutOptions {
    /// The tube, if it is not the used one.
    pub tube: Box<[u8]>,
    /// The key.
    pub key: Box<[u8]>,
    /// Until when it keeps others with its key out.
    pub until: Until,
    /// The root job's signature, and when it began.
    pub root: Option<(Box<[u8]>, u64)>,
    /// The group.
    pub group: Box<[u8]>,
}

/// Why a put is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Its line makes no sense.
    BadFormat,
    /// There is no such command.
    UnknownCommand,
    /// The body is longer than may be.
    JobTooBig,
    /// The body does not end where it should.
    ExpectedCrlf,
    /// There is no memory for the body.
    OutOfMemory,
}

/// One of the puts of a put-many.
pub enum ManyEntry {
    /// A put with its body.
    Put(Put, Body),
    /// One that is refused already.
    Refused(Refusal),
}

impl ManyEntry {
    /// Returns how many bytes it takes, with its body and its names.
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

/// What a connection asks for that wants jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserve {
    /// How long it waits at most; without end if there is none.
    pub timeout: Option<u32>,
    /// How many it takes at once, if it asked for many.
    pub many: Option<u32>,
}

/// Which job of the used tube a peek asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peek {
    /// The one that would be reserved next.
    Ready,
    /// The one that is ready next.
    Delayed,
    /// The one that would be kicked next.
    Buried,
}

/// What `fail` says of a job, beside its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The job.
    pub id: JobId,
    /// Its priority from then on.
    pub pri: u32,
    /// Seconds for which it waits at least.
    pub delay: u32,
    /// Whether it is buried, however many attempts are left.
    pub buries: bool,
}

/// How long a job waits after an attempt that ended badly, and after how many it is buried.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Backoff {
    /// After so many it is buried; 0 means never.
    pub attempts: u32,
    /// The first delay in seconds.
    pub first: f64,
    /// What each delay is multiplied by for the next.
    pub factor: f64,
    /// The longest delay in seconds.
    pub max: f64,
}

/// What a limit is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitOf<'a> {
    /// Of each tube that matches.
    Each(Pattern<'a>),
    /// Of all tubes together that match.
    All(Pattern<'a>),
    /// Of the group with this name, or of each if it is `*`.
    Group(&'a [u8]),
}

/// The longest backoff in seconds: that of a delay that is asked for.
const LONGEST: f64 = u32::MAX as f64;

impl Backoff {
    /// As beanstalkd: at once, and without end.
    pub const NONE: Backoff = Backoff { attempts: 0, first: 0.0, factor: 1.0, max: 0.0 };
    /// Retry of a job whose runner says that it failed, or has said who it is, where no other is set.
    pub const DEFAULT: Backoff = Backoff { attempts: 10, first: 10.0, factor: 2.0, max: 3600.0 };

    /// Returns the delay after the `attempt`-th attempt.
    pub fn delay(&self, attempt: u32) -> Span {
        let power = self.factor.powf(f64::from(attempt.saturating_sub(1)));
        // Nothing times more than can be told is nothing.
        let grown = if self.first > 0.0 { self.first * power } else { 0.0 };
        let seconds = grown.min(self.max).clamp(0.0, LONGEST);
        Span::from_micros((seconds * 1e6) as u64)
    }
}

/// What a connection is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The job was put.
    Inserted(JobId),
    /// A job with the same key waits already.
    Duplicate(JobId),
    /// The leaf belongs to an older root job than is known.
    Superseded,
    /// No jobs are taken.
    Draining,
    /// Jobs are taken again.
    Accepting,
    /// See [`Refusal`].
    Refused(Refusal),
    /// There is no memory, or there are too many tubes or watches.
    OutOfMemory,
    /// The connection uses another tube, whose name is written behind this.
    Using,
    /// The connection has so many watches.
    Watching(usize),
    /// The last watch cannot be given up.
    NotIgnored,
    /// The connection has the job, whose body follows.
    Reserved(JobId),
    /// The last of the jobs of a `reserve-many` was told.
    End,
    /// A job that the connection holds is about to time out.
    DeadlineSoon,
    /// No job came in time.
    TimedOut,
    /// Nothing is given out for now.
    InternalError,
    /// There is no such job or tube, or it is not the connection's.
    NotFound,
    /// The job is gone.
    Deleted,
    /// The job waits again.
    Released,
    /// The job waits for a kick.
    Buried,
    /// The job's TTR starts anew.
    Touched,
    /// So many jobs were kicked.
    Kicked(u64),
    /// The job was kicked.
    KickedJob,
    /// The tubes are paused, or are not any more.
    Paused,
    /// So many jobs were deleted.
    Cleared(u64),
    /// The newest timestamp of the root job.
    Root(u64),
    /// The limit is set.
    Limit(u32),
    /// The backoff is set.
    Retry,
    /// Where jobs go after their last attempt; nowhere if this is empty.
    DeadLetter(Box<[u8]>),
    /// The runner's name.
    Identified(Box<[u8]>),
}
