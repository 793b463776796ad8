//! Reading of rows of the database into a page.

use super::session::{SqlSession, Trouble};
use super::statements as sql;
use crate::state::{History, JobId, SettingKind, Until};
use crate::store::batch::{Batch, JobRow, Row, RowBody, UNFINISHED, UNFINISHED_KIND};
use tokio_postgres::Error;

/// Adds the number of the next job.
pub fn add_next_id(page: &mut Batch, next_id: u64) {
    page.rows.push(Row::NextId(next_id));
}

/// Adds a setting. A setting of an unknown kind is left out: its format is unknown, too.
pub fn add_setting(page: &mut Batch, row: &tokio_postgres::Row) -> Result<(), Error> {
    let kind: &str = row.try_get(0)?;
    let (pattern, value) = (page.note(row.try_get(1)?), page.note(row.try_get(2)?));
    if let Some(kind) = SettingKind::WORDS.into_iter().find(|known| *known == kind) {
        page.rows.push(Row::Setting(kind, pattern, Some(value)));
    }
    Ok(())
}

/// Refuses a database that has only a part of a copy.
pub async fn refuse_unfinished(session: &SqlSession) -> Result<(), Trouble> {
    refuse_part(&session.client.query(&session.prepared(sql::SETTINGS).await?, &[]).await?)
}

/// Refuses a database with these settings if it has only a part of a copy.
pub fn refuse_part(settings: &[tokio_postgres::Row]) -> Result<(), Trouble> {
    let is_mark = |row: &tokio_postgres::Row| row.try_get(0).is_ok_and(|kind: &str| kind == UNFINISHED_KIND);
    if settings.iter().any(is_mark) { Err(Trouble::Refused(UNFINISHED.into())) } else { Ok(()) }
}

/// Adds a root job.
pub fn add_root(page: &mut Batch, row: &tokio_postgres::Row) -> Result<(), Error> {
    let tube: &str = row.try_get(0)?;
    let (tube, signature) = (page.note(tube.as_bytes()), page.note(row.try_get(1)?));
    let newest: i64 = row.try_get(2)?;
    page.rows.push(Row::Root(tube, signature, newest.cast_unsigned(), row.try_get(3)?));
    Ok(())
}

/// Adds a job, and returns its number and its approximate size in bytes.
pub fn add_job(page: &mut Batch, row: &tokio_postgres::Row) -> Result<(u64, usize), Error> {
    let small = |column| Ok::<_, Error>(u32::try_from(row.try_get::<_, i64>(column)?).unwrap_or(u32::MAX));
    let bytes = |column| Ok::<_, Error>(row.try_get::<_, Option<&[u8]>>(column)?.unwrap_or_default());
    let (tube, body): (&str, &[u8]) = (row.try_get(1)?, row.try_get(21)?);
    let root = match row.try_get::<_, Option<&[u8]>>(16)? {
        None => None,
        Some(signature) => {
            Some((page.note(signature), row.try_get::<_, Option<i64>>(17)?.unwrap_or(0).cast_unsigned()))
        }
    };
    let id = row.try_get::<_, i64>(0)?.cast_unsigned();
    let job = JobRow {
        id: JobId(id),
        tube: page.note(tube.as_bytes()),
        pri: small(2)?,
        delay: small(3)?,
        ttr: small(4)?,
        created: row.try_get(5)?,
        delayed_until: row.try_get(6)?,
        is_buried: row.try_get(7)?,
        reserves: small(8)?.into(),
        history: History {
            timeouts: small(9)?.into(),
            releases: small(10)?.into(),
            buries: small(11)?.into(),
            kicks: small(12)?.into(),
            attempts: small(13)?.into(),
        },
        key: page.note(bytes(14)?),
        until: if row.try_get(15)? { Until::Deleted } else { Until::Reserved },
        root,
        group: page.note(bytes(18)?),
        error: page.note(bytes(19)?),
        origin: page.note(bytes(20)?),
    };
    let len = body.len() + bytes(14)?.len() + bytes(19)?.len() + size_of::<JobRow>();
    page.rows.push(Row::Put(job, RowBody::Own(body.into())));
    Ok((id, len))
}
