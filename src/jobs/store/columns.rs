//! Tables of a store, and the statements about them: one list of columns makes them for a file and for a database.

use crate::state::{History, JobId, Origin, Record, TubeName, Until};
use poolcounter_core::{SmallCount, Time};
use std::ops::Range;

/// Number of columns of the table `job`, but for the last ones: the body, and in a file the batch before it.
pub const COLUMNS: usize = 23;
/// Number of the first columns, which are all that most jobs have values in.
pub const PLAIN: usize = 7;

/// Type of a column.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A number of 64 bits.
    Number,
    /// ASCII.
    Text,
    /// Bytes, as clients give names.
    Bytes,
}

const SET: &str = " NOT NULL";
const ZERO: &str = " NOT NULL DEFAULT 0";

/// Column of the table `job`: name, type and constraint, and the functions that read its value from a job and set it.
type Column = (&'static str, Kind, &'static str, ValueOf, SetValue);
type ValueOf = for<'a> fn(&Record<'a>) -> Field<'a>;
type SetValue = for<'a> fn(&mut Record<'a>, Field<'a>);

/// Makes the list of columns.
macro_rules! columns {
    ($($name:literal, $kind:ident, $constraint:expr, $value:expr, $set:expr;)+) => {
        [$(($name, Kind::$kind, $constraint, $value, $set)),+]
    };
}

/// Columns of the table `job`. Times are microseconds since 1970, and flags are numbers.
static JOB: [Column; COLUMNS] = columns! {
    "id", Number, " PRIMARY KEY", |job| number(job.id.0.cast_signed()),
        |job, to| job.id = JobId(to.number().cast_unsigned());
    "tube", Text, SET, |job| Field::Text(ascii(job.tube)), |job, to| job.tube = to.bytes();
    "pri", Number, SET, |job| number(job.pri), |job, to| job.pri = to.small();
    "delay", Number, SET, |job| number(job.delay), |job, to| job.delay = to.small();
    "ttr", Number, SET, |job| number(job.ttr), |job, to| job.ttr = to.small();
    "created", Number, SET, |job| number(job.created), |job, to| job.created = to.number();
    "delayed_until", Number, "", |job| perhaps(job.delayed.map(|at| at.as_micros().cast_signed())),
        |job, to| job.delayed = to.some().map(|to| Time::from_micros(to.number().cast_unsigned()));
    "buried", Number, ZERO, |job| number(job.is_buried), |job, to| job.is_buried = to.number() != 0;
    "reserves", Number, ZERO, |job| count(job.reserves), |job, to| job.reserves = to.small().into();
    "timeouts", Number, ZERO, |job| count(job.history.timeouts), |job, to| job.history.timeouts = to.small().into();
    "releases", Number, ZERO, |job| count(job.history.releases), |job, to| job.history.releases = to.small().into();
    "buries", Number, ZERO, |job| count(job.history.buries), |job, to| job.history.buries = to.small().into();
    "kicks", Number, ZERO, |job| count(job.history.kicks), |job, to| job.history.kicks = to.small().into();
    "attempts", Number, ZERO, |job| count(job.history.attempts), |job, to| job.history.attempts = to.small().into();
    "key", Bytes, "", |job| bytes(job.key), |job, to| job.key = to.bytes();
    "until_deleted", Number, ZERO, |job| number(job.until == Until::Deleted),
        |job, to| job.until = if to.number() != 0 { Until::Deleted } else { Until::Reserved };
    "root", Bytes, "", |job| bytes(job.root.map_or(&[], |(signature, _)| signature)),
        |job, to| job.root = to.some().map(|to| (to.bytes(), 0));
    "root_timestamp", Number, "", |job| perhaps(job.root.map(|(_, timestamp)| timestamp.cast_signed())),
        |job, to| job.root = job.root.map(|(signature, _)| (signature, to.number().cast_unsigned()));
    "job_group", Bytes, "", |job| bytes(job.group), |job, to| job.group = to.bytes();
    "error", Bytes, "", |job| bytes(job.error), |job, to| job.error = to.bytes();
    "origin", Bytes, "", |job| bytes(job.origin.map_or(&[], |origin| origin.tube)), |job, to| {
        job.origin = TubeName::parse(to.bytes()).map(|tube| Origin { tube: tube.bytes(), attempts: 0, at: 0 });
    };
    "origin_attempts", Number, "", |job| perhaps(job.origin.map(|origin| origin.attempts.into())),
        |job, to| job.origin = job.origin.map(|origin| Origin { attempts: to.small(), ..origin });
    "origin_at", Number, "", |job| perhaps(job.origin.map(|origin| origin.at)),
        |job, to| job.origin = job.origin.map(|origin| Origin { at: to.number(), ..origin });
};

/// Table of values, each with a name of two parts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Named {
    /// Settings, by kind and pattern.
    Setting,
    /// Root jobs, by tube and signature. The value is the newest timestamp and the time of its change.
    Root,
}

impl Named {
    /// Every table of this form.
    pub const ALL: [Named; 2] = [Named::Setting, Named::Root];

    /// Returns the names of the table and of both parts.
    pub fn words(self) -> [&'static str; 3] {
        match self {
            Named::Setting => ["setting", "kind", "pattern"],
            Named::Root => ["root", "tube", "signature"],
        }
    }

    /// Returns the statement that reads the table.
    pub fn all(self) -> String {
        let [table, first, second] = self.words();
        format!("SELECT {first}, {second}, value FROM {table}")
    }
}

/// Returns the statements that create the tables. `types` are the words for the types; `own` is a column of the table
/// `job` before the body; `ends` follow the definitions of that table and of the others.
pub fn tables([number, text, bytes]: [&str; 3], own: &str, ends: [&str; 2]) -> String {
    let job = |(name, kind, constraint, ..): &Column| {
        format!("    {name} {}{constraint},\n", [number, text, bytes][*kind as usize])
    };
    let named = |table: Named| {
        let [table, first, second] = table.words();
        format!(
            "CREATE TABLE {table} (\n    {first} {text}{SET},\n    {second} {bytes}{SET},\n    value {bytes}{SET},\n    \
             PRIMARY KEY ({first}, {second})\n){};\n",
            ends[1]
        )
    };
    let columns: String = JOB.iter().map(job).collect();
    let others = Named::ALL.map(named).concat();
    format!("CREATE TABLE job (\n{columns}{own}    body {bytes}{SET}\n){};\n{others}", ends[0])
}

/// Returns a list of some columns, each in the form that `form` makes of its position, name and type.
pub fn listed(columns: Range<usize>, form: impl Fn(usize, &str, Kind) -> String) -> String {
    let form = |at: usize| form(at, JOB[at].0, JOB[at].1);
    columns.map(form).collect::<Vec<_>>().join(", ")
}

/// Returns a list of the names of the first columns.
pub fn names(used: usize) -> String {
    listed(0..used, |_, name, _| name.into())
}

/// Value of a column.
#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    /// None.
    Null,
    /// A number.
    Number(i64),
    /// A text. One that is read is [`Field::Bytes`].
    Text(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(self) -> i64 {
        if let Field::Number(number) = self { number } else { 0 }
    }

    fn small(self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    fn bytes(self) -> &'a [u8] {
        if let Field::Bytes(bytes) = self { bytes } else { &[] }
    }

    /// Returns the field, unless it is null.
    fn some(self) -> Option<Field<'a>> {
        if let Field::Null = self { None } else { Some(self) }
    }
}

fn number<'a>(number: impl Into<i64>) -> Field<'a> {
    Field::Number(number.into())
}

fn perhaps<'a>(number: Option<i64>) -> Field<'a> {
    number.map_or(Field::Null, Field::Number)
}

fn count<'a>(count: SmallCount) -> Field<'a> {
    number(count.get())
}

fn bytes(bytes: &[u8]) -> Field<'_> {
    if bytes.is_empty() { Field::Null } else { Field::Bytes(bytes) }
}

impl<'a> Record<'a> {
    /// Returns whether it has only the values that every job has: no changes yet, and no options of its put.
    pub fn is_plain(&self) -> bool {
        !self.is_buried
            && self.reserves == SmallCount::ZERO
            && self.history == History::default()
            && self.root.is_none()
            && self.origin.is_none()
            && [self.key, self.group, self.error].iter().all(|text| text.is_empty())
    }

    /// Returns its first columns.
    pub fn columns(self, used: usize) -> impl Iterator<Item = Field<'a>> {
        JOB[..used].iter().map(move |(.., value, _)| value(&self))
    }

    /// Returns the job whose columns a function reads.
    ///
    /// # Errors
    ///
    /// The first one of the function.
    pub fn read<E>(mut column: impl FnMut(usize) -> Result<Field<'a>, E>) -> Result<Record<'a>, E> {
        let mut job = Record::default();
        for (at, (.., set)) in JOB.iter().enumerate() {
            set(&mut job, column(at)?);
        }
        Ok(job)
    }
}

/// Returns the name of a tube, or the kind of a setting, as text. Both are ASCII.
pub fn ascii(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}
