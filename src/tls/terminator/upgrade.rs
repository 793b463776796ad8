//! Upgrade of a terminator, for SIGUSR1. TLS sessions cannot be handed over, so the process forks: the child goes on
//! with the open connections, and ends with the last of them; the parent executes the program on disk, under the same
//! pid and with the same listeners. Before that the program rehearses it, as with the daemon.

use super::Terminator;
use log::{info, warn};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};
use poolcounter_core::Time;
use poolcounter_server::{DaemonState, Handover, Listener, Notifier, Program, Rehearsal, StateFile};
use std::fs;
use std::io::{self, Read, Write};
use std::process;

/// Progress of an upgrade.
#[derive(Default)]
pub(super) struct Upgrade {
    /// Program that would take over; None for the running program.
    program: Option<Program>,
    /// Child that rehearses.
    rehearsal: Option<Rehearsal>,
    /// True once the child has written something or has exited.
    pub is_readable: bool,
    /// True if this process is a child that only goes on with the old connections.
    pub is_detached: bool,
}

/// Returns the listeners of the previous process, and sets the program of the terminator.
///
/// # Errors
///
/// One sentence with the missing part.
pub fn inherited(handover: Handover, terminator: &mut Terminator) -> Result<Vec<Listener>, String> {
    let (listeners, program) = handover.into_listeners()?;
    terminator.upgrade.program = program;
    Ok(listeners)
}

impl Upgrade {
    /// Returns true if an upgrade can begin. Until then, SIGUSR1 is left pending.
    pub fn can_begin(&self) -> bool {
        self.rehearsal.is_none() && !self.is_detached
    }

    /// Returns the deadline of the rehearsal.
    pub fn deadline(&self) -> Option<Time> {
        self.rehearsal.as_ref().map(|rehearsal| rehearsal.deadline)
    }

    /// Makes the detached children read the certificates again. The child of a rehearsal has just read them.
    pub fn pass_on_reload(&self) {
        let rehearsing = self.rehearsal.as_ref().map(|rehearsal| rehearsal.child.id().to_string());
        // The process has one thread, which has all children.
        let children = match fs::read_to_string(format!("/proc/self/task/{}/children", getpid())) {
            Ok(children) => children,
            Err(error) => return warn!("processes with older connections keep their certificates: {error}"),
        };
        let detached = children.split_whitespace().filter(|child| Some(*child) != rehearsing.as_deref());
        for child in detached.filter_map(|child| child.parse().ok()) {
            // The child may have ended.
            let _ = kill(Pid::from_raw(child), Signal::SIGHUP);
        }
    }

    /// Ends the rehearsal, if there is one.
    pub fn end(&mut self) {
        self.rehearsal.take().iter_mut().for_each(Rehearsal::end);
    }

    /// Reaps children that earlier upgrades forked: they stay children over exec. The rehearsal waits for its own child.
    pub fn reap_children(&mut self) {
        if self.rehearsal.is_some() {
            return;
        }
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|status| status != WaitStatus::StillAlive) {}
    }
}

impl Terminator {
    /// Starts an upgrade: the program on disk rehearses it.
    pub(super) fn begin_upgrade(&mut self) {
        match self.rehearse() {
            Ok(path) => {
                info!("an upgrade begins: {path} rehearses the takeover");
                self.notify_supervisor(DaemonState::Reloading);
            }
            Err(error) => warn!("no upgrade: the program cannot be run: {error}"),
        }
    }

    fn rehearse(&mut self) -> io::Result<String> {
        let program = self.upgrade.program.take().map_or_else(Program::current, Ok)?;
        let program = self.upgrade.program.insert(program);
        let (state, _) = StateFile::of_listeners(self.ports.iter().map(|port| &port.listener), program)?;
        self.upgrade.rehearsal = Some(program.rehearse(state, self.poll.registry(), self.clock)?);
        Ok(program.path().display().to_string())
    }

    /// Continues the upgrade under way. Once the program is ready, this returns in the child only, unless it fails.
    pub(super) fn continue_upgrade(&mut self) {
        let Some(mut rehearsal) = self.upgrade.rehearsal.take() else { return };
        let is_readable = std::mem::take(&mut self.upgrade.is_readable);
        let failure = match rehearsal.verdict(is_readable, self.clock.now()) {
            None => return self.upgrade.rehearsal = Some(rehearsal),
            Some(Err(reason)) => format!("cannot take over: {reason}"),
            Some(Ok(())) => match self.fork_and_take_over(rehearsal) {
                Ok(()) => return,
                Err(error) => format!("cannot be run: {error}"),
            },
        };
        let path = self.upgrade.program.as_ref().map(|program| program.path().display().to_string());
        warn!("no upgrade: {} {failure}", path.unwrap_or_default());
        self.notify_supervisor(DaemonState::Ready);
        self.upgrade.reap_children();
        // Another upgrade may have been asked for meanwhile.
        self.is_signalled = true;
    }

    /// Forks: the parent executes the rehearsed program, and the child returns with the connections. Signals that this
    /// process has not read stay pending, and the new program reads them.
    fn fork_and_take_over(&mut self, rehearsal: Rehearsal) -> io::Result<()> {
        let program = self.upgrade.program.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let (state, descriptors) = StateFile::of_listeners(self.ports.iter().map(|port| &port.listener), program)?;
        // Exec closes the pipe; a byte in it tells the child of a failure.
        let (mut outcome, mut failure) = io::pipe()?;
        let first = getpid();
        match fork_process()? {
            ForkResult::Child => {
                drop(failure);
                let has_failed = outcome.read(&mut [0]).is_ok_and(|len| len > 0);
                // The child ends with the process that an operator knows.
                let is_bound = prctl::set_pdeathsig(Signal::SIGTERM).is_ok();
                if has_failed || is_bound && getppid() != first {
                    process::exit(0);
                }
                self.detach();
                Ok(())
            }
            ForkResult::Parent { .. } => {
                let error = rehearsal.take_over(program, &state, &descriptors);
                let _ = failure.write_all(b"!");
                Err(error)
            }
        }
    }

    /// Goes on as the child: accepts no connections, and sends no notifications to the supervisor.
    fn detach(&mut self) {
        self.upgrade.is_detached = true;
        self.notifier = Notifier::default();
        let signals = self.signals.as_ref();
        if let Some(Err(error)) = signals.map(|caught| caught.register_again(self.poll.registry())) {
            warn!("process {} takes no signals: {error}", getpid());
        }
        for mut port in self.ports.drain(..) {
            // The sockets are open in the new program, so that closing them is not enough.
            if let Err(error) = port.listener.deregister(self.poll.registry()) {
                warn!("a socket is polled that is not listened on: {error}");
            }
        }
        if !self.connections.is_empty() {
            info!("process {} goes on with {} connections until they end", getpid(), self.connections.len());
        }
    }
}

/// Forks the process.
#[allow(unsafe_code, reason = "the child of a process that has threads may do very little")]
fn fork_process() -> io::Result<ForkResult> {
    // SAFETY: a terminator has a single thread: neither it nor its libraries start one. So the child finds no lock taken
    // by a thread that it does not have, and may do all that this process may.
    Ok(unsafe { fork() }?)
}
