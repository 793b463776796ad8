//! Table of every file, and the definition of the other tables.

use crate::contract::Mark;
use rusqlite::{Connection, Error, OptionalExtension as _, Row};

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
    /// Returns the statements that create the tables.
    pub tables: fn() -> String,
    /// Query for the number and the batch of the last row, whose commit did not write the mark; None without such
    /// rows.
    pub last: Option<&'static str>,
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

/// Creates the tables in an empty file, in the transaction that is under way. Without an id of the queue, one is drawn.
pub fn create(connection: &Connection, schema: &Schema, queue: Option<u128>) -> rusqlite::Result<()> {
    connection.execute_batch(META)?;
    connection.execute_batch(&(schema.tables)())?;
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
    let format: i64 = connection.query_row("SELECT format FROM meta", [], |row| row.get(0))?;
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

/// Counts an opening of the file.
pub fn note_opening(connection: &Connection, queue: QueueId) -> rusqlite::Result<()> {
    connection.execute_batch(match queue {
        QueueId::Kept => "UPDATE meta SET epoch = epoch + 1",
        QueueId::Drawn => "UPDATE meta SET epoch = epoch + 1, queue = lower(hex(randomblob(16)))",
    })
}

impl Schema {
    /// Returns the mark of a file: that of its last row if that came later than the mark in its table.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or a number is below zero.
    pub fn mark(&self, connection: &Connection) -> rusqlite::Result<Mark> {
        let mark = connection.query_row("SELECT epoch, batch, next_id FROM meta", [], |row| {
            Ok(Mark { opening: number(row, 0)?, batch: number(row, 1)?, next_id: number(row, 2)? })
        })?;
        let Some(query) = self.last else { return Ok(mark) };
        let last = connection.query_row(query, [], |row| Ok((number(row, 0)?, number(row, 1)?))).optional()?;
        Ok(match last {
            Some((id, batch)) if batch > mark.batch => Mark { batch, next_id: id.saturating_add(1), ..mark },
            _ => mark,
        })
    }
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| Error::IntegralValueOutOfRange(column, number))
}
