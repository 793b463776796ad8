//! Statements that write the rows of a batch, each prepared once.

use crate::sqlite::LAST;
use crate::store::batch::{Batch, Row};
use crate::store::columns::{COLUMNS, Field, PLAIN, ascii};
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
    root: Statement<'c>,
    root_gone: Statement<'c>,
    setting: Statement<'c>,
    setting_gone: Statement<'c>,
    note: Statement<'c>,
    /// Next number of a job, as far as the batches say.
    next_id: u64,
}

impl<'c> Writer<'c, Jobs> for Statements<'c> {
    fn prepare(connection: &'c Connection) -> Result<Self> {
        let prepare = |sql| connection.prepare(sql);
        Ok(Statements {
            put_plain: prepare(
                "INSERT OR REPLACE INTO job (id, tube, pri, delay, ttr, created, delayed_until, batch, body)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?,
            put: prepare(
                "INSERT OR REPLACE INTO job VALUES
                 (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
            )?,
            update: prepare(
                "UPDATE job SET tube = ?2, pri = ?3, delay = ?4, ttr = ?5, created = ?6, delayed_until = ?7, buried = ?8,
                 reserves = ?9, timeouts = ?10, releases = ?11, buries = ?12, kicks = ?13, attempts = ?14, key = ?15,
                 until_deleted = ?16, root = ?17, root_timestamp = ?18, job_group = ?19, error = ?20, origin = ?21 WHERE id = ?1",
            )?,
            delete: prepare("DELETE FROM job WHERE id = ?1")?,
            root: prepare("INSERT OR REPLACE INTO root VALUES (?1, ?2, ?3, ?4)")?,
            root_gone: prepare("DELETE FROM root WHERE tube = ?1 AND signature = ?2")?,
            setting: prepare("INSERT OR REPLACE INTO setting VALUES (?1, ?2, ?3)")?,
            setting_gone: prepare("DELETE FROM setting WHERE kind = ?1 AND pattern = ?2")?,
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
                let (statement, used) =
                    if job.is_plain() { (&mut self.put_plain, PLAIN) } else { (&mut self.put, COLUMNS) };
                bind(statement, &batch.columns(job)[..used])?;
                statement.raw_bind_parameter(used + 1, batch.commit.0.cast_signed())?;
                statement.raw_bind_parameter(used + 2, batch.body(body))?;
                statement.raw_execute()
            }
            Row::Update(job) => {
                bind(&mut self.update, &batch.columns(job))?;
                self.update.raw_execute()
            }
            Row::Delete(id) => self.delete.execute([id.0.cast_signed()]),
            Row::Root(tube, signature, newest, changed) => {
                let (tube, signature) = (ascii(batch.text(*tube)), batch.text(*signature));
                self.root.execute((tube, signature, newest.cast_signed(), changed))
            }
            Row::RootGone(tube, signature) => {
                self.root_gone.execute((ascii(batch.text(*tube)), batch.text(*signature)))
            }
            Row::Setting(kind, of, Some(value)) => self.setting.execute((kind, batch.text(*of), batch.text(*value))),
            Row::Setting(kind, of, None) => self.setting_gone.execute((kind, batch.text(*of))),
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
            Field::Flag(flag) => ValueRef::Integer(flag.into()),
            Field::Number(number) => ValueRef::Integer(number),
            Field::Text(text) => ValueRef::Text(text.as_bytes()),
            Field::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn bind(statement: &mut Statement<'_>, fields: &[Field<'_>]) -> Result<()> {
    (1..).zip(fields).try_for_each(|(at, field)| statement.raw_bind_parameter(at, field))
}
