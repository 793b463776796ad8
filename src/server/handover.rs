//! Upgrade that loses no lock: the process writes its state to a file in memory, and replaces itself by the program on
//! disk, which reads the file and continues, under the same pid and with the same sockets.
//!
//! Before that, the new program is run as a child that only tries to read such a file: the rehearsal. The daemon serves
//! meanwhile, and goes on if the child fails: a missing, broken or incompatible program costs only a line in the log.

use super::clock::Clock;
use super::listener::SavedListener;
use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::execve;
use poolcounter_core::{ConnId, Reader, Span, Time, Writer};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, process};

mod check;
mod environment;
mod listeners;

pub use check::check;
pub use listeners::check_listeners;

use environment::{c_string, environment_with, set_process_name};

/// First bytes of the file, before [`VERSION`], so that no other file is taken for a handover.
const MAGIC: [u8; 12] = *b"poolcounter\0";
/// Version of the file: of its layout, a [`Preamble`], the services' parts and the connections, and of what is in each.
const VERSION: u32 = 1;
/// Variable with the file's descriptor for the successor, after the pid, which exec does not change, and before the
/// descriptor of the program itself.
const VARIABLE: &str = "POOLCOUNTER_HANDOVER";
/// Variables that were for this process alone, and are removed for the successor. The handover has the sockets of a
/// supervisor, too.
const CONSUMED_VARIABLES: [&str; 4] = [VARIABLE, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
/// Output of a successful rehearsal.
const READY: &str = "can take over\n";
/// Memory that must be free for an upgrade to begin, in bytes: far more than writing the handover piece by piece needs.
const SPARE_BYTES: usize = 8 * 1024 * 1024;
/// Bytes that are written to the file, or read from it, at a time.
const PIECE_BYTES: usize = 256 * 1024;
/// File in which a process sets the likelihood that the system ends it when memory is short.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
/// Highest likelihood.
const EXPENDABLE: &str = "1000";

/// Handover of another process, with its preamble already read.
pub struct Handover {
    pub(super) preamble: Preamble,
    pub(super) rest: Box<dyn Read>,
}

/// First part of a handover: the state that belongs to no service and no connection.
#[derive(Serialize, Deserialize)]
pub struct Preamble {
    pub clock: Clock,
    pub ports: Vec<SavedPort>,
    pub sockets: Vec<SavedSocket>,
    /// Path of the program; None if it was not handed over.
    pub program: Option<OsString>,
    /// Content of the configuration file of the rehearsal, if one was named; None before the rehearsal.
    pub config: Option<String>,
}

/// Record that the rehearsal appends to the handover.
#[derive(Serialize, Deserialize)]
pub struct Rehearsed {
    /// Content of the configuration file, if one was named: the successor uses the same.
    pub config: Option<String>,
}

#[derive(Serialize, Deserialize)]
pub struct SavedPort {
    /// Name of its service.
    pub service: String,
    pub listener: SavedListener,
}

/// Socket of a connection.
#[derive(Serialize, Deserialize)]
pub struct SavedSocket {
    pub id: ConnId,
    pub fd: RawFd,
    pub is_unix: bool,
    /// Address of the peer of a TCP connection, if it is known.
    pub peer: Option<SocketAddr>,
}

/// Token of the output of a rehearsal, in the poll of either loop. The token above is that of the signals.
pub const VERDICT: Token = Token(usize::MAX - 1);

/// Time that the new program has for reading the handover.
const REHEARSAL_TIME: Span = Span::from_secs(10);
/// Bytes of a longer handover that add a second: a tenth of what a slow machine reads in that time.
const BYTES_PER_SECOND: u64 = 1024 * 1024;

/// A written handover, in memory.
pub struct StateFile {
    file: File,
    /// Length in bytes.
    pub bytes: u64,
}

/// Path of the program, with the arguments of this process.
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// Child that tries to read a handover.
pub struct Rehearsal {
    /// The child's process.
    pub child: Child,
    verdict: UnixStream,
    output: String,
    /// File that it runs, even if another one is at its path by now.
    executable: OwnedFd,
    state: StateFile,
    /// True once the child could take over.
    pub has_succeeded: bool,
    /// Time at which the rehearsal, or what comes after it, has taken too long.
    pub deadline: Time,
}

impl Preamble {
    /// Returns a file in memory with a handover; `write_rest` writes the part after the preamble.
    pub fn write(&self, write_rest: impl FnOnce(&mut Writer<'_>) -> io::Result<()>) -> io::Result<StateFile> {
        // If memory is short, fails now, while there still is an error to report.
        Vec::<u8>::new().try_reserve_exact(SPARE_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let file = File::from(memfd_create(c"poolcounter-handover", MFdFlags::MFD_CLOEXEC)?);
        let mut out = BufWriter::with_capacity(PIECE_BYTES, &file);
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_be_bytes())?;
        let mut writer = Writer::new(&mut out);
        writer.put(self)?;
        write_rest(&mut writer)?;
        out.flush()?;
        drop(out);
        let bytes = (&file).stream_position()?;
        (&file).rewind()?;
        Ok(StateFile { file, bytes })
    }

    /// Returns the descriptors of all sockets.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let ports = self.ports.iter().map(|port| port.listener.fd);
        ports.chain(self.sockets.iter().map(|socket| socket.fd))
    }
}

impl Handover {
    /// Reads the preamble of a handover.
    pub fn read(file: impl Read + 'static) -> Result<Handover, String> {
        let mut input = BufReader::with_capacity(PIECE_BYTES, file);
        let mut head = Vec::new();
        let read = input.by_ref().take((MAGIC.len() + size_of_val(&VERSION)) as u64).read_to_end(&mut head);
        read.map_err(|error| format!("the handover cannot be read: {error}"))?;
        let version = head.strip_prefix(&MAGIC).ok_or("this is no handover")?;
        match version.try_into().map(u32::from_be_bytes) {
            Ok(VERSION) => {
                let preamble = Reader::new(&mut input).take().map_err(|error| error.to_string())?;
                Ok(Handover { preamble, rest: Box::new(input) })
            }
            Ok(other) => Err(format!("the handover has version {other}, and this program reads version {VERSION}")),
            Err(_) => Err("the handover is cut off".into()),
        }
    }

    /// Returns the handover that a process of the same pid left for this one, if there is one.
    pub fn inherited() -> Option<Result<Handover, String>> {
        let value = env::var(VARIABLE).ok()?;
        let (pid, descriptors) = value.split_once(':')?;
        // With another pid, the variable has outlived its process, and the number is meaningless.
        let mut descriptors = descriptors.split(':').filter(|_| pid == process::id().to_string());
        let state = descriptors.next()?.parse().ok()?;
        // The program runs already, so its descriptor can be closed.
        drop(descriptors.next().and_then(|fd| adopt(fd.parse().ok()?).ok()));
        let file = adopt(state).map_err(|error| format!("the handover cannot be opened: {error}"));
        let handover = file.and_then(|file| Handover::read(File::from(file)));
        if let Ok(Handover { preamble: Preamble { program: Some(path), .. }, .. }) = &handover {
            set_process_name(path);
        }
        Some(handover)
    }

    /// Returns the text of the configuration file of the rehearsal, if one was named.
    pub fn config(&self) -> Option<String> {
        self.preamble.config.clone()
    }
}

impl Program {
    /// Returns the path of this program's file. An upgrade runs the file at that path at its time.
    ///
    /// If the program was started through a link, the path of the link is kept: it may lead to another file by then,
    /// and the process keeps the link's name.
    pub fn current() -> io::Result<Program> {
        let (file, arguments) = (env::current_exe()?, env::args_os().collect::<Vec<_>>());
        let called = arguments.first().map(PathBuf::from).filter(|path| path.is_absolute());
        let link = called.filter(|path| path.canonicalize().is_ok_and(|target| target == file));
        Ok(Program { path: link.unwrap_or_else(|| without_deleted_mark(file)), arguments })
    }

    /// Returns the program at a path of a handover.
    pub fn at(path: OsString) -> Program {
        Program { path: path.into(), arguments: env::args_os().collect() }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the program as a child that rehearses the takeover. An event with [`VERDICT`] means that it has written
    /// something, or has ended.
    pub fn rehearse(&self, state: StateFile, registry: &Registry, clock: Clock) -> io::Result<Rehearsal> {
        let executable = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(&self.path)?;
        let executable = OwnedFd::from(executable);
        // The interpreter of a script opens it again.
        keep_over_exec(executable.as_raw_fd(), true)?;
        let (verdict, theirs) = std::os::unix::net::UnixStream::pair()?;
        verdict.set_nonblocking(true)?;
        let mut verdict = UnixStream::from_std(verdict);
        registry.register(&mut verdict, VERDICT, Interest::READABLE)?;
        let child = Command::new(path_of(&executable))
            .arg0(&self.path)
            .args(self.arguments.iter().skip(1))
            .arg("--check-handover")
            .stdin(Stdio::from(state.file.try_clone()?))
            .stderr(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        let deadline = clock.now() + REHEARSAL_TIME + Span::from_secs(state.bytes / BYTES_PER_SECOND);
        Ok(Rehearsal { child, verdict, output: String::new(), executable, state, has_succeeded: false, deadline })
    }
}

/// Returns a path without the mark that the system adds after the file was replaced. The new file has the path without
/// it.
fn without_deleted_mark(path: PathBuf) -> PathBuf {
    let marked = path.as_os_str().as_bytes().strip_suffix(b" (deleted)").filter(|_| !path.exists());
    marked.map(OsStr::from_bytes).map(PathBuf::from).unwrap_or(path)
}

fn path_of(executable: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", executable.as_raw_fd())
}

impl Rehearsal {
    /// Returns the record that the child appended to the handover.
    ///
    /// # Errors
    ///
    /// Fails if there is none: the successor would read a configuration that was not rehearsed.
    pub fn rehearsed(&mut self) -> io::Result<Rehearsed> {
        let StateFile { file, bytes } = &mut self.state;
        file.seek(SeekFrom::Start(*bytes))?;
        let missing = |_| io::Error::other("its rehearsal has not returned the settings");
        Reader::new(file).take().map_err(missing)
    }

    /// Replaces this process by the rehearsed program. Returns only if that fails, and then nothing has changed.
    pub fn take_over(self, program: &Program, state: &StateFile, descriptors: &[RawFd]) -> io::Error {
        let prepare = || -> io::Result<Infallible> {
            let path = c_string(path_of(&self.executable).into())?;
            let arguments = program.arguments.iter().cloned().map(c_string);
            let arguments: Vec<CString> = arguments.collect::<io::Result<_>>()?;
            let environment = environment_with(state.file.as_raw_fd(), self.executable.as_raw_fd())?;
            keep_over_exec(state.file.as_raw_fd(), true)?;
            descriptors.iter().try_for_each(|fd| keep_over_exec(*fd, true))?;
            Ok(execve(&path, &arguments, &environment)?)
        };
        let Err(error) = prepare();
        for fd in descriptors {
            // The flag could be set a moment ago; if not, a child would inherit a socket for its short life.
            let _ = keep_over_exec(*fd, false);
        }
        error
    }

    /// Returns None while the child runs, Ok if it could take over, and else the reason of its failure. There is
    /// something to read if `is_readable`.
    pub fn verdict(&mut self, is_readable: bool, now: Time) -> Option<Result<(), String>> {
        let has_ended = is_readable && self.has_ended();
        if !has_ended && now < self.deadline {
            return None;
        }
        self.end();
        self.has_succeeded = has_ended && self.output.ends_with(READY);
        Some(match self.has_succeeded {
            true => Ok(()),
            false if has_ended => Err(reason_in(&self.output)),
            false => Err("it took too long".into()),
        })
    }

    /// Reads the child's output. Returns true at its end, or once it is long.
    fn has_ended(&mut self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match self.verdict.read(&mut bytes) {
                Ok(0) => return true,
                Ok(len) => self.output.push_str(&String::from_utf8_lossy(&bytes[..len])),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock || self.output.len() >= 4096,
            }
        }
    }

    /// Kills the child.
    pub fn end(&mut self) {
        // Its verdict is known, or it took too long; it may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the reason of a failed rehearsal from its output: its last line, or a panic's line with the next.
fn reason_in(output: &str) -> String {
    let lines: Vec<&str> = output.trim().lines().collect();
    match (lines.iter().position(|line| line.contains("panicked at")), lines.last()) {
        (_, None) => "it printed nothing".into(),
        (Some(panic), _) => lines[panic..].iter().take(2).copied().collect::<Vec<_>>().join(" "),
        (None, Some(last)) => last.to_string(),
    }
}

/// Takes ownership of a descriptor that the process had before it became this program.
#[allow(unsafe_code, reason = "a descriptor's number is all that outlives exec")]
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    keep_over_exec(fd, false)?;
    // SAFETY: the descriptor is open, as the previous call has shown. The handover names each descriptor once, and no
    // other code in this young process knows it, so it is owned once.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[allow(unsafe_code, reason = "a descriptor's number is all that outlives exec")]
fn keep_over_exec(fd: RawFd, keep: bool) -> io::Result<()> {
    if fd < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flag = if keep { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    // SAFETY: only a flag of the descriptor is set, and the call fails when there is no such descriptor.
    fcntl(unsafe { BorrowedFd::borrow_raw(fd) }, FcntlArg::F_SETFD(flag))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::reason_in;

    #[test]
    fn rehearsals_panic_is_reported_with_place_and_reason() {
        let panic = "thread 'main' (7) panicked at src/a.rs:1:2:\n7 is odd\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(reason_in(panic), "thread 'main' (7) panicked at src/a.rs:1:2: 7 is odd");
        assert_eq!(reason_in("one\nthe settings are wrong\n"), "the settings are wrong");
        assert_eq!(reason_in("\n"), "it printed nothing");
    }
}
