//! Runs a command as a child while a lock or units are held for it: forwards signals to it, and reacts when what is held is
//! lost. It does not know what that is.
//!
//! No signal has a handler here. Signals are blocked and read from a descriptor, so the command finds their actions as they
//! were; one that is ignored, as under nohup, stays ignored.

use super::command::Failure;
use super::spawn::{Spawn, Stdio, Variable, block_signals, status_of};
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

/// The signals that are forwarded to the command. The others stop or end this process, or mean nothing to it.
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
/// The status of a command that is there and cannot be run, as shells have it.
const CANNOT_RUN: u8 = 126;
/// The status of a command that is not there.
const NOT_FOUND: u8 = 127;

/// What is held while the command runs.
pub struct HeldResource<'a> {
    /// Returns the socket that is readable when there is news of it, with the number of its connection: it may be replaced.
    pub connection: &'a dyn Fn() -> Option<(u64, RawFd)>,
    /// Looks after it: called when the socket is readable, and when it says. Returns when that is next, if ever. The error says
    /// that it is lost, and why: `the lock is lost, because its time is over`. It is not called again then.
    pub check: &'a dyn Fn() -> Result<Option<Instant>, String>,
    /// What becomes of the command then.
    pub on_lost: OnLost,
}

/// What becomes of the command when what is held for it is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLost {
    /// It runs on.
    #[default]
    Warn,
    /// It is sent SIGTERM.
    Term,
    /// It is sent SIGKILL.
    Kill,
}

/// How the command ended.
pub struct Ended {
    /// Its exit status, or 128 and the number of the signal that ended it.
    pub status: u8,
    /// What was held for it was lost meanwhile.
    pub was_lost: bool,
}

/// Runs a command until it ends. The words are its name and arguments; the variables are added to its environment.
///
/// # Errors
///
/// When it cannot be run, with the status that shells have for that.
pub fn run(words: &[OsString], variables: &[Variable], held: Option<&HeldResource<'_>>) -> Result<Ended, Failure> {
    let failed = |error: io::Error| Failure { status: CANNOT_RUN, sentence: format!("cannot run commands: {error}") };
    let name = words.first().expect("the caller has checked that there is a command");
    let mask = SigSet::thread_get_mask().map_err(|errno| failed(errno.into()))?;
    let signals = block_signals(&FORWARDED).map_err(failed)?;
    let how = Spawn { mask: &mask, variables, stdio: Stdio::Inherited };
    let child = how.spawn(words).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            Failure { status: NOT_FOUND, sentence: format!("{}: command not found", name.display()) }
        }
        _ => Failure { status: CANNOT_RUN, sentence: format!("{}: {error}", name.display()) },
    })?;
    ChildRun { signals, child, held, was_lost: false }.run().map_err(failed)
}

impl OnLost {
    /// Reads an option's value; the error says what is allowed.
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
                // A closed descriptor is not watched any more, and its number may have been given to the new one.
                (poll, watched) = (self.watch(present)?, present);
            }
            match poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    /// Returns what waits for signals and for news of this connection.
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
        // The terminal sends what is typed to the command as well; a second one would mean something else to it.
        let is_typed = info.ssi_code > 0 && matches!(signal, Some(Signal::SIGINT | Signal::SIGQUIT));
        if let (Some(signal), false) = (signal, is_typed) {
            self.send(signal);
        }
    }

    /// Looks after what is held, and returns when to do so again.
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
        // The signal first: the message may have to wait for its reader.
        signal.into_iter().for_each(|signal| self.send(signal));
        terminal::warn(&format!("{loss}; {consequence}"));
        None
    }

    fn send(&self, signal: Signal) {
        // Until it is waited for, the child has its number for itself, even if it has ended.
        let _ = kill(self.child, signal);
    }
}
