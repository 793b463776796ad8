//! All statements to a database of jobs, checked for features that the databases with the language of PostgreSQL do not
//! have in common. CockroachDB's pages "PostgreSQL Compatibility" and "SQL Feature Support", and YugabyteDB's
//! "PostgreSQL features" and "Known issues", are the sources. These databases cannot be run here; PostgreSQL itself
//! runs each statement in other tests.

use poolcounter_jobs::postgres::schema::TABLES;
use poolcounter_jobs::postgres::statements::{AT_ONCE, FENCE, LIMITS, OF_OWNER, SIMPLE, idle_limit, of_batch};
use std::time::Duration;

/// Features that one of them lacks, or has in name only.
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
        .copied()
        .chain(of_batch())
        .chain(SIMPLE.iter().copied())
        .chain(LIMITS)
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

/// A statement that both inserts into and deletes from a table, or changes it twice, sees other rows on CockroachDB.
#[test]
fn no_statement_changes_a_table_twice() {
    for statement in all().iter().flat_map(|statement| statement.split(';').map(str::to_lowercase).collect::<Vec<_>>())
    {
        let of = |word: &str| {
            let rests = statement.split(word).skip(1);
            rests.map(|rest| rest.split(' ').next().unwrap_or_default().to_string()).collect::<Vec<_>>()
        };
        let mut changed = [of("insert into "), of("delete from "), of("update ")].concat();
        let count = changed.len();
        changed.sort();
        changed.dedup();
        assert!(changed.len() == count && !statement.contains("on conflict"), "{statement}");
        // Only what commits a batch changes several.
        assert!(count <= 1 || AT_ONCE.iter().any(|(_, at_once)| at_once.to_lowercase() == statement), "{statement}");
    }
}

/// A batch is committed only if the owner's row is as expected: otherwise the transaction fails, at its last statement.
#[test]
fn fence_of_a_batch_fails_where_it_changes_nothing() {
    let guard =
        "WHERE one = 1 AND epoch = $4 AND batch = $5 AND address = $6 RETURNING one) SELECT 1 / count(*) FROM kept";
    assert!(FENCE.starts_with("WITH kept AS (UPDATE owner SET batch = $1, attempt = $2,"), "{}", *FENCE);
    assert!(FENCE.ends_with(guard), "{}", *FENCE);
}

/// A batch of one kind of changes is that statement and the fence, in this order: the owner's row is locked last.
#[test]
fn batch_of_one_statement_ends_with_the_fence() {
    for (change, at_once) in &*AT_ONCE {
        let first = (1..).find(|n| !change.contains(&format!("${n}::"))).expect("it has few");
        let [batch, attempt, next, epoch, from, address] = [0, 1, 2, 3, 4, 5].map(|n| format!("${}", first + n));
        let begin = format!(
            "WITH done AS ({change} RETURNING 1), \
             kept AS (UPDATE owner SET batch = {batch}, attempt = {attempt}, next_id = coalesce({next}, next_id), until = "
        );
        let guard = format!(
            " WHERE one = 1 AND epoch = {epoch} AND batch = {from} AND address = {address} \
             AND (SELECT count(*) FROM done) >= 0 RETURNING one) SELECT 1 / count(*) FROM kept"
        );
        assert!(at_once.starts_with(&begin) && at_once.ends_with(&guard), "{at_once}");
    }
}
