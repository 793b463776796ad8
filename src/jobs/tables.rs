//! The tables, the matrix and the curves that the jobs tell operators of, before they have rows.

use super::operations::OF_BURIED;
use poolcounter_service::report::{Column, ColumnMetric, ColumnUnit, Emphasis, MatrixInfo, SeriesInfo, TableInfo};

/// Declares a table of tubes that are summed up in some way: wikis, types, or each by itself.
macro_rules! sums {
    ($table:ident, $name:literal, $title:literal, $of:literal, $unit:expr, $metric:literal, $by:literal, $pickup:expr) => {
        pub(super) static $table: TableInfo = TableInfo {
            name: $name,
            title: $title,
            help: "Those with the most jobs come first, or of a range the worst. Rates in a minute are of the last one.",
            empty: "There is no tube.",
            is_of_kinds: true,
            columns: &[
                Column {
                    name: "name",
                    title: $of,
                    unit: $unit,
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
                    metric: ColumnMetric::Each(concat!($metric, "_oldest_ready")),
                    emphasis: Emphasis::Caution,
                },
                Column {
                    name: "pickup",
                    title: "pick-up",
                    unit: ColumnUnit::Times,
                    help: concat!("How long jobs were ready before they were reserved, by ", $by),
                    metric: $pickup,
                    emphasis: Emphasis::None,
                },
                rate("put_rate", "put/min", "Jobs put in a minute."),
                rate("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
                rate("delete_rate", "deleted/min", "Jobs deleted in a minute."),
                Column::count("put", "put", concat!($metric, "_put"), concat!("Jobs put, by ", $by)),
                Column::count("reserves", "reserves", concat!($metric, "_reserves"), concat!("Reservations, by ", $by)),
                Column {
                    emphasis: Emphasis::Work,
                    ..Column::count(
                        "deletes",
                        "deleted",
                        concat!($metric, "_deletes"),
                        concat!("Jobs deleted by clients, by ", $by),
                    )
                },
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
                Column {
                    emphasis: Emphasis::Caution,
                    ..Column::count(
                        "failures",
                        "failures",
                        concat!($metric, "_failures"),
                        concat!("Reservations that ended without the job being done, by ", $by),
                    )
                },
            ],
        };
    };
}

sums!(
    WIKIS,
    "wikis",
    "Jobs by wiki",
    "wiki",
    ColumnUnit::Linked("/jobs/wiki/"),
    "wiki",
    "wiki.",
    ColumnMetric::Each("wiki_pickup")
);
sums!(
    TYPES,
    "types",
    "Jobs by type",
    "type",
    ColumnUnit::Linked("/jobs/type/"),
    "type",
    "type.",
    ColumnMetric::Each("type_pickup")
);
// Which tubes are told of changes all the time, and there is no room in the metrics for histograms of so many.
sums!(TUBES, "tubes", "Tubes", "tube", ColumnUnit::Name, "tube", "tube.", ColumnMetric::None);

pub(super) static RUNNERS: TableInfo = TableInfo {
    name: "runners",
    title: "Runners",
    help: "By the name that they said with identify. Rates are of the last minute.",
    empty: "No connection has reserved a job.",
    is_of_kinds: false,
    columns: &[
        Column {
            name: "name",
            title: "runner",
            unit: ColumnUnit::Linked("/jobs/runner/"),
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
        Column {
            name: "tube",
            title: "works on",
            unit: ColumnUnit::Name,
            help: "The tube of the job that is held for longest.",
            ..Column::BLANK
        },
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
        Column {
            emphasis: Emphasis::Caution,
            ..Column::level(
                "failures",
                "failures",
                "runner_failures",
                "Reservations of the connections that there are that ended without the job being done, by runner.",
            )
        },
    ],
};

/// What a runner does now, in a table of its connections.
pub(super) static RUNNER: TableInfo = TableInfo {
    name: "connections",
    title: "Connections",
    help: "Of the jobs that a connection holds, the one whose time to run ends first is told of.",
    empty: "It is not connected.",
    is_of_kinds: false,
    columns: &[
        Column { name: "peer", title: "from", unit: ColumnUnit::Address, help: "The peer.", ..Column::BLANK },
        Column {
            name: "state",
            title: "state",
            unit: ColumnUnit::Text,
            help: "Whether it works on a job or waits for one.",
            ..Column::BLANK
        },
        Column { name: "job", title: "job", unit: ColumnUnit::Text, help: "The number of the job.", ..Column::BLANK },
        Column { name: "tube", title: "tube", unit: ColumnUnit::Name, help: "Its tube.", ..Column::BLANK },
        busy("How long it has held that job."),
        Column { name: "held", title: "held", unit: ColumnUnit::Level, help: "Jobs that it holds.", ..Column::BLANK },
        rate("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
        rate("delete_rate", "deleted/min", "Jobs deleted in a minute."),
        Column {
            name: "failures",
            title: "failures",
            unit: ColumnUnit::Level,
            help: "Reservations that ended without the job being done.",
            emphasis: Emphasis::Caution,
            ..Column::BLANK
        },
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
        Column {
            name: "id",
            title: "job",
            unit: ColumnUnit::Key(OF_BURIED),
            help: "The number of the job.",
            ..Column::BLANK
        },
        Column { name: "tube", title: "tube", unit: ColumnUnit::Name, help: "Its tube.", ..Column::BLANK },
        Column { name: "buried", title: "for", unit: ColumnUnit::Age, help: "How long it is buried.", ..Column::BLANK },
        Column { name: "age", title: "age", unit: ColumnUnit::Age, help: "How long ago it was put.", ..Column::BLANK },
        Column {
            name: "reserves",
            title: "reserves",
            unit: ColumnUnit::Level,
            help: "How often it was reserved.",
            ..Column::BLANK
        },
        Column { name: "key", title: "key", unit: ColumnUnit::Name, help: "Its key.", ..Column::BLANK },
        Column { name: "error", title: "error", unit: ColumnUnit::Name, help: "Why it failed.", ..Column::BLANK },
    ],
};

pub(super) static MATRIX: MatrixInfo = MatrixInfo {
    title: "Ready jobs by wiki and type",
    help: "How many are ready, and for how long the oldest is. The worst come first.",
    empty: "No job is ready.",
    row: ("wiki", "/jobs/wiki/"),
    column: ("type", "/jobs/type/"),
    path: "/jobs/matrix",
};

pub(super) static STORES: TableInfo = TableInfo {
    name: "stores",
    title: "Where jobs are kept",
    help: "Replies that promise something leave after the commit.",
    empty: "Jobs are kept in memory only.",
    is_of_kinds: false,
    columns: &[
        Column {
            name: "store",
            title: "store",
            unit: ColumnUnit::Text,
            help: "The file or the database.",
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
        Column {
            unit: ColumnUnit::Bytes,
            name: "file",
            title: "file",
            help: "Bytes of the files, where it is one.",
            ..Column::BLANK
        },
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

pub(super) static PUT: SeriesInfo =
    SeriesInfo { name: "put", title: "Jobs put", unit: "per second", is_rate: true, emphasis: Emphasis::None };
pub(super) static DELETES: SeriesInfo =
    SeriesInfo { name: "deletes", title: "Deletes", unit: "per second", is_rate: true, emphasis: Emphasis::Work };
pub(super) static READY: SeriesInfo =
    SeriesInfo { name: "ready", title: "Jobs that wait", unit: "jobs", is_rate: false, emphasis: Emphasis::Caution };

/// A rate is for people: a metric has the count, of which a rate is made over any time.
const fn rate(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column { name, title, unit: ColumnUnit::Level, help, ..Column::BLANK }
}

const fn busy(help: &'static str) -> Column {
    Column { name: "busy", title: "for", unit: ColumnUnit::Age, help, ..Column::BLANK }
}
