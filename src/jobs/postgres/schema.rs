//! Tables in the database.

/// Format of the tables. A daemon refuses another one.
pub const FORMAT: i64 = 1;

/// Times are microseconds since 1970, but for those of the row `owner`, which are of the database's own clock. Names
/// given by clients are bytes; only the names of tubes are sure to be ASCII. `queue` is unique for each queue.
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
    address text NOT NULL
);
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
    origin bytea,
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
INSERT INTO meta (one, format, queue) VALUES (1, 1, gen_random_uuid());
INSERT INTO owner (one, epoch, batch, attempt, next_id, since, until, address)
    VALUES (1, 0, 0, 0, 1, clock_timestamp(), clock_timestamp(), 'nobody');
";
