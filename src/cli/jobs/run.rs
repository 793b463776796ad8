//! `jobs run`: a runner that runs commands for jobs, several at a time. Each slot has its own thread, so that a hanging
//! server blocks only the slots connected to it; this thread reads the signals and notifies the slots.

use super::plan::{Bell, Ending, Plan, Rests, SlotSignals};
pub use super::run_options::OPTIONS;
use super::run_options::RunSettings;
use super::slot::Slot;
use super::tally::RunnerTally;
use crate::command::{Exit, Failure};
use crate::process::Launcher;
use crate::spawn::block_signals;
use crate::table::Given;
use crate::terminal::warn;
use crate::wait::poll_until;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use poolcounter_client::own_name;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Signals that end the runner.
const ENDING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
/// Stack size of a slot's thread, in bytes. It has no deep calls, and there may be a thousand of them.
const STACK: usize = 256 << 10;
/// Interval at which the metrics file is written.
const METRICS_EVERY: Duration = Duration::from_secs(10);

/// Runs jobs of the tubes in `words` and the options until a signal ends it.
///
/// # Errors
///
/// Fails if the command line is wrong, the server refuses, or nothing can be run.
pub fn run(given: &Given) -> Exit {
    let mut settings = given.settings(OPTIONS, RunSettings::usual())?;
    let (words, command) = given.words.split_at(given.words_before_dashes);
    settings.watches.extend(words.iter().map(|word| word.to_string_lossy().into_owned()));
    let watches = &settings.watches;
    if watches.is_empty() || command.is_empty() {
        return Err(Failure::misuse("run needs tubes or patterns, and a command behind --"));
    }
    let mask = SigSet::thread_get_mask().map_err(Failure::no_commands)?;
    // The threads inherit the blocked signals.
    let signals = block_signals(&ENDING).map_err(Failure::no_commands)?;
    let plan = Plan {
        settings: &settings,
        watches: watches.iter().map(|word| watch_of(word)).collect::<Result<_, _>>()?,
        command,
        launcher: Launcher::new(mask).map_err(Failure::no_commands)?,
        name: settings.name.clone().unwrap_or_else(own_name),
        tally: RunnerTally::default(),
        rests: Rests::default(),
    };
    let ended = run_slots(&plan, &signals, |_| STACK);
    write_metrics(&plan);
    ended
}

/// Parses `PATTERN`, `PATTERN:WEIGHT` or `PATTERN=WEIGHT`.
fn watch_of(word: &str) -> Result<(&str, Option<u16>), Failure> {
    // Names of tubes contain neither character.
    let Some((pattern, weight)) = word.split_once([':', '=']) else { return Ok((word, None)) };
    match weight.parse() {
        Ok(weight @ 1..=1000) => Ok((pattern, Some(weight))),
        _ => Err(Failure::misuse(format!("{word}: the weight is not a number from 1 to 1000"))),
    }
}

/// Runs a thread for each slot, with a stack of `stack_of` its index.
fn run_slots(plan: &Plan<'_>, signals: &SignalFd, stack_of: impl Fn(usize) -> usize) -> Exit {
    // Each slot asks the first server that replies; or each server has its own slots.
    let list = plan.settings.servers.list();
    let of_each = if plan.settings.each_server { list.chunks(1).map(<[_]>::to_vec).collect() } else { vec![list] };
    let servers: Vec<_> = of_each.iter().flat_map(|servers| vec![servers; plan.settings.parallel]).collect();
    let all = servers.iter().map(|_| SlotSignals::new()).collect::<io::Result<Vec<_>>>();
    let all: &[SlotSignals] = &all.map_err(Failure::no_commands)?;
    let (over, bell) = (channel(), Bell::new().map_err(Failure::no_commands)?);
    let session = RunnerLoop { plan, signals, told: all, bell: &bell, ending: Ending::No, give_back_at: None };
    thread::scope(|scope| {
        for (index, (servers, told)) in servers.iter().zip(all).enumerate() {
            let (slot, ended, bell) = (Slot::new(plan, told, servers), over.0.clone(), &bell);
            let body = move || {
                // The receiver outlives the threads.
                let _ = ended.send(slot.run());
                bell.ring();
            };
            // A slot that cannot be started has ended: the running slots, for which the scope waits, are told so.
            if let Err(error) = thread::Builder::new().stack_size(stack_of(index)).spawn_scoped(scope, body) {
                let _ = over.0.send(Err(Failure::no_commands(error)));
            }
        }
        session.run(&over.1).inspect_err(|_| all.iter().for_each(|told| told.go_to(Ending::Finish)))
    })
}

fn write_metrics(plan: &Plan<'_>) {
    let Some(path) = &plan.settings.textfile else { return };
    if let Err(error) = plan.tally.write(path, &plan.name) {
        warn(&format!("{}: {error}", path.display()));
    }
}

/// State of a runner, beside its slots.
struct RunnerLoop<'a> {
    plan: &'a Plan<'a>,
    signals: &'a SignalFd,
    /// Signals to each slot.
    told: &'a [SlotSignals],
    /// Rings when a slot ends.
    bell: &'a Bell,
    ending: Ending,
    /// Time at which running jobs are released, once no more are reserved.
    give_back_at: Option<Instant>,
}

impl RunnerLoop<'_> {
    fn run(mut self, over: &Receiver<Result<(), Failure>>) -> Exit {
        let (mut left, mut stopped) = (self.told.len(), Ok(ExitCode::SUCCESS));
        let mut metrics_at = Instant::now();
        loop {
            while let Some(info) = self.signals.read_signal().map_err(Failure::no_commands)? {
                match Signal::try_from(info.ssi_signo as i32) {
                    Ok(Signal::SIGCHLD) | Err(_) => self.tell_of_ends(),
                    Ok(_) => self.end(),
                }
            }
            if self.give_back_at.is_some_and(|at| at <= Instant::now()) && self.ending == Ending::Finish {
                self.go_to(Ending::GiveBack);
            }
            self.bell.silence();
            for ended in over.try_iter() {
                left -= 1;
                if let (Err(stop), Ok(_)) = (ended, &stopped) {
                    // A refusal concerns all slots; slots with jobs finish them.
                    stopped = Err(stop);
                    if self.ending == Ending::No {
                        self.end();
                    }
                }
            }
            if left == 0 {
                return stopped;
            }
            if metrics_at <= Instant::now() {
                write_metrics(self.plan);
                metrics_at = Instant::now() + METRICS_EVERY;
            }
            let at_end = self.give_back_at.filter(|_| self.ending == Ending::Finish);
            let at = self.plan.settings.textfile.as_ref().map(|_| metrics_at);
            let polled = [self.signals.as_fd(), self.bell.as_fd()];
            poll_until(at_end.into_iter().chain(at).min(), &polled, None).map_err(Failure::no_commands)?;
        }
    }

    /// Proceeds to the next step of the end: the first signal lets jobs finish, the second releases them, the third
    /// kills their commands.
    fn end(&mut self) {
        self.give_back_at = self.give_back_at.or_else(|| Instant::now().checked_add(self.plan.settings.grace));
        self.go_to(match self.ending {
            Ending::No => Ending::Finish,
            Ending::Finish => Ending::GiveBack,
            Ending::GiveBack | Ending::Kill => Ending::Kill,
        });
    }

    fn go_to(&mut self, ending: Ending) {
        self.ending = ending;
        self.told.iter().for_each(|told| told.go_to(ending));
    }

    /// Notifies the slots with commands that a child has ended.
    fn tell_of_ends(&self) {
        self.told.iter().filter(|told| told.is_running.load(Ordering::SeqCst)).for_each(|told| told.bell.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::CANNOT_RUN;

    #[test]
    fn a_runner_ends_if_one_of_its_threads_cannot_be_started() {
        let mut settings = RunSettings { parallel: 3, ..RunSettings::usual() };
        settings.servers = settings.servers.only("127.0.0.1:1");
        let mask = SigSet::thread_get_mask().expect("is asked");
        let signals = block_signals(&ENDING).expect("are blocked");
        let plan = Plan {
            settings: &settings,
            watches: vec![("default", None)],
            command: &[],
            launcher: Launcher::new(mask).expect("is made"),
            name: "test".into(),
            tally: RunnerTally::default(),
            rests: Rests::default(),
        };
        // There is no room for the second stack.
        let ended = run_slots(&plan, &signals, |index| if index == 1 { 1 << 60 } else { STACK });
        assert_eq!(ended.expect_err("it ends").status, CANNOT_RUN);
    }
}
