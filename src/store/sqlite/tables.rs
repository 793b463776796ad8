//! Contract between a file and the contents that it has tables for.

use super::file::Trouble;
use super::pages::Pages;
use super::schema::Schema;
use crate::contract::{Commit, Contents, Mark};
use rusqlite::Connection;

/// Tables of a file for these contents, beside the table `meta`.
pub trait Tables: Contents {
    /// Their definition.
    const SCHEMA: Schema;

    /// The statements that write a batch.
    type Writer<'c>: Writer<'c, Self>;

    /// Sends everything to the loop, in pages. `mark` is that of the file.
    ///
    /// # Errors
    ///
    /// The reason for which the reading has ended early.
    fn read(pages: &mut Pages<'_, Self>, connection: &Connection, mark: Mark) -> Result<(), Trouble>;
}

/// Statements of one open file that write batches of these contents, each prepared once.
pub trait Writer<'c, C: Contents>: Sized {
    /// Prepares the statements.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self>;

    /// Writes the changes of a batch, in the transaction that is under way.
    ///
    /// # Errors
    ///
    /// Any fault: then no change counts.
    fn write(&mut self, batch: &C::Batch) -> rusqlite::Result<()>;

    /// Notes the number of the batch that was written, unless its rows have it: [`Schema::last`] finds it there. The
    /// default is for contents that are never compared with a handover.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    fn note(&mut self, _: Commit) -> rusqlite::Result<()> {
        Ok(())
    }
}
