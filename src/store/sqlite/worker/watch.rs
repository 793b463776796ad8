//! The worker's watch over its files: the files at their paths must be the open ones.

use super::{FIRST_PAUSE, HeldFile, Stop, Worker, WorkerEvent};
use crate::sqlite::Tables;
use crate::sqlite::look::Look;
use log::warn;

impl<T: Tables> Worker<T> {
    /// Compares the files at the paths with the open ones before a change: no other program may have changed them.
    pub(in crate::sqlite) fn look_before(&mut self, held: &mut HeldFile) -> Result<(), Stop> {
        let now = self.look(held)?;
        if let Some(which) = held.look.resized(&now) {
            return Err(Stop::Lost(format!("{which} was cut, or written to by another program"), None));
        }
        Ok(())
    }

    /// Compares the files at the paths with the open ones after a change.
    pub(in crate::sqlite) fn look_after(&mut self, held: &mut HeldFile) -> Result<(), Stop> {
        held.look = self.look(held)?;
        Ok(())
    }

    fn look(&mut self, held: &mut HeldFile) -> Result<Look, Stop> {
        self.keep_lock(held)?;
        let now = self.place.look().map_err(|sentence| Stop::Lost(sentence, None))?;
        match held.look.replaced(&now) {
            Some(which) => Err(Stop::Lost(format!("{which} was replaced by another"), None)),
            None => Ok(now),
        }
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
