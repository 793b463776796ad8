//! Report of a service for its operators: plain values, taken at one moment. `/metrics`, `/status.json`, the status
//! page, `stats` and `top` show everything in it, so a new service changes none of them. All but the first start from
//! [`snapshot`].
//!
//! # Contents of a report
//!
//! | part | content | description |
//! |---|---|---|
//! | [`Report::figures`] | its table of statistics with the values | [`poolcounter_core::stats`] |
//! | [`Report::tables`] | lists of things: keys, members, jobs | a static [`TableInfo`] with its [`Column`]s |
//! | [`Report::matrix`] | two kinds of names against each other, as a heat map | a static [`MatrixInfo`] |
//! | [`Report::series`] | levels and counts that are remembered for curves | a static [`SeriesInfo`] each |
//!
//! A page about one thing is a [`View`], returned by `Observe::view`, with a report of its own.
//!
//! The rows of a table have one [`Cell`] for each column, of the kind that the [`ColumnUnit`] requires:
//!
//! ```
//! use poolcounter_report::{Cell, Column, ColumnMetric, ColumnUnit, Emphasis, Table, TableInfo};
//!
//! static GROUPS: TableInfo = TableInfo {
//!     name: "groups",
//!     title: "Groups of members",
//!     help: "",
//!     empty: "No group has a member.",
//!     is_of_kinds: true,
//!     columns: &[
//!         Column {
//!             name: "group",
//!             title: "group",
//!             unit: ColumnUnit::Name,
//!             help: "The group.",
//!             metric: ColumnMetric::Label("group"),
//!             ..Column::BLANK
//!         },
//!         Column {
//!             name: "idle",
//!             title: "idle",
//!             unit: ColumnUnit::Level,
//!             help: "Members that nobody holds, by group.",
//!             metric: ColumnMetric::Each("group_idle"),
//!             emphasis: Emphasis::Caution,
//!         },
//!     ],
//! };
//!
//! let rows = vec![vec![Cell::Name(b"runners".into()), Cell::Number(3)]];
//! let table = Table { info: &GROUPS, rows, note: None };
//! table.check();
//! ```
//!
//! In a service named `members`, the metric is `poolcounter_members_group_idle{group="runners"}`, the JSON
//! `{"members":{"groups":[{"group":"runners","idle":3}]}}`. `Observe::report` returns figures and
//! tables; `Observe::sample` reports the series, every few seconds, and so must be quick,
//! `Observe::sample_things` those of single things, and `Observe::tally` the
//! counts that the page shows for the last minutes.

mod block;
mod column;
pub mod health;
pub mod loop_stats;
pub mod matrix;
pub mod merge;
mod moment;
pub mod peer;
pub mod read_snapshot;
pub mod room;
pub mod shown;
mod shown_health;
pub mod snapshot;
pub mod tables;

pub use block::{Block, ShownBlock};
pub use column::{Column, ColumnMetric, ColumnUnit, Emphasis};
pub use moment::Moment;

use crate::peer::{Peers, Traffic};
use poolcounter_core::histogram::Histogram;
use poolcounter_core::id::ConnId;
use poolcounter_core::stats::Row;
use poolcounter_core::time::Span;
use serde::Serialize;

/// Reports of all services.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// One report per service, in the order of the list.
    pub services: Vec<ServiceReport>,
}

/// Report of a service, with the loop's data about it.
#[derive(Clone, Debug)]
pub struct ServiceReport {
    /// Name of the service.
    pub name: &'static str,
    /// Title; empty if it has none.
    pub title: &'static str,
    /// Option that enables it, without its dashes.
    pub option: &'static str,
    /// Counts of its connections.
    pub traffic: Traffic,
    /// True if clients can connect to it.
    pub is_enabled: bool,
    /// Report by the service itself.
    pub report: Report,
}

/// Report by a service.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Statistics with their values.
    pub figures: Vec<(&'static Row, u64)>,
    /// Tables, in the order in which they are shown.
    pub tables: Vec<Table>,
    /// Tables that metrics use instead of those with the same name, because their rows are more stable than those shown
    /// to people.
    pub exported: Vec<Table>,
    /// Heat map of two kinds of names.
    pub matrix: Option<Matrix>,
    /// Current values of its curves, from `Observe::sample`.
    pub series: Vec<Series>,
}

/// Table at one moment.
#[derive(Clone, Debug)]
pub struct Table {
    /// Static description.
    pub info: &'static TableInfo,
    /// Rows, most important first: if room is short, the last ones are left out.
    pub rows: Vec<Vec<Cell>>,
    /// Sentence about the current rows.
    pub note: Option<String>,
}

/// Heat map of two kinds of names: number of waiting things, and age of the oldest. A line has a value for each column,
/// one for all other columns together, and one for all columns.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Static description.
    pub info: &'static MatrixInfo,
    /// Names of the columns, worst first.
    pub columns: Vec<Vec<u8>>,
    /// Names of the rows with their lines, worst first: if room is short, the last ones are added up.
    pub rows: Vec<(Vec<u8>, Vec<Heat>)>,
    /// Line of all other rows together.
    pub others: Vec<Heat>,
    /// Line of all rows.
    pub all: Vec<Heat>,
    /// Number of rows and number of columns that are only in the sums.
    pub folded: [usize; 2],
}

/// Number of waiting things, and age of the oldest.
pub type Heat = (u64, Span);

/// Static description of a matrix.
#[derive(Debug)]
pub struct MatrixInfo {
    /// Heading.
    pub title: &'static str,
    /// Explanation for the reader.
    pub help: &'static str,
    /// Text shown if there are no rows.
    pub empty: &'static str,
    /// Kind of the rows, and the path of the page about each, which its name follows.
    pub row: (&'static str, &'static str),
    /// The same for the columns.
    pub column: (&'static str, &'static str),
    /// Path of the page with as much of the matrix as fits.
    pub path: &'static str,
}

/// Page about one thing.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Heading.
    pub title: String,
    /// Its tables and curves, without figures.
    pub report: Report,
    /// Commands for the thing, without the name of the program.
    pub commands: Vec<String>,
    /// Texts about it, such as the body of a job.
    pub blocks: Vec<Block>,
    /// Name of the service, a slash and the path of the thing; set by `Services::view`.
    pub of: Vec<u8>,
}

/// Static description of a table.
#[derive(Debug)]
pub struct TableInfo {
    /// Name in the JSON, unique among the tables of the service.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Explanation for the reader; may be empty.
    pub help: &'static str,
    /// Text shown if there are no rows. If empty, people do not see a table without rows.
    pub empty: &'static str,
    /// True if rows of the same name mean the same at every daemon, as types of work do, and can be added up.
    pub is_of_kinds: bool,
    /// Columns. The first identifies the row.
    pub columns: &'static [Column],
}

/// Cell of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// No value, in a column of any unit.
    Nothing,
    /// Name given by clients, in any bytes.
    Name(Vec<u8>),
    /// Text made by the daemon.
    Text(String),
    /// Address of a connection's peer.
    Client(String, ConnId),
    /// A number.
    Number(u64),
    /// A span.
    Time(Span),
    /// Durations of many events.
    Times(Histogram),
}

/// Counts of one table row since the start.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted<'a> {
    /// Name of the table.
    pub table: &'static str,
    /// First cell of the row.
    pub name: &'a [u8],
    /// Values of its columns of counts, in their order.
    pub counts: &'a [u64],
    /// Values of its columns of times.
    pub times: &'a [&'a Histogram],
}

/// Value of a curve, as of now.
pub type Series = (&'static SeriesInfo, u64);

/// Static description of a curve.
#[derive(Debug)]
pub struct SeriesInfo {
    /// Name in the JSON, unique among the series of the service.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Unit: `locks held`, `per second`.
    pub unit: &'static str,
    /// True if the value only grows: the curve then shows its growth per second or per minute.
    pub is_rate: bool,
    /// Emphasis of its values.
    pub emphasis: Emphasis,
}

impl Table {
    /// Checks the rows against the columns.
    ///
    /// # Panics
    ///
    /// Panics if they do not fit.
    pub fn check(&self) {
        for row in &self.rows {
            assert_eq!(row.len(), self.info.columns.len(), "{}: {row:?}", self.info.name);
            for (cell, column) in row.iter().zip(self.info.columns) {
                assert!(column.unit.takes(cell), "{}.{}: {cell:?}", self.info.name, column.name);
            }
        }
    }
}

impl Cell {
    /// Returns the cell for a connection.
    pub fn client(conn: ConnId, peers: &dyn Peers) -> Cell {
        Cell::Client(peers.peer(conn), conn)
    }
}

impl ColumnUnit {
    /// Returns true if a column can have this kind of cell.
    pub fn takes(self, cell: &Cell) -> bool {
        match self {
            ColumnUnit::Name | ColumnUnit::Linked(_) => matches!(cell, Cell::Nothing | Cell::Name(_)),
            ColumnUnit::Address | ColumnUnit::Text | ColumnUnit::Key(..) => {
                matches!(cell, Cell::Nothing | Cell::Text(_))
            }
            ColumnUnit::Client(_) => matches!(cell, Cell::Nothing | Cell::Client(..)),
            ColumnUnit::Level | ColumnUnit::Count | ColumnUnit::Bytes => {
                matches!(cell, Cell::Nothing | Cell::Number(_))
            }
            ColumnUnit::Age | ColumnUnit::Duration => matches!(cell, Cell::Nothing | Cell::Time(_)),
            ColumnUnit::Times => matches!(cell, Cell::Nothing | Cell::Times(_)),
        }
    }

    /// Returns true if a value only grows.
    pub fn is_counter(self) -> bool {
        matches!(self, ColumnUnit::Count | ColumnUnit::Duration)
    }

    /// Returns the suffix of the metric's name.
    pub fn suffix(self) -> &'static str {
        match self {
            ColumnUnit::Name
            | ColumnUnit::Linked(_)
            | ColumnUnit::Key(..)
            | ColumnUnit::Address
            | ColumnUnit::Client(_)
            | ColumnUnit::Text
            | ColumnUnit::Level => "",
            ColumnUnit::Count => "_total",
            ColumnUnit::Bytes => "_bytes",
            ColumnUnit::Age | ColumnUnit::Times => "_seconds",
            ColumnUnit::Duration => "_seconds_total",
        }
    }
}
