//! Columns of the table `job`, in their order: the same in a file and in a database.

use super::batch::{Batch, JobRow, Text};
use crate::state::{History, JobId, Until};
use poolcounter_core::count::SmallCount;

/// Number of columns, but for the last ones: the body, and in a file the batch before it.
pub const COLUMNS: usize = 21;
/// Number of the first columns, which are all that most jobs have values in.
pub const PLAIN: usize = 7;

/// Value of a column.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// None.
    Null,
    /// A flag, which is a number in a file.
    Flag(bool),
    /// A number.
    Number(i64),
    /// A text. One that is read is [`Field::Bytes`].
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(self) -> Option<i64> {
        match self {
            Field::Number(number) => Some(number),
            Field::Flag(flag) => Some(flag.into()),
            _ => None,
        }
    }

    fn is_set(self) -> bool {
        self.number().is_some_and(|number| number != 0)
    }

    fn small(self) -> u32 {
        u32::try_from(self.number().unwrap_or_default()).unwrap_or(u32::MAX)
    }

    fn bytes(self) -> &'a [u8] {
        if let Field::Bytes(bytes) = self { bytes } else { &[] }
    }
}

impl Batch {
    /// Returns the columns of a job.
    pub fn columns(&self, job: &JobRow) -> [Field<'_>; COLUMNS] {
        let some = |text: Text| if text.is_empty() { Field::Null } else { Field::Bytes(self.text(text)) };
        let count = |count: SmallCount| Field::Number(count.get().into());
        let History { timeouts, releases, buries, kicks, attempts } = job.history;
        [
            Field::Number(job.id.0.cast_signed()),
            Field::Text(ascii(self.text(job.tube))),
            Field::Number(job.pri.into()),
            Field::Number(job.delay.into()),
            Field::Number(job.ttr.into()),
            Field::Number(job.created),
            job.delayed_until.map_or(Field::Null, Field::Number),
            Field::Flag(job.is_buried),
            count(job.reserves),
            count(timeouts),
            count(releases),
            count(buries),
            count(kicks),
            count(attempts),
            some(job.key),
            Field::Flag(job.until == Until::Deleted),
            job.root.map_or(Field::Null, |(signature, _)| Field::Bytes(self.text(signature))),
            job.root.map_or(Field::Null, |(_, timestamp)| Field::Number(timestamp.cast_signed())),
            some(job.group),
            some(job.error),
            some(job.origin),
        ]
    }

    /// Returns the job with these columns.
    ///
    /// # Errors
    ///
    /// That of a column.
    pub fn read_job<'a, E>(&mut self, column: impl Fn(usize) -> Result<Field<'a>, E>) -> Result<JobRow, E> {
        let mut columns = [Field::Null; COLUMNS];
        for (at, field) in columns.iter_mut().enumerate() {
            *field = column(at)?;
        }
        let [id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, rest @ ..] = columns;
        let [timeouts, releases, buries, kicks, attempts, key, until_deleted, root, root_timestamp, rest @ ..] = rest;
        let [group, error, origin] = rest.map(|field| self.note(field.bytes()));
        let [timeouts, releases, buries, kicks, attempts] =
            [timeouts, releases, buries, kicks, attempts].map(|field| field.small().into());
        let root_timestamp = root_timestamp.number().unwrap_or_default().cast_unsigned();
        Ok(JobRow {
            id: JobId(id.number().unwrap_or_default().cast_unsigned()),
            tube: self.note(tube.bytes()),
            pri: pri.small(),
            delay: delay.small(),
            ttr: ttr.small(),
            created: created.number().unwrap_or_default(),
            delayed_until: delayed_until.number(),
            is_buried: buried.is_set(),
            reserves: reserves.small().into(),
            history: History { timeouts, releases, buries, kicks, attempts },
            key: self.note(key.bytes()),
            until: if until_deleted.is_set() { Until::Deleted } else { Until::Reserved },
            root: matches!(root, Field::Bytes(_)).then(|| (self.note(root.bytes()), root_timestamp)),
            group,
            error,
            origin,
        })
    }
}

/// Returns the name of a tube as text. Names of tubes are ASCII.
pub fn ascii(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}
