//! The connection to the database: asks what is to be asked, each thing in one round trip, and waits for the answer.

use super::load;
use super::messages::{Answer, Cursor, Fence, Reach, StoreRequest};
use super::place::{Place, said};
use super::rows::Rows;
use super::session::{
    ANSWER_TIME, Parts, SqlSession, Trouble, all_of, changed, connect, is_over, new_runtime, number_of, queue_text,
    within,
};
use super::statements as sql;
use super::unfit::is_of_row;
use crate::store::HandedOver;
use crate::store::batch::Batch;
use crate::store::page::Page;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

/// How long an answer may take of which much must be read or written.
const LONG_ANSWER_TIME: Duration = Duration::from_secs(120);
/// How much of jobs is read at a time, and how many of them at least and at most.
const PAGE_BYTES: usize = 2 << 20;
const FEWEST_JOBS: i64 = 16;
const MOST_JOBS: i64 = 4096;

/// A connection, or none.
pub struct Link {
    place: Place,
    address: String,
    runtime: Runtime,
    session: Option<SqlSession>,
    /// One that renews while the other has a long transaction.
    second: Option<SqlSession>,
    is_rewriting: bool,
    /// How many jobs are read at a time.
    page_jobs: i64,
    /// The least and the greatest number of a job when the reading began.
    range: (u64, u64),
}

impl Link {
    /// No connection yet.
    ///
    /// # Errors
    ///
    /// One sentence: the system has no room for what waits.
    pub fn new(place: Place, address: String) -> Result<Link, String> {
        let runtime = new_runtime()?;
        let (session, second) = (None, None);
        let page_jobs = MOST_JOBS / 4;
        Ok(Link { place, address, runtime, session, second, is_rewriting: false, page_jobs, range: (0, 0) })
    }

    /// Asks, and returns the answer.
    pub fn ask(&mut self, ask: &StoreRequest<'_>) -> Answer {
        match self.try_ask(ask) {
            Ok(answer) => answer,
            Err(Trouble::Refused(sentence)) => Answer::Refused(sentence),
            Err(Trouble::TooLate) => {
                self.session = None;
                Answer::Failed { sentence: "the database does not answer".into(), is_connected: false }
            }
            Err(Trouble::Failed(error)) => {
                // A transaction that was to be written bit by bit is undone with its connection.
                if self.is_rewriting || is_over(&error) || self.session.as_ref().is_none_or(SqlSession::is_closed) {
                    self.session = None;
                }
                Answer::Failed { sentence: said(&error), is_connected: self.session.is_some() }
            }
        }
    }

    fn try_ask(&mut self, ask: &StoreRequest<'_>) -> Result<Answer, Trouble> {
        if !matches!(
            ask,
            StoreRequest::BeginAnew | StoreRequest::WriteAnew(..) | StoreRequest::EndAnew(..) | StoreRequest::Renew(_)
        ) && self.is_rewriting
        {
            (self.is_rewriting, self.second) = (false, None);
        }
        match ask {
            StoreRequest::Connect => {
                (self.session, self.second, self.is_rewriting) = (None, None, false);
                self.session = Some(connect(&self.runtime, &self.place)?);
                Ok(Answer::Done)
            }
            StoreRequest::Renew(epoch) if self.is_rewriting => self.renew_beside(*epoch),
            StoreRequest::BeginAnew => {
                self.is_rewriting = true;
                self.run(LONG_ANSWER_TIME, |session, _| async move {
                    session.client.batch_execute(sql::BEGIN_ANEW).await?;
                    Ok(Answer::Done)
                })
            }
            StoreRequest::WriteAnew(left, batch) => {
                let rows = Rows::of(batch);
                self.run(LONG_ANSWER_TIME, |session, address| async move {
                    all_of(session.write(&rows, left, address)).await?;
                    Ok(Answer::Done)
                })
            }
            StoreRequest::EndAnew(fence, next_id) => {
                let next_id = *next_id;
                let answer = self.run(LONG_ANSWER_TIME, |session, address| async move {
                    let set = session.client.simple_query(&sql::set_row(fence, next_id, address)).await?;
                    if changed(&set) != 1 {
                        session.client.batch_execute(sql::ROLLBACK).await?;
                        return Ok(Answer::Committed(false, Reach::Kept));
                    }
                    session.client.batch_execute(sql::COMMIT).await?;
                    Ok(Answer::Committed(true, session.reach()))
                })?;
                (self.is_rewriting, self.second) = (false, None);
                Ok(answer)
            }
            StoreRequest::Commit(fence, batch) => match self.commit(fence, batch) {
                Err(Trouble::Failed(error)) if is_of_row(&error) => self.find_unfit(fence, batch, error),
                answer => answer,
            },
            StoreRequest::Read(cursor) => self.read(*cursor),
            StoreRequest::TakeOver => self.take(sql::TAKE_OVER, &[]),
            StoreRequest::GoOn(handed_over) => {
                let HandedOver { mark, queue, address, .. } = handed_over;
                let (address, queue) =
                    (address.as_deref().unwrap_or_default(), queue.map(queue_text).unwrap_or_default());
                self.take(sql::GO_ON, &[&mark.opening.cast_signed(), &address, &queue])
            }
            StoreRequest::Retake(epoch, queue) => self.take(sql::RETAKE, &[&epoch.cast_signed(), &queue_text(*queue)]),
            StoreRequest::Renew(epoch) => {
                let epoch = *epoch;
                self.run(ANSWER_TIME, |session, address| session.renew(epoch, address))
            }
            StoreRequest::Look => self.run(ANSWER_TIME, |session, _| async { Ok(Answer::Seen(session.look().await?)) }),
        }
    }

    /// Says that the owner ends, as well as that can be.
    pub fn release(&mut self, epoch: u64) {
        if self.is_rewriting {
            self.session = None;
            return;
        }
        let released = self.run(ANSWER_TIME, |session, address| async move {
            let params: [&(dyn ToSql + Sync); 2] = [&epoch.cast_signed(), &address];
            session.client.execute(session.prepared(sql::RELEASE), &params).await?;
            Ok(Answer::Done)
        });
        if released.is_err() {
            log::warn!(
                "the database was not told that this daemon ends: another takes over in {} s",
                super::LEASE_SECONDS
            );
        }
    }

    fn run<'a, F>(&'a self, time: Duration, ask: impl FnOnce(&'a SqlSession, &'a str) -> F) -> Result<Answer, Trouble>
    where
        F: Future<Output = Result<Answer, Trouble>>,
    {
        let Some(session) = &self.session else { return Err(Trouble::TooLate) };
        session.forget_warning();
        within(&self.runtime, time, ask(session, &self.address))
    }

    fn take(&mut self, statement: &'static str, of: &[&(dyn ToSql + Sync)]) -> Result<Answer, Trouble> {
        self.page_jobs = MOST_JOBS / 4;
        self.run(ANSWER_TIME, |session, address| async move {
            let mut params: Vec<&(dyn ToSql + Sync)> = vec![&address];
            params.extend(of);
            let taken = session.client.execute(session.prepared(statement), &params).await?;
            let reach = session.reach();
            let row = session.look().await?;
            Ok(if taken == 0 { Answer::Seen(row) } else { Answer::Took(row, reach) })
        })
    }

    /// Renews on another connection: the first is in the middle of a transaction.
    fn renew_beside(&mut self, epoch: u64) -> Result<Answer, Trouble> {
        if self.second.as_ref().is_none_or(SqlSession::is_closed) {
            self.second = Some(connect(&self.runtime, &self.place)?);
        }
        let Some(second) = &self.second else { return Err(Trouble::TooLate) };
        second.forget_warning();
        within(&self.runtime, ANSWER_TIME, second.renew(epoch, &self.address))
    }

    fn commit(&mut self, fence: &Fence, batch: &Batch) -> Result<Answer, Trouble> {
        let rows = Rows::of(batch);
        let begin = sql::fence(fence, batch.next_id(), &self.address);
        self.run(ANSWER_TIME, |session, address| async move {
            let client = &session.client;
            let mut parts: Parts<'_> = vec![Box::pin(async { Ok(changed(&client.simple_query(&begin).await?)) })];
            parts.extend(session.write(&rows, fence, address));
            parts.push(Box::pin(async { client.batch_execute(sql::COMMIT).await.map(|()| 0) }));
            let counts = all_of(parts).await?;
            Ok(Answer::Committed(counts.first() == Some(&1), session.reach()))
        })
    }

    /// Finds rows of a batch that the database can never take. `error` is what it says of the whole batch.
    fn find_unfit(&mut self, fence: &Fence, batch: &Batch, error: Error) -> Result<Answer, Trouble> {
        let begin = sql::fence(fence, batch.next_id(), &self.address);
        self.run(LONG_ANSWER_TIME, |session, address| async move {
            let unfit = session.unfit_of(batch, &begin, fence, address).await?;
            if unfit.is_empty() { Err(error.into()) } else { Ok(Answer::Unfit(unfit)) }
        })
    }

    fn read(&mut self, cursor: Cursor) -> Result<Answer, Trouble> {
        let mut page = Page::default();
        let after = match cursor {
            Cursor::Start => {
                let range = self.read_start(&mut page)?;
                self.range = range;
                return Ok(Answer::Page(page, Cursor::After(0)));
            }
            Cursor::After(id) => id,
        };
        let limit = self.page_jobs;
        let Some(session) = &self.session else { return Err(Trouble::TooLate) };
        let rows = within(&self.runtime, LONG_ANSWER_TIME, async {
            let params: [&(dyn ToSql + Sync); 2] = [&after.cast_signed(), &limit];
            Ok(session.client.query(session.prepared(sql::JOBS), &params).await?)
        })?;
        let (mut last, mut bytes) = (after, 0);
        for row in &rows {
            let (id, len) = load::add_job(&mut page.rows, row)?;
            last = id;
            bytes += len;
        }
        page.is_last = (rows.len() as i64) < limit;
        let (first, end) = self.range;
        page.share = last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64;
        page.share = page.share.min(1.0);
        let mean = bytes / rows.len().max(1) + 1;
        self.page_jobs = i64::try_from(PAGE_BYTES / mean).unwrap_or(MOST_JOBS).clamp(FEWEST_JOBS, MOST_JOBS);
        Ok(Answer::Page(page, Cursor::After(last)))
    }

    /// Reads what comes before the jobs, and returns their least and greatest number.
    fn read_start(&self, page: &mut Page) -> Result<(u64, u64), Trouble> {
        let Some(session) = &self.session else { return Err(Trouble::TooLate) };
        let (settings, roots, range, row) = within(&self.runtime, LONG_ANSWER_TIME, async {
            let client = &session.client;
            let settings = client.query(sql::SETTINGS, &[]).await?;
            let roots = client.query(sql::ROOTS, &[]).await?;
            let range = client.query_one(sql::RANGE, &[]).await?;
            Ok((settings, roots, range, session.look().await?))
        })?;
        load::add_next_id(&mut page.rows, row.next_id);
        settings.iter().try_for_each(|row| load::add_setting(&mut page.rows, row))?;
        roots.iter().try_for_each(|row| load::add_root(&mut page.rows, row))?;
        let number = |column| number_of(range.try_get(column)?, "number of a job");
        Ok((number(0)?, number(1)?))
    }
}
