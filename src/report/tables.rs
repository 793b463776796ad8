//! Tables of a report: visible names, seconds, and as many rows as fit.

use super::Column;
use super::column::ColumnUnit;
use crate::peer::Peers;
use crate::shown::{ShownRecent, Text, duration, seconds};
use poolcounter_core::text::{cut, lines_of, visible};
use poolcounter_core::{ConnId, Count, Histogram, Id, Span};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Borrow;

/// Longest shown name, in bytes.
pub const NAME_BYTES: usize = 200;
/// Limit of the bytes of a text byte in the status page, which has it as markup and as JSON: `&lt;` and `\u003c`.
const TEXT_COST: usize = 10;
/// Limit of the bytes of a cell there: twice twenty digits, the name of its column, and markup. Times have six numbers.
const CELL_COST: usize = 80;
const TIMES_COST: usize = 220;

/// Table. Its rows are elsewhere in the JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Table {
    /// Name in the JSON, unique among the tables of the service.
    pub name: Text,
    /// Heading.
    pub title: Text,
    /// Explanation for the reader; may be empty.
    pub help: Text,
    /// Text shown if there are no rows. If empty, people do not see a table without rows.
    pub empty: Text,
    /// True if rows of the same name mean the same at every daemon, as types of work do, and can be added up.
    pub is_of_kinds: bool,
    /// Sentence about the current rows.
    pub note: Option<String>,
    /// Number of rows that did not fit.
    pub more: usize,
    /// Period of the counts and times; None for totals since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent: Option<ShownRecent>,
    /// Columns. The first identifies the row.
    pub columns: Vec<Column>,
    /// Rows with one cell for each column, most important first: if room is short, the last ones are left out.
    #[serde(skip)]
    pub rows: Vec<Vec<Cell>>,
}

/// Cell of a table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// No value, in a column of any unit.
    Nothing,
    /// Text, safe to show.
    Text(String),
    /// Connection.
    #[serde(skip_deserializing)]
    Client(Client),
    /// Number.
    Number(u64),
    /// Seconds; in a column of numbers, a rate.
    Seconds(f64),
    /// Durations of many events.
    Times(Times),
}

/// Connection.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(transparent)]
pub struct Client {
    /// Address of the peer.
    pub address: String,
    /// Path of the page about it, below the path of its column: its address, unique at any time, and the index by which
    /// it is found.
    #[serde(skip)]
    pub key: String,
}

/// Quantiles of durations; null without durations.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Times {
    /// Median in seconds: half of the durations are not longer.
    pub p50: Option<f64>,
    /// 99th percentile in seconds.
    pub p99: Option<f64>,
    /// True if the median is beyond the largest value that the histogram can record.
    pub p50_is_over: bool,
    /// The same for `p99`.
    pub p99_is_over: bool,
    /// All counts, for metrics. They are not in the JSON.
    #[serde(skip)]
    pub all: Option<Histogram>,
}

/// Makes the cell of a row.
pub type CellOf<'a, R> = Box<dyn Fn(&R) -> Cell + 'a>;

/// Returns a function of rows, whose type a closure by itself does not say.
pub fn cell_of<'a, R>(cell: impl Fn(&R) -> Cell + 'a) -> CellOf<'a, R> {
    Box::new(cell)
}

/// Values that are cells by themselves.
macro_rules! cells {
    ($($value:ident: $of:ty => $cell:expr;)*) => {
        $(impl From<$of> for Cell {
            fn from($value: $of) -> Cell {
                $cell
            }
        })*
    };
}

cells! {
    number: u64 => Cell::Number(number);
    number: u32 => Cell::Number(number.into());
    count: Count => Cell::Number(count.get());
    span: Span => Cell::time(span);
    times: Histogram => Cell::times(times);
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Nothing, T::into)
    }
}

impl Table {
    /// Returns a table with a cell of each column for each row. The macro [`table`](crate::table) writes the columns of a
    /// table that stands alone; tables that share columns have lists of them.
    pub fn of_cells<R, C: Fn(&R) -> Cell>(
        name: &'static str,
        title: &'static str,
        rows: impl IntoIterator<Item = impl Borrow<R>>,
        columns: impl IntoIterator<Item = (Column, C)>,
    ) -> Table {
        let (columns, cells): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let row_of = |row: &R| cells.iter().map(|cell| cell(row)).collect();
        Table::new(name, title, columns).rows(rows.into_iter().map(|row| row_of(row.borrow())))
    }

    /// Returns a table without rows.
    pub fn new(name: impl Into<Text>, title: impl Into<Text>, columns: Vec<Column>) -> Table {
        Table { name: name.into(), title: title.into(), columns, ..Table::default() }
    }

    /// Returns the same with an explanation.
    pub fn help(self, help: impl Into<Text>) -> Table {
        Table { help: help.into(), ..self }
    }

    /// Returns it with another title.
    pub fn titled(self, title: impl Into<Text>) -> Table {
        Table { title: title.into(), ..self }
    }

    /// Returns the same with a text for the case that there are no rows.
    pub fn empty(self, empty: impl Into<Text>) -> Table {
        Table { empty: empty.into(), ..self }
    }

    /// Returns the same with rows that can be added up over daemons, see [`Table::is_of_kinds`].
    pub fn of_kinds(self) -> Table {
        Table { is_of_kinds: true, ..self }
    }

    /// Returns the same with rows.
    pub fn rows(self, rows: impl IntoIterator<Item = Vec<Cell>>) -> Table {
        Table { rows: rows.into_iter().collect(), ..self }
    }

    /// Checks the rows against the columns.
    ///
    /// # Panics
    ///
    /// Panics if they do not fit.
    pub fn check(&self) {
        for row in &self.rows {
            assert_eq!(row.len(), self.columns.len(), "{}: {row:?}", self.name);
            for (cell, column) in row.iter().zip(&self.columns) {
                assert!(column.takes(cell), "{}.{}: {cell:?}", self.name, column.name);
            }
        }
    }

    /// Returns the largest possible size of each row in the status page, in bytes.
    pub fn costs(&self) -> Vec<usize> {
        self.rows.iter().map(|row| row.iter().map(Cell::cost).sum()).collect()
    }

    /// Keeps only the first `rows` rows.
    pub fn cut(&mut self, rows: usize) {
        self.more = self.more.saturating_add(self.rows.len().saturating_sub(rows));
        self.rows.truncate(rows);
        // The name and the first figure are always shown.
        let first = self.columns.iter().position(|column| !column.is_text()).unwrap_or(0);
        for (n, column) in self.columns.iter_mut().enumerate() {
            let is_zero = !self.rows.is_empty() && self.rows.iter().all(|row| row.get(n).is_none_or(Cell::is_zero));
            column.is_zero = is_zero && n > 0 && n != first;
        }
    }

    /// Returns the table with a column for each quantile in place of the columns of times, so that each cell is one
    /// value.
    pub fn flat(mut self) -> Table {
        let rows = std::mem::take(&mut self.rows).into_iter();
        let columns = self.columns.iter().flat_map(|column| match column.unit {
            ColumnUnit::Times => ["p50", "p99"].map(|share| {
                let title = format!("{} {share}", column.title).into();
                Some(Column { title, unit: ColumnUnit::Seconds, ..column.clone() })
            }),
            _ => [Some(column.clone()), None],
        });
        let is_times = |at: usize| self.columns[at].unit == ColumnUnit::Times;
        let flat = |(at, cell): (usize, Cell)| match cell {
            Cell::Times(times) => times.cells().map(Some),
            Cell::Nothing if is_times(at) => [Some(Cell::Nothing), Some(Cell::Nothing)],
            cell => [Some(cell), None],
        };
        let rows = rows.map(|row| row.into_iter().enumerate().flat_map(flat).flatten().collect());
        let (rows, columns) = (rows.collect(), columns.flatten().collect());
        Table { rows, columns, ..self }
    }

    /// Returns the rows as objects with a member for each column.
    pub fn rows_by_column(&self) -> Vec<impl Serialize> {
        self.rows.iter().map(|cells| RowByColumn { columns: &self.columns, cells }).collect()
    }
}

impl Column {
    /// Returns true if the column can have this kind of cell.
    pub fn takes(&self, cell: &Cell) -> bool {
        match cell {
            Cell::Nothing => true,
            Cell::Text(_) => self.is_text(),
            Cell::Client(_) => self.unit == ColumnUnit::Address && self.link.is_some(),
            Cell::Number(_) => matches!(self.unit, ColumnUnit::Number | ColumnUnit::Bytes),
            Cell::Seconds(_) => self.unit == ColumnUnit::Seconds,
            Cell::Times(_) => self.unit == ColumnUnit::Times,
        }
    }

    /// Reads the cell of this column in a row of JSON, as [`RowByColumn`] writes it.
    pub(super) fn read_cell(&self, row: &Value) -> Cell {
        let cell = Cell::deserialize(&row[&*self.name]).unwrap_or(Cell::Nothing);
        match (cell, row[&format!("{}_key", self.name)].as_str()) {
            (Cell::Text(address), Some(key)) => Cell::Client(Client { address, key: key.into() }),
            (cell, _) => Some(cell).filter(|cell| self.takes(cell)).unwrap_or(Cell::Nothing),
        }
    }
}

impl Cell {
    /// Returns the cell of a name given by clients, or of a text.
    pub fn text(bytes: impl AsRef<[u8]>) -> Cell {
        Cell::Text(visible(bytes.as_ref(), NAME_BYTES))
    }

    /// Returns the cell of a text that names nothing, such as an error: with its backslashes as they are.
    pub fn prose(bytes: impl AsRef<[u8]>) -> Cell {
        let text = lines_of(&String::from_utf8_lossy(bytes.as_ref())).replace(['\n', '\t'], " ");
        Cell::Text(cut(&text, NAME_BYTES).into_owned())
    }

    /// Returns the cell for a connection.
    pub fn client(conn: ConnId, peers: &dyn Peers) -> Cell {
        Cell::client_at(peers.peer(conn), conn)
    }

    /// Returns the cell for a connection whose peer has this address.
    pub fn client_at(address: String, conn: ConnId) -> Cell {
        Cell::Client(Client { key: format!("{address}@{}", conn.index()), address })
    }

    /// Returns the cell of a span.
    pub fn time(span: Span) -> Cell {
        Cell::Seconds(seconds(span))
    }

    /// Returns the cell of durations.
    pub fn times(durations: Histogram) -> Cell {
        Cell::Times(Times::of(durations))
    }

    /// Returns true if it is zero or empty.
    pub fn is_zero(&self) -> bool {
        match self {
            Cell::Nothing | Cell::Number(0) => true,
            Cell::Text(text) => text.is_empty(),
            Cell::Seconds(seconds) => *seconds == 0.0,
            Cell::Times(times) => times.p50.is_none(),
            Cell::Number(_) | Cell::Client(_) => false,
        }
    }

    /// Returns the largest possible size in the status page, in bytes.
    fn cost(&self) -> usize {
        match self {
            Cell::Text(text) => CELL_COST + TEXT_COST * text.len(),
            Cell::Client(client) => 2 * CELL_COST + TEXT_COST * client.key.len(),
            Cell::Times(_) => TIMES_COST,
            Cell::Nothing | Cell::Number(_) | Cell::Seconds(_) => CELL_COST,
        }
    }
}

impl Times {
    /// Returns the quantiles of a histogram, and its counts.
    pub fn of(histogram: Histogram) -> Times {
        let [p50, p99] = [0.5, 0.99].map(|share| histogram.quantile(share));
        let [p50_is_over, p99_is_over] = [p50, p99].map(|it| it.is_some_and(|it| it.is_beyond));
        let [p50, p99] = [p50, p99].map(|it| it.map(|it| seconds(Span::from_micros(it.value))));
        Times { p50, p99, p50_is_over, p99_is_over, all: Some(histogram) }
    }

    /// Returns the quantiles as cells: seconds, or a text if they are beyond what can be recorded.
    fn cells(&self) -> [Cell; 2] {
        [(self.p50, self.p50_is_over), (self.p99, self.p99_is_over)].map(|(seconds, is_over)| match seconds {
            None => Cell::Nothing,
            Some(seconds) if is_over => Cell::Text(format!("over {}", duration(seconds))),
            Some(seconds) => Cell::Seconds(seconds),
        })
    }
}

struct RowByColumn<'a> {
    columns: &'a [Column],
    cells: &'a [Cell],
}

impl Serialize for RowByColumn<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (column, cell) in self.columns.iter().zip(self.cells) {
            map.serialize_entry(&column.name, cell)?;
            if let Cell::Client(Client { key, .. }) = cell {
                map.serialize_entry(&format_args!("{}_key", column.name), key)?;
            }
        }
        map.end()
    }
}

/// Returns the connection with this key; None if it is gone or the key is invalid.
pub fn client_of(key: &str, peers: &dyn Peers) -> Option<ConnId> {
    let (address, number) = key.rsplit_once('@')?;
    // Lossless: an id has at most 32 bits.
    let conn = ConnId::from_index(number.parse::<u32>().ok()? as usize);
    (peers.peer(conn) == address).then_some(conn)
}
