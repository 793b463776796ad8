//! All that is said to a database of jobs, held against what the databases that speak the language of PostgreSQL do not have in
//! common. CockroachDB's pages "PostgreSQL Compatibility" and "SQL Feature Support", and YugabyteDB's "PostgreSQL features" and
//! "Known issues", are the sources. These databases cannot be run here; PostgreSQL itself runs each statement in other tests.

use poolcounter_jobs::postgres::owner::Fence;
use poolcounter_jobs::postgres::schema::TABLES;
use poolcounter_jobs::postgres::statements::{PREPARED, SIMPLE, fence, set_row};

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
    let some = Fence { epoch: 1, from: 2, to: 3, attempt: 4 };
    let made = [fence(&some, Some(5), "a:1"), set_row(&some, None, "a:1")];
    let tables = TABLES.split(';').map(ToString::to_string);
    PREPARED.iter().chain(SIMPLE).map(ToString::to_string).chain(made).chain(tables).collect()
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
        assert!(!statement.trim_start().starts_with("with "), "{statement}");
    }
}

/// What a batch writes counts only in the transaction that has set the row: nothing else has its attempt.
#[test]
fn every_write_of_a_batch_is_fenced() {
    let is_change = |statement: &&&str| {
        let text = statement.trim_start();
        ["INSERT", "DELETE", "UPDATE job"].iter().any(|word| text.starts_with(word))
    };
    let changes: Vec<_> = PREPARED.iter().filter(is_change).collect();
    assert!(changes.len() >= 8);
    for statement in changes {
        let guard = "EXISTS (SELECT 1 FROM owner WHERE one = 1 AND epoch = $1 AND batch = $2 AND attempt = $3 AND address = $4)";
        assert!(statement.ends_with(guard), "{statement}");
    }
    let some = Fence { epoch: 1, from: 2, to: 3, attempt: 4 };
    let begin = fence(&some, Some(5), "a:1");
    assert!(begin.starts_with("BEGIN; UPDATE owner SET batch = 3, attempt = 4, next_id = 5,"), "{begin}");
    assert!(begin.ends_with("WHERE one = 1 AND epoch = 1 AND batch = 2 AND address = 'a:1'"), "{begin}");
}
