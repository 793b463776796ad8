//! `jobs run`: a runner that runs a command for each job, several at a time.

use super::settings::JobCommandSettings;
use super::slot::{RunnerStop, Slot};
use super::{PROTOCOL, misuse};
use crate::cli::command::Failure;
use crate::cli::process::Launcher;
use crate::cli::spawn::block_signals;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Instant;

/// The signals that end it.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
/// The status when nothing can be run at all.
const CANNOT_RUN: u8 = 126;

/// What all slots have in common.
pub struct Plan<'a> {
    pub settings: &'a JobCommandSettings,
    /// What is watched, with its weight if one was given.
    pub watches: Vec<(&'a str, Option<u16>)>,
    /// The command and its arguments.
    pub command: &'a [OsString],
    pub launcher: Launcher,
    /// The runner's name.
    pub name: String,
}

/// How far its end is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ending {
    /// It goes on.
    No,
    /// No more jobs are reserved; those that run may finish.
    Finish,
    /// They are given back.
    GiveBack,
    /// Their commands are killed.
    Kill,
}

/// Runs jobs of the tubes that `words` name until a signal ends it.
///
/// # Errors
///
/// When the command line is wrong, the server refuses, or nothing can be run.
pub fn run(settings: &JobCommandSettings, words: &[&str], command: &[OsString]) -> Result<ExitCode, Failure> {
    if words.is_empty() || command.is_empty() {
        return Err(misuse("run needs tubes or patterns, and a command behind --"));
    }
    let failed = |error: io::Error| Failure { status: CANNOT_RUN, sentence: format!("cannot run commands: {error}") };
    let mask = SigSet::thread_get_mask().map_err(|errno| failed(errno.into()))?;
    let signals = block_signals(&ENDING).map_err(failed)?;
    let plan = Plan {
        settings,
        watches: words.iter().map(|word| watch_of(word)).collect::<Result<_, _>>()?,
        command,
        launcher: Launcher::new(mask).map_err(failed)?,
        name: settings.name.clone().unwrap_or_else(own_name),
    };
    let slots = (0..settings.slots).map(|_| Slot::new(&plan)).collect();
    let session = RunnerLoop { plan: &plan, signals, slots, ending: Ending::No, give_back_at: None };
    session.run().map_err(|stop| match stop {
        RunnerStop::Refused(error) => Failure { status: PROTOCOL, sentence: error.to_string() },
        RunnerStop::System(error) => failed(error),
    })
}

/// Reads `PATTERN` or `PATTERN=WEIGHT`.
fn watch_of(word: &str) -> Result<(&str, Option<u16>), Failure> {
    let Some((pattern, weight)) = word.split_once('=') else { return Ok((word, None)) };
    match weight.parse() {
        Ok(weight @ 1..=1000) => Ok((pattern, Some(weight))),
        _ => Err(misuse(&format!("{word}: the weight is not a number from 1 to 1000"))),
    }
}

/// The name of the host and the number of the process.
fn own_name() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let host: String = host.unwrap_or_default().chars().filter(char::is_ascii_graphic).take(50).collect();
    format!("{host}:{}", std::process::id())
}

/// A runner from its start to its end.
struct RunnerLoop<'a> {
    plan: &'a Plan<'a>,
    signals: SignalFd,
    slots: Vec<Slot<'a>>,
    ending: Ending,
    /// When what still runs is given back, once no more jobs are reserved.
    give_back_at: Option<Instant>,
}

impl RunnerLoop<'_> {
    fn run(mut self) -> Result<ExitCode, RunnerStop> {
        loop {
            let mut has_ends = false;
            while let Some(info) = self.signals.read_signal().map_err(io::Error::from)? {
                match Signal::try_from(info.ssi_signo as i32) {
                    Ok(Signal::SIGCHLD) | Err(_) => has_ends = true,
                    Ok(_) => self.end(),
                }
            }
            if self.give_back_at.is_some_and(|at| at <= Instant::now()) && self.ending == Ending::Finish {
                self.ending = Ending::GiveBack;
            }
            for slot in &mut self.slots {
                slot.go_on(has_ends, self.ending)?;
            }
            if self.slots.iter().all(Slot::is_over) {
                return Ok(ExitCode::SUCCESS);
            }
            self.wait()?;
        }
    }

    /// The first signal lets jobs finish, the next gives them back, and one more kills their commands.
    fn end(&mut self) {
        self.ending = match self.ending {
            Ending::No => Ending::Finish,
            Ending::Finish => Ending::GiveBack,
            Ending::GiveBack | Ending::Kill => Ending::Kill,
        };
        self.give_back_at = self.give_back_at.or_else(|| Instant::now().checked_add(self.plan.settings.grace));
    }

    /// Waits until there is something to do, and tells the slots that have news.
    fn wait(&mut self) -> io::Result<()> {
        let at_end = self.give_back_at.filter(|_| self.ending == Ending::Finish);
        let until = self.slots.iter().filter_map(Slot::next_deadline).chain(at_end).min();
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            // A millisecond more, so that the deadline is past then.
            let ms = until.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
        });
        let (mut polled, mut owners) = (vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)], Vec::new());
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(connection) = slot.connection() {
                polled.push(PollFd::new(connection, PollFlags::POLLIN));
                owners.push(Some(index));
            }
            if let Some(output) = slot.output() {
                polled.push(PollFd::new(output, PollFlags::POLLIN));
                owners.push(None);
            }
        }
        match poll(&mut polled, timeout) {
            Err(Errno::EINTR) | Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_ready = |polled: &PollFd<'_>| polled.any().unwrap_or(false);
        let ready: Vec<usize> = polled[1..]
            .iter()
            .zip(owners)
            .filter(|(polled, _)| is_ready(polled))
            .filter_map(|(_, owner)| owner)
            .collect();
        ready.into_iter().for_each(|slot| self.slots[slot].note_news());
        Ok(())
    }
}
