//! What every store does that keeps jobs beyond the process, whatever it is: each test runs on each of them.

use crate::kept::{Change, EPOCH, Kept, commit, load, settle, verdict_of, verdict_within};
use crate::support::postgres::{place_of, shared};
use crate::support::random::{Random, setting};
use crate::support::scratch::Scratch;
use poolcounter::jobs::postgres::Postgres;
use poolcounter::jobs::sqlite::{Place, Sqlite};
use poolcounter::jobs::state::Commit;
use poolcounter::jobs::store::{Mark, Memory, Standing, Store, Verdict};
use poolcounter::time::{Span, Time};
use std::time::Duration;

/// A store whose place is in a directory. The same directory is the same place.
type Open = fn(&Scratch) -> Box<dyn Store>;

/// The stores that keep jobs beyond the process.
const STORES: &[(&str, Open)] = &[("sqlite", sqlite), ("postgres", postgres)];

const SEEDS: u64 = 20;
const STEPS: usize = 120;

pub fn sqlite(scratch: &Scratch) -> Box<dyn Store> {
    Box::new(Sqlite::new(Place { path: scratch.file("jobs.db"), vfs: None }))
}

/// The directory's name is that of its schema.
fn postgres(scratch: &Scratch) -> Box<dyn Store> {
    let cluster = shared().expect("it is there, or this store is left out");
    let name =
        scratch.file("").components().next_back().map(|name| name.as_os_str().to_string_lossy().replace('-', "_"));
    Box::new(Postgres::new(place_of(&cluster.url(&name.expect("it has a name")))))
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

/// Whether a store that has told everything is not busy, or is not after two looks more.
fn comes_to_rest(store: &mut dyn Store) -> bool {
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
fn a_store_that_keeps_nothing_is_told_nothing() {
    let mut store = Memory;
    assert_eq!(load(&mut store, EPOCH).expect("is always new"), Kept::default());
    assert!(store.is_immediate() && !store.is_busy() && !store.is_failing());
    assert!(store.verdict().is_none() && store.health().is_none() && !store.copy(b"/nowhere"));
}

#[test]
fn what_was_committed_is_there_when_it_is_opened_again_and_nothing_else() {
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
        let mut store = open(&scratch);
        assert_eq!(load(&mut *store, EPOCH).expect("is readable"), kept);
        (0..5).for_each(|kind| kept.add(&mut *store, Change::Setting(kind, false)));
        kept.add(&mut *store, Change::RootGone(b"a/b".to_vec()));
        commit(&mut *store, &mut kept, 3);
        drop(store);
        assert_eq!(load(&mut *open(&scratch), EPOCH).expect("is readable"), kept);
    });
}

/// Delays and ages are those of the day: a daemon that starts later finds less of them left.
#[test]
fn times_mean_the_same_to_a_later_process() {
    on_each(|open, scratch| {
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        kept.add(&mut *store, Change::Delayed(1, Time::from_micros(90_000_000)));
        commit(&mut *store, &mut kept, 1);
        drop(store);
        let later = load(&mut *open(&scratch), EPOCH + Span::from_secs(60)).expect("is readable");
        let (record, _) = later.job(1);
        assert_eq!((record.delayed, record.created), (Some(Time::from_micros(30_000_000)), 5_000_000 - 60_000_000));
        let over = load(&mut *open(&scratch), EPOCH + Span::from_secs(600)).expect("is readable");
        assert_eq!(over.job(1).0.delayed, Some(Time::START));
    });
}

/// `SIM_SEED` is the first seed, `SIM_SEEDS` how many follow from it.
#[test]
fn a_store_and_a_naive_one_agree_after_any_batches_and_openings() {
    let (first, seeds) = (setting("SIM_SEED", 1), setting("SIM_SEEDS", SEEDS));
    for seed in first..first + seeds {
        on_each(|open, scratch| {
            println!("SIM_SEED={seed} SIM_SEEDS=1 replays this");
            // Connections take long to make.
            if open as usize == postgres as fn(&Scratch) -> Box<dyn Store> as usize && seed >= first + SEEDS / 8 {
                return;
            }
            let mut random = Random::new(seed);
            let mut store = open(&scratch);
            let mut kept = load(&mut *store, EPOCH).expect("is new");
            let mut next = 1;
            for batch in 1..STEPS as u64 {
                for _ in 0..random.below(12) {
                    kept.add_any(&mut *store, &mut random, &mut next);
                }
                commit(&mut *store, &mut kept, batch);
                if random.once_in(15) {
                    drop(store);
                    store = open(&scratch);
                    assert_eq!(load(&mut *store, EPOCH).expect("is readable"), kept);
                }
            }
        });
    }
}

#[test]
fn nobody_else_may_open_it_meanwhile() {
    on_each(|open, scratch| {
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        let mut other = open(&scratch);
        match load(&mut *other, EPOCH) {
            Ok(kept) => {
                assert_eq!(kept, Kept::default());
                assert_eq!((other.standing(), other.verdict()), (Standing::StandsBy, None));
                assert!(!other.health().and_then(|health| health.owner).expect("is told").is_self);
            }
            Err(refusal) => assert!(refusal.contains("another daemon keeps its jobs there"), "{refusal}"),
        }
        drop(other);
        drop(store);
        load(&mut *open(&scratch), EPOCH).expect("it is free again");
    });
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
        let mark = Mark { opening: store.opening(), batch: 1, next_id: 2 };
        drop(store);
        let mut store = open(&scratch);
        store.go_on(EPOCH, mark);
        settle(&mut *store);
        kept.add(&mut *store, Change::Put(2, b"b".to_vec()));
        commit(&mut *store, &mut kept, 2);
        assert!(!store.is_failing() && store.opening() > mark.opening);
        drop(store);
        assert_eq!(load(&mut *open(&scratch), EPOCH).expect("is readable"), kept);
    });
}

/// What the place has is something else than what the process has: it is written anew, and nothing is lost of either.
#[test]
fn a_place_that_has_something_else_is_written_anew() {
    on_each(|open, scratch| {
        let mark = Mark { opening: 7, batch: 40, next_id: 900 };
        let mut other = Kept::default();
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        other.add(&mut *store, Change::Put(1, b"other".to_vec()));
        commit(&mut *store, &mut other, 1);
        let has_no_room = store.health().is_some_and(|health| health.owner.is_some());
        drop(store);
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        store.go_on(EPOCH, mark);
        let mut scratch = scratch;
        if has_no_room {
            // What is there is left alone, and nothing is told before somebody decides.
            assert_eq!(verdict_within(&mut *store, Duration::from_millis(1500)), None);
            assert!(store.is_failing() && store.is_busy() && store.standing() == Standing::Lapsed);
            drop(store);
            assert_eq!(load(&mut *open(&scratch), EPOCH).expect("is readable"), other);
            scratch = Scratch::new();
            store = open(&scratch);
            store.go_on(EPOCH, mark);
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
        assert!(!store.is_failing() && comes_to_rest(&mut *store) && store.opening() > 7);
        drop(store);
        assert_eq!(load(&mut *open(&scratch), EPOCH).expect("is readable"), kept);
    });
}

/// The log is gone from under it, as after a failed sync: nothing of the file can be relied on any more.
#[test]
fn a_file_that_has_lost_something_is_written_anew_and_nothing_is_told_before_that() {
    let scratch = Scratch::new();
    let mut store = sqlite(&scratch);
    let mut kept = Kept::default();
    load(&mut *store, EPOCH).expect("is new");
    let opening = store.opening();
    let mut batch = 0;
    loop {
        batch += 1;
        kept.add(&mut *store, Change::Put(batch, b"a".to_vec()));
        commit(&mut *store, &mut kept, batch);
        let log = std::fs::File::options().write(true).open(scratch.file("jobs.db-wal")).expect("is there");
        log.set_len(0).expect("can be cut");
        // It finds out when it brings the log into the file, unless that was done before the log was cut.
        if verdict_within(&mut *store, Duration::from_millis(400)) == Some(Verdict::Rewrite) {
            break;
        }
        assert!(batch < 50, "it is never found out");
    }
    assert!(store.is_failing() && store.is_busy());
    (1..=batch).for_each(|id| kept.add(&mut *store, Change::Put(id, b"a".to_vec())));
    store.add_slice(true);
    settle(&mut *store);
    assert!(!store.is_failing() && store.opening() > opening);
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
    let copy = scratch.file("jobs.db-whole");
    assert!(store.copy(copy.as_os_str().as_encoded_bytes()));
    assert!(matches!(verdict_of(&mut *store), Verdict::Copied(Ok(_))));
    let whole = old.clone();
    old.add(&mut *store, Change::Delete(1));
    commit(&mut *store, &mut old, 2);
    // As after a crash: the log is there, and half of another new file.
    for name in ["jobs.db", "jobs.db-wal"] {
        std::fs::copy(scratch.file(name), scratch.file(&format!("{name}.kept"))).expect("can be copied");
    }
    drop(store);
    for name in ["jobs.db", "jobs.db-wal"] {
        std::fs::rename(scratch.file(&format!("{name}.kept")), scratch.file(name)).expect("can be renamed");
    }
    std::fs::write(scratch.file("jobs.db-new"), "half").expect("can be written");
    assert_eq!(load(&mut *sqlite(&scratch), EPOCH).expect("is readable"), whole);
    assert!(!copy.exists());
}

#[test]
fn a_copy_has_what_is_committed_and_takes_the_place_of_nothing() {
    on_each(|open, scratch| {
        let mut kept = Kept::default();
        let mut store = open(&scratch);
        load(&mut *store, EPOCH).expect("is new");
        (1..2000).for_each(|id| kept.add(&mut *store, Change::Put(id, vec![b'c'; 500])));
        commit(&mut *store, &mut kept, 1);
        let copies = Scratch::new();
        let path = copies.file("jobs.db");
        if !store.copy(path.as_os_str().as_encoded_bytes()) {
            // It has means of its own for that.
            return assert!(store.health().is_some_and(|health| health.owner.is_some()));
        }
        let Verdict::Copied(Ok(bytes)) = verdict_of(&mut *store) else { panic!("it is not copied") };
        assert_eq!(bytes, std::fs::metadata(&path).expect("is there").len());
        assert!(store.copy(path.as_os_str().as_encoded_bytes()));
        assert_eq!(verdict_of(&mut *store), Verdict::Copied(Err("it is there already".into())));
        assert_eq!(load(&mut *open(&copies), EPOCH).expect("is readable"), kept);
        // The store goes on, and so does the copy, as a store of its own.
        kept.add(&mut *store, Change::Delete(1));
        commit(&mut *store, &mut kept, 2);
    });
}
