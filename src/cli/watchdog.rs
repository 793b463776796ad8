//! Child that ends commands after this process is gone, even if it was killed, which no handler can notice.
//!
//! It reads the commands from a socket, and acts at the end of its input. Until a command has ended it keeps the
//! connections on which something is held for it, so that nobody else gets that before. It has its own session and blocks
//! all signals, so that a signal that ends this process does not end it as well.

use crate::spawn::{fork_process, stat_of};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg, socketpair,
};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, close, setsid};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// Longest wait for the end of a process after SIGKILL. It may hang in the kernel, or nobody waits for it.
pub const AFTER_KILL: Duration = Duration::from_secs(10);
/// Interval of looks at processes that are to end.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Longest message: a sign and a number.
const MESSAGE: usize = 32;
/// Most connections of one command: a job can be reserved on one of two.
const MOST_CONNECTIONS: usize = 2;

/// Watchdog child. When this is dropped, it ends the commands that are left, and ends.
pub struct Watchdog {
    /// None once it is closed.
    socket: Option<OwnedFd>,
    child: Pid,
}

/// Target of kill(2) in the child, with the connections that it keeps for it.
struct Target {
    id: Pid,
    connections: Vec<RawFd>,
}

impl Drop for Target {
    fn drop(&mut self) {
        for descriptor in &self.connections {
            let _ = close(*descriptor);
        }
    }
}

impl Watchdog {
    /// Starts the child. Must be called while the process has one thread.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start it.
    pub fn start(grace: Duration) -> io::Result<Watchdog> {
        // Each message is whole, whichever threads send them.
        let (socket, its) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        match fork_process()? {
            ForkResult::Parent { child } => Ok(Watchdog { socket: Some(socket), child }),
            ForkResult::Child => {
                let _ = SigSet::all().thread_block();
                let _ = setsid();
                // A kill of all processes of the program's name should not meet it.
                let _ = prctl::set_name(c"pc-watchdog");
                close_others(its.as_raw_fd());
                end(targets_left(&its), grace);
                process::exit(0)
            }
        }
    }

    /// Adds a target of kill(2) to be ended with this process: a process, or the negative number of a group. The child
    /// keeps these connections until the target has ended. A target that is added again has other connections.
    pub fn add(&self, target: Pid, connections: &[RawFd]) {
        self.say('+', target, connections);
    }

    /// Removes a target, whose id may be reused. The child closes its connections.
    pub fn remove(&self, target: Pid) {
        self.say('-', target, &[]);
    }

    fn say(&self, sign: char, target: Pid, connections: &[RawFd]) {
        let Some(socket) = &self.socket else { return };
        let message = format!("{sign}{target}");
        let rights = [ControlMessage::ScmRights(connections)];
        let rights = if connections.is_empty() { &[] } else { &rights[..] };
        let parts = [IoSlice::new(message.as_bytes())];
        let send = |rights: &[_]| sendmsg::<()>(socket.as_raw_fd(), &parts, rights, MsgFlags::MSG_NOSIGNAL, None);
        // The system may have no room for connections. Without the child, commands are left running, which cannot be
        // helped.
        let _ = send(rights).or_else(|_| send(&[]));
    }
}

impl Drop for Watchdog {
    /// Waits for the child, so that its copies of connections are closed.
    fn drop(&mut self) {
        self.socket = None;
        let _ = waitpid(self.child, None);
    }
}

/// Returns true if there is a process of this target of kill(2) that has not ended. The system keeps ended processes
/// until their parent waits for them, which the first process of a container may never do.
pub fn is_left(target: Pid) -> bool {
    if kill(target, None) == Err(Errno::ESRCH) {
        return false;
    }
    let is_left = |process: &str| {
        stat_of(process).is_some_and(|(state, _, group)| {
            !matches!(state, 'Z' | 'X') && (-group == target.as_raw() || process == target.to_string())
        })
    };
    match fs::read_dir("/proc") {
        Ok(mut files) if stat_of("self").is_some() => {
            files.any(|file| file.is_ok_and(|file| file.file_name().to_str().is_some_and(is_left)))
        }
        _ => true,
    }
}

/// Closes all descriptors but this one: pipes, locks and directories of the caller must not stay open.
fn close_others(kept: RawFd) {
    let open = fs::read_dir("/proc/self/fd").map_or_else(
        |_| (0..1024).collect(),
        |entries| entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect::<Vec<RawFd>>(),
    );
    for descriptor in open.into_iter().filter(|descriptor| *descriptor != kept) {
        let _ = close(descriptor);
    }
}

/// Reads the socket to its end, and returns the targets that were added and not removed.
fn targets_left(socket: &OwnedFd) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    while let Some((is_added, target)) = read_message(socket) {
        targets.retain(|known| known.id != target.id);
        if is_added {
            targets.push(target);
        }
    }
    targets
}

/// Reads a message: a target, and whether it is added; None at the end.
fn read_message(socket: &OwnedFd) -> Option<(bool, Target)> {
    let (mut bytes, mut space) = ([0; MESSAGE], nix::cmsg_space!([RawFd; MOST_CONNECTIONS]));
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty()).ok()?;
    let (len, mut connections) = (received.bytes, Vec::new());
    // Without room for a connection, the command is still known.
    for control in received.cmsgs().into_iter().flatten() {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            connections.extend(descriptors);
        }
    }
    let (sign, id) = std::str::from_utf8(&bytes[..len]).ok()?.split_at_checked(1)?;
    Some((sign == "+", Target { id: Pid::from_raw(id.parse().ok()?), connections }))
}

/// Terminates the targets, kills what is left after the grace, and waits until nothing is left. The connections of each
/// are closed when it has ended.
fn end(mut targets: Vec<Target>, grace: Duration) {
    for (signal, patience) in [(Signal::SIGTERM, grace), (Signal::SIGKILL, AFTER_KILL)] {
        for target in &targets {
            let _ = kill(target.id, signal);
            // A stopped process acts on SIGTERM once it goes on.
            let _ = kill(target.id, Signal::SIGCONT);
        }
        let begun = Instant::now();
        while !targets.is_empty() && begun.elapsed() < patience {
            targets.retain(|target| is_left(target.id));
            thread::sleep(if targets.is_empty() { Duration::ZERO } else { LOOK_EVERY });
        }
    }
}
