//! The upgrade that loses no lock: the process writes down everything that it knows, and replaces itself by the program on
//! disk, which reads it and goes on, under the same pid and with the same sockets.
//!
//! Before that, the new program is run as a child that only tries to read such a file. The daemon serves on meanwhile, and
//! for good if the child fails: a missing, broken or incompatible program costs nothing but a line in the log.

use super::clock::Clock;
use super::connections::Saved;
use super::listener::SavedListener;
use super::signals::Signals;
use crate::id::ConnId;
use crate::registry::Services;
use mio::net::UnixStream;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::execve;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, process};

/// The file begins with this and with [`VERSION`], so that no other file is taken for one.
const MAGIC: [u8; 12] = *b"poolcounter\0";
/// The version of everything that is saved. Whoever changes one of the types behind [`Handover`] raises it.
const VERSION: u32 = 5;
/// Names the file's descriptor to the program that takes over, after the pid, which exec leaves as it is.
const VARIABLE: &str = "POOLCOUNTER_HANDOVER";
/// What the program that takes over must not find: what was left for this one. The sockets of a supervisor are in the
/// handover like all others.
const SPENT: [&str; 4] = [VARIABLE, "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
/// What the rehearsal prints when it could take over.
const READY: &str = "can take over\n";

/// Everything that the process knows.
#[derive(Serialize, Deserialize)]
pub struct Handover {
    pub(super) clock: Clock,
    pub(super) ports: Vec<SavedPort>,
    pub(super) sockets: Vec<SavedSocket>,
    pub(super) connections: Saved,
}

#[derive(Serialize, Deserialize)]
pub struct SavedPort {
    /// The name of the service that it is for.
    pub service: String,
    pub listener: SavedListener,
}

/// The socket of a connection.
#[derive(Serialize, Deserialize)]
pub struct SavedSocket {
    pub id: ConnId,
    pub fd: RawFd,
    pub is_unix: bool,
}

/// The program on disk, with the arguments that this process was started with.
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// The child that tries to read a handover.
pub struct Rehearsal {
    child: Child,
    verdict: UnixStream,
    heard: String,
}

impl Handover {
    /// Writes it to a file in memory.
    pub fn write(&self) -> io::Result<File> {
        let header = [&MAGIC[..], &VERSION.to_be_bytes()].concat();
        let bytes = postcard::to_extend(self, header).map_err(io::Error::other)?;
        let mut file = File::from(memfd_create(c"poolcounter-handover", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&bytes)?;
        file.rewind()?;
        Ok(file)
    }

    /// Reads it.
    pub fn read(mut file: impl Read) -> Result<Handover, String> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| format!("the handover cannot be read: {error}"))?;
        let body = bytes.strip_prefix(&MAGIC).ok_or("this is no handover")?;
        let (version, body) = body.split_first_chunk().ok_or("the handover is cut off")?;
        match u32::from_be_bytes(*version) {
            VERSION => postcard::from_bytes(body).map_err(|error| format!("the handover is damaged: {error}")),
            other => Err(format!("the handover has version {other}, and this program reads version {VERSION}")),
        }
    }

    /// The handover that a process of the same pid left for this one, if there is one.
    pub fn inherited() -> Option<Result<Handover, String>> {
        let value = env::var(VARIABLE).ok()?;
        let (pid, fd) = value.split_once(':')?;
        // Of another pid: the variable has outlived its process, and the number means nothing here.
        let fd = fd.parse().ok().filter(|_| pid == process::id().to_string())?;
        let file = adopt(fd).map_err(|error| format!("the handover cannot be opened: {error}"));
        Some(file.and_then(|file| Handover::read(File::from(file))))
    }

    fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let ports = self.ports.iter().map(|port| port.listener.fd);
        ports.chain(self.sockets.iter().map(|socket| socket.fd))
    }
}

/// Tells, as the child of a rehearsal, whether this program could take over what is on the standard input.
///
/// # Errors
///
/// One sentence that says why it could not.
pub fn check(services: Services) -> Result<(), String> {
    let handover = Handover::read(io::stdin().lock())?;
    handover.connections.rehearse(services, handover.clock.now()).map_err(|error| error.to_string())?;
    print!("{READY}");
    Ok(())
}

impl Program {
    /// This program, wherever its file is. What is there when the time comes is what takes over.
    ///
    /// If it was called by a path that is a link, that path is kept: the link may lead to another file by then, and whoever
    /// looks for the process by the link's name finds it afterwards.
    pub fn current() -> io::Result<Program> {
        let (file, arguments) = (env::current_exe()?, env::args_os().collect::<Vec<_>>());
        let called = arguments.first().map(PathBuf::from).filter(|path| path.is_absolute());
        let link = called.filter(|path| path.canonicalize().is_ok_and(|target| target == file));
        Ok(Program { path: link.unwrap_or(file), arguments })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has the program try to read the handover, as a child.
    pub fn rehearse(&self, handover: &Handover) -> io::Result<Rehearsal> {
        let (verdict, theirs) = std::os::unix::net::UnixStream::pair()?;
        verdict.set_nonblocking(true)?;
        let child = Command::new(&self.path)
            .args(self.arguments.iter().skip(1))
            .arg("--check-handover")
            .stdin(Stdio::from(handover.write()?))
            .stderr(Stdio::from(OwnedFd::from(theirs.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        Ok(Rehearsal { child, verdict: UnixStream::from_std(verdict), heard: String::new() })
    }

    /// Replaces this process. Returns only if that fails, and then nothing has changed.
    pub fn take_over(&self, handover: &Handover) -> io::Error {
        let prepare = || -> io::Result<Infallible> {
            let file = handover.write()?;
            let (path, arguments) = (c_string(self.path.clone().into())?, self.arguments.iter().cloned().map(c_string));
            let arguments: Vec<CString> = arguments.collect::<io::Result<_>>()?;
            let environment = environment_with(file.as_raw_fd())?;
            // A signal that comes before the new program handles it must wait, or it would end the process.
            Signals::hold();
            keep_over_exec(file.as_raw_fd(), true)?;
            handover.descriptors().try_for_each(|fd| keep_over_exec(fd, true))?;
            Ok(execve(&path, &arguments, &environment)?)
        };
        let Err(error) = prepare();
        for fd in handover.descriptors() {
            // It was possible to set the flag a moment ago; if not, a child would inherit a socket for its short life.
            let _ = keep_over_exec(fd, false);
        }
        Signals::release();
        error
    }
}

impl Rehearsal {
    /// What the loop polls for the verdict.
    pub fn source(&mut self) -> &mut UnixStream {
        &mut self.verdict
    }

    /// Listens to the child: nothing yet, that it could take over, or why not.
    pub fn verdict(&mut self) -> Option<Result<(), String>> {
        let mut bytes = [0; 1024];
        loop {
            match self.verdict.read(&mut bytes) {
                Ok(0) => break,
                Ok(len) => self.heard.push_str(&String::from_utf8_lossy(&bytes[..len])),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.heard.len() < 4096 => return None,
                Err(_) => break,
            }
        }
        self.end();
        if self.heard.ends_with(READY) {
            return Some(Ok(()));
        }
        Some(Err(match self.heard.trim() {
            "" => "it said nothing".into(),
            text => text.lines().last().unwrap_or_default().to_string(),
        }))
    }

    /// Ends the child, whatever it is at.
    pub fn end(&mut self) {
        // It has said all that matters, or too little in too long a time; it may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes a descriptor over that the process had before it became this program.
#[allow(unsafe_code, reason = "a descriptor's number is all that outlives exec")]
pub fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    keep_over_exec(fd, false)?;
    // SAFETY: the descriptor is open, as the call before has shown. The handover names each descriptor once, and nothing
    // else in this young process knows of it, so it is owned once.
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

fn environment_with(fd: RawFd) -> io::Result<Vec<CString>> {
    let others = env::vars_os().filter(|(name, _)| !SPENT.iter().any(|spent| name == spent));
    let ours = (OsString::from(VARIABLE), OsString::from(format!("{}:{fd}", process::id())));
    let pair = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        c_string(name)
    };
    others.chain([ours]).map(pair).collect()
}

fn c_string(text: OsString) -> io::Result<CString> {
    Ok(CString::new(text.into_vec())?)
}
