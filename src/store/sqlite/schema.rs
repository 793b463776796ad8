//! Table of every file, and the definition of the other tables.

use crate::contract::Mark;
use rusqlite::{Connection, Error};

/// Id of the queue in a file that is opened. Two copies of a file that were both served have different ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueId {
    /// The file keeps its id: the jobs are the jobs of the previous process.
    Kept,
    /// A new id is drawn: the jobs are read from the file.
    Drawn,
}

/// Definition of a file: its tables, and their marks.
pub struct Schema {
    /// Mark of the program's files with these tables, in the header of the file.
    pub application: i64,
    /// Format of the tables. A daemon refuses another one.
    pub format: i64,
    /// Statements that create the tables.
    pub tables: &'static str,
    /// Returns why a file with these tables cannot be used.
    pub fault: fn(&Connection) -> rusqlite::Result<Option<&'static str>>,
}

/// Table of every file: its format, its mark, and the id of its queue.
const META: &str = "
    CREATE TABLE meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        format INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        batch INTEGER NOT NULL,
        next_id INTEGER NOT NULL,
        queue TEXT NOT NULL
    ) STRICT;";

/// Lets a file without any page shrink later: its free pages can be moved to its end, and cut off.
pub fn allow_shrinking(connection: &Connection) -> rusqlite::Result<()> {
    if pragma(connection, "page_count")? > 0 {
        return Ok(());
    }
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")
}

/// Creates the tables in an empty file, in the transaction that is under way. Without an id of the queue, one is drawn.
pub fn create(connection: &Connection, schema: &Schema, queue: Option<u128>) -> rusqlite::Result<()> {
    connection.execute_batch(META)?;
    connection.execute_batch(schema.tables)?;
    connection.pragma_update(None, "application_id", schema.application)?;
    let queue = queue.map(|queue| format!("{queue:032x}"));
    let insert = "INSERT INTO meta VALUES (1, ?1, 0, 0, 1, coalesce(?2, lower(hex(randomblob(16)))))";
    connection.execute(insert, (schema.format, queue))?;
    Ok(())
}

/// Returns a sentence that says why this file is none of this program, as the error of the second result. The file is
/// only read.
pub fn examine(connection: &Connection, schema: &Schema) -> rusqlite::Result<Result<(), String>> {
    if is_empty(connection)? {
        return Ok(Ok(()));
    }
    if pragma(connection, "application_id")? != schema.application {
        return Ok(Err("it is the file of another program".into()));
    }
    let format = format_of(connection)?;
    let known = schema.format;
    Ok((format == known).then_some(()).ok_or(format!("its format is {format}, and this program knows {known}")))
}

/// Creates the tables in an empty file, in one transaction. Another file is only read.
pub fn prepare(connection: &Connection, schema: &Schema) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN")?;
    if is_empty(connection)? {
        create(connection, schema, None)?;
    }
    connection.execute_batch("COMMIT")
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
