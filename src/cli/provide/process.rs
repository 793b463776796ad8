//! One command of a provider: a process group with a deadline, of whose output the first line is kept.

use crate::cli::spawn::{Spawn, Stdio, Variable, status_of};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

/// A first line that is longer is none: no line of the protocol is.
const LONGEST_LINE: usize = 8192;
/// How much of the output is read in a round. What floods its output waits for the others then.
const READ_PER_ROUND: usize = 64 * 1024;
/// What is asked to end has so long for it, and is killed then.
const GRACE: Duration = Duration::from_secs(5);

/// What commands need to be started.
pub struct Launcher {
    mask: SigSet,
    null: File,
}

/// A process.
pub struct Process {
    /// None once it has ended.
    group: Option<Pid>,
    /// When it is ended, or killed if it was asked to end already.
    deadline: Option<Instant>,
    /// Whether it was asked to end.
    is_ending: bool,
    output: Option<PipeReader>,
    line: Vec<u8>,
    has_line: bool,
}

/// How far the first line is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstLine {
    /// It may come.
    Open,
    /// It is here, without its end.
    Whole(Vec<u8>),
    /// It is longer than any.
    TooLong,
}

impl Launcher {
    /// Commands get this signal mask.
    pub fn new(mask: SigSet) -> io::Result<Launcher> {
        Ok(Launcher { mask, null: File::options().read(true).write(true).open("/dev/null")? })
    }

    /// Starts a command for the shell, which must have ended, or have printed a line if that is wanted, within the time.
    pub fn start(
        &self,
        command: &[u8],
        variables: &[Variable],
        timeout: Duration,
        has_output: bool,
    ) -> io::Result<Process> {
        let words = [b"sh".to_vec(), b"-c".to_vec(), command.to_vec()].map(OsStringExt::from_vec);
        let null = self.null.as_raw_fd();
        let (reader, writer) =
            if has_output { io::pipe().map(|(reader, writer)| (Some(reader), Some(writer)))? } else { (None, None) };
        if let Some(reader) = &reader {
            fcntl(reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let output = writer.as_ref().map_or(null, AsRawFd::as_raw_fd);
        let spawn = Spawn { mask: &self.mask, variables, stdio: Stdio::Apart(null, output) };
        let group = spawn.spawn(&words)?;
        Ok(Process {
            group: Some(group),
            deadline: Instant::now().checked_add(timeout),
            is_ending: false,
            output: reader,
            line: Vec::new(),
            has_line: false,
        })
    }
}

impl Process {
    /// Returns its status if it has ended since this was called last.
    pub fn status(&mut self) -> Option<u8> {
        // It is a child that nobody else waits for, so there is no error.
        let status = status_of(self.group?).unwrap_or(Some(u8::MAX))?;
        (self.group, self.deadline) = (None, None);
        Some(status)
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.group.is_some()
    }

    /// Reads some of its output. All but the first line is thrown away.
    pub fn read(&mut self) {
        let mut chunk = [0; 4096];
        for _ in 0..READ_PER_ROUND / chunk.len() {
            let Some(output) = &mut self.output else { return };
            match output.read(&mut chunk) {
                Ok(0) => self.output = None,
                Ok(len) => self.keep(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.output = None,
            }
        }
    }

    fn keep(&mut self, chunk: &[u8]) {
        if self.has_line || self.line.len() > LONGEST_LINE {
            return;
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        self.line.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
        self.has_line = end.is_some();
    }

    /// Returns its first line, which may lack its end once it has ended.
    pub fn first_line(&self) -> FirstLine {
        if self.line.len() > LONGEST_LINE {
            return FirstLine::TooLong;
        }
        let is_whole = self.has_line || !self.is_running() && !self.line.is_empty();
        if is_whole { FirstLine::Whole(self.line.trim_ascii_end().to_vec()) } else { FirstLine::Open }
    }

    /// The descriptor of its output, while there is some.
    pub fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().map(AsFd::as_fd)
    }

    /// When there is something to do about it.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Lets it run for as long as it likes.
    pub fn let_run(&mut self) {
        self.deadline = None;
    }

    /// Ends it if it has taken too long, and returns whether it has.
    pub fn expire(&mut self, now: Instant) -> bool {
        let is_due = self.deadline.is_some_and(|deadline| deadline <= now);
        match (is_due, self.is_ending) {
            (false, _) => {}
            (true, false) => self.terminate(),
            (true, true) => self.kill(),
        }
        is_due
    }

    /// Asks it to end, with all that it has started, and kills it later.
    pub fn terminate(&mut self) {
        if !self.is_ending {
            (self.is_ending, self.deadline) = (true, Instant::now().checked_add(GRACE));
            self.send(Signal::SIGTERM);
        }
    }

    /// Kills it, with all that it has started.
    pub fn kill(&mut self) {
        (self.is_ending, self.deadline) = (true, None);
        self.send(Signal::SIGKILL);
    }

    fn send(&self, signal: Signal) {
        // Until it is waited for, its number is its own, and so is that of its group.
        if let Some(group) = self.group {
            let _ = killpg(group, signal);
        }
    }
}
