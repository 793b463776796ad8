//! Tables, the matrix and the curves of the jobs.

use crate::buried_groups::summary_text;
use crate::operations::OPERATIONS;
use crate::options::PartNames;
use crate::state::queries::{JobStats, Summaries, Summary};
use crate::state::views::RunnerConn;
use crate::state::{Counted, JobState};
use poolcounter_core::{Span, Time};
use poolcounter_service::contract::Peers;
use poolcounter_service::report::Emphasis::{Alarm, Caution, Work};
use poolcounter_service::report::{Cell, ColumnMetric, Emphasis, Matrix, SeriesInfo, Table, table};

/// Paths below which there are pages about each tube, job, root job and runner.
pub(super) const TUBES: &str = "/jobs/tube/";
pub(super) const JOBS: &str = "/jobs/job/";
pub(super) const ROOTS: &str = "/jobs/root/";
const RUNNERS: &str = "/jobs/runner/";

/// Names of the operations on a buried job, and on the jobs that failed in the same way.
pub(super) const OF_BURIED: &[&str] = &[OPERATIONS[0].name, OPERATIONS[1].name];
pub(crate) const OF_GROUP: &[&str] = &[OPERATIONS[2].name, OPERATIONS[3].name];

/// Buried jobs with the same error.
pub(crate) struct BuriedGroup<'a> {
    /// Last part of their tubes' names.
    pub part: &'a [u8],
    pub jobs: u64,
    pub first: Span,
    /// Job that was buried last, with the time since its burial.
    pub last: (&'a JobStats<'a>, Span),
}

/// Tables and matrix that are named by the words for the first and the last part of a tube's name.
impl PartNames {
    /// Returns the table of jobs by first part (0) or by last part (1).
    pub(crate) fn part(&self, n: usize, rows: Summaries, now: Time) -> Table {
        let word = &self.0[n];
        let table = sums(word, self.path(n), rows, now);
        Table { name: format!("{word}s").into(), title: format!("Jobs by {word}").into(), ..table }
    }

    /// Returns the table of buried jobs by last part and by error. `actions` act on a group in all tubes.
    pub(crate) fn errors(&self, actions: &'static [&'static str], groups: &[BuriedGroup<'_>]) -> Table {
        let mut table = table!(BuriedGroup<'_>, "errors", "Buried by error", groups;
            "part", "", Name, "Last part of the tubes' names.", |group| name_or_nothing(group.part);
            "jobs", "jobs", Number marked(Alarm), "Jobs buried with this error.", |group| group.jobs;
            "first", "first", Seconds, "Time since the first of them was buried.", |group| group.first;
            "last", "last", Seconds, "Time since the last of them was buried.", |group| group.last.1;
            "job", "for example", Key to(JOBS) acts(actions), "The job that was buried last.",
                |group| Cell::text(group.last.0.id.to_string());
            "error", "error", Text marked(Alarm), "First line of the error of that job.", |group| error(group.last.0);
        );
        table.columns[0].title = self.0[1].clone().into();
        table.help("Errors are compared by their first line, without regard to numbers in it.")
    }

    /// Returns the matrix of first parts against last parts, without names.
    pub(crate) fn matrix(&self) -> Matrix {
        let [first, last] = &self.0;
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
    pub(crate) fn path(&self, n: usize) -> String {
        format!("/jobs/{}/", self.0[n])
    }
}

/// Columns of times in a table of sums.
const PICKUP: usize = 7;
const RUN: usize = 8;

/// Returns the table of tubes. The tubes in it change all the time, and metrics have no room for histograms of so many.
/// Times of runs are the times of sums.
pub(crate) fn tubes(rows: Summaries, now: Time) -> Table {
    let mut table = sums("tube", TUBES.into(), rows, now);
    table.columns[PICKUP].metric = ColumnMetric::None;
    table.columns.remove(RUN);
    table.rows.iter_mut().for_each(|row| _ = row.remove(RUN));
    Table { name: "tubes".into(), title: "Tubes".into(), ..table }
}

/// Returns the events of the last minute, of a rate in events a second.
fn per_minute(rate: f64) -> u64 {
    // Lossless: no daemon takes so many jobs in a minute.
    (rate * 60.0).round() as u64
}

/// Returns a table of tubes that are summed up by the part that the word names, or are listed one by one.
fn sums(word: &str, path: String, rows: Summaries, now: Time) -> Table {
    type Row = (Vec<u8>, Summary);
    let metric = |name: &str| format!("{word}_{name}");
    let by = |what: &str| format!("{what}, by {word}.");
    let jobs = |of: &Summary, state: JobState| of.counts[state as usize];
    let rate = |of: &Summary, event| per_minute(of.tally.rates.of(event, now)[0]);
    let count = |of: &Summary, event: Counted| of.tally.counts[event as usize];
    let mut table = table!(Row, "", "", rows;
        "name", "", Name to(path) label(word.to_string()), "The name.", |(name, _)| Cell::text(name);
        "ready", "ready", Number each(metric("ready")) marked(Work), by("Jobs that wait for a runner"), |(_, of)| jobs(of, JobState::Ready);
        "reserved", "reserved", Number each(metric("reserved")), by("Jobs that runners hold"), |(_, of)| jobs(of, JobState::Reserved);
        "delayed", "delayed", Number each(metric("delayed")), by("Jobs whose delay is not over, without those to be retried"),
            |(_, of)| jobs(of, JobState::Delayed) - of.retrying;
        "retrying", "to be retried", Number each(metric("retrying")) marked(Caution),
            by("Failed jobs that wait for their next attempt"), |(_, of)| of.retrying;
        "buried", "buried", Number each(metric("buried")) marked(Alarm), by("Jobs that wait for a kick"), |(_, of)| jobs(of, JobState::Buried);
        "oldest_ready", "oldest", Seconds each(metric("oldest_ready")) marked(Caution),
            "Time for which the oldest ready job has been ready.", |(_, of)| of.oldest_ready;
        "pickup", "pick-up", Times each(metric("pickup")), by("Time from ready to reserved"), |(_, of)| of.tally.pickups.clone();
        "run", "run time", Times each(metric("run")), by("Time from reserved to deleted"), |(_, of)| of.tally.runs.clone();
        "put_rate", "put/min", Number, "Jobs put in a minute.", |(_, of)| rate(of, Counted::Put);
        "reserve_rate", "reserved/min", Number, "Jobs reserved in a minute.", |(_, of)| rate(of, Counted::Reserve);
        "delete_rate", "deleted/min", Number, "Jobs deleted in a minute.", |(_, of)| rate(of, Counted::Delete);
        "put", "put", Number counts(metric("put")), by("Jobs put"), |(_, of)| count(of, Counted::Put);
        "reserves", "reserves", Number counts(metric("reserves")), by("Reservations"), |(_, of)| count(of, Counted::Reserve);
        "deletes", "deleted", Number counts(metric("deletes")) marked(Work), by("Jobs deleted by clients"), |(_, of)| count(of, Counted::Delete);
        "duplicates", "duplicates", Number counts(metric("duplicates")), by("Jobs not queued because of their key"),
            |(_, of)| count(of, Counted::Duplicate);
        "superseded", "superseded", Number counts(metric("superseded")),
            by("Leaves of superseded root jobs that were refused or dropped"), |(_, of)| count(of, Counted::Superseded);
        "failures", "failures", Number counts(metric("failures")) marked(Caution),
            by("Reservations that ended without the job being done"), |(_, of)| count(of, Counted::Failure);
        "error", "last error", Text, "Text of the last failure.",
            |(_, of)| of.tally.last_error.as_ref().map(|error| Cell::prose(&error.text));
        "error_age", "ago", Seconds, "Time since that failure.",
            |(_, of)| of.tally.last_error.as_ref().map(|error| now.since(error.at));
    );
    table.columns[0].title = word.to_string().into();
    table
        .help(
            "Sorted by queue size (in a time range: worst first). Rates of single tubes are those of the last minute.",
        )
        .empty("No tubes. A tube begins with its first job: poolcounter jobs put TUBE BODY")
        .of_kinds()
}

pub(crate) fn runners(rows: Summaries, now: Time) -> Table {
    type Row = (Vec<u8>, Summary);
    let rate = |of: &Summary, event| per_minute(of.tally.rates.of(event, now)[0]);
    table!(Row, "runners", "Runners", rows;
        "name", "runner", Name to(RUNNERS) label("runner"), "Name; empty for connections that gave none.", |(name, _)| Cell::text(name);
        "connections", "connections", Number each("runner_connections"), "Connections, by runner.", |(_, of)| of.conns;
        "waiting", "waiting", Number each("runner_waiting"), "Connections that wait for a job, by runner.", |(_, of)| of.waiting;
        "reserved", "reserved", Number each("runner_reserved") marked(Work), "Reserved jobs, by runner.", |(_, of)| of.counts.iter().sum::<u64>();
        "tube", "works on", Name to(TUBES), "Tube of the job held longest.", |(_, of)| of.busy.as_ref().map(|(tube, _)| Cell::text(tube));
        "busy", "for", Seconds each("runner_busy"), "Time since the reservation of the job held longest, by runner.",
            |(_, of)| of.busy.as_ref().map(|(_, span)| *span);
        "reserve_rate", "reserved/min", Number each("runner_reserves_per_minute"), "Jobs reserved in a minute, by runner.",
            |(_, of)| rate(of, Counted::Reserve);
        "delete_rate", "deleted/min", Number each("runner_deletes_per_minute"), "Jobs deleted in a minute, by runner.",
            |(_, of)| rate(of, Counted::Delete);
        "failures", "failures", Number each("runner_failures") marked(Caution),
            "Reservations of the present connections that ended without the job being done, by runner.",
            |(_, of)| of.tally.counts[Counted::Failure as usize];
    )
    .help("Grouped by the name given with identify. Rates are those of the last minute.")
    .empty("No runner is connected. A runner begins with: poolcounter jobs run TUBE -- COMMAND")
}

/// Connections of one runner, whose tubes are shown, or of several, whose names are.
pub(crate) fn connections(conns: Vec<RunnerConn<'_>>, shows_tubes: bool, peers: &dyn Peers) -> Table {
    let state_of =
        |conn: &RunnerConn<'_>| if conn.held > 0 { "works" } else { ["idle", "waits"][usize::from(conn.is_waiting)] };
    table!(RunnerConn<'_>, "connections", "Connections", conns;
        "peer", "from", Address, "Address of the peer.", |conn| Cell::text(peers.peer(conn.conn));
        "state", "state", Text, "State: working on a job, or waiting for one.", |conn| Cell::text(state_of(conn));
        "runner", "runner", Name to(RUNNERS), "Name of the runner.", |conn| (!shows_tubes).then(|| name_or_nothing(conn.runner));
        "job", "job", Name to(JOBS), "Number of the job.", |conn| conn.job.map(|(job, ..)| Cell::text(job.to_string()));
        "tube", "tube", Name to(TUBES), "Its tube.", |conn| conn.job.filter(|_| shows_tubes).map(|(_, tube, _)| Cell::text(tube));
        "busy", "for", Seconds, "Time since the reservation of that job.", |conn| conn.job.map(|(.., span)| span);
        "held", "held", Number, "Number of its reserved jobs.", |conn| conn.held;
        "reserve_rate", "reserved/min", Number, "Jobs reserved in a minute.", |conn| per_minute(conn.rates[0]);
        "delete_rate", "deleted/min", Number, "Jobs deleted in a minute.", |conn| per_minute(conn.rates[1]);
        "failures", "failures", Number marked(Caution), "Reservations that ended without the job being done.", |conn| conn.failures;
    )
    .help("Shows the job with the earliest deadline per connection.")
    .empty("No runner is connected here.")
}

pub(crate) static PUT: SeriesInfo = SeriesInfo::rate("put", "Jobs put", Emphasis::None);
pub(crate) static DELETES: SeriesInfo = SeriesInfo::rate("deletes", "Deletes", Work);
pub(crate) static READY: SeriesInfo = SeriesInfo::level("ready", "Ready jobs", "jobs", Caution);

/// Returns the cell of a name, which may be empty.
pub(super) fn name_or_nothing(bytes: &[u8]) -> Cell {
    if bytes.is_empty() { Cell::Nothing } else { Cell::text(bytes) }
}

/// Returns the cell of the error of a job, which may have none.
pub(super) fn error(job: &JobStats<'_>) -> Cell {
    let text = summary_text(job.error);
    if text.is_empty() { Cell::Nothing } else { Cell::prose(text) }
}
