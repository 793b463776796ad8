//! All that is said to a database of jobs, held against what the databases that speak the language of PostgreSQL do not have in
//! common. CockroachDB's pages "PostgreSQL Compatibility" and "SQL Feature Support", and YugabyteDB's "PostgreSQL features" and
//! "Known issues", are the sources. These databases cannot be run here; PostgreSQL itself runs each statement in other tests.

use poolcounter_jobs::postgres::schema::TABLES;
use poolcounter_jobs::postgres::statements::{FENCE, LIMITS, OF_BATCH, OF_OWNER, SIMPLE, idle_limit};
use std::time::Duration;

/// What one of them does not have, or has in name only.
const FOREIGN: &[(&str, &str)] = &[
    ("advisory", "locks by name do nothing on CockroachDB"),
    ("listen ", "CockroachDB has no notifications"),
    ("notify", "CockroachDB has no notifications"),
    ("skip locked", "is newer on CockroachDB than what is promised"),
    ("lock table", "is refused by CockroachDB"),
    ("truncate", "is no part of a transaction on CockroachDB and YugabyteDB"),
    ("copy ", "has other options on CockroachDB"),
    ("unlogged", "means nothing on CockroachDB"),
    ("ctid", "rows have no place on CockroachDB and YugabyteDB"),
    ("xmin", "rows have no such column there"),
    ("serial", "numbers come in no order on CockroachDB"),
    ("generated ", "sequences are slow on both"),
    ("merge ", "is missing on both"),
    ("savepoint", "costs a round trip, and means something else on CockroachDB"),
    ("declare ", "cursors that outlive a transaction are missing"),
    ("exclude ", "constraints of exclusion are missing on CockroachDB"),
    ("inherits", "tables do not inherit on CockroachDB"),
    ("do $$", "there is no anonymous block on older CockroachDB"),
    ("trigger", "is new on CockroachDB"),
    ("tablespace", "is missing on CockroachDB"),
    ("with (", "parameters of storage differ"),
    ("using gist", "is missing on CockroachDB"),
    ("now()", "stands still in a transaction"),
];

fn all() -> Vec<String> {
    let made = [idle_limit(Duration::from_secs(1))];
    let tables = TABLES.split(';').map(ToString::to_string);
    OF_OWNER
        .iter()
        .chain(OF_BATCH)
        .chain(SIMPLE)
        .chain(&LIMITS)
        .map(ToString::to_string)
        .chain(made)
        .chain(tables)
        .collect()
}

#[test]
fn every_statement_is_one_that_all_of_them_have() {
    let statements = all();
    assert!(statements.len() > 30, "some are left out");
    for statement in &statements {
        let text = statement.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
        println!("{text}");
        for (word, why) in FOREIGN {
            assert!(!text.contains(word), "{word} {why}: {text}");
        }
    }
}

/// One statement that both inserts into and deletes from a table, or changes it twice, sees other rows on CockroachDB.
#[test]
fn no_statement_changes_two_things() {
    for statement in all().iter().flat_map(|statement| statement.split(';').map(str::to_lowercase).collect::<Vec<_>>())
    {
        let begin = |word: &str| statement.matches(word).count();
        let changes = begin("insert into ") + begin("delete from ") + begin("update ");
        assert!(changes <= 1 && !statement.contains("on conflict"), "{statement}");
    }
}

/// What a batch writes counts only if the row is as it must be: the transaction fails otherwise, at its last statement.
#[test]
fn fence_of_a_batch_fails_where_it_changes_nothing() {
    let guard =
        "WHERE one = 1 AND epoch = $4 AND batch = $5 AND address = $6 RETURNING one) SELECT 1 / count(*) FROM kept";
    assert!(FENCE.starts_with("WITH kept AS (UPDATE owner SET batch = $1, attempt = $2,"), "{FENCE}");
    assert!(FENCE.ends_with(guard), "{FENCE}");
}
