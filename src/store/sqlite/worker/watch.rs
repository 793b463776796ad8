//! The worker's watch over its files: the files at their paths must be the open ones.

use super::{FIRST_PAUSE, HeldFile, Stop, Worker, WorkerEvent};
use crate::sqlite::Tables;
use crate::sqlite::look::Look;
use log::warn;

impl<T: Tables> Worker<T> {
    /// Compares the files at the paths with the open ones before a change: no other program may have changed them.
    pub(in crate::sqlite) fn look_before(&mut self, held: &mut HeldFile) -> Result<(), Stop> {
        let now = self.look(held)?;
        held.compare(now, true).map(drop)
    }

    /// Compares the files at the paths with the open ones after a change.
    pub(in crate::sqlite) fn look_after(&mut self, held: &mut HeldFile) -> Result<(), Stop> {
        held.look = self.look(held)?;
        Ok(())
    }

    /// Looks before a commit at the log, which SQLite would go on to write behind its former end. All files are looked at
    /// after the commit, which does not write to the file.
    pub(super) fn look_before_commit(&self, held: &HeldFile) -> Result<(), Stop> {
        let log = self.place.look_at_log().map_err(|sentence| Stop::Lost(sentence, None))?;
        held.compare(Look { log, ..held.look }, true).map(drop)
    }

    /// Looks after a commit at the file and its log: the next start will find them.
    pub(super) fn look_after_commit(&mut self, held: &mut HeldFile) -> Result<(), Stop> {
        let now = self.look(held)?;
        held.compare(Look { file: now.file, ..held.look }, true)?;
        held.look = now;
        Ok(())
    }

    fn look(&mut self, held: &mut HeldFile) -> Result<Look, Stop> {
        self.keep_lock(held)?;
        let now = self.place.look().map_err(|sentence| Stop::Lost(sentence, None))?;
        held.compare(now, false)
    }

    /// Takes the lock of the file anew if the file of the lock was removed. Another daemon may have taken it meanwhile:
    /// then nothing is written as long as that daemon holds it.
    fn keep_lock(&mut self, held: &mut HeldFile) -> Result<(), Stop> {
        let mut pause = FIRST_PAUSE;
        while !self.place.is_kept_by(&held.lock) {
            match self.place.lock(T::NAME) {
                Ok(lock) => {
                    warn!("{} was removed or replaced, and is there again", self.place.beside("-lock").display());
                    held.lock = lock;
                }
                // The file is written anew, and its directory is created before.
                Err(_) if !self.place.path.exists() => return Ok(()),
                Err(sentence) => {
                    self.report(WorkerEvent::Fails(sentence));
                    self.rest(&mut pause)?;
                }
            }
        }
        Ok(())
    }
}

impl HeldFile {
    /// Compares the open files with the files at their paths, which it returns, and their lengths with `same_length`.
    fn compare(&self, now: Look, same_length: bool) -> Result<Look, Stop> {
        let why = match (self.look.replaced(&now), self.look.resized(&now)) {
            (Some(which), _) => format!("{which} was replaced by another"),
            (None, Some(which)) if same_length => format!("{which} was cut, or written to by another program"),
            _ => return Ok(now),
        };
        Err(Stop::Lost(why, None))
    }
}
