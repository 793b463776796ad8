//! Changes of a batch as rows that a thread can own: short texts are in one piece of memory, long bodies are shared
//! with their jobs. Times are times of day, so that they mean the same to every process.

use super::{Commit, Visit};
use crate::state::{
    Body, History, JobId, Origin, Record, Saved, Setting, SettingKind, Stored, TubeName, Until, Value,
    is_signature_of_key,
};
use poolcounter_core::count::SmallCount;
use poolcounter_core::time::{Span, Time};
use std::sync::Arc;

/// Kind of the setting of a store that has only a part of a copy.
pub const UNFINISHED_KIND: &str = "unfinished-copy";
/// Fault of a store with that setting.
pub const UNFINISHED: &str = "a copy to it was not completed: empty it, and copy again";
/// Longest body that is copied into the batch: to share it would take as long, and memory for as long as the job lives.
const COPIED_BYTES: usize = 1024;
/// Bytes of a row beside its texts, as they count for `--jobs-store-queue`.
const ROW_BYTES: usize = size_of::<Row>();

/// Changes that are committed together.
#[derive(Clone, Default)]
pub struct Batch {
    /// Number.
    pub commit: Commit,
    /// Changes, in order.
    pub rows: Vec<Row>,
    texts: Vec<u8>,
    shared_bytes: usize,
}

/// One change.
#[derive(Clone)]
pub enum Row {
    /// Job with its present values, perhaps in place of an older one with its number.
    Put(JobRow, RowBody),
    /// Job whose body has not changed.
    Update(JobRow),
    /// Removed job.
    Delete(JobId),
    /// Tube and signature of a root job, its timestamp and the time of its change, in microseconds since 1970.
    Root(Text, Text, u64, i64),
    /// Root job that is forgotten.
    RootGone(Text, Text),
    /// Row of the table of settings: its kind, its pattern or group, and its value; None if it is removed.
    Setting(&'static str, Text, Option<Text>),
    /// Next number of a job: lower ones are not given out again.
    NextId(u64),
    /// Row of the inbox that was taken, and the reason for which it is refused; empty if it is not.
    Taken(i64, Text),
}

/// A job without its body.
#[derive(Clone)]
pub struct JobRow {
    /// Number.
    pub id: JobId,
    /// Tube.
    pub tube: Text,
    /// Priority.
    pub pri: u32,
    /// Last requested delay, in seconds.
    pub delay: u32,
    /// TTR in seconds.
    pub ttr: u32,
    /// Time of its put, in microseconds since 1970.
    pub created: i64,
    /// End of its delay, or time of its burial, in microseconds since 1970.
    pub delayed_until: Option<i64>,
    /// True if it is buried.
    pub is_buried: bool,
    /// Number of its reservations.
    pub reserves: SmallCount,
    /// Numbers of its other changes.
    pub history: History,
    /// Key; empty without one.
    pub key: Text,
    /// End of the time in which puts with its key are refused.
    pub until: Until,
    /// Root job that it belongs to, and the timestamp of that.
    pub root: Option<(Text, u64)>,
    /// Group; empty without one.
    pub group: Text,
    /// Attempts, time in microseconds since 1970 and tube before it was a dead letter, with spaces between them; empty if
    /// it is none.
    pub origin: Text,
    /// Text of its last failure.
    pub error: Text,
}

/// Body of a row.
#[derive(Clone)]
pub enum RowBody {
    /// In the texts of the batch.
    Copied(Text),
    /// Shared with the job.
    Shared(Arc<Box<[u8]>>),
}

/// Range in the texts of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Text {
    start: usize,
    end: usize,
}

impl JobRow {
    /// Returns whether it has only the values that every job has: no changes yet, and no options of its put.
    pub fn is_plain(&self) -> bool {
        !self.is_buried
            && self.reserves == SmallCount::ZERO
            && self.history == History::default()
            && self.root.is_none()
            && [self.key, self.group, self.origin, self.error].iter().all(|text| text.is_empty())
    }
}

impl Text {
    /// Returns whether the text is empty.
    pub fn is_empty(self) -> bool {
        self.start == self.end
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

    /// Returns the approximate number of its bytes.
    pub fn bytes(&self) -> usize {
        self.rows.len() * ROW_BYTES + self.texts.len() + self.shared_bytes
    }

    /// Returns the approximate number of bytes of some rows.
    pub fn bytes_of(&self, rows: &[Row]) -> usize {
        let len = |texts: &[Text]| texts.iter().map(|text| text.end - text.start).sum::<usize>();
        let job =
            |job: &JobRow| len(&[job.tube, job.key, job.root.unwrap_or_default().0, job.group, job.origin, job.error]);
        let bytes = |row: &Row| match row {
            Row::Put(put, body) => job(put) + self.body(body).len(),
            Row::Update(updated) => job(updated),
            Row::Root(tube, signature, ..) | Row::RootGone(tube, signature) => len(&[*tube, *signature]),
            Row::Setting(_, of, value) => len(&[*of, value.unwrap_or_default()]),
            Row::Delete(_) | Row::NextId(_) | Row::Taken(..) => 0,
        };
        rows.iter().map(|row| ROW_BYTES + bytes(row)).sum()
    }

    /// Returns the rows in parts that have `most` bytes, or a row more.
    pub fn parts(&self, most: usize) -> impl Iterator<Item = &[Row]> {
        let mut bytes = 0;
        self.rows.chunk_by(move |row, _| {
            bytes += self.bytes_of(std::slice::from_ref(row));
            let is_full = bytes >= most;
            bytes = if is_full { 0 } else { bytes };
            !is_full
        })
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
            Stored::Setting(setting) => self.setting(&setting, epoch),
            Stored::NextId(id) => Row::NextId(id),
            Stored::Taken(id, refused) => Row::Taken(id, self.note(refused.as_bytes())),
            Stored::Unfinished(is_so) => {
                let empty = self.note(b"");
                Row::Setting(UNFINISHED_KIND, empty, is_so.then_some(empty))
            }
        };
        self.rows.push(row);
    }

    /// Adds a text, and returns its range.
    pub fn note(&mut self, text: &[u8]) -> Text {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        Text { start, end: self.texts.len() }
    }

    /// Adds a row of the table of settings. It makes no sense if the kind is unknown.
    pub fn add_setting(&mut self, kind: &[u8], of: &[u8], value: &[u8]) {
        let kind = SettingKind::WORDS.into_iter().find(|known| known.as_bytes() == kind).unwrap_or_default();
        let (of, value) = (self.note(of), self.note(value));
        self.rows.push(Row::Setting(kind, of, Some(value)));
    }

    /// Adds a row of the table of root jobs.
    pub fn add_root(&mut self, tube: &[u8], signature: &[u8], newest: i64, changed: i64) {
        let (tube, signature) = (self.note(tube), self.note(signature));
        self.rows.push(Row::Root(tube, signature, newest.cast_unsigned(), changed));
    }

    /// Adds a body that no job has yet.
    pub fn note_body(&mut self, body: &[u8]) -> RowBody {
        if body.len() <= COPIED_BYTES {
            return RowBody::Copied(self.note(body));
        }
        self.shared_bytes += body.len();
        RowBody::Shared(Arc::new(body.into()))
    }

    /// Removes the puts, with the keys that are kept from them on.
    pub fn drop_puts(&mut self) {
        let texts = &self.texts;
        let is_key = |signature: &Text| is_signature_of_key(&texts[signature.start..signature.end]);
        self.rows.retain(|row| match row {
            Row::Put(..) => false,
            Row::Root(_, signature, ..) => !is_key(signature),
            _ => true,
        });
    }

    /// Returns the number of rows of the inbox that were taken.
    pub fn taken(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row, Row::Taken(..))).count()
    }

    /// Returns the number of the next job, if the batch has it.
    pub fn next_id(&self) -> Option<u64> {
        self.rows.iter().rev().find_map(|row| if let Row::NextId(id) = row { Some(*id) } else { None })
    }

    /// Visits a row that puts something, as a record of a handover. Returns the bytes of its body.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with it.
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
                let of = || String::from_utf8_lossy(self.text(*of)).into_owned();
                let setting = setting.ok_or_else(|| format!("a setting of {}: it makes no sense", of()))?;
                visit(Saved::Setting(setting)).map_err(|sentence| format!("a setting: {sentence}"))?;
            }
            Row::Update(_)
            | Row::Delete(_)
            | Row::RootGone(..)
            | Row::Setting(_, _, None)
            | Row::NextId(_)
            | Row::Taken(..) => {}
        }
        Ok(0)
    }

    /// Returns a job of this batch as a record.
    pub fn record(&self, job: &JobRow, epoch: Span) -> Record<'_> {
        Record {
            id: job.id,
            tube: self.text(job.tube),
            pri: job.pri,
            delay: job.delay,
            ttr: job.ttr,
            created: job.created.saturating_sub(signed(epoch)),
            delayed: job.delayed_until.map(|at| match job.is_buried {
                true => Time::from_micros(at.saturating_sub(signed(epoch)).cast_unsigned()),
                false => moment(epoch, at),
            }),
            is_buried: job.is_buried,
            reserves: job.reserves,
            history: job.history,
            key: self.text(job.key),
            until: job.until,
            root: job.root.map(|(signature, timestamp)| (self.text(signature), timestamp)),
            group: self.text(job.group),
            origin: read_origin(epoch, self.text(job.origin)),
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
            delayed_until: record.delayed.map(|at| match record.is_buried {
                true => signed(epoch).saturating_add(at.as_micros().cast_signed()),
                false => wall(epoch, at),
            }),
            is_buried: record.is_buried,
            reserves: record.reserves,
            history: record.history,
            key: self.note(record.key),
            until: record.until,
            root: record.root.map(|(signature, timestamp)| (self.note(signature), timestamp)),
            group: self.note(record.group),
            origin: record.origin.map_or(Text::default(), |origin| self.origin(origin, epoch)),
            error: self.note(record.error),
        }
    }

    fn origin(&mut self, Origin { tube, attempts, at }: Origin<'_>, epoch: Span) -> Text {
        let at = signed(epoch).saturating_add(at);
        self.note(&[format!("{attempts} {at} ").as_bytes(), tube].concat())
    }

    fn setting(&mut self, Setting { kind, of, value }: &Setting, epoch: Span) -> Row {
        let value = value.as_ref().map(|value| value.text(|at| wall(epoch, at)));
        Row::Setting(kind.word(), self.note(of), value.map(|value| self.note(&value)))
    }
}

/// Returns the time of day of a moment, in microseconds since 1970.
fn wall(epoch: Span, at: Time) -> i64 {
    i64::try_from(epoch.as_micros().saturating_add(at.as_micros())).unwrap_or(i64::MAX)
}

/// Returns the moment of a time of day; that of the start for earlier times.
pub fn moment(epoch: Span, wall: i64) -> Time {
    Time::from_micros(u64::try_from(wall.saturating_sub(signed(epoch))).unwrap_or(0))
}

/// Returns the time of day at the start, in microseconds since 1970.
pub fn signed(epoch: Span) -> i64 {
    i64::try_from(epoch.as_micros()).unwrap_or(i64::MAX)
}

/// Returns where a dead letter comes from; None if it is none.
fn read_origin(epoch: Span, text: &[u8]) -> Option<Origin<'_>> {
    let mut words = text.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<i64>().ok();
    let (attempts, at) = (u32::try_from(number()?).ok()?, number()?);
    let tube = TubeName::parse(words.next()?)?.bytes();
    Some(Origin { tube, attempts, at: at.saturating_sub(signed(epoch)) })
}

/// Returns the setting of a row of the table of settings; None if the row is malformed.
pub fn read_setting(epoch: Span, kind: &str, of: &[u8], value: &[u8]) -> Option<Setting> {
    let kind = SettingKind::of_word(kind).filter(|kind| kind.can_be_of(of))?;
    let value = Value::read(kind, value, |wall| moment(epoch, wall))?;
    Some(Setting { kind, of: of.into(), value: Some(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_are_malformed() {
        let read = |kind: &str, of: &[u8], value: &[u8]| read_setting(Span::ZERO, kind, of, value).is_some();
        assert!(read("limit", b"a/*", b"3 each") && read("schedule", b"s", b"0 - 0 schedule-put s 1 1 1 tube=t\nx"));
        for kind in ["limit", "rate", "retry", "dead-letter", "pause"] {
            let value: &[u8] = match kind {
                "limit" => b"3 each",
                "rate" => b"3 per 1 each",
                "retry" => b"3 1 2 9",
                "pause" => b"9 9",
                _ => b"t",
            };
            assert!(read(kind, b"a/*", value) && !read(kind, b"a**", value), "{kind}");
        }
        assert!(!read("schedule", b"s", b"0 - 0 schedule-put s 1 1 1 tube=t"));
    }

    #[test]
    fn a_batch_without_its_puts_keeps_no_keys() {
        let mut batch = Batch::default();
        for signature in [&b"k"[..], b" k"] {
            batch.add(Stored::Root(b"t", signature, 1, 0), Span::ZERO);
        }
        batch.drop_puts();
        assert!(matches!(batch.rows[..], [Row::Root(_, signature, ..)] if batch.text(signature) == b"k"));
    }
}
