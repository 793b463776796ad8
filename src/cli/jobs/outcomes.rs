//! Outcomes of a command's jobs, until the server has accepted them.

use super::fetch::{HeldJob, SlotConnections};
use super::plan::Plan;
use super::tally::JobOutcome;
use super::words::{in_one_line, kind_of};
use crate::terminal::say;
use log::Level;
use poolcounter_client::{Error, Runner};
use std::time::{Duration, Instant};

/// Time for which finished jobs wait for more, to be reported together while the command works on the next.
const LINGER: Duration = Duration::from_millis(20);
/// Number of outcomes from which they do not wait.
const MOST: usize = 100;

/// Outcome of a job.
pub enum Fate {
    Done,
    /// Failed for this reason; buried if it was the last attempt.
    Failed {
        text: Vec<u8>,
        is_last: bool,
    },
    /// To be reserved again after this time, without counting as an attempt.
    GivenBack(Duration),
}

/// Job with its outcome and the time that its command took.
struct Outcome {
    held: HeldJob,
    fate: Fate,
    took: Duration,
}

/// Outcomes of a command's jobs not reported to the server yet.
pub struct Outcomes<'a> {
    plan: &'a Plan<'a>,
    tube: String,
    untold: Vec<Outcome>,
    /// Time of the next report.
    pub tell_at: Option<Instant>,
}

impl<'a> Outcomes<'a> {
    pub fn new(plan: &'a Plan<'a>, tube: &str) -> Outcomes<'a> {
        Outcomes { plan, tube: tube.into(), untold: Vec::new(), tell_at: None }
    }

    pub fn is_empty(&self) -> bool {
        self.untold.is_empty()
    }

    pub fn add(&mut self, held: HeldJob, fate: Fate, took: Duration) {
        let now = Instant::now();
        let may_linger = matches!(fate, Fate::Done) && took < LINGER && self.untold.len() < MOST;
        let at = if may_linger { now + LINGER } else { now };
        self.tell_at = Some(self.tell_at.map_or(at, |earlier| earlier.min(at)));
        self.untold.push(Outcome { held, fate, took });
    }

    /// Reports the outcomes to the server.
    ///
    /// # Errors
    ///
    /// Fails if the connection is lost; the outcomes not reported yet are kept.
    pub fn tell(&mut self, connections: &mut SlotConnections<'_>) -> Result<(), Error> {
        self.delete(connections)?;
        while let Some(outcome) = self.untold.pop_if(|outcome| !matches!(outcome.fate, Fate::Done)) {
            if let Err(error) = self.tell_one(connections, &outcome) {
                self.untold.push(outcome);
                return Err(error);
            }
        }
        self.tell_at = None;
        Ok(())
    }

    /// Deletes the jobs that are done, all of a connection at once.
    fn delete(&mut self, connections: &mut SlotConnections<'_>) -> Result<(), Error> {
        for (is_fetched, runner) in connections.both() {
            let is_its =
                |outcome: &mut Outcome| matches!(outcome.fate, Fate::Done) && outcome.held.is_fetched == is_fetched;
            let done: Vec<Outcome> = self.untold.extract_if(.., is_its).collect();
            let jobs: Vec<_> = done.iter().map(|outcome| &outcome.held.job).collect();
            let told = match runner.delete_many(&jobs) {
                Ok(told) => told,
                Err(error @ (Error::Lost | Error::Unavailable(_))) => {
                    self.untold.extend(done);
                    return Err(error);
                }
                Err(error) => vec![Err(error); done.len()],
            };
            for (Outcome { held, took, .. }, told) in done.into_iter().zip(told) {
                match told {
                    Ok(()) => self.close(&held, JobOutcome::Done, "", took),
                    Err(error) => self.close(&held, JobOutcome::Lost, &error.to_string(), took),
                }
            }
        }
        Ok(())
    }

    fn tell_one(&self, connections: &mut SlotConnections<'_>, outcome: &Outcome) -> Result<(), Error> {
        let Outcome { held, fate, took } = outcome;
        let runner = connections.of(held);
        let (told, outcome, words) = match fate {
            Fate::Done => return Ok(()),
            Fate::GivenBack(delay) => {
                (runner.release(&held.job, Some(held.status.pri), *delay), JobOutcome::GivenBack, String::new())
            }
            Fate::Failed { text, is_last } => {
                let (told, words) = self.fail(runner, held, text, *is_last);
                (told, JobOutcome::Failed, words)
            }
        };
        match told {
            Ok(()) => self.close(held, outcome, &words, *took),
            Err(error @ (Error::Lost | Error::Unavailable(_))) => return Err(error),
            Err(error) if words.is_empty() => self.close(held, JobOutcome::Lost, &error.to_string(), *took),
            Err(error) => self.close(held, JobOutcome::Lost, &format!("{error}; {words}"), *took),
        }
        Ok(())
    }

    /// Reserves the jobs again after their connection was lost. Jobs to be released need not be: the loss has released
    /// them.
    ///
    /// # Errors
    ///
    /// Fails if there is no connection.
    pub fn take_back(&mut self, connections: &mut SlotConnections<'_>) -> Result<(), Error> {
        let given_back = self.untold.extract_if(.., |outcome| matches!(outcome.fate, Fate::GivenBack(_)));
        for Outcome { held, took, .. } in given_back.collect::<Vec<_>>() {
            self.close(&held, JobOutcome::GivenBack, "", took);
        }
        let mut lost = Vec::new();
        for (index, outcome) in self.untold.iter_mut().enumerate() {
            if !connections.take_back(&mut outcome.held)? {
                lost.push(index);
            }
        }
        for index in lost.into_iter().rev() {
            let Outcome { held, took, .. } = self.untold.swap_remove(index);
            self.lose(&held, &Error::Lost.to_string(), took);
        }
        self.tell_at = self.untold.first().map(|_| Instant::now());
        Ok(())
    }

    /// Records the loss of all jobs to other runners.
    pub fn lose_all(&mut self, why: &str) {
        for Outcome { held, took, .. } in std::mem::take(&mut self.untold) {
            self.lose(&held, why, took);
        }
        self.tell_at = None;
    }

    /// Records the loss of a job to another runner.
    pub fn lose(&self, held: &HeldJob, why: &str, took: Duration) {
        self.close(held, JobOutcome::Lost, why, took);
    }

    /// Counts and logs an outcome that was reported or refused.
    fn close(&self, held: &HeldJob, outcome: JobOutcome, words: &str, took: Duration) {
        self.plan.tally.end(kind_of(&self.tube), outcome, took);
        let (level, verb) = match outcome {
            JobOutcome::Done => (Level::Info, "done in"),
            JobOutcome::GivenBack => (Level::Info, "given back after"),
            JobOutcome::Failed => (Level::Warn, "failed in"),
            JobOutcome::Lost => (Level::Warn, "lost after"),
        };
        if level == Level::Warn || !self.plan.settings.is_quiet {
            let words = if words.is_empty() { String::new() } else { format!(": {words}") };
            say(level, &format!("job {} of {}: {verb} {:.3} s{words}", held.job.id, self.tube, took.as_secs_f64()));
        }
    }

    /// Reports a failed job to the server, and returns the reason in one line.
    fn fail(&self, runner: &mut Runner, held: &HeldJob, text: &[u8], is_last: bool) -> (Result<(), Error>, String) {
        let (pri, delay) = (Some(held.status.pri), self.plan.settings.delay);
        let told = match is_last {
            true => runner.fail_and_bury(&held.job, pri, text),
            false => runner.fail(&held.job, pri, delay, text).map(drop),
        };
        let words = in_one_line(text);
        match told {
            Err(Error::NoExtension(_)) if is_last => (runner.bury(&held.job, pri), words + UNTOLD),
            Err(Error::NoExtension(_)) => (runner.release(&held.job, pri, delay), words + UNTOLD),
            told => (told, words),
        }
    }
}

/// End of the sentence about a failure at a plain beanstalkd.
const UNTOLD: &str = "; the server does not keep that";
