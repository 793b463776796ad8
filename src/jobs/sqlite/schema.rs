//! The tables of the file, each released format of them, and what leads from one to the next.

use crate::store::Mark;
use rusqlite::{Connection, Error};

/// Id of the queue in a file that is opened. Of two copies of a file that were served since, the ids differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueId {
    /// The file keeps its id: the jobs are those of the process before.
    Kept,
    /// Another id is drawn: the jobs are read from the file.
    Drawn,
}

/// The format that is written. A daemon refuses a newer one.
pub const FORMAT: i64 = 2;

/// Marks a file as one of ours: `pjob`.
const APPLICATION: i64 = 0x706a_6f62;

/// What leads from each format to the next; the first leads from 1 to 2. There is a file of each in `tests/stores`.
const MIGRATIONS: [&str; FORMAT as usize - 1] = ["ALTER TABLE meta ADD COLUMN queue TEXT NOT NULL DEFAULT '';
    UPDATE meta SET queue = lower(hex(randomblob(16)))"];

/// Times are microseconds since 1970. What clients name are bytes; only the names of tubes are sure to be ASCII.
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

/// Makes the tables in an empty file, in the transaction that is under way. Without an id of the queue, one is drawn.
pub fn create(connection: &Connection, queue: Option<u128>) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    let queue = queue.map(|queue| format!("{queue:032x}"));
    let insert = "INSERT INTO meta VALUES (1, ?1, 0, 0, 1, coalesce(?2, lower(hex(randomblob(16)))))";
    connection.execute(insert, (FORMAT, queue))?;
    Ok(())
}

/// Brings the tables to the present format, in one transaction. A file that has it is only read.
///
/// # Errors
///
/// The second result is a sentence that says why this is no file for this program.
pub fn prepare(connection: &Connection) -> rusqlite::Result<Result<(), String>> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    connection.execute_batch("BEGIN")?;
    if number("page_count")? == 0 || number("schema_version")? == 0 {
        create(connection, None)?;
    }
    if number("application_id")? != APPLICATION {
        connection.execute_batch("ROLLBACK")?;
        return Ok(Err("it is the file of another program".into()));
    }
    let format: i64 = connection.query_row("SELECT format FROM meta", [], |row| row.get(0))?;
    if format > FORMAT {
        connection.execute_batch("ROLLBACK")?;
        return Ok(Err(format!("its format is {format}, and this program knows formats up to {FORMAT}")));
    }
    let done = usize::try_from(format.saturating_sub(1)).map_err(|_| Error::IntegralValueOutOfRange(0, format))?;
    MIGRATIONS.iter().skip(done).try_for_each(|step| connection.execute_batch(step))?;
    if format < FORMAT {
        connection.execute("UPDATE meta SET format = ?1", [FORMAT])?;
    }
    connection.execute_batch("COMMIT")?;
    Ok(Ok(()))
}

/// Counts an opening of the file.
pub fn note_opening(connection: &Connection, queue: QueueId) -> rusqlite::Result<()> {
    connection.execute_batch(match queue {
        QueueId::Kept => "UPDATE meta SET epoch = epoch + 1",
        QueueId::Drawn => "UPDATE meta SET epoch = epoch + 1, queue = lower(hex(randomblob(16)))",
    })
}

/// Returns how far the file is.
pub fn read_mark(connection: &Connection) -> rusqlite::Result<Mark> {
    connection.query_row("SELECT epoch, batch, next_id FROM meta", [], |row| {
        let number = |column| {
            let number: i64 = row.get(column)?;
            u64::try_from(number).map_err(|_| Error::IntegralValueOutOfRange(column, number))
        };
        Ok(Mark { opening: number(0)?, batch: number(1)?, next_id: number(2)? })
    })
}
