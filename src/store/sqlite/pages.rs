//! Reading of a whole file, page by page, so that the loop serves clients between them.

use super::Tables;
use super::file::{Trouble, abandon, read_queue};
use super::schema::{self, QueueId};
use super::statements::Statements;
use super::worker::{Worker, WorkerEvent, WorkerOrder};
use crate::contract::PAGES_AHEAD;
use rusqlite::Connection;
use std::time::Duration;

/// Way of the pages to the loop, which makes changes meanwhile.
pub struct Pages<'a, T: Tables> {
    worker: &'a mut Worker<T>,
    statements: Statements<'a, T>,
    /// Number of pages that the loop has not taken in yet.
    ahead: usize,
}

impl<T: Tables> Worker<T> {
    /// Reads a file that was opened to be read, and returns it; None if it cannot be read, and is left as it is.
    pub(super) fn read(&mut self, connection: Connection) -> Result<Option<Connection>, Trouble> {
        match self.read_all(&connection) {
            Ok(()) => Ok(Some(connection)),
            Err(Trouble::Ended) => Err(Trouble::Ended),
            // Jobs that are only in the file cannot be written anew.
            Err(Trouble::Passing(sentence) | Trouble::Lost(sentence)) => {
                self.report(WorkerEvent::Unreadable(sentence));
                abandon(connection);
                Ok(None)
            }
        }
    }

    /// Counts this opening in the file before anything else is written.
    pub(super) fn count_opening(&mut self, connection: &Connection) -> Result<(), Trouble> {
        let Some(id) = self.uncounted.take() else { return Ok(()) };
        self.try_until_done(|worker| {
            worker.look_before()?;
            worker.note_opening(connection, id)
        })?;
        self.report_works();
        Ok(())
    }

    /// Counts an opening, and notes the mark of the file after that.
    pub(super) fn note_opening(&mut self, connection: &Connection, id: QueueId) -> Result<(), Trouble> {
        schema::note_opening(connection, id)?;
        self.look = self.place.look().map_err(Trouble::Passing)?;
        (self.mark, self.queue) = (T::SCHEMA.mark(connection)?, Some(read_queue(connection)?));
        Ok(())
    }

    /// Sends everything to the loop.
    fn read_all(&mut self, connection: &Connection) -> Result<(), Trouble> {
        // Batches are committed meanwhile for a service that has a handover.
        if self.uncounted == Some(QueueId::Kept) {
            self.count_opening(connection)?;
        }
        let (mark, statements) = (self.mark, Statements::prepare(connection)?);
        T::read(&mut Pages { worker: self, statements, ahead: 0 }, connection, mark)
    }
}

impl<T: Tables> Pages<'_, T> {
    /// Sends a page, commits the loop's batches, and waits until the loop has taken in most of the pages. After the last
    /// page, it commits none: the loop has everything, and a lost file is no longer unreadable.
    ///
    /// # Errors
    ///
    /// The reason for which the reading ends here.
    pub fn send(&mut self, page: T::Page) -> Result<(), Trouble> {
        let is_last = T::order(&page).is_last;
        self.worker.report(WorkerEvent::Page(page));
        self.ahead += 1;
        if is_last {
            return Ok(());
        }
        loop {
            let patience = (self.ahead < PAGES_AHEAD).then_some(Duration::ZERO);
            match self.worker.next(patience)? {
                Some(WorkerOrder::PageTaken) => self.ahead = self.ahead.saturating_sub(1),
                Some(WorkerOrder::Commit(batch)) => self.worker.commit(&mut self.statements, batch)?,
                Some(WorkerOrder::End) => return Err(Trouble::Ended),
                // The loop sends nothing else before all is read.
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}
