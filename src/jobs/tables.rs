//! Definitions of the tables, the matrix and the curves of the jobs.

use super::operations::OF_BURIED;
use poolcounter_service::report::{
    Cell, Column, ColumnMetric, ColumnUnit, Emphasis, MatrixInfo, SeriesInfo, TableInfo,
};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Tables and matrix that are named by the words for the first and the last part of a tube's name.
pub(super) struct PartTables {
    /// Words for the first and for the last part.
    pub words: [&'static str; 2],
    /// Jobs by first part and by last part.
    pub parts: [TableInfo; 2],
    /// Jobs by tube.
    pub tubes: TableInfo,
    /// Buried jobs by last part and by error.
    pub errors: TableInfo,
    /// First parts against last parts, with the paths of their pages.
    pub matrix: MatrixInfo,
}

/// Paths below which there are pages about each tube, job and root job.
pub(super) const TUBES: &str = "/jobs/tube/";
pub(super) const JOBS: &str = "/jobs/job/";
const ROOTS: &str = "/jobs/root/";

/// Tables by their words. They last as long as the process, since reports refer to them.
static MADE: Mutex<BTreeMap<[String; 2], &'static PartTables>> = Mutex::new(BTreeMap::new());

impl PartTables {
    /// Returns the tables with these words, which are made once in a process.
    pub fn of(words: &[String; 2]) -> &'static PartTables {
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(words.clone()).or_insert_with(|| Box::leak(Box::new(PartTables::new(words))))
    }

    fn new(words: &[String; 2]) -> PartTables {
        let words = words.each_ref().map(|word| kept(word.clone()));
        let paths = words.map(|word| kept(format!("/jobs/{word}/")));
        let part = |n: usize| TableInfo {
            name: kept(format!("{}s", words[n])),
            title: kept(format!("Jobs by {}", words[n])),
            columns: columns_of_sums(words[n], ColumnUnit::Linked(paths[n]), true),
            ..SUMS
        };
        // The tubes in the table change all the time, and metrics have no room for histograms of so many.
        let tubes = columns_of_sums("tube", ColumnUnit::Linked(TUBES), false);
        PartTables {
            words,
            parts: [part(0), part(1)],
            tubes: TableInfo { name: "tubes", title: "Tubes", columns: tubes, ..SUMS },
            errors: TableInfo {
                name: "errors",
                title: "Buried by error",
                help: "Errors are compared by their first line, without regard to numbers in it.",
                empty: "",
                is_of_kinds: false,
                columns: columns_of_errors(words[1]),
            },
            matrix: MatrixInfo {
                title: kept(format!("Ready jobs by {} and {}", words[0], words[1])),
                help: "Number of ready jobs, and the age of the oldest. The worst come first.",
                empty: "No job is ready.",
                row: (words[0], paths[0]),
                column: (words[1], paths[1]),
                path: "/jobs/matrix",
            },
        }
    }
}

/// Common parts of the tables of sums.
const SUMS: TableInfo = TableInfo {
    name: "",
    title: "",
    help: "Sorted by queue size (in a time range: worst first). Rates of single tubes are those of the last minute.",
    empty: "No tubes.",
    is_of_kinds: true,
    columns: &[],
};

fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// Returns the columns of the table of buried jobs by the last part, which the word names, and by error.
fn columns_of_errors(word: &'static str) -> &'static [Column] {
    Box::leak(Box::new([
        shown("part", word, ColumnUnit::Name, "Last part of the tubes' names."),
        marked(Emphasis::Alarm, shown("jobs", "jobs", ColumnUnit::Level, "Jobs buried with this error.")),
        shown("first", "first", ColumnUnit::Age, "Time since the first of them was buried."),
        shown("last", "last", ColumnUnit::Age, "Time since the last of them was buried."),
        shown("job", "for example", ColumnUnit::Linked(JOBS), "The job that was buried last."),
        shown("error", "error", ColumnUnit::Name, "First line of the error of that job."),
    ]))
}

/// Place of the column of run times, which the table of single tubes does not have.
pub(super) const RUN: usize = 8;

/// Returns the columns of a table of tubes that are summed up by the part that the word names, or are listed one by
/// one.
fn columns_of_sums(word: &'static str, unit: ColumnUnit, has_pickups: bool) -> &'static [Column] {
    let metric = |name: &str| kept(format!("{word}_{name}"));
    let by = |what: &str| kept(format!("{what}, by {word}."));
    let level = |name, emphasis, what| Column { emphasis, ..Column::level(name, name, metric(name), by(what)) };
    let count = |name, title, emphasis, what| Column { emphasis, ..Column::count(name, title, metric(name), by(what)) };
    let times = |name| if has_pickups { ColumnMetric::Each(metric(name)) } else { ColumnMetric::None };
    let pickup_help = by("Time from ready to reserved");
    let mut columns = vec![
        Column { metric: ColumnMetric::Label(word), ..shown("name", word, unit, "The name.") },
        level("ready", Emphasis::Work, "Jobs that wait for a runner"),
        level("reserved", Emphasis::None, "Jobs that runners hold"),
        level("delayed", Emphasis::None, "Jobs whose delay is not over, without those to be retried"),
        Column {
            title: "to be retried",
            ..level("retrying", Emphasis::Caution, "Failed jobs that wait for their next attempt")
        },
        level("buried", Emphasis::Alarm, "Jobs that wait for a kick"),
        Column {
            unit: ColumnUnit::Age,
            emphasis: Emphasis::Caution,
            ..Column::level(
                "oldest_ready",
                "oldest",
                metric("oldest_ready"),
                "Time for which the oldest ready job has been ready.",
            )
        },
        Column { metric: times("pickup"), ..shown("pickup", "pick-up", ColumnUnit::Times, pickup_help) },
        rate("put_rate", "put/min", "Jobs put in a minute."),
        rate("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
        rate("delete_rate", "deleted/min", "Jobs deleted in a minute."),
        count("put", "put", Emphasis::None, "Jobs put"),
        count("reserves", "reserves", Emphasis::None, "Reservations"),
        count("deletes", "deleted", Emphasis::Work, "Jobs deleted by clients"),
        count("duplicates", "duplicates", Emphasis::None, "Jobs not queued because of their key"),
        count(
            "superseded",
            "superseded",
            Emphasis::None,
            "Leaves of superseded root jobs that were refused or dropped",
        ),
        count("failures", "failures", Emphasis::Caution, "Reservations that ended without the job being done"),
        shown("error", "last error", ColumnUnit::Name, "Text of the last failure that had one."),
        shown("error_age", "ago", ColumnUnit::Age, "Time since that failure."),
    ];
    if has_pickups {
        let help = by("Time from reserved to deleted");
        columns.insert(RUN, Column { metric: times("run"), ..shown("run", "run time", ColumnUnit::Times, help) });
    }
    Box::leak(columns.into_boxed_slice())
}

pub(super) static RUNNERS: TableInfo = TableInfo {
    name: "runners",
    title: "Runners",
    help: "Grouped by the name given with identify. Rates are those of the last minute.",
    empty: "No connection has reserved a job.",
    is_of_kinds: false,
    columns: &[
        Column {
            metric: ColumnMetric::Label("runner"),
            ..shown(
                "name",
                "runner",
                ColumnUnit::Linked("/jobs/runner/"),
                "Name; empty for connections that gave none.",
            )
        },
        Column::level("connections", "connections", "runner_connections", "Connections, by runner."),
        Column::level("waiting", "waiting", "runner_waiting", "Connections that wait for a job, by runner."),
        marked(Emphasis::Work, Column::level("reserved", "reserved", "runner_reserved", "Reserved jobs, by runner.")),
        shown("tube", "works on", ColumnUnit::Linked(TUBES), "Tube of the job held longest."),
        Column {
            metric: ColumnMetric::Each("runner_busy"),
            ..busy("Time since the reservation of the job held longest, by runner.")
        },
        Column::level(
            "reserve_rate",
            "reserved/min",
            "runner_reserves_per_minute",
            "Jobs reserved in a minute, by runner.",
        ),
        Column::level(
            "delete_rate",
            "deleted/min",
            "runner_deletes_per_minute",
            "Jobs deleted in a minute, by runner.",
        ),
        marked(
            Emphasis::Caution,
            Column::level(
                "failures",
                "failures",
                "runner_failures",
                "Reservations of the present connections that ended without the job being done, by runner.",
            ),
        ),
    ],
};

/// Connections of one runner.
pub(super) static RUNNER: TableInfo = TableInfo {
    name: "connections",
    title: "Connections",
    help: "Shows the job with the earliest deadline per connection.",
    empty: "The runner is not connected.",
    is_of_kinds: false,
    columns: &[
        shown("peer", "from", ColumnUnit::Address, "Address of the peer."),
        shown("state", "state", ColumnUnit::Text, "State: working on a job, or waiting for one."),
        shown("runner", "runner", ColumnUnit::Linked("/jobs/runner/"), "Name of the runner."),
        shown("job", "job", ColumnUnit::Linked(JOBS), "Number of the job."),
        shown("tube", "tube", ColumnUnit::Linked(TUBES), "Its tube."),
        busy("Time since the reservation of that job."),
        shown("held", "held", ColumnUnit::Level, "Number of its reserved jobs."),
        rate("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
        rate("delete_rate", "deleted/min", "Jobs deleted in a minute."),
        marked(Emphasis::Caution, rate("failures", "failures", "Reservations that ended without the job being done.")),
    ],
};

/// Jobs that are buried until a kick.
pub(super) static BURIED: TableInfo = TableInfo {
    name: "buried",
    title: "Buried jobs",
    help: "The latest buried jobs of each tube; they wait for a kick.",
    empty: "No job is buried.",
    is_of_kinds: false,
    columns: &[
        shown("id", "job", ColumnUnit::Key(JOBS, OF_BURIED), "Number of the job."),
        shown("tube", "tube", ColumnUnit::Linked(TUBES), "Its tube."),
        shown("buried", "for", ColumnUnit::Age, "Time since it was buried."),
        shown("age", "age", ColumnUnit::Age, "Time since it was put."),
        shown("reserves", "reserves", ColumnUnit::Level, "Number of its reservations."),
        shown("key", "key", ColumnUnit::Name, "Its key."),
        shown("error", "error", ColumnUnit::Name, "Error of its last failure."),
    ],
};

/// Jobs of a tube that wait for a runner.
pub(super) static READY_JOBS: TableInfo = TableInfo {
    name: "ready_jobs",
    title: "Ready jobs",
    help: "Jobs that have been ready longest come first.",
    empty: "No job is ready.",
    is_of_kinds: false,
    columns: &[
        shown("id", "job", ColumnUnit::Linked(JOBS), "Number of the job."),
        shown("ready", "for", ColumnUnit::Age, "Time for which it has been ready."),
        shown("pri", "priority", ColumnUnit::Level, "Its priority; lower numbers are served first."),
        shown("age", "age", ColumnUnit::Age, "Time since it was put."),
        shown("reserves", "reserves", ColumnUnit::Level, "Number of its reservations."),
        shown("attempts", "failed", ColumnUnit::Level, "Attempts that failed since it was put, kicked or moved."),
        shown("key", "key", ColumnUnit::Name, "Its key."),
        shown("group", "group", ColumnUnit::Name, "Its group."),
    ],
};

/// One job.
pub(super) static JOB: TableInfo = TableInfo {
    name: "job",
    title: "Job",
    help: "",
    empty: "",
    is_of_kinds: false,
    columns: &[
        shown("tube", "tube", ColumnUnit::Linked(TUBES), "Its tube."),
        shown("state", "state", ColumnUnit::Text, "State of the job."),
        shown("for", "for", ColumnUnit::Age, "Time for which it has been ready or buried."),
        shown("left", "left", ColumnUnit::Age, "Time until its delay or its time to run ends."),
        shown("pri", "priority", ColumnUnit::Level, "Its priority; lower numbers are served first."),
        shown("age", "age", ColumnUnit::Age, "Time since it was put."),
        shown("ttr", "time to run", ColumnUnit::Age, "Time for which a runner may hold it."),
        shown("reserves", "reserves", ColumnUnit::Level, "Number of its reservations."),
        marked(
            Emphasis::Caution,
            shown("attempts", "failed", ColumnUnit::Level, "Attempts that failed since it was put, kicked or moved."),
        ),
        shown("timeouts", "timeouts", ColumnUnit::Level, "Number of times that its time to run ended."),
        shown("releases", "releases", ColumnUnit::Level, "Number of its releases."),
        shown("buries", "buries", ColumnUnit::Level, "Number of times that it was buried."),
        shown("kicks", "kicks", ColumnUnit::Level, "Number of times that it was kicked."),
        shown("key", "key", ColumnUnit::Name, "Its key."),
        shown("group", "group", ColumnUnit::Name, "Its group."),
        shown("root", "root job", ColumnUnit::Linked(ROOTS), "Tube and signature of its root job."),
        shown("id", "buried", ColumnUnit::Key(JOBS, OF_BURIED), "Its number, with buttons, if it is buried."),
    ],
};

pub(super) static STORES: TableInfo = TableInfo {
    name: "stores",
    title: "Job store",
    help: "Replies to changes are sent after the commit.",
    empty: "Jobs are kept in memory only.",
    is_of_kinds: false,
    columns: &[
        Column {
            metric: ColumnMetric::Label("queue"),
            ..shown("queue", "queue", ColumnUnit::Text, "Name of the queue: jobs.name, or else its store.")
        },
        Column {
            metric: ColumnMetric::Label("store"),
            ..shown("store", "store", ColumnUnit::Text, "File or database.")
        },
        Column { unit: ColumnUnit::Times, ..Column::level("commits", "commits", "commit", "Time that commits took.") },
        Column {
            metric: ColumnMetric::Each("checkpoint"),
            ..shown(
                "checkpoints",
                "checkpoints",
                ColumnUnit::Times,
                "Time that checkpoints took, which move the store's log into its file and delay commits.",
            )
        },
        marked(
            Emphasis::Caution,
            shown(
                "oldest",
                "oldest change",
                ColumnUnit::Age,
                "Time for which the oldest uncommitted change has waited.",
            ),
        ),
        shown("batch", "last batch", ColumnUnit::Level, "Changes in the last batch."),
        shown("file", "file", ColumnUnit::Bytes, "Size of the store's files; empty for a database."),
        Column::level(
            "serves",
            "serves",
            "queue_owner",
            "1 if this daemon serves the queue, 0 if it is a standby; only for stores that several daemons share.",
        ),
        shown(
            "owner",
            "owner",
            ColumnUnit::Text,
            "Daemon that serves the jobs of a shared store, and the number of its take-over.",
        ),
        shown("owned", "since", ColumnUnit::Age, "Time for which that daemon has served them."),
        marked(Emphasis::Alarm, shown("fault", "fault", ColumnUnit::Text, "Reason of the store's failure.")),
    ],
};

pub(super) static PUT: SeriesInfo =
    SeriesInfo { name: "put", title: "Jobs put", unit: "per second", is_rate: true, emphasis: Emphasis::None };
pub(super) static DELETES: SeriesInfo =
    SeriesInfo { name: "deletes", title: "Deletes", unit: "per second", is_rate: true, emphasis: Emphasis::Work };
pub(super) static READY: SeriesInfo =
    SeriesInfo { name: "ready", title: "Ready jobs", unit: "jobs", is_rate: false, emphasis: Emphasis::Caution };

/// Returns a column without a metric.
pub(super) const fn shown(name: &'static str, title: &'static str, unit: ColumnUnit, help: &'static str) -> Column {
    Column { name, title, unit, help, ..Column::BLANK }
}

pub(super) const fn marked(emphasis: Emphasis, column: Column) -> Column {
    Column { emphasis, ..column }
}

/// Returns the column of a rate, for people: a metric has the count, from which a rate over any time can be computed.
const fn rate(name: &'static str, title: &'static str, help: &'static str) -> Column {
    shown(name, title, ColumnUnit::Level, help)
}

const fn busy(help: &'static str) -> Column {
    shown("busy", "for", ColumnUnit::Age, help)
}

/// Returns the cell of a name, which may be empty.
pub(super) fn name_or_nothing(bytes: &[u8]) -> Cell {
    if bytes.is_empty() { Cell::Nothing } else { Cell::Name(bytes.into()) }
}
