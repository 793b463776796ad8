//! All that is said to the database, in words that PostgreSQL, CockroachDB and YugabyteDB have in common. No statement both
//! inserts into and deletes from one table, and none takes a lock by name.

use std::time::Duration;

/// Until when the owner counts as alive.
macro_rules! lease {
    () => {
        "clock_timestamp() + interval '5 seconds'"
    };
}

/// The row as it is; the times are seconds.
pub const LOOK: &str = "SELECT epoch, batch, next_id, attempt, address, \
    CAST(extract(epoch FROM since) AS double precision), \
    CAST(extract(epoch FROM until - clock_timestamp()) AS double precision), \
    (SELECT CAST(queue AS text) FROM meta WHERE one = 1) FROM owner WHERE one = 1";
/// Takes the queue from an owner that counts as dead.
pub const TAKE_OVER: &str = concat!(
    "UPDATE owner SET epoch = epoch + 1, address = $1, since = clock_timestamp(), until = ",
    lease!(),
    " WHERE one = 1 AND until < clock_timestamp()"
);
/// Takes the queue `$4` from the same daemon before an upgrade, which had it by the take-over `$2` as `$3`, or one where nothing was
/// ever kept. What is empty was not handed over, by a daemon of an earlier version.
pub const GO_ON: &str = concat!(
    "UPDATE owner SET epoch = epoch + 1, address = $1, since = clock_timestamp(), until = ",
    lease!(),
    " WHERE one = 1 AND (epoch = $2 AND ($3 = '' OR address = $3) \
     AND ($4 = '' OR EXISTS (SELECT 1 FROM meta WHERE CAST(queue AS text) = $4)) OR until < clock_timestamp() AND batch = 0 AND next_id <= 1)"
);
/// Takes the queue `$3` where the take-over `$2` is lost.
pub const RETAKE: &str = concat!(
    "UPDATE owner SET epoch = $2 + 1, address = $1, since = clock_timestamp(), until = ",
    lease!(),
    " WHERE one = 1 AND epoch < $2 AND until < clock_timestamp() \
     AND EXISTS (SELECT 1 FROM meta WHERE CAST(queue AS text) = $3)"
);
/// Says that the owner is alive.
pub const RENEW: &str =
    concat!("UPDATE owner SET until = ", lease!(), " WHERE one = 1 AND epoch = $1 AND address = $2 RETURNING batch");
/// Says that the owner ends.
pub const RELEASE: &str =
    "UPDATE owner SET until = clock_timestamp(), address = 'nobody' WHERE one = 1 AND epoch = $1 AND address = $2";

/// Sets the row to the batch `$1` of the attempt `$2`, with the number of the next job or none in `$3`, if the queue is that of the
/// take-over `$4` and the owner `$6` after the batch `$5`. If not, the transaction fails, by a division by zero. It is the last
/// statement of a transaction: what was written before counts with it, and the row is locked for as short a time as can be.
pub const FENCE: &str = concat!(
    "WITH kept AS (UPDATE owner SET batch = $1, attempt = $2, next_id = coalesce($3, next_id), until = ",
    lease!(),
    " WHERE one = 1 AND epoch = $4 AND batch = $5 AND address = $6 RETURNING one) SELECT 1 / count(*) FROM kept"
);
/// Puts jobs that have no more than what each job has.
pub const PUT_PLAIN: &str = "INSERT INTO job (id, tube, pri, delay, ttr, created, delayed_until, body) \
     SELECT id, tube, pri, delay, ttr, created, delayed_until, body \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
     $8::bytea[]) AS new (id, tube, pri, delay, ttr, created, delayed_until, body)";
/// Puts jobs.
pub const PUT: &str = "INSERT INTO job (id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, buries, \
     kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error, body) \
     SELECT id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, buries, \
     kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error, body \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
     $8::boolean[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], \
     $15::bytea[], $16::boolean[], $17::bytea[], $18::bigint[], $19::bytea[], $20::bytea[], $21::bytea[]) \
     AS new (id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, buries, \
     kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error, body)";
/// Changes jobs, but for their bodies.
pub const UPDATE: &str = "UPDATE job SET tube = new.tube, pri = new.pri, delay = new.delay, ttr = new.ttr, created = new.created, \
     delayed_until = new.delayed_until, buried = new.buried, reserves = new.reserves, timeouts = new.timeouts, \
     releases = new.releases, buries = new.buries, kicks = new.kicks, attempts = new.attempts, key = new.key, \
     until_deleted = new.until_deleted, root = new.root, root_timestamp = new.root_timestamp, \
     job_group = new.job_group, error = new.error \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
     $8::boolean[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], \
     $15::bytea[], $16::boolean[], $17::bytea[], $18::bigint[], $19::bytea[], $20::bytea[]) \
     AS new (id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, buries, \
     kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error) WHERE job.id = new.id";
/// Deletes jobs.
pub const DELETE: &str = "DELETE FROM job WHERE id = ANY ($1::bigint[])";
/// Deletes root jobs that are forgotten, or about to be written anew.
pub const ROOT_GONE: &str =
    "DELETE FROM root WHERE (tube, signature) IN (SELECT * FROM unnest($1::text[], $2::bytea[]))";
/// Writes root jobs that are not there.
pub const ROOT: &str = "INSERT INTO root (tube, signature, newest, changed) SELECT tube, signature, newest, changed \
     FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[]) AS new (tube, signature, newest, changed)";
/// Deletes settings that are gone, or about to be written anew.
pub const SETTING_GONE: &str =
    "DELETE FROM setting WHERE (kind, pattern) IN (SELECT * FROM unnest($1::text[], $2::bytea[]))";
/// Writes settings that are not there.
pub const SETTING: &str = "INSERT INTO setting (kind, pattern, value) SELECT kind, pattern, value \
     FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS new (kind, pattern, value)";

/// Reads all settings.
pub const SETTINGS: &str = "SELECT kind, pattern, value FROM setting";
/// Reads all root jobs, the one that has changed first before the others.
pub const ROOTS: &str = "SELECT tube, signature, newest, changed FROM root ORDER BY changed";
/// Reads the least and the greatest number of a job.
pub const RANGE: &str = "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM job";
/// Reads jobs with higher numbers than `$1`: `$2` at most, and those that come to `$3` bytes, but one at least.
pub const JOBS: &str = "SELECT id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, \
    buries, kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error, body \
    FROM (SELECT *, sum(octet_length(body) + 200) OVER (ORDER BY id) AS size FROM job WHERE id > $1 ORDER BY id LIMIT $2) AS page \
    WHERE size <= $3 OR id = (SELECT min(id) FROM job WHERE id > $1) ORDER BY id";
/// Reads which format the tables have.
pub const FORMAT: &str = "SELECT format FROM meta WHERE one = 1";

/// Lets warnings through: the server says by one that a commit is not replicated.
pub const GREETING: &str = "SET client_min_messages = warning";
/// Bounds of what a session may hold up, which a server need not know. Nothing must stay locked by a transaction whose daemon has
/// stopped in the middle, and no session wait in the server for longer than its daemon.
pub const LIMITS: [&str; 3] = [
    "SET idle_in_transaction_session_timeout = 5000",
    "SET lock_timeout = 9000",
    "SET client_connection_check_interval = 2000",
];
/// Pins what a commit waits for. A connection that has set nothing follows each change of the server's configuration. The promise
/// of this daemon is no weaker than that what is committed is on the server's disk, and on its replica if it has such a one. A
/// server without this setting has nothing to pin.
pub const DURABLE: &str = "SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') \
    IN ('off', 'local') THEN 'on' ELSE current_setting('synchronous_commit') END, false) \
    WHERE current_setting('synchronous_commit', true) IS NOT NULL";
/// The clock of the server, in microseconds since 1970.
pub const CLOCK: &str = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)";
/// Which session of the server serves the connection.
pub const SESSION: &str = "SELECT pg_backend_pid()";
/// Begins a transaction.
pub const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// Ends the transaction.
pub const COMMIT: &str = "COMMIT";
/// Undoes the transaction.
pub const ROLLBACK: &str = "ROLLBACK";
/// Checks what would be checked with the commit.
pub const CHECK_AT_ONCE: &str = "SET CONSTRAINTS ALL IMMEDIATE";
/// Begins a transaction in which nothing is left.
pub const BEGIN_ANEW: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED; DELETE FROM job; DELETE FROM root; DELETE FROM setting";

/// Statements that need no more than the row of the owner, each prepared when it is first used.
pub const OF_OWNER: &[&str] = &[LOOK, TAKE_OVER, GO_ON, RETAKE, RENEW, RELEASE];
/// Statements of a batch, prepared together before the first.
pub const OF_BATCH: &[&str] = &[FENCE, PUT_PLAIN, PUT, UPDATE, DELETE, ROOT_GONE, ROOT, SETTING_GONE, SETTING];
/// The others.
pub const SIMPLE: &[&str] = &[
    JOBS,
    SETTINGS,
    ROOTS,
    RANGE,
    FORMAT,
    GREETING,
    DURABLE,
    CLOCK,
    SESSION,
    BEGIN,
    COMMIT,
    ROLLBACK,
    CHECK_AT_ONCE,
    BEGIN_ANEW,
];

/// Returns what bounds the time for which the transaction that has begun may wait for more of it. While its own bytes are on their way
/// a daemon has not stopped.
pub fn idle_limit(time: Duration) -> String {
    format!("SET LOCAL idle_in_transaction_session_timeout = {}", time.as_millis())
}
