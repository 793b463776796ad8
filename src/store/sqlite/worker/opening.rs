//! Opening of the file of the previous process.

use super::{Begin, Worker, WorkerEvent};
use crate::contract::{HandedOver, Mark};
use crate::sqlite::Tables;
use crate::sqlite::file::{DatabaseFile, Lock, Opened, Trouble, abandon};
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
        let opened = self.open_to_read(&T::SCHEMA).map_err(Trouble::sentence)?;
        Ok((lock, opened))
    }
}

impl<T: Tables> Worker<T> {
    /// Opens the file, and reads it if the service needs that; None if it cannot be read, and is left as it is. If the
    /// service has everything, and the file has other contents, they are put aside, and everything is written anew.
    pub(super) fn begin(&mut self, begin: Begin) -> Result<Option<Connection>, Trouble> {
        let Begin { mut early, expected, reads } = begin;
        self.try_until_done(|worker| worker.open(early.take(), expected.as_ref(), reads))
    }

    fn open(
        &mut self,
        early: Option<(Lock, Opened)>,
        expected: Option<&HandedOver>,
        reads: bool,
    ) -> Result<Option<Connection>, Trouble> {
        // A lock that is held already would refuse another one.
        self.lock = None;
        let opened = early.map_or_else(|| self.place.open_locked::<T>(), Ok);
        let (lock, Opened { connection, mark: found, queue, look }) = opened.map_err(Trouble::Passing)?;
        (self.lock, self.look) = (Some(lock), look);
        let other = expected.filter(|expected| !expected.is_of(found, queue));
        if let Some(HandedOver { mark, .. }) = other.filter(|_| reads) {
            let is_not = "it is not the file of the process before";
            self.report(WorkerEvent::Unreadable(format!("{is_not}: {found} {queue:032x}, and not {mark}")));
            abandon(connection);
            return Ok(None);
        }
        (self.mark, self.queue) = (found, Some(queue));
        self.uncounted = Some(if reads && expected.is_none() { QueueId::Drawn } else { QueueId::Kept });
        if reads {
            return self.read(connection);
        }
        let Some(expected) = other.or(expected.filter(|expected| !expected.is_whole)) else {
            return Ok(Some(connection));
        };
        // The new file has the service's data, up to its last batch.
        self.mark = Mark { opening: found.opening.max(expected.mark.opening), ..expected.mark };
        (self.queue, self.uncounted) = (expected.queue, None);
        let old = self.make_room(connection, found, queue).map_err(Trouble::passing)?;
        self.write_anew(old).map(Some)
    }

    /// Puts aside a file that is not the expected one, so that its contents are not lost.
    fn make_room(&self, connection: Connection, found: Mark, queue: u128) -> Result<Option<Connection>, Trouble> {
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
