//! Opening of the file of the previous process.

use super::{FIRST_PAUSE, HeldFile, Stop, Worker, WorkerEvent};
use crate::contract::{HandedOver, Mark};
use crate::sqlite::Tables;
use crate::sqlite::file::{DatabaseFile, FileTrouble, Lock, Opened};
use log::warn;
use rusqlite::Connection;
use std::time::Instant;

impl DatabaseFile {
    /// Locks the place, and opens the file to be read.
    ///
    /// # Errors
    ///
    /// One sentence with the reason.
    pub fn open_locked<T: Tables>(&self) -> Result<(Lock, Opened), String> {
        let lock = self.lock(T::NAME)?;
        let opened = self.open_to_read(&lock, &T::SCHEMA).map_err(FileTrouble::sentence)?;
        Ok((lock, opened))
    }
}

impl<T: Tables> Worker<T> {
    /// Opens the file of a service that has everything. If the file has other contents, it is put aside.
    pub(super) fn go_on(
        &mut self,
        handed_over: &HandedOver,
        mut early: Option<(Lock, Opened)>,
    ) -> Result<(HeldFile, Connection), Stop> {
        let HandedOver { mark, is_whole, queue, .. } = *handed_over;
        let mut pause = FIRST_PAUSE;
        loop {
            let (mut held, opened) = self.open_in_time(early.take(), DatabaseFile::count::<T>)?;
            let Opened { connection, mark: found, queue: found_queue, .. } = opened;
            if is_whole && found.is_after(mark) && queue.is_none_or(|queue| queue == found_queue) {
                (self.mark, self.queue) = (found, Some(found_queue));
                self.report_works(&held);
                return Ok((held, connection));
            }
            // The new file has the service's data, up to its last batch.
            self.mark = Mark { opening: found.opening.max(mark.opening), ..mark };
            self.queue = queue;
            match self.make_room(connection, found, found_queue) {
                Ok(connection) => {
                    let connection = self.write_anew(&mut held, connection, None)?;
                    return Ok((held, connection));
                }
                Err(trouble) => {
                    self.report(WorkerEvent::Fails(trouble.sentence()));
                    self.rest(&mut pause)?;
                }
            }
        }
    }

    /// Locks the file and opens it, unless it is open already, and begins with it. Faults are tried again until it
    /// succeeds.
    pub(in crate::sqlite) fn open_in_time(
        &mut self,
        mut early: Option<(Lock, Opened)>,
        begin: fn(&DatabaseFile, Opened) -> Result<Opened, FileTrouble>,
    ) -> Result<(HeldFile, Opened), Stop> {
        let mut pause = FIRST_PAUSE;
        loop {
            let opened = early.take().map_or_else(|| self.place.open_locked::<T>(), Ok).and_then(|(lock, opened)| {
                let opened = begin(&self.place, opened).map_err(FileTrouble::sentence)?;
                Ok((HeldFile { lock, look: opened.look, lock_seen: Instant::now() }, opened))
            });
            match opened {
                Ok(opened) => return Ok(opened),
                Err(sentence) => {
                    self.report(WorkerEvent::Fails(sentence));
                    self.rest(&mut pause)?;
                }
            }
        }
    }

    /// Puts aside a file that is not the expected one, so that its contents are not lost.
    fn make_room(&self, connection: Connection, found: Mark, queue: u128) -> Result<Option<Connection>, FileTrouble> {
        if found.is_of_new_file() {
            return Ok(Some(connection));
        }
        let aside = self.place.put_aside(connection)?;
        let path = self.place.path.display();
        let own = self.queue.map_or("another queue".into(), |own| format!("the queue {own:032x}"));
        warn!(
            "{path} had other {} than this daemon: the queue {queue:032x}, which is in {} now; this daemon has {own}",
            T::NAME,
            aside.display()
        );
        Ok(None)
    }
}
