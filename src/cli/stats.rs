//! `stats`: prints the reports of servers, as lines or as JSON.

use super::command::{Exit, Failure};
use super::report::{self, is_used, tables_of, texts_of};
use super::servers::{
    EACH_SERVER, Servers, TIMEOUTS, has_part, in_words, json_option, print_answers, print_objects, server_option,
    tls_option,
};
use super::table::Given;
use super::terminal::{aligned, printable};
use crate::services::SERVICES;
use poolcounter_client::{Client, Error};
use poolcounter_protocol::pools::wire::client::LISTS;
use poolcounter_service::contract::Traffic;
use poolcounter_service::options::{Opt, assign, did_you_mean, number, option_table};
use poolcounter_service::report::{ShownService, Snapshot};
use poolcounter_service::shown::duration;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Settings of the command.
pub struct StatsSettings {
    servers: Servers,
    rows: usize,
}

/// Reply of a server to an unknown statistic.
const WRONG_STAT: &str = "WRONG_STAT";
/// Default number of printed rows per table.
const USUAL_ROWS: usize = 10;

/// Options of the command.
pub const OPTIONS: &[Opt<StatsSettings>] = option_table!(StatsSettings;
    => json_option(
        "Print a list of JSON objects, one for each server. Each has server and report, which is like /status.json, as \
         in docs/status-page.md. In place of report it has lines if a single answer was asked for, or error.",
    );
    "-r, --rows N", "Number of rows of each table to print, 300 at most (default: 10).",
        |settings, value| assign(&mut settings.rows, number(value, 0..=300));
    => server_option(EACH_SERVER); => tls_option();
);

/// Runs the command.
///
/// # Errors
///
/// Fails if the result cannot be printed. A server that does not reply is reported; see [`print_answers`].
pub fn run(given: &Given) -> Exit {
    let usual = StatsSettings { servers: Servers::default(), rows: USUAL_ROWS };
    let settings = given.settings(OPTIONS, usual)?;
    let service = match given.words.as_slice() {
        [] => None,
        [word] if is_service(word) => word.to_str(),
        words => return print_query(&settings, words),
    };
    let client = Client::with(settings.servers.placement(), TIMEOUTS);
    let answers = report::ask(&client, settings.rows);
    if settings.servers.is_json {
        return print_objects(answers, |report| ("report", of_service(report, service)));
    }
    let lines = |report| Ok(lines_of(&report::read(report)?, service));
    print_answers(answers.into_iter().map(|(server, answer)| (server, answer.and_then(lines))).collect(), |lines| lines)
}

/// Prints what servers answer to some words. Words that none of them knows are a misuse.
fn print_query(settings: &StatsSettings, words: &[OsString]) -> Exit {
    let words = on_wire(words);
    let sentence = no_such(&words.iter().map(|word| printable(word)).collect::<Vec<_>>().join(" "));
    let refusal = |error: &Error| match error {
        Error::Refused(words) if words.ends_with(WRONG_STAT) => sentence.clone(),
        error => error.to_string(),
    };
    let answers = Client::with(settings.servers.placement(), TIMEOUTS).query(words.join(&b' '));
    let answers = in_words(answers, refusal);
    if answers.iter().all(|(_, answer)| answer.as_ref().is_err_and(|failure| failure.sentence == sentence)) {
        return Err(Failure::misuse(sentence));
    }
    let text = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
    match settings.servers.is_json {
        true => print_objects(answers, |lines| ("lines", lines.iter().map(text).collect())),
        false => print_answers(answers, |lines| lines.iter().map(|line| printable(line)).collect()),
    }
}

fn is_service(word: &OsString) -> bool {
    SERVICES.iter().any(|info| word == info.name)
}

/// Returns words as they are sent. Keys are bytes, in which a space is sent as `%20`.
pub(super) fn on_wire(words: &[OsString]) -> Vec<Vec<u8>> {
    let escaped = |word: &OsString| word.as_bytes().split(|byte| *byte == b' ').collect::<Vec<_>>().join(&b"%20"[..]);
    words.iter().map(escaped).collect()
}

/// Returns the sentence about a word that is neither a service nor a statistic.
fn no_such(word: &str) -> String {
    let known = first_words();
    let near = did_you_mean(word, known.iter().copied());
    format!("there is no statistic \"{word}\"; a service or a list is one of {}{near}", known.join(", "))
}

/// Returns the report as JSON, of a single service if one is given.
fn of_service(report: Value, service: Option<&str>) -> Value {
    let Some(name) = service else { return report };
    let services = report["services"].as_array().into_iter().flatten();
    let services: Vec<&Value> = services.filter(|it| it["name"] == name).collect();
    match services.iter().any(|it| it["is_enabled"] == false) {
        true => json!({ "services": [], name: null }),
        false => json!({ "services": services, name: report[name] }),
    }
}

/// Returns the report as lines, of a single service if one is given, else of all used ones.
fn lines_of(report: &Snapshot, service: Option<&str>) -> Vec<String> {
    let mut lines = vec![format!("poolcounter {}, up {}", report.version, duration(report.uptime))];
    for told in &report.services {
        if service.is_some_and(|name| told.name == name) && !told.is_enabled {
            lines.push(format!("{}: not enabled", told.name));
        } else if service.map_or(is_used(told), |name| told.name == name) {
            write_service(&mut lines, told);
        }
    }
    lines
}

fn write_service(lines: &mut Vec<String>, service: &ShownService) {
    let ShownService { name, traffic: Traffic { open, opened, .. }, figures, .. } = service;
    lines.extend([String::new(), format!("{name}: {open} connections, {opened} since the start")]);
    lines.extend(figures.iter().map(|it| match it.is_seconds {
        true => format!("{}: {}", it.name, duration(it.value)),
        false => format!("{}: {}", it.name, it.value),
    }));
    for table in tables_of(service) {
        lines.extend([String::new(), table.title.to_string()]);
        if table.rows.is_empty() {
            lines.push(table.empty.into_owned());
            continue;
        }
        lines.extend(aligned(&texts_of(&table)));
        lines.extend((table.more > 0).then(|| format!("and {} more", table.more)));
        lines.extend(table.note);
    }
}

has_part!(StatsSettings, servers: Servers);

/// Returns the possible requests, without single statistics.
pub fn first_words() -> Vec<&'static str> {
    SERVICES.iter().map(|info| info.name).chain(LISTS).collect()
}
