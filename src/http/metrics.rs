//! `/metrics`: everything that is counted, in the Prometheus text format 0.0.4. The names of a service's statistics are made
//! from its tables.

use super::exposition::{COUNTER, Exposition, GAUGE, HISTOGRAM};
use super::text::label;
use poolcounter_core::histogram::{Histogram, NUMBER_BOUNDS, TICK_BOUNDS, TIME_BOUNDS};
use poolcounter_core::stats::{Metric, Row, Unit};
use poolcounter_core::text::visible;
use poolcounter_core::time::{Span, Time};
use poolcounter_service::contract::Traffic;
use poolcounter_service::health::{Condition, HealthLine, MOST_CONDITIONS};
use poolcounter_service::loop_stats::Budget;
use poolcounter_service::report::room::{MOST_ROWS, fit};
use poolcounter_service::report::snapshot::Moment;
use poolcounter_service::report::{Cell, Column, ColumnMetric, ColumnUnit, Report, ServiceReport, Table};
use std::collections::HashSet;

/// How much of a name is shown, in bytes.
const NAME_BYTES: usize = 64;
/// How many rows of a table have histograms, of 19 lines each: the first ones.
const ROWS_WITH_HISTOGRAMS: usize = 64;
/// How many bytes the values of all tables may take in the page, so that it cannot grow beyond what a connection may have unsent;
/// the rest of it has some 60 KiB.
const TABLE_BYTES: usize = 850_000;
/// What a line of a table may take besides its label: the name of the metric, of the bucket, and the value.
const LINE_COST: usize = 90;

/// Returns everything as text.
pub fn render(moment: &Moment<'_>) -> String {
    let mut page = Exposition::default();
    page.family("poolcounter_build_info", GAUGE, "What is running.");
    page.value("poolcounter_build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1);
    let uptime = seconds(moment.now.since(Time::START));
    page.single("poolcounter_uptime_seconds", GAUGE, "How long the server has been up.", uptime);
    for service in &moment.overview.services {
        for (row, value) in &service.report.figures {
            write_figure(&mut page, service.name, row, *value);
        }
    }
    write_health(&mut page, &moment.health);
    write_traffic(&mut page, &moment.overview.services);
    write_tables(&mut page, &moment.overview.services);
    write_loop(&mut page, moment);
    write_process(&mut page, moment);
    page.into_text()
}

/// Writes the level of each service, and a line for each condition that is on.
fn write_health(page: &mut Exposition, health: &[HealthLine]) {
    let name = "poolcounter_health";
    page.family(name, GAUGE, "Health by service: 0 is ok, 1 is a warning, 2 is critical.");
    for line in health {
        page.value(name, &format!("service=\"{}\"", line.title.to_lowercase()), line.level as u8);
    }
    let name = "poolcounter_condition";
    page.family(name, GAUGE, "1 for each condition that is on, by service and subject.");
    let mut told = HashSet::new();
    for (line, on) in health.iter().flat_map(|line| line.conditions.iter().map(move |on| (line, on))) {
        let Condition { info, subject, .. } = &on.condition;
        let subject = if info.has_label { visible(subject, NAME_BYTES) } else { String::new() };
        let service = line.title.to_lowercase();
        let labels =
            [("service", &service[..]), ("condition", info.name), ("level", info.level.word()), ("subject", &subject)];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", label(value))).join(",");
        if told.len() < MOST_CONDITIONS && !told.contains(&labels) {
            page.value(name, &labels, 1);
            told.insert(labels);
        }
    }
}

/// A line of a service's table of statistics, unless it is told elsewhere.
fn write_figure(page: &mut Exposition, service: &str, row: &Row, value: u64) {
    let Some(name) = name_of(service, row) else { return };
    let kind = if row.unit.is_counter() { COUNTER } else { GAUGE };
    match row.unit.is_time() {
        true => page.single(&name, kind, row.help, seconds(Span::from_micros(value))),
        false => page.single(&name, kind, row.help, value),
    }
}

/// Returns a statistic's name among the metrics, if it is one.
fn name_of(service: &str, row: &Row) -> Option<String> {
    let (dropped, suffix): (&[&str], _) = match row.unit {
        Unit::Uptime => (&[], "_seconds"),
        Unit::Duration => (&["total", "time"], "_seconds_total"),
        Unit::Latest => (&["time"], "_seconds"),
        Unit::Count => (&["total", "count"], "_total"),
        Unit::Level => (&[], ""),
        Unit::Bytes => (&[], "_bytes"),
    };
    let name = match row.metric {
        Metric::Elsewhere => return None,
        Metric::Named(name) => name.into(),
        Metric::Derived => {
            let words = row.name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !dropped.contains(word));
            words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_")
        }
    };
    Some(format!("poolcounter_{service}_{name}{suffix}"))
}

/// Name, type and help of a metric, and its value.
type TrafficFamily = (&'static str, &'static str, &'static str, fn(&Traffic) -> u64);

/// What every service has.
const TRAFFIC: [TrafficFamily; 6] = [
    ("connections", GAUGE, "Connections that are open, by service.", |traffic| traffic.open),
    ("connections_opened_total", COUNTER, "Connections that were accepted, by service.", |traffic| {
        traffic.opened.get()
    }),
    ("connect_errors_total", COUNTER, "Connections that could not be accepted or served, by service.", |traffic| {
        traffic.connect_errors.get()
    }),
    ("failed_sends_total", COUNTER, "Replies that could not be delivered, by service.", |traffic| {
        traffic.failed_sends.get()
    }),
    ("received_bytes_total", COUNTER, "Bytes read, by service.", |traffic| traffic.received_bytes.get()),
    ("sent_bytes_total", COUNTER, "Bytes written, by service.", |traffic| traffic.sent_bytes.get()),
];

fn write_traffic(page: &mut Exposition, services: &[ServiceReport]) {
    for (name, kind, help, value) in TRAFFIC {
        let name = format!("poolcounter_{name}");
        page.family(&name, kind, help);
        for service in services {
            page.value(&name, &format!("service=\"{}\"", service.name), value(&service.traffic));
        }
    }
}

/// A table with the labels of its rows.
struct Labelled<'a> {
    service: &'static str,
    table: &'a Table,
    /// For each row that is shown its place in the table, and its label.
    rows: Vec<(usize, String)>,
}

fn write_tables(page: &mut Exposition, services: &[ServiceReport]) {
    let tables = services.iter().flat_map(|service| {
        let Report { tables, exported, .. } = &service.report;
        tables.iter().map(move |table| {
            let told = exported.iter().find(|other| std::ptr::eq(other.info, table.info));
            (service.name, told.unwrap_or(table))
        })
    });
    let mut tables: Vec<Labelled<'_>> = tables.map(|(service, table)| Labelled::of(service, table)).collect();
    let costs: Vec<Vec<usize>> = tables.iter().map(Labelled::costs).collect();
    let fitting = fit(&costs, TABLE_BYTES);
    tables.iter_mut().zip(fitting).for_each(|(labelled, rows)| labelled.rows.truncate(rows));
    tables.iter().for_each(|labelled| labelled.write(page));
}

impl<'a> Labelled<'a> {
    fn of(service: &'static str, table: &'a Table) -> Self {
        let label_of =
            |column: &Column| if let ColumnMetric::Label(label) = column.metric { Some(label) } else { None };
        let column = table.info.columns.iter().enumerate().find_map(|(at, column)| Some((at, label_of(column)?)));
        let mut rows = Vec::new();
        if let Some((at, name)) = column {
            let mut seen = HashSet::new();
            let labels = table.rows.iter().take(MOST_ROWS).map(|row| format!("{name}=\"{}\"", label_text(&row[at])));
            // Names that agree in all that is shown would make one metric twice, and the page unreadable.
            rows = labels.enumerate().filter(|(_, label)| seen.insert(label.clone())).collect();
        }
        Labelled { service, table, rows }
    }

    /// Returns how many bytes each row takes at most.
    fn costs(&self) -> Vec<usize> {
        let each = |column: &&Column| matches!(column.metric, ColumnMetric::Each(_));
        let (times, others): (Vec<&Column>, Vec<&Column>) =
            self.table.info.columns.iter().filter(each).partition(|column| column.unit == ColumnUnit::Times);
        let lines = |n| others.len() + if n < ROWS_WITH_HISTOGRAMS { times.len() * (TIME_BOUNDS.len() + 3) } else { 0 };
        self.rows.iter().enumerate().map(|(n, (_, label))| lines(n) * (label.len() + LINE_COST)).collect()
    }

    fn write(&self, page: &mut Exposition) {
        for (at, column) in self.table.info.columns.iter().enumerate() {
            let name = |name: &str| format!("poolcounter_{}_{name}{}", self.service, column.unit.suffix());
            match column.metric {
                ColumnMetric::None | ColumnMetric::Label(_) => {}
                ColumnMetric::Each(metric) => self.write_each(page, &name(metric), at, column),
                ColumnMetric::Largest { name: metric, help } => {
                    let largest = self.table.rows.iter().map(|row| value_of(&row[at])).fold(0.0, f64::max);
                    page.single(&name(metric), GAUGE, help, largest);
                }
            }
        }
    }

    fn write_each(&self, page: &mut Exposition, name: &str, at: usize, column: &Column) {
        let cells = self.rows.iter().map(|(row, label)| (label, &self.table.rows[*row][at]));
        if column.unit == ColumnUnit::Times {
            page.family(name, HISTOGRAM, column.help);
            for (label, cell) in cells.take(ROWS_WITH_HISTOGRAMS) {
                if let Cell::Times(histogram) = cell {
                    page.histogram(name, label, histogram, TIME_BOUNDS, MICROS);
                }
            }
        } else {
            page.family(name, if column.unit.is_counter() { COUNTER } else { GAUGE }, column.help);
            for (label, cell) in cells {
                match cell {
                    Cell::Number(number) => page.value(name, label, number),
                    Cell::Time(span) => page.value(name, label, seconds(*span)),
                    _ => {}
                }
            }
        }
    }
}

fn label_text(cell: &Cell) -> String {
    match cell {
        Cell::Name(bytes) => label(&visible(bytes, NAME_BYTES)).into_owned(),
        Cell::Text(text) => label(&visible(text.as_bytes(), NAME_BYTES)).into_owned(),
        _ => String::new(),
    }
}

fn value_of(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(number) => *number as f64,
        Cell::Time(span) => seconds(*span),
        _ => 0.0,
    }
}

fn write_loop(page: &mut Exposition, moment: &Moment<'_>) {
    let stats = moment.loop_stats;
    let histograms: [(_, _, &Histogram, _, _); 2] = [
        ("tick_seconds", "How long the turns of the loop took, without sleep.", &stats.durations, TICK_BOUNDS, MICROS),
        ("tick_clients", "How many connections were served in a turn of the loop.", &stats.turns, NUMBER_BOUNDS, 1.0),
    ];
    for (name, help, histogram, bounds, scale) in histograms {
        let name = format!("poolcounter_{name}");
        page.family(&name, HISTOGRAM, help);
        page.histogram(&name, "", histogram, bounds, scale);
    }
    let name = "poolcounter_budget_spent_total";
    page.family(name, COUNTER, "How often a bound on the work of a turn was reached.");
    for budget in Budget::ALL {
        page.value(name, &format!("budget=\"{}\"", budget.name()), stats.spent(budget));
    }
    page.single(
        "poolcounter_last_reload_success",
        GAUGE,
        "Whether the last reload has worked; 1 if there was none.",
        u8::from(stats.reload.is_none_or(|reload| reload.has_worked)),
    );
    page.single(
        "poolcounter_last_reload_timestamp_seconds",
        GAUGE,
        "When the last reload was, since 1970; 0 if there was none.",
        stats.reload.map_or(0.0, |reload| seconds(moment.time_of_day(reload.at))),
    );
    page.single("poolcounter_timers", GAUGE, "Timers that are armed.", moment.timers);
}

/// What every process tells, under the names that all have in common.
fn write_process(page: &mut Exposition, moment: &Moment<'_>) {
    let usage = &moment.usage;
    page.single(
        "process_cpu_seconds_total",
        COUNTER,
        "Processor time that the process has used, of user and system together.",
        seconds(usage.cpu),
    );
    page.single("process_open_fds", GAUGE, "Open file descriptors of the process.", usage.open_fds);
    page.single("process_max_fds", GAUGE, "How many file descriptors the process may have.", usage.max_fds);
    let memory = usage.resident_bytes;
    page.single("process_resident_memory_bytes", GAUGE, "Resident memory of the process.", memory);
    let start = seconds(moment.epoch);
    page.single("process_start_time_seconds", GAUGE, "When the process started, since 1970.", start);
}

/// How many microseconds are in the unit of metrics.
const MICROS: f64 = 1e6;

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / MICROS
}
