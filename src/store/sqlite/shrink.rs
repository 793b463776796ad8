//! Return of free pages to the file system, step by step, in moments without a batch.

use super::Tables;
use super::file::Trouble;
use super::schema::pragma;
use super::statements::Statements;
use super::worker::Worker;
use rusqlite::Connection;

/// Number of pages below which a file is left as it is: 4 MiB.
const LEAST_PAGES: i64 = 1024;
/// Number of pages by which the file shrinks in a step: 1 MiB, as much as a checkpoint writes.
const PAGES_AT_A_TIME: i64 = 256;
/// Number of free pages above which a step is shorter, because each page is searched for among them: 256 MiB.
const MANY_FREE_PAGES: i64 = 1 << 16;

/// Pages of a file.
struct PageCounts {
    all: i64,
    free: i64,
}

impl PageCounts {
    fn of(connection: &Connection) -> rusqlite::Result<PageCounts> {
        let count = |name| pragma(connection, name);
        Ok(PageCounts { all: count("page_count")?, free: count("freelist_count")? })
    }

    /// Returns whether more than half of the file is free.
    fn is_sparse(&self) -> bool {
        self.all > LEAST_PAGES && self.free > self.all / 2
    }
}

impl<T: Tables> Worker<T> {
    /// Returns whether a file is to be shrunk.
    pub(super) fn is_sparse(connection: &Connection) -> bool {
        PageCounts::of(connection).is_ok_and(|pages| pages.is_sparse())
    }

    /// Shrinks the file by a step if more than half of it is free, and returns whether another step may follow.
    pub(super) fn shrink(&mut self, statements: &mut Statements<'_, T>) -> Result<bool, Trouble> {
        self.look_before()?;
        let connection = statements.connection;
        let Ok(pages) = PageCounts::of(connection) else { return Ok(false) };
        // Faults come up with the next commit.
        if !pages.is_sparse() || !pragma(connection, "auto_vacuum").is_ok_and(|mode| mode == INCREMENTAL) {
            return Ok(false);
        }
        let most = PAGES_AT_A_TIME * MANY_FREE_PAGES / pages.free.max(MANY_FREE_PAGES);
        let shrunk = shrink_by(connection, most.max(1));
        self.look_after()?;
        if shrunk.is_ok() {
            self.checkpoint(statements)?;
        }
        Ok(shrunk.is_ok() && statements.log_pages() == 0)
    }
}

/// Value of SQLite for files that shrink on demand.
const INCREMENTAL: i64 = 2;

/// Moves at most this number of free pages to the end of the file, and cuts them off with the next checkpoint.
fn shrink_by(connection: &Connection, pages: i64) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
