//! `exec`: asks for a lock in a pool, runs a command, and gives the lock back.
//!
//! The lock hangs on the connection, which no other program has: whatever ends this process gives it back. Until there is a
//! place, signals do to this process what they do to any.

mod options;

pub use options::described;

use super::command::Failure;
use super::run_child::{self, Ended, HeldResource};
use super::servers::TIMEOUTS;
use super::table::Given;
use super::terminal;
use super::terminal::printable;
use crate::client::{Client, Error, Limits, Lock, Outcome, Purpose};
use options::{ExecSettings, OPTIONS};
use std::ffi::OsString;
use std::io::{IsTerminal, Write, stderr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

// The statuses of sysexits.h for what went wrong, as far as possible from those that commands use.

/// The command line is wrong.
pub const MISUSE: u8 = 64;
/// No server answers.
pub const UNAVAILABLE: u8 = 69;
/// There is no lock, but there may be one later.
pub const TRY_LATER: u8 = 75;
/// A server answers in its own way.
pub const PROTOCOL: u8 = 76;

/// The command.
///
/// # Errors
///
/// When the command was not run.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let misused = |sentence: String| Failure { status: MISUSE, sentence };
    let mut settings = ExecSettings::default();
    given.apply(OPTIONS, &mut settings).map_err(misused)?;
    if settings.key.is_empty() {
        return Err(misused("--key is missing (see poolcounter help exec)".into()));
    }
    if given.words.is_empty() {
        return Err(misused("there is no command to run (see poolcounter help exec)".into()));
    }
    let client = Client::with(settings.servers.placement(), TIMEOUTS);
    match wait(&client, &settings) {
        Ok(Outcome::Locked(lock)) => run_with(lock, &settings, &given.words),
        Ok(Outcome::Done) => Ok(ExitCode::from(settings.done_exit)),
        Ok(Outcome::QueueFull) => {
            let queue = settings.queue;
            Err(settings.failure(TRY_LATER, &format!("QUEUE_FULL, as {queue} run or wait already")))
        }
        Ok(Outcome::Timeout) => {
            let timeout = settings.timeout.as_secs_f64();
            Err(settings.failure(TRY_LATER, &format!("TIMEOUT, as no lock came free within {timeout} s")))
        }
        Err(error @ Error::Unavailable(_)) if settings.fails_open => {
            terminal::warn(&format!("{}: {error}; the command runs without a lock", settings.name()));
            Ok(ExitCode::from(run_child::run(&given.words, &[], None)?.status))
        }
        Err(error @ Error::Unavailable(_)) => Err(settings.failure(UNAVAILABLE, &error.to_string())),
        Err(error) => Err(settings.failure(PROTOCOL, &error.to_string())),
    }
}

/// Waits for a lock, and shows on a terminal that it does.
fn wait<'a>(client: &'a Client, settings: &ExecSettings) -> Result<Outcome<'a>, Error> {
    let purpose = if settings.is_for_anyone { Purpose::Anyone } else { Purpose::Me };
    let limits =
        Limits { workers: settings.workers, max_queue: settings.queue, timeout: settings.timeout, hold: settings.hold };
    let begun = Instant::now();
    let limit = (!settings.waits_without_limit()).then_some(settings.timeout);
    let mut progress = Progress::new(settings.name(), limit);
    let outcome = client.acquire_watched(purpose, &settings.key, &limits, |waited| progress.show(waited));
    drop(progress);
    if settings.prints_wait {
        terminal::warn(&format!("waited {:.3} s for {}", begun.elapsed().as_secs_f64(), settings.name()));
    }
    outcome
}

/// Runs the command while the lock is held. Others who wait for its work are told that it is done only if it succeeded.
fn run_with(lock: Lock<'_>, settings: &ExecSettings, words: &[OsString]) -> Result<ExitCode, Failure> {
    let until = settings.hold.and_then(|hold| Instant::now().checked_add(hold));
    let check = || match until {
        Some(until) if until <= Instant::now() => Err("the lock is lost, because its time is over".into()),
        _ if lock.is_lost() => Err("the lock is lost, because the connection is gone".into()),
        _ => Ok(until),
    };
    let held =
        lock.descriptor().map(|descriptor| HeldResource { descriptor, check: &check, on_lost: settings.on_lost });
    let ended = run_child::run(words, &[], held.as_ref());
    match ended {
        Ok(Ended { status: 0, was_lost: false }) => {
            if let Err(error) = lock.release() {
                terminal::warn(&format!("{}: {error}", settings.name()));
            }
        }
        _ => lock.abandon(),
    }
    Ok(ExitCode::from(ended?.status))
}

impl ExecSettings {
    fn failure(&self, status: u8, what: &str) -> Failure {
        Failure { status, sentence: format!("{}: {what}", self.name()) }
    }

    /// The key as text.
    fn name(&self) -> String {
        printable(&self.key)
    }
}

/// A line on the terminal that tells for how long it has waited. It is gone with this.
pub struct Progress {
    name: String,
    /// How long it waits at most, if there is a limit.
    timeout: Option<Duration>,
    is_shown: bool,
}

impl Progress {
    /// A line that is not shown yet, about the wait for what has this name.
    pub fn new(name: String, timeout: Option<Duration>) -> Self {
        Progress { name, timeout, is_shown: false }
    }

    /// Shows for how long it has waited, on a terminal and from the first second on.
    pub fn show(&mut self, waited: Duration) {
        if waited < Duration::from_secs(1) || !stderr().is_terminal() {
            return;
        }
        let of = self.timeout.map(|timeout| format!(" of {}", timeout.as_secs_f64())).unwrap_or_default();
        self.is_shown = true;
        // A terminal that is gone has other ways to say so.
        let _ = write!(stderr(), "\r\x1b[Kwaiting for {}, {} s{of}", self.name, waited.as_secs());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
