//! Plan shared by the slots of a runner, and signals to them.

use super::rests::Rests;
use super::run_options::RunSettings;
use super::tally::RunnerTally;
use crate::process::Launcher;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

/// Plan of a runner, shared by its slots.
pub struct Plan<'a> {
    pub settings: &'a RunSettings,
    /// Watched patterns, each with its weight if one was given.
    pub watches: Vec<(&'a str, Option<u16>)>,
    /// The command and its arguments.
    pub command: &'a [OsString],
    pub launcher: Launcher,
    /// Name of the runner.
    pub name: String,
    pub tally: RunnerTally,
    pub rests: Rests,
}

/// Progress of the end of a runner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ending {
    /// Not ending.
    No,
    /// No more jobs are reserved; running jobs may finish.
    Finish,
    /// Running jobs are released.
    GiveBack,
    /// Running commands are killed.
    Kill,
}

/// Signals to the thread of a slot from the main thread.
pub struct SlotSignals {
    ending: Mutex<Ending>,
    /// True if the slot has a command, so that ends of children concern it.
    pub is_running: AtomicBool,
    /// Rings after the end of a command, or at the next step of the end.
    pub bell: Bell,
}

/// Descriptor that another thread makes readable.
pub struct Bell {
    reader: PipeReader,
    writer: PipeWriter,
}

impl SlotSignals {
    pub fn new() -> io::Result<SlotSignals> {
        Ok(SlotSignals { ending: Mutex::new(Ending::No), is_running: AtomicBool::new(false), bell: Bell::new()? })
    }

    pub fn go_to(&self, ending: Ending) {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = ending;
        self.bell.ring();
    }

    /// Returns the progress of the end.
    pub fn ending(&self) -> Ending {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell {
    pub fn new() -> io::Result<Bell> {
        let (reader, writer) = io::pipe()?;
        fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Bell { reader, writer })
    }

    pub fn ring(&self) {
        // The pipe is full only if it is readable already.
        let _ = (&self.writer).write(&[1]);
    }

    /// Silences the bell until it is rung again.
    pub fn silence(&self) {
        let _ = (&self.reader).read(&mut [0; 512]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
