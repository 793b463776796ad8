//! Files in the place of the store's file that are not the daemon's: they get another name beside it.

use super::file::{DatabaseFile, Trouble, with_suffix};
use super::look::{FileId, Look};
use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};

/// Most files that are kept aside.
const MOST_ASIDE: u32 = 1000;

impl DatabaseFile {
    /// Moves the file out of the way, and returns its new path.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be moved.
    pub fn put_aside(&self, connection: Connection) -> Result<PathBuf, Trouble> {
        // Closing the connection brings the log into the file.
        connection.close().map_err(|(_, error)| error)?;
        if self.beside("-wal").exists() {
            return Err(Trouble::Passing("its log is not in it".into()));
        }
        let aside = self.free_name()?;
        fs::rename(&self.path, &aside)?;
        self.sync_directory()?;
        Ok(aside)
    }

    /// Puts aside files at the paths of the file and its log that are neither.
    pub(super) fn put_strangers_aside(&self, ours: &Look) -> Result<Option<PathBuf>, Trouble> {
        let log = self.beside("-wal");
        let is_strange = |path: &Path, id| FileId::at(path).map(|found| found.is_some_and(|found| found != id));
        let (file_is, log_is) = (is_strange(&self.path, ours.file.id)?, is_strange(&log, ours.log.id)?);
        if !file_is && !log_is {
            return Ok(None);
        }
        let aside = self.free_name()?;
        if file_is {
            fs::rename(&self.path, &aside)?;
        }
        if log_is {
            // The log keeps its name beside its file.
            fs::rename(&log, with_suffix(&aside, "-wal"))?;
        }
        self.sync_directory()?;
        Ok(Some(aside))
    }

    /// Returns a path beside the file that is free, as is that of its log.
    pub(super) fn free_name(&self) -> Result<PathBuf, Trouble> {
        let names = (1..=MOST_ASIDE).map(|number| match number {
            1 => self.beside("-found"),
            _ => self.beside(&format!("-found-{number}")),
        });
        let is_free =
            |path: &PathBuf| [path, &with_suffix(path, "-wal")].iter().all(|path| path.symlink_metadata().is_err());
        let free = names.into_iter().find(is_free);
        free.ok_or_else(|| Trouble::Passing(format!("there are {MOST_ASIDE} files -found beside it")))
    }
}
