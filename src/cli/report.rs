//! Reports of servers, as sent by `STATS REPORT`: `stats` prints them and `top` shows them. Independent of services.

#![cfg_attr(not(feature = "top"), allow(dead_code, reason = "`top` shows all of a report, `stats` a part"))]

mod health;
mod tone;

pub use health::{ToldCondition, ToldHealth};
pub use tone::Tone;

use super::servers::{AnswerOf, in_words};
use super::terminal::printable;
use poolcounter_client::{Client, Error, Lines};
use poolcounter_service::shown;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// Text about a server whose rules of access do not let this client ask.
pub const DENIED: &str = "no rule of access allows this (DENIED)";

/// Reply of a server to a request for its report.
pub enum Answer {
    /// The report.
    Report(Value),
    /// The server does not support reports: the C daemon, or an older release.
    Refused,
}

/// Report of a server about all its services.
#[derive(Deserialize)]
pub struct ToldReport {
    pub version: String,
    /// Time since the start, in seconds.
    pub uptime: f64,
    /// Start, in seconds since 1970.
    #[serde(default)]
    started_at: f64,
    /// Health of the services; missing from older releases.
    #[serde(default)]
    pub health: Vec<ToldHealth>,
    pub services: Vec<ToldService>,
    history: ToldHistory,
    /// Rows of the tables of each service, with other unused values.
    #[serde(flatten)]
    rows: Map<String, Value>,
}

/// Report about one service.
#[derive(Deserialize)]
pub struct ToldService {
    pub name: String,
    /// True if it is enabled; missing from older releases.
    #[serde(default = "yes")]
    pub is_enabled: bool,
    pub connections: u64,
    pub connections_opened: u64,
    pub figures: Vec<ToldFigure>,
    tables: Vec<ToldHeading>,
    /// Heat map; most services and older releases have none.
    matrix: Option<ToldMatrix>,
}

fn yes() -> bool {
    true
}

/// Heat map of two kinds of names.
#[derive(Deserialize)]
struct ToldMatrix {
    title: String,
    empty: String,
    row: (String, String),
    column: (String, String),
    columns: Vec<String>,
    rows: Vec<ToldLine>,
}

#[derive(Deserialize)]
struct ToldLine {
    name: String,
    /// For each column, a pair of number and seconds, or 0. The sums follow at the end.
    values: Vec<Value>,
}

#[derive(Deserialize)]
pub struct ToldFigure {
    pub name: String,
    value: f64,
    is_seconds: bool,
}

#[derive(Deserialize)]
struct ToldHistory {
    series: Vec<ToldSeries>,
}

/// Current value of a curve.
#[derive(Deserialize)]
pub struct ToldSeries {
    service: String,
    pub title: String,
    pub is_rate: bool,
    pub now: f64,
    #[serde(default)]
    emphasis: String,
}

#[derive(Deserialize)]
struct ToldHeading {
    name: String,
    title: String,
    empty: String,
    note: Option<String>,
    more: u64,
    columns: Vec<ToldColumn>,
}

#[derive(Deserialize)]
struct ToldColumn {
    name: String,
    title: String,
    unit: String,
    is_counter: bool,
    /// Emphasis; missing from older releases.
    #[serde(default)]
    emphasis: String,
}

#[derive(Deserialize)]
struct ToldTimes {
    p50: Option<f64>,
    p99: Option<f64>,
    p50_is_over: bool,
    p99_is_over: bool,
}

/// Table with a column for each value that it shows: two for durations.
pub struct Grid {
    /// Name, unique among all services.
    pub id: String,
    pub title: String,
    /// Text shown if there are no rows.
    pub empty: String,
    /// Sentence about the rows.
    pub note: Option<String>,
    /// Number of rows left out.
    pub more: u64,
    pub heads: Vec<GridHead>,
    pub rows: Vec<Vec<GridCell>>,
}

/// Head of a column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridHead {
    pub title: String,
    /// True if it identifies the row.
    pub is_text: bool,
    /// True if its values only grow.
    pub is_counter: bool,
    /// Meaning of its values for the reader.
    pub tone: Tone,
}

/// Cell of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum GridCell {
    /// No value.
    Nothing,
    /// Text, safe for a terminal.
    Text(String),
    /// A number.
    Number(f64),
    /// Rate per second.
    Rate(f64),
    /// Duration in seconds, or longer than that.
    Time { seconds: f64, is_over: bool },
}

/// Asks each server for its report, with at most `rows` rows of each table. Errors are phrased to follow the name of
/// the server.
pub fn ask(client: &Client, rows: usize) -> Vec<AnswerOf<Answer>> {
    let answers = in_words(client.query(format!("REPORT {rows}")));
    let read = |(server, answer): AnswerOf<Lines>| {
        let answer = answer.and_then(|answer| match answer {
            Ok(lines) => parse(&lines.concat()).map(Answer::Report),
            Err(Error::Refused(words)) if words.contains("DENIED") => Err(DENIED.into()),
            Err(Error::Refused(_)) => Ok(Answer::Refused),
            Err(error) => Err(error.to_string()),
        });
        (server, answer)
    };
    answers.into_iter().map(read).collect()
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("its report cannot be read: {error}")
}

impl ToldReport {
    /// Returns the time of the report, in seconds since 1970.
    pub fn now(&self) -> f64 {
        self.started_at + self.uptime
    }

    /// Parses the report in a server's reply.
    ///
    /// # Errors
    ///
    /// One sentence, if it is not a valid report.
    pub fn read(report: Value) -> Result<ToldReport, String> {
        serde_json::from_value(report).map_err(|error| unreadable(&error))
    }

    /// Returns the series of a service.
    pub fn series<'a>(&'a self, service: &'a ToldService) -> impl Iterator<Item = &'a ToldSeries> {
        self.history.series.iter().filter(|series| series.service == service.name)
    }

    /// Returns the visible tables of a service, with its matrix as one.
    pub fn tables(&self, service: &ToldService) -> Vec<Grid> {
        let rows = self.rows.get(&service.name);
        let grid = |heading: &ToldHeading| Grid::of(service, heading, rows.and_then(|rows| rows.get(&heading.name)));
        let matrix = service.matrix.as_ref().map(|matrix| Grid::of_matrix(service, matrix));
        let is_shown = |grid: &Grid| !grid.rows.is_empty() || !grid.empty.is_empty();
        matrix.into_iter().chain(service.tables.iter().map(grid)).filter(is_shown).collect()
    }
}

impl ToldService {
    /// Returns true if the service was used or has rows in these tables.
    pub fn is_used(&self, tables: &[Grid]) -> bool {
        self.connections_opened > 0 && !self.figures.is_empty() || tables.iter().any(|table| !table.rows.is_empty())
    }
}

impl ToldSeries {
    /// Returns the meaning of its value for the reader.
    pub fn tone(&self) -> Tone {
        Tone::of(&self.emphasis)
    }
}

impl ToldFigure {
    /// Returns its value as a cell.
    pub fn cell(&self) -> GridCell {
        if self.is_seconds { GridCell::seconds(self.value) } else { GridCell::Number(self.value) }
    }
}

impl Grid {
    fn of(service: &ToldService, heading: &ToldHeading, rows: Option<&Value>) -> Grid {
        let rows = rows.and_then(Value::as_array).into_iter().flatten();
        let cells = |row: &Value| heading.columns.iter().flat_map(|column| column.cells(&row[&column.name])).collect();
        Grid {
            id: format!("{}.{}", service.name, heading.name),
            title: visible(&heading.title),
            empty: visible(&heading.empty),
            note: heading.note.as_deref().map(visible),
            more: heading.more,
            heads: heading.columns.iter().flat_map(ToldColumn::heads).collect(),
            rows: rows.map(cells).collect(),
        }
    }

    /// Returns the cells of a matrix, each as a row of names, number and time, the longest time first.
    fn of_matrix(service: &ToldService, matrix: &ToldMatrix) -> Grid {
        let cells = matrix.rows.iter().flat_map(|line| {
            line.values.iter().zip(&matrix.columns).filter_map(|(value, column)| {
                let (count, seconds) = <(f64, f64)>::deserialize(value).ok()?;
                Some((line.name.as_str(), column.as_str(), count, seconds))
            })
        });
        let mut cells: Vec<_> = cells.collect();
        cells.sort_by(|one, other| (other.3, other.2).partial_cmp(&(one.3, one.2)).unwrap_or(Ordering::Equal));
        let row = |(row, column, count, seconds): (&str, &str, f64, f64)| {
            let names = [row, column].map(|name| GridCell::Text(visible(name)));
            names.into_iter().chain([GridCell::Number(count), GridCell::seconds(seconds)]).collect()
        };
        let head =
            |title: &str, is_text| GridHead { title: visible(title), is_text, is_counter: false, tone: Tone::Plain };
        let names = [&matrix.row.0, &matrix.column.0].map(|title| head(title, true));
        Grid {
            id: format!("{}.matrix", service.name),
            title: visible(&matrix.title),
            empty: visible(&matrix.empty),
            note: None,
            more: 0,
            heads: names.into_iter().chain([head("ready", false), head("oldest", false)]).collect(),
            rows: cells.into_iter().map(row).collect(),
        }
    }
}

impl ToldColumn {
    fn heads(&self) -> Vec<GridHead> {
        let (is_text, is_counter, tone) = (self.is_text(), self.is_counter, Tone::of(&self.emphasis));
        let head = |title| GridHead { title, is_text, is_counter, tone };
        let title = visible(&self.title);
        match &*self.unit {
            "times" => ["p50", "p99"].map(|share| head(format!("{title} {share}"))).into(),
            _ => vec![head(title)],
        }
    }

    /// Returns the cells for a value of the column, as many as it has heads.
    fn cells(&self, value: &Value) -> Vec<GridCell> {
        let time = |seconds: Option<f64>, is_over| {
            seconds.map_or(GridCell::Nothing, |seconds| GridCell::Time { seconds, is_over })
        };
        match &*self.unit {
            "times" => match ToldTimes::deserialize(value) {
                Ok(times) => vec![time(times.p50, times.p50_is_over), time(times.p99, times.p99_is_over)],
                Err(_) => vec![GridCell::Nothing; 2],
            },
            "seconds" => vec![value.as_f64().map_or(GridCell::Nothing, GridCell::seconds)],
            _ if self.is_text() => vec![value.as_str().map_or(GridCell::Nothing, |text| GridCell::Text(visible(text)))],
            _ => vec![value.as_f64().map_or(GridCell::Nothing, GridCell::Number)],
        }
    }

    fn is_text(&self) -> bool {
        ["name", "address", "text", "key"].contains(&&*self.unit)
    }
}

impl GridCell {
    /// Returns the cell for a duration.
    pub fn seconds(seconds: f64) -> GridCell {
        GridCell::Time { seconds, is_over: false }
    }

    /// Returns the number in the cell, if any.
    pub fn value(&self) -> Option<f64> {
        match self {
            GridCell::Nothing | GridCell::Text(_) => None,
            GridCell::Number(value) | GridCell::Rate(value) | GridCell::Time { seconds: value, .. } => Some(*value),
        }
    }

    /// Compares in the default order: names ascending, numbers descending.
    pub fn compare(&self, other: &GridCell) -> Ordering {
        match (self, other) {
            (GridCell::Text(a), GridCell::Text(b)) => a.cmp(b),
            // An unknown value is less than any number.
            (a, b) => b.value().unwrap_or(-1.0).total_cmp(&a.value().unwrap_or(-1.0)),
        }
    }
}

impl fmt::Display for GridCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GridCell::Nothing => f.write_str("-"),
            GridCell::Text(text) => f.write_str(text),
            GridCell::Number(number) => number.fmt(f),
            GridCell::Rate(rate) if *rate == 0.0 => f.write_str("0"),
            GridCell::Rate(rate) if *rate < 10.0 => write!(f, "{rate:.1}"),
            GridCell::Rate(rate) => write!(f, "{rate:.0}"),
            GridCell::Time { seconds, is_over } => {
                let over = if *is_over { "over " } else { "" };
                write!(f, "{over}{}", shown::duration(seconds.max(0.0)))
            }
        }
    }
}

/// Returns the text of a server, safe for a terminal.
fn visible(text: &str) -> String {
    printable(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_pages() {
        let over = GridCell::Time { seconds: 300.0, is_over: true };
        assert_eq!([over, GridCell::seconds(61.0)].map(|cell| cell.to_string()), ["over 5 min", "1 min 1 s"]);
    }

    /// A server may be of another release, or malicious.
    #[test]
    fn unexpected_values_are_left_out() {
        let column = |unit: &str| ToldColumn {
            name: "c".into(),
            title: "c".into(),
            unit: unit.into(),
            is_counter: false,
            emphasis: String::new(),
        };
        for (unit, json, shown) in [
            ("name", r#""a\u001bb""#, "\\u{1b}"),
            ("name", "3", "-"),
            ("number", "3", "3"),
            ("number", r#""3""#, "-"),
            ("seconds", "null", "-"),
            ("seconds", "-3e300", "0 s"),
            ("seconds", "1e300", " d "),
            ("times", r#"{"p50":1}"#, "-"),
            ("times", r#"{"p50":1,"p99":null,"p50_is_over":true,"p99_is_over":false}"#, "over 1.0 s"),
            ("novel", "3", "3"),
        ] {
            let column = column(unit);
            let cells = column.cells(&serde_json::from_str(json).expect("is JSON"));
            assert_eq!(cells.len(), column.heads().len());
            assert!(cells[0].to_string().contains(shown), "{unit} {json}: {cells:?}");
        }
    }

    #[test]
    fn other_text_is_refused_as_a_report() {
        for json in ["{}", "[]", "3", r#"{"version":"1","uptime":0,"services":[{}],"history":{"series":[]}}"#] {
            assert!(ToldReport::read(serde_json::from_str(json).expect("is JSON")).is_err(), "{json}");
        }
        assert!(parse::<Value>(b"LOCKED").is_err());
    }
}
