//! Statements that commit a batch to SQLite, each prepared once.

use super::{Tables, Writer};
use crate::contract::Commit;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, Result, Statement};
use std::cell::Cell;

thread_local! {
    /// Number of pages of this thread's log that may not be in the file.
    static LOG_PAGES: Cell<i32> = const { Cell::new(0) };
}

/// The statements of one open file.
pub struct Statements<'c, T: Tables> {
    pub connection: &'c Connection,
    begin: Statement<'c>,
    commit: Statement<'c>,
    checkpoint: Statement<'c>,
    writer: T::Writer<'c>,
}

/// Counts the pages of the log with each commit, in place of SQLite's own checkpoints.
pub fn count_log_pages(connection: &mut Connection) -> Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.wal_hook(Some(|_: &mut Wal, pages| {
        LOG_PAGES.set(pages);
        Ok(())
    }))
}

impl<'c, T: Tables> Statements<'c, T> {
    /// Prepares all statements.
    pub fn prepare(connection: &'c Connection) -> Result<Self> {
        LOG_PAGES.set(0);
        let prepare = |sql| connection.prepare(sql);
        Ok(Statements {
            connection,
            begin: prepare("BEGIN IMMEDIATE")?,
            commit: prepare("COMMIT")?,
            checkpoint: prepare("PRAGMA wal_checkpoint(PASSIVE)")?,
            writer: T::Writer::prepare(connection)?,
        })
    }

    /// Commits a batch in a transaction of its own. After an error, no row is committed.
    pub fn commit(&mut self, batch: &mut T::Batch) -> Result<()> {
        let result = self.try_commit(batch);
        if result.is_err() && !self.connection.is_autocommit() {
            // If this fails as well, so does the next transaction.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        result
    }

    fn try_commit(&mut self, batch: &mut T::Batch) -> Result<()> {
        self.begin.raw_execute()?;
        self.write(batch)?;
        self.writer.note(*T::number(batch))?;
        self.commit.raw_execute().map(drop)
    }

    /// Writes a batch, in the transaction that is under way.
    pub fn write(&mut self, batch: &T::Batch) -> Result<()> {
        self.writer.write(batch)
    }

    /// Writes the marks of a file that replaces another: the last batch, and the number of the opening.
    pub fn note_opening(&mut self, batch: Commit, opening: u64) -> Result<()> {
        self.writer.note(batch)?;
        self.connection.execute("UPDATE meta SET epoch = ?1", [opening.cast_signed()])?;
        Ok(())
    }

    /// Returns the number of pages of the log that may not be in the file.
    pub fn log_pages(&self) -> i32 {
        LOG_PAGES.get()
    }

    /// Brings the log into the file.
    pub fn checkpoint(&mut self) -> Result<()> {
        // The result says if it could: no other process reads the file, so it always can.
        self.checkpoint.query_row([], |_| Ok(()))?;
        LOG_PAGES.set(0);
        Ok(())
    }
}
