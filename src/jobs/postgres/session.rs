//! One connection to the database, with its prepared statements.

use super::messages::{Answer, Fence, OwnerRow, Reach};
use super::place::{Place, said};
use super::rows::Rows;
use super::schema;
use super::statements as sql;
use futures_util::future::{join, join_all};
use poolcounter_core::Span;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Error, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Time limit of an answer. The outcome of a commit that takes longer is sought in the row.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Fault of a database that has no table of this program.
pub const NO_TABLES: &str = "it has no tables of this program; poolcounter jobs init-db makes them";
/// Fault of a place behind a pooler that shares sessions, such as PgBouncer with a `pool_mode` other than `session`.
pub const SHARED_SESSIONS: &str = "it gives each transaction another session, as PgBouncer does with pool_mode = transaction; \
    name the server itself, or a pool with pool_mode = session";
/// Rate of the slowest link, in bytes a second.
const SLOWEST: usize = 64 << 10;
/// Time limit for the end of a session.
const END_TIME: Duration = Duration::from_secs(1);
/// The class of the codes of warnings.
const WARNINGS: &str = "01";

/// A connection on which everything is prepared.
pub struct SqlSession {
    pub client: Client,
    warning: Warning,
    /// Statements that are prepared.
    statements: RefCell<HashMap<&'static str, Statement>>,
    /// Task that carries its messages.
    carrier: JoinHandle<()>,
    tls: MakeRustlsConnect,
    /// Address of this process in the row `owner`.
    address: String,
    /// Microseconds by which the server's clock is ahead of this machine's.
    pub ahead: i64,
}

/// Last warning that came with the last request.
type Warning = Arc<Mutex<Option<String>>>;

/// Reason of a missing answer.
pub enum Trouble {
    Failed(Error),
    Refused(String),
    TooLate,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Failed(error)
    }
}

/// Requests that are sent together, each with the number of rows it changes.
pub type Parts<'a> = Vec<Pin<Box<dyn Future<Output = Result<u64, Error>> + 'a>>>;

impl SqlSession {
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Forgets the last warning of the server.
    pub fn forget_warning(&self) {
        *self.warning.lock().expect("no holder panics") = None;
    }

    /// Returns the durability of what was requested since then. A warning precedes its answer.
    pub fn reach(&self) -> Reach {
        self.warning.lock().expect("no holder panics").take().map_or(Reach::Kept, Reach::Warned)
    }

    /// Prepares those statements that are not prepared yet, in one round trip. It waits for locks of their tables.
    pub async fn prepare(&self, statements: impl IntoIterator<Item = &'static str>) -> Result<(), Error> {
        let is_missing = |statement: &&'static str| !self.statements.borrow().contains_key(*statement);
        let prepare = |statement| async move { Ok((statement, self.client.prepare(statement).await?)) };
        let prepared = join_all(statements.into_iter().filter(is_missing).map(prepare)).await;
        let prepared = prepared.into_iter().collect::<Result<Vec<_>, Error>>()?;
        self.statements.borrow_mut().extend(prepared);
        Ok(())
    }

    /// Returns a statement, and prepares it at its first use.
    pub async fn prepared(&self, statement: &'static str) -> Result<Statement, Error> {
        self.prepare([statement]).await?;
        Ok(self.known(statement))
    }

    fn known(&self, statement: &'static str) -> Statement {
        self.statements.borrow().get(statement).expect("it is prepared before").clone()
    }

    /// Ends the session, and cancels its statement in the server: a session that waits for a lock or a replica does not
    /// notice that its daemon has gone.
    pub async fn end(self) {
        let SqlSession { client, mut carrier, tls, .. } = self;
        let ended = tokio::time::timeout(END_TIME, async {
            if !client.is_closed() {
                // If that fails, the server cannot be reached, and nothing more can be done.
                let _ = client.cancel_token().cancel_query(tls).await;
            }
            drop(client);
            // It ends in any case.
            let _ = (&mut carrier).await;
        });
        if ended.await.is_err() {
            carrier.abort();
            let _ = carrier.await;
        }
    }

    pub async fn look(&self) -> Result<OwnerRow, Trouble> {
        let Some(row) = self.client.query_opt(&self.prepared(sql::LOOK).await?, &[]).await? else {
            return Err(Trouble::Refused("the table owner has no row".into()));
        };
        let number = |column, name| number_of(row.try_get(column)?, name);
        let rest: f64 = row.try_get(6)?;
        let queue = row.try_get::<_, Option<&str>>(7)?.and_then(|text| u128::from_str_radix(text, 16).ok());
        Ok(OwnerRow {
            queue: queue.ok_or_else(|| Trouble::Refused("the table meta has no queue".into()))?,
            epoch: number(0, "epoch of the owner")?,
            batch: number(1, "batch of the owner")?,
            next_id: number(2, "next_id of the owner")?,
            attempt: number(3, "attempt of the owner")?,
            address: row.try_get(4)?,
            since: row.try_get(5)?,
            // Not negative, and rounded: a request a moment too early is repeated.
            rest: Span::from_micros((rest.max(0.0) * 1e6) as u64),
        })
    }

    /// Takes the queue by a statement, whose parameters behind this process's address are these.
    pub async fn take(&self, statement: &'static str, of: &[&(dyn ToSql + Sync)]) -> Result<Answer, Trouble> {
        let params: Vec<&(dyn ToSql + Sync)> = [&self.address as _].into_iter().chain(of.iter().copied()).collect();
        let taken = self.client.execute(&self.prepared(statement).await?, &params).await?;
        let reach = self.reach();
        let row = self.look().await?;
        Ok(if taken == 0 { Answer::Seen(row) } else { Answer::Took(row, reach) })
    }

    /// Ends the lease.
    pub async fn release(&self, epoch: u64) -> Result<(), Trouble> {
        let statement = self.prepared(sql::RELEASE).await?;
        self.client.execute(&statement, &[&epoch.cast_signed(), &self.address]).await?;
        Ok(())
    }

    /// Renews the lease.
    pub async fn renew(&self, epoch: u64) -> Result<Answer, Trouble> {
        let statement = self.prepared(sql::RENEW).await?;
        let row = self.client.query_opt(&statement, &[&epoch.cast_signed(), &self.address]).await?;
        let batch = row.map(|row| number_of(row.try_get(0)?, "batch of the owner")).transpose()?;
        Ok(Answer::Renewed(batch, self.reach()))
    }

    /// Sets the row to a batch, and returns true if the row was as the fence demands. If not, the transaction has
    /// failed.
    pub async fn fence(&self, fence: &Fence, next_id: Option<u64>) -> Result<bool, Error> {
        self.set_owner(&sql::FENCE, Vec::new(), fence, next_id).await
    }

    /// Commits a batch by one statement, if it only puts, only changes or only deletes jobs. Returns true if it is
    /// committed; if not, nothing is written.
    pub async fn commit_at_once(&self, rows: &Rows<'_>, fence: &Fence, next_id: Option<u64>) -> Result<bool, Error> {
        let mut changes = rows.changes();
        let (Some((change, columns)), true) = (changes.pop(), changes.is_empty()) else { return Ok(false) };
        let Some((_, at_once)) = sql::AT_ONCE.iter().find(|(of, _)| *of == change) else { return Ok(false) };
        self.set_owner(at_once, columns, fence, next_id).await
    }

    /// Runs a statement that sets the row, and returns true if the row was as the fence demands.
    async fn set_owner(
        &self,
        statement: &'static str,
        mut params: Vec<&(dyn ToSql + Sync)>,
        fence: &Fence,
        next_id: Option<u64>,
    ) -> Result<bool, Error> {
        let Fence { epoch, from, to, attempt } = *fence;
        let [epoch, from, to, attempt] = [epoch, from, to, attempt].map(u64::cast_signed);
        let next_id = next_id.map(u64::cast_signed);
        let of_fence: [&(dyn ToSql + Sync); 6] = [&to, &attempt, &next_id, &epoch, &from, &self.address];
        params.extend(of_fence);
        match self.client.execute(&self.known(statement), &params).await {
            Err(error) if error.code() == Some(&SqlState::DIVISION_BY_ZERO) => Ok(false),
            set => set.map(|_| true),
        }
    }

    /// Returns the statements that write rows in the transaction that is under way.
    pub fn write<'a>(&'a self, rows: &'a Rows<'a>) -> Parts<'a> {
        let mut parts: Parts<'a> = Vec::new();
        for (change, columns) in rows.changes() {
            let statement = self.known(change);
            parts.push(Box::pin(async move { self.client.execute(&statement, &columns).await }));
        }
        parts
    }
}

/// Returns the time limit of a request that sends this many bytes: twice the time that the slowest link takes for them,
/// beside that of the answer.
pub fn time_for(bytes: usize) -> Duration {
    ANSWER_TIME + Duration::from_secs((2 * bytes / SLOWEST) as u64)
}

/// Returns the runtime that waits for answers.
///
/// # Errors
///
/// One sentence: the system has no room for it.
pub fn new_runtime() -> Result<Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot wait for a database: {error}"))
}

/// Connects. A warning of the server is noted before the answer that it precedes.
pub async fn open(place: &Place) -> Result<(Client, Warning, JoinHandle<()>), Trouble> {
    let (config, missing) = place.login();
    let connected = config.connect(place.tls.clone()).await;
    let (client, mut connection) = connected.map_err(|error| match missing {
        // A missing password is reported only if the server asks for one.
        Some(missing) if said(&error).contains("password") => Trouble::Refused(format!("{}: {missing}", said(&error))),
        _ => refused(error),
    })?;
    let warning = Warning::default();
    let (noted, bell) = (warning.clone(), place.bell.clone());
    let carrier = tokio::spawn(async move {
        // The next request gets the error.
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            let notice = match message {
                AsyncMessage::Notice(notice) => notice,
                AsyncMessage::Notification(_) => {
                    bell.tell_news();
                    continue;
                }
                _ => continue,
            };
            let is_warning = notice.parsed_severity() == Some(Severity::Warning);
            if is_warning || notice.code().code().starts_with(WARNINGS) {
                *noted.lock().expect("no holder panics") =
                    Some(format!("{} ({})", notice.message(), notice.code().code()));
            }
        }
    });
    Ok((client, warning, carrier))
}

/// Returns a number of the database, which is never negative. The error names it.
pub fn number_of(number: i64, name: &str) -> Result<u64, Trouble> {
    let refuse = |_| Trouble::Refused(format!("the {name} makes no sense: it is {number}"));
    u64::try_from(number).map_err(refuse)
}

/// Connects. The tables must be of a known format.
pub async fn connect(place: &Place) -> Result<SqlSession, Trouble> {
    let (client, warning, carrier) = open(place).await?;
    let set = |statement: &'static str| {
        let set = client.batch_execute(statement);
        async move {
            match set.await {
                // The server does not know this setting.
                Err(error) if error.as_db_error().is_some() && sql::LIMITS.contains(&statement) => Ok(()),
                set => set,
            }
        }
    };
    let asked = SystemTime::now();
    let settings = join_all(sql::LIMITS.into_iter().chain([sql::GREETING, sql::DURABLE]).map(set));
    let (set, clock) = join(settings, client.query_one(sql::CLOCK, &[])).await;
    set.into_iter().collect::<Result<(), Error>>()?;
    let clock: i64 = clock?.try_get(0)?;
    let between = asked + asked.elapsed().unwrap_or_default() / 2;
    let own = between.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
    let ahead = clock.saturating_sub(i64::try_from(own).unwrap_or(i64::MAX));
    check_format(&client).await?;
    let (statements, tls, address) = (RefCell::default(), place.tls.clone(), place.address.clone());
    Ok(SqlSession { client, warning, statements, carrier, tls, address, ahead })
}

/// Refuses a place behind which two connections are one session of the server: settings of a session do not stay, and
/// prepared statements are not there.
pub async fn refuse_shared_sessions(session: &SqlSession, place: &Place) -> Result<(), Trouble> {
    let number = async |client: &Client| Ok::<i32, Error>(client.query_one(sql::SESSION, &[]).await?.try_get(0)?);
    let own = number(&session.client).await?;
    let (other, ..) = open(place).await?;
    if number(&other).await? == own {
        return Err(Trouble::Refused(SHARED_SESSIONS.into()));
    }
    Ok(())
}

/// Refuses tables of another format.
pub async fn check_format(client: &Client) -> Result<(), Trouble> {
    let format: i64 = match client.query_one(sql::FORMAT, &[]).await {
        Ok(row) => row.try_get(0)?,
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
            return Err(Trouble::Refused(NO_TABLES.into()));
        }
        Err(error) => return Err(error.into()),
    };
    match format {
        schema::FORMAT => Ok(()),
        other => Err(Trouble::Refused(format!("its format is {other}, and this program knows {}", schema::FORMAT))),
    }
}

/// Returns the error as one that an operator must mend, if it is one.
fn refused(error: Error) -> Trouble {
    const ALL: [&SqlState; 3] =
        [&SqlState::INVALID_PASSWORD, &SqlState::INVALID_AUTHORIZATION_SPECIFICATION, &SqlState::INVALID_CATALOG_NAME];
    match error.code() {
        Some(code) if ALL.contains(&code) => Trouble::Refused(said(&error)),
        _ => Trouble::Failed(error),
    }
}

/// Waits for something, and at most for this time.
pub async fn within<T>(time: Duration, work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    tokio::time::timeout(time, work).await.unwrap_or(Err(Trouble::TooLate))
}

/// Returns the results of requests that are sent together, in order, or the first error. All are sent before the first
/// is awaited.
pub async fn all_of(parts: Parts<'_>) -> Result<Vec<u64>, Error> {
    join_all(parts).await.into_iter().collect()
}

/// Returns true if the server has undone a transaction because of another, so that it can be repeated at once.
pub fn is_conflict(error: &Error) -> bool {
    let codes = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
    codes.into_iter().any(|code| error.code() == Some(code))
}

/// Returns true if the connection cannot be used after this error, or takes no commits.
pub fn is_over(error: &Error) -> bool {
    error.is_closed() || error.as_db_error().is_none() || error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}
