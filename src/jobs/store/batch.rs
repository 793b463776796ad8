//! The changes of a batch as rows that a thread can own: short texts lie together in one piece of memory, long bodies are
//! shared with their jobs. Times are those of the day, so that they mean the same to every process.

use super::{RefusedChange, Visit};
use crate::state::{Backoff, Body, Commit, History, JobId, Record, Saved, Setting, Stored, Until};
use poolcounter_core::count::SmallCount;
use poolcounter_core::time::{Span, Time};
use std::sync::Arc;

/// A body up to this length is copied into the batch: to share it would take as long, and memory for as long as the job lives.
const COPIED_BYTES: usize = 1024;
/// What a row takes beside its texts, as `--jobs-store-queue` reckons it.
const ROW_BYTES: usize = size_of::<Row>();

/// Changes that are committed together.
#[derive(Clone, Default)]
pub struct Batch {
    /// Its number.
    pub commit: Commit,
    /// What changes, in order.
    pub rows: Vec<Row>,
    texts: Vec<u8>,
    shared_bytes: usize,
}

/// One change.
#[derive(Clone)]
pub enum Row {
    /// A job as it is now, perhaps in place of an older one with its number.
    Put(JobRow, RowBody),
    /// A job whose body is as it was.
    Update(JobRow),
    /// A job that is gone.
    Delete(JobId),
    /// The tube and the signature of a root job, its timestamp and when it changed, in microseconds since 1970.
    Root(Text, Text, u64, i64),
    /// A root job that is forgotten.
    RootGone(Text, Text),
    /// What is set in the table of settings: of which kind, for which pattern or group, and how; None if it is gone.
    Setting(&'static str, Text, Option<Text>),
    /// No number below this is given out again.
    NextId(u64),
}

/// A job without its body.
#[derive(Clone)]
pub struct JobRow {
    /// Its number.
    pub id: JobId,
    /// Its tube.
    pub tube: Text,
    /// Its priority.
    pub pri: u32,
    /// The delay that was last asked for, in seconds.
    pub delay: u32,
    /// Its TTR in seconds.
    pub ttr: u32,
    /// When it was put, in microseconds since 1970.
    pub created: i64,
    /// Until when it is delayed, in microseconds since 1970.
    pub delayed_until: Option<i64>,
    /// Whether it is buried.
    pub is_buried: bool,
    /// How often it was reserved.
    pub reserves: SmallCount,
    /// What happened to it.
    pub history: History,
    /// Its key; empty without.
    pub key: Text,
    /// Until when it keeps others with its key out.
    pub until: Until,
    /// The root job that it belongs to, and when that began.
    pub root: Option<(Text, u64)>,
    /// Its group; empty without.
    pub group: Text,
    /// The text of its last failure.
    pub error: Text,
}

/// The body of a row.
#[derive(Clone)]
pub enum RowBody {
    /// Among the texts of the batch.
    Copied(Text),
    /// The job has it, too.
    Shared(Arc<Box<[u8]>>),
}

/// A place among the texts of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Text {
    start: usize,
    end: usize,
}

impl JobRow {
    /// Returns whether it is no more than what each job has: nothing has happened to it, and its put had no options.
    pub fn is_plain(&self) -> bool {
        !self.is_buried
            && self.reserves == SmallCount::ZERO
            && self.history == History::default()
            && self.root.is_none()
            && [self.key, self.group, self.error].iter().all(|text| text.is_empty())
    }
}

impl Text {
    /// Returns whether there is nothing.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

impl Row {
    /// Returns what a client loses if the row is refused; None if nothing can go on without it.
    pub fn change(&self) -> Option<RefusedChange> {
        match self {
            Row::Put(job, _) => Some(RefusedChange::Put(job.id)),
            Row::Update(job) => Some(RefusedChange::Job(job.id)),
            Row::Delete(id) => Some(RefusedChange::Job(*id)),
            Row::Root(..) | Row::RootGone(..) | Row::Setting(..) => Some(RefusedChange::Other),
            Row::NextId(_) => None,
        }
    }
}

impl Batch {
    /// Returns the bytes of a text.
    pub fn text(&self, text: Text) -> &[u8] {
        &self.texts[text.start..text.end]
    }

    /// Returns the bytes of a body.
    pub fn body<'a>(&'a self, body: &'a RowBody) -> &'a [u8] {
        match body {
            RowBody::Copied(text) => self.text(*text),
            RowBody::Shared(bytes) => bytes,
        }
    }

    /// Returns about how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.rows.len() * ROW_BYTES + self.texts.len() + self.shared_bytes
    }

    /// Adds a change. `epoch` is the time of day at [`Time::START`].
    pub fn add(&mut self, change: Stored<'_>, epoch: Span) {
        let row = match change {
            Stored::Put(record, body) => {
                let row = self.job(&record, epoch);
                Row::Put(row, self.take_body(body))
            }
            Stored::Update(record) => Row::Update(self.job(&record, epoch)),
            Stored::Delete(id) => Row::Delete(id),
            Stored::Root(tube, signature, newest, changed) => {
                Row::Root(self.note(tube), self.note(signature), newest, signed(epoch).saturating_add(changed))
            }
            Stored::RootGone(tube, signature) => Row::RootGone(self.note(tube), self.note(signature)),
            Stored::Setting(setting) => self.setting(setting, epoch),
            Stored::NextId(id) => Row::NextId(id),
        };
        self.rows.push(row);
    }

    /// Keeps a text, and returns where.
    pub fn note(&mut self, text: &[u8]) -> Text {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        Text { start, end: self.texts.len() }
    }

    /// Keeps a body that no job has yet.
    pub fn note_body(&mut self, body: &[u8]) -> RowBody {
        if body.len() <= COPIED_BYTES {
            return RowBody::Copied(self.note(body));
        }
        self.shared_bytes += body.len();
        RowBody::Shared(Arc::new(body.into()))
    }

    /// Returns the number of the next job, if the batch says it.
    pub fn next_id(&self) -> Option<u64> {
        self.rows.iter().rev().find_map(|row| if let Row::NextId(id) = row { Some(*id) } else { None })
    }

    /// Visits a row of the batch that puts something, as another process would have saved it. Returns the bytes of its body.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn visit(&self, row: &Row, epoch: Span, visit: Visit<'_>) -> Result<usize, String> {
        match row {
            Row::Put(job, body) => {
                let body = self.body(body);
                let saved = Saved::Job(self.record(job, epoch), body, None, None);
                visit(saved).map_err(|sentence| format!("job {}: {sentence}", job.id))?;
                return Ok(body.len());
            }
            Row::Root(tube, signature, newest, changed) => {
                let changed = changed.saturating_sub(signed(epoch));
                let saved = Saved::Root(self.text(*tube), self.text(*signature), *newest, changed);
                visit(saved).map_err(|sentence| format!("a root job: {sentence}"))?;
            }
            Row::Setting(kind, of, Some(value)) => {
                let setting = read_setting(epoch, kind, self.text(*of), self.text(*value));
                let setting = setting.ok_or("a setting: it makes no sense")?;
                visit(Saved::Setting(setting)).map_err(|sentence| format!("a setting: {sentence}"))?;
            }
            Row::Update(_) | Row::Delete(_) | Row::RootGone(..) | Row::Setting(_, _, None) | Row::NextId(_) => {}
        }
        Ok(0)
    }

    /// Returns a job of this batch as it was added.
    pub fn record(&self, job: &JobRow, epoch: Span) -> Record<'_> {
        Record {
            id: job.id,
            tube: self.text(job.tube),
            pri: job.pri,
            delay: job.delay,
            ttr: job.ttr,
            created: job.created.saturating_sub(signed(epoch)),
            delayed: job.delayed_until.map(|until| moment(epoch, until)),
            is_buried: job.is_buried,
            reserves: job.reserves,
            history: job.history,
            key: self.text(job.key),
            until: job.until,
            root: job.root.map(|(signature, timestamp)| (self.text(signature), timestamp)),
            group: self.text(job.group),
            error: self.text(job.error),
        }
    }

    fn take_body(&mut self, body: &mut Body) -> RowBody {
        if body.bytes().len() <= COPIED_BYTES {
            return RowBody::Copied(self.note(body.bytes()));
        }
        self.shared_bytes += body.bytes().len();
        RowBody::Shared(body.share())
    }

    fn job(&mut self, record: &Record<'_>, epoch: Span) -> JobRow {
        JobRow {
            id: record.id,
            tube: self.note(record.tube),
            pri: record.pri,
            delay: record.delay,
            ttr: record.ttr,
            created: signed(epoch).saturating_add(record.created),
            delayed_until: record.delayed.map(|until| wall(epoch, until)),
            is_buried: record.is_buried,
            reserves: record.reserves,
            history: record.history,
            key: self.note(record.key),
            until: record.until,
            root: record.root.map(|(signature, timestamp)| (self.note(signature), timestamp)),
            group: self.note(record.group),
            error: self.note(record.error),
        }
    }

    fn setting(&mut self, setting: Setting<'_>, epoch: Span) -> Row {
        let (kind, of) = setting.name();
        let value = setting.value(|at| wall(epoch, at));
        Row::Setting(kind, self.note(of), value.map(|value| self.note(&value)))
    }
}

/// Returns the time of day of a moment, in microseconds since 1970.
fn wall(epoch: Span, at: Time) -> i64 {
    i64::try_from(epoch.as_micros().saturating_add(at.as_micros())).unwrap_or(i64::MAX)
}

/// Returns the moment of a time of day. What was before the start is the start.
pub fn moment(epoch: Span, wall: i64) -> Time {
    Time::from_micros(u64::try_from(wall.saturating_sub(signed(epoch))).unwrap_or(0))
}

/// Returns the time of day at the start, in microseconds since 1970.
pub fn signed(epoch: Span) -> i64 {
    i64::try_from(epoch.as_micros()).unwrap_or(i64::MAX)
}

/// Returns the setting that a row of the table of settings says; None if it makes no sense.
pub fn read_setting<'a>(epoch: Span, kind: &str, of: &'a [u8], value: &'a [u8]) -> Option<Setting<'a>> {
    let words = || std::str::from_utf8(value).ok().map(|text| text.split(' ').collect::<Vec<_>>());
    Some(match kind {
        "limit" => match words()?[..] {
            [most, how] => Setting::Limit(of, Some((most.parse().ok()?, how == "all"))),
            _ => return None,
        },
        "group-limit" => Setting::GroupLimit(of, Some(words()?.first()?.parse().ok()?)),
        "retry" => match words()?[..] {
            [attempts, first, factor, max] => {
                let (attempts, first) = (attempts.parse().ok()?, first.parse().ok()?);
                let backoff = Backoff { attempts, first, factor: factor.parse().ok()?, max: max.parse().ok()? };
                Setting::Retry(of, Some(backoff))
            }
            _ => return None,
        },
        "dead-letter" => Setting::DeadLetter(of, Some(value)),
        "file" => Setting::File(of, Some(value)),
        "pause" => match words()?[..] {
            [until, seconds, ref rest @ ..] => {
                let pause = Some((moment(epoch, until.parse().ok()?), seconds.parse().ok()?));
                match rest {
                    [] => Setting::Pause(of, pause),
                    ["tube"] => Setting::TubePause(of, pause),
                    _ => return None,
                }
            }
            _ => return None,
        },
        _ => return None,
    })
}
