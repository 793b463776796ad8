//! Runs a command while something is held for it: passes signals on to it, and watches over what is held. It does not know
//! what that is.
//!
//! No signal has a handler here. They are held back and read from a descriptor, so the command finds their actions as they
//! were; one that is ignored, as under nohup, stays ignored.

use super::command::Failure;
use super::terminal;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::env;
use std::ffi::{CString, OsString};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The signals that the command gets, too. The others stop or end this process, or mean nothing to it.
const PASSED_ON: [Signal; 8] = [
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
pub struct Held<'a> {
    /// How to say that it is lost: `the lock is lost`.
    pub loss: &'static str,
    /// The socket that closes when it is lost.
    pub descriptor: RawFd,
    /// Whether it is lost, asked when the socket has news.
    pub is_lost: &'a dyn Fn() -> bool,
    /// When the server takes it back.
    pub until: Option<Instant>,
    /// What to do about it.
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
    /// Whether what was held for it was lost meanwhile.
    pub was_lost: bool,
}

/// Runs a command until it ends. The words are its name and arguments.
///
/// # Errors
///
/// When it cannot be run, with the status that shells have for that.
pub fn run(words: &[OsString], held: Option<&Held<'_>>) -> Result<Ended, Failure> {
    let failed = |error: io::Error| Failure { status: CANNOT_RUN, sentence: format!("cannot run commands: {error}") };
    let name = words.first().expect("whoever runs a command has one");
    let mask = SigSet::thread_get_mask().map_err(|errno| failed(errno.into()))?;
    let signals = hold_signals().map_err(failed)?;
    let child = spawn(words, &mask).map_err(|error| Failure {
        status: if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN },
        sentence: format!("{}: {error}", name.display()),
    })?;
    Supervision { signals, child, held, was_lost: false }.run().map_err(failed)
}

impl OnLost {
    /// Reads it; the error is what it should have been.
    pub fn parse(text: &str) -> Result<OnLost, String> {
        match text {
            "warn" => Ok(OnLost::Warn),
            "term" => Ok(OnLost::Term),
            "kill" => Ok(OnLost::Kill),
            _ => Err("warn, term or kill".into()),
        }
    }
}

struct Supervision<'a> {
    signals: SignalFd,
    child: Pid,
    held: Option<&'a Held<'a>>,
    was_lost: bool,
}

impl Supervision<'_> {
    fn run(mut self) -> io::Result<Ended> {
        let mut poll = Poll::new()?;
        poll.registry().register(&mut SourceFd(&self.signals.as_raw_fd()), Token(0), Interest::READABLE)?;
        if let Some(held) = self.held {
            poll.registry().register(&mut SourceFd(&held.descriptor), Token(1), Interest::READABLE)?;
        }
        let mut events = Events::with_capacity(2);
        loop {
            while let Some(signal) = self.signals.read_signal()? {
                self.pass_on(&signal);
            }
            let status = match waitpid(self.child, Some(WaitPidFlag::WNOHANG)) {
                // It was ended by a signal that has no name, a real-time signal, and which one is not told.
                Err(Errno::EINVAL) => Some(u8::MAX),
                status => status_of(status?),
            };
            if let Some(status) = status {
                return Ok(Ended { status, was_lost: self.was_lost });
            }
            self.look_after_held();
            match poll.poll(&mut events, self.next_end().map(|end| end.saturating_duration_since(Instant::now()))) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }

    fn pass_on(&self, info: &siginfo) {
        let signal = Signal::try_from(info.ssi_signo as i32).ok().filter(|signal| PASSED_ON.contains(signal));
        // The terminal sends what is typed to the command as well; a second one would mean something else to it.
        let is_typed = info.ssi_code > 0 && matches!(signal, Some(Signal::SIGINT | Signal::SIGQUIT));
        if let (Some(signal), false) = (signal, is_typed) {
            self.send(signal);
        }
    }

    fn look_after_held(&mut self) {
        let Some(held) = self.held.filter(|_| !self.was_lost) else { return };
        let reason = match held.until {
            Some(until) if until <= Instant::now() => "its time is over",
            _ if (held.is_lost)() => "the connection is gone",
            _ => return,
        };
        self.was_lost = true;
        let (consequence, signal) = match held.on_lost {
            OnLost::Warn => ("the command runs on without it", None),
            OnLost::Term => ("the command is terminated", Some(Signal::SIGTERM)),
            OnLost::Kill => ("the command is killed", Some(Signal::SIGKILL)),
        };
        // The signal first: what is said may have to wait for its reader.
        signal.into_iter().for_each(|signal| self.send(signal));
        terminal::warn(&format!("{}, because {reason}; {consequence}", held.loss));
    }

    fn next_end(&self) -> Option<Instant> {
        self.held.filter(|_| !self.was_lost)?.until
    }

    fn send(&self, signal: Signal) {
        // Until it is waited for, the child has its number for itself, even if it has ended.
        let _ = kill(self.child, signal);
    }
}

/// Holds the signals back from now on, to be read from this. What comes before the command runs waits for it.
fn hold_signals() -> io::Result<SignalFd> {
    // Where the end of children is ignored, nobody could be told of it, nor wait for them.
    signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::new(AtomicBool::new(false)))?;
    let mut signals: SigSet = PASSED_ON.into_iter().collect();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Starts the command with the signals that `mask` holds back. The standard library would have it inherit ours.
fn spawn(words: &[OsString], mask: &SigSet) -> io::Result<Pid> {
    let mut attributes = PosixSpawnAttr::init()?;
    attributes.set_sigmask(mask)?;
    // The runtime ignores this one before `main`, which is not meant for commands.
    attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    let words = words.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let pair = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    let environment = env::vars_os().map(pair).map(CString::new).collect::<Result<Vec<_>, _>>()?;
    Ok(posix_spawnp(&words[0], &PosixSpawnFileActions::init()?, &attributes, &words, &environment)?)
}

fn status_of(status: WaitStatus) -> Option<u8> {
    match status {
        // A status has 8 bits, and no signal has a number above 64.
        WaitStatus::Exited(_, code) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
        WaitStatus::Signaled(_, signal, _) => Some(128 + signal as u8),
        _ => None,
    }
}
