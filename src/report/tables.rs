//! Tables of a report as shown to people: visible names, seconds, and as many rows as fit.

use super::room::Room;
use super::{Cell, Column, ColumnUnit, Emphasis, Table};
use crate::peer::Peers;
use crate::shown::{ShownRecent, Text, duration, seconds};
use poolcounter_core::histogram::{Histogram, Quantile};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::text::visible;
use poolcounter_core::time::Span;
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// Longest shown name, in bytes.
pub const NAME_BYTES: usize = 200;
/// Limit of the bytes of a text byte in the status page, which has it as markup and as JSON: `&lt;` and `\u003c`.
const TEXT_COST: usize = 10;
/// Limit of the bytes of a cell there: twice twenty digits, the name of its column, and markup. Times have six numbers.
const CELL_COST: usize = 80;
const TIMES_COST: usize = 220;
/// Limit of the bytes of each count of a histogram.
const COUNT_COST: usize = 21;

/// Table. Its rows are elsewhere in the JSON.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ShownTable {
    /// Name in the JSON.
    pub name: Text,
    /// Title.
    pub title: Text,
    /// One-sentence description.
    pub help: Text,
    /// Text shown if there are no rows.
    pub empty: Text,
    /// True if rows of the same name mean the same at every daemon.
    pub is_of_kinds: bool,
    /// Sentence about the current rows.
    pub note: Option<String>,
    /// Number of rows that did not fit.
    pub more: usize,
    /// Period of the counts and times; None for totals since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent: Option<ShownRecent>,
    /// Columns.
    pub columns: Vec<ColumnHead>,
    /// Rows, with one cell for each column.
    #[serde(skip)]
    pub rows: Vec<Vec<ShownCell>>,
}

/// Column of a table.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ColumnHead {
    /// Name in the JSON.
    pub name: Text,
    /// Title.
    pub title: Text,
    /// One-sentence description.
    pub help: Text,
    /// Unit of its cells.
    pub unit: Text,
    /// True if a value only grows.
    pub is_counter: bool,
    /// Word for the emphasis of its values on a page.
    pub emphasis: Text,
    /// True if every row has zero or nothing there: pages then leave out the column.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_zero: bool,
    /// Path of the pages about each name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Text>,
    /// Actions on each key, for viewers with permission.
    #[serde(skip_serializing_if = "<[_]>::is_empty", skip_deserializing)]
    pub actions: &'static [&'static str],
}

/// Cell of a table. Spans are in seconds.
#[derive(Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ShownCell {
    /// No value.
    Nothing,
    /// Text, safe to show.
    Text(String),
    /// Connection.
    Client(ShownClient),
    /// Number.
    Number(u64),
    /// Seconds.
    Seconds(f64),
    /// Quantiles of durations.
    Times(ShownTimes),
}

/// Connection.
#[derive(Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ShownClient {
    /// Address of the peer.
    pub address: String,
    /// Path of the page about it, below the path of its column.
    #[serde(skip)]
    pub key: String,
}

/// Quantiles of durations; null without durations.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ShownTimes {
    /// Median in seconds: half of the durations are not longer.
    pub p50: Option<f64>,
    /// 99th percentile in seconds.
    pub p99: Option<f64>,
    /// True if the median is beyond the largest value that the histogram can record.
    pub p50_is_over: bool,
    /// The same for `p99`.
    pub p99_is_over: bool,
    /// All counts, for merging the reports of several daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<Histogram>,
}

impl ShownTable {
    /// Returns as many rows of a table as there is room for.
    pub fn of(table: &Table, room: Room, recent: Option<ShownRecent>) -> ShownTable {
        let info = table.info;
        let shown = table.rows.iter().take(room.rows);
        let shown = shown.map(|row| row.iter().map(|cell| ShownCell::of(cell, room.has_all_times)).collect());
        ShownTable {
            name: info.name.into(),
            title: info.title.into(),
            help: info.help.into(),
            empty: info.empty.into(),
            is_of_kinds: info.is_of_kinds,
            note: table.note.clone(),
            more: table.rows.len().saturating_sub(room.rows),
            recent,
            columns: info.columns.iter().map(ColumnHead::of).collect(),
            rows: shown.collect(),
        }
    }

    /// Returns the largest possible size of each row in the status page, in bytes.
    pub fn costs(&self) -> Vec<usize> {
        self.rows.iter().map(|row| row.iter().map(ShownCell::cost).sum()).collect()
    }

    /// Keeps only the first `rows` rows.
    pub fn cut(&mut self, rows: usize) {
        self.more = self.more.saturating_add(self.rows.len().saturating_sub(rows));
        self.rows.truncate(rows);
        // The name and the first figure are always shown.
        let first = self.columns.iter().position(|column| !column.is_text()).unwrap_or(0);
        for (n, column) in self.columns.iter_mut().enumerate() {
            let is_zero =
                !self.rows.is_empty() && self.rows.iter().all(|row| row.get(n).is_none_or(ShownCell::is_zero));
            column.is_zero = is_zero && n > 0 && n != first;
        }
    }

    /// Removes the full counts of durations, which are not shown.
    pub fn forget_all_times(&mut self) {
        for cell in self.rows.iter_mut().flatten() {
            if let ShownCell::Times(times) = cell {
                times.all = None;
            }
        }
    }

    /// Returns the table with a column for each quantile in place of the columns of times, so that each cell is one
    /// value.
    pub fn flat(mut self) -> ShownTable {
        let rows = std::mem::take(&mut self.rows).into_iter();
        let columns = self.columns.iter().flat_map(|column| match &*column.unit {
            "times" => ["p50", "p99"].map(|share| {
                let title = format!("{} {share}", column.title).into();
                Some(ColumnHead { title, unit: "seconds".into(), ..column.clone() })
            }),
            _ => [Some(column.clone()), None],
        });
        let is_times = |at: usize| self.columns[at].unit == "times";
        let flat = |(at, cell): (usize, ShownCell)| match cell {
            ShownCell::Times(times) => times.cells().map(Some),
            ShownCell::Nothing if is_times(at) => [Some(ShownCell::Nothing), Some(ShownCell::Nothing)],
            cell => [Some(cell), None],
        };
        let rows = rows.map(|row| row.into_iter().enumerate().flat_map(flat).flatten().collect());
        let (rows, columns) = (rows.collect(), columns.flatten().collect());
        ShownTable { rows, columns, ..self }
    }

    /// Returns the rows as objects with a member for each column.
    pub fn rows_by_column(&self) -> Vec<impl Serialize> {
        self.rows.iter().map(|cells| RowByColumn { columns: &self.columns, cells }).collect()
    }
}

impl ColumnHead {
    /// Returns true if its cells are text.
    pub fn is_text(&self) -> bool {
        !matches!(&*self.unit, "number" | "bytes" | "seconds" | "times")
    }

    fn of(column: &Column) -> ColumnHead {
        let unit = match column.unit {
            ColumnUnit::Name | ColumnUnit::Linked(_) => "name",
            ColumnUnit::Key(..) => "key",
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
            ColumnUnit::Key(path, actions) => (Some(path), actions),
            _ => (None, &[]),
        };
        ColumnHead {
            name: name.into(),
            title: title.into(),
            help: help.into(),
            unit: unit.into(),
            is_counter: column.unit.is_counter(),
            emphasis: word_of(emphasis).into(),
            is_zero: false,
            link: link.map(Text::from),
            actions,
        }
    }
}

impl ShownCell {
    /// Returns true if it is zero or empty.
    pub fn is_zero(&self) -> bool {
        match self {
            ShownCell::Nothing | ShownCell::Number(0) => true,
            ShownCell::Text(text) => text.is_empty(),
            ShownCell::Seconds(seconds) => *seconds == 0.0,
            ShownCell::Times(times) => times.p50.is_none(),
            ShownCell::Number(_) | ShownCell::Client(_) => false,
        }
    }

    fn of(cell: &Cell, has_all_times: bool) -> ShownCell {
        match cell {
            Cell::Nothing => ShownCell::Nothing,
            Cell::Name(bytes) => ShownCell::Text(visible(bytes, NAME_BYTES)),
            Cell::Text(text) => ShownCell::Text(visible(text.as_bytes(), NAME_BYTES)),
            Cell::Client(address, conn) => {
                ShownCell::Client(ShownClient { key: client_key(address, *conn), address: address.clone() })
            }
            Cell::Number(number) => ShownCell::Number(*number),
            Cell::Time(span) => ShownCell::Seconds(seconds(*span)),
            Cell::Times(histogram) => ShownCell::Times(ShownTimes {
                all: has_all_times.then(|| histogram.clone()),
                ..ShownTimes::of(histogram)
            }),
        }
    }

    /// Returns the largest possible size in the status page, in bytes.
    fn cost(&self) -> usize {
        match self {
            ShownCell::Text(text) => CELL_COST + TEXT_COST * text.len(),
            ShownCell::Client(client) => 2 * CELL_COST + TEXT_COST * client.key.len(),
            ShownCell::Times(times) => TIMES_COST + times.all.as_ref().map_or(0, |all| COUNT_COST * all.filled()),
            ShownCell::Nothing | ShownCell::Number(_) | ShownCell::Seconds(_) => CELL_COST,
        }
    }
}

impl ShownTimes {
    /// Returns the quantiles as cells: seconds, or a text if they are beyond what can be recorded.
    fn cells(&self) -> [ShownCell; 2] {
        [(self.p50, self.p50_is_over), (self.p99, self.p99_is_over)].map(|(seconds, is_over)| match seconds {
            None => ShownCell::Nothing,
            Some(seconds) if is_over => ShownCell::Text(format!("over {}", duration(seconds))),
            Some(seconds) => ShownCell::Seconds(seconds),
        })
    }

    /// Returns the quantiles of a histogram.
    pub fn of(histogram: &Histogram) -> ShownTimes {
        let [p50, p99] = [0.5, 0.99].map(|share| histogram.quantile(share));
        let time = |it: Quantile| seconds(Span::from_micros(it.value));
        ShownTimes {
            p50: p50.map(time),
            p99: p99.map(time),
            p50_is_over: p50.is_some_and(|it| it.is_beyond),
            p99_is_over: p99.is_some_and(|it| it.is_beyond),
            all: None,
        }
    }
}

struct RowByColumn<'a> {
    columns: &'a [ColumnHead],
    cells: &'a [ShownCell],
}

impl Serialize for RowByColumn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (column, cell) in self.columns.iter().zip(self.cells) {
            map.serialize_entry(&column.name, cell)?;
            if let ShownCell::Client(ShownClient { key, .. }) = cell {
                map.serialize_entry(&format_args!("{}_key", column.name), key)?;
            }
        }
        map.end()
    }
}

/// Returns the key of a connection in the paths of pages: its peer's address, unique at any time, and the index by
/// which it is found.
pub fn client_key(address: &str, conn: ConnId) -> String {
    format!("{address}@{}", conn.index())
}

/// Returns the connection with this key; None if it is gone or the key is invalid.
pub fn client_of(key: &str, peers: &dyn Peers) -> Option<ConnId> {
    let (address, number) = key.rsplit_once('@')?;
    // Lossless: an id has at most 32 bits.
    let conn = ConnId::from_index(number.parse::<u32>().ok()? as usize);
    (peers.peer(conn) == address).then_some(conn)
}

/// Returns the word for an emphasis in the JSON.
pub fn word_of(emphasis: Emphasis) -> &'static str {
    match emphasis {
        Emphasis::None => "none",
        Emphasis::Work => "work",
        Emphasis::Caution => "caution",
        Emphasis::Alarm => "alarm",
    }
}
