//! Reading of all jobs of a file, page by page.

use crate::state::Record;
use crate::store::batch::UNFINISHED_KIND;
use crate::store::columns::{COLUMNS, Field, Named};
use crate::store::page::{Page, SLICE_BYTES, SLICE_ROWS};
use crate::store::{Commit, Jobs, Mark};
use poolcounter_store::sqlite::{Pages, Trouble};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// Reader of a file, with the page that it fills.
struct PageReader<'a, 'w> {
    pages: &'a mut Pages<'w, Jobs>,
    page: Page,
    bytes: usize,
}

/// Sends the settings to the loop, then the root jobs, then the jobs by their numbers.
pub fn read(pages: &mut Pages<'_, Jobs>, connection: &Connection, mark: Mark) -> Result<(), Trouble> {
    let page = Page::first(Commit(mark.batch), mark.next_id);
    let mut reader = PageReader { pages, page, bytes: 0 };
    reader.read_named(connection, Named::Setting)?;
    reader.send(0.0)?;
    reader.read_named(connection, Named::Root)?;
    reader.read_jobs(connection)?;
    reader.page.is_last = true;
    reader.send(1.0)
}

impl PageReader<'_, '_> {
    fn read_named(&mut self, connection: &Connection, table: Named) -> Result<(), Trouble> {
        let mut statement = connection.prepare(&table.all())?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let name = [bytes(row, 0)?, bytes(row, 1)?];
            // The mark of a copy is none of its settings.
            if table == Named::Root || name[0] != UNFINISHED_KIND.as_bytes() {
                self.page.rows.add_named(table, name, bytes(row, 2)?);
            }
            // All settings are in the first page.
            if table == Named::Root {
                self.send_if_full(0.0)?;
            }
        }
        Ok(())
    }

    fn read_jobs(&mut self, connection: &Connection) -> Result<(), Trouble> {
        // Numbers are given out in order, so that they measure the progress. To count the jobs would be to read them
        // all.
        let (first, last) =
            connection.query_row("SELECT ifnull(min(id), 0), ifnull(max(id), 0) FROM job", [], |row| {
                Ok((row.get::<_, i64>(0)? as f64, row.get::<_, i64>(1)? as f64))
            })?;
        let mut statement = connection.prepare("SELECT * FROM job ORDER BY id")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id = self.add_job(row)?;
            self.send_if_full((id as f64 - first) / (last - first).max(1.0))?;
        }
        Ok(())
    }

    /// Adds a job to the page, and returns its number.
    fn add_job(&mut self, row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
        let (job, body) = (Record::read(|at| field(row, at))?, bytes(row, COLUMNS + 1)?);
        self.bytes += body.len();
        self.page.rows.add_read(job, body);
        Ok(job.id.0)
    }

    fn send_if_full(&mut self, share: f64) -> Result<(), Trouble> {
        let is_full = self.page.rows.rows.len() >= SLICE_ROWS || self.bytes >= SLICE_BYTES;
        if is_full { self.send(share) } else { Ok(()) }
    }

    fn send(&mut self, share: f64) -> Result<(), Trouble> {
        self.page.share = share.clamp(0.0, 1.0);
        self.bytes = 0;
        self.pages.send(std::mem::take(&mut self.page))
    }
}

fn field<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> rusqlite::Result<Field<'r>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => Field::Number(number),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Field::Bytes(bytes),
        _ => Field::Null,
    })
}

/// Returns the bytes of a text or a blob; none of a null.
fn bytes<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(&[]),
        value => Ok(value.as_bytes()?),
    }
}
