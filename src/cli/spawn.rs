//! Starts commands as children, and returns their exit statuses. Independent of their purpose.

use nix::errno::Errno;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Variable of the environment: name and value.
pub type Variable = (Vec<u8>, Vec<u8>);

/// Prefixes of the variables about members. A command with variables about a member does not inherit variables about
/// another.
const OF_MEMBERS: [&[u8]; 6] =
    [b"POOL_NAME", b"POOL_MEMBER", b"POOL_LEASE", b"POOL_TOKEN", b"POOL_ATTR_", b"POOL_START_ID"];

/// Parameters for starting a command.
pub struct Spawn<'a> {
    /// Signal mask. The standard library would pass on that of this process.
    pub mask: &'a SigSet,
    /// Additions to its environment.
    pub variables: &'a [Variable],
    /// Standard input, output and error.
    pub stdio: Stdio,
}

/// Standard input, output and error of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stdio {
    /// The three streams of this process.
    Inherited,
    /// These descriptors. The command leads its own process group, so that it can be ended with all its children, and
    /// signals typed at a terminal do not reach it.
    Apart {
        input: RawFd,
        output: RawFd,
        /// Standard error; None for that of this process.
        errors: Option<RawFd>,
        /// Descriptor 3, if it has one.
        answers: Option<RawFd>,
    },
}

impl Spawn<'_> {
    /// Starts a command: `words` are its name, looked up in PATH, and its arguments.
    ///
    /// # Errors
    ///
    /// Fails if the command does not exist or cannot be run.
    pub fn spawn(&self, words: &[OsString]) -> io::Result<Pid> {
        let mut attributes = PosixSpawnAttr::init()?;
        let mut actions = PosixSpawnFileActions::init()?;
        attributes.set_sigmask(self.mask)?;
        // The runtime ignores this signal before `main`, which commands must not inherit.
        attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
        let mut flags = PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
        if let Stdio::Apart { input, output, errors, answers } = self.stdio {
            attributes.set_pgroup(Pid::from_raw(0))?;
            flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
            // Descriptor 3 comes last, because 3 may be another of these descriptors in this process.
            for (own, its) in [(Some(input), 0), (Some(output), 1), (errors, 2), (answers, 3)] {
                own.map_or(Ok(()), |own| actions.add_dup2(own, its))?;
            }
        }
        attributes.set_flags(flags)?;
        let arguments = words.iter().map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        let environment = self.environment()?;
        match posix_spawnp(&arguments[0], &actions, &attributes, &arguments, &environment) {
            // A script without an interpreter in its first line is run by the shell, as execvp(3) and cron do.
            Err(Errno::ENOEXEC) => {
                let script = program_of(&words[0]).map_or_else(|| words[0].clone(), PathBuf::into_os_string);
                let script = CString::new(script.as_bytes())?;
                let arguments = [&[c"sh".into(), script], &arguments[1..]].concat();
                Ok(posix_spawnp(c"/bin/sh", &actions, &attributes, &arguments, &environment)?)
            }
            spawned => Ok(spawned?),
        }
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

/// Returns the file that is run for a command: the command itself, if its name has a slash, or else the first executable
/// file of that name in PATH.
pub fn program_of(name: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.mode() & 0o111 != 0);
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(is_program);
    }
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(name)).find(is_program)
}

/// Lets the signals that ask for an end have that effect, while a command waits as the first process of a container: for
/// that one their default is to be ignored.
pub fn obey_signals_as_first_process() -> io::Result<()> {
    if process::id() == 1 {
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
            let always = Arc::new(AtomicBool::new(true));
            signal_hook::flag::register_conditional_shutdown(signal as i32, 128 + signal as i32, always)?;
        }
    }
    Ok(())
}

/// Blocks these signals and SIGCHLD, and returns the descriptor to read them from. A signal that arrives before a
/// command starts is read once it runs.
pub fn block_signals(signals: &[Signal]) -> io::Result<SignalFd> {
    // If SIGCHLD is ignored, the system neither sends it nor keeps exit statuses.
    signal_hook::flag::register(signal_hook::consts::SIGCHLD, Arc::new(AtomicBool::new(false)))?;
    let mut signals: SigSet = signals.iter().copied().collect();
    signals.add(Signal::SIGCHLD);
    signals.thread_block()?;
    Ok(SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Returns the words that run a command in the shell.
pub fn shell(command: &[u8]) -> [OsString; 3] {
    [b"sh".to_vec(), b"-c".to_vec(), command.to_vec()].map(OsStringExt::from_vec)
}

/// Returns the exit status of a child as shells do; None while it runs. Fails if called again after its end.
pub fn status_of(child: Pid) -> io::Result<Option<u8>> {
    Ok(match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
        // The child was ended by a real-time signal, for which nix has no name.
        Err(Errno::EINVAL) => Some(u8::MAX),
        Err(errno) => return Err(errno.into()),
        // An exit status has 8 bits, and signal numbers are at most 64.
        Ok(WaitStatus::Exited(_, code)) => Some(u8::try_from(code).unwrap_or(u8::MAX)),
        Ok(WaitStatus::Signaled(_, signal, _)) => Some(128 + signal as u8),
        Ok(_) => None,
    })
}
