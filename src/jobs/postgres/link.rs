//! The connection to the database: asks what is to be asked, each thing in one round trip, and waits for the answer.

use super::owner::{Answer, Ask, Cursor, Fence, OwnerRow, Page};
use super::place::{Place, said};
use super::rows::{Jobs, Rows};
use super::statements as sql;
use super::{load, schema};
use crate::jobs::store::batch::Batch;
use crate::time::Span;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, SimpleQueryMessage, Statement};

/// How long an answer may take. The one to a commit that takes longer is sought in the row.
const ANSWER_TIME: Duration = Duration::from_secs(10);
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
    session: Option<Session>,
    /// One that renews while the other has a long transaction.
    second: Option<Session>,
    is_rewriting: bool,
    /// How many jobs are read at a time.
    page_jobs: i64,
    /// The least and the greatest number of a job when the reading began.
    range: (u64, u64),
}

/// A connection on which everything is prepared.
struct Session {
    client: Client,
    statements: HashMap<&'static str, Statement>,
}

/// Why there is no answer.
enum Trouble {
    Failed(Error),
    Refused(String),
    TooLate,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Failed(error)
    }
}

impl Link {
    /// No connection yet.
    ///
    /// # Errors
    ///
    /// One sentence: the system has no room for what waits.
    pub fn new(place: Place, address: String) -> Result<Link, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot wait for a database: {error}"))?;
        let (session, second) = (None, None);
        let page_jobs = MOST_JOBS / 4;
        Ok(Link { place, address, runtime, session, second, is_rewriting: false, page_jobs, range: (0, 0) })
    }

    /// Asks, and returns the answer.
    pub fn ask(&mut self, ask: &Ask<'_>) -> Answer {
        match self.try_ask(ask) {
            Ok(answer) => answer,
            Err(Trouble::Refused(sentence)) => Answer::Refused(sentence),
            Err(Trouble::TooLate) => {
                self.session = None;
                Answer::Failed { sentence: "the database does not answer".into(), is_connected: false }
            }
            Err(Trouble::Failed(error)) => {
                // A transaction that was to be written bit by bit is undone with its connection.
                if self.is_rewriting || is_over(&error) || self.session.as_ref().is_none_or(Session::is_closed) {
                    self.session = None;
                }
                Answer::Failed { sentence: said(&error), is_connected: self.session.is_some() }
            }
        }
    }

    fn try_ask(&mut self, ask: &Ask<'_>) -> Result<Answer, Trouble> {
        if !matches!(ask, Ask::BeginAnew | Ask::WriteAnew(..) | Ask::EndAnew(..) | Ask::Renew(_)) && self.is_rewriting {
            (self.is_rewriting, self.second) = (false, None);
        }
        match ask {
            Ask::Connect => {
                (self.session, self.second, self.is_rewriting) = (None, None, false);
                self.session = Some(connect(&self.runtime, &self.place)?);
                Ok(Answer::Done)
            }
            Ask::Renew(epoch) if self.is_rewriting => self.renew_beside(*epoch),
            Ask::BeginAnew => {
                self.is_rewriting = true;
                self.run(LONG_ANSWER_TIME, |session, _| async move {
                    session.client.batch_execute(sql::BEGIN_ANEW).await?;
                    Ok(Answer::Done)
                })
            }
            Ask::WriteAnew(left, batch) => {
                let rows = Rows::of(batch);
                self.run(LONG_ANSWER_TIME, |session, address| async move {
                    all_of(session.write(&rows, left, address)).await?;
                    Ok(Answer::Done)
                })
            }
            Ask::EndAnew(fence, next_id) => {
                let next_id = *next_id;
                let answer = self.run(LONG_ANSWER_TIME, |session, address| async move {
                    let set = session.client.simple_query(&sql::set_row(fence, next_id, address)).await?;
                    if changed(&set) != 1 {
                        session.client.batch_execute(sql::ROLLBACK).await?;
                        return Ok(Answer::Committed(false));
                    }
                    session.client.batch_execute(sql::COMMIT).await?;
                    Ok(Answer::Committed(true))
                })?;
                (self.is_rewriting, self.second) = (false, None);
                Ok(answer)
            }
            Ask::Commit(fence, batch) => self.commit(fence, batch),
            Ask::Read(cursor) => self.read(*cursor),
            Ask::TakeOver => self.take(sql::TAKE_OVER, None),
            Ask::GoOn(epoch) => self.take(sql::GO_ON, Some(*epoch)),
            Ask::Retake(epoch) => self.take(sql::RETAKE, Some(*epoch)),
            Ask::Renew(epoch) => {
                let epoch = *epoch;
                self.run(ANSWER_TIME, |session, address| session.renew(epoch, address))
            }
            Ask::Look => self.run(ANSWER_TIME, |session, _| async { Ok(Answer::Seen(session.look().await?)) }),
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

    fn run<'a, F>(&'a self, time: Duration, ask: impl FnOnce(&'a Session, &'a str) -> F) -> Result<Answer, Trouble>
    where
        F: Future<Output = Result<Answer, Trouble>>,
    {
        let Some(session) = &self.session else { return Err(Trouble::TooLate) };
        within(&self.runtime, time, ask(session, &self.address))
    }

    fn take(&mut self, statement: &'static str, epoch: Option<u64>) -> Result<Answer, Trouble> {
        self.page_jobs = MOST_JOBS / 4;
        self.run(ANSWER_TIME, |session, address| async move {
            let epoch = epoch.map(u64::cast_signed);
            let mut params: Vec<&(dyn ToSql + Sync)> = vec![&address];
            params.extend(epoch.as_ref().map(|epoch| epoch as &(dyn ToSql + Sync)));
            let taken = session.client.execute(session.prepared(statement), &params).await?;
            let row = session.look().await?;
            if taken == 0 {
                return Ok(Answer::Seen(row));
            }
            Ok(Answer::Took(row))
        })
    }

    /// Renews on another connection: the first is in the middle of a transaction.
    fn renew_beside(&mut self, epoch: u64) -> Result<Answer, Trouble> {
        if self.second.as_ref().is_none_or(Session::is_closed) {
            self.second = Some(connect(&self.runtime, &self.place)?);
        }
        let Some(second) = &self.second else { return Err(Trouble::TooLate) };
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
            Ok(Answer::Committed(counts.first() == Some(&1)))
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
        let number = |column| Ok::<_, Error>(range.try_get::<_, i64>(column)?.cast_unsigned());
        Ok((number(0)?, number(1)?))
    }
}

/// What is asked together, with how many rows each changes.
type Parts<'a> = Vec<Pin<Box<dyn Future<Output = Result<u64, Error>> + 'a>>>;

impl Session {
    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    fn prepared(&self, statement: &'static str) -> &Statement {
        self.statements.get(statement).expect("each of the list is prepared when the session begins")
    }

    async fn look(&self) -> Result<OwnerRow, Trouble> {
        let Some(row) = self.client.query_opt(self.prepared(sql::LOOK), &[]).await? else {
            return Err(Trouble::Refused("the table owner has no row".into()));
        };
        let number = |column| Ok::<_, Error>(row.try_get::<_, i64>(column)?.cast_unsigned());
        let rest: f64 = row.try_get(6)?;
        Ok(OwnerRow {
            epoch: number(0)?,
            batch: number(1)?,
            next_id: number(2)?,
            attempt: number(3)?,
            address: row.try_get(4)?,
            since: row.try_get(5)?,
            // Not negative, and rounded: what is asked again a moment too early is asked again.
            rest: Span::from_micros((rest.max(0.0) * 1e6) as u64),
        })
    }

    async fn renew(&self, epoch: u64, address: &str) -> Result<Answer, Trouble> {
        let params: [&(dyn ToSql + Sync); 2] = [&epoch.cast_signed(), &address];
        let row = self.client.query_opt(self.prepared(sql::RENEW), &params).await?;
        let batch = row.map(|row| row.try_get::<_, i64>(0)).transpose()?;
        Ok(Answer::Renewed(batch.map(i64::cast_unsigned)))
    }

    /// Returns what writes rows while the row is as `fence` leaves it, in the transaction that is under way.
    fn write<'a>(&'a self, rows: &'a Rows<'a>, fence: &'a Fence, address: &'a str) -> Parts<'a> {
        let mut parts: Parts<'a> = Vec::new();
        let mut add = |statement: &'static str, is_empty: bool, columns: Vec<&'a (dyn ToSql + Sync)>| {
            if is_empty {
                return;
            }
            let statement = self.prepared(statement);
            parts.push(Box::pin(async move {
                let numbers = [fence.epoch, fence.to, fence.attempt].map(u64::cast_signed);
                let mut params: Vec<&(dyn ToSql + Sync)> = numbers.iter().map(|n| n as &(dyn ToSql + Sync)).collect();
                params.push(&address);
                params.extend(columns);
                self.client.execute(statement, &params).await
            }));
        };
        let Rows { plain, full, updated, deleted, roots_gone, roots, settings_gone, settings } = rows;
        add(sql::PUT_PLAIN, plain.id.is_empty(), [plain.first(), vec![&plain.body]].concat());
        add(sql::PUT, full.id.is_empty(), [full.first(), full.rest(), vec![&full.body]].concat());
        add(sql::UPDATE, updated.id.is_empty(), [updated.first(), updated.rest()].concat());
        add(sql::DELETE, deleted.is_empty(), vec![deleted]);
        add(sql::ROOT_GONE, roots_gone.0.is_empty(), vec![&roots_gone.0, &roots_gone.1]);
        add(sql::ROOT, roots.0.is_empty(), vec![&roots.0, &roots.1, &roots.2, &roots.3]);
        add(sql::SETTING_GONE, settings_gone.0.is_empty(), vec![&settings_gone.0, &settings_gone.1]);
        add(sql::SETTING, settings.0.is_empty(), vec![&settings.0, &settings.1, &settings.2]);
        parts
    }
}

impl Jobs<'_> {
    fn first(&self) -> Vec<&(dyn ToSql + Sync)> {
        let [pri, delay, ttr, created] = &self.first;
        vec![&self.id, &self.tube, pri, delay, ttr, created, &self.delayed_until]
    }

    fn rest(&self) -> Vec<&(dyn ToSql + Sync)> {
        let [reserves, timeouts, releases, buries, kicks, attempts] = &self.counts;
        vec![
            &self.buried,
            reserves,
            timeouts,
            releases,
            buries,
            kicks,
            attempts,
            &self.key,
            &self.until_deleted,
            &self.root,
            &self.root_timestamp,
            &self.group,
            &self.error,
        ]
    }
}

/// Connects, and prepares everything. The tables must be of a known format.
fn connect(runtime: &Runtime, place: &Place) -> Result<Session, Trouble> {
    within(runtime, ANSWER_TIME, async {
        let (client, connection) = place.config.connect(place.tls.clone()).await.map_err(refused)?;
        tokio::spawn(async move {
            // Whoever asks next is told.
            let _ = connection.await;
        });
        client.batch_execute(sql::GREETING).await?;
        if let Ok(messages) = client.simple_query(sql::IS_DURABLE).await
            && is_off(&messages)
        {
            client.batch_execute(sql::DURABLE).await?;
        }
        prepare_tables(&client).await?;
        let prepared = sql::PREPARED.iter().map(|statement| {
            let client = &client;
            Box::pin(async move { Ok((*statement, client.prepare(statement).await?)) })
                as Pin<Box<dyn Future<Output = _>>>
        });
        let statements = all_of::<(&'static str, Statement), Error>(prepared.collect()).await?;
        Ok(Session { client, statements: statements.into_iter().collect() })
    })
}

/// Brings the tables to the present format, in one transaction.
async fn prepare_tables(client: &Client) -> Result<(), Trouble> {
    let format: i64 = match client.query_one(sql::FORMAT, &[]).await {
        Ok(row) => row.try_get(0)?,
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
            return Err(Trouble::Refused(
                "it has no tables of this program; poolcounter jobs init-db makes them".into(),
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let Some(steps) = schema::migrations(format) else {
        let newest = schema::FORMAT;
        return Err(Trouble::Refused(format!("its format is {format}, and this program knows formats up to {newest}")));
    };
    if !steps.is_empty() {
        let note = format!("UPDATE meta SET format = {} WHERE one = 1", schema::FORMAT);
        client.batch_execute(&format!("BEGIN; {}; {note}; COMMIT", steps.join("; "))).await?;
    }
    Ok(())
}

/// Waits for an operator, if that is who must do something.
fn refused(error: Error) -> Trouble {
    const ALL: [&SqlState; 3] =
        [&SqlState::INVALID_PASSWORD, &SqlState::INVALID_AUTHORIZATION_SPECIFICATION, &SqlState::INVALID_CATALOG_NAME];
    match error.code() {
        Some(code) if ALL.contains(&code) => Trouble::Refused(said(&error)),
        _ => Trouble::Failed(error),
    }
}

fn within<T>(
    runtime: &Runtime,
    time: Duration,
    future: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Trouble> {
    runtime.block_on(async {
        match tokio::time::timeout(time, future).await {
            Ok(result) => result,
            Err(_) => Err(Trouble::TooLate),
        }
    })
}

/// Returns all results of what is asked together, in order, or the first error. Each is sent before the first is waited for.
async fn all_of<T, E>(mut parts: Vec<Pin<Box<dyn Future<Output = Result<T, E>> + '_>>>) -> Result<Vec<T>, E> {
    let mut results: Vec<Option<Result<T, E>>> = parts.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (part, result) in parts.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(ready) = part.as_mut().poll(context)
            {
                *result = Some(ready);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// Returns how many rows the last of the statements has changed.
fn changed(messages: &[SimpleQueryMessage]) -> u64 {
    let counts = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::CommandComplete(count) => Some(*count),
        _ => None,
    });
    counts.last().unwrap_or(0)
}

fn is_off(messages: &[SimpleQueryMessage]) -> bool {
    messages.iter().any(|message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("off")))
}

/// Returns whether the server ends the connection after this, or takes no commits on it.
fn is_over(error: &Error) -> bool {
    error.is_closed() || error.as_db_error().is_none() || error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}
