//! Jobs: both sides of the beanstalkd protocol. A [`Producer`] puts jobs and looks after queues, a [`Runner`] does the jobs.

mod producer;
mod runner;
pub(super) mod session;

pub use producer::Producer;
pub use runner::Runner;

use super::error::{Error, Fault};
use poolcounter_protocol::jobs::request::{JobId, JobState, Until};
use poolcounter_protocol::jobs::wire::client::{self as wire, PutLine, PutWords, YamlMap};
use std::time::Duration;

/// A job to be put. [`NewJob::new`] has the defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewJob {
    /// What the runner gets: at most 65535 bytes, unless the server's operator has chosen otherwise.
    pub body: Vec<u8>,
    /// The tube; None for the one that the producer uses.
    pub tube: Option<String>,
    /// Jobs with a lower one are reserved first; below 1024 they count as urgent.
    pub pri: u32,
    /// How long nobody can reserve it. Like all times here it is sent in whole seconds, rounded up.
    pub delay: Duration,
    /// How long a runner has for it, unless it touches it.
    pub ttr: Duration,
    /// What the server adds to beanstalkd's protocol.
    pub extras: JobExtras,
}

/// What a plain beanstalkd does not know of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JobExtras {
    /// A job is not put when one with the same key waits in its tube: 1 to 200 bytes without spaces and control bytes.
    pub key: Option<Vec<u8>>,
    /// How long the key keeps others out.
    pub until: Until,
    /// The signature and the timestamp of its root job, as [`Producer::root`] registers them: a leaf of an older root is dropped.
    pub root: Option<(Vec<u8>, u64)>,
    /// The group that [`Producer::limit_group`] counts: 1 to 64 bytes without spaces and control bytes.
    pub group: Option<Vec<u8>>,
}

/// What came of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// It waits.
    Inserted(JobId),
    /// It is there, but buried, because the server had no memory to queue it. Only a beanstalkd says so.
    Buried(JobId),
    /// This job with the same key waits already, and nothing was put.
    Duplicate(JobId),
    /// Its root job was replaced by a newer one, and nothing was put.
    Superseded,
}

/// What came of a reserve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reservation<T = ReservedJob> {
    /// What was reserved.
    Reserved(T),
    /// There was nothing in time.
    TimedOut,
    /// There is nothing, and less than a second is left for a job that this runner has.
    DeadlineSoon,
}

/// A job that a [`Runner`] has, until it says what became of it, its TTR runs out, or the connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedJob {
    /// Its number.
    pub id: JobId,
    /// What it is about.
    pub body: Vec<u8>,
    /// The connection that it is reserved on.
    connection: u64,
}

/// What the server tells of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobStatus {
    /// The tube that it is in.
    pub tube: String,
    /// Where it is there.
    pub state: JobState,
    /// Its priority.
    pub pri: u32,
    /// Since when it exists, in whole seconds as all times here.
    pub age: Duration,
    /// The delay that it was last given.
    pub delay: Duration,
    /// How long a runner has for it.
    pub ttr: Duration,
    /// What is left of the delay or the TTR.
    pub time_left: Duration,
    /// How often it was reserved.
    pub reserves: u64,
    /// How often its TTR ran out.
    pub timeouts: u64,
    /// How often it was released.
    pub releases: u64,
    /// How often it was buried.
    pub buries: u64,
    /// How often it was kicked.
    pub kicks: u64,
}

/// A job of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedJob {
    /// Its number.
    pub id: JobId,
    /// Since when it exists, in whole seconds.
    pub age: Duration,
    /// Its priority.
    pub pri: u32,
    /// How many attempts at it have ended badly.
    pub attempts: u64,
    /// Its key; empty if it has none. What is no text is replaced in all three.
    pub key: String,
    /// Its group.
    pub group: String,
    /// What was said when it last failed.
    pub error: String,
    /// Whether it is dropped when its turn comes, because there is a newer root job.
    pub is_superseded: bool,
}

/// A row of a summary.
#[derive(Clone, PartialEq, Debug)]
pub struct SummaryRow {
    /// The wiki, type, tube or runner.
    pub name: String,
    /// Its figures by name: jobs by state; seconds in `oldest-ready` and `pickup-delay-...`; jobs a second in `put-rate-1`, over the
    /// last minute, and the like; what was dropped in `duplicates` and `superseded`.
    pub figures: Vec<(String, f64)>,
}

/// How jobs are tried again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Retry {
    /// After so many attempts a job is buried, or moved to the dead-letter tube; 0 for never.
    pub attempts: u32,
    /// How long it waits after the first. A tenth is added or taken away at random.
    pub first: Duration,
    /// By what each wait is longer than the one before.
    pub factor: f64,
    /// The longest wait.
    pub max: Duration,
}

impl Default for Retry {
    /// Returns what holds for jobs that fail where nothing else is set.
    fn default() -> Self {
        Retry { attempts: 10, first: Duration::from_secs(10), factor: 2.0, max: Duration::from_secs(3600) }
    }
}

/// What a limit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LimitScope {
    /// Each tube that matches, for itself.
    #[default]
    Each,
    /// All tubes together that match.
    All,
}

impl NewJob {
    /// Returns a job for the tube that the producer uses, of priority 65536, without delay, with a minute for its runner.
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

    /// Writes it for a server that knows the extensions, or one that does not. The error is what cannot be sent.
    fn write(&self, bytes: &mut Vec<u8>, is_extended: bool) -> Result<(), Error> {
        let JobExtras { key, until, root, group } = &self.extras;
        let words = PutWords {
            tube: checked(self.tube.as_ref().map(String::as_bytes), wire::is_tube)?,
            key: checked(key.as_deref(), wire::is_key)?,
            until: *until,
            root: root.as_ref().map(|(signature, timestamp)| (&**signature, *timestamp)),
            group: checked(group.as_deref(), wire::is_group)?,
        };
        checked(words.root.map(|(signature, _)| signature), wire::is_key)?;
        let is_plain = self.extras == JobExtras::default() && (self.tube.is_none() || !is_extended);
        if !is_plain && !is_extended {
            return Err(Error::NoExtension("put-job"));
        }
        let (delay, ttr) = (whole_seconds(self.delay), whole_seconds(self.ttr));
        let options = (!is_plain).then_some(words);
        wire::write_put(bytes, &PutLine { pri: self.pri, delay, ttr, body_bytes: self.body.len(), options });
        bytes.extend_from_slice(&self.body);
        bytes.extend_from_slice(b"\r\n");
        Ok(())
    }
}

impl ReservedJob {
    fn new(id: JobId, body: Vec<u8>, connection: u64) -> ReservedJob {
        ReservedJob { id, body, connection }
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
            // A beanstalkd whose clock has jumped may tell a negative one.
            time_left: seconds("time-left").unwrap_or_default(),
            reserves: figure("reserves")?,
            timeouts: figure("timeouts")?,
            releases: figure("releases")?,
            buries: figure("buries")?,
            kicks: figure("kicks")?,
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
            group: text("group")?,
            error: text("error")?,
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

/// Returns the value, or nothing if there is none, if it can be sent.
fn checked(value: Option<&[u8]>, is_right: fn(&[u8]) -> bool) -> Result<&[u8], Error> {
    match value {
        Some(value) if !is_right(value) => Err(Error::BadName),
        value => Ok(value.unwrap_or_default()),
    }
}

/// Returns a time in whole seconds, rounded up; as long as can be sent, if it is longer.
fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    seconds.try_into().unwrap_or(u32::MAX)
}

/// Returns the reply to a put.
fn put_outcome(line: &[u8]) -> Result<Result<PutOutcome, Error>, Fault> {
    let (word, rest) = wire::split(line);
    let id = || wire::number(rest).map(JobId).ok_or(Fault::Garbled);
    Ok(Ok(match word {
        "INSERTED" => PutOutcome::Inserted(id()?),
        "BURIED" => PutOutcome::Buried(id()?),
        "DUPLICATE" => PutOutcome::Duplicate(id()?),
        "SUPERSEDED" => PutOutcome::Superseded,
        _ if wire::is_refusal(line) => return Ok(Err(session::refused(line))),
        _ => return Err(Fault::Garbled),
    }))
}
