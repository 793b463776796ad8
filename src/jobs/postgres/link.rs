//! The connection to the database: sends each request in one round trip, and waits for the answer. During a long request
//! the lease is renewed on a connection of its own.

use super::messages::{Answer, Cursor, EndAnew, Fence, Reach, StoreRequest};
use super::owner::BEAT;
use super::place::{Place, said};
use super::reading::{Reading, add_named, refuse_part, refuse_unfinished};
use super::rows::Rows;
use super::session::{
    ANSWER_TIME, Parts, SqlSession, Trouble, all_of, connect, is_conflict, is_over, number_of, refuse_shared_sessions,
    time_for, within,
};
use super::statements as sql;
use crate::store::HandedOver;
use crate::store::batch::{Batch, Row};
use crate::store::columns::Named;
use crate::store::page::Page;
use poolcounter_core::Time;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Time that an answer may take when much must be read or written.
const LONG_ANSWER_TIME: Duration = Duration::from_secs(120);
/// Bytes of a batch for which the lease is renewed on a second session, and which are on their way for some time.
const LARGE: usize = 256 << 10;
/// Time for a second session before a large request is sent.
const SECOND_TIME: Duration = Duration::from_secs(5);

/// Connection to the database, made when it is needed.
pub struct Link {
    place: Place,
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
    pub fn new(place: Place) -> Link {
        Link {
            place,
            session: None,
            second: None,
            is_rewriting: false,
            has_own_sessions: false,
            reading: None,
            read_time: LONG_ANSWER_TIME,
            extent: (0, 0),
        }
    }

    /// Sends a request and returns the answer. Meanwhile the lease is renewed on another connection.
    pub async fn ask(&mut self, ask: &StoreRequest<'_>, renewals: &mut Renewals<'_>) -> Answer {
        let mut answer = self.try_ask(ask, renewals).await;
        // An application that changes rows of the inbox meanwhile can be in the way once.
        if matches!(&answer, Err(Trouble::Failed(error)) if is_conflict(error) && !self.is_rewriting) {
            answer = self.try_ask(ask, renewals).await;
        }
        let trouble = match answer {
            Ok(answer) => return answer,
            Err(trouble) => trouble,
        };
        let is_usable = match &trouble {
            // A transaction that is written in slices is undone with its connection.
            Trouble::Failed(error) => !self.is_rewriting && !is_over(error) && is_open(&self.session),
            Trouble::Refused(_) | Trouble::TooLate => false,
        };
        if !is_usable {
            self.end_sessions().await;
        }
        match trouble {
            Trouble::Refused(sentence) => Answer::Refused(sentence),
            Trouble::TooLate => Answer::Silent,
            Trouble::Failed(error) => Answer::Failed { sentence: said(&error), is_connected: is_usable },
        }
    }

    /// Returns by how many microseconds the server's clock is ahead of this machine's.
    pub fn clock_ahead(&self) -> Option<i64> {
        self.session.as_ref().map(|session| session.ahead)
    }

    /// Ends the connections, and cancels what they wait for.
    pub async fn end_sessions(&mut self) {
        self.reading = None;
        for session in [self.session.take(), self.second.take()].into_iter().flatten() {
            session.end().await;
        }
    }

    async fn try_ask(&mut self, ask: &StoreRequest<'_>, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        self.is_rewriting &= matches!(ask, StoreRequest::WriteAnew { .. } | StoreRequest::Renew(_));
        if !matches!(ask, StoreRequest::Connect | StoreRequest::Read(_) | StoreRequest::Renew(_)) {
            self.stop_reading().await?;
        }
        match ask {
            StoreRequest::Connect => self.connect().await,
            StoreRequest::Renew(epoch) if self.is_rewriting || self.reading.is_some() => {
                self.renew_beside(*epoch).await
            }
            StoreRequest::WriteAnew { is_first, slice, end } => self.write_anew(*is_first, slice, *end, renewals).await,
            StoreRequest::ReadInbox => {
                let read = self.run_long(self.read_time, renewals, async |session| session.read_inbox().await).await;
                self.note_read(read)
            }
            StoreRequest::Commit(fence, batch) => self.commit(fence, batch, renewals).await,
            StoreRequest::Read(cursor) => {
                let read = match *cursor {
                    Cursor::Start => self.read_named(renewals).await,
                    Cursor::After(after) => self.read_jobs(after, renewals).await,
                };
                self.note_read(read)
            }
            StoreRequest::TakeOver => self.run(async |session| session.take(&sql::TAKE_OVER, &[]).await).await,
            StoreRequest::GoOn(HandedOver { mark, queue, address, .. }) => {
                let (epoch, address) = (mark.opening.cast_signed(), address.as_deref().unwrap_or_default());
                let queue = queue.map(digits_of).unwrap_or_default();
                self.run(async |session| session.take(&sql::GO_ON, &[&epoch, &queue, &address]).await).await
            }
            StoreRequest::Retake(epoch, queue) => {
                let (epoch, queue) = (epoch.cast_signed(), digits_of(*queue));
                self.run(async |session| session.take(&sql::RETAKE, &[&epoch, &queue]).await).await
            }
            StoreRequest::Renew(epoch) => self.run(async |session| session.renew(*epoch).await).await,
            StoreRequest::Look => self.run(async |session| Ok(Answer::Seen(session.look().await?))).await,
        }
    }

    async fn connect(&mut self) -> Result<Answer, Trouble> {
        self.end_sessions().await;
        self.is_rewriting = false;
        let session = within(ANSWER_TIME, connect(&self.place)).await?;
        if !self.has_own_sessions {
            within(ANSWER_TIME, refuse_shared_sessions(&session, &self.place)).await?;
            self.has_own_sessions = true;
        }
        within(ANSWER_TIME, refuse_unfinished(&session)).await?;
        self.session = Some(session);
        Ok(Answer::Done)
    }

    /// Ends a reading that is under way, with its connection: an answer would wait for the rest of the rows.
    async fn stop_reading(&mut self) -> Result<(), Trouble> {
        if self.reading.is_some() {
            self.connect().await?;
        }
        Ok(())
    }

    /// Writes a slice in the transaction that writes everything anew, which begins with the first slice and is committed with
    /// the last.
    async fn write_anew(
        &mut self,
        is_first: bool,
        slice: &Batch,
        end: Option<EndAnew<'_>>,
        renewals: &mut Renewals<'_>,
    ) -> Result<Answer, Trouble> {
        let time = time_for(slice.bytes());
        if is_first {
            self.make_second(renewals).await;
        }
        self.is_rewriting = true;
        let (slice, taken) =
            (Rows::of(slice), end.and_then(|end| end.taken).map_or_else(Rows::default, Rows::of_inbox));
        let answer = self.run_long(LONG_ANSWER_TIME.max(time), renewals, async |session| {
            let client = &session.client;
            if is_first {
                session.prepare(sql::of_batch()).await?;
                client.batch_execute(sql::BEGIN_ANEW).await?;
            }
            client.batch_execute(&sql::idle_limit(time)).await?;
            all_of(session.write(&slice)).await?;
            let Some(EndAnew { fence, next_id, .. }) = end else { return Ok(Answer::Done) };
            all_of(session.write(&taken)).await?;
            let is_set = session.fence(&fence, next_id).await?;
            // A failed statement has undone the transaction.
            client.batch_execute(sql::COMMIT).await?;
            Ok(Answer::Committed(is_set, session.reach()))
        });
        let answer = answer.await?;
        self.is_rewriting = end.is_none();
        Ok(answer)
    }

    /// Releases the queue, as the owner ends.
    pub async fn release(&mut self, epoch: u64) -> Result<(), Trouble> {
        if self.is_rewriting {
            return Err(Trouble::TooLate);
        }
        self.stop_reading().await?;
        self.run(async |session| session.release(epoch).await).await
    }

    async fn run<T>(&self, ask: impl AsyncFnOnce(&SqlSession) -> Result<T, Trouble>) -> Result<T, Trouble> {
        let Some(session) = &self.session else { return Err(Trouble::TooLate) };
        session.forget_warning();
        within(ANSWER_TIME, ask(session)).await
    }

    /// Runs a request that may take longer than the lease.
    async fn run_long<T>(
        &mut self,
        time: Duration,
        renewals: &mut Renewals<'_>,
        ask: impl AsyncFnOnce(&SqlSession) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let Link { place, session, second, .. } = self;
        let Some(session) = session else { return Err(Trouble::TooLate) };
        session.forget_warning();
        within(time, renewals.beside(ask(session), second, place)).await
    }

    /// Renews the lease on another connection: the first is in the middle of a transaction.
    async fn renew_beside(&mut self, epoch: u64) -> Result<Answer, Trouble> {
        if !is_open(&self.second) {
            self.second = Some(within(ANSWER_TIME, connect(&self.place)).await?);
        }
        let Some(second) = &self.second else { return Err(Trouble::TooLate) };
        second.forget_warning();
        within(ANSWER_TIME, second.renew(epoch)).await
    }

    /// Makes the second session before much is sent, which takes many round trips of a link that is not full yet. The
    /// first renews the lease meanwhile.
    async fn make_second(&mut self, renewals: &mut Renewals<'_>) {
        if !is_open(&self.second) {
            let Link { place, session, second, .. } = self;
            *second = within(SECOND_TIME, renewals.beside(connect(place), session, place)).await.ok();
        }
    }

    /// Commits a batch in one round trip, and one of a single kind of changes by one statement.
    async fn commit(&mut self, fence: &Fence, batch: &Batch, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let (rows, limit) = (Rows::of(batch), time_for(batch.bytes()));
        let mut begin = sql::BEGIN.to_string();
        if batch.bytes() >= LARGE {
            self.make_second(renewals).await;
            // The daemon has not stopped while its bytes are on their way.
            begin = format!("{begin}; {}", sql::idle_limit(limit));
        }
        let commit = async |session: &SqlSession| {
            let client = &session.client;
            session.prepare(sql::of_batch()).await?;
            if session.commit_at_once(&rows, fence, batch.next_id()).await? {
                return Ok(Answer::Committed(true, session.reach()));
            }
            let mut parts: Parts<'_> = vec![Box::pin(async { client.batch_execute(&begin).await.map(|()| 0) })];
            parts.extend(session.write(&rows));
            parts.push(Box::pin(async { session.fence(fence, batch.next_id()).await.map(u64::from) }));
            // A failed statement has undone the transaction.
            parts.push(Box::pin(async { client.batch_execute(sql::COMMIT).await.map(|()| 0) }));
            let counts = all_of(parts).await?;
            let is_set = counts.iter().rev().nth(1) == Some(&1);
            Ok(Answer::Committed(is_set, session.reach()))
        };
        self.run_long(limit, renewals, commit).await
    }

    /// Gives the next reading more time if this one had too little: a page with a job of a gigabyte may need it.
    fn note_read<T>(&mut self, read: Result<T, Trouble>) -> Result<T, Trouble> {
        self.read_time = if let Err(Trouble::TooLate) = read { self.read_time * 2 } else { LONG_ANSWER_TIME };
        read
    }

    /// Reads the settings and the root jobs, and the least and the greatest number of a job.
    async fn read_named(&mut self, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let read = self.run_long(self.read_time, renewals, async |session| {
            let mut named = Vec::new();
            for table in Named::ALL {
                named.push((table, session.client.query(&table.all(), &[]).await?));
            }
            Ok((named, session.client.query_one(sql::EXTENT, &[]).await?, session.look().await?))
        });
        let (named, extent, row) = read.await?;
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
    async fn read_jobs(&mut self, after: u64, renewals: &mut Renewals<'_>) -> Result<Answer, Trouble> {
        let reading = self.reading.take().filter(|reading| reading.last == after);
        let read = self.run_long(self.read_time, renewals, async |session| {
            let mut reading = match reading {
                Some(reading) => reading,
                None => Reading::begin(session, after).await?,
            };
            let mut page = Page::default();
            page.is_last = reading.fill(&mut page.rows).await?;
            Ok((reading, page))
        });
        let (reading, mut page) = read.await?;
        let (last, (first, end)) = (reading.last, self.extent);
        // No other daemon adds jobs meanwhile.
        page.is_last |= last >= end;
        page.share = (last.saturating_sub(first) as f64 / end.saturating_sub(first).max(1) as f64).min(1.0);
        self.reading = Some(reading).filter(|_| !page.is_last);
        Ok(Answer::Page(page, Cursor::After(last)))
    }
}

fn is_open(session: &Option<SqlSession>) -> bool {
    session.as_ref().is_some_and(|session| !session.is_closed())
}

/// Returns the id of a queue as the database has it, without hyphens.
fn digits_of(queue: u128) -> String {
    format!("{queue:032x}")
}

/// The lease, during one request.
pub struct Renewals<'a> {
    /// Number of the take-over, if this process may own the queue.
    pub epoch: Option<u64>,
    /// Returns the time.
    pub clock: &'a dyn Fn() -> Time,
    /// Called with the time at which each renewal was requested.
    pub renewed: &'a mut dyn FnMut(Time),
}

impl Renewals<'_> {
    /// Waits for `work`, and renews the lease each second meanwhile.
    pub async fn beside<T>(
        &mut self,
        work: impl Future<Output = Result<T, Trouble>>,
        second: &mut Option<SqlSession>,
        place: &Place,
    ) -> Result<T, Trouble> {
        let Some(epoch) = self.epoch else { return work.await };
        let mut work = pin!(work);
        let mut renewals = pin!(async {
            loop {
                tokio::time::sleep(BEAT.into()).await;
                self.renew(epoch, second, place).await;
            }
        });
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Pending => renewals.as_mut().poll(context),
            done => done,
        })
        .await
    }

    /// Renews once. After a failure, the next attempt uses another connection.
    async fn renew(&mut self, epoch: u64, second: &mut Option<SqlSession>, place: &Place) {
        if second.as_ref().is_none_or(SqlSession::is_closed) {
            *second = within(ANSWER_TIME, connect(place)).await.ok();
        }
        let Some(session) = second else { return };
        session.forget_warning();
        let asked = (self.clock)();
        match within(ANSWER_TIME, session.renew(epoch)).await {
            Ok(Answer::Renewed(Some(_), Reach::Kept)) => (self.renewed)(asked),
            // Another daemon may own the queue: the request under way finds out.
            Ok(_) => {}
            Err(_) => {
                if let Some(session) = second.take() {
                    session.end().await;
                }
            }
        }
    }
}
