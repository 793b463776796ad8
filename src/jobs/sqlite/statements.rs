//! Statements that write the rows of a batch, each prepared once.

use crate::sqlite::LAST;
use crate::state::Until;
use crate::store::batch::{Batch, JobRow, Row, RowBody, Text};
use crate::store::{Commit, Jobs};
use poolcounter_store::sqlite::{Tables as _, Writer};
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
        self.note.raw_bind_parameter(1, commit.0.cast_signed())?;
        self.note.raw_bind_parameter(2, self.next_id.cast_signed())?;
        run(&mut self.note)
    }
}

impl Statements<'_> {
    fn write_row(&mut self, batch: &Batch, row: &Row) -> Result<()> {
        match row {
            Row::Put(job, body) => self.write_put(batch, job, body),
            Row::Update(job) => {
                bind_job(&mut self.update, batch, job)?;
                bind_rest(&mut self.update, batch, job)?;
                run(&mut self.update)
            }
            Row::Delete(id) => {
                self.delete.raw_bind_parameter(1, id.0.cast_signed())?;
                run(&mut self.delete)
            }
            Row::Root(tube, signature, newest, changed) => {
                bind(&mut self.root, 1, ascii(batch.text(*tube)))?;
                bind(&mut self.root, 2, batch.text(*signature))?;
                bind(&mut self.root, 3, newest.cast_signed())?;
                bind(&mut self.root, 4, *changed)?;
                run(&mut self.root)
            }
            Row::RootGone(tube, signature) => {
                bind(&mut self.root_gone, 1, ascii(batch.text(*tube)))?;
                bind(&mut self.root_gone, 2, batch.text(*signature))?;
                run(&mut self.root_gone)
            }
            Row::Setting(kind, of, value) => {
                let statement = if value.is_some() { &mut self.setting } else { &mut self.setting_gone };
                bind(statement, 1, kind)?;
                bind(statement, 2, batch.text(*of))?;
                value.iter().try_for_each(|value| bind(statement, 3, batch.text(*value)))?;
                run(statement)
            }
            // Only a database has an inbox.
            Row::Taken(..) => Ok(()),
            Row::NextId(id) => {
                self.next_id = *id;
                Ok(())
            }
        }
    }

    fn write_put(&mut self, batch: &Batch, job: &JobRow, body: &RowBody) -> Result<()> {
        let (statement, at) = if job.is_plain() { (&mut self.put_plain, 8) } else { (&mut self.put, 22) };
        bind_job(statement, batch, job)?;
        if !job.is_plain() {
            bind_rest(statement, batch, job)?;
        }
        bind(statement, at, batch.commit.0.cast_signed())?;
        bind(statement, at + 1, batch.body(body))?;
        run(statement)
    }
}

/// Binds the values that every job has.
fn bind_job(statement: &mut Statement<'_>, batch: &Batch, job: &JobRow) -> Result<()> {
    bind(statement, 1, job.id.0.cast_signed())?;
    bind(statement, 2, ascii(batch.text(job.tube)))?;
    bind(statement, 3, job.pri)?;
    bind(statement, 4, job.delay)?;
    bind(statement, 5, job.ttr)?;
    bind(statement, 6, job.created)?;
    bind(statement, 7, job.delayed_until)
}

/// Binds the values that few jobs have.
fn bind_rest(statement: &mut Statement<'_>, batch: &Batch, job: &JobRow) -> Result<()> {
    let some = |text: Text| (!text.is_empty()).then(|| batch.text(text));
    let numbers = [
        job.reserves,
        job.history.timeouts,
        job.history.releases,
        job.history.buries,
        job.history.kicks,
        job.history.attempts,
    ];
    bind(statement, 8, job.is_buried)?;
    (9..).zip(numbers).try_for_each(|(at, number)| bind(statement, at, number.get()))?;
    bind(statement, 15, some(job.key))?;
    bind(statement, 16, job.until == Until::Deleted)?;
    bind(statement, 17, job.root.map(|(signature, _)| batch.text(signature)))?;
    bind(statement, 18, job.root.map(|(_, timestamp)| timestamp.cast_signed()))?;
    bind(statement, 19, some(job.group))?;
    bind(statement, 20, some(job.error))?;
    bind(statement, 21, some(job.origin))
}

fn bind(statement: &mut Statement<'_>, at: usize, value: impl ToSql) -> Result<()> {
    statement.raw_bind_parameter(at, value)
}

fn run(statement: &mut Statement<'_>) -> Result<()> {
    statement.raw_execute().map(drop)
}

/// Returns the name of a tube as text. Names of tubes are ASCII.
fn ascii(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}
