//! Tables, the matrix and the curves of the jobs. Each column has the function that makes its cells beside it.

use crate::buried_groups::summary_text;
use crate::operations::OPERATIONS;
use crate::options::PartNames;
use crate::state::queries::{JobStats, Summaries, Summary};
use crate::state::views::RunnerConn;
use crate::state::{Counted, JobId, JobState};
use crate::store::Health;
use poolcounter_core::{SmallCount, Span, Time};
use poolcounter_service::contract::Peers;
use poolcounter_service::report::Emphasis::{Alarm, Caution, Work};
use poolcounter_service::report::{Cell, Column, ColumnUnit, Emphasis, Matrix, SeriesInfo, Table};

/// Paths below which there are pages about each tube, job and root job.
pub(super) const TUBES: &str = "/jobs/tube/";
pub(super) const JOBS: &str = "/jobs/job/";
pub(super) const ROOTS: &str = "/jobs/root/";

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

/// Column, and the function that makes its cell of a row.
pub(super) type Shown<R> = (Column, fn(&R) -> Cell);

/// Tables and matrix that are named by the words for the first and the last part of a tube's name.
impl PartNames {
    /// Returns the table of jobs by first part (0) or by last part (1).
    pub(crate) fn part(&self, n: usize, rows: Summaries, now: Time) -> Table {
        let word = &self.0[n];
        let table = sums(word, self.path(n), true, rows, now);
        Table { name: format!("{word}s").into(), title: format!("Jobs by {word}").into(), ..table }
    }

    /// Returns the table of buried jobs by last part and by error. `actions` act on a group in all tubes.
    pub(crate) fn errors(&self, actions: &'static [&'static str], groups: &[BuriedGroup<'_>]) -> Table {
        let job = Column { actions, ..key("job", "for example", "The job that was buried last.") };
        let part = Column::new("part", self.0[1].clone(), ColumnUnit::Name, "Last part of the tubes' names.");
        let columns: [Shown<BuriedGroup<'_>>; 6] = [
            (part, |group| name_or_nothing(group.part)),
            (number("jobs", "jobs", "Jobs buried with this error.").marked(Alarm), |group| Cell::Number(group.jobs)),
            (seconds("first", "first", "Time since the first of them was buried."), |group| Cell::time(group.first)),
            (seconds("last", "last", "Time since the last of them was buried."), |group| Cell::time(group.last.1)),
            (job, |group| id(group.last.0.id)),
            (text("error", "error", "First line of the error of that job.").marked(Alarm), |group| error(group.last.0)),
        ];
        Table::of_cells("errors", "Buried by error", groups, columns)
            .help("Errors are compared by their first line, without regard to numbers in it.")
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

/// Returns the table of tubes. The tubes in it change all the time, and metrics have no room for histograms of so many.
pub(crate) fn tubes(rows: Summaries, now: Time) -> Table {
    Table { name: "tubes".into(), title: "Tubes".into(), ..sums("tube", TUBES.into(), false, rows, now) }
}

/// A tube, a sum or a runner at a moment.
struct SumRow {
    name: Vec<u8>,
    of: Summary,
    rates: [Cell; 3],
    now: Time,
}

impl SumRow {
    fn all(rows: Summaries, now: Time) -> Vec<SumRow> {
        let row = |(name, of): (Vec<u8>, Summary)| {
            let rates = of.rates(now).map(|[last, ..]| per_minute(last));
            SumRow { name, rates, of, now }
        };
        rows.into_iter().map(row).collect()
    }

    fn count(&self, event: Counted) -> Cell {
        Cell::Number(self.of.tally.counts[event as usize].get())
    }

    fn jobs(&self, state: JobState) -> u64 {
        self.of.counts[state as usize]
    }
}

/// Returns the cell of a rate in events a second.
fn per_minute(rate: f64) -> Cell {
    // Lossless: no daemon takes so many jobs in a minute.
    Cell::Number((rate * 60.0).round() as u64)
}

/// Returns a table of tubes that are summed up by the part that the word names, or are listed one by one.
fn sums(word: &str, path: String, has_metrics_of_times: bool, rows: Summaries, now: Time) -> Table {
    let metric = |name: &str| format!("{word}_{name}");
    let by = |what: &str| format!("{what}, by {word}.");
    let level = |name: &'static str, what| Column::level(name, name, metric(name), by(what));
    let count = |name: &'static str, title: &'static str, what| Column::count(name, title, metric(name), by(what));
    let times = |name: &'static str, title: &'static str, what| {
        let column = Column::new(name, title, ColumnUnit::Times, by(what));
        if has_metrics_of_times { column.each(metric(name)) } else { column }
    };
    let name_of = Column::linked("name", word.to_string(), path, "The name.");
    let delayed = level("delayed", "Jobs whose delay is not over, without those to be retried");
    let retrying = level("retrying", "Failed jobs that wait for their next attempt").marked(Caution);
    let oldest = seconds("oldest_ready", "oldest", "Time for which the oldest ready job has been ready.");
    let superseded = "Leaves of superseded root jobs that were refused or dropped";
    let failures = "Reservations that ended without the job being done";
    let columns: [Shown<SumRow>; 20] = [
        (name_of.label(word.to_string()), |row| Cell::text(&row.name)),
        (level("ready", "Jobs that wait for a runner").marked(Work), |row| Cell::Number(row.jobs(JobState::Ready))),
        (level("reserved", "Jobs that runners hold"), |row| Cell::Number(row.jobs(JobState::Reserved))),
        (delayed, |row| Cell::Number(row.jobs(JobState::Delayed) - row.of.retrying)),
        (Column { title: "to be retried".into(), ..retrying }, |row| Cell::Number(row.of.retrying)),
        (level("buried", "Jobs that wait for a kick").marked(Alarm), |row| Cell::Number(row.jobs(JobState::Buried))),
        (oldest.each(metric("oldest_ready")).marked(Caution), |row| Cell::time(row.of.oldest_ready)),
        (times("pickup", "pick-up", "Time from ready to reserved"), |row| Cell::times(row.of.tally.pickups.clone())),
        (times("run", "run time", "Time from reserved to deleted"), |row| Cell::times(row.of.tally.runs.clone())),
        (number("put_rate", "put/min", "Jobs put in a minute."), |row| row.rates[0].clone()),
        (number("reserve_rate", "reserved/min", "Jobs reserved in a minute."), |row| row.rates[1].clone()),
        (number("delete_rate", "deleted/min", "Jobs deleted in a minute."), |row| row.rates[2].clone()),
        (count("put", "put", "Jobs put"), |row| row.count(Counted::Put)),
        (count("reserves", "reserves", "Reservations"), |row| row.count(Counted::Reserve)),
        (count("deletes", "deleted", "Jobs deleted by clients").marked(Work), |row| row.count(Counted::Delete)),
        (count("duplicates", "duplicates", "Jobs not queued because of their key"), |row| {
            row.count(Counted::Duplicate)
        }),
        (count("superseded", "superseded", superseded), |row| row.count(Counted::Superseded)),
        (count("failures", "failures", failures).marked(Caution), |row| row.count(Counted::Failure)),
        (text("error", "last error", "Text of the last failure."), |SumRow { of, .. }| {
            of.tally.last_error.as_ref().map_or(Cell::Nothing, |error| Cell::prose(&error.text))
        }),
        (seconds("error_age", "ago", "Time since that failure."), |SumRow { of, now, .. }| {
            of.tally.last_error.as_ref().map_or(Cell::Nothing, |error| Cell::time(now.since(error.at)))
        }),
    ];
    // Run times are those of sums.
    let columns = columns.into_iter().filter(|(column, _)| has_metrics_of_times || column.name != "run");
    Table::of_cells("", "", SumRow::all(rows, now), columns)
        .help(
            "Sorted by queue size (in a time range: worst first). Rates of single tubes are those of the last minute.",
        )
        .empty("No tubes. A tube begins with its first job: poolcounter jobs put TUBE BODY")
        .of_kinds()
}

pub(crate) fn runners(rows: Summaries, now: Time) -> Table {
    let level = |name: &'static str, metric: &'static str, help| Column::level(name, name, metric, help);
    let waiting = "Connections that wait for a job, by runner.";
    let reserved = level("reserve_rate", "runner_reserves_per_minute", "Jobs reserved in a minute, by runner.");
    let deleted = level("delete_rate", "runner_deletes_per_minute", "Jobs deleted in a minute, by runner.");
    let busy = "Time since the reservation of the job held longest, by runner.";
    let failures = "Reservations of the present connections that ended without the job being done, by runner.";
    let columns: [Shown<SumRow>; 9] = [
        (runner_name("name", "Name; empty for connections that gave none.").label("runner"), |row| {
            Cell::text(&row.name)
        }),
        (level("connections", "runner_connections", "Connections, by runner."), |row| Cell::Number(row.of.conns)),
        (level("waiting", "runner_waiting", waiting), |row| Cell::Number(row.of.waiting)),
        (level("reserved", "runner_reserved", "Reserved jobs, by runner.").marked(Work), |row| {
            Cell::Number(row.of.counts.iter().sum())
        }),
        (Column::linked("tube", "works on", TUBES, "Tube of the job held longest."), |row| {
            row.of.busy.as_ref().map_or(Cell::Nothing, |(tube, _)| Cell::text(tube))
        }),
        (seconds("busy", "for", busy).each("runner_busy"), |row| time_if(row.of.busy.as_ref().map(|(_, span)| *span))),
        (Column { title: "reserved/min".into(), ..reserved }, |row| row.rates[1].clone()),
        (Column { title: "deleted/min".into(), ..deleted }, |row| row.rates[2].clone()),
        (level("failures", "runner_failures", failures).marked(Caution), |row| row.count(Counted::Failure)),
    ];
    Table::of_cells("runners", "Runners", SumRow::all(rows, now), columns)
        .help("Grouped by the name given with identify. Rates are those of the last minute.")
        .empty("No runner is connected. A runner begins with: poolcounter jobs run TUBE -- COMMAND")
}

/// Runners whose connections have all ended: name, address of the last one, and the time since its end.
pub(crate) fn gone(runners: &[(&[u8], &str, Span)]) -> Table {
    let columns: [Shown<(&[u8], &str, Span)>; 3] = [
        (name("name", "runner", "Name; empty for connections that gave none."), |(name, ..)| Cell::text(name)),
        (address("Address of its last connection."), |(_, address, _)| Cell::text(address)),
        (seconds("gone", "gone for", "Time since the end of its last connection."), |(.., gone)| Cell::time(*gone)),
    ];
    Table::of_cells("gone", "Runners that are gone", runners, columns)
        .help("The last 20 since the start or the last upgrade.")
}

/// A connection behind its address, and whether its tube is shown, not its name.
type ConnRow<'a> = (String, RunnerConn<'a>, bool);

/// Connections of one runner, whose tubes are shown, or of several, whose names are.
pub(crate) fn connections(conns: Vec<RunnerConn<'_>>, shows_tubes: bool, peers: &dyn Peers) -> Table {
    let rows: Vec<ConnRow<'_>> = conns.into_iter().map(|conn| (peers.peer(conn.conn), conn, shows_tubes)).collect();
    let failures = number("failures", "failures", "Reservations that ended without the job being done.");
    let columns: [Shown<ConnRow<'_>>; 10] = [
        (address("Address of the peer."), |(peer, ..)| Cell::text(peer)),
        (text("state", "state", "State: working on a job, or waiting for one."), |(_, conn, _)| {
            Cell::text(if conn.held > 0 { "works" } else { ["idle", "waits"][usize::from(conn.is_waiting)] })
        }),
        (runner_name("runner", "Name of the runner."), |(_, conn, shows_tube)| {
            if *shows_tube { Cell::Nothing } else { name_or_nothing(conn.runner) }
        }),
        (Column::linked("job", "job", JOBS, "Number of the job."), |(_, conn, _)| {
            conn.job.map_or(Cell::Nothing, |(job, ..)| id(job))
        }),
        (Column::linked("tube", "tube", TUBES, "Its tube."), |(_, conn, shows_tube)| {
            conn.job.filter(|_| *shows_tube).map_or(Cell::Nothing, |(_, tube, _)| Cell::text(tube))
        }),
        (seconds("busy", "for", "Time since the reservation of that job."), |(_, conn, _)| {
            time_if(conn.job.map(|(.., span)| span))
        }),
        (number("held", "held", "Number of its reserved jobs."), |(_, conn, _)| Cell::Number(conn.held)),
        (number("reserve_rate", "reserved/min", "Jobs reserved in a minute."), |(_, conn, _)| {
            per_minute(conn.rates[0])
        }),
        (number("delete_rate", "deleted/min", "Jobs deleted in a minute."), |(_, conn, _)| per_minute(conn.rates[1])),
        (failures.marked(Caution), |(_, conn, _)| Cell::Number(conn.failures)),
    ];
    Table::of_cells("connections", "Connections", &rows, columns)
        .help("Shows the job with the earliest deadline per connection.")
        .empty("No runner is connected here.")
}

/// A store: queue, place, time for which the oldest change has waited, figures, and the time.
pub(crate) type StoreRow = (String, String, Span, Health, Time);

pub(crate) fn stores(stores: &[StoreRow]) -> Table {
    let checkpoints = "Time that checkpoints took, which move the store's log into its file and delay commits.";
    let oldest = seconds("oldest", "oldest change", "Time for which the oldest uncommitted change has waited.");
    let serves = "1 if this daemon serves the queue, 0 if it is a standby; only for stores that several daemons share.";
    let owner = "Daemon that serves the jobs of a shared store, and the number of its take-over.";
    let columns: [Shown<StoreRow>; 11] = [
        (text("queue", "queue", "Name of the queue: jobs.name, or else its store.").label("queue"), |(queue, ..)| {
            Cell::text(queue)
        }),
        (text("store", "store", "File or database.").label("store"), |(_, place, ..)| Cell::text(place)),
        (Column::times("commits", "commit", "Time that commits took."), |(.., of, _)| Cell::times(of.commits.clone())),
        (Column::times("checkpoints", "checkpoint", checkpoints), |(.., of, _)| Cell::times(of.checkpoints.clone())),
        (oldest.marked(Caution), |(_, _, oldest, ..)| Cell::time(*oldest)),
        (number("batch", "last batch", "Changes in the last batch."), |(.., of, _)| Cell::Number(of.last_batch)),
        (
            Column::new("file", "file", ColumnUnit::Bytes, "Size of the store's files; empty for a database."),
            |(.., of, _)| Cell::Number(of.file_bytes),
        ),
        (Column::level("serves", "serves", "queue_owner", serves), |(.., of, _)| {
            of.owner.as_ref().map_or(Cell::Nothing, |owner| Cell::Number(owner.is_self.into()))
        }),
        (text("owner", "owner", owner), |(.., of, _)| match &of.owner {
            Some(owner) if owner.address.is_empty() => Cell::text("not known"),
            Some(owner) => Cell::text(format!("{}, take-over {}", owner.address, owner.epoch)),
            None => Cell::Nothing,
        }),
        // The clock of the database may be ahead.
        (seconds("owned", "since", "Time for which that daemon has served them."), |(.., of, now)| {
            let since =
                of.owner.as_ref().filter(|owner| !owner.address.is_empty()).map(|owner| owner.since.saturating_neg());
            time_if(since.map(|since| Span::from_micros(now.as_micros().saturating_add_signed(since))))
        }),
        (text("fault", "fault", "Reason of the store's failure.").marked(Alarm), |(.., of, _)| {
            of.fault.as_ref().map_or(Cell::Nothing, Cell::text)
        }),
    ];
    Table::of_cells("stores", "Job store", stores, columns)
        .help("Replies to changes are sent after the commit.")
        .empty("Jobs are kept in memory only.")
}

pub(crate) static PUT: SeriesInfo =
    SeriesInfo { name: "put", title: "Jobs put", unit: "per second", is_rate: true, emphasis: Emphasis::None };
pub(crate) static DELETES: SeriesInfo =
    SeriesInfo { name: "deletes", title: "Deletes", unit: "per second", is_rate: true, emphasis: Work };
pub(crate) static READY: SeriesInfo =
    SeriesInfo { name: "ready", title: "Ready jobs", unit: "jobs", is_rate: false, emphasis: Caution };

pub(super) fn number(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column::new(name, title, ColumnUnit::Number, help)
}

pub(super) fn seconds(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column::new(name, title, ColumnUnit::Seconds, help)
}

pub(super) fn text(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column::new(name, title, ColumnUnit::Text, help)
}

pub(super) fn name(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column::new(name, title, ColumnUnit::Name, help)
}

/// Returns a column of numbers of jobs.
pub(super) fn key(name: &'static str, title: &'static str, help: &'static str) -> Column {
    Column { unit: ColumnUnit::Key, ..Column::linked(name, title, JOBS, help) }
}

fn address(help: &'static str) -> Column {
    Column::new("peer", "from", ColumnUnit::Address, help)
}

fn runner_name(name: &'static str, help: &'static str) -> Column {
    Column::linked(name, "runner", "/jobs/runner/", help)
}

pub(super) fn id(id: JobId) -> Cell {
    Cell::text(id.to_string())
}

pub(super) fn count(count: SmallCount) -> Cell {
    Cell::Number(count.get().into())
}

pub(super) fn after(seconds: u64) -> Cell {
    Cell::time(Span::from_secs(seconds))
}

pub(super) fn time_if(span: Option<Span>) -> Cell {
    span.map_or(Cell::Nothing, Cell::time)
}

/// Returns the cell of a name, which may be empty.
pub(super) fn name_or_nothing(bytes: &[u8]) -> Cell {
    if bytes.is_empty() { Cell::Nothing } else { Cell::text(bytes) }
}

/// Returns the cell of the error of a job, which may have none.
pub(super) fn error(job: &JobStats<'_>) -> Cell {
    let text = summary_text(job.error);
    if text.is_empty() { Cell::Nothing } else { Cell::prose(text) }
}
