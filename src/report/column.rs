//! Columns of tables: names, units and metrics of their cells.

use poolcounter_core::stats::{Row, Stat, Unit};

/// Column of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Name in the JSON, unique in the table.
    pub name: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Meaning of its cells.
    pub unit: ColumnUnit,
    /// One-sentence description.
    pub help: &'static str,
    /// Metric of the column.
    pub metric: ColumnMetric,
    /// Emphasis of its values.
    pub emphasis: Emphasis,
}

impl Column {
    /// Empty column.
    pub const BLANK: Column = Column {
        name: "",
        title: "",
        unit: ColumnUnit::Text,
        help: "",
        metric: ColumnMetric::None,
        emphasis: Emphasis::None,
    };

    /// Returns a column of current numbers, with a metric for each row.
    pub const fn level(name: &'static str, title: &'static str, metric: &'static str, help: &'static str) -> Column {
        let metric = ColumnMetric::Each(metric);
        Column { name, title, unit: ColumnUnit::Level, help, metric, emphasis: Emphasis::None }
    }

    /// Returns a column of numbers that only grow, with a metric for each row.
    pub const fn count(name: &'static str, title: &'static str, metric: &'static str, help: &'static str) -> Column {
        Column { unit: ColumnUnit::Count, ..Column::level(name, title, metric, help) }
    }

    /// Returns a column of durations, with a metric for each row.
    pub const fn times(name: &'static str, metric: &'static str, help: &'static str) -> Column {
        Column { unit: ColumnUnit::Times, ..Column::level(name, name, metric, help) }
    }

    /// Returns the column of a statistic that each row has, such as each `pool`. Name, metric and help are those of the
    /// statistic. Leaks its texts, so it is for tables that are made once.
    pub fn of(stat: impl Stat, rows: &str, title: &'static str, emphasis: Emphasis) -> Column {
        let Row { name, unit, help, metric: _ } = *stat.row();
        let kept = |text: String| -> &'static str { Box::leak(text.into_boxed_str()) };
        let metric = kept(format!("{rows}_{}", name.replace([':', ' '], "_")));
        let name = name.rsplit(':').next().unwrap_or(name);
        let help = kept(format!("{}, by {rows}.", help.trim_end_matches('.')));
        let column = match unit {
            Unit::Count => Column::count(name, title, metric, help),
            Unit::Level => Column::level(name, title, metric, help),
            Unit::Uptime | Unit::Duration | Unit::Latest | Unit::Bytes => {
                unreachable!("{unit:?} of a row is no number")
            }
        };
        Column { emphasis, ..column }
    }

    /// Leaks columns, for use as long as the process runs.
    pub fn kept(columns: Vec<Column>) -> &'static [Column] {
        Box::leak(columns.into_boxed_slice())
    }
}

/// Meaning of the cells of a column. The suffix is that of the metric's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnUnit {
    /// Name given by clients: [`Cell::Name`](super::Cell::Name).
    Name,
    /// The same, with a page about each below this path.
    Linked(&'static str),
    /// The key of a thing, unique in its service: [`Cell::Text`](super::Cell::Text). There is a page about each below
    /// the path, with buttons for these operations.
    Key(&'static str, &'static [&'static str]),
    /// Address of a peer: [`Cell::Text`](super::Cell::Text).
    Address,
    /// Connection, shown as its peer's address, with a page about it below this path:
    /// [`Cell::Client`](super::Cell::Client).
    Client(&'static str),
    /// Word defined by the service: [`Cell::Text`](super::Cell::Text).
    Text,
    /// Current number: [`Cell::Number`](super::Cell::Number).
    Level,
    /// Number that only grows: [`Cell::Number`](super::Cell::Number), suffix `_total`.
    Count,
    /// Current number of bytes: [`Cell::Number`](super::Cell::Number), suffix `_bytes`.
    Bytes,
    /// Current span, such as an age: [`Cell::Time`](super::Cell::Time), suffix `_seconds`.
    Age,
    /// Sum of spans, which only grows: [`Cell::Time`](super::Cell::Time), suffix `_seconds_total`.
    Duration,
    /// Durations of many events: [`Cell::Times`](super::Cell::Times), suffix `_seconds`.
    Times,
}

/// Metric of a column, named `poolcounter_`, service, name and suffix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnMetric {
    /// No metric.
    None,
    /// Label of this name, which distinguishes the rows.
    Label(&'static str),
    /// Metric of this name, with a value for each row.
    Each(&'static str),
    /// Metric with the largest value of all rows; 0 without rows.
    Largest {
        /// Name.
        name: &'static str,
        /// One-sentence description.
        help: &'static str,
    },
}

/// Emphasis of the cells of a column, or of a curve; a zero is always faint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emphasis {
    /// No emphasis.
    None,
    /// Work of the service: the share of each row.
    Work,
    /// Possible fault.
    Caution,
    /// Fault.
    Alarm,
}
