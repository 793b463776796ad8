//! Very many changes at a time: the number that waits for a commit, the size of a batch, and the time of each step of
//! the loop, by the meter of each step.

use crate::jobs_store::Stage;
use crate::jobs_store::store::plain;
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_jobs::options::Queue;
use poolcounter_jobs::state::{Body, Commit, Stored};
use poolcounter_jobs::store::page::Page;

/// Largest number of changes of a batch, beside the number of the next job.
const BATCH: usize = 16_384;
/// Largest number of waiting changes, and of those of a slice.
const QUEUE: usize = 20_000;
const SLICE: usize = 1_024;

/// Returns a stage with this number of jobs, which client 0 has reserved for `ttr` seconds.
fn holding(jobs: u64, ttr: u32) -> (Stage, usize) {
    let queue = Queue { changes: QUEUE, bytes: usize::MAX };
    let mut stage = Stage::with(JobsSettings { store_timeout: Span::FOREVER, queue, ..JobsSettings::default() });
    let mut page = Page::first(Commit(7), jobs + 1);
    for id in 1..=jobs {
        let mut record = plain(id);
        (record.tube, record.ttr) = (b"default", ttr);
        page.rows.add(Stored::Put(record, &mut Body::Own(b"x".to_vec().into())), Span::ZERO);
    }
    page.is_last = true;
    stage.store.fill(vec![page]);
    stage.world.begin().expect("can be opened");
    let holder = stage.connect();
    stage.store.read_one();
    ticks_until(&mut stage, |stage| !stage.world.is_woken());
    // The setting makes a lost job change.
    assert_eq!(stage.ask(holder, "retry default 0 0 1 0|"), "RETRY|");
    for _ in 0..jobs.div_ceil(1000) {
        stage.world.send(holder, b"reserve-many 1000 0\r\n");
        ticks_until(&mut stage, |stage| stage.world.unread(holder) == 0 && !stage.world.is_woken());
        while !stage.world.take_received(holder).is_empty() {
            stage.world.tick_unchecked();
        }
    }
    (stage, holder)
}

/// Ticks until the condition is true. Nothing is compared, because a comparison looks at every job.
fn ticks_until(stage: &mut Stage, mut is_so: impl FnMut(&mut Stage) -> bool) {
    for _ in 0..100_000 {
        if is_so(stage) {
            return;
        }
        stage.world.tick_unchecked_after(Span::from_micros(100));
    }
    panic!("it does not come");
}

/// Commits everything, and returns the numbers of changes of the batches and the largest number that waited.
fn commit_everything(stage: &mut Stage, asker: usize) -> (Vec<usize>, usize) {
    let (before, mut most, mut idle) = (stage.store.batches().len(), 0, 0);
    while idle < 50 {
        (0..20).for_each(|_| stage.world.tick_unchecked_after(Span::from_millis(1)));
        most = most.max(figure(stage, asker, "store-uncommitted"));
        idle = if stage.store.commit_one() { 0 } else { idle + 1 };
    }
    (stage.store.batches()[before..].iter().map(Vec::len).collect(), most)
}

fn figure(stage: &mut Stage, asker: usize, name: &str) -> usize {
    stage.world.send(asker, b"stats\r\n");
    (0..2).for_each(|_| stage.world.tick_unchecked());
    let text = String::from_utf8(stage.world.take_received(asker)).expect("is text");
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} is not in {text}"))
}

fn assert_bounded((batches, most): &(Vec<usize>, usize), changes: usize) {
    println!("batches of {batches:?}, {most} waited");
    assert!(batches.iter().sum::<usize>() >= changes, "{batches:?}");
    assert!(batches.iter().all(|changes| *changes <= BATCH + 1), "{batches:?}");
    assert!(*most <= QUEUE + SLICE, "{most}");
}

#[test]
fn jobs_of_a_connection_that_is_gone_come_back_as_there_is_room() {
    let (mut stage, holder) = holding(100_000, 60);
    let asker = stage.connect();
    stage.world.reset(holder);
    let committed = commit_everything(&mut stage, asker);
    assert_bounded(&committed, 100_000);
    assert_eq!(figure(&mut stage, asker, "current-jobs-ready"), 100_000);
}

#[test]
fn reservations_that_end_together_end_as_there_is_room() {
    let (mut stage, _) = holding(100_000, 30);
    let asker = stage.connect();
    stage.world.tick_unchecked_after(Span::from_secs(31));
    let committed = commit_everything(&mut stage, asker);
    assert_bounded(&committed, 100_000);
    assert_eq!(figure(&mut stage, asker, "current-jobs-ready"), 100_000);
}

#[test]
fn clear_waits_for_room() {
    let (mut stage, holder) = holding(1, 60);
    let asker = stage.connect();
    for _ in 0..60 {
        stage.world.send(holder, many("put 0 0 9 1\r\nx\r\n", 1000).as_bytes());
        ticks_until(&mut stage, |stage| stage.world.unread(holder) == 0);
        commit_everything_of(&mut stage, holder);
    }
    stage.world.send(holder, b"clear default ready\r\n");
    let committed = commit_everything(&mut stage, asker);
    assert_bounded(&committed, 60_000);
    assert_eq!(stage.heard(holder), "CLEARED 60000|");
}

fn many(text: &str, times: usize) -> String {
    format!("put-many {times}\r\n{}", text.repeat(times))
}

fn commit_everything_of(stage: &mut Stage, client: usize) {
    ticks_until(stage, |stage| {
        stage.store.commit_one();
        !stage.world.take_received(client).is_empty()
    });
    (0..20).for_each(|_| stage.world.tick_unchecked());
    stage.world.take_received(client);
}

/// The jobs of a large batch become visible in slices, and its replies are sent after that.
#[test]
fn many_puts_of_a_batch_are_visible_before_their_replies() {
    let (mut stage, _) = holding(1, 60);
    let producers: Vec<usize> = (0..10).map(|_| stage.connect()).collect();
    let asker = stage.connect();
    stage.send(producers[0], "put 0 0 9 1|a|");
    producers.iter().for_each(|producer| stage.world.send(*producer, many("put 0 0 9 1\r\nx\r\n", 1000).as_bytes()));
    (0..200).for_each(|_| stage.world.tick_unchecked());
    assert!(stage.store.commit_one());
    (0..50).for_each(|_| stage.world.tick_unchecked());
    assert_eq!(stage.heard(producers[0]), "INSERTED 2|");
    assert!(stage.store.commit_one());
    stage.world.tick_unchecked();
    assert_eq!(stage.heard(producers[1]), "", "not all jobs are shown");
    let ready = figure(&mut stage, asker, "current-jobs-ready");
    assert!((1_000..10_001).contains(&ready), "{ready}");
    (0..50).for_each(|_| stage.world.tick_unchecked());
    assert_eq!(stage.heard(producers[1]).matches("INSERTED").count(), 1000);
    assert_eq!(figure(&mut stage, asker, "current-jobs-ready"), 10_001);
}
