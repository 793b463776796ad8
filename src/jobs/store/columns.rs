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

/// Columns of the table `job`: name, type and constraint. Times are microseconds since 1970, and flags are numbers.
const JOB: [(&str, Kind, &str); COLUMNS] = [
    ("id", Kind::Number, " PRIMARY KEY"),
    ("tube", Kind::Text, SET),
    ("pri", Kind::Number, SET),
    ("delay", Kind::Number, SET),
    ("ttr", Kind::Number, SET),
    ("created", Kind::Number, SET),
    ("delayed_until", Kind::Number, ""),
    ("buried", Kind::Number, ZERO),
    ("reserves", Kind::Number, ZERO),
    ("timeouts", Kind::Number, ZERO),
    ("releases", Kind::Number, ZERO),
    ("buries", Kind::Number, ZERO),
    ("kicks", Kind::Number, ZERO),
    ("attempts", Kind::Number, ZERO),
    ("key", Kind::Bytes, ""),
    ("until_deleted", Kind::Number, ZERO),
    ("root", Kind::Bytes, ""),
    ("root_timestamp", Kind::Number, ""),
    ("job_group", Kind::Bytes, ""),
    ("error", Kind::Bytes, ""),
    ("origin", Kind::Bytes, ""),
    ("origin_attempts", Kind::Number, ""),
    ("origin_at", Kind::Number, ""),
];

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
    let job = |(name, kind, constraint): &(&str, Kind, &str)| {
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

    fn is_null(self) -> bool {
        matches!(self, Field::Null)
    }
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

    /// Returns its columns.
    pub fn columns(&self) -> [Field<'a>; COLUMNS] {
        let some = |bytes: &'a [u8]| if bytes.is_empty() { Field::Null } else { Field::Bytes(bytes) };
        let count = |count: SmallCount| Field::Number(count.get().into());
        let or_null = |number: Option<i64>| number.map_or(Field::Null, Field::Number);
        let History { timeouts, releases, buries, kicks, attempts } = self.history;
        [
            Field::Number(self.id.0.cast_signed()),
            Field::Text(ascii(self.tube)),
            Field::Number(self.pri.into()),
            Field::Number(self.delay.into()),
            Field::Number(self.ttr.into()),
            Field::Number(self.created),
            or_null(self.delayed.map(|at| at.as_micros().cast_signed())),
            Field::Number(self.is_buried.into()),
            count(self.reserves),
            count(timeouts),
            count(releases),
            count(buries),
            count(kicks),
            count(attempts),
            some(self.key),
            Field::Number((self.until == Until::Deleted).into()),
            self.root.map_or(Field::Null, |(signature, _)| Field::Bytes(signature)),
            or_null(self.root.map(|(_, timestamp)| timestamp.cast_signed())),
            some(self.group),
            some(self.error),
            self.origin.map_or(Field::Null, |origin| Field::Bytes(origin.tube)),
            or_null(self.origin.map(|origin| origin.attempts.into())),
            or_null(self.origin.map(|origin| origin.at)),
        ]
    }

    /// Returns the job with these columns.
    pub fn of_columns(columns: [Field<'a>; COLUMNS]) -> Record<'a> {
        let [id, tube, pri, delay, ttr, created, delayed, buried, reserves, rest @ ..] = columns;
        let [timeouts, releases, buries, kicks, attempts, key, until_deleted, root, timestamp, rest @ ..] = rest;
        let [group, error, origin, origin_attempts, origin_at] = rest;
        let [timeouts, releases, buries, kicks, attempts] =
            [timeouts, releases, buries, kicks, attempts].map(|field| field.small().into());
        let origin_of = |tube: TubeName<'a>| Origin {
            tube: tube.bytes(),
            attempts: origin_attempts.small(),
            at: origin_at.number(),
        };
        Record {
            id: JobId(id.number().cast_unsigned()),
            tube: tube.bytes(),
            pri: pri.small(),
            delay: delay.small(),
            ttr: ttr.small(),
            created: created.number(),
            delayed: (!delayed.is_null()).then(|| Time::from_micros(delayed.number().cast_unsigned())),
            is_buried: buried.number() != 0,
            reserves: reserves.small().into(),
            history: History { timeouts, releases, buries, kicks, attempts },
            key: key.bytes(),
            until: if until_deleted.number() != 0 { Until::Deleted } else { Until::Reserved },
            root: (!root.is_null()).then(|| (root.bytes(), timestamp.number().cast_unsigned())),
            group: group.bytes(),
            origin: TubeName::parse(origin.bytes()).map(origin_of),
            error: error.bytes(),
        }
    }
}

/// Returns the name of a tube, or the kind of a setting, as text. Both are ASCII.
pub fn ascii(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}
