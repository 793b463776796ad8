//! The tables of a report as people see them: visible names, seconds, and as many rows as there is room for.

use super::room::{Room, fit};
use super::snapshot::{ShownRecent, seconds};
use super::{Cell, Column, ColumnUnit, Emphasis, Overview, TableInfo};
use crate::histogram::{Histogram, Quantile};
use crate::id::{ConnId, Id};
use crate::service::Peers;
use crate::text::visible;
use crate::time::Span;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// How much of a name is shown, in bytes.
pub const NAME_BYTES: usize = 200;
/// What a byte of text may take in the status page, which has it as markup and as JSON: `&lt;` and `\u003c`.
const TEXT_COST: usize = 10;
/// What a cell may take there: twice twenty digits, the name of its column, and markup. ShownTimes have six numbers.
const CELL_COST: usize = 80;
const TIMES_COST: usize = 220;

/// All tables, in the order of the services.
pub struct Tables(pub Vec<ShownTable>);

/// A table: what is in it, and its rows.
pub struct ShownTable {
    pub service: &'static str,
    pub info: &'static TableInfo,
    pub rows: Vec<Vec<ShownCell>>,
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
    /// Of what time the counts and times are; nothing if of all since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent: Option<ShownRecent>,
    pub columns: Vec<ColumnHead>,
}

/// A column of a table.
#[derive(Serialize)]
pub struct ColumnHead {
    pub name: &'static str,
    pub title: &'static str,
    pub help: &'static str,
    pub unit: &'static str,
    /// Whether a value only grows.
    pub is_counter: bool,
    pub emphasis: &'static str,
    /// The path below which there is a page about each name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<&'static str>,
    /// What can be done with each key, by those who may.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub actions: &'static [&'static str],
}

/// A cell of a table. Spans are seconds.
#[derive(Serialize)]
#[serde(untagged)]
pub enum ShownCell {
    Nothing,
    Text(String),
    Client(ShownClient),
    Number(u64),
    Seconds(f64),
    Times(ShownTimes),
}

/// A connection.
#[derive(Serialize)]
#[serde(transparent)]
pub struct ShownClient {
    pub address: String,
    /// Where there is a page about it, below the path of its column.
    #[serde(skip)]
    pub key: String,
}

/// How long something took: the half of all times is no longer than `p50`. Null without times.
#[derive(Serialize)]
pub struct ShownTimes {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    /// Whether it was longer than that, and nobody knows how long.
    pub p50_is_over: bool,
    pub p99_is_over: bool,
}

impl Tables {
    /// Returns the tables of every service, with as many rows as there is room for.
    pub fn of(overview: &Overview, room: Room) -> Tables {
        let services = overview.services.iter();
        let all = services.flat_map(|service| service.report.tables.iter().map(|table| (service.name, table)));
        let mut tables: Vec<ShownTable> = all
            .map(|(service, table)| {
                let rows = table.rows.iter().take(room.rows);
                let rows = rows.map(|row| row.iter().map(ShownCell::of).collect()).collect();
                ShownTable { service, info: table.info, rows }
            })
            .collect();
        let costs = |table: &ShownTable| table.rows.iter().map(|row| row.iter().map(ShownCell::cost).sum()).collect();
        let costs: Vec<Vec<usize>> = tables.iter().map(costs).collect();
        let fitting = fit(&costs, room.bytes);
        tables.iter_mut().zip(fitting).for_each(|(table, rows)| table.rows.truncate(rows));
        Tables(tables)
    }

    /// Returns the tables of one service.
    pub fn of_service(&self, name: &str) -> impl Iterator<Item = &ShownTable> {
        self.0.iter().filter(move |table| table.service == name)
    }
}

impl Heading {
    /// Returns what there is to know of a table besides the rows that are shown.
    pub fn of(table: &super::Table, shown: &ShownTable, recent: Option<ShownRecent>) -> Heading {
        let info = table.info;
        Heading {
            name: info.name,
            title: info.title,
            help: info.help,
            empty: info.empty,
            note: table.note.clone(),
            more: table.rows.len() - shown.rows.len(),
            recent,
            columns: info.columns.iter().map(ColumnHead::of).collect(),
        }
    }
}

impl ColumnHead {
    fn of(column: &Column) -> ColumnHead {
        let unit = match column.unit {
            ColumnUnit::Name | ColumnUnit::Linked(_) => "name",
            ColumnUnit::Key(_) => "key",
            ColumnUnit::Address | ColumnUnit::Client(_) => "address",
            ColumnUnit::Text => "text",
            ColumnUnit::Level | ColumnUnit::Count => "number",
            ColumnUnit::Bytes => "bytes",
            ColumnUnit::Age | ColumnUnit::Duration => "seconds",
            ColumnUnit::Times => "times",
        };
        let Column { name, title, help, emphasis, .. } = *column;
        let (link, actions): (_, &[_]) = match column.unit {
            ColumnUnit::Linked(path) | ColumnUnit::Client(path) => (Some(path), &[]),
            ColumnUnit::Key(actions) => (None, actions),
            _ => (None, &[]),
        };
        let (is_counter, emphasis) = (column.unit.is_counter(), word_of(emphasis));
        ColumnHead { name, title, help, unit, is_counter, emphasis, link, actions }
    }
}

impl ShownCell {
    fn of(cell: &Cell) -> ShownCell {
        match cell {
            Cell::Nothing => ShownCell::Nothing,
            Cell::Name(bytes) => ShownCell::Text(visible(bytes, NAME_BYTES)),
            Cell::Text(text) => ShownCell::Text(visible(text.as_bytes(), NAME_BYTES)),
            Cell::Client(address, conn) => {
                ShownCell::Client(ShownClient { key: client_key(address, *conn), address: address.clone() })
            }
            Cell::Number(number) => ShownCell::Number(*number),
            Cell::Time(span) => ShownCell::Seconds(seconds(*span)),
            Cell::Times(histogram) => ShownCell::Times(ShownTimes::of(histogram)),
        }
    }

    /// Returns how many bytes it takes in the status page, at most.
    fn cost(&self) -> usize {
        match self {
            ShownCell::Text(text) => CELL_COST + TEXT_COST * text.len(),
            ShownCell::Client(client) => 2 * CELL_COST + TEXT_COST * client.key.len(),
            ShownCell::Times(_) => TIMES_COST,
            ShownCell::Nothing | ShownCell::Number(_) | ShownCell::Seconds(_) => CELL_COST,
        }
    }
}

impl ShownTimes {
    fn of(histogram: &Histogram) -> ShownTimes {
        let [p50, p99] = [0.5, 0.99].map(|share| histogram.quantile(share));
        let time = |it: Quantile| seconds(Span::from_micros(it.value));
        ShownTimes {
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

struct OfService<'a>(&'a [ShownTable]);

impl Serialize for OfService<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = |info: &'static TableInfo| move |cells| ShownRow { columns: info.columns, cells };
        serializer.collect_map(self.0.iter().map(|ShownTable { info, rows, .. }| {
            (info.name, rows.iter().map(Vec::as_slice).map(row(info)).collect::<Vec<ShownRow<'_>>>())
        }))
    }
}

struct ShownRow<'a> {
    columns: &'static [Column],
    cells: &'a [ShownCell],
}

impl Serialize for ShownRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (column, cell) in self.columns.iter().zip(self.cells) {
            map.serialize_entry(column.name, cell)?;
            if let ShownCell::Client(ShownClient { key, .. }) = cell {
                map.serialize_entry(&format_args!("{}_key", column.name), key)?;
            }
        }
        map.end()
    }
}

/// Returns what stands for a connection in the paths of pages: its peer's address, which no two have at a time, and by which
/// number it is found.
pub fn client_key(address: &str, conn: ConnId) -> String {
    format!("{address}@{}", conn.index())
}

/// Returns the connection that such a key names; None if it is gone, or this is no such key.
pub fn client_of(key: &str, peers: &dyn Peers) -> Option<ConnId> {
    let (address, number) = key.rsplit_once('@')?;
    // Lossless: an id has no more bits.
    let conn = ConnId::from_index(number.parse::<u32>().ok()? as usize);
    (peers.peer(conn) == address).then_some(conn)
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
