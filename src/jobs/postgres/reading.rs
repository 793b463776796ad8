//! Rows of the inbox, and of all tables in pages: settings, root jobs, and all jobs by one statement, whose pages are made while the server
//! sends further rows.

use super::messages::{Answer, Inbox};
use super::place::said;
use super::session::{SqlSession, Trouble, is_over};
use super::statements as sql;
use crate::state::Record;
use crate::state::inbox::InboxRow;
use crate::store::batch::{Batch, JobRow, UNFINISHED, UNFINISHED_KIND};
use crate::store::columns::{COLUMNS, Field, Named};
use futures_util::StreamExt as _;
use std::error;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio_postgres::types::{FromSql, Type};
use tokio_postgres::{Error, Row, RowStream};

/// Jobs, bytes of these, and time that end a page.
const PAGE_JOBS: usize = 4096;
const PAGE_BYTES: usize = 1 << 20;
const PAGE_TIME: Duration = Duration::from_millis(500);

/// Rows of jobs that were not read yet. No other request has an answer on its connection before the last of them.
pub struct Reading {
    rows: Pin<Box<RowStream>>,
    /// The greatest number that was read.
    pub last: u64,
}

impl Reading {
    /// Begins with the first job whose number is greater than `after`.
    pub async fn begin(session: &SqlSession, after: u64) -> Result<Reading, Error> {
        let rows = session.client.query_raw(&session.prepared(&sql::JOBS).await?, [after.cast_signed()]).await?;
        Ok(Reading { rows: Box::pin(rows), last: after })
    }

    /// Adds the next jobs to a page, and returns whether they are the last.
    pub async fn fill(&mut self, page: &mut Batch) -> Result<bool, Error> {
        let (begun, mut bytes) = (Instant::now(), 0);
        while page.rows.len() < PAGE_JOBS && bytes < PAGE_BYTES && (bytes == 0 || begun.elapsed() < PAGE_TIME) {
            let Some(row) = self.rows.next().await.transpose()? else {
                return Ok(true);
            };
            let (id, len) = add_job(page, &row)?;
            (self.last, bytes) = (id, bytes + len);
        }
        Ok(false)
    }
}

/// Adds a row of a table of named values.
pub fn add_named(page: &mut Batch, table: Named, row: &Row) -> Result<(), Error> {
    page.add_named(table, [row.try_get::<_, &str>(0)?.as_bytes(), row.try_get(1)?], row.try_get(2)?);
    Ok(())
}

/// Refuses a database that has only a part of a copy.
pub async fn refuse_unfinished(session: &SqlSession) -> Result<(), Trouble> {
    refuse_part(&session.client.query(&Named::Setting.all(), &[]).await?)
}

/// Refuses a database with these settings if it has only a part of a copy.
pub fn refuse_part(settings: &[Row]) -> Result<(), Trouble> {
    let is_mark = |row: &Row| row.try_get(0).is_ok_and(|kind: &str| kind == UNFINISHED_KIND);
    if settings.iter().any(is_mark) { Err(Trouble::Refused(UNFINISHED.into())) } else { Ok(()) }
}

/// Adds a job, and returns its number and its approximate size in bytes.
fn add_job(page: &mut Batch, row: &Row) -> Result<(u64, usize), Error> {
    let (job, body) = (Record::read(|at| row.try_get(at))?, row.try_get::<_, &[u8]>(COLUMNS)?);
    page.add_read(job, body);
    Ok((job.id.0, size_of::<JobRow>() + body.len() + job.key.len() + job.error.len()))
}

impl<'a> FromSql<'a> for Field<'a> {
    fn from_sql(of: &Type, bytes: &'a [u8]) -> Result<Self, Box<dyn error::Error + Sync + Send>> {
        Ok(match *of {
            Type::INT8 => Field::Number(i64::from_sql(of, bytes)?),
            _ => Field::Bytes(bytes),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn error::Error + Sync + Send>> {
        Ok(Field::Null)
    }

    fn accepts(of: &Type) -> bool {
        [Type::INT8, Type::TEXT, Type::BYTEA].contains(of)
    }
}

impl SqlSession {
    /// Reads the first rows that wait, and the number of refused ones. A table that cannot be read holds up nothing else.
    ///
    /// # Errors
    ///
    /// Fails if the connection does.
    pub async fn read_inbox(&self) -> Result<Answer, Trouble> {
        Ok(Answer::Inbox(match self.rows_of_inbox().await {
            Err(error) if error.as_db_error().is_some() && !is_over(&error) => {
                Inbox { reason: said(&error), ..Inbox::default() }
            }
            inbox => inbox?,
        }))
    }

    async fn rows_of_inbox(&self) -> Result<Inbox, Error> {
        self.prepare([sql::INBOX, sql::INBOX_REFUSED]).await?;
        let rows = self.client.query(&self.prepared(sql::INBOX).await?, &[]).await?;
        let refused = self.client.query_one(&self.prepared(sql::INBOX_REFUSED).await?, &[]).await?;
        let number: i64 = refused.try_get(0)?;
        Ok(Inbox {
            rows: rows.iter().map(row_of).collect::<Result<_, Error>>()?,
            refused: number.unsigned_abs(),
            reason: refused.try_get::<_, Option<String>>(1)?.unwrap_or_default(),
        })
    }
}

fn row_of(row: &Row) -> Result<InboxRow, Error> {
    Ok(InboxRow {
        id: row.try_get(0)?,
        tube: row.try_get(1)?,
        numbers: [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?],
        options: row.try_get(5)?,
        body: row.try_get::<_, &[u8]>(6)?.into(),
    })
}
