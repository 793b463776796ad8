//! Rewrite of everything into a file that then replaces the present one: after a failed sync it is unknown which pages
//! of a file are on the disk.
//!
//! The loop hands over everything that was ever stored, in slices between which clients are served. Meanwhile
//! they change. The new file is right nevertheless, because every change in a batch is written as the row's present
//! values: the batches after a slice bring the later changes.

use super::Tables;
use super::file::{Opened, Trouble, abandon};
use super::schema::QueueId;
use super::statements::Statements;
use super::worker::{Worker, WorkerEvent, WorkerOrder};
use crate::contract::Commit;
use log::warn;
use rusqlite::Connection;
use std::time::Instant;

impl<T: Tables> Worker<T> {
    /// Writes everything that the loop has into a new file, and returns that file, open. `old` is kept until then.
    pub(super) fn write_anew(&mut self, old: Option<Connection>) -> Result<Connection, Trouble> {
        // The old file must not be read any more, and its close must write nothing.
        old.into_iter().for_each(abandon);
        self.mark.batch = self.waiting.map_or(self.mark.batch, |(commit, _)| commit.0);
        let connection = self.try_until_done(|worker| {
            worker.rewrites += 1;
            worker.report(WorkerEvent::Rewrite(worker.rewrites));
            worker.write_all().and_then(|()| worker.take_place()).map_err(Trouble::passing)
        })?;
        self.report_works();
        self.report_committed();
        Ok(connection)
    }

    /// Moves the new file to the place of the old one, and opens it.
    fn take_place(&mut self) -> Result<Connection, Trouble> {
        // The lock may have gone with the old file, in a directory that was removed.
        if !self.place.is_kept_by(self.lock.as_ref()) {
            self.lock = Some(self.place.lock(T::NAME).map_err(Trouble::Passing)?);
        }
        if let Some(aside) = self.place.replace(&mut self.look)? {
            warn!(
                "another file stood in the place of {}, and is in {} now",
                self.place.path.display(),
                aside.display()
            );
        }
        let Opened { connection, .. } = self.place.open_to_read(&T::SCHEMA)?;
        self.note_opening(&connection, QueueId::Kept)?;
        Ok(connection)
    }

    /// Writes the new file, with the batches that come meanwhile.
    fn write_all(&mut self) -> Result<(), Trouble> {
        let connection = self.place.open_new(&T::SCHEMA, self.queue)?;
        let mut statements = Statements::<T>::prepare(&connection)?;
        loop {
            match self.next(None)? {
                Some(WorkerOrder::Slice { number, batch, is_last }) if number == self.rewrites => {
                    statements.write(&batch)?;
                    if is_last {
                        break;
                    }
                    self.report(WorkerEvent::NextSlice(number));
                }
                Some(WorkerOrder::Commit(mut batch)) => {
                    let commit = *T::number(&mut batch);
                    self.mark.batch = commit.0;
                    self.waiting = Some((commit, Instant::now()));
                    statements.write(&batch)?;
                }
                Some(WorkerOrder::Copy(_)) => {
                    self.report(WorkerEvent::Copied(Err(format!("all {} are being written anew", T::NAME))));
                }
                Some(WorkerOrder::End) => self.is_ending = true,
                Some(WorkerOrder::Slice { .. } | WorkerOrder::PageTaken) | None => {}
            }
        }
        statements.note_opening(Commit(self.mark.batch), self.mark.opening.saturating_add(1))?;
        connection.execute_batch("COMMIT")?;
        drop(statements);
        Ok(connection.close().map_err(|(_, error)| error)?)
    }
}
