//! Page of a root job: its newest timestamp, and its leaves that are in the queue.

use super::JobQueue;
use super::state::leaves::{Leaves, MOST_EXAMINED};
use super::state::queries::JobStats;
use super::state::{ALL_STATES, JobState};
use super::tables::{JOBS, TUBES, marked, shown};
use poolcounter_core::text::title_of;
use poolcounter_core::time::Time;
use poolcounter_service::health::quoted;
use poolcounter_service::report::{Cell, ColumnUnit, Emphasis, Report, Table, TableInfo, View};

/// Number of timestamps on the page.
const MOST_TIMESTAMPS: usize = 70;

static ROOT: TableInfo = TableInfo {
    name: "root",
    title: "Root job",
    help: "A leaf with an older timestamp is superseded: it is dropped when it would be reserved, unless it is buried.",
    empty: "",
    is_of_kinds: false,
    columns: &[
        shown("tube", "tube", ColumnUnit::Linked(TUBES), "Tube of its leaves."),
        shown("signature", "signature", ColumnUnit::Name, "Signature that leaves give."),
        shown("newest", "newest timestamp", ColumnUnit::Text, "Newest of its timestamps."),
        shown("changed", "changed", ColumnUnit::Age, "Time since its last change; it is kept for 28 days from that."),
    ],
};

static LEAVES: TableInfo = TableInfo {
    name: "leaves",
    title: "Leaves",
    help: "The newest come first.",
    empty: "No leaf of this root job is in the queue.",
    is_of_kinds: false,
    columns: &[
        shown("timestamp", "timestamp", ColumnUnit::Text, "Timestamp of the leaves."),
        shown("ready", "ready", ColumnUnit::Level, "Leaves that wait for a runner."),
        shown("reserved", "reserved", ColumnUnit::Level, "Leaves that a runner holds."),
        shown("delayed", "delayed", ColumnUnit::Level, "Leaves that are delayed."),
        marked(Emphasis::Alarm, shown("buried", "buried", ColumnUnit::Level, "Leaves that are buried.")),
        shown("superseded", "superseded by", ColumnUnit::Text, "Timestamp by which they are superseded."),
        shown("job", "for example", ColumnUnit::Linked(JOBS), "One of them."),
    ],
};

impl JobQueue {
    /// Returns the page of the root job of this tube and signature, with a space between them.
    pub(super) fn view_of_root(&self, name: &[u8], now: Time) -> Option<View> {
        let space = name.iter().position(|byte| *byte == b' ')?;
        let (tube, signature) = (&name[..space], &name[space + 1..]);
        let root = self.state.root_with_leaves(tube, signature, now)?;
        let newest = Cell::Text(root.newest.to_string());
        let row = vec![Cell::Name(tube.into()), Cell::Name(signature.into()), newest, Cell::Time(root.changed)];
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
            Table { info: &ROOT, rows: vec![row], note: None },
            Table { info: &LEAVES, rows: leaves.map(|leaves| row_of_leaves(leaves, root.newest)).collect(), note },
        ];
        let (title, report) = (title_of("Root job", signature), Report { tables, ..Report::default() });
        Some(View { title, report, commands, ..View::default() })
    }
}

fn row_of_leaves((timestamp, leaves): (&u64, &Leaves), newest: u64) -> Vec<Cell> {
    let superseded = if newest > *timestamp { Cell::Text(newest.to_string()) } else { Cell::Nothing };
    let example = Cell::Name(leaves.example.to_string().into());
    let timestamp = Cell::Text(timestamp.to_string());
    [timestamp].into_iter().chain(leaves.counts.map(Cell::Number)).chain([superseded, example]).collect()
}

/// Returns the cell with the name of the root job of a job, as in the path of its page.
pub(super) fn cell_of_root(job: &JobStats<'_>) -> Cell {
    job.root.map_or(Cell::Nothing, |signature| Cell::Name([job.tube, b" ", signature].concat()))
}
