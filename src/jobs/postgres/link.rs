//! The connection to the database: asks what is to be asked, each thing in one round trip, and waits for the answer.

use super::load;
use super::messages::{Answer, Cursor, Fence, Reach, StoreRequest};
use super::place::{Place, said};
use super::rate::{Rate, SMALL, rate_of};
use super::renewals::Renewals;
use super::rows::Rows;
use super::session::{
    ANSWER_TIME, Parts, SqlSession, Trouble, all_of, connect, is_conflict, is_over, new_runtime, number_of, queue_text,
    refuse_shared_sessions, within,
};
use super::statements as sql;
use super::unfit::is_of_row;
use crate::store::HandedOver;
use crate::store::batch::Batch;
use crate::store::page::Page;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::Error;
use tokio_postgres::types::ToSql;

/// How long an answer may take of which much must be read or written.
const LONG_ANSWER_TIME: Duration = Duration::from_secs(120);
/// Most jobs that are read at a time.
const MOST_JOBS: i64 = 4096;
/// Bytes of jobs that are read at a time: at first, then as many as come in [`PAGE_TIME`], in these bounds.
const FIRST_PAGE: usize = 1 << 20;
const PAGE_BYTES: Range<usize> = 64 << 10..8 << 20;
const PAGE_TIME: Duration = Duration::from_millis(500);
/// Most attempts to say a transaction again at once that the server has undone because of another one.
const CONFLICTS: usize = 5;

/// A connection, or none.
pub struct Link {
    place: Place,
    address: String,
    runtime: Runtime,
    session: Option<SqlSession>,
    /// One that renews while the other has something long to do.
    second: Option<SqlSession>,
    is_rewriting: bool,
    /// True once it is known that a connection has a session of its own.
    has_own_sessions: bool,
    /// Rate at which bytes come, or go.
    rate: Arc<Rate>,
    /// Bytes of jobs that are read at a time.
    page_bytes: usize,
    /// Time that a page may take.
    page_time: Duration,
    /// The least and the greatest number of a job when the reading began.
    range: (u64, u64),
}

impl Link {
    /// No connection yet.
    ///
    /// # Errors
    ///
    /// One sentence: the system has no room for what waits.
    pub fn new(place: Place, address: String, rate: Arc<Rate>) -> Result<Link, String> {
        Ok(Link {
            place,
            address,
            runtime: new_runtime()?,
            session: None,
            second: None,
            is_rewriting: false,
            has_own_sessions: false,
            rate,
            page_bytes: FIRST_PAGE,
            page_time: LONG_ANSWER_TIME,
            range: (0, 0),
        })
    }

    /// Asks, and returns the answer. Meanwhile the lease is renewed on another connection.
    pub fn ask(&mut self, ask: &StoreRequest<'_>, renewals: &mut Renewals<'_>) -> Answer {
        let mut conflicts = 0;
        loop {
            match self.try_ask(ask, renewals) {
                Ok(answer) => return answer,
                Err(Trouble::Refused(sentence)) => {
                    self.end_sessions();
                    return Answer::Refused(sentence);
                }
                Err(Trouble::TooLate) => {
                    self.end_sessions();
                    return Answer::Silent;
                }
                Err(Trouble::Failed(error)) => {
                    conflicts += 1;
                    if is_conflict(&error) && conflicts <= CONFLICTS && !self.is_rewriting {
                        continue;
                    }
                    // A transaction that was to be written bit by bit is undone with its connection.
                    if self.is_rewriting || is_over(&error) || self.session.as_ref().is_none_or(SqlSession::is_closed) {
                        self.end_sessions();
                    }
                    return Answer::Failed { sentence: said(&error), is_connected: self.session.is_some() };
                }
            }
        }
    }

    /// Returns how far the server's clock is ahead of this machine's, in microseconds.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.session.as_ref().map(|session| session.ahead)
    }

    fn end_sessions(&mut self) {
        let sessions = [self.session.take(), self.second.take()];
        sessions.into_iter().flatten().for_each(|session| self.runtime.block_on(session.end()));
    }

    fn try_ask(&mut self, ask: &StoreRequest<'_>, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        if !matches!(
            ask,
            StoreRequest::BeginAnew | StoreRequest::WriteAnew(..) | StoreRequest::EndAnew(..) | StoreRequest::Renew(_)
        ) && self.is_rewriting
        {
            self.is_rewriting = false;
        }
        match ask {
            StoreRequest::Connect => {
                self.end_sessions();
                self.is_rewriting = false;
                let session = within(&self.runtime, ANSWER_TIME, connect(&self.place))?;
                if !self.has_own_sessions {
                    within(&self.runtime, ANSWER_TIME, refuse_shared_sessions(&session, &self.place))?;
                    self.has_own_sessions = true;
                }
                self.session = Some(session);
                Ok(Answer::Done)
            }
            StoreRequest::Renew(epoch) if self.is_rewriting => self.renew_beside(*epoch),
            StoreRequest::BeginAnew => {
                self.is_rewriting = true;
                self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
                    session.prepare(sql::OF_BATCH).await?;
                    session.client.batch_execute(sql::BEGIN_ANEW).await?;
                    Ok(Answer::Done)
                })
            }
            StoreRequest::WriteAnew(batch) => {
                let rows = Rows::of(batch);
                self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
                    all_of(session.write(&rows)).await?;
                    Ok(Answer::Done)
                })
            }
            StoreRequest::EndAnew(fence, next_id) => {
                let answer = self.run_long(LONG_ANSWER_TIME, renewals, |session, address| async move {
                    let is_set = session.fence(fence, *next_id, address).await?;
                    // One that has failed is undone by that.
                    session.client.batch_execute(sql::COMMIT).await?;
                    Ok(Answer::Committed(is_set, session.reach()))
                })?;
                self.is_rewriting = false;
                Ok(answer)
            }
            StoreRequest::Commit(fence, batch) => match self.commit(fence, batch, renewals) {
                Err(Trouble::Failed(error)) if is_of_row(&error) => self.find_unfit(fence, batch, error, renewals),
                answer => answer,
            },
            StoreRequest::Read(cursor) => self.read(*cursor, renewals),
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
            self.end_sessions();
            return;
        }
        let released = self.run(ANSWER_TIME, |session, address| async move {
            let params: [&(dyn ToSql + Sync); 2] = [&epoch.cast_signed(), &address];
            session.client.execute(&session.prepared(sql::RELEASE).await?, &params).await?;
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

    /// The same, for what may take longer than the lease.
    fn run_long<'a, T, F>(
        &'a mut self,
        time: Duration,
        renewals: &mut Renewals<'_>,
        ask: impl FnOnce(&'a SqlSession, &'a str) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, Trouble>>,
    {
        let Link { place, address, runtime, session, second, .. } = self;
        let Some(session) = session else { return Err(Trouble::TooLate) };
        session.forget_warning();
        within(runtime, time, renewals.beside(ask(session, address), second, place, address))
    }

    fn take(&mut self, statement: &'static str, of: &[&(dyn ToSql + Sync)]) -> Result<Answer, Trouble> {
        (self.page_bytes, self.page_time) = (FIRST_PAGE, LONG_ANSWER_TIME);
        self.run(ANSWER_TIME, |session, address| async move {
            let mut params: Vec<&(dyn ToSql + Sync)> = vec![&address];
            params.extend(of);
            let taken = session.client.execute(&session.prepared(statement).await?, &params).await?;
            let reach = session.reach();
            let row = session.look().await?;
            Ok(if taken == 0 { Answer::Seen(row) } else { Answer::Took(row, reach) })
        })
    }

    /// Renews on another connection: the first is in the middle of a transaction.
    fn renew_beside(&mut self, epoch: u64) -> Result<Answer, Trouble> {
        if self.second.as_ref().is_none_or(SqlSession::is_closed) {
            self.second = Some(within(&self.runtime, ANSWER_TIME, connect(&self.place))?);
        }
        let Some(second) = &self.second else { return Err(Trouble::TooLate) };
        second.forget_warning();
        within(&self.runtime, ANSWER_TIME, second.renew(epoch, &self.address))
    }

    /// Commits a batch in one round trip. Its time is what its bytes take twice, at the rate of late; so one that is too late has more
    /// of it when it is sent again.
    fn commit(&mut self, fence: &Fence, batch: &Batch, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let (rows, bytes) = (Rows::of(batch), batch.bytes());
        let time = ANSWER_TIME + self.rate.time_of(bytes) * 2;
        let begin =
            if bytes < SMALL { sql::BEGIN.into() } else { format!("{}; {}", sql::BEGIN, sql::idle_limit(time)) };
        let begun = Instant::now();
        let answer = self.run_long(time, renewals, |session, address| async move {
            let client = &session.client;
            session.prepare(sql::OF_BATCH).await?;
            let mut parts: Parts<'_> = vec![Box::pin(async { client.batch_execute(&begin).await.map(|()| 0) })];
            parts.extend(session.write(&rows));
            parts.push(Box::pin(async { session.fence(fence, batch.next_id(), address).await.map(u64::from) }));
            // A transaction that has failed is undone by that.
            parts.push(Box::pin(async { client.batch_execute(sql::COMMIT).await.map(|()| 0) }));
            let counts = all_of(parts).await?;
            let is_set = counts.iter().rev().nth(1) == Some(&1);
            Ok(Answer::Committed(is_set, session.reach()))
        });
        match &answer {
            Ok(_) => self.rate.note(bytes, begun.elapsed()),
            Err(Trouble::TooLate) => self.rate.halve(),
            Err(_) => {}
        }
        answer
    }

    /// Finds rows of a batch that the database can never take. `error` is what it says of the whole batch: of one that was taken over
    /// from, which has the numbers of others, it says nothing.
    fn find_unfit(
        &mut self,
        fence: &Fence,
        batch: &Batch,
        error: Error,
        renewals: &mut Renewals<'_>,
    ) -> Result<Answer, Trouble> {
        self.run_long(LONG_ANSWER_TIME, renewals, |session, address| async move {
            session.client.batch_execute(sql::BEGIN).await?;
            let is_owner = session.fence(fence, None, address).await?;
            session.client.batch_execute(sql::ROLLBACK).await?;
            if !is_owner {
                return Ok(Answer::Committed(false, Reach::Kept));
            }
            let unfit = session.unfit_of(batch).await?;
            if unfit.is_empty() { Err(error.into()) } else { Ok(Answer::Unfit(unfit)) }
        })
    }

    fn read(&mut self, cursor: Cursor, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let mut page = Page::default();
        let after = match cursor {
            Cursor::Start => {
                let range = self.read_start(&mut page, renewals)?;
                self.range = range;
                return Ok(Answer::Page(page, Cursor::After(0)));
            }
            Cursor::After(id) => id,
        };
        let (most, begun) = (i64::try_from(self.page_bytes).unwrap_or(i64::MAX), Instant::now());
        let rows = self.run_long(self.page_time, renewals, |session, _| async move {
            let params: [&(dyn ToSql + Sync); 3] = [&after.cast_signed(), &MOST_JOBS, &most];
            Ok(session.client.query(&session.prepared(sql::JOBS).await?, &params).await?)
        });
        // A job of a gigabyte may need more.
        self.page_time = if let Err(Trouble::TooLate) = rows { self.page_time * 2 } else { LONG_ANSWER_TIME };
        let rows = rows?;
        let took = begun.elapsed();
        let (mut last, mut bytes) = (after, 0);
        for row in &rows {
            let (id, len) = load::add_job(&mut page.rows, row)?;
            last = id;
            bytes += len;
        }
        let (first, end) = self.range;
        // No other daemon adds jobs meanwhile.
        page.is_last = rows.is_empty() || last >= end;
        page.share = last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64;
        page.share = page.share.min(1.0);
        if let Some(rate) = rate_of(bytes, took) {
            self.page_bytes = (rate * PAGE_TIME.as_secs_f64()) as usize;
            self.page_bytes = self.page_bytes.clamp(PAGE_BYTES.start, PAGE_BYTES.end);
        }
        Ok(Answer::Page(page, Cursor::After(last)))
    }

    /// Reads what comes before the jobs, and returns their least and greatest number.
    fn read_start(&mut self, page: &mut Page, renewals: &mut Renewals<'_>) -> Result<(u64, u64), Trouble> {
        let (settings, roots, range, row) = self.run_long(LONG_ANSWER_TIME, renewals, |session, _| async move {
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
