//! Report of a service for its operators: plain values, taken at one moment. `/metrics`, `/status.json`, the status
//! page, `stats` and `top` show everything in it, so a new service changes none of them. All but the first start from
//! [`snapshot`].
//!
//! # Contents of a report
//!
//! | part | content | description |
//! |---|---|---|
//! | [`Report::figures`] | its table of statistics with the values | [`poolcounter_core::stats`] |
//! | [`Report::tables`] | lists of things: keys, members, jobs | [`Table`]s with their [`Column`]s |
//! | [`Report::matrix`] | two kinds of names against each other, as a heat map | a [`Matrix`] |
//! | [`Report::series`] | levels and counts that are remembered for curves | a static [`SeriesInfo`] each |
//!
//! A page about one thing is a [`View`], returned by `Observe::view`, with a report of its own.
//!
//! The rows of a table have one [`Cell`] for each column, of the kind that the [`ColumnUnit`] requires:
//!
//! ```
//! use poolcounter_report::{Cell, Emphasis::Caution, table};
//!
//! let groups = [("runners", 3_u64)];
//! let table = table!((&str, u64), "groups", "Groups of members", groups;
//!     "group", "group", Name label("group"), "The group.", |(name, _)| Cell::text(name);
//!     "idle", "idle", Number each("group_idle") marked(Caution), "Idle members, by group.", |(_, idle)| *idle;
//! );
//! table.empty("No group has a member.").check();
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
mod merge;
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
pub use health::{Condition, ConditionInfo, Level, Look};
pub use loop_stats::{Budget, LoopStats};
pub use matrix::{Heat, Matrix};
pub use moment::Moment;
pub use room::{MOST_ROWS, Room};
pub use snapshot::{
    Remembered, ShownCondition, ShownCurve, ShownFigure, ShownHealth, ShownPast, ShownService, Snapshot, Values,
};
pub use tables::{Cell, NAME_BYTES, Table, Times, cell_of};

use crate::peer::Traffic;
use poolcounter_core::{Histogram, Row};
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

/// Counts of one table row since the start.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted<'a> {
    /// Name of the table.
    pub table: &'a str,
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

impl SeriesInfo {
    /// Returns a curve of current values.
    pub const fn level(name: &'static str, title: &'static str, unit: &'static str, emphasis: Emphasis) -> SeriesInfo {
        SeriesInfo { name, title, unit, is_rate: false, emphasis }
    }

    /// Returns a curve of the growth per second.
    pub const fn rate(name: &'static str, title: &'static str, emphasis: Emphasis) -> SeriesInfo {
        SeriesInfo { name, title, unit: "per second", is_rate: true, emphasis }
    }
}
