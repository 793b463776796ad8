//! Rows that the database can never take, though it takes other rows. They are sought by halves, each half in a
//! transaction that is undone. Only then is the batch committed without them: a lost answer must not leave it open which rows are
//! in it.

use super::place::said;
use super::rate::Rate;
use super::rows::Rows;
use super::session::{Parts, SqlSession, Trouble, all_of};
use super::statements as sql;
use crate::store::RefusedRow;
use crate::store::batch::{Batch, Row};
use std::time::{Duration, Instant};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// Time limit of the search for such rows of a batch once one is found. The lease is longer.
const SEARCH: Duration = Duration::from_secs(1);

/// Classes of error codes that concern the data of a row: values out of range, constraints, views that check, limits of
/// the program.
const CLASSES: [&str; 4] = ["22", "23", "44", "54"];
/// Code of an error that a function raises, such as that of a trigger added by an operator.
const RAISED: &str = "P0001";

/// Returns true if the fault is in a row: other rows can be written, and this row never.
pub fn is_of_row(error: &Error) -> bool {
    let code = error.code().map(SqlState::code);
    code.is_some_and(|code| code == RAISED || CLASSES.iter().any(|class| code.starts_with(class)))
}

impl SqlSession {
    /// Returns rows of a batch that the database can never take: all of them if that does not take long. Nothing is
    /// written.
    ///
    /// # Errors
    ///
    /// Fails with any other error of the database.
    pub async fn unfit_of(&self, batch: &Batch, rate: &Rate) -> Result<Vec<RefusedRow>, Trouble> {
        let begun = Instant::now();
        let mut unfit: Vec<RefusedRow> = Vec::new();
        let mut left = vec![(0, batch.rows.len())];
        while let Some((start, end)) = left.pop().filter(|_| unfit.is_empty() || begun.elapsed() < SEARCH) {
            let part = &batch.rows[start..end];
            let (rows, bytes) = (Rows::of_part(batch, part), batch.bytes_of(part));
            let begin = rate.begin(bytes);
            let tried = rate.send(bytes, async { Ok(self.try_out(&begin, &rows).await) }).await?;
            let Err(error) = tried else { continue };
            if !is_of_row(&error) {
                return Err(error.into());
            }
            if end - start > 1 {
                let middle = start + (end - start) / 2;
                left.extend([(middle, end), (start, middle)]);
                continue;
            }
            match batch.rows.get(start).and_then(Row::change) {
                Some(what) => unfit.push(RefusedRow { index: start, what, why: said(&error) }),
                None => return Err(error.into()),
            }
        }
        Ok(unfit)
    }

    /// Writes rows in a transaction of their own, and undoes it.
    async fn try_out(&self, begin: &str, rows: &Rows<'_>) -> Result<(), Error> {
        let client = &self.client;
        let mut parts: Parts<'_> = vec![Box::pin(async { client.batch_execute(begin).await.map(|()| 0) })];
        parts.extend(self.write(rows));
        parts.push(Box::pin(async {
            // A server that does not know this statement checks nothing with the commit.
            match client.batch_execute(sql::CHECK_AT_ONCE).await {
                Err(error) if is_of_row(&error) => Err(error),
                _ => Ok(0),
            }
        }));
        parts.push(Box::pin(async { client.batch_execute(sql::ROLLBACK).await.map(|()| 0) }));
        all_of(parts).await.map(drop)
    }
}
