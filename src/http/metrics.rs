//! `/metrics`: all counts in the Prometheus text format 0.0.4. The names derive from the statistics and tables of the
//! services.

use super::exposition::{COUNTER, Exposition, GAUGE, HISTOGRAM};
use super::text::label;
use poolcounter_core::histogram::{NUMBER_BOUNDS, TICK_BOUNDS, TIME_BOUNDS};
use poolcounter_core::stats::Metric;
use poolcounter_core::text::{cut, visible};
use poolcounter_core::{Histogram, Row, Span, Unit};
use poolcounter_service::contract::Traffic;
use poolcounter_service::health::{HealthLine, MOST_CONDITIONS};
use poolcounter_service::report::room::fit;
use poolcounter_service::report::{
    Budget, Cell, Column, ColumnMetric, ColumnUnit, Condition, MOST_ROWS, Moment, Report, ServiceReport, Table, Times,
};
use std::collections::HashSet;
use std::fmt::Display;

/// Longest shown name, in bytes.
const NAME_BYTES: usize = 64;
/// Number of rows of a table with histograms, of 19 lines each: the first rows.
const ROWS_WITH_HISTOGRAMS: usize = 64;
/// Limit of the values of all tables in bytes, so that the page stays below the limit of a connection's unsent output;
/// the rest of the page has some 60 KiB.
const TABLE_BYTES: usize = 850_000;
/// Limit of a time in bytes, or of the sum of a histogram.
const TIME_BYTES: usize = 20;
/// Limit of a histogram's line in bytes, besides its name and labels: `_bucket`, the bound, and the count.
const BUCKET_BYTES: usize = 45;

/// Returns all metrics as text.
pub fn render(moment: &Moment<'_>) -> String {
    let mut page = Exposition::default();
    page.family("poolcounter_build_info", GAUGE, "Version of the program, as a label; always 1.");
    page.value("poolcounter_build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1);
    let uptime = seconds(moment.now.since(moment.started));
    page.single("poolcounter_uptime_seconds", GAUGE, "Time since the server was started.", uptime);
    for service in &moment.overview.services {
        for (row, value) in &service.report.figures {
            write_figure(&mut page, service.name, row, *value);
        }
    }
    let conditions = write_health(&mut page, &moment.health);
    write_traffic(&mut page, &moment.overview.services);
    let tables = write_tables(&mut page, &moment.overview.services);
    write_left_out(&mut page, conditions, &tables);
    write_loop(&mut page, moment);
    page.0
}

/// Writes the level of each service, and a line for each condition that is on. Returns the number of conditions that are
/// left out.
fn write_health(page: &mut Exposition, health: &[HealthLine]) -> usize {
    let name = "poolcounter_health";
    page.family(name, GAUGE, "Health by service: 0 is ok, 1 is a warning, 2 is critical.");
    for line in health {
        let level = line.conditions.iter().map(|on| on.condition.info.level).max().unwrap_or_default();
        page.value(name, &format!("service=\"{}\"", line.title.to_lowercase()), level as u8);
    }
    let name = "poolcounter_condition";
    page.family(
        name,
        GAUGE,
        "1 for each condition that is on, until status.over has passed since its end, by service and subject.",
    );
    let (mut told, mut left_out) = (HashSet::new(), health.iter().map(|line| line.more).sum());
    for (line, on) in health.iter().flat_map(|line| line.conditions.iter().map(move |on| (line, on))) {
        let Condition { info, subject, .. } = &on.condition;
        let subject = if info.has_label { visible(subject, NAME_BYTES) } else { String::new() };
        let service = line.title.to_lowercase();
        let labels =
            [("service", &service[..]), ("condition", info.name), ("level", info.level.word()), ("subject", &subject)];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", label(value))).join(",");
        if told.contains(&labels) {
            continue;
        }
        if told.len() < MOST_CONDITIONS {
            page.value(name, &labels, 1);
            told.insert(labels);
        } else {
            left_out += 1;
        }
    }
    left_out
}

/// Writes a statistic of a service, unless it is exported elsewhere.
fn write_figure(page: &mut Exposition, service: &str, row: &Row, value: u64) {
    let Some(name) = name_of(service, row) else { return };
    let kind = if row.unit.is_counter() { COUNTER } else { GAUGE };
    match row.unit.is_time() {
        true => page.single(&name, kind, row.help, seconds(Span::from_micros(value))),
        false => page.single(&name, kind, row.help, value),
    }
}

/// Returns the metric's name for a statistic, if it is exported.
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

/// Metrics of every service.
const TRAFFIC: [TrafficFamily; 6] = [
    ("connections", GAUGE, "Open connections, by service.", |traffic| traffic.open),
    ("connections_opened_total", COUNTER, "Connections accepted, by service.", |traffic| traffic.opened.get()),
    (
        "connect_errors_total",
        COUNTER,
        "Connections that were refused, or lost before they were served, by service.",
        |traffic| traffic.connect_errors.get(),
    ),
    ("failed_sends_total", COUNTER, "Replies that could not be delivered, by service.", |it| it.failed_sends.get()),
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

/// Table with the labels of its rows.
struct Labelled<'a> {
    service: &'static str,
    table: &'a Table,
    has_labels: bool,
    /// Index and label of each row that is shown.
    rows: Vec<(usize, String)>,
    /// Number of these with histograms: the first ones.
    with_histograms: usize,
}

/// Writes as many rows of each table as there is room for, and returns the tables.
fn write_tables<'a>(page: &mut Exposition, services: &'a [ServiceReport]) -> Vec<Labelled<'a>> {
    let tables = services.iter().flat_map(|service| {
        let Report { tables, exported, .. } = &service.report;
        tables.iter().map(move |table| {
            let told = exported.iter().find(|other| other.name == table.name);
            (service.name, told.unwrap_or(table))
        })
    });
    let mut tables: Vec<Labelled<'_>> = tables.map(|(service, table)| Labelled::of(service, table)).collect();
    let mut room = TABLE_BYTES;
    // A histogram takes as much room as twenty values, so all values come first.
    let fitting = fit(&tables.iter().map(Labelled::costs).collect::<Vec<_>>(), &mut room);
    tables.iter_mut().zip(fitting).for_each(|(labelled, rows)| labelled.rows.truncate(rows));
    let fitting = fit(&tables.iter().map(Labelled::costs_of_histograms).collect::<Vec<_>>(), &mut room);
    tables.iter_mut().zip(fitting).for_each(|(labelled, rows)| labelled.with_histograms = rows);
    tables.iter().for_each(|labelled| labelled.write(page));
    tables
}

/// Writes the number of rows of each table that are not shown, or not with their histograms.
fn write_left_out(page: &mut Exposition, conditions: usize, tables: &[Labelled<'_>]) {
    let name = "poolcounter_metrics_left_out";
    page.family(name, GAUGE, "Rows of a table without their values, or without their histograms, on this page.");
    let mut write = |table: &str, kind: &str, left_out: usize| {
        page.value(name, &format!("table=\"{table}\",kind=\"{kind}\""), left_out);
    };
    write("conditions", "values", conditions);
    for labelled in tables.iter().filter(|labelled| labelled.has_labels) {
        let (table, rows) = (format!("{}_{}", labelled.service, labelled.table.name), labelled.table.rows.len());
        write(&table, "values", rows - labelled.rows.len());
        if labelled.times().next().is_some() {
            write(&table, "histograms", rows - labelled.with_histograms);
        }
    }
}

impl<'a> Labelled<'a> {
    fn of(service: &'static str, table: &'a Table) -> Self {
        let label_of =
            |column: &Column| if let ColumnMetric::Label(label) = &column.metric { Some(label.clone()) } else { None };
        let columns = table.columns.iter().enumerate();
        let columns: Vec<_> = columns.filter_map(|(at, column)| Some((at, label_of(column)?))).collect();
        let mut rows = Vec::new();
        if !columns.is_empty() {
            let mut seen = HashSet::new();
            let labels = table.rows.iter().take(MOST_ROWS).map(|row| {
                let labels = columns.iter().map(|(at, name)| format!("{name}=\"{}\"", label_text(&row[*at])));
                labels.collect::<Vec<_>>().join(",")
            });
            // Names that are equal after truncation would produce a metric twice, and make the page invalid.
            rows = labels.enumerate().filter(|(_, label)| seen.insert(label.clone())).collect();
        }
        Labelled { service, table, has_labels: !columns.is_empty(), rows, with_histograms: 0 }
    }

    /// Returns the columns with a metric for each row, by their position, with the names of their metrics.
    fn columns(&self) -> impl Iterator<Item = (usize, &'a Column, String)> {
        self.table.columns.iter().enumerate().filter_map(|(at, column)| match &column.metric {
            ColumnMetric::Each(metric) => Some((at, column, self.name_of(metric, column))),
            _ => None,
        })
    }

    fn name_of(&self, metric: &str, column: &Column) -> String {
        format!("poolcounter_{}_{metric}{}", self.service, column.suffix())
    }

    /// Returns the largest possible size of each row without its histograms, in bytes.
    fn costs(&self) -> Vec<usize> {
        let names: Vec<(usize, usize)> = self.columns().map(|(at, _, name)| (at, name.len())).collect();
        let cost = |(row, label): &(usize, String)| {
            let values = names.iter().filter_map(|(at, name)| Some(name + value_bytes(&self.table.rows[*row][*at])?));
            values.map(|bytes| bytes + label.len() + "{} \n".len()).sum()
        };
        self.rows.iter().map(cost).collect()
    }

    /// Returns the largest possible size of the histograms of each row, in bytes, as far as rows may have some.
    fn costs_of_histograms(&self) -> Vec<usize> {
        let names: Vec<usize> = self.times().map(|(_, _, name)| name.len()).collect();
        let line = |name: &usize, label: &str| name + label.len() + BUCKET_BYTES;
        let cost =
            |(_, label): &(usize, String)| names.iter().map(|name| (TIME_BOUNDS.len() + 3) * line(name, label)).sum();
        let most = if names.is_empty() { 0 } else { ROWS_WITH_HISTOGRAMS };
        self.rows.iter().take(most).map(cost).collect()
    }

    /// Returns the columns with histograms.
    fn times(&self) -> impl Iterator<Item = (usize, &'a Column, String)> {
        self.columns().filter(|(_, column, _)| column.unit == ColumnUnit::Times)
    }

    fn write(&self, page: &mut Exposition) {
        self.columns().for_each(|(at, column, name)| self.write_each(page, &name, at, column));
        for (at, column) in self.table.columns.iter().enumerate() {
            if let ColumnMetric::Largest { name, help } = column.metric {
                let largest = self.table.rows.iter().map(|row| value_of(&row[at])).fold(0.0, f64::max);
                page.single(&self.name_of(name, column), GAUGE, help, largest);
            }
        }
    }

    fn write_each(&self, page: &mut Exposition, name: &str, at: usize, column: &Column) {
        let cells = self.rows.iter().map(|(row, label)| (label, &self.table.rows[*row][at]));
        if column.unit == ColumnUnit::Times {
            page.family(name, HISTOGRAM, &column.help);
            for (label, cell) in cells.take(self.with_histograms) {
                if let Cell::Times(Times { all: Some(histogram), .. }) = cell {
                    page.histogram(name, label, histogram, TIME_BOUNDS, MICROS);
                }
            }
        } else {
            page.family(name, if column.is_counter { COUNTER } else { GAUGE }, &column.help);
            for (label, cell) in cells {
                match cell {
                    Cell::Number(number) => page.value(name, label, number),
                    Cell::Seconds(seconds) => page.value(name, label, seconds),
                    _ => {}
                }
            }
        }
    }
}

fn label_text(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => label(&cut(text, NAME_BYTES)).into_owned(),
        _ => String::new(),
    }
}

/// Returns the largest possible size of a value, in bytes; None if there is none.
fn value_bytes(cell: &Cell) -> Option<usize> {
    match cell {
        Cell::Number(number) => Some(number.checked_ilog10().map_or(1, |log| log as usize + 1)),
        Cell::Seconds(_) => Some(TIME_BYTES),
        _ => None,
    }
}

fn value_of(cell: &Cell) -> f64 {
    match cell {
        Cell::Number(number) => *number as f64,
        Cell::Seconds(seconds) => *seconds,
        _ => 0.0,
    }
}

fn write_loop(page: &mut Exposition, moment: &Moment<'_>) {
    let stats = moment.loop_stats;
    let histograms: [(_, _, &Histogram, _, _); 2] = [
        ("tick_seconds", "Duration of the turns of the loop, without sleep.", &stats.durations, TICK_BOUNDS, MICROS),
        ("tick_clients", "Connections served in a turn of the loop.", &stats.turns, NUMBER_BOUNDS, 1.0),
    ];
    for (name, help, histogram, bounds, scale) in histograms {
        let name = format!("poolcounter_{name}");
        page.family(&name, HISTOGRAM, help);
        page.histogram(&name, "", histogram, bounds, scale);
    }
    let name = "poolcounter_budget_spent_total";
    page.family(name, COUNTER, "Times that a bound on the work of a turn was reached.");
    for budget in Budget::ALL {
        page.value(name, &format!("budget=\"{}\"", budget.name()), stats.spent(budget));
    }
    let has_worked = u8::from(stats.reload.is_none_or(|reload| reload.has_worked));
    let at = stats.reload.map_or(0.0, |reload| seconds(moment.time_of_day(reload.at)));
    let start = seconds(moment.time_of_day(moment.started));
    let usage = &moment.usage;
    let own: [(_, _, &dyn Display); 3] = [
        ("last_reload_success", "1 if the last reload succeeded or there was none, else 0.", &has_worked),
        ("last_reload_timestamp_seconds", "Time of the last reload, since 1970; 0 if there was none.", &at),
        ("timers", "Armed timers.", &moment.timers),
    ];
    own.into_iter().for_each(|(name, help, value)| page.single(&format!("poolcounter_{name}"), GAUGE, help, value));
    // Metrics of the process have the names that all exporters use.
    let singles: [(_, _, _, &dyn Display); 5] = [
        ("process_cpu_seconds_total", COUNTER, "Processor time of the process, user and system together.", &usage.cpu),
        ("process_open_fds", GAUGE, "Open file descriptors of the process.", &usage.open_fds),
        ("process_max_fds", GAUGE, "Limit of file descriptors of the process.", &usage.max_fds),
        ("process_resident_memory_bytes", GAUGE, "Resident memory of the process.", &usage.resident_bytes),
        ("process_start_time_seconds", GAUGE, "Start time of the process, since 1970.", &start),
    ];
    singles.into_iter().for_each(|(name, kind, help, value)| page.single(name, kind, help, value));
}

/// Microseconds per second, the unit of metrics.
const MICROS: f64 = 1e6;

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / MICROS
}
