//! `/metrics`: everything that is counted, in the Prometheus text format 0.0.4. The names of a service's statistics are made
//! from its table.

use super::Moment;
use super::text::label;
use crate::histogram::{Histogram, NUMBER_BOUNDS, TICK_BOUNDS, TIME_BOUNDS};
use crate::loop_stats::Budget;
use crate::report::{ServiceReport, Type};
use crate::service::Traffic;
use crate::stats::{Row, Unit};
use crate::text::visible;
use crate::time::{Span, Time};
use std::collections::HashSet;
use std::fmt::{Display, Write};

/// How much of a type's name is shown, in bytes.
const NAME_BYTES: usize = 64;
/// How many types are shown: more than the pools tell apart.
const TYPES: usize = 300;
/// How many types have histograms, 38 lines each: those that acquired most. So a page cannot grow beyond what a connection
/// may have unsent.
const TYPES_WITH_HISTOGRAMS: usize = 64;

/// Everything as text.
pub fn render(moment: &Moment<'_>) -> String {
    let mut page = Exposition::default();
    page.family("poolcounter_build_info", GAUGE, "What is running.");
    page.value("poolcounter_build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1);
    page.single(
        "poolcounter_uptime_seconds",
        GAUGE,
        "How long the server has been up.",
        seconds(moment.now.since(Time::START)),
    );
    for service in &moment.overview.services {
        // The uptime is everybody's.
        for (row, value) in service.report.figures.iter().filter(|(row, _)| row.unit != Unit::Uptime) {
            page.figure(service.name, row, *value);
        }
    }
    page.traffic(&moment.overview.services);
    let pools = moment.overview.pools().cloned().unwrap_or_default();
    page.types(&pools.types);
    let oldest = pools.holders.first().map_or(Span::ZERO, |holder| holder.age);
    page.single(
        "poolcounter_pools_oldest_holder_seconds",
        GAUGE,
        "How long the oldest lock has been held.",
        seconds(oldest),
    );
    page.loop_stats(moment);
    page.0
}

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";
const HISTOGRAM: &str = "histogram";

/// A page in the making.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    /// Begins the metrics of one name.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn value(&mut self, name: &str, labels: &str, value: impl Display) {
        match labels {
            "" => self.line(format_args!("{name} {value}")),
            labels => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    /// A metric without labels.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.value(name, "", value);
    }

    /// A line of a service's table.
    fn figure(&mut self, service: &str, row: &Row, value: u64) {
        let kind = if matches!(row.unit, Unit::Count | Unit::Duration) { COUNTER } else { GAUGE };
        let name = name_of(service, row);
        match row.unit {
            Unit::Count | Unit::Level | Unit::Bytes => self.single(&name, kind, row.help, value),
            Unit::Uptime | Unit::Duration | Unit::Latest => {
                self.single(&name, kind, row.help, seconds(Span::from_micros(value)));
            }
        }
    }

    fn traffic(&mut self, services: &[ServiceReport]) {
        let mut by_service = |name: &str, kind, help, value: fn(&Traffic) -> u64| {
            self.family(name, kind, help);
            for service in services {
                self.value(name, &format!("service=\"{}\"", service.name), value(&service.traffic));
            }
        };
        by_service("poolcounter_connections", GAUGE, "Connections that are open, by service.", |traffic| traffic.open);
        by_service(
            "poolcounter_connections_opened_total",
            COUNTER,
            "Connections that were accepted, by service.",
            |traffic| traffic.opened,
        );
        by_service(
            "poolcounter_connect_errors_total",
            COUNTER,
            "Connections that could not be accepted or served, by service.",
            |traffic| traffic.connect_errors,
        );
        by_service(
            "poolcounter_failed_sends_total",
            COUNTER,
            "Replies that could not be delivered, by service.",
            |traffic| traffic.failed_sends,
        );
        by_service("poolcounter_received_bytes_total", COUNTER, "Bytes read, by service.", |traffic| {
            traffic.received_bytes
        });
        by_service("poolcounter_sent_bytes_total", COUNTER, "Bytes written, by service.", |traffic| traffic.sent_bytes);
    }

    fn types(&mut self, types: &[Type]) {
        let mut seen = HashSet::new();
        let labelled = types.iter().map(|kind| (format!("type=\"{}\"", label(&visible(&kind.name, NAME_BYTES))), kind));
        // Names that agree in all that is shown would make one metric twice, and the page unreadable.
        let types: Vec<(String, &Type)> =
            labelled.filter(|(labels, _)| seen.insert(labels.clone())).take(TYPES).collect();
        let mut by_type = |name: &str, kind, help, value: fn(&Type) -> u64| {
            self.family(name, kind, help);
            types.iter().for_each(|(labels, of)| self.value(name, labels, value(of)));
        };
        by_type("poolcounter_pools_type_working", GAUGE, "Locks held, by type of work.", |of| of.working);
        by_type("poolcounter_pools_type_waiting", GAUGE, "Requests that wait, by type of work.", |of| of.waiting);
        by_type("poolcounter_pools_type_acquired_total", COUNTER, "Locks granted, by type of work.", |of| of.acquired);
        by_type("poolcounter_pools_type_done_total", COUNTER, "Waits that ended in DONE, by type of work.", |of| {
            of.done
        });
        by_type("poolcounter_pools_type_full_total", COUNTER, "QUEUE_FULL replies, by type of work.", |of| of.full);
        by_type("poolcounter_pools_type_timeouts_total", COUNTER, "TIMEOUT replies, by type of work.", |of| {
            of.timeouts
        });
        let mut histograms = |name: &str, help, histogram: fn(&Type) -> &Histogram| {
            self.family(name, HISTOGRAM, help);
            for (labels, of) in types.iter().take(TYPES_WITH_HISTOGRAMS) {
                let histogram = histogram(of);
                self.histogram(name, labels, histogram, TIME_BOUNDS, 1e6);
            }
        };
        histograms(
            "poolcounter_pools_wait_seconds",
            "How long requests waited that waited at all, by type of work.",
            |of| &of.waits,
        );
        histograms("poolcounter_pools_hold_seconds", "How long locks were held, by type of work.", |of| &of.holds);
    }

    fn loop_stats(&mut self, moment: &Moment<'_>) {
        let loop_stats = moment.loop_stats;
        let mut histogram = |name: &str, help, histogram: &Histogram, bounds: &[u64], scale: f64| {
            self.family(name, HISTOGRAM, help);
            self.histogram(name, "", histogram, bounds, scale);
        };
        histogram(
            "poolcounter_tick_seconds",
            "How long the turns of the loop took, without sleep.",
            &loop_stats.durations,
            TICK_BOUNDS,
            1e6,
        );
        histogram(
            "poolcounter_tick_clients",
            "How many connections were served in a turn of the loop.",
            &loop_stats.turns,
            NUMBER_BOUNDS,
            1.0,
        );
        self.family("poolcounter_budget_spent_total", COUNTER, "How often a bound on the work of a turn was reached.");
        for budget in Budget::ALL {
            self.value(
                "poolcounter_budget_spent_total",
                &format!("budget=\"{}\"", budget.name()),
                loop_stats.spent(budget),
            );
        }
        self.single(
            "poolcounter_last_reload_success",
            GAUGE,
            "Whether the last reload has worked; 1 if there was none.",
            u8::from(loop_stats.reload.is_none_or(|reload| reload.has_worked)),
        );
        self.single(
            "poolcounter_last_reload_timestamp_seconds",
            GAUGE,
            "When the last reload was, since 1970; 0 if there was none.",
            loop_stats.reload.map_or(0.0, |reload| seconds(moment.time_of_day(reload.at))),
        );
        self.single("poolcounter_timers", GAUGE, "Timers that are armed.", moment.timers);
        self.single(
            "process_resident_memory_bytes",
            GAUGE,
            "Resident memory of the process.",
            moment.usage.resident_bytes,
        );
        self.single(
            "process_start_time_seconds",
            GAUGE,
            "When the process started, since 1970.",
            seconds(moment.epoch),
        );
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Histogram, bounds: &[u64], scale: f64) {
        let (bucket, comma) = (format!("{name}_bucket"), if labels.is_empty() { "" } else { "," });
        for (bound, count) in histogram.cumulative(bounds) {
            self.value(&bucket, &format!("{labels}{comma}le=\"{}\"", bound as f64 / scale), count);
        }
        self.value(&bucket, &format!("{labels}{comma}le=\"+Inf\""), histogram.count());
        self.value(&format!("{name}_sum"), labels, histogram.sum() as f64 / scale);
        self.value(&format!("{name}_count"), labels, histogram.count());
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("a string takes every character");
    }
}

/// A statistic's name among the metrics: its words without those that its unit says better.
fn name_of(service: &str, row: &Row) -> String {
    let (dropped, suffix): (&[&str], _) = match row.unit {
        Unit::Uptime => (&[], "_seconds"),
        Unit::Duration => (&["total", "time"], "_seconds_total"),
        Unit::Latest => (&["time"], "_seconds"),
        Unit::Count => (&["total", "count"], "_total"),
        Unit::Level => (&[], ""),
        Unit::Bytes => (&[], "_bytes"),
    };
    let words = row.name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !dropped.contains(word));
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    format!("poolcounter_{service}_{}{suffix}", words.join("_"))
}

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}
