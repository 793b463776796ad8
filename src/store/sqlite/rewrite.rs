//! Rewrite of everything into a file that then replaces the present one: after a failed sync it is unknown which pages
//! of a file are on the disk.
//!
//! The loop hands over everything that was ever stored, in slices between which clients are served. Meanwhile
//! they change. The new file is right nevertheless, because every change in a batch is written as the row's present
//! values: the batches after a slice bring the later changes.

use super::Tables;
use super::file::{FileTrouble, Opened, abandon};
use super::schema::QueueId;
use super::statements::Statements;
use super::worker::{FIRST_PAUSE, HeldFile, Stop, Worker, WorkerEvent, WorkerOrder};
use crate::contract::Commit;
use log::warn;
use rusqlite::Connection;
use std::time::Instant;

impl<T: Tables> Worker<T> {
    /// Writes everything that the loop has into a new file, and returns that file, open. `old` is kept until then, and
    /// `waiting` is the number of a batch that could not be committed to it.
    pub(super) fn write_anew(
        &mut self,
        held: &mut HeldFile,
        old: Option<Connection>,
        mut waiting: Option<Commit>,
    ) -> Result<Connection, Stop> {
        let begun = Instant::now();
        // The old file must not be read any more, and its close must write nothing.
        old.into_iter().for_each(abandon);
        self.mark.batch = waiting.map_or(self.mark.batch, |commit| commit.0);
        let mut pause = FIRST_PAUSE;
        loop {
            self.rewrites += 1;
            let number = self.rewrites;
            self.report(WorkerEvent::Rewrite(number));
            let written = self.write_all(number, &mut waiting)?;
            match written.and_then(|()| self.take_place(held)) {
                Ok(connection) => {
                    self.report_works(held);
                    waiting.into_iter().for_each(|commit| self.report_committed(commit, begun, held));
                    return Ok(connection);
                }
                Err(trouble) => {
                    self.report(WorkerEvent::Fails(trouble.sentence()));
                    self.rest(&mut pause)?;
                }
            }
        }
    }

    /// Moves the new file to the place of the old one, and opens it.
    fn take_place(&mut self, held: &mut HeldFile) -> Result<Connection, FileTrouble> {
        // The lock may have gone with the old file, in a directory that was removed.
        if !self.place.is_kept_by(&held.lock) {
            held.lock = self.place.lock(T::NAME).map_err(FileTrouble::Passing)?;
        }
        if let Some(aside) = self.place.replace(&mut held.look)? {
            warn!(
                "another file stood in the place of {}, and is in {} now",
                self.place.path.display(),
                aside.display()
            );
        }
        let Opened { connection, .. } = self.place.open_to_read(&held.lock, &T::SCHEMA)?;
        let (mark, queue, look) = self.place.note_opening::<T>(&connection, QueueId::Kept)?;
        (self.mark, self.queue, held.look) = (mark, Some(queue), look);
        Ok(connection)
    }

    /// Writes the new file. `waiting` is the batch whose commit is reported to the loop after that.
    fn write_all(&mut self, number: u64, waiting: &mut Option<Commit>) -> Result<Result<(), FileTrouble>, Stop> {
        let connection = match self.place.open_new(&T::SCHEMA, self.queue) {
            Ok(connection) => connection,
            Err(trouble) => return Ok(Err(trouble)),
        };
        let mut statements = match Statements::<T>::prepare(&connection) {
            Ok(statements) => statements,
            Err(error) => return Ok(Err(error.into())),
        };
        loop {
            let written = match self.next(None)? {
                Some(WorkerOrder::Slice { number: of, batch, is_last }) if of == number => {
                    let written = statements.write(&batch);
                    if !is_last {
                        self.report(WorkerEvent::NextSlice(number));
                    } else if written.is_ok() {
                        let ended =
                            statements.note_opening(Commit(self.mark.batch), self.mark.opening.saturating_add(1));
                        let ended = ended.and_then(|()| connection.execute_batch("COMMIT"));
                        drop(statements);
                        let closed = ended.and_then(|()| connection.close().map_err(|(_, error)| error));
                        return Ok(closed.map_err(FileTrouble::from));
                    }
                    written
                }
                Some(WorkerOrder::Commit(mut batch)) => {
                    let commit = *T::number(&mut batch);
                    self.mark.batch = commit.0;
                    *waiting = Some(commit);
                    statements.write(&batch)
                }
                Some(WorkerOrder::Copy(_)) => {
                    self.report(WorkerEvent::Copied(Err(format!("all {} are being written anew", T::NAME))));
                    Ok(())
                }
                Some(WorkerOrder::End) => {
                    self.is_ending = true;
                    Ok(())
                }
                Some(WorkerOrder::Slice { .. } | WorkerOrder::PageTaken) | None => Ok(()),
            };
            if let Err(error) = written {
                return Ok(Err(error.into()));
            }
        }
    }
}
