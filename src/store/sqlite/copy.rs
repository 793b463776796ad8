//! Copying of the file while it is used: some pages at a time, with commits between.

use super::Tables;
use super::file::{Trouble, with_suffix};
use super::statements::Statements;
use super::worker::{Worker, WorkerEvent, WorkerOrder};
use nix::sys::statvfs::statvfs;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Number of pages that are copied before the next commit: 2 MiB, in about the time of a commit.
const PAGES_AT_A_TIME: i32 = 512;

impl<T: Tables> Worker<T> {
    /// Copies all that is committed to a new file, and reports the result.
    pub(super) fn copy(&mut self, statements: &mut Statements<'_, T>, path: &Path) -> Result<(), Trouble> {
        let part = with_suffix(path, ".part");
        let copied = begin(path, &part, self.look.bytes()).and_then(|target| {
            let copied = self.copy_pages(statements, target);
            let copied = copied.and_then(|()| finish(path, &part).map_err(Trouble::from));
            if copied.is_err() {
                // A remaining part of the copy does no harm.
                let _ = fs::remove_file(&part);
            }
            copied
        });
        let (result, ended) = match copied {
            Ok(bytes) => (Ok(bytes), Ok(())),
            Err(Trouble::Passing(sentence)) => (Err(sentence), Ok(())),
            Err(trouble) => (Err("the store has failed".into()), Err(trouble)),
        };
        self.report(WorkerEvent::Copied(result));
        ended
    }

    /// Copies all pages. Faults of the copy are temporary, and no fault of the store.
    fn copy_pages(&mut self, statements: &mut Statements<'_, T>, mut target: Connection) -> Result<(), Trouble> {
        let fault = |error: rusqlite::Error| Trouble::Passing(error.to_string());
        let backup = Backup::new(statements.connection, &mut target).map_err(fault)?;
        let mut others = Vec::new();
        let result = loop {
            match backup.step(PAGES_AT_A_TIME) {
                Ok(StepResult::Done) => break Ok(()),
                Ok(StepResult::More) => {}
                Ok(_) => break Err(Trouble::Passing("the file is locked".into())),
                Err(error) => break Err(fault(error)),
            }
            // One batch at most, so that the copy comes to its end; the copy gets this commit, too.
            match self.next(Some(Duration::ZERO))? {
                Some(WorkerOrder::Commit(batch)) => self.commit(statements, batch)?,
                other => others.extend(other),
            }
        };
        self.later.extend(others);
        result
    }
}

/// Creates the file for a copy of this many bytes.
fn begin(path: &Path, part: &Path, bytes: u64) -> Result<Connection, Trouble> {
    let refuse = |sentence: String| Err(Trouble::Passing(sentence));
    if path.symlink_metadata().is_ok() {
        return refuse(format!("{} is there already", path.display()));
    }
    let not_made = |error: &dyn Display| Trouble::Passing(format!("{} cannot be made: {error}", part.display()));
    // The store itself must be able to grow, or to be written anew, beside the copy.
    let free = free_bytes(path).map_err(|error| not_made(&error))?;
    if free < bytes.saturating_mul(2) {
        return refuse(format!("the copy takes {bytes} bytes and must leave as many free, and {free} are free"));
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    made.map_err(|error| not_made(&error))?;
    let opened = Connection::open_with_flags(part, OpenFlags::SQLITE_OPEN_READ_WRITE);
    opened.map_err(|error| Trouble::from(error).passing())
}

/// Returns the free bytes of the file system for files beside this one.
#[allow(clippy::useless_conversion, reason = "the numbers are shorter on machines of 32 bits")]
fn free_bytes(path: &Path) -> nix::Result<u64> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = statvfs(directory)?;
    Ok(u64::from(free.blocks_available()).saturating_mul(u64::from(free.fragment_size())))
}

/// Gives the copy its name, once it is on the disk. Returns its bytes.
fn finish(path: &Path, part: &Path) -> io::Result<u64> {
    let file = File::open(part)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    // Unlike a renaming, this never replaces a file.
    fs::hard_link(part, path)?;
    fs::remove_file(part)?;
    Ok(bytes)
}
