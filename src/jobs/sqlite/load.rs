//! Reads all that a file has, as another process would have saved it.

use crate::state::{Commit, History, JobId, Record, Saved, Until};
use crate::store::batch::{moment, read_setting, signed};
use crate::store::{Mark, Visit};
use poolcounter_core::time::Span;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, Row};

/// How many jobs are read between two words of progress.
const JOBS_PER_WORD: u64 = 4096;

/// Visits everything, the jobs last. The error is a sentence.
pub fn load(
    connection: &Connection,
    mark: Mark,
    epoch: Span,
    visit: Visit<'_>,
    progress: &mut dyn FnMut(f64),
) -> Result<(), String> {
    let Mark { batch, next_id, .. } = mark;
    visit(Saved::Meta { next_id, committed: Commit(batch), is_draining: false, figures: Vec::new() })?;
    let mut damage = None;
    let read = |error: Error| format!("it cannot be read: {error}");
    load_settings(connection, epoch, visit).map_err(read)?.map_err(|sentence| format!("a setting: {sentence}"))?;
    load_roots(connection, epoch, visit).map_err(read)?.map_err(|sentence| format!("a root job: {sentence}"))?;
    load_jobs(connection, epoch, progress, &mut |id, saved| {
        damage = visit(saved).err().map(|sentence| format!("job {id}: {sentence}"));
        damage.is_none()
    })
    .map_err(read)?;
    damage.map_or(Ok(()), Err)
}

fn load_settings(connection: &Connection, epoch: Span, visit: Visit<'_>) -> rusqlite::Result<Result<(), &'static str>> {
    let mut statement = connection.prepare("SELECT kind, pattern, value FROM setting")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let kind = row.get_ref(0)?.as_str()?;
        let Some(setting) = read_setting(epoch, kind, bytes(row, 1)?, bytes(row, 2)?) else {
            return Ok(Err("it makes no sense"));
        };
        if let Err(sentence) = visit(Saved::Setting(setting)) {
            return Ok(Err(sentence));
        }
    }
    Ok(Ok(()))
}

fn load_roots(connection: &Connection, epoch: Span, visit: Visit<'_>) -> rusqlite::Result<Result<(), &'static str>> {
    let mut statement = connection.prepare("SELECT tube, signature, newest, changed FROM root ORDER BY changed")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let newest = number(row, 2)?.cast_unsigned();
        let changed = number(row, 3)?.saturating_sub(signed(epoch));
        if let Err(sentence) = visit(Saved::Root(bytes(row, 0)?, bytes(row, 1)?, newest, changed)) {
            return Ok(Err(sentence));
        }
    }
    Ok(Ok(()))
}

/// Visits the jobs until there are no more, or `visit` returns false.
fn load_jobs(
    connection: &Connection,
    epoch: Span,
    progress: &mut dyn FnMut(f64),
    visit: &mut dyn FnMut(u64, Saved<'_>) -> bool,
) -> rusqlite::Result<()> {
    // Numbers are given out in order, so that they tell about how far it is. To count the jobs would be to read them all.
    let (first, last) = connection.query_row("SELECT ifnull(min(id), 0), ifnull(max(id), 0) FROM job", [], |row| {
        Ok((number(row, 0)? as f64, number(row, 1)? as f64))
    })?;
    let mut statement = connection.prepare("SELECT * FROM job ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut count: u64 = 0;
    while let Some(row) = rows.next()? {
        let record = record_of(row, epoch)?;
        count += 1;
        if count.is_multiple_of(JOBS_PER_WORD) {
            progress((record.id.0 as f64 - first) / (last - first).max(1.0));
        }
        if !visit(record.id.0, Saved::Job(record, bytes(row, 20)?, None, None)) {
            return Ok(());
        }
    }
    Ok(())
}

fn record_of<'r>(row: &'r Row<'_>, epoch: Span) -> rusqlite::Result<Record<'r>> {
    let small = |column| Ok::<u32, Error>(u32::try_from(number(row, column)?).unwrap_or(u32::MAX));
    let delayed = match row.get_ref(6)? {
        ValueRef::Integer(until) => Some(moment(epoch, until)),
        _ => None,
    };
    let root = match row.get_ref(16)? {
        ValueRef::Null => None,
        signature => Some((signature.as_bytes()?, number(row, 17)?.cast_unsigned())),
    };
    Ok(Record {
        id: JobId(number(row, 0)?.cast_unsigned()),
        tube: bytes(row, 1)?,
        pri: small(2)?,
        delay: small(3)?,
        ttr: small(4)?,
        created: number(row, 5)?.saturating_sub(signed(epoch)),
        delayed,
        is_buried: number(row, 7)? != 0,
        reserves: small(8)?.into(),
        history: History {
            timeouts: small(9)?.into(),
            releases: small(10)?.into(),
            buries: small(11)?.into(),
            kicks: small(12)?.into(),
            attempts: small(13)?.into(),
        },
        key: bytes(row, 14)?,
        until: if number(row, 15)? != 0 { Until::Deleted } else { Until::Reserved },
        root,
        group: bytes(row, 18)?,
        error: bytes(row, 19)?,
    })
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(row.get_ref(column)?.as_i64()?)
}

/// Returns the bytes of a text or a blob; none of a null.
fn bytes<'r>(row: &'r Row<'_>, column: usize) -> rusqlite::Result<&'r [u8]> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(&[]),
        value => Ok(value.as_bytes()?),
    }
}
