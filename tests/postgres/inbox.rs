//! The inbox: rows that applications insert by transactions of their own become jobs, once each.

use super::proxy::Fate;
use super::{Stage, answer, is_serving, page, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::Client;
use poolcounter_testkit::postgres::{Cluster, own, shared};
use poolcounter_testkit::random::Random;
use std::thread;
use std::time::{Duration, Instant};

/// Waits until no row waits.
fn await_empty(cluster: &Cluster, schema: &str) {
    let waiting = || cluster.query(schema, "SELECT count(*) FROM inbox WHERE refused IS NULL").remove(0);
    until(|| waiting() == "0", "the inbox is empty");
}

#[test]
fn rows_become_jobs_with_their_transaction() {
    let Some(cluster) = shared() else { return };
    let stage = Stage::new(cluster, 1);
    let insert =
        |rows: &str| cluster.query(&stage.schema, &format!("INSERT INTO inbox (tube, body, options) VALUES {rows}"));
    let mut runner = Client::to(stage.daemons[0].jobs());
    assert_eq!(runner.ask("watch wiki/*\r"), "WATCHING 2\r");
    runner.send(b"reserve\r\n");
    cluster.query(&stage.schema, "BEGIN; INSERT INTO inbox (tube, body) VALUES ('wiki/a', 'undone'); ROLLBACK");
    insert("('wiki/a', 'first', 'key=k group=g'), ('wiki/a', 'again', 'key=k'), ('wiki/b', 'second', '')");
    assert_eq!(runner.line(), "RESERVED 1 5\r");
    assert_eq!(runner.line(), "first\r");
    await_empty(cluster, &stage.schema);
    assert_eq!(runner.ask("reserve\r"), "RESERVED 2 6\r");
    assert_eq!(runner.line(), "second\r");
    assert_eq!(cluster.query(&stage.schema, "SELECT count(*) FROM job"), ["2"], "the key kept one out");
}

#[test]
fn rows_wait_while_puts_are_refused() {
    let Some(cluster) = shared() else { return };
    let stage = Stage::new(cluster, 1);
    let jobs = stage.daemons[0].jobs();
    assert_eq!(answer(jobs, "drain"), "DRAINING");
    cluster.query(&stage.schema, "INSERT INTO inbox (tube, body) VALUES ('t', 'first'), ('t', 'second')");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(cluster.query(&stage.schema, "SELECT count(*) FROM inbox"), ["2"]);
    assert_eq!(answer(jobs, "undrain"), "ACCEPTING");
    await_empty(cluster, &stage.schema);
    assert_eq!(
        cluster.query(&stage.schema, "SELECT convert_from(body, 'UTF8') FROM job ORDER BY id"),
        ["first", "second"]
    );
}

#[test]
fn rows_that_are_not_valid_stay_with_the_reason() {
    let Some(cluster) = shared() else { return };
    let stage = Stage::new(cluster, 1);
    cluster.query(
        &stage.schema,
        "INSERT INTO inbox (tube, body, pri, options) VALUES ('-no', 'x', 0, ''), ('t', 'x', -1, ''), ('t', 'x', 0, 'colour=red'), \
         ('t', repeat('x', 70000)::bytea, 0, ''), ('t', 'good', 0, '')",
    );
    await_empty(cluster, &stage.schema);
    assert_eq!(
        cluster.query(&stage.schema, "SELECT refused FROM inbox ORDER BY id"),
        [
            "tube is not the name of a tube",
            "pri, delay, ttr or options are none of put-job",
            "pri, delay, ttr or options are none of put-job",
            "body has 70000 bytes, and jobs.max_size is 65535",
        ]
    );
    let has_condition = |text: &str| page(&stage.daemons[0], "/status.json").1.contains(text);
    until(|| has_condition("inbox: rows refused: 4"), "the condition is there");
    cluster.query(&stage.schema, "DELETE FROM inbox WHERE tube = '-no' OR length(body) > 1000 OR options <> ''");
    cluster.query(&stage.schema, "UPDATE inbox SET pri = 5, refused = NULL");
    await_empty(cluster, &stage.schema);
    assert_eq!(cluster.query(&stage.schema, "SELECT count(*) FROM inbox"), ["0"]);
    assert_eq!(cluster.query(&stage.schema, "SELECT pri FROM job ORDER BY pri"), ["0", "5"]);
    until(|| !has_condition("\"inbox: "), "the condition ends");
}

#[test]
fn inbox_that_cannot_be_read_holds_up_nothing() {
    let Some(cluster) = shared() else { return };
    let stage = Stage::with(cluster, 1, |schema| {
        cluster.query(schema, "ALTER TABLE inbox RENAME ttr TO other");
    });
    let daemon = &stage.daemons[0];
    assert_eq!(answer(daemon.jobs(), "put 0 0 60 1\r\nx"), "INSERTED 1");
    until(|| page(daemon, "/status.json").1.contains("inbox: it cannot be read: "), "the condition is there");
    assert_eq!(answer(daemon.jobs(), "put 0 0 60 1\r\nx"), "INSERTED 2");
}

#[test]
fn producers_need_no_right_but_to_insert() {
    let Some(cluster) = own(&["fsync=off"]) else { return };
    let stage = Stage::new(&cluster, 1);
    let schema = &stage.schema;
    cluster.query(
        schema,
        &format!("CREATE ROLE shop; GRANT USAGE ON SCHEMA {schema} TO shop; GRANT INSERT ON inbox TO shop"),
    );
    cluster.query(schema, "SET ROLE shop; INSERT INTO inbox (tube, body) VALUES ('mail', 'Dear Ann')");
    await_empty(&cluster, schema);
    for sql in ["SELECT * FROM inbox", "DELETE FROM inbox", "SELECT * FROM job"] {
        assert!(cluster.try_query(schema, &format!("SET ROLE shop; {sql}")).is_err(), "{sql}");
    }
    assert_eq!(cluster.query(schema, "SELECT count(*) FROM job"), ["1"]);
}

/// Each row becomes one job, though daemons are killed, stopped and upgraded, and connections are cut, while rows are
/// inserted.
#[test]
fn each_row_becomes_one_job() {
    const ROWS: usize = 3000;
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 2);
    let schema = stage.schema.clone();
    let mut random = Random::new(3);
    thread::scope(|scope| {
        let producer = scope.spawn(|| {
            for first in (0..ROWS).step_by(10) {
                let rows: Vec<String> = (first..first + 10).map(|row| format!("('t', 'row {row}')")).collect();
                cluster.query(&schema, &format!("INSERT INTO inbox (tube, body) VALUES {}", rows.join(", ")));
            }
        });
        while !producer.is_finished() {
            thread::sleep(Duration::from_millis(50 + random.below(400) as u64));
            let at = random.below(2);
            match random.below(4) {
                0 => stage.proxies[at].set(Some(random.pick(&[Fate::DropsBefore, Fate::DropsAfter]))),
                1 => stage.daemons[at].upgrade(),
                how => {
                    stage.daemons[at].signal(if how == 2 { Signal::SIGKILL } else { Signal::SIGTERM });
                    stage.daemons[at].wait();
                    stage.daemons[at] = stage.start(at, "127.0.0.1:0");
                }
            }
        }
    });
    until(|| stage.addresses().iter().any(|address| is_serving(*address)), "a daemon serves");
    await_empty(cluster, &schema);
    let jobs = cluster.query(&schema, "SELECT convert_from(body, 'UTF8') FROM job ORDER BY id");
    let mut distinct = jobs.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!((jobs.len(), distinct.len()), (ROWS, ROWS));
}

/// Rows that are committed one by one are reserved soon after.
#[test]
fn row_is_reserved_soon_after_its_commit() {
    let Some(cluster) = shared() else { return };
    let stage = Stage::new(cluster, 1);
    let mut waits: Vec<Duration> = (0..50)
        .map(|row| {
            let mut runner = Client::to(stage.daemons[0].jobs());
            runner.ask("watch t\r");
            runner.send(b"reserve\r\n");
            thread::sleep(Duration::from_millis(5));
            cluster.query(&stage.schema, &format!("INSERT INTO inbox (tube, body) VALUES ('t', '{row}')"));
            let committed = Instant::now();
            let id = runner.line().split(' ').nth(1).expect("has a number").to_string();
            let wait = committed.elapsed();
            runner.line();
            assert_eq!(runner.ask(&format!("delete {id}\r")), "DELETED\r");
            wait
        })
        .collect();
    waits.sort_unstable();
    println!("a row waits {:?} at the median, {:?} at most", waits[25], waits[49]);
    // Without a notification, it would be seconds.
    assert!(waits[25] < Duration::from_secs(1), "{waits:?}");
    assert_eq!(answer(stage.daemons[0].jobs(), "peek-ready"), "NOT_FOUND");
}
