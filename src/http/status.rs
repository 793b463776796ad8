//! What the status page shows, as plain values with visible names: `/status.json` is this, and the page is made from it.
//!
//! Durations are seconds. Every list is bounded, and so is every name, so that a page cannot grow beyond what a connection may
//! have unsent.

use super::Moment;
use super::samples::{INTERVAL, KEPT};
use crate::histogram::Histogram;
use crate::loop_stats::Budget;
use crate::report::{self, Sample};
use crate::stats::Unit;
use crate::text::visible;
use crate::time::{Span, Time};
use serde::Serialize;

/// How much of a name is shown, in bytes.
const NAME_BYTES: usize = 200;
/// How many keys and holders are shown.
const ROWS: usize = 20;
/// How many types are shown: more than the pools tell apart.
const TYPES: usize = 300;

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
    pub pools: Pools,
    pub history: History,
    #[serde(rename = "loop")]
    pub loop_: Loop,
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
}

/// A line of a service's table.
#[derive(Serialize)]
pub struct Figure {
    pub name: &'static str,
    pub help: &'static str,
    /// In seconds, if [`Figure::is_seconds`] says so.
    pub value: f64,
    pub is_seconds: bool,
    /// Whether it only grows.
    pub is_counter: bool,
}

/// What only pools have.
#[derive(Default, Serialize)]
pub struct Pools {
    pub types: Vec<Type>,
    pub busiest: Vec<Key>,
    pub hottest: Vec<HotKey>,
    /// How many events more than told here a key may have had; one that is missing there counts as none.
    pub hottest_error: u64,
    pub holders: Vec<Holder>,
}

#[derive(Serialize)]
pub struct Type {
    pub name: String,
    pub working: u64,
    pub waiting: u64,
    pub acquired: u64,
    pub done: u64,
    pub full: u64,
    pub timeouts: u64,
    pub wait: Times,
    pub hold: Times,
}

/// How long something took: the half of all times is no longer than `p50`. Null without times.
#[derive(Serialize)]
pub struct Times {
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

#[derive(Serialize)]
pub struct Key {
    pub key: String,
    pub working: u32,
    pub waiting: u32,
    pub oldest: f64,
}

#[derive(Serialize)]
pub struct HotKey {
    pub key: String,
    pub refusals: u64,
    pub waits: u64,
}

#[derive(Serialize)]
pub struct Holder {
    pub key: String,
    pub peer: String,
    pub age: f64,
}

/// The last ten minutes at equal distances, oldest first.
#[derive(Serialize)]
pub struct History {
    pub interval: f64,
    pub most: usize,
    pub acquired_per_second: Vec<f64>,
    pub refused_per_second: Vec<f64>,
    pub working: Vec<u64>,
    pub waiting: Vec<u64>,
}

/// What the loop knows of itself.
#[derive(Serialize)]
pub struct Loop {
    pub ticks: u64,
    pub busy: f64,
    pub turns: u64,
    pub timers: usize,
    pub memory_bytes: u64,
    pub budgets_spent: Vec<Spent>,
}

#[derive(Serialize)]
pub struct Spent {
    pub budget: &'static str,
    pub times: u64,
}

impl Status {
    /// How things stand at this moment.
    pub fn of(moment: &Moment<'_>) -> Status {
        let loop_stats = moment.loop_stats;
        Status {
            version: env!("CARGO_PKG_VERSION"),
            uptime: seconds(moment.now.since(Time::START)),
            started_at: seconds(moment.epoch),
            last_reload: loop_stats
                .reload
                .map(|reload| Reload { at: seconds(moment.time_of_day(reload.at)), has_worked: reload.has_worked }),
            services: moment.overview.services.iter().map(Service::of).collect(),
            pools: moment.overview.pools().map(Pools::of).unwrap_or_default(),
            history: History::of(moment),
            loop_: Loop {
                ticks: loop_stats.durations.count(),
                busy: seconds(loop_stats.busy()),
                turns: loop_stats.turns.sum(),
                timers: moment.timers,
                memory_bytes: moment.usage.resident_bytes,
                budgets_spent: Budget::ALL.map(|it| Spent { budget: it.name(), times: loop_stats.spent(it) }).into(),
            },
        }
    }

    /// The JSON of it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain values have a JSON form")
    }
}

impl Service {
    fn of(service: &report::ServiceReport) -> Service {
        let traffic = &service.traffic;
        let figures = service.report.figures.iter().map(|(row, value)| {
            let is_seconds = matches!(row.unit, Unit::Uptime | Unit::Duration | Unit::Latest);
            Figure {
                name: row.name,
                help: row.help,
                value: if is_seconds { seconds(Span::from_micros(*value)) } else { *value as f64 },
                is_seconds,
                is_counter: matches!(row.unit, Unit::Duration | Unit::Count),
            }
        });
        Service {
            name: service.name,
            connections: traffic.open,
            connections_opened: traffic.opened,
            connect_errors: traffic.connect_errors,
            failed_sends: traffic.failed_sends,
            received_bytes: traffic.received_bytes,
            sent_bytes: traffic.sent_bytes,
            figures: figures.collect(),
        }
    }
}

impl Pools {
    fn of(pools: &report::Pools) -> Pools {
        let shown = |name: &[u8]| visible(name, NAME_BYTES);
        let holder = |it: &report::Holder| {
            let report::Holder { key, peer, age } = it;
            Holder { key: shown(key), peer: shown(peer.as_bytes()), age: seconds(*age) }
        };
        let key = |it: &report::Key| {
            let report::Key { key, working, waiting, oldest } = it;
            Key { key: shown(key), working: *working, waiting: *waiting, oldest: seconds(*oldest) }
        };
        let hot_key = |it: &report::HotKey| HotKey { key: shown(&it.key), refusals: it.refusals, waits: it.waits };
        Pools {
            types: pools.types.iter().take(TYPES).map(Type::of).collect(),
            busiest: pools.busiest.iter().take(ROWS).map(key).collect(),
            hottest: pools.hottest.iter().take(ROWS).map(hot_key).collect(),
            hottest_error: pools.hottest_error,
            holders: pools.holders.iter().take(ROWS).map(holder).collect(),
        }
    }
}

impl Type {
    fn of(it: &report::Type) -> Type {
        Type {
            name: visible(&it.name, NAME_BYTES),
            working: it.working,
            waiting: it.waiting,
            acquired: it.acquired,
            done: it.done,
            full: it.full,
            timeouts: it.timeouts,
            wait: Times::of(&it.waits),
            hold: Times::of(&it.holds),
        }
    }
}

impl Times {
    fn of(histogram: &Histogram) -> Times {
        let quantile = |share| histogram.quantile(share).map(|it| seconds(Span::from_micros(it.value)));
        Times { p50: quantile(0.5), p99: quantile(0.99) }
    }
}

impl History {
    fn of(moment: &Moment<'_>) -> History {
        let samples = moment.samples;
        // The first sample only says what the second is compared with.
        let levels = |level: fn(&Sample) -> u64| samples.iter().skip(1).map(level).collect();
        History {
            interval: seconds(INTERVAL),
            most: KEPT - 1,
            acquired_per_second: samples.rates(|sample| sample.acquired),
            refused_per_second: samples.rates(|sample| sample.refused),
            working: levels(|sample| sample.working),
            waiting: levels(|sample| sample.waiting),
        }
    }
}

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}
