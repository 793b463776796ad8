//! Runs a command as a child while a lock, units or members are held for it: forwards signals, and reacts to the loss
//! of the resource. Independent of its kind.
//!
//! Signals have no handlers here. They are blocked and read from a descriptor, so the command inherits their
//! dispositions unchanged; an ignored one, as under nohup, stays ignored.

use super::command::Failure;
use super::failure::{CANNOT_RUN, NOT_FOUND};
use super::spawn::{Spawn, Stdio, Variable, block_signals, program_of, status_of};
use super::terminal;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SignalFd, siginfo};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

/// Signals that are forwarded to the command. Other signals stop or end this process, or have no meaning for it.
const FORWARDED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

/// Resource held while the command runs.
pub struct HeldResource<'a> {
    /// Returns the socket that is readable when the resource has news, with the number of its connection, which may
    /// change.
    pub connection: &'a dyn Fn() -> Option<(u64, RawFd)>,
    /// Checks and maintains the resource: called when the socket is readable, and at the returned time, if any. The
    /// error is the reason of the loss (`the lock is lost, because its time is over`); it is not called after that.
    pub check: &'a dyn Fn() -> Result<Option<Instant>, String>,
    /// Effect of the loss on the command.
    pub on_lost: OnLost,
}

/// Effect on the command when its resource is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLost {
    /// The command runs on.
    #[default]
    Warn,
    /// SIGTERM is sent to the command.
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

/// Runs a command until it ends. `words` are its name and arguments; `variables` are added to its environment.
///
/// # Errors
///
/// Fails if it cannot be run, with the exit status that shells use for that.
pub fn run(words: &[OsString], variables: &[Variable], held: Option<&HeldResource<'_>>) -> Result<Ended, Failure> {
    let name = words.first().expect("the caller has checked that there is a command");
    let mask = SigSet::thread_get_mask().map_err(Failure::no_commands)?;
    let signals = block_signals(&FORWARDED).map_err(Failure::no_commands)?;
    let how = Spawn { mask: &mask, variables, stdio: Stdio::Inherited };
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
    ChildRun { signals, child, held, was_lost: false }.run().map_err(Failure::no_commands)
}

impl OnLost {
    /// Parses the value of an option; the error describes valid values.
    pub fn parse(text: &str) -> Result<OnLost, String> {
        match text {
            "warn" => Ok(OnLost::Warn),
            "term" => Ok(OnLost::Term),
            "kill" => Ok(OnLost::Kill),
            _ => Err("warn, term or kill".into()),
        }
    }
}

struct ChildRun<'a> {
    signals: SignalFd,
    child: Pid,
    held: Option<&'a HeldResource<'a>>,
    was_lost: bool,
}

impl ChildRun<'_> {
    fn run(mut self) -> io::Result<Ended> {
        let connection = |held: &HeldResource<'_>| (held.connection)();
        let mut watched = self.held.and_then(connection);
        let mut poll = self.watch(watched)?;
        let mut events = Events::with_capacity(2);
        loop {
            while let Some(signal) = self.signals.read_signal()? {
                self.forward(&signal);
            }
            let status = status_of(self.child)?;
            if let Some(status) = status {
                return Ok(Ended { status, was_lost: self.was_lost });
            }
            let timeout = self.check_held().map(|next| next.saturating_duration_since(Instant::now()));
            let present = self.held.and_then(connection);
            if present != watched {
                // A closed descriptor is no longer watched, and its number may have been reused for the new one.
                (poll, watched) = (self.watch(present)?, present);
            }
            match poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    /// Returns a poll for the signals and for input on this connection.
    fn watch(&self, connection: Option<(u64, RawFd)>) -> io::Result<Poll> {
        let poll = Poll::new()?;
        poll.registry().register(&mut SourceFd(&self.signals.as_raw_fd()), Token(0), Interest::READABLE)?;
        if let Some((_, descriptor)) = connection {
            poll.registry().register(&mut SourceFd(&descriptor), Token(1), Interest::READABLE)?;
        }
        Ok(poll)
    }

    fn forward(&self, info: &siginfo) {
        let signal = Signal::try_from(info.ssi_signo as i32).ok().filter(|signal| FORWARDED.contains(signal));
        // The terminal sends typed signals to the command as well; a second one could have another effect.
        let is_typed = info.ssi_code > 0 && matches!(signal, Some(Signal::SIGINT | Signal::SIGQUIT));
        if let (Some(signal), false) = (signal, is_typed) {
            self.send(signal);
        }
    }

    /// Checks the resource, and returns the time of the next check.
    fn check_held(&mut self) -> Option<Instant> {
        let held = self.held.filter(|_| !self.was_lost)?;
        let loss = match (held.check)() {
            Ok(next) => return next,
            Err(loss) => loss,
        };
        self.was_lost = true;
        let (consequence, signal) = match held.on_lost {
            OnLost::Warn => ("the command runs on without it", None),
            OnLost::Term => ("the command is terminated", Some(Signal::SIGTERM)),
            OnLost::Kill => ("the command is killed", Some(Signal::SIGKILL)),
        };
        // The signal comes first, because the message may wait for its reader.
        signal.into_iter().for_each(|signal| self.send(signal));
        terminal::warn(&format!("{loss}; {consequence}"));
        None
    }

    fn send(&self, signal: Signal) {
        // Until the child is waited for, its id is not reused, even after its end.
        let _ = kill(self.child, signal);
    }
}
