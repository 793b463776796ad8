//! Report of the jobs as tables: jobs by first and last part of their tubes' names, tubes and runners, with numbers of
//! waiting jobs, ages and rates.

use super::tables::{RUN, name_or_nothing, prose_or_nothing, runners_table, schedules_table, stores_table};
use crate::JobQueue;
use crate::buried_groups::summary_text;
use crate::state::periodic::text_of;
use crate::state::queries::{JobStats, Summary};
use crate::state::{ShownSchedule, SumBy, Summaries, Tally};
use crate::stats::Jobs as Stat;
use crate::store::{Health, OwnerHealth};
use poolcounter_core::count::Count;
use poolcounter_core::stats::Figures;
use poolcounter_core::time::{Span, Time};
use poolcounter_service::report::{Cell, Counted, Report, Table, View};

/// Most rows of a table: as many as a page has room for, in four tables.
pub(crate) const MOST_ROWS: usize = 70;

/// Largest matrix of the status page, in first parts and last parts: the size of a screen.
const SHOWN_PARTS: [usize; 2] = [20, 12];

/// Number of buried jobs on the status page.
const MOST_BURIED: usize = 20;
/// Number of buried jobs that a report groups by error. A report is made for each metrics request, so it groups fewer
/// than the page of buried jobs.
const MOST_GROUPED: usize = 512;

/// Note for a report that does not examine all tubes.
const NOTE: &str = "There are more than 32768 tubes, names or connections; ages and tables cover only 32768 of them.";

/// Makes a row of a table.
type RowOf = fn((Vec<u8>, Summary), Time) -> Vec<Cell>;

pub(crate) const SECONDS_A_MINUTE: f64 = 60.0;

impl JobQueue {
    /// Returns the report, but for the series.
    pub(crate) fn report_at(&self, now: Time) -> Report {
        Report {
            figures: self.figures(now).rows().collect(),
            tables: self.all_tables(now),
            exported: self.exported(now),
            matrix: Some(self.matrix(SHOWN_PARTS, now)),
            ..Report::default()
        }
    }

    /// Returns the tables of runners, of both parts and of tubes, each of at most [`MOST_ROWS`] rows, whose names `has`
    /// is true for.
    pub(crate) fn tables_of_names(&self, has: &dyn Fn(&[u8]) -> bool, now: Time) -> [Table; 4] {
        let note = || self.state.is_too_many_to_survey().then(|| NOTE.to_string());
        let filled = |table: Table, summaries: Summaries, row: RowOf| {
            let rows = summaries.into_iter().map(|summary| row(summary, now));
            Table { note: note(), ..table.rows(rows) }
        };
        let part = |n: usize| {
            let largest = self.state.largest_sums(SumBy::ALL[n], has, MOST_ROWS, now);
            filled(self.tables.part(n), largest, row_of_sum)
        };
        let runners = filled(runners_table(), self.state.largest_runners(has, MOST_ROWS, now), row_of_runner);
        let tubes = filled(self.tables.tubes(), self.state.largest_tubes(has, MOST_ROWS, now), row_of_tube);
        [runners, part(0), part(1), tubes]
    }

    /// Returns the tables, of [`MOST_ROWS`] rows at most each.
    pub(crate) fn all_tables(&self, now: Time) -> Vec<Table> {
        let [runners, first, last, tubes] = self.tables_of_names(&|_| true, now);
        let gone = self.gone_runners.table(&runners, now);
        let [groups, buried] = self.buried_tables(MOST_GROUPED, MOST_BURIED, now);
        let store = stores_table().rows(self.row_of_store(now));
        let schedules = schedules_table().rows(self.state.schedules(now).take(MOST_ROWS).map(row_of_schedule));
        vec![runners, gone, groups, first, last, tubes, buried, schedules, store]
    }

    /// Notes the counts of each first part and each last part; nothing if some are not followed, because the followed
    /// ones change then.
    pub(crate) fn tally_sums(&self, note: &mut dyn FnMut(Counted<'_>)) {
        for by in SumBy::ALL {
            let table = format!("{}s", self.tables.words[by as usize]);
            for (name, tally) in self.state.tallies(by).into_iter().flatten() {
                let times = &[&tally.pickups, &tally.runs];
                note(Counted { table: &table, name, counts: &counts_of(tally), times });
            }
        }
    }

    /// Returns the tables for metrics: one row for each part that is followed, and one for all other parts together.
    pub(crate) fn exported(&self, now: Time) -> Vec<Table> {
        let table = |by: SumBy| {
            let rows = self.state.followed(by, now).into_iter().map(|summary| row_of_sum(summary, now));
            self.tables.part(by as usize).rows(rows)
        };
        SumBy::ALL.into_iter().map(table).collect()
    }

    fn row_of_store(&self, now: Time) -> Option<Vec<Cell>> {
        let Health { fault, commits, checkpoints, last_batch, file_bytes, owner, .. } = self.health()?;
        let serves = owner.as_ref().map_or(Cell::Nothing, |owner| Cell::Number(owner.is_self.into()));
        let [owner, owned] = owner.map_or([Cell::Nothing, Cell::Nothing], |owner| cells_of_owner(&owner, now));
        let fault = fault.map_or(Cell::Nothing, Cell::text);
        let oldest = Cell::time(self.driver.oldest(now));
        let [batch, file] = [last_batch, file_bytes].map(Cell::Number);
        Some(vec![
            Cell::text(self.queue_name()),
            Cell::text(self.store.place()),
            Cell::times(commits),
            Cell::times(checkpoints),
            oldest,
            batch,
            file,
            serves,
            owner,
            owned,
            fault,
        ])
    }

    /// Returns the name of the queue, else the place where it is kept.
    pub(crate) fn queue_name(&self) -> String {
        if self.queue_name.is_empty() { self.store.place() } else { self.queue_name.clone() }
    }

    pub(crate) fn health(&self) -> Option<Health> {
        self.driver.has_begun().then(|| self.store.health()).flatten()
    }

    /// Returns the figures, with the store's own.
    pub(crate) fn figures(&self, now: Time) -> Figures<Stat> {
        let mut figures = self.state.figures();
        figures.set(Stat::OldestReady, self.state.oldest_ready(now).as_micros());
        figures.set(Stat::OldestUncommitted, self.driver.oldest(now).as_micros());
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
}

/// Returns a page of tables, with commands that help.
pub(crate) fn page(title: String, tables: Vec<Table>, commands: Vec<String>) -> View {
    View { title, report: Report { tables, ..Report::default() }, commands, ..View::default() }
}

fn cells_of_owner(owner: &OwnerHealth, now: Time) -> [Cell; 2] {
    if owner.address.is_empty() {
        return [Cell::text("not known"), Cell::Nothing];
    }
    // The clock of the database may be ahead.
    let owned = Span::from_micros(now.as_micros().saturating_add_signed(owner.since.saturating_neg()));
    [Cell::text(format!("{}, take-over {}", owner.address, owner.epoch)), Cell::time(owned)]
}

/// Returns the columns of counts, in their order.
fn counts_of(tally: &Tally) -> [u64; 6] {
    let [put, reserves, deletes] = tally.events;
    [put, reserves, deletes, tally.duplicates, tally.superseded, tally.failures].map(Count::get)
}

pub(crate) fn row_of_sum((name, summary): (Vec<u8>, Summary), now: Time) -> Vec<Cell> {
    let rates = per_minute(&summary, now);
    let Summary { counts: [ready, held, delayed, buried], retrying, oldest_ready, tally, .. } = summary;
    let mut row = vec![Cell::text(name)];
    row.extend([ready, held, delayed - retrying, retrying, buried].map(Cell::Number));
    row.push(Cell::time(oldest_ready));
    let counts = counts_of(&tally).map(Cell::Number);
    row.extend([Cell::times(tally.pickups), Cell::times(tally.runs)].into_iter().chain(rates).chain(counts));
    let error = tally.last_error.map(|error| [Cell::prose(error.text), Cell::time(now.since(error.at))]);
    row.extend(error.unwrap_or([Cell::Nothing, Cell::Nothing]));
    row
}

pub(crate) fn row_of_tube(tube: (Vec<u8>, Summary), now: Time) -> Vec<Cell> {
    let mut row = row_of_sum(tube, now);
    row.remove(RUN);
    row
}

pub(crate) fn rows_of_buried(buried: Vec<(JobStats<'_>, Span)>) -> Vec<Vec<Cell>> {
    let row = |(job, span): (JobStats<'_>, Span)| {
        vec![
            Cell::text(job.id.0.to_string()),
            name_or_nothing(job.tube),
            Cell::time(span),
            Cell::time(Span::from_secs(job.age)),
            Cell::Number(job.reserves.get().into()),
            name_or_nothing(job.key),
            prose_or_nothing(&summary_text(job.error)),
        ]
    };
    buried.into_iter().map(row).collect()
}

fn row_of_schedule(schedule: ShownSchedule<'_>) -> Vec<Cell> {
    let time = |span: Option<Span>| span.map_or(Cell::Nothing, Cell::time);
    let (tube, times, missed) = schedule.options().map_or_else(Default::default, |(options, of)| {
        (&*options.tube, text_of(&of.times), if of.is_made_up { "once" } else { "skip" })
    });
    vec![
        Cell::text(schedule.name),
        name_or_nothing(tube),
        Cell::text(times),
        Cell::text(missed),
        time(schedule.next),
        time(schedule.last),
        Cell::Number(schedule.skipped),
        Cell::text(if schedule.is_of_file { "file" } else { "command" }),
    ]
}

fn row_of_runner((name, summary): (Vec<u8>, Summary), now: Time) -> Vec<Cell> {
    let [_, reserved, deleted] = per_minute(&summary, now);
    let held: u64 = summary.counts.iter().sum();
    let numbers = [summary.conns, summary.waiting, held].map(Cell::Number);
    let (tube, busy) =
        summary.busy.map_or((Cell::Nothing, Cell::Nothing), |(tube, span)| (Cell::text(tube), Cell::time(span)));
    let rest = [tube, busy, reserved, deleted, Cell::Number(summary.tally.failures.get())];
    [Cell::text(name)].into_iter().chain(numbers).chain(rest).collect()
}

/// Returns puts, reserves and deletes in a minute, by the last one.
pub(crate) fn per_minute(summary: &Summary, now: Time) -> [Cell; 3] {
    // Lossless: no daemon takes so many jobs in a minute.
    summary.rates(now).map(|[last, ..]| Cell::Number((last * SECONDS_A_MINUTE).round() as u64))
}
