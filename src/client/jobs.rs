//! Client of the beanstalkd protocol: a [`Producer`] puts jobs and administers queues, a [`Runner`] runs jobs.

mod producer;
mod replies;
mod runner;
mod schedule;
pub(super) mod session;

pub use producer::Producer;
pub use runner::Runner;
pub use schedule::{Schedule, ScheduleTimes};

use super::error::Error;
use poolcounter_protocol::jobs::request::{JobId, JobState, Until};
use poolcounter_protocol::jobs::wire::client::{self as wire, PutLine, PutWords, YamlMap};
use std::time::Duration;

/// Job to put. [`NewJob::new`] sets the defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewJob {
    /// Body of the job: at most 65535 bytes, unless the server's `jobs.max_size` differs.
    pub body: Vec<u8>,
    /// Tube; None for the producer's tube.
    pub tube: Option<String>,
    /// Priority: jobs with a lower number are reserved first; below 1024 they count as urgent.
    pub pri: u32,
    /// Time until it can be reserved. Like all times here, sent in whole seconds, rounded up.
    pub delay: Duration,
    /// Time that a runner has for it, renewed by a touch.
    pub ttr: Duration,
    /// Extensions to beanstalkd's protocol.
    pub extras: JobExtras,
}

/// Properties of a job that a plain beanstalkd does not support.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobExtras {
    /// Deduplication key: 1 to 200 bytes without spaces and control bytes. A job is not put if a job with the same key
    /// waits in its tube.
    pub key: Option<Vec<u8>>,
    /// End of the key's effect.
    pub until: Until,
    /// Time from the put on in which the key has its effect in any case, also after the job is done. Not together with a
    /// root job.
    pub key_for: Option<Duration>,
    /// Signature and timestamp of its root job, as registered by [`Producer::root`]: leaves of an older root are
    /// dropped.
    pub root: Option<(Vec<u8>, u64)>,
    /// Group that [`Producer::limit`] limits: 1 to 64 bytes without spaces and control bytes.
    pub group: Option<Vec<u8>>,
}

/// Result of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// The job was inserted and waits.
    Inserted(JobId),
    /// The job was put but buried, because the server had no memory to queue it. Sent only by beanstalkd.
    Buried(JobId),
    /// This job with the same key keeps the put out; nothing was put. With [`JobExtras::key_for`] it may be done already.
    Duplicate(JobId),
    /// This job with the same key is buried, and waits for an operator; nothing was put.
    DuplicateOfBuried(JobId),
    /// A newer root job has replaced its own; nothing was put.
    Superseded,
}

/// Result of a reserve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reservation<T = ReservedJob> {
    /// Reserved job or jobs.
    Reserved(T),
    /// No job was available before the timeout.
    TimedOut,
    /// No job is available, and less than a second of TTR is left for a job that this runner holds.
    DeadlineSoon,
}

/// Job reserved by a [`Runner`], until it is deleted, released or buried, its TTR runs out, or the connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedJob {
    /// Number of the job.
    pub id: JobId,
    /// Body of the job.
    pub body: Vec<u8>,
    /// Number of the connection on which it is reserved.
    connection: u64,
}

/// Status of a job at the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobStatus {
    /// Tube of the job.
    pub tube: String,
    /// State of the job in the tube.
    pub state: JobState,
    /// Priority.
    pub pri: u32,
    /// Time since the put, in whole seconds as all times here.
    pub age: Duration,
    /// Delay of the last put or release.
    pub delay: Duration,
    /// Time that a runner has for it.
    pub ttr: Duration,
    /// Remaining time of the delay or the TTR.
    pub time_left: Duration,
    /// Number of reserves.
    pub reserves: u64,
    /// Number of times its TTR ran out.
    pub timeouts: u64,
    /// Number of releases.
    pub releases: u64,
    /// Number of times it was buried.
    pub buries: u64,
    /// Number of kicks.
    pub kicks: u64,
    /// Tube from which a dead letter comes.
    pub origin: Option<String>,
}

/// Job of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedJob {
    /// Number of the job.
    pub id: JobId,
    /// Time since the put, in whole seconds.
    pub age: Duration,
    /// Priority.
    pub pri: u32,
    /// Number of failed attempts.
    pub attempts: u64,
    /// Key; empty if it has none. In key, group and error, bytes that are not valid text are replaced.
    pub key: String,
    /// Time for which the key is kept, whatever becomes of the job.
    pub key_left: Option<Duration>,
    /// Group; empty if it has none.
    pub group: String,
    /// Reason of the last failure.
    pub error: String,
    /// Tube from which a dead letter comes.
    pub origin: Option<String>,
    /// True if the job will be dropped when its turn comes, because a newer root job exists.
    pub is_superseded: bool,
}

/// Row of a summary.
#[derive(Clone, PartialEq, Debug)]
pub struct SummaryRow {
    /// Name of the wiki, type, tube or runner.
    pub name: String,
    /// Figures by name: jobs by state; seconds in `oldest-ready` and `pickup-delay-...`; jobs per second in rates such
    /// as `put-rate-1` (over the last minute); dropped jobs in `duplicates` and `superseded`.
    pub figures: Vec<(String, f64)>,
}

/// Retry rule of failed jobs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Retry {
    /// Number of attempts after which a job is buried or moved to the dead-letter tube; 0 for no limit.
    pub attempts: u32,
    /// Delay after the first failure. Each delay varies at random by up to a tenth.
    pub first: Duration,
    /// Factor by which each delay exceeds the previous one.
    pub factor: f64,
    /// Longest delay.
    pub max: Duration,
}

impl Default for Retry {
    /// Returns the server's default rule.
    fn default() -> Self {
        Retry { attempts: 10, first: Duration::from_secs(10), factor: 2.0, max: Duration::from_secs(3600) }
    }
}

/// Scope of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LimitScope {
    /// Each matching tube or group separately.
    #[default]
    Each,
    /// All matching tubes together.
    All,
    /// Each group, whose jobs run in order: while a job waits to be tried again, its successors wait, too.
    Ordered,
}

impl LimitScope {
    /// Returns the end of the request.
    fn word(self) -> &'static str {
        match self {
            LimitScope::Each => "",
            LimitScope::All => " all",
            LimitScope::Ordered => " ordered",
        }
    }
}

impl Default for NewJob {
    fn default() -> NewJob {
        NewJob::new("")
    }
}

impl NewJob {
    /// Returns a job for the producer's tube, with priority 65536, no delay and a TTR of one minute.
    pub fn new(body: impl Into<Vec<u8>>) -> NewJob {
        NewJob {
            body: body.into(),
            tube: None,
            pri: 65_536,
            delay: Duration::ZERO,
            ttr: Duration::from_secs(60),
            extras: JobExtras::default(),
        }
    }

    /// Writes the put request without its last line end. Fails with [`Error::NoExtension`] if it needs an extension that
    /// the server lacks, and with [`Error::BadName`] for an invalid name.
    fn write(&self, bytes: &mut Vec<u8>, is_extended: bool) -> Result<(), Error> {
        let JobExtras { key, until, key_for, root, group } = &self.extras;
        let words = PutWords {
            tube: checked("the tube", self.tube.as_ref().map(String::as_bytes), wire::is_tube)?,
            key: checked("the key", key.as_deref(), wire::is_key)?,
            until: *until,
            keep: key_for.map(whole_seconds),
            root: root.as_ref().map(|(signature, timestamp)| (&**signature, *timestamp)),
            group: checked("the group", group.as_deref(), wire::is_group)?,
        };
        checked("the root", words.root.map(|(signature, _)| signature), wire::is_key)?;
        let is_plain = self.extras == JobExtras::default() && (self.tube.is_none() || !is_extended);
        if !is_plain && !is_extended {
            return Err(Error::NoExtension("put-job"));
        }
        let (delay, ttr) = (whole_seconds(self.delay), whole_seconds(self.ttr));
        let options = (!is_plain).then_some(words);
        wire::write_put(bytes, &PutLine { pri: self.pri, delay, ttr, body_bytes: self.body.len(), options });
        bytes.extend_from_slice(&self.body);
        Ok(())
    }
}

impl JobStatus {
    fn of(map: &YamlMap) -> Option<JobStatus> {
        let figure = |name| number_in(map, name);
        let seconds = |name| figure(name).map(Duration::from_secs);
        Some(JobStatus {
            tube: text_in(map, "tube")?.into(),
            state: JobState::of_word(text_in(map, "state")?)?,
            pri: figure("pri")?.try_into().ok()?,
            age: seconds("age")?,
            delay: seconds("delay")?,
            ttr: seconds("ttr")?,
            // After a jump of the clock, beanstalkd may report a negative one.
            time_left: seconds("time-left").unwrap_or_default(),
            reserves: figure("reserves")?,
            timeouts: figure("timeouts")?,
            releases: figure("releases")?,
            buries: figure("buries")?,
            kicks: figure("kicks")?,
            origin: text_in(map, "origin").map(String::from),
        })
    }
}

impl ListedJob {
    fn of(map: &YamlMap) -> Option<ListedJob> {
        let text = |name| text_in(map, name).map(String::from);
        Some(ListedJob {
            id: JobId(number_in(map, "id")?),
            age: Duration::from_secs(number_in(map, "age")?),
            pri: number_in(map, "pri")?.try_into().ok()?,
            attempts: number_in(map, "attempts")?,
            key: text("key")?,
            key_left: number_in(map, "key-left").map(Duration::from_secs),
            group: text("group")?,
            error: text("error")?,
            origin: text("origin"),
            is_superseded: text_in(map, "superseded") == Some("true"),
        })
    }
}

impl SummaryRow {
    fn of(map: &YamlMap) -> Option<SummaryRow> {
        let figures = map.iter().filter(|(name, _)| name != "name");
        let figures = figures.map(|(name, value)| Some((name.clone(), value.parse().ok()?)));
        Some(SummaryRow { name: text_in(map, "name")?.into(), figures: figures.collect::<Option<_>>()? })
    }

    /// Returns a figure by its name.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }
}

fn text_in<'m>(map: &'m YamlMap, name: &str) -> Option<&'m str> {
    map.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
}

fn number_in(map: &YamlMap, name: &str) -> Option<u64> {
    wire::number(text_in(map, name)?.as_bytes())
}

/// Returns the value of an argument, or an empty one if absent; fails if it is invalid.
fn checked<'a>(what: &str, value: impl Into<Option<&'a [u8]>>, is_right: fn(&[u8]) -> bool) -> Result<&'a [u8], Error> {
    match value.into() {
        Some(value) if !is_right(value) => {
            let text = String::from_utf8_lossy(value);
            Err(Error::BadArgument(format!("{what} {text:?}: {}", rule_broken_by(&text, is_right))))
        }
        value => Ok(value.unwrap_or_default()),
    }
}

fn tube_of(name: &str) -> Result<&str, Error> {
    checked("the tube", name.as_bytes(), wire::is_tube).map(|_| name)
}

fn pattern_of(pattern: &str) -> Result<&str, Error> {
    checked("the pattern", pattern.as_bytes(), wire::is_pattern).map(|_| pattern)
}

/// Returns the rule that a text breaks.
fn rule_broken_by(text: &str, is_right: fn(&[u8]) -> bool) -> String {
    // Groups and names of runners are shorter.
    let most = if is_right(&[b'a'; 65]) { 200 } else { 64 };
    let is_wrong = |character: &char| !is_right(format!("a/{character}").as_bytes());
    match text.chars().find(is_wrong) {
        _ if text.is_empty() => "it is empty".into(),
        _ if text.len() > most => format!("it has {} bytes, at most {most} are allowed", text.len()),
        Some(character) => format!("it must not have {character:?}"),
        None if text.starts_with('-') => "it must not begin with -".into(),
        None => "a * is a whole part between slashes, as in */sendMail".into(),
    }
}

/// Returns a time in whole seconds, rounded up and capped at `u32::MAX`.
fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    seconds.try_into().unwrap_or(u32::MAX)
}
