PRAGMA application_id = 1886023522;
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    format INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    next_id INTEGER NOT NULL,
    queue TEXT NOT NULL
) STRICT;
CREATE TABLE job (
    id INTEGER PRIMARY KEY,
    tube TEXT NOT NULL,
    pri INTEGER NOT NULL,
    delay INTEGER NOT NULL,
    ttr INTEGER NOT NULL,
    created INTEGER NOT NULL,
    delayed_until INTEGER,
    buried INTEGER NOT NULL DEFAULT 0,
    reserves INTEGER NOT NULL DEFAULT 0,
    timeouts INTEGER NOT NULL DEFAULT 0,
    releases INTEGER NOT NULL DEFAULT 0,
    buries INTEGER NOT NULL DEFAULT 0,
    kicks INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0,
    key BLOB,
    until_deleted INTEGER NOT NULL DEFAULT 0,
    root BLOB,
    root_timestamp INTEGER,
    job_group BLOB,
    error BLOB,
    origin BLOB,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE root (
    tube TEXT NOT NULL,
    signature BLOB NOT NULL,
    newest INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    PRIMARY KEY (tube, signature)
) STRICT, WITHOUT ROWID;
CREATE TABLE setting (
    kind TEXT NOT NULL,
    pattern BLOB NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, pattern)
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES (1, 1, 3, 8, 6, '0123456789abcdef0123456789abcdef');
INSERT INTO job VALUES (1, 'default', 3, 0, 9, 1795292507093142, NULL, 0, 1, 0, 1, 0, 0, 0, NULL, 0, NULL, NULL, NULL, NULL, NULL, X'61');
INSERT INTO job VALUES (2, 'default', 5, 0, 9, 1795292507093142, NULL, 0, 0, 0, 0, 0, 0, 0, X'6b', 0, X'53', 4, X'67', NULL, NULL, X'6262');
INSERT INTO job VALUES (3, 'default', 0, 0, 9, 1795292507101147, NULL, 1, 2, 0, 0, 1, 0, 1, NULL, 1, NULL, NULL, NULL, X'6974206661696c6564', NULL, X'6363');
INSERT INTO root VALUES ('t', X'53', 7, 4102444800000000);
INSERT INTO setting VALUES ('limit', X'2a2f78', X'342065616368');
INSERT INTO setting VALUES ('retry', X'2a2f78', X'3520312e352032203630');
