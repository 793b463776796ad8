//! Starts commands as children, and returns their exit statuses. Independent of their purpose.

use nix::errno::Errno;
use nix::libc;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid, fork};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{env, fs, io, process};

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
    /// Standard input, output and error of the command, and its descriptor 3; None for the same as this process has.
    pub stdio: [Option<RawFd>; 4],
    /// True if the command leads its own process group, so that it can be ended with all its children. Signals typed at
    /// a terminal do not reach it then.
    pub has_group: bool,
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
        if self.has_group {
            attributes.set_pgroup(Pid::from_raw(0))?;
            flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
        }
        // Descriptor 3 comes last, because 3 may be another of these descriptors in this process.
        for (own, its) in self.stdio.into_iter().zip(0..) {
            own.map_or(Ok(()), |own| actions.add_dup2(own, its))?;
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

/// Returns the target of kill(2) that is the process group of this leader.
pub fn group_of(leader: Pid) -> Pid {
    Pid::from_raw(-leader.as_raw())
}

/// Returns the state, the parent and the process group of a process, if the system shows it.
pub fn stat_of(process: &str) -> Option<(char, u32, i32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name in brackets, which may contain anything.
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Returns the exit status of a child as shells do; None while it runs. Fails if called again after its end.
#[allow(unsafe_code, reason = "nix has no status for an end by a real-time signal")]
pub fn status_of(child: Pid) -> io::Result<Option<u8>> {
    let mut status = 0;
    // SAFETY: the call writes to this integer only.
    let waited = unsafe { libc::waitpid(child.as_raw(), &raw mut status, libc::WNOHANG) };
    match waited {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => {
            let signaled = libc::WIFSIGNALED(status).then(|| 128 + libc::WTERMSIG(status));
            // An exit status has 8 bits, and signal numbers are at most 64.
            Ok(Some(u8::try_from(signaled.unwrap_or_else(|| libc::WEXITSTATUS(status))).unwrap_or(u8::MAX)))
        }
    }
}

/// Forks the process.
#[allow(unsafe_code, reason = "the child of a process that has threads may do very little")]
pub fn fork_process() -> io::Result<ForkResult> {
    // SAFETY: the commands that fork have a single thread: neither they nor their libraries start one. So the child
    // finds no lock taken by a thread that it does not have, and may do all that this process may.
    Ok(unsafe { fork() }?)
}
