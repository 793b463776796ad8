//! Changes of a batch as rows that a thread can own: short texts are in one piece of memory, long bodies are shared
//! with their jobs. Times are times of day, so that they mean the same to every process.

use super::columns::{Named, ascii};
use super::{Commit, Visit};
use crate::state::{Body, JobId, Record, RecordOf, Saved, Setting, SettingKind, Stored, Value, is_signature_of_key};
use poolcounter_core::{Span, Time};
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
    /// Row of a table of named values: both parts of its name, and its value; None if it is removed.
    Named(Named, [Text; 2], Option<Text>),
    /// Next number of a job: lower ones are not given out again.
    NextId(u64),
    /// Row of the inbox that was taken, and the reason for which it is refused; empty if it is not.
    Taken(i64, Text),
}

/// Job without its body. Times are microseconds since 1970.
pub type JobRow = RecordOf<Text>;

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
                let value = format!("{newest} {}", signed(epoch).saturating_add(changed));
                self.named(Named::Root, [tube, signature], Some(value.as_bytes()))
            }
            Stored::RootGone(tube, signature) => self.named(Named::Root, [tube, signature], None),
            Stored::Setting(Setting { kind, of, value }) => {
                let value = value.map(|value| value.text(|at| wall(epoch, at)));
                self.named(Named::Setting, [kind.word().as_bytes(), &of], value.as_deref())
            }
            Stored::NextId(id) => Row::NextId(id),
            Stored::Taken(id, refused) => Row::Taken(id, self.note(refused.as_bytes())),
            Stored::Unfinished(is_so) => {
                self.named(Named::Setting, [UNFINISHED_KIND.as_bytes(), b""], is_so.then_some(&[]))
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

    /// Adds a row of a table of named values, which makes sense or not.
    pub fn add_named(&mut self, table: Named, name: [&[u8]; 2], value: &[u8]) {
        let row = self.named(table, name, Some(value));
        self.rows.push(row);
    }

    /// Adds a job that was read, with its body.
    pub fn add_read(&mut self, job: Record<'_>, body: &[u8]) {
        let row = job.map(0, |text| self.note(text));
        let body = self.note_body(body);
        self.rows.push(Row::Put(row, body));
    }

    fn named(&mut self, table: Named, name: [&[u8]; 2], value: Option<&[u8]>) -> Row {
        Row::Named(table, name.map(|part| self.note(part)), value.map(|value| self.note(value)))
    }

    /// Adds a body that no job has yet.
    fn note_body(&mut self, body: &[u8]) -> RowBody {
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
            Row::Named(Named::Root, [_, signature], Some(_)) => !is_key(signature),
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
            Row::Named(table, name, Some(value)) => {
                let name = name.map(|part| self.text(part));
                let wrong = |sentence| {
                    let [first, second] = name.map(String::from_utf8_lossy);
                    format!("{} {first} of {second}: {sentence}", table.words()[0])
                };
                let saved = read_named(epoch, *table, name, self.text(*value));
                visit(saved.ok_or_else(|| wrong("it makes no sense"))?).map_err(wrong)?;
            }
            Row::Update(_) | Row::Delete(_) | Row::Named(_, _, None) | Row::NextId(_) | Row::Taken(..) => {}
        }
        Ok(0)
    }

    /// Returns a job of this batch, with times since 1970.
    pub fn stored(&self, job: &JobRow) -> Record<'_> {
        job.map(0, |text| self.text(text))
    }

    /// Returns a job of this batch as a record.
    pub fn record(&self, job: &JobRow, epoch: Span) -> Record<'_> {
        let record = job.map(-signed(epoch), |text| self.text(text));
        // Only burials are older than the start: their microseconds are signed.
        let is_right = |at: &Time| record.is_buried || at.as_micros().cast_signed() >= 0;
        Record { delayed: record.delayed.map(|at| if is_right(&at) { at } else { Time::START }), ..record }
    }

    fn take_body(&mut self, body: &mut Body) -> RowBody {
        if body.bytes().len() <= COPIED_BYTES {
            return RowBody::Copied(self.note(body.bytes()));
        }
        self.shared_bytes += body.bytes().len();
        RowBody::Shared(body.share())
    }

    fn job(&mut self, record: &Record<'_>, epoch: Span) -> JobRow {
        record.map(signed(epoch), |text| self.note(text))
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

/// Returns a row of a table of named values as a record of a handover; None if it is malformed.
pub fn read_named<'a>(epoch: Span, table: Named, [first, second]: [&'a [u8]; 2], value: &[u8]) -> Option<Saved<'a>> {
    match table {
        Named::Setting => read_setting(epoch, first, second, value).map(Saved::Setting),
        Named::Root => read_root(epoch, value).map(|(newest, changed)| Saved::Root(first, second, newest, changed)),
    }
}

/// Returns the newest timestamp of a root job and the time of its change, of a row of their table.
pub fn read_root(epoch: Span, value: &[u8]) -> Option<(u64, i64)> {
    let (newest, changed) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    Some((newest.parse().ok()?, changed.parse::<i64>().ok()?.saturating_sub(signed(epoch))))
}

/// Returns the setting of a row of the table of settings; None if the row is malformed.
fn read_setting(epoch: Span, kind: &[u8], of: &[u8], value: &[u8]) -> Option<Setting> {
    let kind = SettingKind::of_word(ascii(kind)).filter(|kind| kind.can_be_of(of))?;
    let value = Value::read(kind, value, |wall| moment(epoch, wall))?;
    Some(Setting { kind, of: of.into(), value: Some(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_are_malformed() {
        let read = |kind: &str, of: &[u8], value: &[u8]| read_setting(Span::ZERO, kind.as_bytes(), of, value).is_some();
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
        assert_eq!(read_root(Span::ZERO, b"7 -8"), Some((7, -8)));
        for value in [&b""[..], b"7", b"7 8 9", b"-7 8", b"\xff 8"] {
            assert_eq!(read_root(Span::ZERO, value), None, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn a_batch_without_its_puts_keeps_no_keys() {
        let mut batch = Batch::default();
        for signature in [&b"k"[..], b" k"] {
            batch.add(Stored::Root(b"t", signature, 1, 0), Span::ZERO);
        }
        batch.drop_puts();
        assert!(
            matches!(batch.rows[..], [Row::Named(Named::Root, [_, signature], _)] if batch.text(signature) == b"k")
        );
    }
}
