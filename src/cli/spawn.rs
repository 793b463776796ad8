//! Starts commands as children, and tells how they ended. It does not know what they are for.

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::env;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A variable of the environment, as its name and value.
pub type Variable = (Vec<u8>, Vec<u8>);

/// What the names of variables begin with that tell of a member. A command that is told of one does not inherit those of another.
const OF_MEMBERS: [&[u8]; 6] =
    [b"POOL_NAME", b"POOL_MEMBER", b"POOL_LEASE", b"POOL_TOKEN", b"POOL_ATTR_", b"POOL_START_ID"];

/// How a command is started.
pub struct Spawn<'a> {
    /// Its signal mask. The standard library would have it inherit ours.
    pub mask: &'a SigSet,
    /// Added to its environment.
    pub variables: &'a [Variable],
    /// What it reads and writes.
    pub stdio: Stdio,
}

/// What a command reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stdio {
    /// What this process does.
    Inherited,
    /// These descriptors. It leads a process group of its own, so that it can be ended with all that it has started, and nothing
    /// typed at a terminal reaches it.
    Apart {
        input: RawFd,
        output: RawFd,
        /// None for that of this process.
        errors: Option<RawFd>,
        /// Its descriptor 3, if it has one.
        answers: Option<RawFd>,
    },
}

impl Spawn<'_> {
    /// Starts a command: its name, which is looked for as shells do, and its arguments.
    ///
    /// # Errors
    ///
    /// When there is no such command, or it cannot be run.
    pub fn spawn(&self, words: &[OsString]) -> io::Result<Pid> {
        let mut attributes = PosixSpawnAttr::init()?;
        let mut actions = PosixSpawnFileActions::init()?;
        attributes.set_sigmask(self.mask)?;
        // The runtime ignores this one before `main`, which is not meant for commands.
        attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
        let mut flags = PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
        if let Stdio::Apart { input, output, errors, answers } = self.stdio {
            attributes.set_pgroup(Pid::from_raw(0))?;
            flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
            // The last one, as 3 may be one of the others in this process.
            for (own, its) in [(Some(input), 0), (Some(output), 1), (errors, 2), (answers, 3)] {
                own.map_or(Ok(()), |own| actions.add_dup2(own, its))?;
            }
        }
        attributes.set_flags(flags)?;
        let words = words.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        Ok(posix_spawnp(&words[0], &actions, &attributes, &words, &self.environment()?)?)
    }

    fn environment(&self) -> io::Result<Vec<CString>> {
        let is_of_member = |name: &[u8]| OF_MEMBERS.iter().any(|prefix| name.starts_with(prefix));
        let has_member = self.variables.iter().any(|(name, _)| is_of_member(name));
        let is_told =
            |name: &[u8]| has_member && is_of_member(name) || self.variables.iter().any(|(told, _)| told == name);
        let inherited = env::vars_os().filter(|(name, _)| !is_told(name.as_bytes()));
        let inherited = inherited.map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat());
        let told = self.variables.iter().map(|(name, value)| [name, &b"="[..], value].concat());
        Ok(inherited.chain(told).map(CString::new).collect::<Result<Vec<_>, _>>()?)
    }
}

/// Blocks these signals and that of the end of children, and returns the descriptor from which they are read. One that comes
/// before a command runs is read once it does.
pub fn block_signals(signals: &[Signal]) -> io::Result<SignalFd> {
    // Where SIGCHLD is ignored, the system would neither send it nor let the child be waited for.
    signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::new(AtomicBool::new(false)))?;
    let mut signals: SigSet = signals.iter().copied().collect();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Returns the exit status of a child as shells have it; None while it has not ended. Asked again after its end, that is an error.
pub fn status_of(child: Pid) -> io::Result<Option<u8>> {
    Ok(match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
        // It was ended by a real-time signal, for which nix has no name.
        Err(Errno::EINVAL) => Some(u8::MAX),
        Err(errno) => return Err(errno.into()),
        // A status has 8 bits, and no signal has a number above 64.
        Ok(WaitStatus::Exited(_, code)) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(128 + signal as u8),
        Ok(_) => None,
    })
}
