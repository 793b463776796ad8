//! The worker's watch over its files: what stands at their paths is what is open.

use super::{FIRST_PAUSE, HeldFile, Stop, Worker, WorkerEvent};
use crate::sqlite::look::Look;
use log::warn;

impl Worker {
    /// Compares what stands at the paths with what is open, before that is changed: nobody else has changed it.
    pub(in crate::sqlite) fn look_before(&mut self, held: &mut HeldFile) -> Result<(), Stop> {
        let now = self.look(held)?;
        if let Some(which) = held.look.resized(&now) {
            return Err(Stop::Lost(format!("{which} was cut, or written to by another program"), None));
        }
        Ok(())
    }

    /// Compares what stands at the paths with what is open, after that was changed.
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

    /// Takes the right to the file anew if what gives it is not there any more. Another daemon may have got it meanwhile: then
    /// nothing is written as long as that has it.
    fn keep_lock(&mut self, held: &mut HeldFile) -> Result<(), Stop> {
        let mut pause = FIRST_PAUSE;
        while !self.place.is_kept_by(&held.lock) {
            match self.place.lock() {
                Ok(lock) => {
                    warn!("{} was removed or replaced, and is there again", self.place.beside("-lock").display());
                    held.lock = lock;
                }
                // The file is written anew, and its directory before it.
                Err(_) if !self.place.path.exists() => return Ok(()),
                Err(sentence) => {
                    self.tell(WorkerEvent::Fails(sentence));
                    self.rest(&mut pause)?;
                }
            }
        }
        Ok(())
    }
}
