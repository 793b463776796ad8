//! What a service tells its operators: plain values, taken at one moment. `/metrics`, `/status.json`, the status page, `stats` and
//! `top` show whatever stands here, so that a new service changes none of them. All but the first start from [`snapshot`].
//!
//! # How a service fills a report
//!
//! | part | what it is | where it is described |
//! |---|---|---|
//! | [`Report::figures`] | its table of statistics with the values | [`poolcounter_core::stats`] |
//! | [`Report::tables`] | lists of what there is: keys, members, jobs | a static [`TableInfo`] with its [`Column`]s |
//! | [`Report::matrix`] | two kinds of names against each other, as a heat map | a static [`MatrixInfo`] |
//! | [`Report::series`] | levels and counts that are remembered for curves | a static [`SeriesInfo`] each |
//!
//! A page about one thing is a [`View`], which [`crate::contract::Observe::view`] returns: a report of its own.
//!
//! The rows of a table have one [`Cell`] for each column, of the kind that the [`ColumnUnit`] names:
//!
//! ```
//! use poolcounter_service::report::{Cell, Column, ColumnMetric, ColumnUnit, Emphasis, Table, TableInfo};
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
//! Of a service that is called `members`, the metric is `poolcounter_members_group_idle{group="runners"}`, the JSON
//! `{"members":{"groups":[{"group":"runners","idle":3}]}}`. [`crate::contract::Observe::report`] returns figures and tables;
//! [`crate::contract::Observe::sample`] tells of the series, every few seconds, and so must be quick,
//! [`crate::contract::Observe::sample_things`] of those of single things, and
//! [`crate::contract::Observe::tally`] of the counts that the page shows of the last minutes.

mod column;
pub mod matrix;
pub mod merge;
pub mod room;
pub mod shown;
mod shown_health;
pub mod snapshot;
pub mod tables;
pub mod told;

pub use column::{Column, ColumnMetric, ColumnUnit, Emphasis};

use crate::peer::{Peers, Traffic};
use poolcounter_core::histogram::Histogram;
use poolcounter_core::id::ConnId;
use poolcounter_core::stats::Row;
use poolcounter_core::time::Span;
use serde::Serialize;

/// Everything that the services tell.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Every service, in the order of the registry.
    pub services: Vec<ServiceReport>,
}

/// What is known of one service.
#[derive(Clone, Debug)]
pub struct ServiceReport {
    /// Its name.
    pub name: &'static str,
    /// Its title; empty if it has none.
    pub title: &'static str,
    /// Option that turns it on, without its dashes.
    pub option: &'static str,
    /// What happened to its connections.
    pub traffic: Traffic,
    /// Whether clients can connect to it.
    pub is_enabled: bool,
    /// What it tells itself.
    pub report: Report,
}

/// What a service tells.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Its table of statistics with the values.
    pub figures: Vec<(&'static Row, u64)>,
    /// Lists of what there is, in the order in which they are shown.
    pub tables: Vec<Table>,
    /// Tables that metrics tell in place of those with the same name, as their rows do not come and go as those do that people are
    /// shown.
    pub exported: Vec<Table>,
    /// Two kinds of names against each other.
    pub matrix: Option<Matrix>,
    /// Present values of its curves, from [`crate::contract::Observe::sample`].
    pub series: Vec<Series>,
}

/// A table at one moment.
#[derive(Clone, Debug)]
pub struct Table {
    /// What is in it.
    pub info: &'static TableInfo,
    /// Its rows, the most important first: where there is no room for all, the last ones are left out.
    pub rows: Vec<Vec<Cell>>,
    /// A sentence about the present rows.
    pub note: Option<String>,
}

/// Two kinds of names against each other: how much waits, and for how long. A line has a value for each column, one for all other
/// columns together, and one for all columns.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// What is in it.
    pub info: &'static MatrixInfo,
    /// The names of the columns, the worst first.
    pub columns: Vec<Vec<u8>>,
    /// The names of the rows with their lines, the worst first: where there is no room for all, the last ones are summed up.
    pub rows: Vec<(Vec<u8>, Vec<Heat>)>,
    /// The line of all other rows together.
    pub others: Vec<Heat>,
    /// The line of all rows.
    pub all: Vec<Heat>,
    /// How many rows, and how many columns, stand for nothing by themselves.
    pub folded: [usize; 2],
}

/// How much waits, and for how long what has waited longest.
pub type Heat = (u64, Span);

/// What there is to know of a matrix before it has rows.
#[derive(Debug)]
pub struct MatrixInfo {
    /// Its heading.
    pub title: &'static str,
    /// What a reader must know to understand it.
    pub help: &'static str,
    /// What is said in place of no rows.
    pub empty: &'static str,
    /// What a row is, and where there is a page about each, below which its name stands.
    pub row: (&'static str, &'static str),
    /// The same of a column.
    pub column: (&'static str, &'static str),
    /// Where as much of it is as there is room for.
    pub path: &'static str,
}

/// What there is to tell of one thing by itself.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Its heading.
    pub title: String,
    /// What there is to tell, without figures.
    pub report: Report,
    /// Commands for it, without the name of the program.
    pub commands: Vec<String>,
    /// The name of the service, a slash and the path of the thing; set where the page is asked for.
    pub of: Vec<u8>,
}

/// What there is to know of a table before it has rows.
#[derive(Debug)]
pub struct TableInfo {
    /// Its name in the JSON, which no other table of the service has.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What a reader must know to understand it; may be empty.
    pub help: &'static str,
    /// What is said in place of no rows. Nothing: people are not shown the table then.
    pub empty: &'static str,
    /// Whether rows of the same name are the same at every daemon, as types of work are, and can be added up.
    pub is_of_kinds: bool,
    /// Its columns. The first says what a row is about.
    pub columns: &'static [Column],
}

/// What stands in a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// There is nothing to say, in a column of whatever unit.
    Nothing,
    /// A name in the bytes of clients, which may be anything.
    Name(Vec<u8>),
    /// Text that the daemon made.
    Text(String),
    /// The address of a connection's peer.
    Client(String, ConnId),
    /// A number.
    Number(u64),
    /// A span.
    Time(Span),
    /// How long things took.
    Times(Histogram),
}

/// What was counted since the start of what one row of a table is about.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted<'a> {
    /// The name of the table.
    pub table: &'static str,
    /// The row's first cell.
    pub name: &'a [u8],
    /// The values of the columns of numbers that only grow, in their order.
    pub counts: &'a [u64],
    /// Those of the columns of times.
    pub times: &'a [&'a Histogram],
}

/// One of the values that are remembered, as it is now.
pub type Series = (&'static SeriesInfo, u64);

/// What there is to know of a value that is remembered for a curve.
#[derive(Debug)]
pub struct SeriesInfo {
    /// Its name in the JSON, which no other series of the service has.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What is counted: `locks held`, `per second`.
    pub unit: &'static str,
    /// Whether the value only grows, so that the curve is of how much it grows in a second, or in a minute.
    pub is_rate: bool,
    /// Emphasis of its values.
    pub emphasis: Emphasis,
}

impl Table {
    /// Compares the rows with the columns.
    ///
    /// # Panics
    ///
    /// When they do not fit.
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
    /// Returns the cell of a connection.
    pub fn client(conn: ConnId, peers: &dyn Peers) -> Cell {
        Cell::Client(peers.peer(conn), conn)
    }
}

impl ColumnUnit {
    /// Returns whether a column has cells of that kind.
    pub fn takes(self, cell: &Cell) -> bool {
        match self {
            ColumnUnit::Name | ColumnUnit::Linked(_) => matches!(cell, Cell::Nothing | Cell::Name(_)),
            ColumnUnit::Address | ColumnUnit::Text | ColumnUnit::Key(_) => {
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

    /// Returns whether a value only grows.
    pub fn is_counter(self) -> bool {
        matches!(self, ColumnUnit::Count | ColumnUnit::Duration)
    }

    /// Returns what the name of a metric ends with.
    pub fn suffix(self) -> &'static str {
        match self {
            ColumnUnit::Name
            | ColumnUnit::Linked(_)
            | ColumnUnit::Key(_)
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
