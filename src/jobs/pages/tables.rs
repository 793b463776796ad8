//! Definitions of the tables, the matrix and the curves of the jobs.

use crate::operations::OPERATIONS;
use poolcounter_service::report::{Cell, Column, ColumnUnit, Emphasis, Matrix, SeriesInfo, Table};

/// Tables and matrix that are named by the words for the first and the last part of a tube's name.
pub(crate) struct PartTables {
    /// Words for the first and for the last part.
    pub words: [String; 2],
}

/// Paths below which there are pages about each tube, job and root job.
pub(crate) const TUBES: &str = "/jobs/tube/";
pub(crate) const JOBS: &str = "/jobs/job/";
pub(crate) const ROOTS: &str = "/jobs/root/";

/// Names of the operations on a buried job, and on the jobs that failed in the same way.
pub(crate) const OF_BURIED: &[&str] = &[OPERATIONS[0].name, OPERATIONS[1].name];
pub(crate) const OF_GROUP: &[&str] = &[OPERATIONS[2].name, OPERATIONS[3].name];

impl PartTables {
    /// Returns the table of jobs by first part (0) or by last part (1).
    pub fn part(&self, n: usize) -> Table {
        let word = &self.words[n];
        sums(format!("{word}s"), format!("Jobs by {word}"), word, self.path(n), true)
    }

    /// Returns the table of tubes. The tubes in it change all the time, and metrics have no room for histograms of so
    /// many.
    pub fn tubes(&self) -> Table {
        sums("tubes".into(), "Tubes".into(), "tube", TUBES.into(), false)
    }

    /// Returns the table of buried jobs by last part and by error. `actions` act on a group in all tubes.
    pub fn errors(&self, actions: &'static [&'static str]) -> Table {
        let columns = vec![
            Column::new("part", self.words[1].clone(), ColumnUnit::Name, "Last part of the tubes' names."),
            number("jobs", "jobs", "Jobs buried with this error.").marked(Emphasis::Alarm),
            seconds("first", "first", "Time since the first of them was buried."),
            seconds("last", "last", "Time since the last of them was buried."),
            Column {
                unit: ColumnUnit::Key,
                actions,
                ..Column::linked("job", "for example", JOBS, "The job that was buried last.")
            },
            text("error", "error", "First line of the error of that job.").marked(Emphasis::Alarm),
        ];
        Table::new("errors", "Buried by error", columns)
            .help("Errors are compared by their first line, without regard to numbers in it.")
    }

    /// Returns the matrix of first parts against last parts, without names.
    pub fn matrix(&self) -> Matrix {
        let [first, last] = &self.words;
        Matrix {
            title: format!("Ready jobs by {first} and {last}").into(),
            help: "Number of ready jobs, and the age of the oldest. The worst come first.".into(),
            empty: "No job is ready.".into(),
            row: (first.clone().into(), self.path(0).into()),
            column: (last.clone().into(), self.path(1).into()),
            path: "/jobs/matrix".into(),
            ..Matrix::default()
        }
    }

    /// Returns the path of the pages about each first or last part.
    pub fn path(&self, n: usize) -> String {
        format!("/jobs/{}/", self.words[n])
    }
}

pub(crate) fn number(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column::new(name, title, ColumnUnit::Number, help)
}

pub(crate) fn seconds(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column::new(name, title, ColumnUnit::Seconds, help)
}

pub(crate) fn text(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column::new(name, title, ColumnUnit::Text, help)
}

pub(crate) fn name(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column::new(name, title, ColumnUnit::Name, help)
}

/// Place of the column of run times, which the table of single tubes does not have.
pub(crate) const RUN: usize = 8;

/// Returns a table of tubes that are summed up by the part that the word names, or are listed one by one.
fn sums(name: String, title: String, word: &str, path: String, has_metrics_of_times: bool) -> Table {
    let metric = |name: &str| format!("{word}_{name}");
    let by = |what: &str| format!("{what}, by {word}.");
    let level = |name: &'static str, what| Column::level(name, name, metric(name), by(what));
    let count = |name: &'static str, title: &'static str, what| Column::count(name, title, metric(name), by(what));
    let times = |name: &'static str, title: &'static str, what| {
        let column = Column::new(name, title, ColumnUnit::Times, by(what));
        if has_metrics_of_times { column.each(metric(name)) } else { column }
    };
    let oldest_help = "Time for which the oldest ready job has been ready.";
    let mut columns = vec![
        Column::linked("name", word.to_string(), path, "The name.").label(word.to_string()),
        level("ready", "Jobs that wait for a runner").marked(Emphasis::Work),
        level("reserved", "Jobs that runners hold"),
        level("delayed", "Jobs whose delay is not over, without those to be retried"),
        Column {
            title: "to be retried".into(),
            ..level("retrying", "Failed jobs that wait for their next attempt").marked(Emphasis::Caution)
        },
        level("buried", "Jobs that wait for a kick").marked(Emphasis::Alarm),
        seconds("oldest_ready", "oldest", oldest_help).each(metric("oldest_ready")).marked(Emphasis::Caution),
        times("pickup", "pick-up", "Time from ready to reserved"),
        times("run", "run time", "Time from reserved to deleted"),
        number("put_rate", "put/min", "Jobs put in a minute."),
        number("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
        number("delete_rate", "deleted/min", "Jobs deleted in a minute."),
        count("put", "put", "Jobs put"),
        count("reserves", "reserves", "Reservations"),
        count("deletes", "deleted", "Jobs deleted by clients").marked(Emphasis::Work),
        count("duplicates", "duplicates", "Jobs not queued because of their key"),
        count("superseded", "superseded", "Leaves of superseded root jobs that were refused or dropped"),
        count("failures", "failures", "Reservations that ended without the job being done").marked(Emphasis::Caution),
        text("error", "last error", "Text of the last failure."),
        seconds("error_age", "ago", "Time since that failure."),
    ];
    if !has_metrics_of_times {
        columns.remove(RUN);
    }
    Table::new(name, title, columns)
        .help(
            "Sorted by queue size (in a time range: worst first). Rates of single tubes are those of the last minute.",
        )
        .empty("No tubes. A tube begins with its first job: poolcounter jobs put TUBE BODY")
        .of_kinds()
}

pub(crate) fn runners_table() -> Table {
    Table::new(
        "runners",
        "Runners",
        vec![
            Column::linked("name", "runner", "/jobs/runner/", "Name; empty for connections that gave none.")
                .label("runner"),
            Column::level("connections", "connections", "runner_connections", "Connections, by runner."),
            Column::level("waiting", "waiting", "runner_waiting", "Connections that wait for a job, by runner."),
            Column::level("reserved", "reserved", "runner_reserved", "Reserved jobs, by runner.")
                .marked(Emphasis::Work),
            Column::linked("tube", "works on", TUBES, "Tube of the job held longest."),
            seconds("busy", "for", "Time since the reservation of the job held longest, by runner.")
                .each("runner_busy"),
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
            Column::level(
                "failures",
                "failures",
                "runner_failures",
                "Reservations of the present connections that ended without the job being done, by runner.",
            )
            .marked(Emphasis::Caution),
        ],
    )
    .help("Grouped by the name given with identify. Rates are those of the last minute.")
    .empty("No runner is connected. A runner begins with: poolcounter jobs run TUBE -- COMMAND")
}

/// Connections of one runner.
pub(crate) fn runner_table() -> Table {
    Table::new(
        "connections",
        "Connections",
        vec![
            Column::new("peer", "from", ColumnUnit::Address, "Address of the peer."),
            text("state", "state", "State: working on a job, or waiting for one."),
            Column::linked("runner", "runner", "/jobs/runner/", "Name of the runner."),
            Column::linked("job", "job", JOBS, "Number of the job."),
            Column::linked("tube", "tube", TUBES, "Its tube."),
            seconds("busy", "for", "Time since the reservation of that job."),
            number("held", "held", "Number of its reserved jobs."),
            number("reserve_rate", "reserved/min", "Jobs reserved in a minute."),
            number("delete_rate", "deleted/min", "Jobs deleted in a minute."),
            number("failures", "failures", "Reservations that ended without the job being done.")
                .marked(Emphasis::Caution),
        ],
    )
    .help("Shows the job with the earliest deadline per connection.")
    .empty("No runner is connected here.")
}

/// Jobs that are buried until a kick.
pub(crate) fn buried_table() -> Table {
    Table::new(
        "buried",
        "Buried jobs",
        vec![
            Column {
                unit: ColumnUnit::Key,
                actions: OF_BURIED,
                ..Column::linked("id", "job", JOBS, "Number of the job.")
            },
            Column::linked("tube", "tube", TUBES, "Its tube."),
            seconds("buried", "for", "Time since it was buried."),
            seconds("age", "age", "Time since it was put."),
            number("reserves", "reserves", "Number of its reservations."),
            name("key", "key", "Its key."),
            text("error", "error", "Error of its last failure.").marked(Emphasis::Alarm),
        ],
    )
    .help("The latest buried jobs of each tube; they wait for a kick.")
    .empty("No job is buried.")
}

/// Jobs of a tube that wait for a runner.
pub(crate) fn ready_jobs_table() -> Table {
    Table::new(
        "ready_jobs",
        "Ready jobs",
        vec![
            Column::linked("id", "job", JOBS, "Number of the job."),
            seconds("ready", "for", "Time for which it has been ready."),
            number("pri", "priority", "Its priority; lower numbers are served first."),
            seconds("age", "age", "Time since it was put."),
            number("reserves", "reserves", "Number of its reservations."),
            number("attempts", "failed", "Attempts that failed since it was put, kicked or moved."),
            name("key", "key", "Its key."),
            name("group", "group", "Its group."),
        ],
    )
    .help("Jobs that have been ready longest come first.")
    .empty("No job is ready.")
}

/// Settings that apply to some tubes.
pub(crate) fn settings_table() -> Table {
    Table::new(
        "settings",
        "Settings",
        vec![
            text("setting", "setting", "Command that sets it."),
            name("of", "of", "Its pattern."),
            text("value", "value", "Its value, as in its command."),
            seconds("left", "left", "Time until the pause ends, or until the rate allows the next start."),
            text("origin", "set by", "The configuration file, or a command."),
        ],
    )
    .empty("Nothing is set.")
}

/// Periodic jobs.
pub(crate) fn schedules_table() -> Table {
    Table::new(
        "schedules",
        "Periodic jobs",
        vec![
            name("name", "name", "Its name.").label("schedule"),
            Column::linked("tube", "tube", TUBES, "Tube into which it is put."),
            text("times", "times", "Expression of cron and zone, or seconds."),
            text("missed", "if missed", "Whether a job is put late for a missed time."),
            seconds("next", "next in", "Time until it is put next, by schedule.").each("schedule_next"),
            seconds("last", "last", "Time since it was put last, by schedule.").each("schedule_last"),
            Column::count(
                "skipped",
                "skipped",
                "schedule_skipped",
                "Times at which a periodic job was not put, by schedule.",
            )
            .marked(Emphasis::Caution),
            text("origin", "set by", "The configuration file, or a command."),
        ],
    )
    .help(
        "A time is skipped while the job of the one before still waits, when there is no room, or when it was missed.",
    )
    .empty("No job is put periodically. A first one: poolcounter jobs schedule --every 3600 put NAME TUBE BODY")
}

/// One job.
pub(crate) fn job_table() -> Table {
    Table::new(
        "job",
        "Job",
        vec![
            Column::linked("tube", "tube", TUBES, "Its tube."),
            text("state", "state", "State of the job."),
            seconds("for", "for", "Time for which it has been ready or buried."),
            seconds("left", "left", "Time until its delay or its time to run ends."),
            number("pri", "priority", "Its priority; lower numbers are served first."),
            seconds("age", "age", "Time since it was put."),
            seconds("ttr", "time to run", "Time for which a runner may hold it."),
            number("reserves", "reserves", "Number of its reservations."),
            number("attempts", "failed", "Attempts that failed since it was put, kicked or moved.")
                .marked(Emphasis::Caution),
            number("timeouts", "timeouts", "Number of times that its time to run ended."),
            number("releases", "releases", "Number of its releases."),
            number("buries", "buries", "Number of times that it was buried."),
            number("kicks", "kicks", "Number of times that it was kicked."),
            name("key", "key", "Its key."),
            name("group", "group", "Its group."),
            Column::linked("root", "root job", ROOTS, "Tube and signature of its root job."),
            Column {
                unit: ColumnUnit::Key,
                actions: OF_BURIED,
                ..Column::linked("id", "buried", JOBS, "Its number, with buttons, if it is buried.")
            },
        ],
    )
}

/// One root job. Its leaves are in the lists of jobs, where superseded ones are marked.
pub(crate) fn root_table() -> Table {
    Table::new(
        "root",
        "Root job",
        vec![
            Column::linked("tube", "tube", TUBES, "Tube of its leaves."),
            name("signature", "signature", "Signature that leaves give."),
            text("newest", "newest timestamp", "Newest of its timestamps."),
            seconds("changed", "changed", "Time since its last change; it is kept for 28 days from that."),
        ],
    )
    .help("A leaf with an older timestamp is superseded: it is dropped when it would be reserved, unless it is buried.")
}

/// Root jobs that a search has found.
pub(crate) fn roots_table() -> Table {
    let root = Column::linked("root", "root job", ROOTS, "Tube and signature of the root job.");
    Table::new("roots", "Root jobs", vec![root])
}

pub(crate) fn stores_table() -> Table {
    Table::new(
        "stores",
        "Job store",
        vec![
            text("queue", "queue", "Name of the queue: jobs.name, or else its store.").label("queue"),
            text("store", "store", "File or database.").label("store"),
            Column {
                unit: ColumnUnit::Times,
                ..Column::level("commits", "commits", "commit", "Time that commits took.")
            },
            Column::new(
                "checkpoints",
                "checkpoints",
                ColumnUnit::Times,
                "Time that checkpoints took, which move the store's log into its file and delay commits.",
            )
            .each("checkpoint"),
            seconds("oldest", "oldest change", "Time for which the oldest uncommitted change has waited.")
                .marked(Emphasis::Caution),
            number("batch", "last batch", "Changes in the last batch."),
            Column::new("file", "file", ColumnUnit::Bytes, "Size of the store's files; empty for a database."),
            Column::level(
                "serves",
                "serves",
                "queue_owner",
                "1 if this daemon serves the queue, 0 if it is a standby; only for stores that several daemons share.",
            ),
            text("owner", "owner", "Daemon that serves the jobs of a shared store, and the number of its take-over."),
            seconds("owned", "since", "Time for which that daemon has served them."),
            text("fault", "fault", "Reason of the store's failure.").marked(Emphasis::Alarm),
        ],
    )
    .help("Replies to changes are sent after the commit.")
    .empty("Jobs are kept in memory only.")
}

pub(crate) static PUT: SeriesInfo =
    SeriesInfo { name: "put", title: "Jobs put", unit: "per second", is_rate: true, emphasis: Emphasis::None };
pub(crate) static DELETES: SeriesInfo =
    SeriesInfo { name: "deletes", title: "Deletes", unit: "per second", is_rate: true, emphasis: Emphasis::Work };
pub(crate) static READY: SeriesInfo =
    SeriesInfo { name: "ready", title: "Ready jobs", unit: "jobs", is_rate: false, emphasis: Emphasis::Caution };

/// Returns the cell of a name, which may be empty.
pub(crate) fn name_or_nothing(bytes: &[u8]) -> Cell {
    if bytes.is_empty() { Cell::Nothing } else { Cell::text(bytes) }
}

/// Returns the cell of an error, which may be empty.
pub(crate) fn prose_or_nothing(bytes: &[u8]) -> Cell {
    if bytes.is_empty() { Cell::Nothing } else { Cell::prose(bytes) }
}
