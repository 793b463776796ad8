//! The tables, the matrix and the curves that the jobs tell operators of, before they have rows.

use super::operations::OF_BURIED;
use poolcounter_service::report::{Column, ColumnMetric, ColumnUnit, Emphasis, MatrixInfo, SeriesInfo, TableInfo};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Tables and matrix that are called by the words for the first and the last part of a tube's name.
pub(super) struct PartTables {
    /// The word for the first part and that for the last.
    pub words: [&'static str; 2],
    /// Jobs by first part and by last part.
    pub parts: [TableInfo; 2],
    /// Jobs by tube.
    pub tubes: TableInfo,
    /// First parts against last parts; knows the paths of their pages.
    pub matrix: MatrixInfo,
}

/// Tables by the words in them. They last as long as the process, since reports refer to them.
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
        // Which tubes are told of changes all the time, and there is no room in the metrics for histograms of so many.
        let tubes = columns_of_sums("tube", ColumnUnit::Name, false);
        PartTables {
            words,
            parts: [part(0), part(1)],
            tubes: TableInfo { name: "tubes", title: "Tubes", columns: tubes, ..SUMS },
            matrix: MatrixInfo {
                title: kept(format!("Ready jobs by {} and {}", words[0], words[1])),
                help: "How many are ready, and for how long the oldest is. The worst come first.",
                empty: "No job is ready.",
                row: (words[0], paths[0]),
                column: (words[1], paths[1]),
                path: "/jobs/matrix",
            },
        }
    }
}

/// Parts that the tables of sums share.
const SUMS: TableInfo = TableInfo {
    name: "",
    title: "",
    help: "Those with the most jobs come first, or of a range the worst. Rates in a minute are of the last one.",
    empty: "There is no tube.",
    is_of_kinds: true,
    columns: &[],
};

fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// Returns the columns of a table of tubes that are summed up by what the word names, or stand each by itself.
fn columns_of_sums(word: &'static str, unit: ColumnUnit, has_pickups: bool) -> &'static [Column] {
    let metric = |name: &str| kept(format!("{word}_{name}"));
    let by = |what: &str| kept(format!("{what}, by {word}."));
    let level = |name, emphasis, what| Column { emphasis, ..Column::level(name, name, metric(name), by(what)) };
    let count = |name, title, emphasis, what| Column { emphasis, ..Column::count(name, title, metric(name), by(what)) };
    let pickups = if has_pickups { ColumnMetric::Each(metric("pickup")) } else { ColumnMetric::None };
    let pickup_help = by("How long jobs were ready before they were reserved");
    let columns = vec![
        Column { metric: ColumnMetric::Label(word), ..shown("name", word, unit, "The name.") },
        level("ready", Emphasis::Work, "Jobs that wait for a runner"),
        level("reserved", Emphasis::None, "Jobs that runners hold"),
        level("delayed", Emphasis::None, "Jobs whose delay is not over"),
        level("buried", Emphasis::Alarm, "Jobs that wait for a kick"),
        Column {
            unit: ColumnUnit::Age,
            help: "How long the ready job that is ready for longest has been so.",
            title: "oldest",
            ..level("oldest_ready", Emphasis::Caution, "")
        },
        Column { metric: pickups, ..shown("pickup", "pick-up", ColumnUnit::Times, pickup_help) },
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
    ];
    Box::leak(columns.into_boxed_slice())
}

pub(super) static RUNNERS: TableInfo = TableInfo {
    name: "runners",
    title: "Runners",
    help: "By the name that they said with identify. Rates are of the last minute.",
    empty: "No connection has reserved a job.",
    is_of_kinds: false,
    columns: &[
        Column {
            metric: ColumnMetric::Label("runner"),
            ..shown("name", "runner", ColumnUnit::Linked("/jobs/runner/"), "The name; empty for those who said none.")
        },
        Column::level("connections", "connections", "runner_connections", "Connections, by runner."),
        Column::level("waiting", "waiting", "runner_waiting", "Connections that wait for a job, by runner."),
        marked(
            Emphasis::Work,
            Column::level("reserved", "reserved", "runner_reserved", "Jobs that are held, by runner."),
        ),
        shown("tube", "works on", ColumnUnit::Name, "The tube of the job that is held for longest."),
        Column {
            metric: ColumnMetric::Each("runner_busy"),
            ..busy("How long a runner has held the job that it has held for longest, by runner.")
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
                "Reservations of the connections that there are that ended without the job being done, by runner.",
            ),
        ),
    ],
};

/// Connections of one runner.
pub(super) static RUNNER: TableInfo = TableInfo {
    name: "connections",
    title: "Connections",
    help: "Of the jobs that a connection holds, the one whose time to run ends first is told of.",
    empty: "It is not connected.",
    is_of_kinds: false,
    columns: &[
        shown("peer", "from", ColumnUnit::Address, "The peer."),
        shown("state", "state", ColumnUnit::Text, "Whether it works on a job or waits for one."),
        shown("job", "job", ColumnUnit::Text, "The number of the job."),
        shown("tube", "tube", ColumnUnit::Name, "Its tube."),
        busy("How long it has held that job."),
        shown("held", "held", ColumnUnit::Level, "Jobs that it holds."),
        rate("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
        rate("delete_rate", "deleted/min", "Jobs deleted in a minute."),
        marked(Emphasis::Caution, rate("failures", "failures", "Reservations that ended without the job being done.")),
    ],
};

/// Jobs that wait for a kick.
pub(super) static BURIED: TableInfo = TableInfo {
    name: "buried",
    title: "Buried jobs",
    help: "The last ones of each tube: they wait for a kick.",
    empty: "No job is buried.",
    is_of_kinds: false,
    columns: &[
        shown("id", "job", ColumnUnit::Key(OF_BURIED), "The number of the job."),
        shown("tube", "tube", ColumnUnit::Name, "Its tube."),
        shown("buried", "for", ColumnUnit::Age, "How long it is buried."),
        shown("age", "age", ColumnUnit::Age, "How long ago it was put."),
        shown("reserves", "reserves", ColumnUnit::Level, "How often it was reserved."),
        shown("key", "key", ColumnUnit::Name, "Its key."),
        shown("error", "error", ColumnUnit::Name, "Why it failed."),
    ],
};

pub(super) static STORES: TableInfo = TableInfo {
    name: "stores",
    title: "Where jobs are kept",
    help: "Replies that promise something leave after the commit.",
    empty: "Jobs are kept in memory only.",
    is_of_kinds: false,
    columns: &[
        Column {
            metric: ColumnMetric::Label("store"),
            ..shown("store", "store", ColumnUnit::Text, "The file or the database.")
        },
        Column { unit: ColumnUnit::Times, ..Column::level("commits", "commits", "commit", "How long commits took.") },
        Column {
            metric: ColumnMetric::Each("checkpoint"),
            ..shown(
                "checkpoints",
                "checkpoints",
                ColumnUnit::Times,
                "How long it took to bring the store's log into its file, which delays commits.",
            )
        },
        marked(
            Emphasis::Caution,
            shown("oldest", "oldest change", ColumnUnit::Age, "How long the oldest change has waited to be committed."),
        ),
        shown("batch", "last batch", ColumnUnit::Level, "Changes in it."),
        shown("file", "file", ColumnUnit::Bytes, "Bytes of the files, where it is one."),
        shown(
            "owner",
            "owner",
            ColumnUnit::Text,
            "Which of the daemons that share the store serves its jobs, and by which take-over.",
        ),
        shown("owned", "since", ColumnUnit::Age, "For how long it has served them."),
        marked(Emphasis::Alarm, shown("fault", "fault", ColumnUnit::Text, "Why it fails.")),
    ],
};

pub(super) static PUT: SeriesInfo =
    SeriesInfo { name: "put", title: "Jobs put", unit: "per second", is_rate: true, emphasis: Emphasis::None };
pub(super) static DELETES: SeriesInfo =
    SeriesInfo { name: "deletes", title: "Deletes", unit: "per second", is_rate: true, emphasis: Emphasis::Work };
pub(super) static READY: SeriesInfo =
    SeriesInfo { name: "ready", title: "Jobs that wait", unit: "jobs", is_rate: false, emphasis: Emphasis::Caution };

/// Returns a column that is none of the metrics.
const fn shown(name: &'static str, title: &'static str, unit: ColumnUnit, help: &'static str) -> Column {
    Column { name, title, unit, help, ..Column::BLANK }
}

const fn marked(emphasis: Emphasis, column: Column) -> Column {
    Column { emphasis, ..column }
}

/// A rate is for people: a metric has the count, of which a rate is made over any time.
const fn rate(name: &'static str, title: &'static str, help: &'static str) -> Column {
    shown(name, title, ColumnUnit::Level, help)
}

const fn busy(help: &'static str) -> Column {
    shown("busy", "for", ColumnUnit::Age, help)
}
