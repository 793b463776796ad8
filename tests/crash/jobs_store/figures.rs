//! Files with foreign numbers that no daemon writes.

use crate::stored;
use poolcounter_core::time::Span;
use poolcounter_jobs::sqlite::{DatabaseFile, Sqlite};
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Info;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::world::World;
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Values that replace each number.
const NUMBERS: [i64; 7] = [i64::MIN, -1, u32::MAX as i64, u32::MAX as i64 + 1, 1 << 62, i64::MAX - 1, i64::MAX];

/// Returns each column of numbers, with its table.
fn columns(file: &Connection) -> Vec<(String, String)> {
    let question = "SELECT t.name, c.name FROM pragma_table_list AS t, pragma_table_info(t.name) AS c \
                    WHERE t.schema = 'main' AND c.type = 'INTEGER' AND c.name <> 'one'";
    let mut statement = file.prepare(question).expect("is a question");
    let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("is answered");
    columns.map(|column| column.expect("is text")).collect()
}

/// Returns a daemon with the file.
fn world_of(path: &Path) -> World {
    let place = DatabaseFile { path: path.into(), vfs: None };
    stored::install(move || Box::new(Sqlite::new(place.clone())));
    let list: &[&Info] = &[&stored::INFO];
    World::of(list, AllSettings::defaults(list))
}

/// Starts a daemon with the file, and sends requests that depend on numbers.
fn use_file(path: &Path) -> Result<(), String> {
    let mut world = world_of(path);
    world.begin()?;
    let client = world.connect_to("jobs");
    world.send(client, b"put 0 0 9 1\r\na\r\nput 5 1 9 1\r\nb\r\n");
    let mut heard = String::new();
    let deadline = Instant::now() + Duration::from_secs(120);
    while heard.lines().count() < 2 {
        assert!(Instant::now() < deadline, "nothing is committed: {heard}");
        thread::sleep(Duration::from_millis(1));
        world.advance(Span::from_millis(1));
        heard.push_str(&String::from_utf8_lossy(&world.take_received(client)));
        if heard == "INTERNAL_ERROR\r\n" && world.is_ended(client) {
            return Err("the jobs cannot be read".into());
        }
    }
    world.send(client, b"stats\r\nstats-tube default\r\nstats-job 1\r\nstats-job 2\r\nstats-job 3\r\n");
    world.send(client, b"list-jobs default buried 9\r\nkick 9\r\nreserve-with-timeout 0\r\nlist-tubes\r\n");
    world.settle();
    world.advance(Span::from_secs(20));
    world.send(client, b"reserve-with-timeout 0\r\nrelease 1 0 4294967295\r\nfail 2 0 0 1\r\nx\r\nsummary\r\n");
    world.settle();
    world.finish(client);
    world.settle();
    Ok(())
}

#[test]
fn a_number_that_no_daemon_writes_is_taken_or_refused_with_a_sentence() {
    let sql = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores/1.sql");
    let sql = fs::read_to_string(sql).expect("is text");
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    let make = || {
        for file in fs::read_dir(scratch.file("")).expect("is there") {
            fs::remove_file(file.expect("is there").path()).expect("can be removed");
        }
        let file = Connection::open(&path).expect("can be made");
        file.execute_batch(&sql).expect("is a store");
        file
    };
    let columns = columns(&make());
    assert!(columns.len() > 18, "{columns:?}");
    let mut refused = Vec::new();
    for (table, column) in &columns {
        for number in NUMBERS {
            let change = format!("UPDATE {table} SET {column} = ?1 WHERE rowid = (SELECT min(rowid) FROM {table})");
            let file = make();
            assert_eq!(file.execute(&change, [number]).expect("can be written"), 1, "{table}.{column}");
            drop(file);
            println!("{table}.{column} = {number}");
            if let Err(sentence) = use_file(&path) {
                assert!(
                    ["the jobs cannot be kept in ", "the jobs cannot be read"]
                        .iter()
                        .any(|said| sentence.starts_with(said))
                );
                println!("    {sentence}");
                refused.push(format!("{table}.{column}"));
            }
        }
    }
    refused.dedup();
    assert_eq!(refused, ["meta.format", "meta.epoch", "meta.batch", "meta.next_id", "job.id"]);
}

/// A file whose numbers are used up still serves its jobs.
#[test]
fn after_the_last_number_no_job_is_taken() {
    let sql = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores/1.sql");
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    let file = Connection::open(&path).expect("can be made");
    file.execute_batch(&fs::read_to_string(sql).expect("is text")).expect("is a store");
    file.execute("UPDATE meta SET next_id = ?1", [i64::MAX]).expect("can be written");
    drop(file);
    let mut world = world_of(&path);
    world.begin().expect("is read");
    let client = world.connect_to("jobs");
    world.send(client, b"put 0 0 9 1\r\na\r\npeek 1\r\n");
    let mut heard = Vec::new();
    while heard.len() < 29 {
        thread::sleep(Duration::from_millis(1));
        world.settle();
        heard.extend(world.take_received(client));
    }
    assert_eq!(heard, b"OUT_OF_MEMORY\r\nFOUND 1 1\r\na\r\n");
}
