//! The names that stay, which docs/stability.md promises: `tests/names.txt` has each. `make docs` adds new ones.

use crate::docs::{METRICS, everything, writes};
use crate::pages::{at_root, read};
use poolcounter::SERVICES;
use poolcounter_cli::{COMMANDS, MEMBER_REQUESTS, tables};
use poolcounter_core::stats::Stat;
use poolcounter_protocol::counters::stats::CounterStat;
use poolcounter_protocol::pools::stats::PoolStat;
use poolcounter_server::health;
use poolcounter_testkit::web;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const NAMES: &str = "tests/names.txt";

/// Beginning of the lines of fields, of which a daemon at rest does not show all.
const FIELD: &str = "field ";

/// Fields of `/status.json` for the page alone.
const UNSTABLE: [&str; 3] = ["history", "services[].tables", "services[].matrix"];

#[test]
fn no_name_has_vanished() {
    let (_daemon, http, _clients) = everything();
    let present = present(web::fetch(http, "/status.json").text());
    let text = read(NAMES);
    let promised: BTreeSet<String> = text.lines().map(String::from).collect();
    let gone: Vec<&String> = promised.difference(&present).collect();
    assert!(gone.is_empty(), "docs/stability.md promises these names, which are gone: {gone:#?}");
    let all: BTreeSet<String> = &promised | &present;
    if writes() {
        fs::write(at_root(NAMES), all.into_iter().map(|name| name + "\n").collect::<String>()).expect("can be written");
    } else {
        let new: Vec<&String> = present.difference(&promised).filter(|name| !name.starts_with(FIELD)).collect();
        assert!(new.is_empty(), "make docs adds these names, which stay from the next release on: {new:#?}");
    }
}

/// Returns the names that there are, each with its kind.
fn present(status: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for command in COMMANDS {
        names.insert(format!("command {}", command.name));
        names.extend(command.shown_options().iter().map(|option| format!("option {} --{}", command.name, option.long)));
    }
    let word = |usage: &str| format!("command members {}", usage.split(' ').next().unwrap_or(usage));
    names.extend(MEMBER_REQUESTS.iter().map(|(usage, ..)| word(usage)));
    let keys = (COMMANDS[0].options)().into_iter().map(|option| option.key).filter(|key| !key.is_empty());
    names.extend(keys.map(|key| format!("setting {key}")));
    names.extend(tables().iter().map(|table| format!("setting [[{}]]", table.key)));
    for info in SERVICES {
        names.extend(info.commands.iter().map(|request| format!("request {} {}", info.name, request.word)));
        names.extend(info.conditions.iter().map(|condition| format!("condition {}", condition.name)));
        names.extend(info.verbs.iter().map(|verb| format!("right {}:{verb}", info.name)));
    }
    names.extend(health::CONDITIONS.iter().map(|condition| format!("condition {}", condition.name)));
    names.extend(PoolStat::ALL.iter().map(|stat| format!("statistic pools {}", stat.row().name)));
    names.extend(CounterStat::ALL.iter().map(|stat| format!("statistic counters {}", stat.row().name)));
    let page = read(METRICS);
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `poolcounter_"));
    names.extend(rows.map(|row| {
        let mut cells = row.split('|').map(|cell| cell.replace(['`', ' '], ""));
        let mut next = || cells.next().expect("a row has four cells");
        format!("metric poolcounter_{} {} {}", next(), next(), next()).trim_end().to_string()
    }));
    let status = serde_json::from_str(status).expect("is JSON");
    add_fields(&status, "", &mut names);
    names
}

/// Adds the fields of a JSON value, with their paths.
fn add_fields(value: &Value, path: &str, names: &mut BTreeSet<String>) {
    match value {
        _ if UNSTABLE.contains(&path) => {}
        Value::Object(fields) => {
            for (name, field) in fields {
                add_fields(field, &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }), names);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_fields(item, &format!("{path}[]"), names)),
        _ => drop(names.insert(format!("{FIELD}{path}"))),
    }
}
