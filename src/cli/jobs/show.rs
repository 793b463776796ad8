//! Output of `jobs`: summaries, lists of jobs and statistics, as tables or as JSON.

use super::options::JobsCommandSettings;
use super::words::in_one_line;
use super::{as_id, failure, found};
use crate::command::{Exit, Failure, MISUSE};
use crate::terminal::{self, aligned, print, printable};
use poolcounter_client::{Error, JobId, JobState, JobStatus, ListedJob, Producer, SummaryBy, SummaryRow};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// Columns of a summary behind the names: the head of each, and the member of a row's JSON that is below it.
const COLUMNS: &str = "READY=ready RESERVED=reserved DELAYED=delayed BURIED=buried OLDEST_S=oldest-ready \
    PICKUP99_S=pickup-delay-99 PUT/S=put-rate-1 DELETE/S=delete-rate-1 DUPLICATES=duplicates FAILURES=failures";

/// Columns of a summary of runners, which have only reserved jobs.
const COLUMNS_OF_RUNNERS: &str = "CONNECTIONS=connections WAITING=waiting RESERVED=reserved RESERVE/S=reserve-rate-1 \
    DELETE/S=delete-rate-1 BUSY_S=busy FAILURES=failures";

/// Prints a summary.
///
/// # Errors
///
/// Fails if the server does not support it, or the result cannot be printed.
pub fn summary(producer: &Producer, settings: &JobsCommandSettings, by: SummaryBy) -> Exit {
    let rows = producer.summary(by).map_err(failure)?;
    let columns = if by == SummaryBy::Runner { COLUMNS_OF_RUNNERS } else { COLUMNS };
    let columns = format!("{}=name {columns}", by.word().to_uppercase());
    print_rows(producer, settings.servers.is_json, "summary", rows.iter().map(object_of_row).collect(), &columns)
}

/// States of jobs; most failed jobs are in the first.
pub const STATES: [JobState; 4] = [JobState::Delayed, JobState::Buried, JobState::Reserved, JobState::Ready];
/// Jobs of one reply to a search for failed jobs.
const PAGE: u32 = 1000;

/// Prints jobs of a tube that are in one of these states: with `--error` the failed jobs, else all jobs of the first
/// state.
///
/// # Errors
///
/// As [`summary`].
pub fn list(producer: &Producer, settings: &JobsCommandSettings, tube: &str, states: &[JobState]) -> Exit {
    let listed = match settings.has_errors {
        true => failed_jobs(producer, settings, tube, states),
        false => producer.list_jobs(tube, states[0], settings.limit, settings.after),
    };
    let Some(listed) = listed.map_err(failure)? else { return found(tube, false) };
    if settings.has_errors && !settings.servers.is_json {
        let text = |job: &ListedJob| format!("job {}, attempts {}:\n{}", job.id, job.attempts, indented(&job.error));
        return print(&listed.iter().map(text).collect::<String>());
    }
    let columns = "ID=id AGE_S=age PRI=pri ATTEMPTS=attempts KEY=key GROUP=group ERROR=error";
    print_rows(producer, settings.servers.is_json, "jobs", listed.iter().map(object_of_job).collect(), columns)
}

/// Returns the failed jobs of a tube with the lowest numbers, ascending, up to the limit; None if the tube does not exist.
fn failed_jobs(
    producer: &Producer,
    settings: &JobsCommandSettings,
    tube: &str,
    states: &[JobState],
) -> Result<Option<Vec<ListedJob>>, Error> {
    let most = settings.limit as usize;
    let (mut failed, mut is_found): (Vec<ListedJob>, _) = (Vec::new(), false);
    for state in states {
        let (mut after, mut more) = (settings.after, Vec::new());
        // Jobs above the last of a full list need not be known.
        let end = failed.get(most - 1).map(|job| job.id);
        while more.len() < most && (end.is_none() || after < end) {
            let Some(page) = producer.list_jobs(tube, *state, PAGE, after)? else { break };
            is_found = true;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            more.extend(page.into_iter().filter(|job| !job.error.is_empty()));
        }
        failed.extend(more);
        failed.sort_unstable_by_key(|job| job.id);
        // A job may have moved between two requests.
        failed.dedup_by_key(|job| job.id);
        failed.truncate(most);
    }
    Ok(is_found.then_some(failed))
}

/// Prints a job: its statistics, its last failure and its body.
///
/// # Errors
///
/// Fails if the server does not reply, or the result cannot be printed.
pub fn job(producer: &Producer, settings: &JobsCommandSettings, id: JobId) -> Exit {
    let not_found = || found(&id.to_string(), false);
    let Some(mut map) = producer.stats_job(id).map_err(failure)? else { return not_found() };
    let Some(body) = producer.peek(id).map_err(failure)? else { return not_found() };
    if let Some(JobStatus { tube, state, .. }) = producer.status(id).map_err(failure)? {
        let before = id.0.checked_sub(1).map(JobId);
        let listed = match producer.list_jobs(&tube, state, 1, before) {
            Err(Error::NoExtension(_)) => None,
            listed => listed.map_err(failure)?,
        };
        if let Some(job) = listed.unwrap_or_default().into_iter().find(|job| job.id == id) {
            map.push(("attempts".into(), job.attempts.to_string()));
            map.extend(job.key_left.map(|left| ("key-left".into(), left.as_secs().to_string())));
            map.extend([("key".into(), job.key), ("group".into(), job.group), ("error".into(), job.error)]);
        }
    }
    map.push(("body".into(), String::from_utf8_lossy(&body).into_owned()));
    if settings.servers.is_json {
        return print_json(producer, "job", &object_of(map, false));
    }
    let lines = |(name, value): &(String, String)| match value.trim_end().contains('\n') {
        true => format!("{name}:\n{}", indented(value)),
        false => format!("{name}: {}\n", printable(value.trim_end().as_bytes())),
    };
    print(&map.iter().filter(|(_, value)| !value.is_empty()).map(lines).collect::<String>())
}

fn indented(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("    {}\n", printable(line.as_bytes()))).collect()
}

/// Names of texts, which stay as they are even if they look like numbers.
const TEXTS: [&str; 14] = [
    "tube", "name", "key", "group", "error", "body", "hostname", "version", "os", "platform", "of", "origin", "value",
    "cron",
];

/// Returns a map as JSON. The `id` of a server is a text, that of a job a number.
fn object_of(map: Vec<(String, String)>, is_of_server: bool) -> Value {
    let is_text = |name: &str| TEXTS.contains(&name) || is_of_server && name == "id";
    let pair = |(name, text): (String, String)| {
        let value = if is_text(&name) { known(&text) } else { scalar(&text) };
        (name, value)
    };
    let object: Map<String, Value> = map.into_iter().map(pair).collect();
    object.into()
}

/// Prints the settings that a command has made, or the configuration file instead of it.
///
/// # Errors
///
/// As [`summary`].
pub fn settings(producer: &Producer, settings: &JobsCommandSettings, command: &str) -> Exit {
    let mut made = producer.settings(None).map_err(failure)?;
    made.retain(|map| map.iter().any(|(name, value)| name == "setting" && value == command));
    let rows = made.into_iter().map(|map| object_of(map, false)).collect();
    print_rows(producer, settings.servers.is_json, "settings", rows, "OF=of VALUE=value LEFT_S=left ORIGIN=origin")
}

/// Prints the periodic jobs.
///
/// # Errors
///
/// As [`summary`].
pub fn schedules(producer: &Producer, is_json: bool) -> Exit {
    let rows = producer.schedules().map_err(failure)?.into_iter().map(|map| object_of(map, false));
    let mut rows: Vec<Value> = rows.collect();
    for row in rows.iter_mut().filter(|_| !is_json) {
        let every = || format!("every {} s", cell_of(&row["every"])).into();
        row["times"] = row.get("cron").cloned().unwrap_or_else(every);
    }
    let columns = "NAME=name TUBE=tube TIMES=times ZONE=timezone MISSED=missed NEXT_S=next LAST_S=last \
        SKIPPED=skipped ORIGIN=origin";
    print_rows(producer, is_json, "schedules", rows, columns)
}

/// Prints the statistics of the server, or of a tube or job.
///
/// # Errors
///
/// Fails if the server does not reply, or the result cannot be printed.
pub fn stats(producer: &Producer, settings: &JobsCommandSettings, of: Option<&str>) -> Exit {
    let map = match (of, of.and_then(as_id)) {
        (None, _) => Some(producer.stats().map_err(failure)?),
        (Some(_), Some(id)) => producer.stats_job(id).map_err(failure)?,
        (Some(tube), None) => producer.stats_tube(tube).map_err(failure)?,
    };
    let Some(map) = map else { return found(of.unwrap_or_default(), false) };
    if settings.servers.is_json {
        return print_json(producer, "stats", &object_of(map, of.is_none()));
    }
    let line = |(name, value): &(String, String)| format!("{name}: {}\n", printable(value.as_bytes()));
    print(&map.iter().map(line).collect::<String>())
}

fn object_of_row(row: &SummaryRow) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), (&*row.name).into());
    object.extend(row.figures.iter().map(|(name, value)| (name.clone(), number(*value))));
    object.into()
}

fn object_of_job(job: &ListedJob) -> Value {
    json!({
        "id": job.id.0, "age": job.age.as_secs(), "pri": job.pri, "attempts": job.attempts,
        "key": known(&job.key), "key_left": job.key_left.map(|left| left.as_secs()), "group": known(&job.group),
        "error": known(&job.error), "origin": job.origin.as_deref().map_or(Value::Null, known),
        "is_superseded": job.is_superseded,
    })
}

/// Returns a number as JSON; a whole one without a decimal point.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && (0.0..9e15).contains(&value) { Value::from(value as u64) } else { Value::from(value) }
}

/// Returns a statistic as JSON: a number if it is written as one, else a string; null without a value.
fn scalar(text: &str) -> Value {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_whole = |text: &str| text.parse::<u64>().is_ok_and(|number| number.to_string() == text);
    match text.split_once('.') {
        None if is_whole(text) => text.parse::<u64>().map_or(Value::Null, Value::from),
        Some((whole, rest)) if is_whole(whole) && is_digits(rest) => {
            text.parse::<f64>().map_or(Value::Null, Value::from)
        }
        _ => known(text),
    }
}

/// Returns text as JSON; null if it is empty.
fn known(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

/// Prints the rows as JSON under a name, or as a table.
fn print_rows(producer: &Producer, is_json: bool, name: &str, rows: Vec<Value>, columns: &str) -> Exit {
    if is_json {
        return print_json(producer, name, &rows.into());
    }
    let columns = || columns.split(' ').map(|column| column.split_once('=').expect("a column is HEAD=member"));
    let heads = columns().map(|(head, _)| head.to_string()).collect();
    let cells = |row: &Value| columns().map(|(_, member)| cell_of(&row[member])).collect();
    let lines = aligned(&[heads].into_iter().chain(rows.iter().map(cells)).collect::<Vec<Vec<String>>>());
    print(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())
}

/// Returns a value as the cell of a table: a number with at most three decimals, or a text in one line.
fn cell_of(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => in_one_line(text.as_bytes()),
        Value::Number(number) if number.is_f64() => {
            let text = format!("{:.3}", number.as_f64().unwrap_or_default());
            text.trim_end_matches('0').trim_end_matches('.').into()
        }
        other => other.to_string(),
    }
}

/// Prints the failure of a request as a list of one object. A wrong command line stays a sentence.
///
/// # Errors
///
/// Fails for a wrong command line, or if the result cannot be printed.
pub fn error_as_json(producer: &Producer, looked: Exit) -> Exit {
    match looked {
        Err(Failure { status, sentence }) if status != MISUSE => {
            print_json(producer, "error", &sentence.into())?;
            Ok(ExitCode::from(status))
        }
        looked => looked,
    }
}

/// Prints a list of one object: the server, and the value under its name, as all commands do.
fn print_json(producer: &Producer, name: &str, value: &Value) -> Exit {
    terminal::print_json(&json!([{ "server": producer.server(), name: value }]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_stay_what_they_are() {
        let map =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
        let texts = ["NaN", "007", "1.10", "1e5", "5", "inf"];
        for (name, text) in TEXTS.into_iter().flat_map(|name| texts.map(|text| (name, text))) {
            assert_eq!(object_of(map(&[(name, text)]), false), json!({ name: text }));
        }
        let statistics = [("pri", "0"), ("age", "18446744073709551615"), ("rusage-utime", "1.500000"), ("id", "7")];
        let numbers = json!({ "pri": 0, "age": u64::MAX, "rusage-utime": 1.5, "id": 7 });
        assert_eq!(object_of(map(&statistics), false), numbers);
        assert_eq!(object_of(map(&[("id", "7")]), true), json!({ "id": "7" }));
        for text in ["NaN", "inf", "007", "1e5", "18446744073709551616", ".5", "5.", "1.2.3", "+5", "-"] {
            assert_eq!(scalar(text), json!(text));
        }
        assert_eq!(scalar(""), Value::Null);
    }
}
