//! Reading of a whole file, page by page, so that the loop serves others between them.

use super::file::{FileTrouble, Lock, Opened, abandon};
use super::schema::QueueId;
use super::statements::Statements;
use super::worker::{HeldFile, Stop, Worker, WorkerEvent, WorkerOrder};
use crate::state::{Commit, History, JobId, Setting, Until};
use crate::store::batch::{JobRow, Row, read_setting};
use crate::store::page::{PAGES_AHEAD, Page, SLICE_BYTES, SLICE_ROWS};
use crate::store::{HandedOver, Mark};
use poolcounter_core::time::Span;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error};
use std::time::Duration;

/// Reason for which the reading ends early.
enum Unread {
    /// The daemon ends.
    Ended(Stop),
    /// The jobs cannot be read, for this reason.
    Unreadable(String),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Unread {
        Unread::Unreadable(error.to_string())
    }
}

impl From<Stop> for Unread {
    /// Turns the loss of a file into a failure to read: jobs that are only in the file cannot be written anew.
    fn from(stop: Stop) -> Unread {
        match stop {
            Stop::Ended => Unread::Ended(stop),
            Stop::Lost(sentence, _) => Unread::Unreadable(sentence),
        }
    }
}

/// Reader of a file, with the page that it fills.
struct PageReader<'a, 'c> {
    worker: &'a mut Worker,
    statements: Statements<'c>,
    held: &'a mut HeldFile,
    page: Page,
    bytes: usize,
    /// Number of pages that the loop has not taken in yet.
    ahead: usize,
}

impl Worker {
    /// Reads a file that was opened to be read, and returns it; None if it cannot be read, and is left as it is.
    pub(super) fn read(&mut self, connection: Connection, held: &mut HeldFile) -> Result<Option<Connection>, Stop> {
        match self.read_all(&connection, held) {
            Ok(()) => Ok(Some(connection)),
            Err(Unread::Ended(stop)) => Err(stop),
            Err(Unread::Unreadable(sentence)) => {
                self.report(WorkerEvent::Unreadable(sentence));
                abandon(connection);
                Ok(None)
            }
        }
    }

    /// Opens and reads the file of the previous process, for a service that has the other jobs from a handover; None if
    /// it is another file, or cannot be read. Batches are committed meanwhile.
    pub(super) fn read_on(
        &mut self,
        handed_over: &HandedOver,
        early: Option<(Lock, Opened)>,
    ) -> Result<Option<(HeldFile, Connection)>, Stop> {
        let (mut held, Opened { connection, mark, queue, .. }) = self.open_in_time(early, |_, opened| Ok(opened))?;
        let HandedOver { mark: expected, queue: expected_queue, .. } = *handed_over;
        let is_same = mark == expected || mark.is_after(expected);
        if !is_same || expected_queue.is_some_and(|expected| expected != queue) {
            self.report(WorkerEvent::Unreadable(format!(
                "it is not the file of the process before: {} {queue:032x}, and not {}",
                said(mark),
                said(expected)
            )));
            abandon(connection);
            return Ok(None);
        }
        (self.mark, self.queue, self.is_counted) = (mark, Some(queue), false);
        Ok(self.read(connection, &mut held)?.map(|connection| (held, connection)))
    }

    /// Counts this opening in the file before anything else is written. A temporary fault is tried again until it
    /// succeeds.
    pub(super) fn count_opening(
        &mut self,
        connection: &Connection,
        held: &mut HeldFile,
        id: QueueId,
    ) -> Result<(), Stop> {
        let mut pause = Worker::first_pause();
        while !std::mem::replace(&mut self.is_counted, true) {
            self.look_before(held)?;
            match self.place.note_opening(connection, id) {
                Ok((mark, queue, look)) => {
                    (self.mark, self.queue, held.look) = (mark, Some(queue), look);
                    self.report(WorkerEvent::Opened { opening: mark.opening, queue: Some(queue), look });
                }
                Err(FileTrouble::Lost(sentence)) => return Err(Stop::Lost(sentence, None)),
                Err(FileTrouble::Passing(sentence)) => {
                    self.is_counted = false;
                    self.report(WorkerEvent::Fails(sentence));
                    self.rest(&mut pause)?;
                }
            }
        }
        Ok(())
    }

    /// Sends everything to the loop: the settings, then the root jobs, then the jobs by their numbers.
    fn read_all(&mut self, connection: &Connection, held: &mut HeldFile) -> Result<(), Unread> {
        // A new file counts its opening now, an existing one once all is read.
        self.count_opening(connection, held, QueueId::Kept)?;
        let page = Page::first(Commit(self.mark.batch), self.mark.next_id);
        let statements = Statements::prepare(connection)?;
        let mut reader = PageReader { worker: self, statements, held, page, bytes: 0, ahead: 0 };
        reader.read_settings(connection)?;
        reader.read_roots(connection)?;
        reader.read_jobs(connection)?;
        reader.page.is_last = true;
        reader.send(1.0)
    }
}

impl PageReader<'_, '_> {
    fn read_settings(&mut self, connection: &Connection) -> Result<(), Unread> {
        let mut statement = connection.prepare("SELECT kind, pattern, value FROM setting")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (kind, pattern, value) =
                (row.get_ref(0)?.as_str().map_err(Error::from)?, bytes(row, 1)?, bytes(row, 2)?);
            let kind = Setting::KINDS.into_iter().find(|known| *known == kind);
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
        };
        let (id, body) = (job.id.0, bytes(row, 20)?);
        self.bytes += body.len();
        let body = page.note_body(body);
        page.rows.push(Row::Put(job, body));
        Ok(id)
    }

    fn send_if_full(&mut self, share: f64) -> Result<(), Unread> {
        let is_full = self.page.rows.rows.len() >= SLICE_ROWS || self.bytes >= SLICE_BYTES;
        if is_full { self.send(share) } else { Ok(()) }
    }

    /// Sends the page, commits the loop's batches, and waits until the loop has taken in most of the pages.
    fn send(&mut self, share: f64) -> Result<(), Unread> {
        self.page.share = share.clamp(0.0, 1.0);
        self.bytes = 0;
        self.worker.report(WorkerEvent::Page(std::mem::take(&mut self.page)));
        self.ahead += 1;
        loop {
            let patience = (self.ahead < PAGES_AHEAD).then_some(Duration::ZERO);
            match self.worker.next(patience)? {
                Some(WorkerOrder::PageTaken) => self.ahead -= 1,
                Some(WorkerOrder::Commit(batch)) => self.worker.commit(&mut self.statements, self.held, batch)?,
                Some(WorkerOrder::End) => return Err(Unread::Ended(Stop::Ended)),
                // The loop sends nothing else before all is read.
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }
}

fn said(Mark { opening, batch, next_id }: Mark) -> String {
    format!("opening {opening}, batch {batch}, next job {next_id}")
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
