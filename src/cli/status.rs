//! `status`: prints a line for each service about its health, with the exit statuses of monitoring plugins.

use super::command::{Exit, Failure};
use super::report;
use super::servers::{AnswerOf, EACH_SERVER, Servers, TIMEOUTS, json_option, print_objects, server_option, tls_option};
use super::table::Given;
use super::terminal::{aligned, print, printable};
use poolcounter_client::Client;
use poolcounter_core::Span;
use poolcounter_service::health::in_words;
use poolcounter_service::options::Opt;
use poolcounter_service::report::{Level, ShownHealth};
use serde_json::Value;
use std::process::ExitCode;

/// Options of the command.
pub const OPTIONS: &[Opt<Servers>] = &[
    json_option(
        "Print a list of JSON objects, one for each server. Each has server, and health as in /status.json, described \
         in docs/status-page.md, or error.",
    ),
    server_option(EACH_SERVER),
    tls_option(),
];

/// Title of the line of a server without a report.
const SERVER: &str = "Server";

/// Line of the output: a condition that is on, or a service without conditions.
#[derive(Default)]
struct Line {
    level: Level,
    /// True for a condition that has ended.
    is_over: bool,
    server: String,
    title: String,
    /// Time for which the condition has been on; empty without a condition.
    span: String,
    sentence: String,
    /// Command that helps, without the name of the program; empty if there is none.
    command: String,
}

/// Runs the command. The status is 0 if all is well, 1 after a warning, and 2 if a condition is critical or a server
/// does not reply.
///
/// # Errors
///
/// Fails if the result cannot be printed.
pub fn run(given: &Given) -> Exit {
    let servers = given.settings(OPTIONS, Servers::default())?;
    let client = Client::with(servers.placement(), TIMEOUTS);
    let answers: Vec<AnswerOf<Value>> = report::ask(&client, 0);
    let mut lines: Vec<Line> = answers.iter().flat_map(|(server, answer)| lines_of(server, answer)).collect();
    let names_servers = answers.len() > 1 || lines.iter().any(|line| line.title == SERVER);
    lines.sort_by_key(|line| std::cmp::Reverse(line.level));
    let worst = lines.first().map_or(Level::Ok, |line| line.level);
    if servers.is_json {
        print_objects(answers, |report| ("health", report["health"].clone()))?;
    } else {
        print(&(text_of(&lines, names_servers).join("\n") + "\n"))?;
    }
    Ok(ExitCode::from(worst as u8))
}

fn lines_of(server: &str, answer: &Result<Value, Failure>) -> Vec<Line> {
    match answer.as_ref().map_err(|failure| failure.sentence.clone()).and_then(|report| report::read(report.clone())) {
        Ok(report) => {
            let now = report.started_at + report.uptime;
            report.health.iter().flat_map(|health| lines_of_service(server, health, now)).collect()
        }
        Err(sentence) => {
            let (server, title) = (printable(server.as_bytes()), SERVER.into());
            vec![Line { level: Level::Critical, server, title, sentence, ..Line::default() }]
        }
    }
}

fn lines_of_service(server: &str, health: &ShownHealth, now: f64) -> Vec<Line> {
    let line = |level, sentence: &str| {
        let (server, title, sentence) = (printable(server.as_bytes()), health.title.to_string(), sentence.into());
        Line { level, server, title, sentence, ..Line::default() }
    };
    // A time of day is far below the limit of a span.
    let span = |since: f64| in_words(Span::from_micros(((now - since).max(0.0) * 1e6) as u64));
    let on = health.conditions.iter().map(|on| match on.until {
        None => Line { span: span(on.since), command: on.command.clone(), ..line(on.level, &on.sentence) },
        Some(_) => Line { is_over: true, ..line(Level::Ok, &on.sentence) },
    });
    let standing = (health.level == Level::Ok).then(|| line(Level::Ok, &health.sentence));
    let more = (health.more > 0).then(|| line(health.level, &format!("and {} more", health.more)));
    standing.into_iter().chain(on).chain(more).collect()
}

/// Returns a first line for monitoring, and a table with the helpful command below each condition.
fn text_of(lines: &[Line], names_servers: bool) -> Vec<String> {
    let count = |level| lines.iter().filter(|line| line.level == level).count();
    let worst = lines.first();
    let level = worst.map_or(Level::Ok, |line| line.level);
    let first = match worst {
        Some(worst) if level > Level::Ok => {
            let server = if names_servers { format!("{}: ", worst.server) } else { String::new() };
            format!("{}: {server}{}: {}", level.word().to_uppercase(), worst.title, worst.sentence)
        }
        _ => "OK: nothing is wrong".into(),
    };
    let counts = format!("{first} | critical={} warning={}", count(Level::Critical), count(Level::Warning));
    let row = |line: &Line| {
        let server = names_servers.then(|| line.server.clone());
        let cells = [line.title.clone(), line.span.clone(), line.sentence.clone()];
        let word = if line.is_over { "over" } else { line.level.word() };
        [word.to_string()].into_iter().chain(server).chain(cells).collect()
    };
    let rows = aligned(&lines.iter().map(row).collect::<Vec<Vec<String>>>());
    let with_command = |(row, line): (String, &Line)| {
        let command = (!line.command.is_empty()).then(|| format!("    poolcounter {}", line.command));
        [row].into_iter().chain(command)
    };
    [counts].into_iter().chain(rows.into_iter().zip(lines).flat_map(with_command)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_for_monitoring() {
        let line = |level, title: &str, sentence: &str| Line {
            level,
            server: "a".into(),
            title: title.into(),
            sentence: sentence.into(),
            command: if level == Level::Ok { String::new() } else { "holders k".into() },
            ..Line::default()
        };
        let lines = [line(Level::Critical, "Locks", "k refuses"), line(Level::Ok, "Jobs", "0 ready")];
        assert_eq!(text_of(&lines, false)[0], "CRITICAL: Locks: k refuses | critical=1 warning=0");
        assert_eq!(text_of(&lines, true)[0], "CRITICAL: a: Locks: k refuses | critical=1 warning=0");
        assert_eq!(text_of(&lines[1..], false)[0], "OK: nothing is wrong | critical=0 warning=0");
        assert_eq!(text_of(&lines, false)[2], "    poolcounter holders k");
    }
}
