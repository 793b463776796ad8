//! Reading of a whole file, page by page, so that the loop serves clients between them.

use super::Tables;
use super::file::{FileTrouble, abandon};
use super::schema::QueueId;
use super::statements::Statements;
use super::worker::{FIRST_PAUSE, HeldFile, Stop, Worker, WorkerEvent, WorkerOrder};
use crate::contract::PAGES_AHEAD;
use rusqlite::Connection;
use std::time::Duration;

/// Way of the pages to the loop, which makes changes meanwhile.
pub struct Pages<'a, 'c, T: Tables> {
    worker: &'a mut Worker<T>,
    statements: Statements<'c, T>,
    held: &'a mut HeldFile,
    /// Number of pages that the loop has not taken in yet.
    ahead: usize,
}

impl<T: Tables> Worker<T> {
    /// Reads a file that was opened to be read, and returns it; None if it cannot be read, and is left as it is.
    pub(super) fn read(&mut self, connection: Connection, held: &mut HeldFile) -> Result<Option<Connection>, Stop> {
        match self.read_all(&connection, held) {
            Ok(()) => Ok(Some(connection)),
            Err(Stop::Ended) => Err(Stop::Ended),
            // Jobs that are only in the file cannot be written anew.
            Err(Stop::Lost(sentence, _)) => {
                self.report(WorkerEvent::Unreadable(sentence));
                abandon(connection);
                Ok(None)
            }
        }
    }

    /// Counts this opening in the file before anything else is written. A temporary fault is tried again until it
    /// succeeds.
    pub(super) fn count_opening(&mut self, connection: &Connection, held: &mut HeldFile) -> Result<(), Stop> {
        let mut pause = FIRST_PAUSE;
        while let Some(id) = self.uncounted.take() {
            self.look_before(held)?;
            match self.place.note_opening::<T>(connection, id) {
                Ok((mark, queue, look)) => {
                    (self.mark, self.queue, held.look) = (mark, Some(queue), look);
                    self.report_works(held);
                }
                Err(FileTrouble::Lost(sentence)) => return Err(Stop::Lost(sentence, None)),
                Err(FileTrouble::Passing(sentence)) => {
                    self.uncounted = Some(id);
                    self.report(WorkerEvent::Fails(sentence));
                    self.rest(&mut pause)?;
                }
            }
        }
        Ok(())
    }

    /// Sends everything to the loop.
    fn read_all(&mut self, connection: &Connection, held: &mut HeldFile) -> Result<(), Stop> {
        // Batches are committed meanwhile for a service that has a handover.
        if self.uncounted == Some(QueueId::Kept) {
            self.count_opening(connection, held)?;
        }
        let (mark, statements) = (self.mark, Statements::prepare(connection)?);
        T::read(&mut Pages { worker: self, statements, held, ahead: 0 }, connection, mark)
    }
}

impl<T: Tables> Pages<'_, '_, T> {
    /// Sends a page, commits the loop's batches, and waits until the loop has taken in most of the pages. After the last
    /// page, it commits none: the loop has everything, and a lost file is no longer unreadable.
    ///
    /// # Errors
    ///
    /// The reason for which the reading ends here.
    pub fn send(&mut self, page: T::Page) -> Result<(), Stop> {
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
                Some(WorkerOrder::Commit(batch)) => self.worker.commit(&mut self.statements, self.held, batch)?,
                Some(WorkerOrder::End) => return Err(Stop::Ended),
                // The loop sends nothing else before all is read.
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}
