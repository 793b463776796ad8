//! What the jobs tell operators, as tables: the wikis, the types of jobs, the tubes and the runners, with what waits, how late
//! it is, and how fast it goes.

use super::JobQueue;
use super::state::queries::{Summary, SummaryBy};
use super::stats::Jobs as Stat;
use super::store::{Health, OwnerHealth};
use crate::report::{Cell, Column, ColumnMetric, ColumnUnit, Emphasis, Series, SeriesInfo, Table, TableInfo};
use crate::stats::Figures;
use crate::time::{Span, Time};

/// How many rows a table has at most: as many as a page has room for, in four tables.
const MOST_ROWS: usize = 100;

/// What is said where not all tubes are looked at.
const NOTE: &str = "There are more than 32768 tubes, names or connections: ages and tables are those of that many.";

const SECONDS_A_MINUTE: f64 = 60.0;

/// Declares a table of tubes that are summed up in some way: wikis, types, or each by itself.
macro_rules! sums {
    ($table:ident, $name:literal, $title:literal, $of:literal, $metric:literal, $by:literal, $oldest:expr) => {
        static $table: TableInfo = TableInfo {
            name: $name,
            title: $title,
            help: "Those with the most jobs come first. Rates are of the last minute.",
            empty: "There is no tube.",
            columns: &[
                Column {
                    name: "name",
                    title: $of,
                    unit: ColumnUnit::Name,
                    help: "The name.",
                    metric: ColumnMetric::Label($of),
                    emphasis: Emphasis::None,
                },
                Column {
                    emphasis: Emphasis::Work,
                    ..Column::level(
                        "ready",
                        "ready",
                        concat!($metric, "_ready"),
                        concat!("Jobs that wait for a runner, by ", $by),
                    )
                },
                Column::level(
                    "reserved",
                    "reserved",
                    concat!($metric, "_reserved"),
                    concat!("Jobs that runners hold, by ", $by),
                ),
                Column::level(
                    "delayed",
                    "delayed",
                    concat!($metric, "_delayed"),
                    concat!("Jobs whose delay is not over, by ", $by),
                ),
                Column {
                    emphasis: Emphasis::Alarm,
                    ..Column::level(
                        "buried",
                        "buried",
                        concat!($metric, "_buried"),
                        concat!("Jobs that wait for a kick, by ", $by),
                    )
                },
                Column {
                    name: "oldest_ready",
                    title: "oldest",
                    unit: ColumnUnit::Age,
                    help: "How long the ready job that is ready for longest has been so.",
                    metric: $oldest,
                    emphasis: Emphasis::Caution,
                },
                Column {
                    name: "pickup",
                    title: "pick-up",
                    unit: ColumnUnit::Times,
                    help: concat!("How long jobs were ready before they were reserved, by ", $by),
                    metric: ColumnMetric::Each(concat!($metric, "_pickup")),
                    emphasis: Emphasis::None,
                },
                rate("put_rate", "put/min", "Jobs put in a minute."),
                rate("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
                rate("delete_rate", "deleted/min", "Jobs deleted in a minute."),
                Column::count("put", "put", concat!($metric, "_put"), concat!("Jobs put, by ", $by)),
                Column::count("reserves", "reserves", concat!($metric, "_reserves"), concat!("Reservations, by ", $by)),
                Column::count(
                    "deletes",
                    "deleted",
                    concat!($metric, "_deletes"),
                    concat!("Jobs deleted by clients, by ", $by),
                ),
                Column::count(
                    "duplicates",
                    "duplicates",
                    concat!($metric, "_duplicates"),
                    concat!("Jobs not queued because of their key, by ", $by),
                ),
                Column::count(
                    "superseded",
                    "superseded",
                    concat!($metric, "_superseded"),
                    concat!("Leaves of superseded root jobs that were refused or dropped, by ", $by),
                ),
            ],
        };
    };
}

sums!(
    WIKIS,
    "wikis",
    "Jobs by wiki",
    "wiki",
    "wiki",
    "wiki.",
    ColumnMetric::Largest {
        name: "oldest_ready",
        help: "How long the ready job that is ready for longest has been so; 0 if none is."
    }
);
sums!(TYPES, "types", "Jobs by type", "type", "type", "type.", ColumnMetric::Each("type_oldest_ready"));
sums!(TUBES, "tubes", "Tubes", "tube", "tube", "tube.", ColumnMetric::Each("tube_oldest_ready"));

static RUNNERS: TableInfo = TableInfo {
    name: "runners",
    title: "Runners",
    help: "By the name that they said with identify. Rates are of the last minute.",
    empty: "No connection has reserved a job.",
    columns: &[
        Column {
            name: "name",
            title: "runner",
            unit: ColumnUnit::Name,
            help: "The name; empty for those who said none.",
            metric: ColumnMetric::Label("runner"),
            emphasis: Emphasis::None,
        },
        Column::level("connections", "connections", "runner_connections", "Connections, by runner."),
        Column::level("waiting", "waiting", "runner_waiting", "Connections that wait for a job, by runner."),
        Column {
            emphasis: Emphasis::Work,
            ..Column::level("reserved", "reserved", "runner_reserved", "Jobs that are held, by runner.")
        },
        rate("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
        rate("delete_rate", "deleted/min", "Jobs deleted in a minute."),
    ],
};

static STORES: TableInfo = TableInfo {
    name: "stores",
    title: "Where jobs are kept",
    help: "Replies that promise something leave after the commit.",
    empty: "No jobs are kept in a file.",
    columns: &[
        Column {
            name: "store",
            title: "store",
            unit: ColumnUnit::Text,
            help: "The file.",
            metric: ColumnMetric::Label("store"),
            emphasis: Emphasis::None,
        },
        Column { unit: ColumnUnit::Times, ..Column::level("commits", "commits", "commit", "How long commits took.") },
        Column {
            unit: ColumnUnit::Times,
            ..Column::level(
                "checkpoints",
                "checkpoints",
                "checkpoint",
                "How long it took to bring the store's log into its file, which delays commits.",
            )
        },
        Column {
            unit: ColumnUnit::Age,
            emphasis: Emphasis::Caution,
            name: "oldest",
            title: "oldest change",
            help: "How long the oldest change has waited to be committed.",
            ..Column::BLANK
        },
        Column { unit: ColumnUnit::Level, name: "batch", title: "last batch", help: "Changes in it.", ..Column::BLANK },
        Column { unit: ColumnUnit::Bytes, name: "file", title: "file", help: "Bytes of the files.", ..Column::BLANK },
        Column {
            unit: ColumnUnit::Text,
            name: "owner",
            title: "owner",
            help: "Which of the daemons that share the store serves its jobs, and by which take-over.",
            ..Column::BLANK
        },
        Column {
            unit: ColumnUnit::Age,
            name: "owned",
            title: "since",
            help: "For how long it has served them.",
            ..Column::BLANK
        },
        Column {
            unit: ColumnUnit::Text,
            emphasis: Emphasis::Alarm,
            name: "fault",
            title: "fault",
            help: "Why it fails.",
            ..Column::BLANK
        },
    ],
};

static PUT: SeriesInfo =
    SeriesInfo { name: "put", title: "Jobs put", unit: "per second", is_rate: true, emphasis: Emphasis::None };
static DELETES: SeriesInfo =
    SeriesInfo { name: "deletes", title: "Deletes", unit: "per second", is_rate: true, emphasis: Emphasis::Work };
static READY: SeriesInfo =
    SeriesInfo { name: "ready", title: "Jobs that wait", unit: "jobs", is_rate: false, emphasis: Emphasis::Caution };

/// A rate is for people: a metric has the count, of which a rate is made over any time.
const fn rate(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column { name, title, unit: ColumnUnit::Level, help, ..Column::BLANK }
}

impl JobQueue {
    /// Returns the tables, of [`MOST_ROWS`] rows at most each.
    pub(super) fn tables(&self, now: Time) -> Vec<Table> {
        let note = || self.state.is_too_many_to_survey().then(|| NOTE.to_string());
        let table = |info: &'static TableInfo, by: SummaryBy, row: fn((Vec<u8>, Summary), Time) -> Vec<Cell>| {
            let rows = self.state.largest(by, MOST_ROWS, now).into_iter().map(|summary| row(summary, now));
            Table { info, rows: rows.collect(), note: note() }
        };
        vec![
            table(&WIKIS, SummaryBy::Wiki, row_of_sum),
            table(&TYPES, SummaryBy::Type, row_of_sum),
            table(&TUBES, SummaryBy::Tube, row_of_sum),
            table(&RUNNERS, SummaryBy::Runner, row_of_runner),
            Table { info: &STORES, rows: self.row_of_store(now).into_iter().collect(), note: None },
        ]
    }

    fn row_of_store(&self, now: Time) -> Option<Vec<Cell>> {
        let Health { fault, commits, checkpoints, last_batch, file_bytes, owner, .. } = self.health()?;
        let [owner, owned] = owner.map_or([Cell::Nothing, Cell::Nothing], |owner| cells_of_owner(&owner, now));
        let fault = fault.map_or(Cell::Nothing, Cell::Text);
        let oldest = Cell::Time(self.keeping.oldest(now));
        let [batch, file] = [last_batch, file_bytes].map(Cell::Number);
        Some(vec![
            Cell::Text(self.store.place()),
            Cell::Times(commits),
            Cell::Times(checkpoints),
            oldest,
            batch,
            file,
            owner,
            owned,
            fault,
        ])
    }

    fn health(&self) -> Option<Health> {
        self.keeping.has_begun().then(|| self.store.health()).flatten()
    }

    /// Returns what is counted, and the store's own figures.
    pub(super) fn figures(&self, now: Time) -> Figures<Stat> {
        let mut figures = self.state.figures();
        figures.set(Stat::OldestUncommitted, self.keeping.oldest(now).as_micros());
        if let Some(health) = self.health() {
            if let Some(OwnerHealth { is_self, epoch, .. }) = health.owner {
                figures.set(Stat::Owner, is_self.into());
                figures.set(Stat::Epoch, epoch);
            }
            let stats = [
                (Stat::LastBatch, health.last_batch),
                (Stat::FileBytes, health.file_bytes),
                (Stat::Checkpoints, health.checkpoints.count()),
                (Stat::Rewrites, health.rewrites),
                (Stat::Fault, health.fault.is_some().into()),
            ];
            stats.into_iter().for_each(|(stat, value)| figures.set(stat, value));
        }
        figures
    }

    /// Returns what is remembered for curves.
    pub(super) fn series(&self) -> [Series; 3] {
        let [put, deleted, ready] = self.state.totals();
        [(&PUT, put), (&DELETES, deleted), (&READY, ready)]
    }
}

fn cells_of_owner(owner: &OwnerHealth, now: Time) -> [Cell; 2] {
    if owner.address.is_empty() {
        return [Cell::Text("not known".into()), Cell::Nothing];
    }
    // The clock of the database may be ahead.
    let owned = Span::from_micros(now.as_micros().saturating_add_signed(owner.since.saturating_neg()));
    [Cell::Text(format!("{}, take-over {}", owner.address, owner.epoch)), Cell::Time(owned)]
}

fn row_of_sum((name, summary): (Vec<u8>, Summary), now: Time) -> Vec<Cell> {
    let [put, reserved, deleted] = per_minute(&summary, now);
    let mut row = vec![Cell::Name(name)];
    row.extend(summary.counts.map(Cell::Number));
    row.extend([Cell::Time(summary.oldest_ready), Cell::Times(summary.pickups), put, reserved, deleted]);
    row.extend(summary.events.map(Cell::Number));
    row.extend([summary.duplicates, summary.superseded].map(Cell::Number));
    row
}

fn row_of_runner((name, summary): (Vec<u8>, Summary), now: Time) -> Vec<Cell> {
    let [_, reserved, deleted] = per_minute(&summary, now);
    let held: u64 = summary.counts.iter().sum();
    let numbers = [summary.conns, summary.waiting, held].map(Cell::Number);
    [Cell::Name(name)].into_iter().chain(numbers).chain([reserved, deleted]).collect()
}

/// Returns puts, reserves and deletes in a minute, by the last one.
fn per_minute(summary: &Summary, now: Time) -> [Cell; 3] {
    // Lossless: nobody puts so many jobs in a minute.
    summary.rates(now).map(|[last, ..]| Cell::Number((last * SECONDS_A_MINUTE).round() as u64))
}
