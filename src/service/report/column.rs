//! Columns of tables: names, units and metrics of their cells.

use poolcounter_core::stats::{Row, Stat, Unit};

/// A column of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its name in the JSON, which no other column of the table has.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Meaning of its cells.
    pub unit: ColumnUnit,
    /// One sentence for people.
    pub help: &'static str,
    /// Its place among the metrics.
    pub metric: ColumnMetric,
    /// Emphasis of its values.
    pub emphasis: Emphasis,
}

impl Column {
    /// A column without anything.
    pub const BLANK: Column = Column {
        name: "",
        title: "",
        unit: ColumnUnit::Text,
        help: "",
        metric: ColumnMetric::None,
        emphasis: Emphasis::None,
    };

    /// Returns a column of numbers as they are now, with a metric for each row.
    pub const fn level(name: &'static str, title: &'static str, metric: &'static str, help: &'static str) -> Column {
        let metric = ColumnMetric::Each(metric);
        Column { name, title, unit: ColumnUnit::Level, help, metric, emphasis: Emphasis::None }
    }

    /// Returns a column of numbers that only grow, with a metric for each row.
    pub const fn count(name: &'static str, title: &'static str, metric: &'static str, help: &'static str) -> Column {
        Column { unit: ColumnUnit::Count, ..Column::level(name, title, metric, help) }
    }

    /// Returns a column of how long things took, with a metric for each row.
    pub const fn times(name: &'static str, metric: &'static str, help: &'static str) -> Column {
        Column { unit: ColumnUnit::Times, ..Column::level(name, name, metric, help) }
    }

    /// Returns the column of a statistic that each row has, such as each `pool`. Name, metric and help are the statistic's. For tables that
    /// are made once: the texts last as long as the process.
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

    /// Returns columns that last as long as the process.
    pub fn kept(columns: Vec<Column>) -> &'static [Column] {
        Box::leak(columns.into_boxed_slice())
    }
}

/// Meaning of the cells of a column. The name of a metric ends with the suffix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnUnit {
    /// A name in the bytes of clients: [`Cell::Name`](super::Cell::Name).
    Name,
    /// The same, where there is a page about each below this path.
    Linked(&'static str),
    /// The key of a thing, unique in its service, and the names of the buttons for it: [`Cell::Text`](super::Cell::Text), and words for
    /// [operations](crate::operations).
    Key(&'static [&'static str]),
    /// The address of a peer: [`Cell::Text`](super::Cell::Text).
    Address,
    /// The same of a connection of which there is a page below this path: [`Cell::Client`](super::Cell::Client).
    Client(&'static str),
    /// A word of the service itself: [`Cell::Text`](super::Cell::Text).
    Text,
    /// A number as it is now: [`Cell::Number`](super::Cell::Number).
    Level,
    /// A number that only grows: [`Cell::Number`](super::Cell::Number), suffix `_total`.
    Count,
    /// A number of bytes as it is now: [`Cell::Number`](super::Cell::Number), suffix `_bytes`.
    Bytes,
    /// A span as it is now, such as an age: [`Cell::Time`](super::Cell::Time), suffix `_seconds`.
    Age,
    /// A sum of spans that only grows: [`Cell::Time`](super::Cell::Time), suffix `_seconds_total`.
    Duration,
    /// Durations of many events: [`Cell::Times`](super::Cell::Times), suffix `_seconds`.
    Times,
}

/// Place of a column among the metrics, which are called `poolcounter_`, service, name and suffix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnMetric {
    /// Nothing.
    None,
    /// The label of that name, which tells the rows apart.
    Label(&'static str),
    /// A metric of that name, with a value for each row.
    Each(&'static str),
    /// A metric with the largest value of all rows; 0 without any.
    Largest {
        /// Its name.
        name: &'static str,
        /// One sentence for people.
        help: &'static str,
    },
}

/// Emphasis of the cells of a column, or of a curve; a zero is always faint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Emphasis {
    /// Nothing.
    None,
    /// The service's own work: each row's share.
    Work,
    /// A possible trouble.
    Caution,
    /// A trouble.
    Alarm,
}
