//! Report of the jobs as tables: jobs by first and last part of their tubes' names, tubes and runners, with numbers of
//! waiting jobs, ages and rates.

use super::job_tables;
use super::tables;
use crate::JobQueue;
use crate::state::SumBy;
use crate::stats::Jobs as Stat;
use crate::store::{Health, OwnerHealth};
use poolcounter_core::{Figures, Span, Time};
use poolcounter_service::report::Emphasis::{Alarm, Caution};
use poolcounter_service::report::{Cell, Report, Table, View, table};

/// Most rows of a table: as many as a page has room for, in four tables.
pub(crate) const MOST_ROWS: usize = 70;

/// Number of buried jobs on the status page.
const MOST_BURIED: usize = 20;
/// Number of buried jobs that a report groups by error. A report is made for each metrics request, so it groups fewer
/// than the page of buried jobs.
const MOST_GROUPED: usize = 512;

/// Note for a report that does not examine all tubes.
const NOTE: &str = "There are more than 32768 tubes, names or connections; ages and tables cover only 32768 of them.";

impl JobQueue {
    /// Returns the tables of runners, of both parts and of tubes, each of at most [`MOST_ROWS`] rows, whose names `has`
    /// is true for.
    pub(crate) fn tables_of_names(&self, has: &dyn Fn(&[u8]) -> bool, now: Time) -> [Table; 4] {
        let note = || self.state.is_too_many_to_survey().then(|| NOTE.to_string());
        let noted = |table: Table| Table { note: note(), ..table };
        let part = |n: usize| {
            let largest = self.state.largest_sums(SumBy::ALL[n], has, MOST_ROWS, now);
            noted(self.settings.part_names.part(n, largest, now))
        };
        let runners = noted(tables::runners(self.state.largest_runners(has, MOST_ROWS, now), now));
        let tubes = noted(tables::tubes(self.state.largest_tubes(has, MOST_ROWS, now), now));
        [runners, part(0), part(1), tubes]
    }

    /// Returns the tables, of [`MOST_ROWS`] rows at most each.
    pub(crate) fn all_tables(&self, now: Time) -> Vec<Table> {
        let [runners, first, last, tubes] = self.tables_of_names(&|_| true, now);
        let gone = self.gone_runners.table(&runners, now);
        let [groups, buried] = self.buried_tables(MOST_GROUPED, MOST_BURIED, now);
        let schedules = job_tables::schedules(&self.state.schedules(now).take(MOST_ROWS).collect::<Vec<_>>());
        vec![runners, gone, groups, first, last, tubes, buried, schedules, self.store_table(now)]
    }

    fn store_table(&self, now: Time) -> Table {
        table!(Health, "stores", "Job store", self.health();
            "queue", "queue", Text label("queue"), "Name of the queue: jobs.name, or else its store.", |_| Cell::text(self.queue_name());
            "store", "store", Text label("store"), "File or database.", |_| Cell::text(self.store.place());
            "commits", "commits", Times each("commit"), "Time that commits took.", |of| of.commits.clone();
            "checkpoints", "checkpoints", Times each("checkpoint"),
                "Time that checkpoints took, which move the store's log into its file and delay commits.", |of| of.checkpoints.clone();
            "oldest", "oldest change", Seconds marked(Caution), "Time for which the oldest uncommitted change has waited.",
                |_| self.driver.oldest(now);
            "batch", "last batch", Number, "Changes in the last batch.", |of| of.last_batch;
            "file", "file", Bytes, "Size of the store's files; empty for a database.", |of| of.file_bytes;
            "serves", "serves", Number each("queue_owner"),
                "1 if this daemon serves the queue, 0 if it is a standby; only for stores that several daemons share.",
                |of| of.owner.as_ref().map(|owner| u64::from(owner.is_self));
            "owner", "owner", Text, "Daemon that serves the jobs of a shared store, and the number of its take-over.",
                |of| of.owner.as_ref().map(|owner| match &*owner.address {
                    "" => Cell::text("not known"),
                    address => Cell::text(format!("{address}, take-over {}", owner.epoch)),
                });
            // The clock of the database may be ahead.
            "owned", "since", Seconds, "Time for which that daemon has served them.",
                |of| of.owner.as_ref().filter(|owner| !owner.address.is_empty()).map(|owner| {
                    Span::from_micros(now.as_micros().saturating_add_signed(owner.since.saturating_neg()))
                });
            "fault", "fault", Text marked(Alarm), "Reason of the store's failure.", |of| of.fault.as_ref().map(Cell::text);
        )
        .help("Replies to changes are sent after the commit.")
        .empty("Jobs are kept in memory only.")
    }

    /// Returns the tables for metrics: one row for each part that is followed, and one for all other parts together.
    pub(crate) fn exported(&self, now: Time) -> Vec<Table> {
        let table = |by: SumBy| self.settings.part_names.part(by as usize, self.state.followed(by, now), now);
        SumBy::ALL.map(table).into()
    }

    /// Returns the name of the queue, else the place where it is kept.
    pub(crate) fn queue_name(&self) -> String {
        if self.settings.name.is_empty() { self.store.place() } else { self.settings.name.clone() }
    }

    pub(crate) fn health(&self) -> Option<Health> {
        self.driver.has_begun.then(|| self.store.health()).flatten()
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
