//! All that is said to the database, in words that PostgreSQL, CockroachDB and YugabyteDB have in common. No statement both
//! inserts into and deletes from one table, and none takes a lock by name.

use super::owner::{Fence, LEASE_SECONDS};

/// Whether the row is as the commit has made it that is under way: then nobody else has written to it since, for the commit
/// holds its lock. `$1` to `$4` are the number of the take-over, the batch, the attempt and the owner's name.
macro_rules! fenced {
    ($statement:literal) => {
        concat!(
            $statement,
            " EXISTS (SELECT 1 FROM owner WHERE one = 1 AND epoch = $1 AND batch = $2 AND attempt = $3 AND address = $4)"
        )
    };
}

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

/// Puts jobs that have no more than what each job has.
pub const PUT_PLAIN: &str = fenced!(
    "INSERT INTO job (id, tube, pri, delay, ttr, created, delayed_until, body) \
     SELECT id, tube, pri, delay, ttr, created, delayed_until, body \
     FROM unnest($5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], \
     $12::bytea[]) AS new (id, tube, pri, delay, ttr, created, delayed_until, body) WHERE"
);
/// Puts jobs.
pub const PUT: &str = fenced!(
    "INSERT INTO job (id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, buries, \
     kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error, body) \
     SELECT id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, buries, \
     kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error, body \
     FROM unnest($5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], \
     $12::boolean[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], \
     $19::bytea[], $20::boolean[], $21::bytea[], $22::bigint[], $23::bytea[], $24::bytea[], $25::bytea[]) \
     AS new (id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, buries, \
     kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error, body) WHERE"
);
/// Changes jobs, but for their bodies.
pub const UPDATE: &str = fenced!(
    "UPDATE job SET tube = new.tube, pri = new.pri, delay = new.delay, ttr = new.ttr, created = new.created, \
     delayed_until = new.delayed_until, buried = new.buried, reserves = new.reserves, timeouts = new.timeouts, \
     releases = new.releases, buries = new.buries, kicks = new.kicks, attempts = new.attempts, key = new.key, \
     until_deleted = new.until_deleted, root = new.root, root_timestamp = new.root_timestamp, \
     job_group = new.job_group, error = new.error \
     FROM unnest($5::bigint[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], \
     $12::boolean[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], \
     $19::bytea[], $20::boolean[], $21::bytea[], $22::bigint[], $23::bytea[], $24::bytea[]) \
     AS new (id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, buries, \
     kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error) WHERE job.id = new.id AND"
);
/// Deletes jobs.
pub const DELETE: &str = fenced!("DELETE FROM job WHERE id = ANY ($5::bigint[]) AND");
/// Deletes root jobs that are forgotten, or about to be written anew.
pub const ROOT_GONE: &str =
    fenced!("DELETE FROM root WHERE (tube, signature) IN (SELECT * FROM unnest($5::text[], $6::bytea[])) AND");
/// Writes root jobs that are not there.
pub const ROOT: &str = fenced!(
    "INSERT INTO root (tube, signature, newest, changed) SELECT tube, signature, newest, changed \
     FROM unnest($5::text[], $6::bytea[], $7::bigint[], $8::bigint[]) AS new (tube, signature, newest, changed) WHERE"
);
/// Deletes settings that are gone, or about to be written anew.
pub const SETTING_GONE: &str =
    fenced!("DELETE FROM setting WHERE (kind, pattern) IN (SELECT * FROM unnest($5::text[], $6::bytea[])) AND");
/// Writes settings that are not there.
pub const SETTING: &str = fenced!(
    "INSERT INTO setting (kind, pattern, value) SELECT kind, pattern, value \
     FROM unnest($5::text[], $6::bytea[], $7::bytea[]) AS new (kind, pattern, value) WHERE"
);

/// Reads all settings.
pub const SETTINGS: &str = "SELECT kind, pattern, value FROM setting";
/// Reads all root jobs, the one that has changed first before the others.
pub const ROOTS: &str = "SELECT tube, signature, newest, changed FROM root ORDER BY changed";
/// Reads the least and the greatest number of a job.
pub const RANGE: &str = "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM job";
/// Reads so many jobs with higher numbers.
pub const JOBS: &str = "SELECT id, tube, pri, delay, ttr, created, delayed_until, buried, reserves, timeouts, releases, \
    buries, kicks, attempts, key, until_deleted, root, root_timestamp, job_group, error, body \
    FROM job WHERE id > $1 ORDER BY id LIMIT $2";
/// Reads which format the tables have.
pub const FORMAT: &str = "SELECT format FROM meta WHERE one = 1";

/// What a connection begins with. The queue must not stay locked by a transaction whose daemon has stopped in the middle. What the
/// server says of a commit that is not replicated is a warning, which must be heard.
pub const GREETING: &str = "SET idle_in_transaction_session_timeout = 5000; SET client_min_messages = warning";
/// Pins what a commit waits for. A connection that has set nothing follows each change of the server's configuration. The promise
/// of this daemon is no weaker than that what is committed is on the server's disk, and on its replica if it has such a one. A
/// server without this setting has nothing to pin.
pub const DURABLE: &str = "SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') \
    IN ('off', 'local') THEN 'on' ELSE current_setting('synchronous_commit') END, false) \
    WHERE current_setting('synchronous_commit', true) IS NOT NULL";
/// Ends the transaction.
pub const COMMIT: &str = "COMMIT";
/// Undoes the transaction.
pub const ROLLBACK: &str = "ROLLBACK";
/// Checks what would be checked with the commit.
pub const CHECK_AT_ONCE: &str = "SET CONSTRAINTS ALL IMMEDIATE";
/// Begins a transaction in which nothing is left.
pub const BEGIN_ANEW: &str = "BEGIN; DELETE FROM job; DELETE FROM root; DELETE FROM setting";

/// Those that have parameters, or are said often.
pub const PREPARED: &[&str] = &[
    LOOK,
    TAKE_OVER,
    GO_ON,
    RETAKE,
    RENEW,
    RELEASE,
    PUT_PLAIN,
    PUT,
    UPDATE,
    DELETE,
    ROOT_GONE,
    ROOT,
    SETTING_GONE,
    SETTING,
    JOBS,
];
/// The others but for [`fence`].
pub const SIMPLE: &[&str] =
    &[SETTINGS, ROOTS, RANGE, FORMAT, GREETING, DURABLE, COMMIT, ROLLBACK, CHECK_AT_ONCE, BEGIN_ANEW];

/// Returns what begins a transaction and sets the row to its batch, as one message: should the beginning fail, the row is left
/// alone, and nothing behind it has an effect. `address` has no quotes.
pub fn fence(fence: &Fence, next_id: Option<u64>, address: &str) -> String {
    format!("BEGIN; {}", set_row(fence, next_id, address))
}

/// Returns what sets the row to a batch.
pub fn set_row(Fence { epoch, from, to, attempt }: &Fence, next_id: Option<u64>, address: &str) -> String {
    let next_id = next_id.map(|id| format!(", next_id = {id}")).unwrap_or_default();
    format!(
        "UPDATE owner SET batch = {to}, attempt = {attempt}{next_id}, \
         until = clock_timestamp() + interval '{LEASE_SECONDS} seconds' \
         WHERE one = 1 AND epoch = {epoch} AND batch = {from} AND address = '{address}'"
    )
}
