//! Statistics and lists as YAML, as beanstalkd writes them.

use crate::state::queries::{JobStats, Summary, TubeStats};
use crate::state::{Counted, JobState, Origin, ShownSchedule, ShownSetting};
use crate::stats::Jobs;
use poolcounter_core::{Figures, Time};
use poolcounter_protocol::jobs::commands::{self, JobCommand};
use poolcounter_protocol::jobs::values::ScheduleTimes;
use std::io::Write;

macro_rules! put {
    ($bytes:expr, $($argument:tt)*) => { writeln!($bytes, $($argument)*).expect("a vector takes every byte") };
}

/// Returns the beginning of every text.
pub fn begin() -> Vec<u8> {
    b"---\n".to_vec()
}

/// Writes the answer to `stats-job`.
pub fn write_job(bytes: &mut Vec<u8>, job: &JobStats<'_>) {
    put!(bytes, "id: {}", job.id.0);
    put!(bytes, "tube: {}", quoted(job.tube));
    put!(bytes, "state: {}", job.state.word());
    put!(bytes, "pri: {}\nage: {}\ndelay: {}\nttr: {}", job.pri, job.age, job.delay, job.ttr);
    put!(bytes, "time-left: {}\nfile: 0\nreserves: {}", job.time_left, job.reserves);
    let history = job.history;
    put!(bytes, "timeouts: {}\nreleases: {}", history.timeouts, history.releases);
    put!(bytes, "buries: {}\nkicks: {}", history.buries, history.kicks);
    write_origin(bytes, "", job);
}

fn write_origin(bytes: &mut Vec<u8>, indent: &str, job: &JobStats<'_>) {
    if let Some(Origin { tube, attempts, .. }) = job.origin {
        put!(bytes, "{indent}origin: {}", quoted(tube));
        put!(bytes, "{indent}origin-attempts: {attempts}\n{indent}origin-age: {}", job.origin_age);
    }
}

/// Writes the answer to `stats-tube`.
pub fn write_tube(bytes: &mut Vec<u8>, (name, figures): TubeStats<'_>) {
    put!(bytes, "name: {}", quoted(name));
    figures.iter().for_each(|(name, figure)| put!(bytes, "{name}: {figure}"));
}

/// Figures of the process and its connections for `stats`, with texts not yet quoted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServerStats {
    /// Longest body in bytes.
    pub max_job_size: u32,
    /// Numbers of connections: of present connections, of producers, of workers, and of all connections so far.
    pub connections: [u64; 4],
    /// Process id.
    pub pid: u32,
    /// Version as `N.M`.
    pub version: String,
    /// Processor time in seconds: of the process, and of the system for it.
    pub rusage: [f64; 2],
    /// Seconds since the start.
    pub uptime: u64,
    /// True while puts are refused.
    pub draining: bool,
    /// Random id: eight bytes as hexadecimal digits.
    pub id: String,
    /// Name of the machine, its operating system, and its processor.
    pub machine: [String; 3],
}

/// Number of rows of beanstalkd's `stats`: up to `total-jobs`, and two more between other rows.
const ROWS_OF_BEANSTALKD: usize = Jobs::Tubes as usize;

/// Writes the answer to `stats`: beanstalkd's rows in its order, then the rows of the extensions.
pub fn write_stats(bytes: &mut Vec<u8>, figures: &Figures<Jobs>, server: &ServerStats) {
    for (row, value) in figures.rows().take(ROWS_OF_BEANSTALKD) {
        put!(bytes, "{}: {value}", row.name);
    }
    let [open, producers, workers, total] = server.connections;
    put!(bytes, "max-job-size: {}\ncurrent-tubes: {}", server.max_job_size, figures.of(Jobs::Tubes));
    put!(bytes, "current-connections: {open}\ncurrent-producers: {producers}\ncurrent-workers: {workers}");
    put!(bytes, "current-waiting: {}\ntotal-connections: {total}", figures.of(Jobs::Waiting));
    put!(bytes, "pid: {}\nversion: {}", server.pid, quoted(server.version.as_bytes()));
    let [user, system] = server.rusage;
    put!(bytes, "rusage-utime: {user:.6}\nrusage-stime: {system:.6}\nuptime: {}", server.uptime);
    for key in ["oldest-index", "current-index", "records-migrated", "records-written", "max-size"] {
        put!(bytes, "binlog-{key}: 0");
    }
    put!(bytes, "draining: {}\nid: {}", server.draining, server.id);
    for (key, value) in ["hostname", "os", "platform"].into_iter().zip(&server.machine) {
        put!(bytes, "{key}: {}", quoted(value.as_bytes()));
    }
    for (row, value) in figures.rows().skip(Jobs::Waiting as usize + 1) {
        put!(bytes, "{}: {value}", row.name);
    }
}

/// Writes a list of names.
pub fn write_names<'a>(bytes: &mut Vec<u8>, names: impl Iterator<Item = &'a [u8]>) {
    for name in names {
        bytes.extend_from_slice(b"- ");
        bytes.extend_from_slice(name);
        bytes.push(b'\n');
    }
}

/// Writes the answer to `extensions`: every command word, then the options of put-job.
pub fn write_extensions(bytes: &mut Vec<u8>) {
    for row in JobCommand::ROWS {
        put!(bytes, "- {}", row.word);
    }
    for option in commands::OPTIONS {
        put!(bytes, "- put-job:{option}");
    }
    for option in commands::FAIL_OPTIONS {
        put!(bytes, "- fail:{option}");
    }
}

/// Writes one entry of `list-jobs`.
pub fn write_listed(bytes: &mut Vec<u8>, job: &JobStats<'_>) {
    put!(bytes, "- id: {}\n  age: {}\n  pri: {}\n  attempts: {}", job.id.0, job.age, job.pri, job.history.attempts);
    put!(bytes, "  key: {}\n  group: {}\n  error: {}", quoted(job.key), quoted(job.group), quoted(job.error));
    write_origin(bytes, "  ", job);
    if let Some(seconds) = job.key_left {
        put!(bytes, "  key-left: {seconds}");
    }
    if job.is_superseded {
        put!(bytes, "  superseded: true");
    }
}

/// Writes one entry of `list-settings`.
pub fn write_setting(bytes: &mut Vec<u8>, setting: &ShownSetting) {
    let ShownSetting { command, of, value, left, is_of_file } = setting;
    put!(bytes, "- setting: {command}\n  of: {}\n  value: {}", quoted(of), quoted(value));
    if let Some(left) = left {
        put!(bytes, "  left: {}", left.as_micros() / 1_000_000);
    }
    put!(bytes, "  origin: {}", if *is_of_file { "file" } else { "command" });
}

/// Writes one entry of `list-schedules`.
pub fn write_schedule(bytes: &mut Vec<u8>, schedule: &ShownSchedule<'_>) {
    let ShownSchedule { name, put, body_bytes, next, last, skipped, is_of_file } = schedule;
    let Some((options, times)) = schedule.options() else { return };
    put!(bytes, "- name: {}\n  tube: {}", quoted(name), quoted(&options.tube));
    match &times.times {
        ScheduleTimes::Every(seconds) => put!(bytes, "  every: {seconds}"),
        ScheduleTimes::Cron { expression, timezone } => {
            put!(bytes, "  cron: {}\n  timezone: {}", quoted(expression.as_bytes()), quoted(timezone.as_bytes()));
        }
    }
    put!(bytes, "  missed: {}", if times.is_made_up { "once" } else { "skip" });
    put!(bytes, "  key: {}\n  pri: {}\n  ttr: {}\n  bytes: {body_bytes}", quoted(&options.key), put.pri, put.ttr);
    for (name, span) in [("next", next), ("last", last)] {
        if let Some(span) = span {
            put!(bytes, "  {name}: {}", span.as_micros() / 1_000_000);
        }
    }
    put!(bytes, "  skipped: {skipped}\n  origin: {}", if *is_of_file { "file" } else { "command" });
}

/// Writes one entry of `summary`. Times are seconds, rates jobs a second over the last 1, 5 and 15 minutes.
pub fn write_summary(bytes: &mut Vec<u8>, name: &[u8], summary: &Summary, is_runner: bool, now: Time) {
    put!(bytes, "- name: {}", quoted(name));
    if is_runner {
        put!(bytes, "  connections: {}\n  waiting: {}", summary.conns, summary.waiting);
    }
    for (state, count) in JobState::ALL.into_iter().zip(summary.counts) {
        put!(bytes, "  {}: {count}", state.word());
    }
    put!(bytes, "  retrying: {}", summary.retrying);
    let seconds = |micros: u64| micros as f64 / 1e6;
    put!(bytes, "  oldest-ready: {:.3}", seconds(summary.oldest_ready.as_micros()));
    for (name, times) in [("pickup-delay", &summary.tally.pickups), ("run-time", &summary.tally.runs)] {
        for (percent, share) in [(50, 0.5), (99, 0.99)] {
            let time = times.quantile(share).map_or(0, |quantile| quantile.value);
            put!(bytes, "  {name}-{percent}: {:.3}", seconds(time));
        }
    }
    for (event, rates) in ["put", "reserve", "delete"].into_iter().zip(summary.rates(now)) {
        for (minutes, rate) in [1, 5, 15].into_iter().zip(rates) {
            put!(bytes, "  {event}-rate-{minutes}: {rate:.3}");
        }
    }
    let count = |event: Counted| summary.tally.counts[event as usize];
    let [duplicates, superseded, failures] = [Counted::Duplicate, Counted::Superseded, Counted::Failure].map(count);
    put!(bytes, "  duplicates: {duplicates}\n  superseded: {superseded}\n  failures: {failures}");
    if let Some((_, span)) = &summary.busy {
        put!(bytes, "  busy: {:.3}", seconds(span.as_micros()));
    }
}

/// Returns text between double quotes, with characters that would end or break it escaped.
fn quoted(text: &[u8]) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_control() => quoted.push_str(&format!("\\x{:02x}", control as u32 & 0xff)),
            character => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}
