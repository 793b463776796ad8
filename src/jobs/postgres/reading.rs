//! Reading of all jobs by one statement: pages are made of rows while the server sends further rows.

use super::load;
use super::session::SqlSession;
use super::statements as sql;
use crate::store::batch::Batch;
use futures_core::Stream;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio_postgres::{Error, RowStream};

/// Jobs, bytes of these, and time that end a page.
pub const PAGE_JOBS: usize = 4096;
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
        let rows = session.client.query_raw(&session.prepared(sql::JOBS).await?, [after.cast_signed()]).await?;
        Ok(Reading { rows: Box::pin(rows), last: after })
    }

    /// Adds the next jobs to a page, and returns whether they are the last.
    pub async fn fill(&mut self, page: &mut Batch) -> Result<bool, Error> {
        let (begun, mut bytes) = (Instant::now(), 0);
        while page.rows.len() < PAGE_JOBS && bytes < PAGE_BYTES && (bytes == 0 || begun.elapsed() < PAGE_TIME) {
            let Some(row) = poll_fn(|context| self.rows.as_mut().poll_next(context)).await.transpose()? else {
                return Ok(true);
            };
            let (id, len) = load::add_job(page, &row)?;
            (self.last, bytes) = (id, bytes + len);
        }
        Ok(false)
    }
}
