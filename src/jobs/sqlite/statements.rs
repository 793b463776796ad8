//! Statements that write the rows of a batch, each prepared once.

use crate::sqlite::LAST;
use crate::store::batch::{Batch, Row};
use crate::store::columns::{COLUMNS, Field, Named, PLAIN, ascii, listed, names};
use crate::store::{Commit, Jobs};
use poolcounter_store::sqlite::{Tables as _, Writer};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Result, Statement, ToSql};

/// The statements of one open file.
pub struct Statements<'c> {
    put_plain: Statement<'c>,
    put: Statement<'c>,
    update: Statement<'c>,
    delete: Statement<'c>,
    /// Statements of each table of named values.
    put_named: [Statement<'c>; Named::ALL.len()],
    delete_named: [Statement<'c>; Named::ALL.len()],
    note: Statement<'c>,
    /// Next number of a job, as far as the batches say.
    next_id: u64,
}

impl<'c> Writer<'c, Jobs> for Statements<'c> {
    fn prepare(connection: &'c Connection) -> Result<Self> {
        let prepare = |sql: &str| connection.prepare(sql);
        let set = listed(1..COLUMNS, |at, name, _| format!("{name} = ?{}", at + 1));
        Ok(Statements {
            put_plain: prepare(&put(PLAIN))?,
            put: prepare(&put(COLUMNS))?,
            update: prepare(&format!("UPDATE job SET {set} WHERE id = ?1"))?,
            delete: prepare("DELETE FROM job WHERE id = ?1")?,
            put_named: [prepare(&put_named(Named::Setting))?, prepare(&put_named(Named::Root))?],
            delete_named: [prepare(&delete_named(Named::Setting))?, prepare(&delete_named(Named::Root))?],
            // The row of a new job has the mark of its batch: the table `meta` would be a page more to write.
            note: prepare(&format!("UPDATE meta SET batch = ?1, next_id = ?2 WHERE (?2 - 1, ?1) IS NOT ({LAST})"))?,
            next_id: Jobs::SCHEMA.mark(connection)?.next_id,
        })
    }

    fn write(&mut self, batch: &Batch) -> Result<()> {
        batch.rows.iter().try_for_each(|row| self.write_row(batch, row))
    }

    fn note(&mut self, commit: Commit) -> Result<()> {
        self.note.execute([commit.0.cast_signed(), self.next_id.cast_signed()]).map(drop)
    }
}

impl Statements<'_> {
    fn write_row(&mut self, batch: &Batch, row: &Row) -> Result<()> {
        let written = match row {
            Row::Put(job, body) => {
                let job = batch.stored(job);
                let (statement, used) =
                    if job.is_plain() { (&mut self.put_plain, PLAIN) } else { (&mut self.put, COLUMNS) };
                bind(statement, job.columns(used))?;
                statement.raw_bind_parameter(used + 1, batch.commit.0.cast_signed())?;
                statement.raw_bind_parameter(used + 2, batch.body(body))?;
                statement.raw_execute()
            }
            Row::Update(job) => {
                bind(&mut self.update, batch.stored(job).columns(COLUMNS))?;
                self.update.raw_execute()
            }
            Row::Delete(id) => self.delete.execute([id.0.cast_signed()]),
            Row::Named(table, name, value) => {
                let ([first, second], table) = (name.map(|part| batch.text(part)), *table as usize);
                match value {
                    Some(value) => self.put_named[table].execute((ascii(first), second, batch.text(*value))),
                    None => self.delete_named[table].execute((ascii(first), second)),
                }
            }
            // Only a database has an inbox.
            Row::Taken(..) => Ok(0),
            Row::NextId(id) => {
                self.next_id = *id;
                Ok(0)
            }
        };
        written.map(drop)
    }
}

impl ToSql for Field<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Field::Null => ValueRef::Null,
            Field::Number(number) => ValueRef::Integer(number),
            Field::Text(text) => ValueRef::Text(text.as_bytes()),
            Field::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn bind<'a>(statement: &mut Statement<'_>, fields: impl Iterator<Item = Field<'a>>) -> Result<()> {
    (1..).zip(fields).try_for_each(|(at, field)| statement.raw_bind_parameter(at, field))
}

/// Returns the statement that puts a job with values in the first columns.
fn put(used: usize) -> String {
    let (names, places) = (names(used), listed(0..used, |at, _, _| format!("?{}", at + 1)));
    format!("INSERT OR REPLACE INTO job ({names}, batch, body) VALUES ({places}, ?{}, ?{})", used + 1, used + 2)
}

fn put_named(table: Named) -> String {
    format!("INSERT OR REPLACE INTO {} VALUES (?1, ?2, ?3)", table.words()[0])
}

fn delete_named(table: Named) -> String {
    let [table, first, second] = table.words();
    format!("DELETE FROM {table} WHERE {first} = ?1 AND {second} = ?2")
}
