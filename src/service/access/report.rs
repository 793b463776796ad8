//! What operators are told of the rules: how much those have whom each is for, and what was refused to them.

use super::{Access, Counts, Denial};
use crate::peer::Traffic;
use crate::report::{Cell, Column, ColumnMetric, ColumnUnit, Emphasis, Report, ServiceReport, Table, TableInfo};

/// The name under which it stands among the services.
pub const NAME: &str = "access";

/// What those are called for whom there is no rule.
const STRANGERS: &[u8] = b"(no rule)";

static RULES: TableInfo = TableInfo {
    name: "rules",
    title: "Access",
    help: "What those have whom each rule is for, and what was refused to them since the start.",
    empty: "There are no rules.",
    is_of_kinds: true,
    columns: &[
        Column {
            name: "rule",
            title: "rule",
            unit: ColumnUnit::Name,
            help: "The rule.",
            metric: ColumnMetric::Label("rule"),
            ..Column::BLANK
        },
        Column::level("connections", "connections", "rule_connections", "Connections, by rule."),
        Column::level(
            "locks",
            "locks",
            "rule_locks",
            "Locks of keys, counters, members and jobs held, by rule; counted where some rule limits them.",
        ),
        Column::level(
            "waits",
            "waits",
            "rule_waits",
            "Requests that wait, by rule; counted where some rule limits them.",
        ),
        Column {
            unit: ColumnUnit::Bytes,
            ..Column::level(
                "memory",
                "memory",
                "rule_memory",
                "Bytes received and not served, or not sent yet, by rule; counted where some rule limits them.",
            )
        },
        denied("denied_strangers", "strangers", "denied_strangers", "Connections that no rule allows."),
        denied("denied_rights", "no right", "denied_rights", "Requests that their rule does not allow, by rule."),
        denied(
            "denied_connections",
            "connections refused",
            "denied_connections",
            "Connections beyond those that a rule allows, by rule.",
        ),
        denied(
            "denied_locks",
            "locks refused",
            "denied_locks",
            "Requests of those who held as much as they may, by rule.",
        ),
        denied(
            "denied_waits",
            "waits refused",
            "denied_waits",
            "Requests of those of whom as many waited as may, by rule.",
        ),
        denied(
            "denied_requests",
            "too fast",
            "denied_requests",
            "Requests beyond those that a rule allows in a second, by rule.",
        ),
        denied(
            "denied_memory",
            "memory refused",
            "denied_memory",
            "Connections ended because those of their rule took as much memory as they may, by rule.",
        ),
    ],
};

const fn denied(name: &'static str, title: &'static str, metric: &'static str, help: &'static str) -> Column {
    Column { emphasis: Emphasis::Caution, ..Column::count(name, title, metric, help) }
}

impl Access {
    /// Returns what there is to tell, as if it were a service; None without rules.
    pub fn report(&self) -> Option<ServiceReport> {
        if !self.is_on {
            return None;
        }
        let names = self.rules.iter().map(|rule| rule.name.as_bytes()).chain([STRANGERS]);
        let rows = names.zip(&self.counts).map(|(name, counts)| row(name, counts)).collect();
        let report = Report { tables: vec![Table { info: &RULES, rows, note: None }], ..Report::default() };
        Some(ServiceReport { name: NAME, title: "", option: "", traffic: Traffic::default(), is_enabled: true, report })
    }
}

fn row(name: &[u8], counts: &Counts) -> Vec<Cell> {
    let has = [counts.connections, counts.locks + counts.leases, counts.waits, counts.bytes];
    let denied = Denial::ALL.map(|denial| counts.denied[denial as usize].get());
    let numbers = has.into_iter().chain(denied).map(Cell::Number);
    [Cell::Name(name.into())].into_iter().chain(numbers).collect()
}
