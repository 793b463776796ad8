//! Columns of tables: names, units and metrics of their cells.

use crate::shown::Text;
use poolcounter_core::{Row, Stat, Unit};
use serde::{Deserialize, Serialize};

/// Makes a [`Table`](crate::Table) of rows: each column with its unit, what else it is, its help, and its cell of a row.
#[macro_export]
macro_rules! table {
    ($row:ty, $name:expr, $title:expr, $rows:expr;
     $($column:literal, $heading:literal, $unit:ident $($call:ident $of:tt)*, $help:expr, |$one:pat_param| $cell:expr;)*) => {
        $crate::Table::of_cells::<$row, _>($name, $title, $rows, [
            $((
                $crate::Column::new($column, $heading, $crate::ColumnUnit::$unit, $help)$(.$call $of)*,
                $crate::cell_of::<$row>(|$one| $cell.into()),
            ),)*
        ])
    };
}

/// Column of a table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Column {
    /// Name in the JSON, unique in the table.
    pub name: Text,
    /// Heading.
    pub title: Text,
    /// One-sentence description.
    pub help: Text,
    /// Meaning of its cells.
    pub unit: ColumnUnit,
    /// True if a value only grows.
    pub is_counter: bool,
    /// Emphasis of its values.
    pub emphasis: Emphasis,
    /// True if every row has zero or nothing there: pages then leave out the column.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_zero: bool,
    /// Path of the pages about each name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Text>,
    /// Actions on each key, for viewers with permission.
    #[serde(skip_serializing_if = "<[_]>::is_empty", skip_deserializing)]
    pub actions: &'static [&'static str],
    /// Metric of the column.
    #[serde(skip)]
    pub metric: ColumnMetric,
}

impl Column {
    /// Returns a column without a metric.
    pub fn new(name: impl Into<Text>, title: impl Into<Text>, unit: ColumnUnit, help: impl Into<Text>) -> Column {
        Column { name: name.into(), title: title.into(), unit, help: help.into(), ..Column::default() }
    }

    /// Returns a column of names with a page about each below this path.
    pub fn linked(name: &'static str, title: impl Into<Text>, path: impl Into<Text>, help: &'static str) -> Column {
        Column::new(name, title, ColumnUnit::Name, help).to(path)
    }

    /// Returns a column of current numbers, with a metric for each row.
    pub fn level(name: &'static str, title: &'static str, metric: impl Into<Text>, help: impl Into<Text>) -> Column {
        Column::new(name, title, ColumnUnit::Number, help).each(metric)
    }

    /// Returns a column of numbers that only grow, with a metric for each row.
    pub fn count(name: &'static str, title: &'static str, metric: impl Into<Text>, help: impl Into<Text>) -> Column {
        Column::new(name, title, ColumnUnit::Number, help).counts(metric)
    }

    /// Returns a column of durations, with a metric for each row.
    pub fn times(name: &'static str, metric: impl Into<Text>, help: impl Into<Text>) -> Column {
        Column::new(name, name, ColumnUnit::Times, help).each(metric)
    }

    /// Returns the column of a statistic that each row has, such as each `pool`. Name, metric and help are those of the
    /// statistic.
    pub fn of(stat: impl Stat, rows: &str, title: &'static str) -> Column {
        let Row { name, unit, help, metric: _ } = *stat.row();
        let metric = format!("{rows}_{}", name.replace([':', ' '], "_"));
        let name = name.rsplit(':').next().unwrap_or(name);
        let help = format!("{}, by {rows}.", help.trim_end_matches('.'));
        match unit {
            Unit::Count => Column::count(name, title, metric, help),
            Unit::Level => Column::level(name, title, metric, help),
            Unit::Uptime | Unit::Duration | Unit::Latest | Unit::Bytes => {
                unreachable!("{unit:?} of a row is no number")
            }
        }
    }

    /// Returns the same with a page about each name below this path.
    pub fn to(self, path: impl Into<Text>) -> Column {
        Column { link: Some(path.into()), ..self }
    }

    /// Returns the same with a metric of numbers that only grow.
    pub fn counts(self, metric: impl Into<Text>) -> Column {
        Column { is_counter: true, ..self.each(metric) }
    }

    /// Returns the same with actions on each key.
    pub fn acts(self, actions: &'static [&'static str]) -> Column {
        Column { actions, ..self }
    }

    /// Returns the same with a metric of the largest value.
    pub fn largest(self, name: &'static str, help: &'static str) -> Column {
        Column { metric: ColumnMetric::Largest { name, help }, ..self }
    }

    /// Returns the same with an emphasis.
    pub fn marked(self, emphasis: Emphasis) -> Column {
        Column { emphasis, ..self }
    }

    /// Returns the same as a label of this name of the metrics.
    pub fn label(self, name: impl Into<Text>) -> Column {
        Column { metric: ColumnMetric::Label(name.into()), ..self }
    }

    /// Returns the same with a metric of this name.
    pub fn each(self, name: impl Into<Text>) -> Column {
        Column { metric: ColumnMetric::Each(name.into()), ..self }
    }

    /// Returns true if its cells are text.
    pub fn is_text(&self) -> bool {
        matches!(self.unit, ColumnUnit::Name | ColumnUnit::Key | ColumnUnit::Address | ColumnUnit::Text)
    }

    /// Returns the suffix of the metric's name.
    pub fn suffix(&self) -> &'static str {
        match (self.unit, self.is_counter) {
            (ColumnUnit::Bytes, _) => "_bytes",
            (ColumnUnit::Seconds | ColumnUnit::Times, false) => "_seconds",
            (ColumnUnit::Seconds | ColumnUnit::Times, true) => "_seconds_total",
            (_, true) => "_total",
            (_, false) => "",
        }
    }
}

/// Meaning of the cells of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnUnit {
    /// Name given by clients.
    Name,
    /// The key of a thing, unique in its service. There are buttons for the actions of the column.
    Key,
    /// Address of a peer, or a connection.
    Address,
    /// Word defined by the service.
    #[default]
    Text,
    /// Number.
    Number,
    /// Number of bytes.
    Bytes,
    /// Span, such as an age.
    Seconds,
    /// Durations of many events.
    Times,
}

/// Metric of a column, named `poolcounter_`, service, name and suffix.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ColumnMetric {
    /// No metric.
    #[default]
    None,
    /// Label of this name, which distinguishes the rows.
    Label(Text),
    /// Metric of this name, with a value for each row.
    Each(Text),
    /// Metric with the largest value of all rows; 0 without rows.
    Largest {
        /// Name.
        name: &'static str,
        /// One-sentence description.
        help: &'static str,
    },
}

/// Emphasis of the cells of a column, or of a curve; a zero is always faint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Emphasis {
    /// No emphasis.
    #[default]
    None,
    /// Work of the service: the share of each row.
    Work,
    /// Possible fault.
    Caution,
    /// Fault.
    Alarm,
}
