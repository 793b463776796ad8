//! The connection to the database: sends each request in one round trip, and waits for the answer.

use super::messages::{Answer, Cursor, EndAnew, Fence, StoreRequest};
use super::place::{Place, said};
use super::reading::{Reading, add_named, refuse_part, refuse_unfinished};
use super::renewals::Renewals;
use super::rows::Rows;
use super::session::{
    ANSWER_TIME, Parts, SqlSession, Trouble, all_of, connect, is_conflict, is_over, new_runtime, number_of,
    refuse_shared_sessions, time_for, within,
};
use super::statements as sql;
use crate::store::HandedOver;
use crate::store::batch::{Batch, Row};
use crate::store::columns::Named;
use crate::store::page::Page;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::types::ToSql;

/// Time that an answer may take when much must be read or written.
const LONG_ANSWER_TIME: Duration = Duration::from_secs(120);
/// Bytes of a batch for which the lease is renewed on a second session, and which are on their way for some time.
const LARGE: usize = 256 << 10;
/// Time for a second session before a large request is sent.
const SECOND_TIME: Duration = Duration::from_secs(5);

/// Connection to the database, made when it is needed.
pub struct Link {
    place: Place,
    address: String,
    runtime: Runtime,
    session: Option<SqlSession>,
    /// Connection that renews the lease while the other has something long to do.
    second: Option<SqlSession>,
    is_rewriting: bool,
    /// True once each connection is known to have a session of its own.
    has_own_sessions: bool,
    /// The reading that is under way.
    reading: Option<Reading>,
    /// Time that a page may take, or the first rows of the inbox.
    read_time: Duration,
    /// Least and greatest number of a job when the reading began.
    extent: (u64, u64),
}

impl Link {
    /// Returns a link without a connection.
    ///
    /// # Errors
    ///
    /// One sentence: the system has no room for the runtime.
    pub fn new(place: Place, address: String) -> Result<Link, String> {
        Ok(Link {
            place,
            address,
            runtime: new_runtime()?,
            session: None,
            second: None,
            is_rewriting: false,
            has_own_sessions: false,
            reading: None,
            read_time: LONG_ANSWER_TIME,
            extent: (0, 0),
        })
    }

    /// Sends a request and returns the answer. Meanwhile the lease is renewed on another connection.
    pub fn ask(&mut self, ask: &StoreRequest<'_>, renewals: &mut Renewals<'_>) -> Answer {
        let mut answer = self.try_ask(ask, renewals);
        // An application that changes rows of the inbox meanwhile can be in the way once.
        if matches!(&answer, Err(Trouble::Failed(error)) if is_conflict(error) && !self.is_rewriting) {
            answer = self.try_ask(ask, renewals);
        }
        match answer {
            Ok(answer) => answer,
            Err(Trouble::Refused(sentence)) => {
                self.end_sessions();
                Answer::Refused(sentence)
            }
            Err(Trouble::TooLate) => {
                self.end_sessions();
                Answer::Silent
            }
            Err(Trouble::Failed(error)) => {
                // A transaction that is written in slices is undone with its connection.
                if self.is_rewriting || is_over(&error) || self.session.as_ref().is_none_or(SqlSession::is_closed) {
                    self.end_sessions();
                }
                Answer::Failed { sentence: said(&error), is_connected: self.session.is_some() }
            }
        }
    }

    /// Returns by how many microseconds the server's clock is ahead of this machine's.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.session.as_ref().map(|session| session.ahead)
    }

    /// Waits for an order of the loop, for news in the inbox, and at most for this time.
    pub fn wait(&self, most: Duration) {
        self.place.bell.wait(&self.runtime, most);
    }

    /// Returns whether the inbox has had news since the last call.
    pub fn take_news(&self) -> bool {
        self.place.bell.take_news()
    }

    fn end_sessions(&mut self) {
        self.reading = None;
        let sessions = [self.session.take(), self.second.take()];
        sessions.into_iter().flatten().for_each(|session| self.runtime.block_on(session.end()));
    }

    fn try_ask(&mut self, ask: &StoreRequest<'_>, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        self.is_rewriting &= matches!(ask, StoreRequest::WriteAnew { .. } | StoreRequest::Renew(_));
        if !matches!(ask, StoreRequest::Connect | StoreRequest::Read(_) | StoreRequest::Renew(_)) {
            self.stop_reading()?;
        }
        match ask {
            StoreRequest::Connect => self.connect(),
            StoreRequest::Renew(epoch) if self.is_rewriting || self.reading.is_some() => self.renew_beside(*epoch),
            StoreRequest::WriteAnew { is_first, slice, end } => self.write_anew(*is_first, slice, *end, renewals),
            StoreRequest::ReadInbox => {
                let read = self.run_long(self.read_time, renewals, |session, _| session.read_inbox());
                self.note_read(read)
            }
            StoreRequest::Commit(fence, batch) => self.commit(fence, batch, renewals),
            StoreRequest::Read(cursor) => {
                let read = match *cursor {
                    Cursor::Start => self.read_named(renewals),
                    Cursor::After(after) => self.read_jobs(after, renewals),
                };
                self.note_read(read)
            }
            StoreRequest::TakeOver => self.take(sql::TAKE_OVER, &[]),
            StoreRequest::GoOn(handed_over) => {
                let HandedOver { mark, queue, address, .. } = handed_over;
                let (address, queue) =
                    (address.as_deref().unwrap_or_default(), queue.map(digits_of).unwrap_or_default());
                self.take(sql::GO_ON, &[&mark.opening.cast_signed(), &address, &queue])
            }
            StoreRequest::Retake(epoch, queue) => self.take(sql::RETAKE, &[&epoch.cast_signed(), &digits_of(*queue)]),
            StoreRequest::Renew(epoch) => {
                let epoch = *epoch;
                self.run(ANSWER_TIME, |session, address| session.renew(epoch, address))
            }
            StoreRequest::Look => self.run(ANSWER_TIME, |session, _| async { Ok(Answer::Seen(session.look().await?)) }),
        }
    }

    fn connect(&mut self) -> Result<Answer, Trouble> {
        self.end_sessions();
        self.is_rewriting = false;
        let session = within(&self.runtime, ANSWER_TIME, connect(&self.place))?;
        if !self.has_own_sessions {
            within(&self.runtime, ANSWER_TIME, refuse_shared_sessions(&session, &self.place))?;
            self.has_own_sessions = true;
        }
        within(&self.runtime, ANSWER_TIME, refuse_unfinished(&session))?;
        self.session = Some(session);
        Ok(Answer::Done)
    }

    /// Ends a reading that is under way, with its connection: an answer would wait for the rest of the rows.
    fn stop_reading(&mut self) -> Result<(), Trouble> {
        if self.reading.is_some() {
            self.connect()?;
        }
        Ok(())
    }

    /// Writes a slice in the transaction that writes everything anew, which begins with the first slice and is committed with
    /// the last.
    fn write_anew(
        &mut self,
        is_first: bool,
        slice: &Batch,
        end: Option<EndAnew<'_>>,
        renewals: &mut Renewals<'_>,
    ) -> Result<Answer, Trouble> {
        let time = time_for(slice.bytes());
        if is_first {
            self.make_second(renewals);
        }
        self.is_rewriting = true;
        let (slice, taken) =
            (&Rows::of(slice), &end.and_then(|end| end.taken).map_or_else(Rows::default, Rows::of_inbox));
        let answer = self.run_long(LONG_ANSWER_TIME.max(time), renewals, |session, address| async move {
            let client = &session.client;
            if is_first {
                session.prepare(sql::of_batch()).await?;
                client.batch_execute(sql::BEGIN_ANEW).await?;
            }
            client.batch_execute(&sql::idle_limit(time)).await?;
            all_of(session.write(slice)).await?;
            let Some(EndAnew { fence, next_id, .. }) = end else { return Ok(Answer::Done) };
            all_of(session.write(taken)).await?;
            let is_set = session.fence(&fence, next_id, address).await?;
            // A failed statement has undone the transaction.
            client.batch_execute(sql::COMMIT).await?;
            Ok(Answer::Committed(is_set, session.reach()))
        })?;
        self.is_rewriting = end.is_none();
        Ok(answer)
    }

    /// Releases the queue on a best effort, as the owner ends.
    pub fn release(&mut self, epoch: u64) {
        if self.is_rewriting {
            self.end_sessions();
            return;
        }
        // If there is no other connection, the next statement fails.
        let _ = self.stop_reading();
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

    /// Runs a request that may take longer than the lease.
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
        self.run(ANSWER_TIME, |session, address| async move {
            let mut params: Vec<&(dyn ToSql + Sync)> = vec![&address];
            params.extend(of);
            let taken = session.client.execute(&session.prepared(statement).await?, &params).await?;
            let reach = session.reach();
            let row = session.look().await?;
            Ok(if taken == 0 { Answer::Seen(row) } else { Answer::Took(row, reach) })
        })
    }

    /// Renews the lease on another connection: the first is in the middle of a transaction.
    fn renew_beside(&mut self, epoch: u64) -> Result<Answer, Trouble> {
        if self.second.as_ref().is_none_or(SqlSession::is_closed) {
            self.second = Some(within(&self.runtime, ANSWER_TIME, connect(&self.place))?);
        }
        let Some(second) = &self.second else { return Err(Trouble::TooLate) };
        second.forget_warning();
        within(&self.runtime, ANSWER_TIME, second.renew(epoch, &self.address))
    }

    /// Makes the second session before much is sent, which takes many round trips of a link that is not full yet. The
    /// first renews the lease meanwhile.
    fn make_second(&mut self, renewals: &mut Renewals<'_>) {
        if self.second.as_ref().is_none_or(SqlSession::is_closed) {
            let Link { place, address, runtime, session, second, .. } = self;
            *second = within(runtime, SECOND_TIME, renewals.beside(connect(place), session, place, address)).ok();
        }
    }

    /// Commits a batch in one round trip, and one of a single kind of changes by one statement.
    fn commit(&mut self, fence: &Fence, batch: &Batch, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let (rows, limit) = (Rows::of(batch), time_for(batch.bytes()));
        let mut begin = sql::BEGIN.to_string();
        if batch.bytes() >= LARGE {
            self.make_second(renewals);
            // The daemon has not stopped while its bytes are on their way.
            begin = format!("{begin}; {}", sql::idle_limit(limit));
        }
        let (rows, begin) = (&rows, &begin);
        self.run_long(limit, renewals, |session, address| async move {
            let client = &session.client;
            session.prepare(sql::of_batch()).await?;
            if session.commit_at_once(rows, fence, batch.next_id(), address).await? {
                return Ok(Answer::Committed(true, session.reach()));
            }
            let mut parts: Parts<'_> = vec![Box::pin(async { client.batch_execute(begin).await.map(|()| 0) })];
            parts.extend(session.write(rows));
            parts.push(Box::pin(async { session.fence(fence, batch.next_id(), address).await.map(u64::from) }));
            // A failed statement has undone the transaction.
            parts.push(Box::pin(async { client.batch_execute(sql::COMMIT).await.map(|()| 0) }));
            let counts = all_of(parts).await?;
            let is_set = counts.iter().rev().nth(1) == Some(&1);
            Ok(Answer::Committed(is_set, session.reach()))
        })
    }

    /// Gives the next reading more time if this one had too little: a page with a job of a gigabyte may need it.
    fn note_read<T>(&mut self, read: Result<T, Trouble>) -> Result<T, Trouble> {
        self.read_time = if let Err(Trouble::TooLate) = read { self.read_time * 2 } else { LONG_ANSWER_TIME };
        read
    }

    /// Reads the settings and the root jobs, and the least and the greatest number of a job.
    fn read_named(&mut self, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let (named, extent, row) = self.run_long(self.read_time, renewals, |session, _| async move {
            let client = &session.client;
            let mut named = Vec::new();
            for table in Named::ALL {
                named.push((table, client.query(&table.all(), &[]).await?));
            }
            Ok((named, client.query_one(sql::EXTENT, &[]).await?, session.look().await?))
        })?;
        let mut page = Page::default();
        page.rows.rows.push(Row::NextId(row.next_id));
        for (table, rows) in &named {
            if *table == Named::Setting {
                // The copy may have begun and ended since this daemon has connected.
                refuse_part(rows)?;
            }
            rows.iter().try_for_each(|row| add_named(&mut page.rows, *table, row))?;
        }
        let number = |column, name| number_of(extent.try_get(column)?, name);
        self.extent = (number(0, "number of a job")?, number(1, "number of a job")?);
        Ok(Answer::Page(page, Cursor::After(0)))
    }

    /// Reads a page of jobs, with the first after this number.
    fn read_jobs(&mut self, after: u64, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let reading = self.reading.take().filter(|reading| reading.last == after);
        let (reading, mut page) = self.run_long(self.read_time, renewals, |session, _| async move {
            let mut reading = match reading {
                Some(reading) => reading,
                None => Reading::begin(session, after).await?,
            };
            let mut page = Page::default();
            page.is_last = reading.fill(&mut page.rows).await?;
            Ok((reading, page))
        })?;
        let last = reading.last;
        // No other daemon adds jobs meanwhile.
        page.is_last |= last >= self.extent.1;
        page.share = self.share(last);
        self.reading = Some(reading).filter(|_| !page.is_last);
        Ok(Answer::Page(page, Cursor::After(last)))
    }

    /// Returns the share of the jobs that was read with the job of this number.
    fn share(&self, last: u64) -> f64 {
        let (first, end) = self.extent;
        (last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64).min(1.0)
    }
}

/// Returns the id of a queue as the database has it, without hyphens.
fn digits_of(queue: u128) -> String {
    format!("{queue:032x}")
}
