//! Tables of the file.

use crate::store::Mark;
use crate::store::batch::UNFINISHED_KIND;
use rusqlite::{Connection, Error};

/// Id of the queue in a file that is opened. Two copies of a file that were both served have different ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueId {
    /// The file keeps its id: the jobs are those of the previous process.
    Kept,
    /// A new id is drawn: the jobs are read from the file.
    Drawn,
}

/// Format of the tables, of which `tests/stores` has a file. A daemon refuses another one.
pub const FORMAT: i64 = 1;

/// Marks a file as one of this program: `pjob`.
const APPLICATION: i64 = 0x706a_6f62;

/// Times are microseconds since 1970. Names given by clients are bytes; only the names of tubes are sure to be ASCII.
const TABLES: &str = "
    CREATE TABLE meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        format INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        batch INTEGER NOT NULL,
        next_id INTEGER NOT NULL,
        queue TEXT NOT NULL
    ) STRICT;
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

/// Lets a file without any page shrink later: its free pages can be moved to its end, and cut off.
pub fn allow_shrinking(connection: &Connection) -> rusqlite::Result<()> {
    if pragma(connection, "page_count")? > 0 {
        return Ok(());
    }
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")
}

/// Creates the tables in an empty file, in the transaction that is under way. Without an id of the queue, one is drawn.
pub fn create(connection: &Connection, queue: Option<u128>) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    let queue = queue.map(|queue| format!("{queue:032x}"));
    let insert = "INSERT INTO meta VALUES (1, ?1, 0, 0, 1, coalesce(?2, lower(hex(randomblob(16)))))";
    connection.execute(insert, (FORMAT, queue))?;
    Ok(())
}

/// Returns a sentence that says why this file is none of this program, as the error of the second result. The file is
/// only read.
pub fn examine(connection: &Connection) -> rusqlite::Result<Result<(), String>> {
    if is_empty(connection)? {
        return Ok(Ok(()));
    }
    if pragma(connection, "application_id")? != APPLICATION {
        return Ok(Err("it is the file of another program".into()));
    }
    let format = format_of(connection)?;
    let is_known = format == FORMAT;
    Ok(is_known.then_some(()).ok_or(format!("its format is {format}, and this program knows {FORMAT}")))
}

/// Creates the tables in an empty file, in one transaction. Another file is only read.
pub fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN")?;
    if is_empty(connection)? {
        create(connection, None)?;
    }
    connection.execute_batch("COMMIT")
}

/// Returns whether the file has only a part of a copy.
pub fn is_unfinished(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM setting WHERE kind = ?1)", [UNFINISHED_KIND], |row| row.get(0))
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(pragma(connection, "page_count")? == 0 || pragma(connection, "schema_version")? == 0)
}

pub fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

fn format_of(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT format FROM meta", [], |row| row.get(0))
}

/// Counts an opening of the file.
pub fn note_opening(connection: &Connection, queue: QueueId) -> rusqlite::Result<()> {
    connection.execute_batch(match queue {
        QueueId::Kept => "UPDATE meta SET epoch = epoch + 1",
        QueueId::Drawn => "UPDATE meta SET epoch = epoch + 1, queue = lower(hex(randomblob(16)))",
    })
}

/// Returns the mark of the file.
pub fn read_mark(connection: &Connection) -> rusqlite::Result<Mark> {
    connection.query_row("SELECT epoch, batch, next_id FROM meta", [], |row| {
        let number = |column| {
            let number: i64 = row.get(column)?;
            u64::try_from(number).map_err(|_| Error::IntegralValueOutOfRange(column, number))
        };
        Ok(Mark { opening: number(0)?, batch: number(1)?, next_id: number(2)? })
    })
}
