//! Reading of all jobs of a file, page by page.

use crate::store::batch::Row;
use crate::store::columns::{COLUMNS, Field};
use crate::store::page::{Page, SLICE_BYTES, SLICE_ROWS};
use crate::store::{Commit, Jobs, Mark};
use poolcounter_store::sqlite::{Pages, Stop};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// Reader of a file, with the page that it fills.
struct PageReader<'a, 'w, 'c> {
    pages: &'a mut Pages<'w, 'c, Jobs>,
    page: Page,
    bytes: usize,
}

/// Sends the settings to the loop, then the root jobs, then the jobs by their numbers.
pub fn read(pages: &mut Pages<'_, '_, Jobs>, connection: &Connection, mark: Mark) -> Result<(), Stop> {
    let page = Page::first(Commit(mark.batch), mark.next_id);
    let mut reader = PageReader { pages, page, bytes: 0 };
    reader.read_settings(connection)?;
    reader.read_roots(connection)?;
    reader.read_jobs(connection)?;
    reader.page.is_last = true;
    reader.send(1.0)
}

impl PageReader<'_, '_, '_> {
    fn read_settings(&mut self, connection: &Connection) -> Result<(), Stop> {
        let mut statement = connection.prepare("SELECT kind, pattern, value FROM setting")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.page.rows.add_setting(bytes(row, 0)?, bytes(row, 1)?, bytes(row, 2)?);
        }
        self.send(0.0)
    }

    fn read_roots(&mut self, connection: &Connection) -> Result<(), Stop> {
        let mut statement = connection.prepare("SELECT tube, signature, newest, changed FROM root ORDER BY changed")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            self.page.rows.add_root(bytes(row, 0)?, bytes(row, 1)?, row.get(2)?, row.get(3)?);
            self.send_if_full(0.0)?;
        }
        Ok(())
    }

    fn read_jobs(&mut self, connection: &Connection) -> Result<(), Stop> {
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
        let page = &mut self.page.rows;
        let job = page.read_job(|column| field(row, column))?;
        let (id, body) = (job.id.0, bytes(row, COLUMNS + 1)?);
        self.bytes += body.len();
        let body = page.note_body(body);
        page.rows.push(Row::Put(job, body));
        Ok(id)
    }

    fn send_if_full(&mut self, share: f64) -> Result<(), Stop> {
        let is_full = self.page.rows.rows.len() >= SLICE_ROWS || self.bytes >= SLICE_BYTES;
        if is_full { self.send(share) } else { Ok(()) }
    }

    fn send(&mut self, share: f64) -> Result<(), Stop> {
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
