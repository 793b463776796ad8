//! The tables of a report as the page shows them: visible names, seconds, and as many rows as there is room for.

use super::Moment;
use super::room::{MOST_ROWS, fit};
use super::status::seconds;
use crate::histogram::{Histogram, Quantile};
use crate::report::{self, Cell, Column, ColumnUnit, Emphasis, TableInfo};
use crate::text::visible;
use crate::time::Span;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// How much of a name is shown, in bytes.
const NAME_BYTES: usize = 200;
/// How many bytes the rows of all tables may take in the page, which has them as markup and as JSON; the rest of it has some
/// 100 KiB.
const TABLE_BYTES: usize = 780_000;
/// What a byte of text may take: `&lt;` and `\u003c`.
const TEXT_COST: usize = 10;
/// What a cell may take: twice twenty digits, the name of its column, and markup. Times have six numbers.
const CELL_COST: usize = 80;
const TIMES_COST: usize = 220;

/// All tables, in the order of the services.
pub struct Tables(pub Vec<Table>);

/// A table: what is in it, and its rows.
pub struct Table {
    pub service: &'static str,
    pub info: &'static TableInfo,
    pub rows: Vec<Vec<Shown>>,
}

/// What there is to know of a table besides its rows.
#[derive(Serialize)]
pub struct Heading {
    pub name: &'static str,
    pub title: &'static str,
    pub help: &'static str,
    pub empty: &'static str,
    /// A sentence about the present rows.
    pub note: Option<String>,
    /// How many rows there was no room for.
    pub more: usize,
    pub columns: Vec<Head>,
}

/// A column of a table.
#[derive(Serialize)]
pub struct Head {
    pub name: &'static str,
    pub title: &'static str,
    pub help: &'static str,
    pub unit: &'static str,
    pub emphasis: &'static str,
}

/// A cell of a table. Spans are seconds.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Shown {
    Nothing,
    Text(String),
    Number(u64),
    Seconds(f64),
    Times(Times),
}

/// How long something took: the half of all times is no longer than `p50`. Null without times.
#[derive(Serialize)]
pub struct Times {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    /// Whether it was longer than that, and nobody knows how long.
    pub p50_is_over: bool,
    pub p99_is_over: bool,
}

impl Tables {
    /// Returns the tables of every service.
    pub fn of(moment: &Moment<'_>) -> Tables {
        let services = moment.overview.services.iter();
        let all = services.flat_map(|service| service.report.tables.iter().map(|table| (service.name, table)));
        let mut tables: Vec<Table> = all
            .map(|(service, table)| {
                let rows = table.rows.iter().take(MOST_ROWS);
                let rows = rows.map(|row| row.iter().map(Shown::of).collect()).collect();
                Table { service, info: table.info, rows }
            })
            .collect();
        let costs = |table: &Table| table.rows.iter().map(|row| row.iter().map(Shown::cost).sum()).collect();
        let costs: Vec<Vec<usize>> = tables.iter().map(costs).collect();
        let fitting = fit(&costs, TABLE_BYTES);
        tables.iter_mut().zip(fitting).for_each(|(table, rows)| table.rows.truncate(rows));
        Tables(tables)
    }

    /// Returns the tables of one service.
    pub fn of_service(&self, name: &str) -> impl Iterator<Item = &Table> {
        self.0.iter().filter(move |table| table.service == name)
    }
}

impl Heading {
    /// Returns what there is to know of a table besides the rows that are shown.
    pub fn of(table: &report::Table, shown: &Table) -> Heading {
        let info = table.info;
        Heading {
            name: info.name,
            title: info.title,
            help: info.help,
            empty: info.empty,
            note: table.note.clone(),
            more: table.rows.len() - shown.rows.len(),
            columns: info.columns.iter().map(Head::of).collect(),
        }
    }
}

impl Head {
    fn of(column: &Column) -> Head {
        let unit = match column.unit {
            ColumnUnit::Name => "name",
            ColumnUnit::Address => "address",
            ColumnUnit::Text => "text",
            ColumnUnit::Level | ColumnUnit::Count => "number",
            ColumnUnit::Bytes => "bytes",
            ColumnUnit::Age | ColumnUnit::Duration => "seconds",
            ColumnUnit::Times => "times",
        };
        let Column { name, title, help, emphasis, .. } = *column;
        Head { name, title, help, unit, emphasis: word_of(emphasis) }
    }
}

impl Shown {
    fn of(cell: &Cell) -> Shown {
        match cell {
            Cell::Nothing => Shown::Nothing,
            Cell::Name(bytes) => Shown::Text(visible(bytes, NAME_BYTES)),
            Cell::Text(text) => Shown::Text(visible(text.as_bytes(), NAME_BYTES)),
            Cell::Number(number) => Shown::Number(*number),
            Cell::Time(span) => Shown::Seconds(seconds(*span)),
            Cell::Times(histogram) => Shown::Times(Times::of(histogram)),
        }
    }

    /// Returns how many bytes it takes in the page, at most.
    fn cost(&self) -> usize {
        match self {
            Shown::Text(text) => CELL_COST + TEXT_COST * text.len(),
            Shown::Times(_) => TIMES_COST,
            Shown::Nothing | Shown::Number(_) | Shown::Seconds(_) => CELL_COST,
        }
    }
}

impl Times {
    fn of(histogram: &Histogram) -> Times {
        let [p50, p99] = [0.5, 0.99].map(|share| histogram.quantile(share));
        let time = |it: Quantile| seconds(Span::from_micros(it.value));
        Times {
            p50: p50.map(time),
            p99: p99.map(time),
            p50_is_over: p50.is_some_and(|it| it.is_beyond),
            p99_is_over: p99.is_some_and(|it| it.is_beyond),
        }
    }
}

impl Serialize for Tables {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for tables in self.0.chunk_by(|one, next| one.service == next.service) {
            map.serialize_entry(tables[0].service, &OfService(tables))?;
        }
        map.end()
    }
}

struct OfService<'a>(&'a [Table]);

impl Serialize for OfService<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = |info: &'static TableInfo| move |cells| Row { columns: info.columns, cells };
        serializer.collect_map(self.0.iter().map(|Table { info, rows, .. }| {
            (info.name, rows.iter().map(Vec::as_slice).map(row(info)).collect::<Vec<Row<'_>>>())
        }))
    }
}

struct Row<'a> {
    columns: &'static [Column],
    cells: &'a [Shown],
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.columns.iter().map(|column| column.name).zip(self.cells))
    }
}

/// Returns the word for it in the JSON.
pub fn word_of(emphasis: Emphasis) -> &'static str {
    match emphasis {
        Emphasis::None => "none",
        Emphasis::Work => "work",
        Emphasis::Caution => "caution",
        Emphasis::Alarm => "alarm",
    }
}
