//! What the status page shows, as plain values with visible names: `/status.json` is this, and the page is made from it.
//!
//! Durations are seconds. What a page may take is bounded, because it must not grow beyond what a connection may have unsent.

use super::Moment;
use super::samples::{INTERVAL, KEPT};
use super::tables::{Heading, Tables, word_of};
use crate::loop_stats::Budget;
use crate::report;
use crate::stats::Unit;
use crate::time::{Span, Time};
use serde::Serialize;

/// Everything that the page shows.
#[derive(Serialize)]
pub struct Status {
    pub version: &'static str,
    pub uptime: f64,
    /// When the process started, in seconds since 1970.
    pub started_at: f64,
    /// Null if there was none.
    pub last_reload: Option<Reload>,
    pub services: Vec<Service>,
    /// For each service with tables its name, with the rows of each table by name.
    #[serde(flatten)]
    pub tables: Tables,
    pub history: History,
    #[serde(rename = "loop")]
    pub loop_: Loop,
    pub process: Process,
}

#[derive(Serialize)]
pub struct Reload {
    /// In seconds since 1970.
    pub at: f64,
    /// Whether all of the settings count; false as long as it is under way.
    pub has_worked: bool,
}

/// A service of whatever kind.
#[derive(Serialize)]
pub struct Service {
    pub name: &'static str,
    pub connections: u64,
    pub connections_opened: u64,
    pub connect_errors: u64,
    pub failed_sends: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub figures: Vec<Figure>,
    /// What there is to know of the tables besides their rows.
    pub tables: Vec<Heading>,
}

/// A line of a service's table of statistics.
#[derive(Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub help: &'static str,
    /// In seconds, if [`Figure::is_seconds`] says so.
    pub value: f64,
    pub is_seconds: bool,
    pub is_bytes: bool,
    /// Whether it only grows.
    pub is_counter: bool,
}

/// The last ten minutes at equal distances, oldest first.
#[derive(Serialize)]
pub struct History {
    pub interval: f64,
    pub most: usize,
    pub series: Vec<Curve>,
}

#[derive(Serialize)]
pub struct Curve {
    pub service: &'static str,
    pub name: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    /// Whether the values say how much it grew in each second.
    pub is_rate: bool,
    pub emphasis: &'static str,
    /// What it is at present, since the start if it only grows.
    pub now: u64,
    pub values: Values,
}

#[derive(Serialize)]
#[serde(untagged)]
pub enum Values {
    Levels(Vec<u64>),
    Rates(Vec<f64>),
}

/// What the loop knows of itself.
#[derive(Serialize)]
pub struct Loop {
    pub ticks: u64,
    pub busy: f64,
    pub turns: u64,
    pub timers: usize,
    pub budgets_spent: Vec<Spent>,
}

#[derive(Serialize)]
pub struct Spent {
    pub budget: &'static str,
    pub times: u64,
}

/// What the system tells of the process.
#[derive(Serialize)]
pub struct Process {
    pub cpu: f64,
    pub resident_bytes: u64,
    pub open_fds: u64,
    pub max_fds: u64,
}

impl Status {
    /// Returns how things stand at this moment.
    pub fn of(moment: &Moment<'_>) -> Status {
        let (loop_stats, usage) = (moment.loop_stats, &moment.usage);
        let tables = Tables::of(moment);
        Status {
            version: env!("CARGO_PKG_VERSION"),
            uptime: seconds(moment.now.since(Time::START)),
            started_at: seconds(moment.epoch),
            last_reload: loop_stats
                .reload
                .map(|reload| Reload { at: seconds(moment.time_of_day(reload.at)), has_worked: reload.has_worked }),
            services: moment.overview.services.iter().map(|service| Service::of(service, &tables)).collect(),
            tables,
            history: History::of(moment),
            loop_: Loop {
                ticks: loop_stats.durations.count(),
                busy: seconds(loop_stats.busy()),
                turns: loop_stats.turns.sum(),
                timers: moment.timers,
                budgets_spent: Budget::ALL.map(|it| Spent { budget: it.name(), times: loop_stats.spent(it) }).into(),
            },
            process: Process {
                cpu: seconds(usage.cpu),
                resident_bytes: usage.resident_bytes,
                open_fds: usage.open_fds,
                max_fds: usage.max_fds,
            },
        }
    }

    /// Returns the JSON of it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain values have a JSON form")
    }
}

impl Service {
    fn of(service: &report::ServiceReport, tables: &Tables) -> Service {
        let traffic = &service.traffic;
        let figures = service.report.figures.iter().map(|(row, value)| Figure {
            name: row.name,
            help: row.help,
            value: if row.unit.is_time() { seconds(Span::from_micros(*value)) } else { *value as f64 },
            is_seconds: row.unit.is_time(),
            is_bytes: row.unit == Unit::Bytes,
            is_counter: row.unit.is_counter(),
        });
        let shown = tables.of_service(service.name);
        Service {
            name: service.name,
            connections: traffic.open,
            connections_opened: traffic.opened,
            connect_errors: traffic.connect_errors,
            failed_sends: traffic.failed_sends,
            received_bytes: traffic.received_bytes,
            sent_bytes: traffic.sent_bytes,
            figures: figures.collect(),
            tables: service.report.tables.iter().zip(shown).map(|(table, shown)| Heading::of(table, shown)).collect(),
        }
    }
}

impl History {
    fn of(moment: &Moment<'_>) -> History {
        let services = moment.overview.services.iter();
        let all = services.flat_map(|service| service.report.series.iter().map(|series| (service.name, series)));
        let series = all.map(|(service, (info, now))| Curve {
            service,
            name: info.name,
            title: info.title,
            unit: info.unit,
            is_rate: info.is_rate,
            emphasis: word_of(info.emphasis),
            now: *now,
            values: match info.is_rate {
                true => Values::Rates(moment.samples.rates(service, info.name).collect()),
                // The first sample only says what the second is compared with.
                false => Values::Levels(moment.samples.values(service, info.name).skip(1).collect()),
            },
        });
        History { interval: seconds(INTERVAL), most: KEPT - 1, series: series.collect() }
    }
}

/// Returns a span in seconds.
pub fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}
