//! The store of jobs in a file of SQLite: its tables.

mod load;
mod statements;

use crate::store::batch::{UNFINISHED, UNFINISHED_KIND};
use crate::store::columns::tables;
use crate::store::{Jobs, Mark};
pub use poolcounter_store::sqlite::DatabaseFile;
use poolcounter_store::sqlite::{Pages, Schema, SqliteStore, Tables, Trouble};
use rusqlite::Connection;
use statements::Statements;

/// Store of jobs in a file of SQLite.
pub type Sqlite = SqliteStore<Jobs>;

/// Schema of a file that a copy creates: it is marked until all is there.
pub static UNFINISHED_COPY: Schema = Schema { tables: create_unfinished, fault: |_| Ok(None), ..Jobs::SCHEMA };

/// Number and batch of the job that was put last: the mark of a batch that only puts jobs.
const LAST: &str = "SELECT id, batch FROM job ORDER BY id DESC LIMIT 1";

impl Tables for Jobs {
    /// The mark is `pjob`, and `tests/stores` has a file of the format.
    const SCHEMA: Schema =
        Schema { application: 0x706a_6f62, format: 1, tables: create, last: Some(LAST), fault: unfinished };

    type Writer<'c> = Statements<'c>;

    fn read(pages: &mut Pages<'_, Jobs>, connection: &Connection, mark: Mark) -> Result<(), Trouble> {
        load::read(pages, connection, mark)
    }
}

/// Returns the statements that create the tables. Jobs have the number of the batch that put them.
fn create() -> String {
    let batch = "    batch INTEGER NOT NULL DEFAULT 0,\n";
    tables(["INTEGER", "TEXT", "BLOB"], batch, [" STRICT", " STRICT, WITHOUT ROWID"])
}

fn create_unfinished() -> String {
    format!("{}INSERT INTO setting VALUES ('{UNFINISHED_KIND}', x'', x'');", create())
}

/// Returns the fault of a file that has only a part of a copy.
fn unfinished(connection: &Connection) -> rusqlite::Result<Option<&'static str>> {
    let query = "SELECT EXISTS (SELECT 1 FROM setting WHERE kind = ?1)";
    connection.query_row(query, [UNFINISHED_KIND], |row| Ok(row.get::<_, bool>(0)?.then_some(UNFINISHED)))
}
