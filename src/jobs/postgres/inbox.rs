//! The inbox in the database.

use super::messages::{Answer, Inbox};
use super::place::said;
use super::session::{SqlSession, Trouble, is_over};
use super::statements as sql;
use crate::state::inbox::InboxRow;
use tokio_postgres::{Error, Row};

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
