//! A store that is read while its clients are there: who waits for that, in which order, and who does not.

use crate::jobs_store::Stage;
use crate::jobs_store::daemon::{Speaker, start};
use crate::jobs_store::store::plain;
use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Body, Commit, Setting, Stored};
use poolcounter_jobs::store::page::Page;
use poolcounter_testkit::scratch::Scratch;
use rusqlite::Connection;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const TUBE: &str = "enwiki/refreshLinks";

/// Returns a first page with a limit, and pages of so many jobs each.
fn pages(count: usize, jobs: u64) -> Vec<Page> {
    let mut pages = vec![Page::first(Commit(7), 1)];
    pages[0].rows.add(Stored::Setting(Setting::Limit(TUBE.as_bytes(), Some((1, false)))), Span::ZERO);
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

/// Jobs that contradict each other are closed, and the others are served.
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
    drop(start(&path, &[]));
    let file = Connection::open(&path).expect("is a file of SQLite");
    let fill = "INSERT INTO job (id, tube, pri, delay, ttr, created, body) \
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                SELECT i, 'default', 0, 0, 60, 0, x'61' FROM n";
    file.execute(fill, [JOBS]).expect("can be written");
    file.execute("UPDATE meta SET next_id = ?1", [JOBS + 1]).expect("can be written");
    drop(file);
    let mut daemon = start(&path, &[]);
    let mut jobs = Speaker::connect(daemon.jobs());
    jobs.send(&format!("list-tube-used|peek {JOBS}|"));
    let mut pools = daemon.connect();
    let (mut longest, mut rounds) = (Duration::ZERO, 0);
    jobs.0.get_ref().set_nonblocking(true).expect("can be set");
    while peeked(jobs.0.get_ref()) < 20 {
        let begun = Instant::now();
        assert_eq!((pools.ask("ACQ4ME k 1 10 1"), pools.ask("RELEASE")), ("LOCKED".into(), "RELEASED".into()));
        (longest, rounds) = (longest.max(begun.elapsed()), rounds + 1);
    }
    jobs.0.get_ref().set_nonblocking(false).expect("can be set");
    println!("{JOBS} jobs: {rounds} rounds of a client of pools, the longest took {longest:?}");
    assert_eq!((jobs.line(), jobs.line()), ("USING default".into(), format!("FOUND {JOBS} 1")));
    daemon.wait_for_log(&format!("{JOBS} were read in"));
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}

/// Returns how many bytes wait to be read.
fn peeked(stream: &TcpStream) -> usize {
    stream.peek(&mut [0; 64]).unwrap_or(0)
}
