//! Input of commands: the body of a job, or jobs one at a time.

use super::batch::write_line;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use poolcounter_client::ReservedJob;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// Returns a file with the body of a job, at its start. Unlike a pipe, it needs no writer.
pub fn file_of(body: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("job", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(body)?;
    file.rewind()?;
    Ok(file)
}

/// Pipe to a command, with its unsent bytes.
pub struct CommandInput {
    pipe: PipeWriter,
    unsent: Vec<u8>,
    /// True if no more jobs follow.
    pub is_last: bool,
}

impl CommandInput {
    /// Returns the command's end of the pipe, and the input.
    pub fn new() -> io::Result<(PipeReader, CommandInput)> {
        let (reader, pipe) = io::pipe()?;
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((reader, CommandInput { pipe, unsent: Vec::new(), is_last: false }))
    }

    /// Adds the line of a job.
    pub fn add(&mut self, job: &ReservedJob) {
        write_line(job.id, &job.body, &mut self.unsent);
    }

    pub fn has_more(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Writes as much as the pipe takes. If the command has closed its end, its exit decides about the job.
    pub fn write(&mut self) {
        while !self.unsent.is_empty() {
            match self.pipe.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

impl AsFd for CommandInput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
