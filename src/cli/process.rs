//! Process of a command of a provider or a runner: a process group with a deadline and captured output.

use crate::spawn::{Spawn, Variable, group_of, status_of};
use crate::watchdog::Watchdog;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest first line, in bytes; the protocol allows no longer one.
const LONGEST_LINE: usize = 8192;
/// Bytes of an output read in a round; an output beyond it waits for the other outputs.
const READ_PER_ROUND: usize = 64 * 1024;
/// Time between a request to end and a kill.
const GRACE: Duration = Duration::from_secs(5);

/// Starter of commands, with their shared resources.
pub struct Launcher {
    mask: SigSet,
    null: File,
    watchdog: Arc<Watchdog>,
}

/// Command to be started.
#[derive(Default)]
pub struct Launch<'a> {
    /// Name and arguments.
    pub words: &'a [OsString],
    /// Additions to its environment.
    pub variables: &'a [Variable],
    /// Standard input; empty if None.
    pub input: Option<BorrowedFd<'a>>,
    /// Use of its output.
    pub keep: Keep,
    /// Use of its standard error. If nothing is kept of that, it is the standard error of this process.
    pub errors: Keep,
    /// True if a standard error that is kept is copied to that of this process, too.
    pub shows_errors: bool,
    /// True if it has descriptor 3, on which it writes answer lines.
    pub has_answers: bool,
    /// Connections that stay open until its end, even if this process is killed.
    pub connections: &'a [BorrowedFd<'a>],
    /// Time limit of the process. A start that has printed its line has none, unless it was asked to end
    /// ([`Process::renew`]).
    pub timeout: Option<Duration>,
}

/// Part of an output that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    /// Nothing: the output is discarded.
    #[default]
    Nothing,
    /// The first line.
    FirstLine,
    /// Each line, until it is taken.
    Lines,
    /// The first line, and this many bytes of the end.
    Ends(usize),
}

/// Process group of a command.
pub struct Process {
    /// Process group; None after its end.
    group: Option<Pid>,
    /// Time at which it is asked to end, or killed if it was asked already.
    deadline: Option<Instant>,
    /// True if it was asked to end.
    is_ending: bool,
    output: Capture,
    errors: Capture,
    answers: Capture,
    watchdog: Arc<Watchdog>,
}

/// Output of a process, with the part that is kept.
#[derive(Default)]
struct Capture {
    pipe: Option<PipeReader>,
    keep: Keep,
    /// Bytes kept: twice the kept length of an end at most; for lines, the start of the next one.
    kept: Vec<u8>,
    lines: Vec<Vec<u8>>,
    /// True if the first line is complete.
    has_line: bool,
    /// Start of the output that is no longer in `kept`: a part of the first line.
    beginning: Vec<u8>,
    /// True if it is copied to the standard error of this process.
    is_passed_on: bool,
}

impl Launcher {
    /// Returns a launcher of commands with this signal mask. They end with this process, even if it is killed.
    pub fn new(mask: SigSet) -> io::Result<Launcher> {
        let null = File::options().read(true).write(true).open("/dev/null")?;
        Ok(Launcher { mask, null, watchdog: Arc::new(Watchdog::start(GRACE)?) })
    }

    /// Starts a command.
    ///
    /// # Errors
    ///
    /// Fails if there is no such command, or it cannot be run.
    pub fn start(&self, launch: &Launch<'_>) -> io::Result<Process> {
        let null = self.null.as_raw_fd();
        let input = launch.input.map_or(null, |input| input.as_raw_fd());
        let (output, its_output) = Capture::begin(launch.keep)?;
        let (errors, its_errors) = Capture::begin(launch.errors)?;
        let (answers, its_answers) = Capture::begin(if launch.has_answers { Keep::Lines } else { Keep::Nothing })?;
        let [its_output, its_errors, its_answers] =
            [&its_output, &its_errors, &its_answers].map(|pipe| pipe.as_ref().map(AsRawFd::as_raw_fd));
        let stdio = [Some(input), its_output.or(Some(null)), its_errors, its_answers];
        let spawn = Spawn { mask: &self.mask, variables: launch.variables, stdio, has_group: true };
        let group = spawn.spawn(launch.words)?;
        let process = Process {
            group: Some(group),
            deadline: launch.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            is_ending: false,
            output,
            errors: Capture { is_passed_on: launch.shows_errors, ..errors },
            answers,
            watchdog: self.watchdog.clone(),
        };
        process.keep_open(launch.connections);
        Ok(process)
    }
}

impl Process {
    /// Returns the exit status once, after its end.
    pub fn status(&mut self) -> Option<u8> {
        // It is a child of this process, waited for only here, so there is no error.
        let group = self.group?;
        let status = status_of(group).unwrap_or(Some(u8::MAX))?;
        self.watchdog.remove(group_of(group));
        (self.group, self.deadline) = (None, None);
        Some(status)
    }

    /// Keeps these connections open until its end, even if this process is killed, instead of the ones before.
    pub fn keep_open(&self, connections: &[BorrowedFd<'_>]) {
        let descriptors: Vec<_> = connections.iter().map(AsRawFd::as_raw_fd).collect();
        self.group.iter().for_each(|group| self.watchdog.add(group_of(*group), &descriptors));
    }

    /// Returns true while it runs.
    pub fn is_running(&self) -> bool {
        self.group.is_some()
    }

    /// Reads some of its outputs. Discards the parts not kept.
    pub fn read(&mut self) {
        [&mut self.output, &mut self.errors, &mut self.answers].into_iter().for_each(Capture::read);
    }

    /// Returns the first line and the end of its standard error, or of its output if its standard error is empty.
    pub fn tail(&self) -> Vec<u8> {
        let errors = self.errors.ends();
        if errors.trim_ascii().is_empty() { self.output.ends() } else { errors }
    }

    /// Discards the standard error kept so far.
    pub fn forget_errors(&mut self) {
        self.errors.kept.clear();
        self.errors.beginning.clear();
    }

    /// Returns the lines written since the last call, without their ends, cut at 8192 bytes.
    pub fn take_lines(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.output.lines)
    }

    /// Returns the rest of its output after its end: a line without a line end.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output.kept)
    }

    /// Returns the lines written on descriptor 3 since the last call.
    pub fn take_answers(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.answers.lines)
    }

    /// Returns its first line without its line end, which it may lack after the end of the process; None until it is
    /// complete. The error is the fault of a line longer than [`LONGEST_LINE`].
    pub fn first_line(&self) -> Result<Option<Vec<u8>>, String> {
        let Capture { kept, has_line, .. } = &self.output;
        if kept.len() > LONGEST_LINE {
            return Err(format!("its first line has more than {LONGEST_LINE} bytes"));
        }
        let is_whole = *has_line || !self.is_running() && !kept.is_empty();
        Ok(is_whole.then(|| kept.trim_ascii_end().to_vec()))
    }

    /// Returns the descriptors of its open outputs.
    pub fn outputs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let captures = [&self.output, &self.errors, &self.answers].into_iter();
        captures.filter_map(|capture| capture.pipe.as_ref()).map(AsFd::as_fd)
    }

    /// Returns its deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Sets its deadline to `timeout` from now on, or to none, unless it was asked to end.
    pub fn renew(&mut self, timeout: Option<Duration>) {
        if !self.is_ending && self.is_running() {
            self.deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        }
    }

    /// Ends it if its deadline has passed, and returns true in that case.
    pub fn expire(&mut self, now: Instant) -> bool {
        let is_due = self.deadline.is_some_and(|deadline| deadline <= now);
        if is_due {
            if self.is_ending { self.kill() } else { self.terminate() }
        }
        is_due
    }

    /// Sends SIGTERM to its process group; SIGKILL follows later.
    pub fn terminate(&mut self) {
        self.terminate_within(GRACE);
    }

    /// Sends SIGTERM to its process group, and SIGKILL after this time.
    pub fn terminate_within(&mut self, grace: Duration) {
        if !self.is_ending {
            (self.is_ending, self.deadline) = (true, Instant::now().checked_add(grace));
            self.send(Signal::SIGTERM);
        }
    }

    /// Sends SIGKILL to its process group.
    pub fn kill(&mut self) {
        (self.is_ending, self.deadline) = (true, None);
        self.send(Signal::SIGKILL);
    }

    fn send(&self, signal: Signal) {
        // Until the process is waited for, its id and that of its group are not reused.
        if let Some(group) = self.group {
            let _ = killpg(group, signal);
        }
    }
}

impl Capture {
    /// Returns a capture, and the process's end of its pipe; None if nothing is kept.
    fn begin(keep: Keep) -> io::Result<(Capture, Option<PipeWriter>)> {
        let (pipe, writer) = match keep {
            Keep::Nothing => (None, None),
            _ => io::pipe().map(|(reader, writer)| (Some(reader), Some(writer)))?,
        };
        if let Some(reader) = &pipe {
            fcntl(reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok((Capture { pipe, keep, ..Capture::default() }, writer))
    }

    /// Reads some of the output.
    fn read(&mut self) {
        let mut chunk = [0; 4096];
        for _ in 0..READ_PER_ROUND / chunk.len() {
            let Some(pipe) = &mut self.pipe else { return };
            match pipe.read(&mut chunk) {
                Ok(0) => self.pipe = None,
                Ok(len) => {
                    self.keep(&chunk[..len]);
                    if self.is_passed_on {
                        // Its reader may be gone.
                        let _ = io::stderr().write_all(&chunk[..len]);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.pipe = None,
            }
        }
    }

    fn keep(&mut self, chunk: &[u8]) {
        match self.keep {
            Keep::Nothing => {}
            Keep::FirstLine if self.has_line || self.kept.len() > LONGEST_LINE => {}
            Keep::FirstLine => {
                let end = chunk.iter().position(|byte| *byte == b'\n');
                self.kept.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
                self.has_line = end.is_some();
            }
            Keep::Lines => {
                for part in chunk.split_inclusive(|byte| *byte == b'\n') {
                    let (part, is_end) = part.strip_suffix(b"\n").map_or((part, false), |part| (part, true));
                    let room = LONGEST_LINE.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&part[..part.len().min(room)]);
                    if is_end {
                        self.lines.push(std::mem::take(&mut self.kept));
                    }
                }
            }
            Keep::Ends(most) => {
                self.kept.extend_from_slice(chunk);
                if self.kept.len() > 2 * most {
                    let dropped = self.kept.drain(..self.kept.len() - most);
                    let room = (most / 4).saturating_sub(self.beginning.len());
                    self.beginning.extend(dropped.take(room));
                }
            }
        }
    }

    /// Returns the whole output if it is short, else the first line (cut if it is long) and the end.
    fn ends(&self) -> Vec<u8> {
        let Keep::Ends(most) = self.keep else { return Vec::new() };
        if self.beginning.is_empty() && self.kept.len() <= most {
            return self.kept.clone();
        }
        let beginning = if self.beginning.is_empty() { &self.kept[..most / 4] } else { &self.beginning };
        let first = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let end = &self.kept[self.kept.len().saturating_sub(most - first.len() - 1)..];
        [first, b"\n", end].concat()
    }
}
