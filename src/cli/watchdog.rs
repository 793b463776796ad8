//! Child that ends commands after this process is gone, even if it was killed, which no handler can notice.
//!
//! It reads the commands from a pipe, and acts at the end of the pipe. Until they have ended it keeps the connection on
//! which something is held for them, so that nobody else gets that before. It has its own session and blocks all
//! signals, so that a signal that ends this process does not end it as well.

use crate::spawn::{fork_process, stat_of};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, close, setsid};
use std::fs;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::process;
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for the end of a process after SIGKILL. It may hang in the kernel, or nobody waits for it.
pub const AFTER_KILL: Duration = Duration::from_secs(10);
/// Interval of looks at processes that are to end.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Watchdog child. When this is dropped, it ends the commands that are left, and ends.
pub struct Watchdog {
    /// None once it is closed.
    pipe: Option<PipeWriter>,
    child: Pid,
}

impl Watchdog {
    /// Starts the child, which keeps this connection. Must be called while the process has one thread.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start it.
    pub fn start(connection: Option<RawFd>, grace: Duration) -> io::Result<Watchdog> {
        let (reader, pipe) = io::pipe()?;
        match fork_process()? {
            ForkResult::Parent { child } => Ok(Watchdog { pipe: Some(pipe), child }),
            ForkResult::Child => {
                let _ = SigSet::all().thread_block();
                let _ = setsid();
                // A kill of all processes of the program's name should not meet it.
                let _ = prctl::set_name(c"pc-watchdog");
                close_others(&[Some(reader.as_raw_fd()), connection]);
                end(targets_left(reader), grace);
                process::exit(0)
            }
        }
    }

    /// Adds a target of kill(2) to be ended with this process: a process, or the negative number of a group.
    pub fn add(&self, target: Pid) {
        self.say('+', target);
    }

    /// Removes a target, whose id may be reused.
    pub fn remove(&self, target: Pid) {
        self.say('-', target);
    }

    fn say(&self, sign: char, target: Pid) {
        // Without the child, commands are left running, which cannot be helped.
        let _ = self.pipe.iter().try_for_each(|mut pipe| pipe.write_all(format!("{sign} {target}\n").as_bytes()));
    }
}

impl Drop for Watchdog {
    /// Waits for the child, so that its copy of the connection is closed.
    fn drop(&mut self) {
        self.pipe = None;
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

/// Closes all descriptors but these: pipes, locks and directories of the caller must not stay open.
fn close_others(kept: &[Option<RawFd>]) {
    let open = fs::read_dir("/proc/self/fd").map_or_else(
        |_| (0..1024).collect(),
        |entries| entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect::<Vec<RawFd>>(),
    );
    for descriptor in open.into_iter().filter(|descriptor| !kept.contains(&Some(*descriptor))) {
        let _ = close(descriptor);
    }
}

/// Reads the pipe to its end, and returns the targets that were added and not removed.
fn targets_left(pipe: PipeReader) -> Vec<Pid> {
    let mut targets = Vec::new();
    for line in BufReader::new(pipe).lines().map_while(Result::ok) {
        let Some((sign, Ok(target))) = line.split_once(' ').map(|(sign, id)| (sign, id.parse())) else { continue };
        let target = Pid::from_raw(target);
        targets.retain(|known| *known != target);
        if sign == "+" {
            targets.push(target);
        }
    }
    targets
}

/// Terminates the targets, kills what is left after the grace, and waits until nothing is left.
fn end(mut targets: Vec<Pid>, grace: Duration) {
    for (signal, patience) in [(Signal::SIGTERM, grace), (Signal::SIGKILL, AFTER_KILL)] {
        for target in &targets {
            let _ = kill(*target, signal);
            // A stopped process acts on SIGTERM once it goes on.
            let _ = kill(*target, Signal::SIGCONT);
        }
        let begun = Instant::now();
        while !targets.is_empty() && begun.elapsed() < patience {
            targets.retain(|target| is_left(*target));
            thread::sleep(if targets.is_empty() { Duration::ZERO } else { LOOK_EVERY });
        }
    }
}
