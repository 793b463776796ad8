//! Figures of a runner, as a metrics file for Prometheus' node exporter.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Limit of types with figures of their own; the rest is `other`. A large wiki farm has 60.
const TYPES: usize = 200;

/// Outcome of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobOutcome {
    Done,
    Failed,
    GivenBack,
    /// Taken by another runner.
    Lost,
}

/// Words for [`JobOutcome`], in its order.
const OUTCOMES: [&str; 4] = ["done", "failed", "given_back", "lost"];

/// Figures of all slots.
#[derive(Default)]
pub struct RunnerTally {
    types: Mutex<BTreeMap<String, TallyOfType>>,
    running: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct TallyOfType {
    outcomes: [u64; OUTCOMES.len()],
    seconds: f64,
}

impl RunnerTally {
    /// Counts jobs that were given to a command.
    pub fn begin(&self, count: usize) {
        self.running.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts the outcome of a job, with its duration.
    pub fn end(&self, kind: &str, outcome: JobOutcome, took: Duration) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        let mut types = self.types.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = types.len() >= TYPES && !types.contains_key(kind);
        let of_type = types.entry(if is_full { "other" } else { kind }.into()).or_default();
        of_type.outcomes[outcome as usize] += 1;
        of_type.seconds += took.as_secs_f64();
    }

    /// Writes the file atomically: a reader gets the old one or the new one.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn write(&self, path: &Path, runner: &str) -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}", std::process::id()));
        let new = path.with_file_name(name);
        std::fs::write(&new, self.text(runner))?;
        std::fs::rename(&new, path).inspect_err(|_| drop(std::fs::remove_file(&new)))
    }

    fn text(&self, runner: &str) -> String {
        let runner = format!("runner=\"{}\"", escaped(runner));
        let types = self.types.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            *text += &format!("# HELP poolcounter_runner_{name} {help}\n# TYPE poolcounter_runner_{name} {kind}\n");
        };
        head(&mut text, "running", "gauge", "Jobs whose commands run now.");
        let running = self.running.load(Ordering::Relaxed);
        text += &format!("poolcounter_runner_running{{{runner}}} {running}\n");
        head(&mut text, "jobs_total", "counter", "Jobs by outcome.");
        for (kind, of_type) in &types {
            for (outcome, count) in OUTCOMES.iter().zip(of_type.outcomes) {
                let labels = format_args!("{runner},type=\"{}\",outcome=\"{outcome}\"", escaped(kind));
                text += &format!("poolcounter_runner_jobs_total{{{labels}}} {count}\n");
            }
        }
        head(&mut text, "job_seconds_total", "counter", "Total run time of jobs.");
        for (kind, of_type) in &types {
            let (kind, seconds) = (escaped(kind), of_type.seconds);
            text += &format!("poolcounter_runner_job_seconds_total{{{runner},type=\"{kind}\"}} {seconds:.6}\n");
        }
        text
    }
}

/// Escapes the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_beyond_the_bound_are_other() {
        let tally = RunnerTally::default();
        tally.begin(TYPES + 3);
        for n in 0..TYPES + 2 {
            tally.end(&format!("type{n}"), JobOutcome::Failed, Duration::from_millis(500));
        }
        let text = tally.text("a\"b");
        let of_other = "{runner=\"a\\\"b\",type=\"other\",outcome=\"failed\"} 2\n";
        assert!(text.contains(&format!("poolcounter_runner_jobs_total{of_other}")), "{text}");
        assert!(text.contains("poolcounter_runner_running{runner=\"a\\\"b\"} 1\n"), "{text}");
        assert!(text.contains("poolcounter_runner_job_seconds_total{runner=\"a\\\"b\",type=\"other\"} 1.000000\n"));
    }
}
