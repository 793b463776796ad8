//! Runs a command as a child while a lock, units or members are held for it: forwards signals, and reacts to the loss
//! of the resource. Independent of its kind.
//!
//! Signals have no handlers here. They are blocked and read from a descriptor, so the command inherits their
//! dispositions unchanged; an ignored one, as under nohup, stays ignored.

use super::command::Failure;
use super::failure::{CANNOT_RUN, NOT_FOUND};
use super::spawn::{Spawn, Variable, block_signals, group_of, program_of, status_of};
use super::table::one_of;
use super::terminal;
use super::watchdog::{AFTER_KILL, LOOK_EVERY, Watchdog, is_left};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::signalfd::{SignalFd, siginfo};
use nix::unistd::Pid;
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Signals that ask for an end. They are forwarded to the process group of the command, if it has its own.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];
/// Signals that are forwarded to the command alone. Other signals stop or end this process, or have no meaning for it.
const FORWARDED: [Signal; 4] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGALRM, Signal::SIGWINCH];
/// Signals that stop the process group of the command together with this process, and let both go on.
const STOPPING: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGCONT];
/// Time in which an ending signal of the same sender is the same signal: timeout(1) sends it to this process, and to
/// the group of this process.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Resource held while the command runs.
pub struct HeldResource<'a> {
    /// Returns the socket that is readable when the resource has news; it may change.
    pub connection: &'a dyn Fn() -> Option<RawFd>,
    /// Checks and maintains the resource: called when the socket is readable, and at the returned time, if any. The
    /// error is the reason of the loss (`backup: the lock is lost, because its time is over`); it is not called after that.
    pub check: &'a dyn Fn() -> Result<Option<Instant>, String>,
}

/// Runs a command until it ends. `words` are its name and arguments; `variables` are added to its environment.
///
/// If this process is killed meanwhile, the watchdog ends the command, and the connection is closed after that.
///
/// # Errors
///
/// Fails if it cannot be run, with the exit status that shells use for that.
pub fn run(
    words: &[OsString],
    variables: &[Variable],
    lifetime: &Lifetime,
    held: Option<&HeldResource<'_>>,
) -> Result<Ended, Failure> {
    let name = words.first().expect("the caller has checked that there is a command");
    let has_group = lifetime.has_group();
    let mask = SigSet::thread_get_mask().map_err(Failure::no_commands)?;
    let stopping = if has_group { &STOPPING[..] } else { &[] };
    let signals = block_signals(&[&ENDING, &FORWARDED, stopping].concat()).map_err(Failure::no_commands)?;
    let watchdog = held.map(|_| Watchdog::start(lifetime.grace)).transpose().map_err(Failure::no_commands)?;
    let how = Spawn { mask: &mask, variables, stdio: [None; 4], has_group };
    let child = how.spawn(words).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let what = match program_of(name) {
                None => "command not found",
                Some(_) => "the interpreter that its first line names was not found",
            };
            Failure { status: NOT_FOUND, sentence: format!("{}: {what}", name.display()) }
        }
        _ => Failure { status: CANNOT_RUN, sentence: format!("{}: {error}", name.display()) },
    })?;
    let run = ChildRun {
        watchdog,
        signals,
        child,
        target: if has_group { group_of(child) } else { child },
        lifetime,
        held,
        was_lost: false,
        is_ending: false,
        deadline: None,
        is_killed: false,
        last_ending: None,
    };
    run.run().map_err(Failure::no_commands)
}

struct ChildRun<'a> {
    /// None if nothing is held.
    watchdog: Option<Watchdog>,
    signals: SignalFd,
    child: Pid,
    /// Target of signals that ask for an end: the group of the command, or the command alone.
    target: Pid,
    lifetime: &'a Lifetime,
    held: Option<&'a HeldResource<'a>>,
    was_lost: bool,
    /// True if the command was asked to end.
    is_ending: bool,
    /// Time of SIGKILL; after that, end of the wait for the group.
    deadline: Option<Instant>,
    is_killed: bool,
    /// Last ending signal, with the process id of its sender and its time.
    last_ending: Option<(Signal, u32, Instant)>,
}

impl ChildRun<'_> {
    fn run(mut self) -> io::Result<Ended> {
        let (mut events, mut status, mut poll) = (Events::with_capacity(2), None, Poll::new()?);
        loop {
            while let Some(signal) = self.signals.read_signal()? {
                self.handle(&signal);
            }
            if status.is_none() {
                status = status_of(self.child)?;
            }
            if let Some(status) = status
                && !self.is_group_left()
            {
                self.watchdog.iter().for_each(|watchdog| watchdog.remove(self.target));
                return Ok(Ended { status, was_lost: self.was_lost });
            }
            self.kill_if_due();
            let look = status.map(|_| Instant::now() + LOOK_EVERY);
            let was_lost = self.was_lost;
            let next = self.check_held().into_iter().chain(self.deadline).chain(look).min();
            let timeout = next.map(|next| next.saturating_duration_since(Instant::now()));
            if !was_lost {
                poll = self.watch()?;
            }
            match poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    /// Returns a poll for the signals and for input on the connection, which the watchdog keeps. Made anew for each wait
    /// until the loss: the number of a closed descriptor may have been reused for another connection. After the loss,
    /// nothing would read the input.
    fn watch(&self) -> io::Result<Poll> {
        let connection = self.held.and_then(|held| (held.connection)());
        self.watchdog.iter().for_each(|watchdog| watchdog.add(self.target, connection.as_slice()));
        let poll = Poll::new()?;
        for descriptor in connection.filter(|_| !self.was_lost).into_iter().chain([self.signals.as_raw_fd()]) {
            poll.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE)?;
        }
        Ok(poll)
    }

    /// Returns true if the command was asked to end, and has left processes behind in its group that may still end by
    /// themselves. Called after the end of the command.
    fn is_group_left(&mut self) -> bool {
        if !self.has_group() || !self.is_ending {
            return false;
        }
        if self.deadline.is_none() && !self.is_killed {
            self.deadline = Instant::now().checked_add(self.lifetime.grace);
        }
        is_left(self.target) && !(self.is_killed && self.deadline.is_none())
    }

    /// Kills what has not ended within the grace.
    fn kill_if_due(&mut self) {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.deadline = None;
            if !self.is_killed {
                self.end(Signal::SIGKILL);
            }
        }
    }

    fn handle(&mut self, info: &siginfo) {
        let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { return };
        match signal {
            Signal::SIGTSTP => {
                self.send(self.target, signal);
                // Goes on with SIGCONT, which is read after this.
                let _ = raise(Signal::SIGSTOP);
            }
            Signal::SIGCONT => self.send(self.target, signal),
            _ if FORWARDED.contains(&signal) => self.send(self.child, signal),
            _ if ENDING.contains(&signal) && !self.is_known_to_command(signal, info) => {
                self.is_ending = true;
                self.send(self.target, signal);
            }
            _ => {}
        }
    }

    /// Returns true if the command has had this signal: from the terminal, which sends it to both, or because it is the
    /// same one as before. A second one could have another effect.
    fn is_known_to_command(&mut self, signal: Signal, info: &siginfo) -> bool {
        let is_from_terminal = info.ssi_code > 0 && signal != Signal::SIGTERM;
        let last = self.last_ending.replace((signal, info.ssi_pid, Instant::now()));
        let is_same = last.is_some_and(|(last, sender, at)| {
            (last, sender) == (signal, info.ssi_pid) && sender != 0 && at.elapsed() < SAME_SIGNAL
        });
        is_same || is_from_terminal && !self.has_group()
    }

    /// Checks the resource, and returns the time of the next check.
    fn check_held(&mut self) -> Option<Instant> {
        let held = self.held.filter(|_| !self.was_lost)?;
        let loss = match (held.check)() {
            Ok(next) => return next,
            Err(loss) => loss,
        };
        self.was_lost = true;
        // The signal comes first, because the message may wait for its reader.
        let consequence = match self.lifetime.on_lost {
            OnLost::Warn => "the command runs on without it",
            OnLost::Term => {
                self.end(Signal::SIGTERM);
                "the command is terminated"
            }
            OnLost::Kill => {
                self.end(Signal::SIGKILL);
                "the command is killed"
            }
        };
        terminal::warn(&format!("{loss}; {consequence}"));
        None
    }

    /// Ends the command, with its group if it has one.
    fn end(&mut self, signal: Signal) {
        (self.is_ending, self.is_killed) = (true, signal == Signal::SIGKILL);
        let patience = if self.is_killed { AFTER_KILL } else { self.lifetime.grace };
        self.deadline = Instant::now().checked_add(patience);
        self.send(self.target, signal);
        // A stopped process acts on SIGTERM once it goes on.
        self.send(self.target, Signal::SIGCONT);
    }

    fn has_group(&self) -> bool {
        self.target != self.child
    }

    fn send(&self, target: Pid, signal: Signal) {
        // Until the child is waited for, its id is not reused, even after its end. Nor is that of a group that is left.
        let _ = kill(target, signal);
    }
}

/// Settings of the lifetime of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct Lifetime {
    /// True if the command gets a process group of its own; None for the default: only without a terminal.
    group: Option<bool>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Effect of the loss of the resource.
    pub on_lost: OnLost,
    /// Exit status after a loss; None for that of the command.
    lost_exit: Option<u8>,
}

/// Effect on the command when its resource is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLost {
    /// The command runs on.
    #[default]
    Warn,
    /// SIGTERM is sent to the command, and SIGKILL after a time.
    Term,
    /// SIGKILL is sent to the command.
    Kill,
}

/// End of the command.
pub struct Ended {
    /// Exit status, or 128 plus the number of the signal that ended it.
    pub status: u8,
    /// True if the resource was lost before the end.
    pub was_lost: bool,
}

impl OnLost {
    /// Parses the value of an option; the error describes valid values.
    pub fn parse(text: &str) -> Result<OnLost, String> {
        one_of(text, &[("warn", OnLost::Warn), ("term", OnLost::Term), ("kill", OnLost::Kill)])
    }
}

impl Lifetime {
    /// Returns true if the command gets a process group of its own. In another group than that of this process, it
    /// could not read from their terminal.
    pub fn has_group(&self) -> bool {
        self.group.unwrap_or_else(|| File::open("/dev/tty").is_err())
    }

    /// Returns the exit status of this program after the end of the command.
    pub fn exit(&self, ended: &Ended) -> ExitCode {
        ExitCode::from(self.lost_exit.filter(|_| ended.was_lost).unwrap_or(ended.status))
    }
}

impl Default for Lifetime {
    fn default() -> Self {
        Lifetime { group: None, grace: Duration::from_secs(10), on_lost: OnLost::default(), lost_exit: None }
    }
}

/// Returns the option for the effect of a loss. Its text is that of the command.
pub const fn on_lost<S: AsMut<Lifetime>>(doc: &'static str) -> Opt<S> {
    Opt::new("--on-lost warn|term|kill", doc, |settings, value| {
        assign(&mut settings.as_mut().on_lost, OnLost::parse(value))
    })
}

/// Returns the option for the exit status after a loss.
pub const fn lost_exit<S: AsMut<Lifetime>>() -> Opt<S> {
    Opt::new(
        "--lost-exit STATUS",
        "Exit status when --on-lost has acted or warned (default: that of the command).",
        |settings, value| assign(&mut settings.as_mut().lost_exit, number(value, 0..=u8::MAX).map(Some)),
    )
}

/// Returns the option for the process group.
pub const fn process_group<S: AsMut<Lifetime>>() -> Opt<S> {
    Opt::new(
        "--process-group own|shared",
        "Process group of the command: its own, or that of this process (default: shared on a terminal, else own). In \
         a group of its own, the processes that the command starts get the signals and end with it; see \
         poolcounter-exec(1), SIGNALS. A command in a group of its own cannot read from the terminal.",
        |settings, value| {
            assign(&mut settings.as_mut().group, one_of(value, &[("own", true), ("shared", false)]).map(Some))
        },
    )
}

/// Returns the option for the time between SIGTERM and SIGKILL.
pub const fn grace<S: AsMut<Lifetime>>() -> Opt<S> {
    Opt::new(
        "--grace SECONDS",
        "Time between SIGTERM and SIGKILL (default: 10). It counts when --on-lost is term, when this process is \
         killed, and for processes that are left in the group of the command after a signal has ended that one.",
        |settings, value| assign(&mut settings.as_mut().grace, seconds(value)),
    )
}
