//! A store that is read while clients are connected: which requests wait for that, in which order, and which do not.

use crate::jobs_store::Stage;
use crate::jobs_store::daemon::start;
use crate::jobs_store::store::plain;
use nix::sys::signal::Signal;
use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Body, Commit, Limit, Setting, SettingKind, Stored, Value};
use poolcounter_jobs::store::page::Page;
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::scratch::Scratch;
use rusqlite::Connection;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

const TUBE: &str = "enwiki/refreshLinks";

/// Returns a first page with a limit, and `count` pages of `jobs` jobs each.
fn pages(count: usize, jobs: u64) -> Vec<Page> {
    let mut pages = vec![Page::first(Commit(7), 1)];
    let value = Some(Value::Limit(Limit { most: 1, ..Limit::default() }));
    let limit = Setting { kind: SettingKind::Limit, of: TUBE.as_bytes().into(), value };
    pages[0].rows.add(Stored::Setting(limit), Span::ZERO);
    for n in 0..count as u64 {
        let mut page = Page::default();
        (page.is_last, page.share) = (n + 1 == count as u64, 0.5);
        for id in n * jobs + 1..=(n + 1) * jobs {
            page.rows.add(Stored::Put(plain(id), &mut Body::Own(b"x".to_vec().into())), Span::ZERO);
        }
        pages.push(page);
    }
    pages
}

/// Returns a stage whose store has these pages to read.
fn reading(pages: Vec<Page>) -> Stage {
    let mut stage = Stage::new();
    stage.store.fill(pages);
    stage.world.begin().expect("can be opened");
    stage
}

impl Stage {
    fn read_one(&mut self) {
        self.store.read_one();
        self.world.settle();
    }
}

#[test]
fn clients_wait_in_order_until_all_jobs_are_read() {
    let mut stage = reading(pages(2, 3));
    let (one, two) = (stage.connect(), stage.connect());
    stage.send(one, &format!("use {TUBE}|list-tube-used|peek 6|put 0 0 9 1|a|use b|"));
    assert_eq!(stage.heard(one), "", "the settings are not read");
    stage.read_one();
    assert_eq!(stage.heard(one), format!("USING {TUBE}|USING {TUBE}|"));
    stage.send(two, &format!("watch {TUBE}|ignore default|identify r|list-tubes-watched|nonsense|reserve|"));
    assert!(stage.heard(two).starts_with("WATCHING 2|WATCHING 1|"));
    stage.read_one();
    assert_eq!((stage.heard(one), stage.heard(two)), (String::new(), String::new()));
    stage.read_one();
    assert_eq!(stage.heard(one), "FOUND 6 1|x|");
    assert_eq!(stage.heard(two), "RESERVED 1 1|x|");
    stage.commit_all();
    assert_eq!(stage.heard(one), "INSERTED 7|USING b|");
    // The limit was there before the tube was used.
    assert_eq!(stage.ask(one, &format!("watch {TUBE}|reserve-with-timeout 0|")), "WATCHING 2|TIMED_OUT|");
}

#[test]
fn pools_are_served_between_slices_of_any_number_of_jobs() {
    let mut stage = reading(pages(1, 100_000));
    let jobs = stage.connect();
    stage.send(jobs, "reserve-job 100000|");
    stage.read_one();
    let pools = stage.world.connect_to("pools");
    stage.store.read_one();
    let mut rounds = 0;
    while stage.world.is_woken() {
        stage.world.send(pools, b"ACQ4ME k 1 9 1\nRELEASE\n");
        stage.world.tick_unchecked();
        stage.world.tick_unchecked();
        assert_eq!(stage.world.take_received(pools), b"LOCKED\nRELEASED\n");
        rounds += 1;
    }
    assert!(rounds > 90, "{rounds}");
    stage.world.settle();
    assert_eq!(stage.heard(jobs), "RESERVED 100000 1|x|");
}

#[test]
fn client_that_leaves_while_jobs_are_read_leaves_nothing() {
    let mut stage = reading(pages(1, 3));
    let (one, two) = (stage.connect(), stage.connect());
    stage.read_one();
    stage.send(one, "use a|delete 1|");
    stage.send(two, "delete 2|");
    stage.world.reset(one);
    stage.world.finish(two);
    stage.world.settle();
    stage.read_one();
    assert_eq!(stage.heard(two), "");
    stage.commit_all();
    assert_eq!(stage.heard(two), "DELETED|");
    let three = stage.connect();
    assert_eq!(stage.ask(three, "peek 1|peek 2|"), "FOUND 1 1|x|NOT_FOUND|");
}

/// Jobs that contradict each other close the jobs' connections, and others are served.
#[test]
fn jobs_that_cannot_be_read_are_closed() {
    let mut contradiction = pages(1, 3);
    contradiction[1].rows.add(Stored::Put(plain(2), &mut Body::Own(b"y".to_vec().into())), Span::ZERO);
    let mut stage = reading(contradiction);
    let (one, pools) = (stage.connect(), stage.world.connect_to("pools"));
    stage.send(one, "use a|peek 1|");
    stage.read_one();
    assert_eq!(stage.heard(one), "USING a|");
    stage.read_one();
    assert_eq!(stage.heard(one), "INTERNAL_ERROR|");
    assert!(stage.world.is_ended(one));
    stage.world.send(pools, b"ACQ4ME k 1 9 1\n");
    stage.world.settle();
    assert_eq!(stage.world.take_received(pools), b"LOCKED\n");
}

/// A file of many jobs, in a daemon: its pools are served from the first moment.
#[test]
fn pools_are_served_while_a_file_is_read() {
    const JOBS: u32 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    fill(&path, JOBS);
    let mut daemon = start(&path, &[]);
    let mut jobs = JobsClient::to(daemon.jobs());
    jobs.send(format!("list-tube-used\r\npeek {JOBS}\r\n").as_bytes());
    let mut pools = daemon.connect();
    let (mut longest, mut rounds) = (Duration::ZERO, 0);
    jobs.stream().set_nonblocking(true).expect("can be set");
    while peeked(jobs.stream()) < 20 {
        let begun = Instant::now();
        assert_eq!((pools.ask("ACQ4ME k 1 10 1"), pools.ask("RELEASE")), ("LOCKED".into(), "RELEASED".into()));
        (longest, rounds) = (longest.max(begun.elapsed()), rounds + 1);
    }
    jobs.stream().set_nonblocking(false).expect("can be set");
    println!("{JOBS} jobs: {rounds} rounds of a client of pools, the longest took {longest:?}");
    assert_eq!((jobs.line(), jobs.line()), ("USING default".into(), format!("FOUND {JOBS} 1")));
    daemon.wait_for_log(&format!("{JOBS} were read in"));
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}

/// Returns the number of bytes that can be read.
fn peeked(stream: &TcpStream) -> usize {
    stream.peek(&mut [0; 64]).unwrap_or(0)
}

/// Returns a stage whose processes read the state of the one before, and clients: one has reserved the jobs 1 and 2,
/// one waits, one sends queries.
fn upgraded() -> (Stage, [usize; 3]) {
    let mut stage = Stage::reading_after_upgrades(2);
    let [holds, waits, asks] = std::array::from_fn(|_| stage.connect());
    stage.ask(
        asks,
        "put 0 0 60 1|a|put 0 0 60 1|b|put 9 0 60 1|c|put 9 90 60 1|d|put-job 9 0 60 1 key=k|e|put 9 0 60 1|f|",
    );
    stage.ask(asks, "root t S 5|reserve-job 6|bury 6 3|limit t 1|");
    assert_eq!(stage.ask(holds, "reserve|reserve|"), "RESERVED 1 1|a|RESERVED 2 1|b|");
    stage.ask(waits, "watch t|ignore default|");
    stage.send(waits, "reserve-with-timeout 9|");
    stage.heard(asks);
    stage.upgrade();
    (stage, [holds, waits, asks])
}

#[test]
fn holders_go_on_while_the_other_jobs_are_read_after_an_upgrade() {
    let (mut stage, [holds, waits, asks]) = upgraded();
    stage.send(asks, "use t|peek 3|");
    assert_eq!(stage.heard(asks), "USING t|");
    assert_eq!(stage.ask(holds, "touch 1|touch 3|"), "TOUCHED|");
    let other = stage.connect();
    assert_eq!(stage.ask(other, "list-tube-used|delete 1|"), "USING default|");
    // The end of its wait is known.
    stage.world.advance(Span::from_secs(10));
    assert_eq!(stage.heard(waits), "TIMED_OUT|");
    while stage.store.has_pages() {
        stage.read_one();
    }
    stage.commit_all();
    assert_eq!((stage.heard(asks), stage.heard(other)), ("FOUND 3 1|c|".into(), "NOT_FOUND|".into()));
    assert_eq!(stage.heard(holds), "NOT_FOUND|");
    assert_eq!(stage.ask(asks, "use default|peek-buried|peek-delayed|"), "USING default|FOUND 6 1|f|FOUND 4 1|d|");
    assert_eq!(stage.ask(asks, "put-job 0 0 9 1 key=k|x|peek 1|"), "DUPLICATE 5|FOUND 1 1|a|");
    assert_eq!(stage.ask(asks, "put-job 0 0 9 1 tube=t root=S root-ts=4|x|put 0 0 9 1|g|"), "SUPERSEDED|INSERTED 7|");
}

/// Jobs that are deleted, released or put aside before they are read keep their new state.
#[test]
fn jobs_that_change_before_they_are_read_stay_as_they_are() {
    let (mut stage, [holds, _, asks]) = upgraded();
    assert_eq!(stage.ask(holds, "delete 1|release 2 7 0|"), "DELETED|RELEASED|");
    stage.read_one();
    stage.read_one();
    // Another process takes over, and another.
    stage.upgrade();
    stage.read_one();
    stage.upgrade();
    while stage.store.has_pages() {
        stage.read_one();
    }
    assert_eq!(stage.ask(asks, "peek 1|peek 2|"), "NOT_FOUND|FOUND 2 1|b|");
    assert_eq!(stage.ask(holds, "reserve|reserve|"), "RESERVED 2 1|b|RESERVED 3 1|c|");
}

#[test]
fn reservations_end_before_they_are_read() {
    let (mut stage, [holds, _, asks]) = upgraded();
    stage.world.reset(holds);
    stage.world.settle();
    stage.commit_all();
    stage.upgrade();
    let other = stage.connect();
    stage.send(other, "reserve-many 9 0|");
    while stage.store.has_pages() {
        stage.read_one();
    }
    assert_eq!(stage.heard(other), "RESERVED 1 1|a|RESERVED 2 1|b|RESERVED 3 1|c|RESERVED 5 1|e|END|");
    assert_eq!(stage.ask(asks, "peek-buried|"), "FOUND 6 1|f|");
}

/// A job that was handed over and is not in the store is dropped.
#[test]
fn jobs_that_the_store_has_not_are_gone() {
    let (mut stage, [holds, ..]) = upgraded();
    stage.store.fill(pages(1, 1));
    stage.read_one();
    stage.read_one();
    assert_eq!(stage.ask(holds, "touch 2|delete 1|peek 2|"), "NOT_FOUND|DELETED|NOT_FOUND|");
}

/// Makes the file of a store with this number of jobs.
fn fill(path: &Path, jobs: u32) {
    drop(start(path, &[]));
    let file = Connection::open(path).expect("is a file of SQLite");
    let fill = "INSERT INTO job (id, tube, pri, delay, ttr, created, body) \
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                SELECT i, 'default', 0, 0, 60, 0, x'61' FROM n";
    file.execute(fill, [jobs]).expect("can be written");
    file.execute("UPDATE meta SET next_id = ?1", [jobs + 1]).expect("can be written");
}

/// Upgrades while a process still reads the jobs of the one before, and then a crash: nothing is lost, nothing comes
/// back.
#[test]
fn jobs_survive_upgrades_and_a_crash_while_they_are_read() {
    const JOBS: u32 = 50_000;
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    fill(&path, JOBS);
    let mut daemon = start(&path, &[]);
    let upgrade = |daemon: &mut Daemon| {
        daemon.signal(Signal::SIGUSR1);
        daemon.wait_for_log("has taken over");
    };
    // The process has read some of them at most.
    upgrade(&mut daemon);
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!((client.ask("reserve-many 3 9"), client.line()), ("RESERVED 1 1".into(), "a".into()));
    (0..5).for_each(|_| _ = client.line());
    upgrade(&mut daemon);
    assert_eq!((client.ask("touch 1"), client.ask("delete 1")), ("TOUCHED".into(), "DELETED".into()));
    upgrade(&mut daemon);
    assert_eq!((client.ask("release 2 7 0"), client.ask("delete 1")), ("RELEASED".into(), "NOT_FOUND".into()));
    assert_eq!((client.ask(&format!("peek {JOBS}")), client.line()), (format!("FOUND {JOBS} 1"), "a".into()));
    upgrade(&mut daemon);
    assert_eq!(client.ask("bury 3 7"), "BURIED");
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let daemon = start(&path, &[]);
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!(
        (client.ask("peek 1"), client.ask("peek-buried"), client.line()),
        ("NOT_FOUND".into(), "FOUND 3 1".into(), "a".into())
    );
    assert_eq!(client.stat("stats", "current-jobs-ready"), (JOBS - 2).to_string());
    assert_eq!(client.ask("put 0 0 9 1\r\nb"), format!("INSERTED {}", JOBS + 1));
}
