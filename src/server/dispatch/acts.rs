//! Acts of operators: the last ones since the start of the process, for the page of the daemon.

use poolcounter_core::Time;
use poolcounter_service::report::{Cell, Column, ColumnUnit, Table};
use std::collections::VecDeque;

/// Number of acts that are remembered.
const MOST_ACTS: usize = 20;

/// The last acts, the newest first, each as a sentence with its time.
#[derive(Default)]
pub struct Acts(VecDeque<(Time, String)>);

impl Acts {
    /// Notes an act. An act that is repeated keeps one place.
    pub fn note(&mut self, act: String, now: Time) {
        self.0.retain(|(_, noted)| *noted != act);
        self.0.truncate(MOST_ACTS - 1);
        self.0.push_front((now, act));
    }

    /// Returns the table of the acts; None without acts.
    pub fn table(&self, now: Time) -> Option<Table> {
        let rows = self.0.iter().map(|(at, act)| vec![Cell::text(act), Cell::time(now.since(*at))]);
        (!self.0.is_empty()).then(|| acts_table().rows(rows))
    }
}

fn acts_table() -> Table {
    Table::new(
        "acts",
        "Done by operators",
        vec![
            Column::new("act", "act", ColumnUnit::Name, "Operator, and the request or its result."),
            Column::new("ago", "ago", ColumnUnit::Seconds, "Time since then."),
        ],
    )
    .help("The last 20 changes by commands, requests and buttons since the start or the last upgrade.")
}
