//! Page of a root job: its newest timestamp, and its leaves that are in the queue.

use super::JobQueue;
use super::state::leaves::{Leaves, MOST_EXAMINED};
use super::state::queries::JobStats;
use super::state::{ALL_STATES, JobState};
use super::tables::{JOBS, ROOTS, TUBES};
use poolcounter_core::text::title_of;
use poolcounter_core::time::Time;
use poolcounter_service::health::quoted;
use poolcounter_service::report::{Cell, Column, ColumnUnit, Emphasis, Report, Table, View};

/// Number of timestamps on the page.
const MOST_TIMESTAMPS: usize = 70;

fn root_table() -> Table {
    Table::new(
        "root",
        "Root job",
        vec![
            Column::linked("tube", "tube", TUBES, "Tube of its leaves."),
            Column::new("signature", "signature", ColumnUnit::Name, "Signature that leaves give."),
            Column::new("newest", "newest timestamp", ColumnUnit::Text, "Newest of its timestamps."),
            Column::new(
                "changed",
                "changed",
                ColumnUnit::Seconds,
                "Time since its last change; it is kept for 28 days from that.",
            ),
        ],
    )
    .help("A leaf with an older timestamp is superseded: it is dropped when it would be reserved, unless it is buried.")
}

/// Root jobs that a search has found.
pub(super) fn roots_table() -> Table {
    let root = Column::linked("root", "root job", ROOTS, "Tube and signature of the root job.");
    Table::new("roots", "Root jobs", vec![root])
}

fn leaves_table() -> Table {
    Table::new(
        "leaves",
        "Leaves",
        vec![
            Column::new("timestamp", "timestamp", ColumnUnit::Text, "Timestamp of the leaves."),
            Column::new("ready", "ready", ColumnUnit::Number, "Leaves that wait for a runner."),
            Column::new("reserved", "reserved", ColumnUnit::Number, "Leaves that a runner holds."),
            Column::new("delayed", "delayed", ColumnUnit::Number, "Leaves that are delayed."),
            Column::new("buried", "buried", ColumnUnit::Number, "Leaves that are buried.").marked(Emphasis::Alarm),
            Column::new("superseded", "superseded by", ColumnUnit::Text, "Timestamp by which they are superseded."),
            Column::linked("job", "for example", JOBS, "One of them."),
        ],
    )
    .help("The newest come first.")
    .empty("No leaf of this root job is in the queue.")
}

impl JobQueue {
    /// Returns the page of the root job of this tube and signature, with a space between them.
    pub(super) fn view_of_root(&self, name: &[u8], now: Time) -> Option<View> {
        let space = name.iter().position(|byte| *byte == b' ')?;
        let (tube, signature) = (&name[..space], &name[space + 1..]);
        let root = self.state.root_with_leaves(tube, signature, now)?;
        let newest = Cell::text(root.newest.to_string());
        let row = vec![Cell::text(tube), Cell::text(signature), newest, Cell::time(root.changed)];
        let leaves = root.leaves.iter().rev().take(MOST_TIMESTAMPS);
        let note = (!root.is_whole)
            .then(|| format!("Only the first {MOST_EXAMINED} jobs of the tube in each state are examined."));
        let mut commands = Vec::new();
        if let Some(tube) = quoted(tube) {
            let has = |state: JobState| root.leaves.values().any(|leaves| leaves.counts[state as usize] > 0);
            let states = ALL_STATES.into_iter().filter(|state| has(*state));
            commands.extend(states.map(|state| format!("jobs list {tube} {}", state.word())));
            commands.extend(has(JobState::Buried).then(|| format!("jobs kick {tube}")));
        }
        let tables = vec![
            root_table().rows(vec![row]),
            Table { note, ..leaves_table().rows(leaves.map(|leaves| row_of_leaves(leaves, root.newest))) },
        ];
        let (title, report) = (title_of("Root job", signature), Report { tables, ..Report::default() });
        Some(View { title, report, commands, ..View::default() })
    }
}

fn row_of_leaves((timestamp, leaves): (&u64, &Leaves), newest: u64) -> Vec<Cell> {
    let superseded = if newest > *timestamp { Cell::text(newest.to_string()) } else { Cell::Nothing };
    let example = Cell::text(leaves.example.to_string());
    let timestamp = Cell::text(timestamp.to_string());
    [timestamp].into_iter().chain(leaves.counts.map(Cell::Number)).chain([superseded, example]).collect()
}

/// Returns the cell with the name of the root job of a job, as in the path of its page.
pub(super) fn cell_of_root(job: &JobStats<'_>) -> Cell {
    job.root.map_or(Cell::Nothing, |signature| Cell::text([job.tube, b" ", signature].concat()))
}
