//! One command of many that a provider or a runner has: a process group with a deadline, of whose output a part is kept.

use crate::spawn::{Spawn, Stdio, Variable, status_of};
use crate::watchdog::Watchdog;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
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
    watchdog: Option<Arc<Watchdog>>,
}

/// A command that is to be started.
#[derive(Default)]
pub struct Launch<'a> {
    /// Its name and its arguments.
    pub words: &'a [OsString],
    /// Added to its environment.
    pub variables: &'a [Variable],
    /// What it reads; nothing if there is none.
    pub input: Option<BorrowedFd<'a>>,
    /// What becomes of its output.
    pub keep: Keep,
    /// Use of its standard error.
    pub errors: Errors,
    /// True when it has descriptor 3, on which it writes lines.
    pub has_answers: bool,
    /// It must have ended within this time, or have printed a line if that is wanted.
    pub timeout: Option<Duration>,
}

/// What is kept of an output.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Keep {
    /// There is none.
    #[default]
    Nothing,
    /// Its first line.
    FirstLine,
    /// Each of its lines, until it is taken.
    Lines,
    /// Its first line, and so many bytes of its end.
    Ends(usize),
}

/// Use of a standard error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Errors {
    /// It is that of this process.
    #[default]
    Inherited,
    /// The first line, and so many bytes of its end, are kept.
    Kept(usize),
    /// The same, and all is written to that of this process.
    PassedOn(usize),
}

/// A process.
pub struct Process {
    /// None once it has ended.
    group: Option<Pid>,
    /// When it is ended, or killed if it was asked to end already.
    deadline: Option<Instant>,
    /// Whether it was asked to end.
    is_ending: bool,
    output: Capture,
    errors: Capture,
    answers: Capture,
    watchdog: Option<Arc<Watchdog>>,
}

/// An output of a process, and what is kept of it.
struct Capture {
    pipe: Option<PipeReader>,
    keep: Keep,
    /// What is kept; of an end, up to twice as much; of lines, the beginning of the next.
    kept: Vec<u8>,
    lines: Vec<Vec<u8>>,
    /// True when the first line is whole.
    has_line: bool,
    /// Bytes of its beginning that are not kept any more: some of the first line.
    beginning: Vec<u8>,
    /// True when it is written to the standard error of this process.
    is_passed_on: bool,
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
        Ok(Launcher { mask, null: File::options().read(true).write(true).open("/dev/null")?, watchdog: None })
    }

    /// The same, and commands end with this process, in whatever way that ends.
    pub fn guarded(mask: SigSet) -> io::Result<Launcher> {
        let launcher = Launcher::new(mask)?;
        let watchdog = Some(Arc::new(Watchdog::start(&launcher.null)?));
        Ok(Launcher { watchdog, ..launcher })
    }

    /// Starts a command.
    ///
    /// # Errors
    ///
    /// When there is no such command, or it cannot be run.
    pub fn start(&self, launch: &Launch<'_>) -> io::Result<Process> {
        let null = self.null.as_raw_fd();
        let input = launch.input.map_or(null, |input| input.as_raw_fd());
        let (output, its_output) = Capture::begin(launch.keep)?;
        let (errors, its_errors) = Capture::begin(match launch.errors {
            Errors::Inherited => Keep::Nothing,
            Errors::Kept(most) | Errors::PassedOn(most) => Keep::Ends(most),
        })?;
        let (answers, its_answers) = Capture::begin(if launch.has_answers { Keep::Lines } else { Keep::Nothing })?;
        let stdio = Stdio::Apart {
            input,
            output: its_output.as_ref().map_or(null, AsRawFd::as_raw_fd),
            errors: its_errors.as_ref().map(AsRawFd::as_raw_fd),
            answers: its_answers.as_ref().map(AsRawFd::as_raw_fd),
        };
        let spawn = Spawn { mask: &self.mask, variables: launch.variables, stdio };
        let group = spawn.spawn(launch.words)?;
        self.watchdog.iter().for_each(|watchdog| watchdog.add(group));
        Ok(Process {
            group: Some(group),
            deadline: launch.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            is_ending: false,
            output,
            errors: Capture { is_passed_on: matches!(launch.errors, Errors::PassedOn(_)), ..errors },
            answers,
            watchdog: self.watchdog.clone(),
        })
    }
}

/// Returns the words of a command for the shell.
pub fn shell(command: &[u8]) -> [OsString; 3] {
    [b"sh".to_vec(), b"-c".to_vec(), command.to_vec()].map(OsStringExt::from_vec)
}

impl Process {
    /// Returns its status if it has ended since this was called last.
    pub fn status(&mut self) -> Option<u8> {
        // It is a child that nobody else waits for, so there is no error.
        let group = self.group?;
        let status = status_of(group).unwrap_or(Some(u8::MAX))?;
        self.watchdog.iter().for_each(|watchdog| watchdog.remove(group));
        (self.group, self.deadline) = (None, None);
        Some(status)
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.group.is_some()
    }

    /// Reads some of its outputs. What is not kept is thrown away.
    pub fn read(&mut self) {
        [&mut self.output, &mut self.errors, &mut self.answers].into_iter().for_each(Capture::read);
    }

    /// Returns the first line and the end of its standard error; those of its output, if there is nothing on the standard error.
    pub fn tail(&self) -> Vec<u8> {
        let errors = self.errors.ends();
        if errors.trim_ascii().is_empty() { self.output.ends() } else { errors }
    }

    /// Keeps what comes on its standard error from now on, and nothing of what came.
    pub fn forget_errors(&mut self) {
        self.errors.forget();
    }

    /// Returns the lines that it has written since this was called last, without their ends; what is beyond 8192 bytes of one is
    /// left out.
    pub fn take_lines(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.output.lines)
    }

    /// Returns what is left of its output after its end: a line that has none.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output.kept)
    }

    /// Returns the lines that it has written on descriptor 3 since this was called last.
    pub fn take_answers(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.answers.lines)
    }

    /// Returns its first line, which may lack its end once it has ended.
    pub fn first_line(&self) -> FirstLine {
        let Capture { kept, has_line, .. } = &self.output;
        if kept.len() > LONGEST_LINE {
            return FirstLine::TooLong;
        }
        let is_whole = *has_line || !self.is_running() && !kept.is_empty();
        if is_whole { FirstLine::Whole(kept.trim_ascii_end().to_vec()) } else { FirstLine::Open }
    }

    /// The descriptor of its output, while there is some.
    pub fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.pipe.as_ref().map(AsFd::as_fd)
    }

    /// The descriptors of all that it writes and that has not ended.
    pub fn outputs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.output, &self.errors, &self.answers]
            .into_iter()
            .filter_map(|capture| capture.pipe.as_ref())
            .map(AsFd::as_fd)
    }

    /// When there is something to do about it.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Gives it this time from now on, unless it was asked to end.
    pub fn renew(&mut self, timeout: Duration) {
        if !self.is_ending && self.is_running() {
            self.deadline = Instant::now().checked_add(timeout);
        }
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

impl Capture {
    /// Returns a capture, and what the process is to have: nothing, if nothing is kept.
    fn begin(keep: Keep) -> io::Result<(Capture, Option<PipeWriter>)> {
        let (pipe, writer) = match keep {
            Keep::Nothing => (None, None),
            _ => io::pipe().map(|(reader, writer)| (Some(reader), Some(writer)))?,
        };
        if let Some(reader) = &pipe {
            fcntl(reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let capture = Capture {
            pipe,
            keep,
            kept: Vec::new(),
            lines: Vec::new(),
            has_line: false,
            beginning: Vec::new(),
            is_passed_on: false,
        };
        Ok((capture, writer))
    }

    /// Reads some of it.
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

    /// Returns all if that is short, else the first line, cut if it is long, and the end.
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

    fn forget(&mut self) {
        self.kept.clear();
        self.beginning.clear();
    }
}
