//! Reports of all services as plain values with visible names and a JSON form: `/status.json` and the reply to `STATS
//! REPORT` are this JSON, and the status page is made from it.
//!
//! Durations are in seconds. The size is bounded, because it must stay below the limit of a connection's unsent output.

use super::matrix::Matrix;
use super::room::{Room, fit};
pub use super::shown_health::{ShownCondition, ShownHealth, ShownPast};
use super::tables::Table;
use super::{Emphasis, Moment, SeriesInfo, ServiceReport, ShownBlock};
use crate::loop_stats::Budget;
use crate::peer::{ProcessUsage, Traffic};
use crate::shown::{ShownRecent, Text, seconds};
use poolcounter_core::{Span, Unit};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// Limit of a matrix in the status page, in bytes. Beside tables it is much smaller.
const MATRIX_BYTES: usize = 700_000;

/// Recorded values of the series.
pub struct Remembered<'a> {
    /// Time between two values.
    pub interval: Span,
    /// Limit of values per series.
    pub most: usize,
    /// Returns the recorded values of a service's series.
    pub values: &'a dyn Fn(&'static str, &'static SeriesInfo) -> Values,
    /// Periods of the counts and times of tables that do not show totals since the start, with the names of service and
    /// table.
    pub recent: &'a [(&'static str, Text, ShownRecent)],
}

/// Everything that the page shows. Its JSON ends with the rows of the tables: under the name of each service with
/// tables, the rows of each table by its name.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Version of the daemon.
    pub version: Text,
    /// Seconds since the start.
    pub uptime: f64,
    /// Start of the process, in seconds since 1970.
    pub started_at: f64,
    /// Title, if it is about one thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Name of its tab; absent if it is about everything, or about a search in several services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tab: Option<Text>,
    /// Commands for its thing, without the name of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Texts about the thing that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty", skip_deserializing)]
    pub blocks: Vec<ShownBlock>,
    /// Range of its curves: `1m`, `5m` or `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Text>,
    /// True if the viewer may use the actions of columns.
    pub is_admin: bool,
    /// Last reload; null if there was none.
    pub last_reload: Option<ShownReload>,
    /// Health of each service.
    pub health: Vec<ShownHealth>,
    /// Conditions that are over, newest first.
    pub past: Vec<ShownPast>,
    /// Services, in the order of the list.
    pub services: Vec<ShownService>,
    /// Curves of the last minutes.
    pub history: ShownHistory,
    /// Figures of the loop.
    #[serde(rename = "loop")]
    pub loop_: ShownLoop,
    /// Usage of the process.
    pub process: ProcessUsage,
}

/// Last reload of the settings.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownReload {
    /// Time, in seconds since 1970.
    pub at: f64,
    /// True if all settings were applied; false while it is in progress.
    pub has_worked: bool,
}

/// Report of a service.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ShownService {
    /// Name.
    pub name: Text,
    /// Title; empty if it has no tab.
    pub title: Text,
    /// Option that enables it, without its dashes.
    pub option: Text,
    /// True if clients can connect to it.
    pub is_enabled: bool,
    /// Counts of its connections.
    #[serde(flatten)]
    pub traffic: Traffic,
    /// Statistics.
    pub figures: Vec<ShownFigure>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Heat map of two kinds of names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<Matrix>,
}

/// Entry of a service's statistics.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ShownFigure {
    /// Name in the protocol.
    pub name: Text,
    /// One-sentence description.
    pub help: Text,
    /// Value; in seconds if [`ShownFigure::is_seconds`] is set.
    pub value: f64,
    /// True if the value is a time.
    pub is_seconds: bool,
    /// True if the value is a number of bytes.
    pub is_bytes: bool,
    /// True if the value only grows.
    pub is_counter: bool,
}

/// Curves of the last ten minutes at equal intervals, oldest values first.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ShownHistory {
    /// Seconds from one value to the next.
    pub interval: f64,
    /// Limit of values per curve.
    pub most: usize,
    /// Curves.
    pub series: Vec<ShownCurve>,
}

/// Curve.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownCurve {
    /// Name of the service.
    pub service: Text,
    /// Name.
    pub name: Text,
    /// Title.
    pub title: Text,
    /// Unit of its values.
    pub unit: Text,
    /// True if the values are growth per second.
    pub is_rate: bool,
    /// Emphasis of its values.
    pub emphasis: Emphasis,
    /// Current value; since the start if it only grows.
    pub now: u64,
    /// Values, oldest first.
    pub values: Values,
}

/// Values of a curve.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// Levels, or totals since the start.
    Levels(Vec<u64>),
    /// Growth per second.
    Rates(Vec<f64>),
}

/// Figures of the loop.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ShownLoop {
    /// Ticks since the start.
    pub ticks: u64,
    /// Seconds of work since the start.
    pub busy: f64,
    /// Turns of connections since the start.
    pub turns: u64,
    /// Armed timers.
    pub timers: usize,
    /// Budgets of a tick, with the number of times each was used up.
    pub budgets_spent: Vec<Spent>,
}

/// Budget of a tick.
#[derive(Clone, Serialize, Deserialize)]
pub struct Spent {
    /// Name.
    pub budget: Text,
    /// Number of times it was used up.
    pub times: u64,
}

impl Remembered<'static> {
    /// No history: only current values.
    pub const NOTHING: Remembered<'static> =
        Remembered { interval: Span::ZERO, most: 0, values: &|_, _| Values::Levels(Vec::new()), recent: &[] };
}

impl Snapshot {
    /// Returns the current state, as far as it fits, and the recorded history.
    pub fn of(moment: &Moment<'_>, room: Room, remembered: &Remembered<'_>) -> Snapshot {
        let loop_stats = moment.loop_stats;
        let services = moment.overview.services.iter();
        let services = services.map(|service| ShownService::of(service, remembered.recent));
        let snapshot = Snapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime: seconds(moment.now.since(moment.started)),
            started_at: seconds(moment.time_of_day(moment.started)),
            last_reload: loop_stats.reload.map(|reload| ShownReload {
                at: seconds(moment.time_of_day(reload.at)),
                has_worked: reload.has_worked,
            }),
            health: moment.health.iter().map(|line| ShownHealth::of(line, moment)).collect(),
            past: moment.past.iter().map(|over| ShownPast::of(over, moment)).collect(),
            services: services.collect(),
            history: ShownHistory::of(moment, remembered),
            loop_: ShownLoop {
                ticks: loop_stats.durations.count(),
                busy: seconds(loop_stats.busy()),
                turns: loop_stats.turns.sum(),
                timers: moment.timers,
                budgets_spent: Budget::ALL
                    .map(|it| Spent { budget: it.name().into(), times: loop_stats.spent(it) })
                    .into(),
            },
            process: moment.usage,
            ..Snapshot::default()
        };
        snapshot.cut(room)
    }

    /// Returns the same with only as many rows of each table and matrix as fit.
    pub fn cut(mut self, mut room: Room) -> Snapshot {
        self.services.iter_mut().filter_map(|service| service.matrix.as_mut()).for_each(|it| it.cut(MATRIX_BYTES));
        let mut tables: Vec<&mut Table> = self.services.iter_mut().flat_map(|service| &mut service.tables).collect();
        for table in &mut tables {
            table.cut(room.rows);
        }
        let fitting = fit(&tables.iter().map(|table| table.costs()).collect::<Vec<_>>(), &mut room.bytes);
        tables.into_iter().zip(fitting).for_each(|(table, rows)| table.cut(rows));
        self
    }

    /// Returns the JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&WithRows::of(self)).expect("plain values have a JSON form")
    }

    /// Appends the JSON in lines: each item of a list starts a line, and no line is empty.
    pub fn write_lines(&self, bytes: &mut Vec<u8>) {
        let mut serializer = serde_json::Serializer::with_formatter(bytes, LineFormatter);
        WithRows::of(self).serialize(&mut serializer).expect("plain values have a JSON form");
    }
}

impl ShownService {
    fn of(service: &ServiceReport, recent: &[(&'static str, Text, ShownRecent)]) -> ShownService {
        let figures = service.report.figures.iter().map(|(row, value)| ShownFigure {
            name: row.name.into(),
            help: row.help.into(),
            value: if row.unit.is_time() { seconds(Span::from_micros(*value)) } else { *value as f64 },
            is_seconds: row.unit.is_time(),
            is_bytes: row.unit == Unit::Bytes,
            is_counter: row.unit.is_counter(),
        });
        let tables = service.report.tables.iter().map(|table| {
            let recent = recent.iter().find(|(of, name, _)| *of == service.name && *name == table.name);
            Table { recent: recent.map(|(_, _, recent)| recent.clone()), ..table.clone() }
        });
        ShownService {
            name: service.name.into(),
            title: service.title.into(),
            option: service.option.into(),
            is_enabled: service.is_enabled,
            traffic: service.traffic,
            figures: figures.collect(),
            tables: tables.collect(),
            matrix: service.report.matrix.clone(),
        }
    }
}

impl ShownHistory {
    fn of(moment: &Moment<'_>, remembered: &Remembered<'_>) -> ShownHistory {
        let series = moment.series().map(|(service, (info, now))| ShownCurve {
            service: service.into(),
            name: info.name.into(),
            title: info.title.into(),
            unit: info.unit.into(),
            is_rate: info.is_rate,
            emphasis: info.emphasis,
            now: *now,
            values: (remembered.values)(service, info),
        });
        let Remembered { interval, most, .. } = *remembered;
        ShownHistory { interval: seconds(interval), most, series: series.collect() }
    }
}

impl Values {
    /// Returns the values as floating-point numbers.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Values::Levels(values) => values.iter().map(|value| *value as f64).collect(),
            Values::Rates(values) => values.clone(),
        }
    }
}

/// Snapshot with the rows of its tables.
#[derive(Serialize)]
struct WithRows<'a> {
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    #[serde(flatten)]
    rows: RowsOf<'a>,
}

/// Rows of each table by its name, under the name of each service with tables.
struct RowsOf<'a>(&'a [ShownService]);

impl<'a> WithRows<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        WithRows { snapshot, rows: RowsOf(&snapshot.services) }
    }
}

impl Serialize for RowsOf<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for service in self.0.iter().filter(|service| !service.tables.is_empty()) {
            map.serialize_entry(&service.name, &RowsByTable(&service.tables))?;
        }
        map.end()
    }
}

struct RowsByTable<'a>(&'a [Table]);

impl Serialize for RowsByTable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|table| (&table.name, table.rows_by_column())))
    }
}

/// JSON formatter that puts each item of a list on its own line, so that lines are short.
struct LineFormatter;

impl Formatter for LineFormatter {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"\n" } else { b",\n" })
    }
}
