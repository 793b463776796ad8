//! Opening of the file of the previous process.

use super::{Begin, FIRST_PAUSE, HeldFile, Stop, Worker, WorkerEvent};
use crate::contract::{HandedOver, Mark};
use crate::sqlite::Tables;
use crate::sqlite::file::{DatabaseFile, FileTrouble, Lock, Opened, abandon};
use crate::sqlite::schema::QueueId;
use log::warn;
use rusqlite::Connection;

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
    /// Opens the file, and reads it if the service needs that; None if it cannot be read, and is left as it is. If the
    /// service has everything, and the file has other contents, they are put aside, and everything is written anew.
    pub(super) fn begin(&mut self, begin: Begin) -> Result<Option<(HeldFile, Connection)>, Stop> {
        let Begin { mut early, expected, reads } = begin;
        let mut pause = FIRST_PAUSE;
        loop {
            let (mut held, opened) = self.open_in_time(early.take())?;
            let Opened { connection, mark: found, queue, .. } = opened;
            let other = expected.as_ref().filter(|expected| !expected.is_of(found, queue));
            if let Some(HandedOver { mark, .. }) = other.filter(|_| reads) {
                let is_not = "it is not the file of the process before";
                self.report(WorkerEvent::Unreadable(format!("{is_not}: {found} {queue:032x}, and not {mark}")));
                abandon(connection);
                return Ok(None);
            }
            (self.mark, self.queue) = (found, Some(queue));
            self.uncounted = Some(if reads && expected.is_none() { QueueId::Drawn } else { QueueId::Kept });
            if reads {
                return Ok(self.read(connection, &mut held)?.map(|connection| (held, connection)));
            }
            let Some(expected) = other.or(expected.as_ref().filter(|expected| !expected.is_whole)) else {
                return Ok(Some((held, connection)));
            };
            // The new file has the service's data, up to its last batch.
            self.mark = Mark { opening: found.opening.max(expected.mark.opening), ..expected.mark };
            (self.queue, self.uncounted) = (expected.queue, None);
            match self.make_room(connection, found, queue) {
                Ok(connection) => {
                    let connection = self.write_anew(&mut held, connection, None)?;
                    return Ok(Some((held, connection)));
                }
                Err(trouble) => {
                    self.report(WorkerEvent::Fails(trouble.sentence()));
                    self.rest(&mut pause)?;
                }
            }
        }
    }

    /// Locks the file and opens it, unless it is open already. Faults are tried again until it succeeds.
    fn open_in_time(&mut self, mut early: Option<(Lock, Opened)>) -> Result<(HeldFile, Opened), Stop> {
        let mut pause = FIRST_PAUSE;
        loop {
            match early.take().map_or_else(|| self.place.open_locked::<T>(), Ok) {
                Ok((lock, opened)) => return Ok((HeldFile { lock, look: opened.look }, opened)),
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
