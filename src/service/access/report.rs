//! The access table: usage and refusals per rule.

use super::{Access, Counts, Denial};
use crate::peer::Traffic;
use crate::report::{Cell, Column, ColumnUnit, Emphasis, Report, ServiceReport, Table};

/// Name of the report in the list of services.
pub const NAME: &str = "access";

/// Name of the row for connections that match no rule.
const STRANGERS: &[u8] = b"(no rule)";

fn rules_table() -> Table {
    Table::new(
        "rules",
        "Access",
        vec![
            Column::new("rule", "rule", ColumnUnit::Name, "Subject of the rule.").label("rule"),
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
            denied(
                "denied_strangers",
                "strangers",
                "denied_strangers",
                "Connections refused because no rule allows them.",
            ),
            denied(
                "denied_rights",
                "no right",
                "denied_rights",
                "Requests refused because their rule does not allow them, by rule.",
            ),
            denied(
                "denied_connections",
                "connections refused",
                "denied_connections",
                "Connections refused because of the rule's limit of connections, by rule.",
            ),
            denied(
                "denied_locks",
                "locks refused",
                "denied_locks",
                "Requests refused because of the rule's limit of holdings, by rule.",
            ),
            denied(
                "denied_waits",
                "waits refused",
                "denied_waits",
                "Requests refused because of the rule's limit of waiting requests, by rule.",
            ),
            denied(
                "denied_requests",
                "too fast",
                "denied_requests",
                "Requests refused because of the rule's limit of requests a second, by rule.",
            ),
            denied(
                "denied_memory",
                "memory refused",
                "denied_memory",
                "Connections ended because of the rule's limit of memory, by rule.",
            ),
        ],
    )
    .help("Usage per rule, and refusals since the start.")
    .empty("No rules.")
    .of_kinds()
}

fn denied(name: &'static str, title: &'static str, metric: &'static str, help: &'static str) -> Column {
    Column::count(name, title, metric, help).marked(Emphasis::Caution)
}

impl Access {
    /// Returns the access table as the report of a service; None without rules.
    pub fn report(&self) -> Option<ServiceReport> {
        if !self.is_on {
            return None;
        }
        let names = self.rules.iter().map(|rule| rule.name.as_bytes()).chain([STRANGERS]);
        let rows = names.zip(&self.counts).map(|(name, counts)| row(name, counts));
        let report = Report { tables: vec![rules_table().rows(rows)], ..Report::default() };
        Some(ServiceReport { name: NAME, title: "", option: "", traffic: Traffic::default(), is_enabled: true, report })
    }
}

fn row(name: &[u8], counts: &Counts) -> Vec<Cell> {
    let has = [counts.connections, counts.locks + counts.leases, counts.waits, counts.bytes];
    let denied = Denial::ALL.map(|denial| counts.denied[denial as usize].get());
    let numbers = has.into_iter().chain(denied).map(Cell::Number);
    [Cell::text(name)].into_iter().chain(numbers).collect()
}
