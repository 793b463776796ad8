//! What `jobs` prints: summaries, lists of jobs and statistics, as tables or as JSON.

use super::settings::JobCommandSettings;
use super::words::in_one_line;
use super::{as_id, failure, found};
use crate::command::Failure;
use crate::terminal::{aligned, ascii_where_invisible, print, printable};
use poolcounter_client::{Error, JobId, JobState, JobStatus, ListedJob, Producer, SummaryBy, SummaryRow};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

/// The figures of a summary that have a column, and its head.
const COLUMNS: &[(&str, &str)] = &[
    ("ready", "READY"),
    ("reserved", "RESERVED"),
    ("delayed", "DELAYED"),
    ("buried", "BURIED"),
    ("oldest-ready", "OLDEST_S"),
    ("pickup-delay-99", "PICKUP99_S"),
    ("put-rate-1", "PUT/S"),
    ("delete-rate-1", "DELETE/S"),
    ("duplicates", "DUPLICATES"),
    ("failures", "FAILURES"),
];

/// The same of a runner, which has no jobs but reserved ones.
const COLUMNS_OF_RUNNERS: &[(&str, &str)] = &[
    ("connections", "CONNECTIONS"),
    ("waiting", "WAITING"),
    ("reserved", "RESERVED"),
    ("reserve-rate-1", "RESERVE/S"),
    ("delete-rate-1", "DELETE/S"),
    ("busy", "BUSY_S"),
    ("failures", "FAILURES"),
];

/// Prints a summary.
///
/// # Errors
///
/// When the server does not know it, or nothing can be printed.
pub fn summary(producer: &Producer, settings: &JobCommandSettings, by: SummaryBy) -> Result<ExitCode, Failure> {
    let rows = producer.summary(by).map_err(failure)?;
    if settings.is_json {
        return print_json(&rows.iter().map(object_of_row).collect::<Value>());
    }
    let columns = if by == SummaryBy::Runner { COLUMNS_OF_RUNNERS } else { COLUMNS };
    let heads = [by.word().to_uppercase()].into_iter().chain(columns.iter().map(|(_, head)| (*head).into()));
    let cells = |row: &SummaryRow| {
        let figures = columns.iter().map(|(name, _)| row.figure(name).map_or("-".into(), in_short));
        [printable(row.name.as_bytes())].into_iter().chain(figures).collect()
    };
    print_table(&[heads.collect()].into_iter().chain(rows.iter().map(cells)).collect::<Vec<_>>())
}

/// Prints jobs of a tube.
///
/// # Errors
///
/// As [`summary`].
pub fn list(
    producer: &Producer,
    settings: &JobCommandSettings,
    tube: &str,
    state: JobState,
) -> Result<ExitCode, Failure> {
    let listed = producer.list_jobs(tube, state, settings.limit, settings.after).map_err(failure)?;
    let Some(mut listed) = listed else { return found(tube, false) };
    listed.retain(|job| !settings.has_errors || !job.error.is_empty());
    if settings.is_json {
        return print_json(&listed.iter().map(object_of_job).collect::<Value>());
    }
    if settings.has_errors {
        let text = |job: &ListedJob| format!("job {}, attempts {}:\n{}", job.id, job.attempts, indented(&job.error));
        return print(&listed.iter().map(text).collect::<String>());
    }
    let heads = ["ID", "AGE_S", "PRI", "ATTEMPTS", "KEY", "GROUP", "ERROR"].map(String::from).into();
    let or_dash = |text: &str| if text.is_empty() { "-".into() } else { printable(text.as_bytes()) };
    let cells = |job: &ListedJob| {
        let numbers = [job.id.0, job.age.as_secs(), job.pri.into(), job.attempts].map(|number| number.to_string());
        let error = &in_one_line(job.error.as_bytes());
        numbers.into_iter().chain([&*job.key, &job.group, error].map(or_dash)).collect()
    };
    print_table(&[heads].into_iter().chain(listed.iter().map(cells)).collect::<Vec<_>>())
}

/// Prints a job: what the server tells of it, why it failed last, and its body.
///
/// # Errors
///
/// When there is no answer, or it cannot be printed.
pub fn job(producer: &Producer, settings: &JobCommandSettings, id: JobId) -> Result<ExitCode, Failure> {
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
            map.extend([("key".into(), job.key), ("group".into(), job.group), ("error".into(), job.error)]);
        }
    }
    map.push(("body".into(), String::from_utf8_lossy(&body).into_owned()));
    if settings.is_json {
        return print_object(map);
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

fn print_object(map: Vec<(String, String)>) -> Result<ExitCode, Failure> {
    let object: Map<String, Value> = map.into_iter().map(|(name, value)| (name, scalar(&value))).collect();
    print_json(&object.into())
}

/// Prints the statistics of the server, or of a tube or job.
///
/// # Errors
///
/// When there is no answer, or it cannot be printed.
pub fn stats(producer: &Producer, settings: &JobCommandSettings, of: Option<&str>) -> Result<ExitCode, Failure> {
    let map = match (of, of.and_then(as_id)) {
        (None, _) => Some(producer.stats().map_err(failure)?),
        (Some(_), Some(id)) => producer.stats_job(id).map_err(failure)?,
        (Some(tube), None) => producer.stats_tube(tube).map_err(failure)?,
    };
    let Some(map) = map else { return found(of.unwrap_or_default(), false) };
    if settings.is_json {
        return print_object(map);
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
        "id": job.id.0,
        "age": job.age.as_secs(),
        "pri": job.pri,
        "attempts": job.attempts,
        "key": job.key,
        "group": job.group,
        "error": job.error,
        "is_superseded": job.is_superseded,
    })
}

/// A number as JSON; a whole one without a point.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && (0.0..9e15).contains(&value) { Value::from(value as u64) } else { Value::from(value) }
}

/// A value of a statistic as JSON: a number, if it is one.
fn scalar(text: &str) -> Value {
    text.parse::<u64>()
        .map(Value::from)
        .or_else(|_| text.parse::<f64>().map(Value::from))
        .unwrap_or_else(|_| text.into())
}

/// Three decimals at most.
fn in_short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

fn print_table(lines: &[Vec<String>]) -> Result<ExitCode, Failure> {
    print(&aligned(lines).iter().map(|line| format!("{line}\n")).collect::<String>())
}

fn print_json(value: &Value) -> Result<ExitCode, Failure> {
    print(&format!("{}\n", ascii_where_invisible(&value.to_string())))
}
