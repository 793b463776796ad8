//! The store of jobs in a file of SQLite: its tables.

mod load;
mod statements;

use crate::store::batch::{UNFINISHED, UNFINISHED_KIND};
use crate::store::{Jobs, Mark};
pub use poolcounter_store::sqlite::DatabaseFile;
use poolcounter_store::sqlite::{Pages, Schema, SqliteStore, Stop, Tables};
use rusqlite::Connection;
use statements::Statements;

/// Store of jobs in a file of SQLite.
pub type Sqlite = SqliteStore<Jobs>;

/// Times are microseconds since 1970. Names given by clients are bytes; only the names of tubes are sure to be ASCII.
const TABLES: &str = "
    CREATE TABLE job (
        id INTEGER PRIMARY KEY,
        tube TEXT NOT NULL,
        pri INTEGER NOT NULL,
        delay INTEGER NOT NULL,
        ttr INTEGER NOT NULL,
        created INTEGER NOT NULL,
        delayed_until INTEGER,
        buried INTEGER NOT NULL DEFAULT 0,
        reserves INTEGER NOT NULL DEFAULT 0,
        timeouts INTEGER NOT NULL DEFAULT 0,
        releases INTEGER NOT NULL DEFAULT 0,
        buries INTEGER NOT NULL DEFAULT 0,
        kicks INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0,
        key BLOB,
        until_deleted INTEGER NOT NULL DEFAULT 0,
        root BLOB,
        root_timestamp INTEGER,
        job_group BLOB,
        error BLOB,
        origin BLOB,
        batch INTEGER NOT NULL DEFAULT 0,
        body BLOB NOT NULL
    ) STRICT;
    CREATE TABLE root (
        tube TEXT NOT NULL,
        signature BLOB NOT NULL,
        newest INTEGER NOT NULL,
        changed INTEGER NOT NULL,
        PRIMARY KEY (tube, signature)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE setting (
        kind TEXT NOT NULL,
        pattern BLOB NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (kind, pattern)
    ) STRICT, WITHOUT ROWID;";

/// Number and batch of the job that was put last: the mark of a batch that only puts jobs.
const LAST: &str = "SELECT id, batch FROM job ORDER BY id DESC LIMIT 1";

impl Tables for Jobs {
    /// The mark is `pjob`, and `tests/stores` has a file of the format.
    const SCHEMA: Schema =
        Schema { application: 0x706a_6f62, format: 1, tables: TABLES, last: Some(LAST), fault: unfinished };

    type Writer<'c> = Statements<'c>;

    fn read(pages: &mut Pages<'_, '_, Jobs>, connection: &Connection, mark: Mark) -> Result<(), Stop> {
        load::read(pages, connection, mark)
    }
}

/// Returns the fault of a file that has only a part of a copy.
fn unfinished(connection: &Connection) -> rusqlite::Result<Option<&'static str>> {
    let query = "SELECT EXISTS (SELECT 1 FROM setting WHERE kind = ?1)";
    connection.query_row(query, [UNFINISHED_KIND], |row| Ok(row.get::<_, bool>(0)?.then_some(UNFINISHED)))
}
