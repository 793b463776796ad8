//! Page of a root job: its newest timestamp, and its leaves that are in the queue.

use super::JobQueue;
use super::report::page;
use super::state::leaves::{Leaves, MOST_EXAMINED};
use super::state::queries::JobStats;
use super::state::{ALL_STATES, JobState};
use super::tables::{JOBS, ROOTS, TUBES, name, number, seconds, text};
use poolcounter_core::text::title_of;
use poolcounter_core::time::Time;
use poolcounter_service::health::quoted;
use poolcounter_service::report::{Cell, Column, Emphasis, Table, View};

/// Number of timestamps on the page.
const MOST_TIMESTAMPS: usize = 70;

fn root_table() -> Table {
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
pub(super) fn roots_table() -> Table {
    let root = Column::linked("root", "root job", ROOTS, "Tube and signature of the root job.");
    Table::new("roots", "Root jobs", vec![root])
}

fn leaves_table() -> Table {
    Table::new(
        "leaves",
        "Leaves",
        vec![
            text("timestamp", "timestamp", "Timestamp of the leaves."),
            number("ready", "ready", "Leaves that wait for a runner."),
            number("reserved", "reserved", "Leaves that a runner holds."),
            number("delayed", "delayed", "Leaves that are delayed."),
            number("buried", "buried", "Leaves that are buried.").marked(Emphasis::Alarm),
            text("superseded", "superseded by", "Timestamp by which they are superseded."),
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
        Some(page(title_of("Root job", signature), tables, commands))
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
