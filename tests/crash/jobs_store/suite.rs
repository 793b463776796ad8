//! Behaviour of every store that keeps jobs beyond the process: each test runs on each of them.

use crate::jobs_store::kept::{Change, EPOCH, Kept, commit, load, settle, verdict_of, verdict_within};
use poolcounter_core::time::{Span, Time};
use poolcounter_jobs::postgres::Postgres;
use poolcounter_jobs::sqlite::{DatabaseFile, Sqlite};
use poolcounter_jobs::state::Commit;
use poolcounter_jobs::store::{Copying, HandedOver, Jobs, Mark, Memory, Ownership, Store, Verdict};
use poolcounter_testkit::postgres::{place_of, shared};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::seeds::{History, play};
use std::time::{Duration, Instant};

/// Function that opens a store in a directory. The same directory is the same place.
pub type Open = fn(&Scratch) -> Box<dyn Store<Jobs>>;

/// Stores that keep jobs beyond the process.
const STORES: &[(&str, Open)] = &[("sqlite", sqlite), ("postgres", postgres)];

pub fn sqlite(scratch: &Scratch) -> Box<dyn Store<Jobs>> {
    Box::new(Sqlite::new(DatabaseFile { path: scratch.file("jobs.db"), vfs: None }))
}

pub fn postgres(scratch: &Scratch) -> Box<dyn Store<Jobs>> {
    Box::new(Postgres::new(place_of(&url_of(scratch))))
}

/// Returns the URL of a schema that is named after the directory.
pub fn url_of(scratch: &Scratch) -> String {
    let cluster = shared().expect("it is there, or this store is left out");
    let name =
        scratch.file("").components().next_back().map(|name| name.as_os_str().to_string_lossy().replace('-', "_"));
    cluster.url(&name.expect("it has a name"))
}

fn on_each(test: impl Fn(Open, Scratch)) {
    for (name, open) in STORES {
        println!("{name}");
        if *name == "postgres" && shared().is_none() {
            continue;
        }
        test(*open, Scratch::new());
    }
}

/// Returns whether a store without pending verdicts is not busy, at the latest after two more checks.
fn comes_to_rest(store: &mut dyn Store<Jobs>) -> bool {
    let is_silent = (0..2).all(|_| !store.is_busy() || store.verdict().is_none());
    is_silent && !store.is_busy() && store.verdict().is_none()
}

#[test]
fn every_batch_has_one_verdict() {
    on_each(|open, scratch| {
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        for number in 1..5 {
            assert!(comes_to_rest(&mut *store));
            kept.add(&mut *store, Change::Put(number, b"a".to_vec()));
            store.commit(Commit(number));
            assert!(store.is_busy());
            assert_eq!(verdict_of(&mut *store), Verdict::Committed(Commit(number)));
        }
        assert!(store.verdict().is_none());
    });
}

#[test]
fn a_store_in_memory_gets_no_commits() {
    let store: &mut dyn Store<Jobs> = &mut Memory;
    assert_eq!(load(store, EPOCH).expect("is always new"), Kept::default());
    assert!(store.is_immediate() && !store.is_busy() && !store.is_failing());
    assert!(store.verdict().is_none() && store.health().is_none() && store.copy(b"copy") == Copying::Impossible);
}

#[test]
fn a_store_has_exactly_the_committed_changes() {
    on_each(|open, scratch| {
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        assert_eq!(load(&mut *store, EPOCH).expect("is new"), kept);
        kept.add(&mut *store, Change::Put(1, b"short".to_vec()));
        kept.add(&mut *store, Change::Put(2, vec![7; 3_000_000]));
        kept.add(&mut *store, Change::Put(3, Vec::new()));
        kept.add(&mut *store, Change::NextId(9));
        commit(&mut *store, &mut kept, 1);
        kept.add(&mut *store, Change::Update(2));
        kept.add(&mut *store, Change::Delete(1));
        kept.add(&mut *store, Change::Root(b"a/b".to_vec(), u64::MAX));
        (0..5).for_each(|kind| kept.add(&mut *store, Change::Setting(kind, true)));
        commit(&mut *store, &mut kept, 2);
        // Added, and never committed.
        kept.clone().add(&mut *store, Change::Put(10, b"lost".to_vec()));
        drop(store);
        let (mut store, found) = open_as_owner(open, &scratch, EPOCH);
        assert_eq!(found, kept);
        (0..5).for_each(|kind| kept.add(&mut *store, Change::Setting(kind, false)));
        kept.add(&mut *store, Change::RootGone(b"a/b".to_vec()));
        commit(&mut *store, &mut kept, 3);
        drop(store);
        assert_eq!(open_as_owner(open, &scratch, EPOCH).1, kept);
    });
}

/// Delays and ages count in time of day: a daemon that starts later finds shorter delays left.
#[test]
fn times_mean_the_same_to_a_later_process() {
    on_each(|open, scratch| {
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        kept.add(&mut *store, Change::Delayed(1, Time::from_micros(90_000_000)));
        commit(&mut *store, &mut kept, 1);
        drop(store);
        let later = open_as_owner(open, &scratch, EPOCH + Span::from_secs(60)).1;
        let (record, _) = later.job(1);
        assert_eq!((record.delayed, record.created), (Some(Time::from_micros(30_000_000)), 5_000_000 - 60_000_000));
        let over = open_as_owner(open, &scratch, EPOCH + Span::from_secs(600)).1;
        assert_eq!(over.job(1).0.delayed, Some(Time::START));
    });
}

#[test]
fn random_batches_and_openings_find_store_and_naive_one_agree() {
    play("jobs-batches", |history| agree(history, sqlite));
}

/// Connections take long to make, so PostgreSQL gets fewer seeds.
#[test]
fn random_batches_find_postgres_and_naive_store_agree() {
    if shared().is_some() {
        play("jobs-batches-postgres", |history| agree(history, postgres));
    }
}

fn agree(History { seed, steps }: History, open: Open) {
    let (scratch, mut random) = (Scratch::new(), Random::new(seed));
    let mut store = open(&scratch);
    let mut kept = load(&mut *store, EPOCH).expect("is new");
    let mut next = 1;
    for batch in 1..=steps {
        for _ in 0..random.below(12) {
            kept.add_any(&mut *store, &mut random, &mut next);
        }
        commit(&mut *store, &mut kept, batch);
        if random.once_in(15) {
            drop(store);
            let found;
            (store, found) = open_as_owner(open, &scratch, EPOCH);
            assert_eq!(found, kept);
        }
    }
}

/// Opens a store that no process uses any more, with its contents. PostgreSQL may end the session of the former owner
/// later; the store stands by until then.
fn open_as_owner(open: Open, scratch: &Scratch, epoch: Span) -> (Box<dyn Store<Jobs>>, Kept) {
    for _ in 0..50 {
        let mut store = open(scratch);
        let kept = load(&mut *store, epoch).expect("is readable");
        if store.ownership() == Ownership::Owns {
            return (store, kept);
        }
    }
    panic!("the store has another owner");
}

#[test]
fn an_open_store_cannot_be_opened_again() {
    on_each(|open, scratch| {
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        let mut other = open(&scratch);
        match load(&mut *other, EPOCH) {
            Ok(kept) => {
                assert_eq!(kept, Kept::default());
                assert_eq!((other.ownership(), other.verdict()), (Ownership::StandsBy, None));
                assert!(!other.health().and_then(|health| health.owner).expect("is told").is_self);
            }
            Err(refusal) => assert!(refusal.contains("another daemon keeps its jobs there"), "{refusal}"),
        }
        drop(other);
        drop(store);
        open_as_owner(open, &scratch, EPOCH);
    });
}

/// Returns the number of the opening of a store.
fn opening_of(store: &dyn Store<Jobs>) -> u64 {
    store.hand_over(0, 1).mark.opening
}

/// Ends a store like a program that is replaced by another: a shared store is not released.
fn leave(store: Box<dyn Store<Jobs>>) {
    if store.health().is_some_and(|health| health.owner.is_some()) {
        std::mem::forget(store);
    }
}

#[test]
fn a_process_that_has_everything_goes_on_where_the_other_stopped() {
    on_each(|open, scratch| {
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        kept.add(&mut *store, Change::Put(1, b"a".to_vec()));
        kept.add(&mut *store, Change::NextId(2));
        commit(&mut *store, &mut kept, 1);
        let handed_over = store.hand_over(1, 2);
        leave(store);
        let mut store = open(&scratch);
        store.go_on(EPOCH, handed_over.clone());
        settle(&mut *store);
        kept.add(&mut *store, Change::Put(2, b"b".to_vec()));
        commit(&mut *store, &mut kept, 2);
        assert!(!store.is_failing() && opening_of(&*store) > handed_over.mark.opening);
        drop(store);
        assert_eq!(open_as_owner(open, &scratch, EPOCH).1, kept);
    });
}

/// A process of an earlier version does not hand over the id of its queue.
#[test]
fn handover_without_an_id_goes_on_by_the_mark() {
    let scratch = Scratch::new();
    let mut kept = Kept::default();
    let mut store = sqlite(&scratch);
    load(&mut *store, EPOCH).expect("is new");
    kept.add(&mut *store, Change::Put(1, b"a".to_vec()));
    kept.add(&mut *store, Change::NextId(2));
    commit(&mut *store, &mut kept, 1);
    let handed_over = HandedOver { queue: None, ..store.hand_over(1, 2) };
    drop(store);
    let mut store = sqlite(&scratch);
    store.go_on(EPOCH, handed_over);
    settle(&mut *store);
    drop(store);
    assert_eq!(load(&mut *sqlite(&scratch), EPOCH).expect("is readable"), kept);
}

/// Two daemons have served copies of one file, with equal numbers of changes: the marks of the files are the same.
#[test]
fn copy_that_another_has_served_is_put_aside() {
    let (own, other) = (Scratch::new(), Scratch::new());
    let mut store = sqlite(&own);
    let mut kept = load(&mut *store, EPOCH).expect("is new");
    kept.add(&mut *store, Change::Put(1, b"both".to_vec()));
    kept.add(&mut *store, Change::NextId(2));
    commit(&mut *store, &mut kept, 1);
    drop(store);
    std::fs::copy(own.file("jobs.db"), other.file("jobs.db")).expect("can be copied");
    let serve = |scratch: &Scratch, body: &[u8]| {
        let mut store = sqlite(scratch);
        let mut kept = load(&mut *store, EPOCH).expect("is readable");
        kept.add(&mut *store, Change::Put(2, body.to_vec()));
        kept.add(&mut *store, Change::NextId(3));
        commit(&mut *store, &mut kept, 2);
        let handed_over = store.hand_over(2, 3);
        (kept, handed_over)
    };
    let ((mut mine, handed_over), (theirs, others)) = (serve(&own, b"mine"), serve(&other, b"theirs"));
    assert_eq!(handed_over.mark, others.mark);
    let mut store = sqlite(&other);
    store.go_on(EPOCH, handed_over);
    assert_eq!(verdict_of(&mut *store), Verdict::Rewrite);
    mine.add(&mut *store, Change::Put(1, b"both".to_vec()));
    mine.add(&mut *store, Change::Put(2, b"mine".to_vec()));
    mine.add(&mut *store, Change::NextId(3));
    store.add_slice(true);
    settle(&mut *store);
    drop(store);
    assert_eq!(load(&mut *sqlite(&other), EPOCH).expect("is readable"), mine);
    std::fs::rename(other.file("jobs.db-found"), own.file("theirs")).expect("it is there");
    std::fs::rename(own.file("theirs"), own.file("jobs.db")).expect("can be renamed");
    assert_eq!(load(&mut *sqlite(&own), EPOCH).expect("is readable"), theirs);
}

/// The contents of the place differ from those of the process. A file is put aside, and written anew.
#[test]
fn a_place_that_has_something_else_is_written_anew() {
    on_each(|open, scratch| {
        let handed_over = HandedOver { mark: Mark { opening: 7, batch: 40, next_id: 900 }, ..HandedOver::default() };
        let mut other = Kept::default();
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        other.add(&mut *store, Change::Put(1, b"other".to_vec()));
        commit(&mut *store, &mut other, 1);
        let has_no_room = store.health().is_some_and(|health| health.owner.is_some());
        drop(store);
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        store.go_on(EPOCH, handed_over.clone());
        if has_no_room {
            // The contents are left alone, and no verdict comes before an operator decides.
            let from = Instant::now();
            let is_late = || from.elapsed() > Duration::from_secs(30);
            while !(store.is_failing() || is_late()) {
                assert_eq!(verdict_within(&mut *store, Duration::from_millis(100)), None);
            }
            assert_eq!(verdict_within(&mut *store, Duration::from_millis(500)), None);
            assert!(store.is_failing() && store.is_busy() && store.ownership() == Ownership::GoesOn);
            drop(store);
            assert_eq!(open_as_owner(open, &scratch, EPOCH).1, other);
            return;
        }
        assert_eq!(verdict_of(&mut *store), Verdict::Rewrite);
        assert!(store.is_busy());
        for slice in 0..3 {
            (0..300).for_each(|n| kept.add(&mut *store, Change::Put(slice * 300 + n + 1, vec![b'x'; n as usize])));
            kept.add(&mut *store, Change::NextId(901));
            store.add_slice(slice == 2);
            if slice < 2 {
                assert_eq!(verdict_of(&mut *store), Verdict::NextSlice);
            }
        }
        kept.batch = 40;
        settle(&mut *store);
        kept.add(&mut *store, Change::Delete(5));
        commit(&mut *store, &mut kept, 41);
        assert!(!store.is_failing() && comes_to_rest(&mut *store) && opening_of(&*store) > 7);
        drop(store);
        assert_eq!(open_as_owner(open, &scratch, EPOCH).1, kept);
        std::fs::rename(scratch.file("jobs.db-found"), scratch.file("jobs.db")).expect("it was put aside");
        assert_eq!(open_as_owner(open, &scratch, EPOCH).1, other);
    });
}

/// The log is lost, as after a failed sync: no part of the file can be trusted.
#[test]
fn a_damaged_file_is_rewritten_before_any_reply() {
    let scratch = Scratch::new();
    let mut store = sqlite(&scratch);
    let mut kept = Kept::default();
    load(&mut *store, EPOCH).expect("is new");
    let opening = opening_of(&*store);
    let mut batch = 0;
    loop {
        batch += 1;
        kept.add(&mut *store, Change::Put(batch, b"a".to_vec()));
        commit(&mut *store, &mut kept, batch);
        let log = std::fs::File::options().write(true).open(scratch.file("jobs.db-wal")).expect("is there");
        log.set_len(0).expect("can be cut");
        // The store notices the loss at a checkpoint, unless there was one before the log was cut.
        if verdict_within(&mut *store, Duration::from_millis(400)) == Some(Verdict::Rewrite) {
            break;
        }
        assert!(batch < 50, "it is never found out");
    }
    assert!(store.is_failing() && store.is_busy());
    (1..=batch).for_each(|id| kept.add(&mut *store, Change::Put(id, b"a".to_vec())));
    store.add_slice(true);
    settle(&mut *store);
    assert!(!store.is_failing() && opening_of(&*store) > opening);
    kept.add(&mut *store, Change::Delete(1));
    commit(&mut *store, &mut kept, batch + 1);
    assert_eq!(store.health().expect("has one").rewrites, 1);
    drop(store);
    assert_eq!(load(&mut *sqlite(&scratch), EPOCH).expect("is readable"), kept);
}

/// A crash at any moment of the replacement leaves the one file or the other, never one with the log of the other.
#[test]
fn a_replacement_that_was_interrupted_is_brought_to_its_end() {
    let scratch = Scratch::new();
    let mut old = Kept::default();
    let mut store = sqlite(&scratch);
    load(&mut *store, EPOCH).expect("is new");
    old.add(&mut *store, Change::Put(1, b"old".to_vec()));
    commit(&mut *store, &mut old, 1);
    let copy = scratch.file("copy");
    assert_eq!(store.copy(b"copy"), Copying::Begun);
    assert!(matches!(verdict_of(&mut *store), Verdict::Copied(Ok(_))));
    let whole = old.clone();
    old.add(&mut *store, Change::Delete(1));
    commit(&mut *store, &mut old, 2);
    // The state after a crash: the log is there, and half of another new file.
    for name in ["jobs.db", "jobs.db-wal"] {
        std::fs::copy(scratch.file(name), scratch.file(&format!("{name}.kept"))).expect("can be copied");
    }
    drop(store);
    for name in ["jobs.db", "jobs.db-wal"] {
        std::fs::rename(scratch.file(&format!("{name}.kept")), scratch.file(name)).expect("can be renamed");
    }
    std::fs::write(scratch.file("jobs.db-new"), "half").expect("can be written");
    // A copy is as old as the file, and does not replace it.
    std::fs::copy(&copy, scratch.file("jobs.db-whole")).expect("can be copied");
    assert_eq!(load(&mut *sqlite(&scratch), EPOCH).expect("is readable"), old);
    assert!(!scratch.file("jobs.db-whole").exists() && scratch.file("jobs.db-found").exists());
    assert!(!scratch.file("jobs.db-whole-wal").exists());
    // A rewritten file is newer. The log of the other still exists.
    std::fs::write(scratch.file("jobs.db-wal"), "old").expect("can be written");
    let file = rusqlite::Connection::open(&copy).expect("is a file of SQLite");
    file.execute("UPDATE meta SET epoch = epoch + 2", []).expect("can be written");
    drop(file);
    std::fs::rename(&copy, scratch.file("jobs.db-whole")).expect("can be renamed");
    assert_eq!(load(&mut *sqlite(&scratch), EPOCH).expect("is readable"), whole);
    assert!(!scratch.file("jobs.db-whole").exists());
}

#[test]
fn a_copy_has_all_commits_and_replaces_no_file() {
    on_each(|open, scratch| {
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        (1..2000).for_each(|id| kept.add(&mut *store, Change::Put(id, vec![b'c'; 500])));
        commit(&mut *store, &mut kept, 1);
        let path = scratch.file("copy.db");
        if store.copy(b"copy.db") == Copying::Impossible {
            // PostgreSQL has means of its own for that.
            return assert!(store.health().is_some_and(|health| health.owner.is_some()));
        }
        let Verdict::Copied(Ok(bytes)) = verdict_of(&mut *store) else { panic!("it is not copied") };
        assert_eq!(bytes, std::fs::metadata(&path).expect("is there").len());
        assert_eq!(store.copy(b"copy.db"), Copying::Begun);
        let refusal = format!("{} is there already", path.display());
        assert_eq!(verdict_of(&mut *store), Verdict::Copied(Err(refusal)));
        let own = ["jobs.db", "jobs.db-whole", "jobs.db-new", "jobs.db.2"];
        assert!(own.iter().all(|name| store.copy(name.as_bytes()) == Copying::BadName));
        let copies = Scratch::new();
        std::fs::rename(&path, copies.file("jobs.db")).expect("can be renamed");
        assert_eq!(load(&mut *open(&copies), EPOCH).expect("is readable"), kept);
        // The store continues, and so does the copy, as a store of its own.
        kept.add(&mut *store, Change::Delete(1));
        commit(&mut *store, &mut kept, 2);
    });
}
