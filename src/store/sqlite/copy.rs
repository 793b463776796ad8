//! Copying of the file while it is used: some pages at a time, with commits between.

use super::Tables;
use super::file::FileTrouble;
use super::statements::Statements;
use super::worker::{HeldFile, Stop, Worker, WorkerEvent, WorkerOrder};
use nix::sys::statvfs::statvfs;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of pages that are copied before the next commit: 2 MiB, in about the time of a commit.
const PAGES_AT_A_TIME: i32 = 512;

impl<T: Tables> Worker<T> {
    /// Copies all that is committed to a new file, and reports the result.
    pub(super) fn copy(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_, T>,
        held: &mut HeldFile,
        path: &Path,
    ) -> Result<(), Stop> {
        let part = part_of(path);
        let target = match begin(path, &part, held.look.bytes()) {
            Ok(target) => target,
            Err(sentence) => {
                self.report(WorkerEvent::Copied(Err(sentence)));
                return Ok(());
            }
        };
        let copied = self.copy_pages(connection, statements, held, target);
        let (result, stop) = match copied {
            Ok(result) => (result.and_then(|()| finish(path, &part)), None),
            Err(stop) => (Err("the store has failed".into()), Some(stop)),
        };
        if result.is_err() {
            // A remaining part of the copy does no harm.
            let _ = fs::remove_file(&part);
        }
        self.report(WorkerEvent::Copied(result));
        stop.map_or(Ok(()), Err)
    }

    fn copy_pages(
        &mut self,
        connection: &Connection,
        statements: &mut Statements<'_, T>,
        held: &mut HeldFile,
        mut target: Connection,
    ) -> Result<Result<(), String>, Stop> {
        let backup = match Backup::new(connection, &mut target) {
            Ok(backup) => backup,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let mut others = Vec::new();
        let result = loop {
            match backup.step(PAGES_AT_A_TIME) {
                Ok(StepResult::Done) => break Ok(()),
                Ok(StepResult::More) => {}
                Ok(_) => break Err("the file is locked".into()),
                Err(error) => break Err(error.to_string()),
            }
            // One batch at most, so that the copy comes to its end; the copy gets this commit, too.
            match self.next(Some(Duration::ZERO))? {
                Some(WorkerOrder::Commit(batch)) => self.commit(statements, held, batch)?,
                other => others.extend(other),
            }
        };
        self.later.extend(others);
        Ok(result)
    }
}

fn part_of(path: &Path) -> PathBuf {
    let mut part = OsString::from(path);
    part.push(".part");
    part.into()
}

/// Creates the file for a copy of this many bytes.
fn begin(path: &Path, part: &Path, bytes: u64) -> Result<Connection, String> {
    if path.symlink_metadata().is_ok() {
        return Err(format!("{} is there already", path.display()));
    }
    // The store itself must be able to grow, or to be written anew, beside the copy.
    let free = free_bytes(path).map_err(|error| format!("{} cannot be made: {error}", part.display()))?;
    if free < bytes.saturating_mul(2) {
        return Err(format!("the copy takes {bytes} bytes and must leave as many free, and {free} are free"));
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    made.map_err(|error| format!("{} cannot be made: {error}", part.display()))?;
    let opened = Connection::open_with_flags(part, OpenFlags::SQLITE_OPEN_READ_WRITE);
    opened.map_err(|error| FileTrouble::from(error).sentence())
}

/// Returns the free bytes of the file system for files beside this one.
#[allow(clippy::useless_conversion, reason = "the numbers are shorter on machines of 32 bits")]
pub(super) fn free_bytes(path: &Path) -> nix::Result<u64> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let free = statvfs(directory)?;
    Ok(u64::from(free.blocks_available()).saturating_mul(u64::from(free.fragment_size())))
}

/// Gives the copy its name, once it is on the disk. Returns its bytes.
fn finish(path: &Path, part: &Path) -> Result<u64, String> {
    let finish = || {
        let file = File::open(part)?;
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        // Unlike a renaming, this never replaces a file.
        fs::hard_link(part, path)?;
        fs::remove_file(part)?;
        std::io::Result::Ok(bytes)
    };
    finish().map_err(|error| error.to_string())
}
