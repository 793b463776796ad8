//! Everything that the services report, as plain values with visible names that have a JSON form: `/status.json` and the answer to
//! `STATS REPORT` are this, and the status page is made from it.
//!
//! Durations are seconds. What it may take is bounded, because it must not grow beyond what a connection may have unsent.

use super::matrix::ShownMatrix;
use super::room::{Room, fit};
use super::shown::{ShownRecent, Text, seconds};
pub use super::shown_health::{ShownCondition, ShownHealth, ShownPast};
use super::tables::{ShownTable, word_of};
use super::{Overview, Series, SeriesInfo, ServiceReport};
use crate::health::{ConditionOver, HealthLine};
use crate::loop_stats::{Budget, LoopStats};
use crate::peer::ProcessUsage;
use poolcounter_core::stats::Unit;
use poolcounter_core::time::{Span, Time};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// What a matrix may take in the status page. Where there are tables beside it, it is much smaller.
const MATRIX_BYTES: usize = 700_000;

/// Everything that there is to tell at one moment, but for what was remembered.
pub struct Moment<'a> {
    /// The time of the moment.
    pub now: Time,
    /// The time of day at the start, since 1970.
    pub epoch: Span,
    /// Reports of all services.
    pub overview: Overview,
    /// The loop's own figures.
    pub loop_stats: &'a LoopStats,
    /// Health of the services that were looked at.
    pub health: Vec<HealthLine>,
    /// Conditions that are over, the last one first.
    pub past: Vec<ConditionOver>,
    /// Usage of the process.
    pub usage: ProcessUsage,
    /// Timers that are armed.
    pub timers: usize,
}

/// What is remembered of the series.
pub struct Remembered<'a> {
    /// The time from one value to the next.
    pub interval: Span,
    /// How many values there are at most.
    pub most: usize,
    /// Returns what is remembered of a series of that service.
    pub values: &'a dyn Fn(&'static str, &'static SeriesInfo) -> Values,
    /// Of what the counts and times of tables are that do not tell of all since the start, with the names of service and table.
    pub recent: &'a [(&'static str, &'static str, ShownRecent)],
}

/// Everything that the page shows. Its JSON has the rows of the tables behind it: for each service with tables its name, with the
/// rows of each table by name.
#[derive(Clone, Serialize, Deserialize)]
pub struct Snapshot {
    /// The version of the daemon.
    pub version: Text,
    /// Seconds since the start.
    pub uptime: f64,
    /// When the process started, in seconds since 1970.
    pub started_at: f64,
    /// What this is about, where it is not about everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Word of the tab that it is for; absent where it is about everything, or about what is found in several services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tab: Option<Text>,
    /// Commands for the thing that it is about, without the name of the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// The range of which it tells: `1m`, `5m` or `1h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Text>,
    /// Whether those who look at it may do what columns name as their actions.
    pub is_admin: bool,
    /// Null if there was none.
    pub last_reload: Option<ShownReload>,
    /// Health of each service; releases before 0.10 do not say.
    #[serde(default)]
    pub health: Vec<ShownHealth>,
    /// Conditions that are over, the last one first.
    #[serde(default)]
    pub past: Vec<ShownPast>,
    /// The services, in the order of the list.
    pub services: Vec<ShownService>,
    /// Curves of the last minutes.
    pub history: ShownHistory,
    /// The loop's own figures.
    #[serde(rename = "loop")]
    pub loop_: ShownLoop,
    /// Usage of the process.
    pub process: ShownProcess,
}

/// The last reload of the settings.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownReload {
    /// In seconds since 1970.
    pub at: f64,
    /// Whether all of the settings count; false as long as it is under way.
    pub has_worked: bool,
}

fn yes() -> bool {
    true
}

/// A service of whatever kind.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownService {
    /// Its name.
    pub name: Text,
    /// Its title; empty if it has no tab.
    #[serde(default)]
    pub title: Text,
    /// Option that turns it on, without its dashes.
    #[serde(default)]
    pub option: Text,
    /// Whether clients can connect to it; releases before 0.10 do not say.
    #[serde(default = "yes")]
    pub is_enabled: bool,
    /// Connections at present.
    pub connections: u64,
    /// Connections since the start.
    pub connections_opened: u64,
    /// Connections that could not be accepted or served.
    pub connect_errors: u64,
    /// Replies that could not be delivered.
    pub failed_sends: u64,
    /// Bytes read.
    pub received_bytes: u64,
    /// Bytes written.
    pub sent_bytes: u64,
    /// Its statistics.
    pub figures: Vec<ShownFigure>,
    /// Its tables.
    pub tables: Vec<ShownTable>,
    /// Two kinds of names against each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matrix: Option<ShownMatrix>,
}

/// A line of a service's table of statistics.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownFigure {
    /// Its name in the protocol.
    pub name: Text,
    /// One sentence about it.
    pub help: Text,
    /// In seconds, if [`ShownFigure::is_seconds`] says so.
    pub value: f64,
    /// Whether the value is a time.
    pub is_seconds: bool,
    /// Whether the value is a number of bytes.
    pub is_bytes: bool,
    /// Whether it only grows.
    pub is_counter: bool,
}

/// The last ten minutes at equal distances, oldest first.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownHistory {
    /// Seconds from one value to the next.
    pub interval: f64,
    /// Largest number of values.
    pub most: usize,
    /// The curves.
    pub series: Vec<ShownCurve>,
}

/// One curve.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownCurve {
    /// Name of its service.
    pub service: Text,
    /// Its name.
    pub name: Text,
    /// Its title.
    pub title: Text,
    /// Unit of its values.
    pub unit: Text,
    /// Whether the values say how much it grew in each second.
    pub is_rate: bool,
    /// How a page emphasises it.
    pub emphasis: Text,
    /// What it is at present, since the start if it only grows.
    pub now: u64,
    /// Its values, oldest first.
    pub values: Values,
}

/// Values of a curve.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// Levels, or totals since the start.
    Levels(Vec<u64>),
    /// Growth in each second.
    Rates(Vec<f64>),
}

/// What the loop knows of itself.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownLoop {
    /// Ticks since the start.
    pub ticks: u64,
    /// Seconds of work since the start.
    pub busy: f64,
    /// Turns of connections since the start.
    pub turns: u64,
    /// Timers that are armed.
    pub timers: usize,
    /// Budgets of a tick, with how often each was spent.
    pub budgets_spent: Vec<Spent>,
}

/// A budget of the tick.
#[derive(Clone, Serialize, Deserialize)]
pub struct Spent {
    /// Its name.
    pub budget: Text,
    /// How often it was spent.
    pub times: u64,
}

/// What the system tells of the process.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownProcess {
    /// Seconds of processor time.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub open_fds: u64,
    /// Limit of file descriptors.
    pub max_fds: u64,
}

impl Moment<'_> {
    /// Returns the time of day, since 1970, as far as it was known at the start.
    pub fn time_of_day(&self, at: Time) -> Span {
        self.epoch + at.since(Time::START)
    }

    /// Returns the series of every service, with its name.
    fn series(&self) -> impl Iterator<Item = (&'static str, &Series)> {
        let services = self.overview.services.iter();
        services.flat_map(|service| service.report.series.iter().map(|series| (service.name, series)))
    }
}

impl Remembered<'static> {
    /// Nothing at all: only the present is known.
    pub const NOTHING: Remembered<'static> =
        Remembered { interval: Span::ZERO, most: 0, values: &|_, _| Values::Levels(Vec::new()), recent: &[] };
}

impl Snapshot {
    /// Returns how things stand at this moment, as far as there is room, and how they stood.
    pub fn of(moment: &Moment<'_>, room: Room, remembered: &Remembered<'_>) -> Snapshot {
        let (loop_stats, usage) = (moment.loop_stats, &moment.usage);
        let services = moment.overview.services.iter();
        let services = services.map(|service| ShownService::of(service, room, remembered.recent));
        let snapshot = Snapshot {
            version: env!("CARGO_PKG_VERSION").into(),
            uptime: seconds(moment.now.since(Time::START)),
            started_at: seconds(moment.epoch),
            title: None,
            tab: None,
            commands: Vec::new(),
            range: None,
            is_admin: false,
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
            process: ShownProcess {
                cpu: seconds(usage.cpu),
                resident_bytes: usage.resident_bytes,
                open_fds: usage.open_fds,
                max_fds: usage.max_fds,
            },
        };
        snapshot.cut(room)
    }

    /// Returns the same with as many rows of each table as there is room for.
    pub fn cut(mut self, room: Room) -> Snapshot {
        let tables = || self.services.iter().flat_map(|service| &service.tables);
        let fitting = fit(&tables().map(ShownTable::costs).collect::<Vec<_>>(), room.bytes);
        let tables = self.services.iter_mut().flat_map(|service| &mut service.tables);
        for (table, rows) in tables.zip(fitting) {
            table.cut(rows.min(room.rows));
            if !room.has_all_times {
                table.forget_all_times();
            }
        }
        self
    }

    /// Returns the JSON of it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(&WithRows::of(self)).expect("plain values have a JSON form")
    }

    /// Appends the JSON of it in lines: each item of a list begins one, and none is empty.
    pub fn write_lines(&self, bytes: &mut Vec<u8>) {
        let mut serializer = serde_json::Serializer::with_formatter(bytes, LineFormatter);
        WithRows::of(self).serialize(&mut serializer).expect("plain values have a JSON form");
    }
}

impl ShownService {
    fn of(service: &ServiceReport, room: Room, recent: &[(&'static str, &'static str, ShownRecent)]) -> ShownService {
        let traffic = &service.traffic;
        let figures = service.report.figures.iter().map(|(row, value)| ShownFigure {
            name: row.name.into(),
            help: row.help.into(),
            value: if row.unit.is_time() { seconds(Span::from_micros(*value)) } else { *value as f64 },
            is_seconds: row.unit.is_time(),
            is_bytes: row.unit == Unit::Bytes,
            is_counter: row.unit.is_counter(),
        });
        let tables = service.report.tables.iter().map(|table| {
            let recent = recent.iter().find(|(of, name, _)| *of == service.name && *name == table.info.name);
            ShownTable::of(table, room, recent.map(|(_, _, recent)| recent.clone()))
        });
        ShownService {
            name: service.name.into(),
            title: service.title.into(),
            option: service.option.into(),
            is_enabled: service.is_enabled,
            connections: traffic.open,
            connections_opened: traffic.opened.get(),
            connect_errors: traffic.connect_errors.get(),
            failed_sends: traffic.failed_sends.get(),
            received_bytes: traffic.received_bytes.get(),
            sent_bytes: traffic.sent_bytes.get(),
            figures: figures.collect(),
            tables: tables.collect(),
            matrix: service.report.matrix.as_ref().map(|matrix| ShownMatrix::of(matrix, MATRIX_BYTES)),
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
            emphasis: word_of(info.emphasis).into(),
            now: *now,
            values: (remembered.values)(service, info),
        });
        let Remembered { interval, most, .. } = *remembered;
        ShownHistory { interval: seconds(interval), most, series: series.collect() }
    }
}

/// A snapshot with the rows of its tables.
#[derive(Serialize)]
struct WithRows<'a> {
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    #[serde(flatten)]
    rows: RowsOf<'a>,
}

/// For each service with tables its name, with the rows of each table by name.
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

struct RowsByTable<'a>(&'a [ShownTable]);

impl Serialize for RowsByTable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|table| (&table.name, table.rows_by_column())))
    }
}

/// JSON whose lists have a line for each item, so that its lines are short.
struct LineFormatter;

impl Formatter for LineFormatter {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(if first { b"\n" } else { b",\n" })
    }
}
