//! Tables in the database, each released format of them, and the migrations between these.

/// The format that is written. A daemon refuses a newer one.
pub const FORMAT: i64 = 4;

/// Migrations from each format to the next; the first leads from 1 to 2.
///
/// Two daemons may migrate at a time: the second waits for the first, and changes nothing.
pub const MIGRATIONS: [&str; FORMAT as usize - 1] = [
    "ALTER TABLE meta ADD COLUMN IF NOT EXISTS queue uuid; \
    UPDATE meta SET queue = gen_random_uuid() WHERE queue IS NULL; \
    ALTER TABLE meta ALTER COLUMN queue SET NOT NULL",
    "ALTER TABLE owner ADD COLUMN IF NOT EXISTS rewrites bigint NOT NULL DEFAULT 0; \
    CREATE TABLE IF NOT EXISTS changed (batch bigint NOT NULL, after bigint NOT NULL, ids bigint[] NOT NULL); \
    CREATE INDEX IF NOT EXISTS changed_batch ON changed (batch)",
    "ALTER TABLE changed ADD COLUMN IF NOT EXISTS tubes text[], ADD COLUMN IF NOT EXISTS signatures bytea[]",
];

/// Times are microseconds since 1970, but for those of the row `owner`, which are of the database's own clock. Names
/// given by clients are bytes; only the names of tubes are sure to be ASCII. `queue` is unique for each queue. The
/// first take-over has a number that comes from the time, by which daemons of earlier versions tell queues apart.
/// `changed` has the numbers of the jobs that each recent batch has changed, and the tubes and signatures of its root
/// jobs, for daemons that follow; daemons of format 3 note no root jobs. `rewrites` grows with each change that is not
/// in it.
pub const TABLES: &str = "\
CREATE TABLE meta (
    one int PRIMARY KEY CHECK (one = 1),
    format bigint NOT NULL,
    queue uuid NOT NULL
);
CREATE TABLE owner (
    one int PRIMARY KEY CHECK (one = 1),
    epoch bigint NOT NULL,
    batch bigint NOT NULL,
    attempt bigint NOT NULL,
    next_id bigint NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    address text NOT NULL,
    rewrites bigint NOT NULL DEFAULT 0
);
CREATE TABLE changed (
    batch bigint NOT NULL,
    after bigint NOT NULL,
    ids bigint[] NOT NULL,
    tubes text[],
    signatures bytea[]
);
CREATE INDEX changed_batch ON changed (batch);
CREATE TABLE job (
    id bigint PRIMARY KEY,
    tube text NOT NULL,
    pri bigint NOT NULL,
    delay bigint NOT NULL,
    ttr bigint NOT NULL,
    created bigint NOT NULL,
    delayed_until bigint,
    buried boolean NOT NULL DEFAULT false,
    reserves bigint NOT NULL DEFAULT 0,
    timeouts bigint NOT NULL DEFAULT 0,
    releases bigint NOT NULL DEFAULT 0,
    buries bigint NOT NULL DEFAULT 0,
    kicks bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0,
    key bytea,
    until_deleted boolean NOT NULL DEFAULT false,
    root bytea,
    root_timestamp bigint,
    job_group bytea,
    error bytea,
    body bytea NOT NULL
);
CREATE TABLE root (
    tube text NOT NULL,
    signature bytea NOT NULL,
    newest bigint NOT NULL,
    changed bigint NOT NULL,
    PRIMARY KEY (tube, signature)
);
CREATE TABLE setting (
    kind text NOT NULL,
    pattern bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (kind, pattern)
);
INSERT INTO meta (one, format, queue) VALUES (1, 4, gen_random_uuid());
INSERT INTO owner (one, epoch, batch, attempt, next_id, since, until, address)
    SELECT 1, CAST(floor(extract(epoch FROM clock_timestamp())) AS bigint) * 1048576, 0, 0, 1,
        clock_timestamp(), clock_timestamp(), 'nobody';
";

/// Returns the migrations from an older format to the present one; None if the format is newer.
pub fn migrations(format: i64) -> Option<&'static [&'static str]> {
    let done = usize::try_from(format.checked_sub(1)?).ok()?;
    MIGRATIONS.get(done..)
}
