//! The worker's watch over its files: the files at their paths must be the open ones.

use super::Worker;
use crate::sqlite::Tables;
use crate::sqlite::file::Trouble;
use crate::sqlite::look::{Look, see};
use log::warn;

impl<T: Tables> Worker<T> {
    /// Compares the files at the paths with the open ones before a change: no other program may have changed them.
    pub(in crate::sqlite) fn look_before(&mut self) -> Result<(), Trouble> {
        let now = self.look()?;
        self.compare(&now, true)
    }

    /// Compares the files at the paths with the open ones after a change.
    pub(in crate::sqlite) fn look_after(&mut self) -> Result<(), Trouble> {
        self.look = self.look()?;
        Ok(())
    }

    /// Looks before a commit at the log, which SQLite would go on to write behind its former end. All files are looked at
    /// after the commit, which does not write to the file.
    pub(super) fn look_before_commit(&self) -> Result<(), Trouble> {
        let log = see(&self.place.beside("-wal")).map_err(Trouble::Lost)?;
        self.compare(&Look { log, ..self.look }, true)
    }

    /// Looks after a commit at the file and its log: the next start will find them.
    pub(super) fn look_after_commit(&mut self) -> Result<(), Trouble> {
        let now = self.look()?;
        self.compare(&Look { file: now.file, ..self.look }, true)?;
        self.look = now;
        Ok(())
    }

    fn look(&mut self) -> Result<Look, Trouble> {
        self.try_until_done(Worker::keep_lock)?;
        let now = self.place.look().map_err(Trouble::Lost)?;
        self.compare(&now, false).map(|()| now)
    }

    /// Takes the lock of the file anew if the file of the lock was removed. Another daemon may have taken it meanwhile:
    /// then nothing is written as long as that daemon holds it.
    fn keep_lock(&mut self) -> Result<(), Trouble> {
        if self.place.is_kept_by(self.lock.as_ref()) {
            return Ok(());
        }
        match self.place.lock(T::NAME) {
            Ok(lock) => {
                warn!("{} was removed or replaced, and is there again", self.place.beside("-lock").display());
                self.lock = Some(lock);
                Ok(())
            }
            // The file is written anew, and its directory is created before.
            Err(_) if !self.place.path.exists() => Ok(()),
            Err(sentence) => Err(Trouble::Passing(sentence)),
        }
    }

    /// Compares the open files with the files at their paths, and their lengths with `same_length`.
    fn compare(&self, now: &Look, same_length: bool) -> Result<(), Trouble> {
        let why = match (self.look.replaced(now), self.look.resized(now)) {
            (Some(which), _) => format!("{which} was replaced by another"),
            (None, Some(which)) if same_length => format!("{which} was cut, or written to by another program"),
            _ => return Ok(()),
        };
        Err(Trouble::Lost(why))
    }
}
