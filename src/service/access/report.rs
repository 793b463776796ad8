//! The access table: usage and refusals per rule.

use super::{Access, Counts, Denial};
use crate::peer::Traffic;
use crate::report::Emphasis::Caution;
use crate::report::{Cell, Report, ServiceReport, Table, table};

/// Name of the report in the list of services.
pub const NAME: &str = "access";

/// Name of the row for connections that match no rule.
const STRANGERS: &[u8] = b"(no rule)";

impl Access {
    /// Returns the access table as the report of a service; None without rules.
    pub fn report(&self) -> Option<ServiceReport> {
        if !self.is_on {
            return None;
        }
        let names = self.rules.iter().map(|rule| rule.name.as_bytes()).chain([STRANGERS]);
        let report = Report { tables: vec![rules_table(names.zip(&self.counts))], ..Report::default() };
        Some(ServiceReport { name: NAME, title: "", option: "", traffic: Traffic::default(), is_enabled: true, report })
    }
}

fn rules_table<'a>(rules: impl Iterator<Item = (&'a [u8], &'a Counts)>) -> Table {
    let denied = |(_, of): &(&[u8], &Counts), denial| of.denied[denial as usize];
    table!((&[u8], &Counts), "rules", "Access", rules;
        "rule", "rule", Name label("rule"), "Subject of the rule.", |(name, _)| Cell::text(name);
        "connections", "connections", Number each("rule_connections"), "Connections, by rule.", |(_, of)| of.connections;
        "locks", "locks", Number each("rule_locks"),
            "Locks of keys, counters, members and jobs held, by rule; counted where some rule limits them.",
            |(_, of)| of.locks + of.leases;
        "waits", "waits", Number each("rule_waits"),
            "Requests that wait, by rule; counted where some rule limits them.", |(_, of)| of.waits;
        "memory", "memory", Bytes each("rule_memory"),
            "Bytes received and not served, or not sent yet, by rule; counted where some rule limits them.",
            |(_, of)| of.bytes;
        "denied_strangers", "strangers", Number counts("denied_strangers") marked(Caution),
            "Connections refused because no rule allows them.", |rule| denied(rule, Denial::Stranger);
        "denied_rights", "no right", Number counts("denied_rights") marked(Caution),
            "Requests refused because their rule does not allow them, by rule.", |rule| denied(rule, Denial::Right);
        "denied_connections", "connections refused", Number counts("denied_connections") marked(Caution),
            "Connections refused because of the rule's limit of connections, by rule.",
            |rule| denied(rule, Denial::Connections);
        "denied_locks", "locks refused", Number counts("denied_locks") marked(Caution),
            "Requests refused because of the rule's limit of holdings, by rule.", |rule| denied(rule, Denial::Locks);
        "denied_waits", "waits refused", Number counts("denied_waits") marked(Caution),
            "Requests refused because of the rule's limit of waiting requests, by rule.",
            |rule| denied(rule, Denial::Waits);
        "denied_requests", "too fast", Number counts("denied_requests") marked(Caution),
            "Requests refused because of the rule's limit of requests a second, by rule.",
            |rule| denied(rule, Denial::Requests);
        "denied_memory", "memory refused", Number counts("denied_memory") marked(Caution),
            "Connections ended because of the rule's limit of memory, by rule.", |rule| denied(rule, Denial::Memory);
    )
    .help("Usage per rule, and refusals since the start.")
    .empty("No rules.")
    .of_kinds()
}
