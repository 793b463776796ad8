//! Reading of all jobs of a file, page by page.

use crate::state::{History, JobId, SettingKind, Until};
use crate::store::batch::{JobRow, Row, read_setting};
use crate::store::page::{Page, SLICE_BYTES, SLICE_ROWS};
use crate::store::{Commit, Jobs, Mark};
use poolcounter_core::time::Span;
use poolcounter_store::sqlite::{Pages, Unread};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error};

/// Reader of a file, with the page that it fills.
struct PageReader<'a, 'w, 'c> {
    pages: &'a mut Pages<'w, 'c, Jobs>,
    page: Page,
    bytes: usize,
}

/// Sends the settings to the loop, then the root jobs, then the jobs by their numbers.
pub fn read(pages: &mut Pages<'_, '_, Jobs>, connection: &Connection, mark: Mark) -> Result<(), Unread> {
    let page = Page::first(Commit(mark.batch), mark.next_id);
    let mut reader = PageReader { pages, page, bytes: 0 };
    reader.read_settings(connection)?;
    reader.read_roots(connection)?;
    reader.read_jobs(connection)?;
    reader.page.is_last = true;
    reader.send(1.0)
}

impl PageReader<'_, '_, '_> {
    fn read_settings(&mut self, connection: &Connection) -> Result<(), Unread> {
        let mut statement = connection.prepare("SELECT kind, pattern, value FROM setting")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (kind, pattern, value) =
                (row.get_ref(0)?.as_str().map_err(Error::from)?, bytes(row, 1)?, bytes(row, 2)?);
            let kind = SettingKind::WORDS.into_iter().find(|known| *known == kind);
            let Some(kind) = kind.filter(|kind| read_setting(Span::ZERO, kind, pattern, value).is_some()) else {
                return Err(Unread::Unreadable("a setting: it makes no sense".into()));
            };
            let rows = &mut self.page.rows;
            let setting = Row::Setting(kind, rows.note(pattern), Some(rows.note(value)));
            rows.rows.push(setting);
        }
        self.send(0.0)
    }

    fn read_roots(&mut self, connection: &Connection) -> Result<(), Unread> {
        let mut statement = connection.prepare("SELECT tube, signature, newest, changed FROM root ORDER BY changed")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let page = &mut self.page.rows;
            let (tube, signature) = (page.note(bytes(row, 0)?), page.note(bytes(row, 1)?));
            page.rows.push(Row::Root(tube, signature, number(row, 2)?.cast_unsigned(), number(row, 3)?));
            self.send_if_full(0.0)?;
        }
        Ok(())
    }

    fn read_jobs(&mut self, connection: &Connection) -> Result<(), Unread> {
        // Numbers are given out in order, so that they measure the progress. To count the jobs would be to read them
        // all.
        let (first, last) =
            connection.query_row("SELECT ifnull(min(id), 0), ifnull(max(id), 0) FROM job", [], |row| {
                Ok((number(row, 0)? as f64, number(row, 1)? as f64))
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
        let small = |column| Ok::<u32, Error>(u32::try_from(number(row, column)?).unwrap_or(u32::MAX));
        let page = &mut self.page.rows;
        let root = match row.get_ref(16)? {
            ValueRef::Null => None,
            signature => Some((page.note(signature.as_bytes()?), number(row, 17)?.cast_unsigned())),
        };
        let job = JobRow {
            id: JobId(number(row, 0)?.cast_unsigned()),
            tube: page.note(bytes(row, 1)?),
            pri: small(2)?,
            delay: small(3)?,
            ttr: small(4)?,
            created: number(row, 5)?,
            delayed_until: match row.get_ref(6)? {
                ValueRef::Integer(until) => Some(until),
                _ => None,
            },
            is_buried: number(row, 7)? != 0,
            reserves: small(8)?.into(),
            history: History {
                timeouts: small(9)?.into(),
                releases: small(10)?.into(),
                buries: small(11)?.into(),
                kicks: small(12)?.into(),
                attempts: small(13)?.into(),
            },
            key: page.note(bytes(row, 14)?),
            until: if number(row, 15)? != 0 { Until::Deleted } else { Until::Reserved },
            root,
            group: page.note(bytes(row, 18)?),
            error: page.note(bytes(row, 19)?),
            origin: page.note(bytes(row, 20)?),
        };
        let (id, body) = (job.id.0, bytes(row, 22)?);
        self.bytes += body.len();
        let body = page.note_body(body);
        page.rows.push(Row::Put(job, body));
        Ok(id)
    }

    fn send_if_full(&mut self, share: f64) -> Result<(), Unread> {
        let is_full = self.page.rows.rows.len() >= SLICE_ROWS || self.bytes >= SLICE_BYTES;
        if is_full { self.send(share) } else { Ok(()) }
    }

    fn send(&mut self, share: f64) -> Result<(), Unread> {
        self.page.share = share.clamp(0.0, 1.0);
        self.bytes = 0;
        self.pages.send(std::mem::take(&mut self.page))
    }
}

fn number(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(row.get_ref(column)?.as_i64()?)
}

/// Returns the bytes of a text or a blob; none of a null.
fn bytes<'r>(row: &'r rusqlite::Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(&[]),
        value => Ok(value.as_bytes()?),
    }
}
