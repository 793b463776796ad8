//! Acts of operators: the last ones since the start of the process, for the page of the daemon.

use poolcounter_core::Time;
use poolcounter_service::report::{Cell, Table, table};
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
        let acts = table!(&(Time, String), "acts", "Done by operators", &self.0;
            "act", "act", Name, "Operator, and the request or its result.", |(_, act)| Cell::text(act);
            "ago", "ago", Seconds, "Time since then.", |(at, _)| now.since(*at);
        );
        let acts =
            acts.help("The last 20 changes by commands, requests and buttons since the start or the last upgrade.");
        (!self.0.is_empty()).then_some(acts)
    }
}
