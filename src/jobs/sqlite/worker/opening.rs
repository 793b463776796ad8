//! Opening of a file that another process had.

use super::{FIRST_PAUSE, HeldFile, Stop, Worker, WorkerEvent};
use crate::sqlite::file::{DatabaseFile, FileTrouble, Lock, Opened};
use crate::store::{HandedOver, Mark};
use log::warn;
use rusqlite::Connection;

impl Worker {
    /// Opens the file of a service that has everything. If the file has something else, it is kept elsewhere.
    pub(super) fn go_on(&mut self, handed_over: &HandedOver) -> Result<(HeldFile, Connection), Stop> {
        let HandedOver { mark, is_whole, queue, .. } = *handed_over;
        let mut pause = FIRST_PAUSE;
        loop {
            let (mut held, opened) = self.open_in_time(DatabaseFile::open)?;
            let Opened { connection, mark: found, queue: found_queue, .. } = opened;
            if is_whole && found.is_after(mark) && queue.is_none_or(|queue| queue == found_queue) {
                (self.mark, self.queue) = (found, Some(found_queue));
                self.tell_works(&held);
                return Ok((held, connection));
            }
            // What is written anew is what the service has, up to its last batch.
            self.mark = Mark { opening: found.opening.max(mark.opening), ..mark };
            self.queue = queue;
            match self.make_room(connection, found, found_queue) {
                Ok(connection) => {
                    let connection = self.write_anew(&mut held, connection, None)?;
                    return Ok((held, connection));
                }
                Err(trouble) => {
                    self.tell(WorkerEvent::Fails(trouble.sentence()));
                    self.rest(&mut pause)?;
                }
            }
        }
    }

    /// Takes the right to the file and opens it, however long that takes.
    pub(in crate::sqlite) fn open_in_time(
        &mut self,
        open: fn(&DatabaseFile, &Lock) -> Result<Opened, FileTrouble>,
    ) -> Result<(HeldFile, Opened), Stop> {
        let mut pause = FIRST_PAUSE;
        loop {
            let opened = self.place.lock().and_then(|lock| match open(&self.place, &lock) {
                Ok(opened) => Ok((HeldFile { lock, look: opened.look }, opened)),
                Err(trouble) => Err(trouble.sentence()),
            });
            match opened {
                Ok(opened) => return Ok(opened),
                Err(sentence) => {
                    self.tell(WorkerEvent::Fails(sentence));
                    self.rest(&mut pause)?;
                }
            }
        }
    }

    /// Sees to it that nothing is lost of a file that is not what it should be.
    fn make_room(&self, connection: Connection, found: Mark, queue: u128) -> Result<Option<Connection>, FileTrouble> {
        if found.is_of_new_file() {
            return Ok(Some(connection));
        }
        let aside = self.place.put_aside(connection, found)?;
        let path = self.place.path.display();
        let own = self.queue.map_or("another queue".into(), |own| format!("the queue {own:032x}"));
        warn!(
            "{path} had other jobs than this daemon: the queue {queue:032x}, which is in {} now; this daemon has {own}",
            aside.display()
        );
        Ok(None)
    }
}
