//! All statements sent to the database, which is PostgreSQL; other databases with its protocol were not tried. No
//! statement both inserts into and deletes from one table, and none takes a lock by name.

use super::schema::TYPES;
use crate::store::columns::{COLUMNS, Named, PLAIN, listed, names};
use std::sync::LazyLock;
use std::time::Duration;

/// End of the lease, from now.
macro_rules! lease {
    () => {
        "clock_timestamp() + interval '5 seconds'"
    };
}

/// Reads the row `owner`; the times are seconds.
pub const LOOK: &str = "SELECT epoch, batch, next_id, attempt, address, \
    CAST(extract(epoch FROM since) AS double precision), \
    CAST(extract(epoch FROM until - clock_timestamp()) AS double precision), \
    (SELECT replace(CAST(queue AS text), '-', '') FROM meta WHERE one = 1) FROM owner WHERE one = 1";
/// Takes the queue from an owner that counts as dead.
pub static TAKE_OVER: LazyLock<String> = LazyLock::new(|| take("epoch", "until < clock_timestamp()"));
/// Takes the queue `$3` from the same daemon before an upgrade, which had it by the take-over `$2` as `$4`.
pub static GO_ON: LazyLock<String> =
    LazyLock::new(|| take("epoch", &format!("epoch = $2 AND {QUEUE} AND address = $4")));
/// Takes the queue `$3` where the take-over `$2` is lost.
pub static RETAKE: LazyLock<String> =
    LazyLock::new(|| take("$2", &format!("epoch < $2 AND {QUEUE} AND until < clock_timestamp()")));
/// True of the queue `$3`.
const QUEUE: &str = "EXISTS (SELECT 1 FROM meta WHERE replace(CAST(queue AS text), '-', '') = $3)";
/// Renews the lease of the owner.
pub const RENEW: &str =
    concat!("UPDATE owner SET until = ", lease!(), " WHERE one = 1 AND epoch = $1 AND address = $2 RETURNING batch");
/// Ends the lease of the owner.
pub const RELEASE: &str =
    "UPDATE owner SET until = clock_timestamp(), address = 'nobody' WHERE one = 1 AND epoch = $1 AND address = $2";

/// Ends a transaction, as `fence` describes it.
pub static FENCE: LazyLock<String> = LazyLock::new(|| format!("WITH {}", fence(0, "")));
/// Puts jobs that have only the values that every job has.
pub static PUT_PLAIN: LazyLock<String> = LazyLock::new(|| put(PLAIN));
/// Puts jobs.
pub static PUT: LazyLock<String> = LazyLock::new(|| put(COLUMNS));
/// Changes jobs, but for their bodies.
pub static UPDATE: LazyLock<String> = LazyLock::new(|| {
    let (set, names) = (listed(1..COLUMNS, |_, name, _| format!("{name} = new.{name}")), names(COLUMNS));
    format!("UPDATE job SET {set} FROM unnest({}) AS new ({names}) WHERE job.id = new.id", arrays(COLUMNS))
});
/// Deletes jobs.
pub const DELETE: &str = "DELETE FROM job WHERE id = ANY ($1::bigint[])";
/// Statements that change jobs of one kind, each with the one that commits a batch of such changes: the change and the
/// fence, which is executed behind it, because it needs its count.
pub static AT_ONCE: LazyLock<[(&str, String); 4]> = LazyLock::new(|| {
    [(PUT_PLAIN.as_str(), PLAIN + 1), (PUT.as_str(), COLUMNS + 1), (UPDATE.as_str(), COLUMNS), (DELETE, 1)].map(
        |(change, params)| {
            let fence = fence(params, " AND (SELECT count(*) FROM done) >= 0");
            (change, format!("WITH done AS ({change} RETURNING 1), {fence}"))
        },
    )
});
/// Statements that put rows into each table of named values, and delete rows.
pub static NAMED: LazyLock<[[String; 2]; Named::ALL.len()]> = LazyLock::new(|| {
    Named::ALL.map(Named::words).map(|[table, first, second]| {
        let name = format!("({first}, {second})");
        [
            format!(
                "INSERT INTO {table} ({first}, {second}, value) SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[]) \
                 ON CONFLICT {name} DO UPDATE SET value = excluded.value"
            ),
            format!("DELETE FROM {table} WHERE {name} IN (SELECT * FROM unnest($1::text[], $2::bytea[]))"),
        ]
    })
});

/// Deletes rows of the inbox that were taken.
pub const INBOX_TAKEN: &str = "DELETE FROM inbox WHERE id = ANY ($1::bigint[])";
/// Notes the reasons for which rows of the inbox are refused.
pub const INBOX_REFUSE: &str = "UPDATE inbox SET refused = new.reason \
     FROM unnest($1::bigint[], $2::text[]) AS new (id, reason) WHERE inbox.id = new.id";

/// Reads the first rows of the inbox that wait, up to 4 MB of bodies, or one.
pub const INBOX: &str = "SELECT id, tube, pri, delay, ttr, options, body FROM \
     (SELECT *, sum(octet_length(body)) OVER (ORDER BY id) - octet_length(body) AS before FROM \
     (SELECT * FROM inbox WHERE refused IS NULL ORDER BY id LIMIT 500) AS oldest) AS sized \
     WHERE before < 4000000 ORDER BY id";
/// Reads the number of refused rows of the inbox, up to 1000, and the reason of one.
pub const INBOX_REFUSED: &str = "SELECT count(*), min(refused) FROM \
     (SELECT refused FROM inbox WHERE refused IS NOT NULL ORDER BY id LIMIT 1000) AS reasons";
/// Reads the least and the greatest number of a job; zeros without any.
pub const EXTENT: &str = "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM job";
/// Reads jobs with numbers above `$1`.
pub static JOBS: LazyLock<String> =
    LazyLock::new(|| format!("SELECT {}, body FROM job WHERE id > $1 ORDER BY id", names(COLUMNS)));
/// Reads the format of the tables.
pub const FORMAT: &str = "SELECT format FROM meta WHERE one = 1";

/// Lets warnings through: the server sends one if a commit is not replicated. A statement that is a transaction waits
/// for a renewal that changes its row, and goes on with the new row. News of the inbox are requested.
pub const GREETING: &str = "SET client_min_messages = warning; \
    SET default_transaction_isolation = 'read committed'; LISTEN poolcounter_inbox";
/// Settings of a session, which a server need not know. A transaction whose daemon has stopped in the middle must not
/// keep its locks, and no session may wait in the server for longer than its daemon. Jobs are read by their index, so
/// that the first rows come at once.
pub const LIMITS: [&str; 5] = [
    "SET idle_in_transaction_session_timeout = 5000",
    "SET lock_timeout = 9000",
    "SET client_connection_check_interval = 2000",
    "SET enable_sort = off",
    "SET jit = off",
];
/// Pins the durability of commits. A connection without this follows each change of the server's configuration. This
/// daemon promises at least that a commit is on the server's disk, and on its replica if it has such a one. A server
/// without this setting needs none.
pub const DURABLE: &str = "SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') \
    IN ('off', 'local') THEN 'on' ELSE current_setting('synchronous_commit') END, false) \
    WHERE current_setting('synchronous_commit', true) IS NOT NULL";
/// Reads the clock of the server, in microseconds since 1970.
pub const CLOCK: &str = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)";
/// Returns the process of the server that serves the connection.
pub const SESSION: &str = "SELECT pg_backend_pid()";
/// Begins a transaction.
pub const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// Ends the transaction.
pub const COMMIT: &str = "COMMIT";
/// Begins a transaction, and deletes everything in it.
pub const BEGIN_ANEW: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; DELETE FROM job; DELETE FROM root; DELETE FROM setting";

/// Returns the statements of a batch, prepared together before the first.
pub fn of_batch() -> impl Iterator<Item = &'static str> {
    let jobs = AT_ONCE.iter().flat_map(|(change, at_once)| [change, &**at_once]);
    let named = NAMED.as_flattened().iter().map(String::as_str);
    jobs.chain(named).chain([INBOX_TAKEN, INBOX_REFUSE, &FENCE])
}

/// Returns the statement that takes the queue as `$1`, by the take-over after `epoch`, under a condition.
fn take(epoch: &str, condition: &str) -> String {
    let lease = lease!();
    format!(
        "UPDATE owner SET epoch = {epoch} + 1, address = $1, since = clock_timestamp(), until = {lease} \
         WHERE one = 1 AND {condition}"
    )
}

/// Returns the statement that puts jobs with values in the first columns.
fn put(used: usize) -> String {
    format!("INSERT INTO job ({}, body) SELECT * FROM unnest({}, ${}::bytea[])", names(used), arrays(used), used + 1)
}

/// Returns the first columns as parameters.
fn arrays(used: usize) -> String {
    listed(0..used, |at, _, kind| format!("${}::{}[]", at + 1, TYPES[kind as usize]))
}

/// Returns the part of a statement that sets the owner's row to a batch. Its parameters behind the first `params` are
/// the batch, its attempt, the number of the next job or none, the take-over, the batch before and the owner. If the
/// row is not that of this take-over and owner after the batch before, the transaction fails, by a division by zero. It
/// comes last: what was written before counts with it, and the row is locked for as short a time as can be.
fn fence(params: usize, condition: &str) -> String {
    let [batch, attempt, next_id, epoch, before, address] = [1, 2, 3, 4, 5, 6].map(|n| params + n);
    let lease = lease!();
    format!(
        "kept AS (UPDATE owner SET batch = ${batch}, attempt = ${attempt}, next_id = coalesce(${next_id}, next_id), \
         until = {lease} WHERE one = 1 AND epoch = ${epoch} AND batch = ${before} AND address = ${address}{condition} \
         RETURNING one) SELECT 1 / count(*) FROM kept"
    )
}

/// Returns the statement that limits the time for which the present transaction may wait for more of it. A daemon has
/// not stopped while the bytes of the transaction are on their way.
pub fn idle_limit(time: Duration) -> String {
    format!("SET LOCAL idle_in_transaction_session_timeout = {}", time.as_millis())
}
