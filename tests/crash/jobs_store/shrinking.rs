//! Free pages of the file: they are given back to the file system while batches are committed, and no crash meanwhile
//! loses anything.

use crate::jobs_crash::vfs;
use crate::jobs_store::kept::{Change, EPOCH, Kept, commit, load, verdict_within};
use poolcounter_jobs::sqlite::{DatabaseFile, Sqlite};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::seeds::play;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Body of a job, of which two fill a page.
const BODY: [u8; 2000] = [b'b'; 2000];
/// Time in which 100 MB are given back.
const PATIENCE: Duration = Duration::from_secs(10);

fn bytes(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").len()
}

fn store_at(path: PathBuf, vfs: Option<&str>) -> Sqlite {
    Sqlite::new(DatabaseFile { path, vfs: vfs.map(String::from) })
}

/// Puts jobs, and deletes all but each tenth and the last `last`.
fn fill_and_clear(store: &mut Sqlite, kept: &mut Kept, jobs: u64, last: u64) {
    let first = kept.batch + 1;
    (1..=jobs).for_each(|id| kept.add(store, Change::Put(id, BODY.to_vec())));
    commit(store, kept, first);
    (1..=jobs - last).filter(|id| id % 10 > 0).for_each(|id| kept.add(store, Change::Delete(id)));
    commit(store, kept, first + 1);
}

#[test]
fn space_is_given_back_between_batches() {
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    let mut store = store_at(path.clone(), None);
    let mut kept = load(&mut store, EPOCH).expect("is new");
    fill_and_clear(&mut store, &mut kept, 20_000, 500);
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while bytes(&path) > 24 << 20 {
        assert!(begun.elapsed() < PATIENCE, "{} bytes are left", bytes(&path));
        let asked = Instant::now();
        let (id, batch) = (100_000 + kept.batch, kept.batch + 1);
        kept.add(&mut store, Change::Put(id, b"new".to_vec()));
        commit(&mut store, &mut kept, batch);
        longest = longest.max(asked.elapsed());
        assert_eq!(verdict_within(&mut store, Duration::from_millis(20)), None);
    }
    println!("{} bytes after {:?}, with commits of {longest:?} at most", bytes(&path), begun.elapsed());
    drop(store);
    assert_eq!(load(&mut store_at(path, None), EPOCH), Ok(kept));
}

#[test]
fn random_crashes_lose_nothing_while_a_file_shrinks() {
    play("jobs-shrinking", |history| {
        let (disk, vfs) = vfs::new_disk(history.seed);
        let (scratch, mut random) = (Scratch::new(), Random::new(history.seed));
        let path = scratch.file("jobs.db");
        let mut store = store_at(path.clone(), Some(&vfs));
        let mut kept = load(&mut store, EPOCH).expect("is new");
        fill_and_clear(&mut store, &mut kept, 3000, 100);
        disk.cut_after(random.below(2500));
        let begun = Instant::now();
        while disk.is_on() && begun.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        disk.cut();
        drop(store);
        disk.power_on();
        let mut store = store_at(path, Some(&vfs));
        assert_eq!(load(&mut store, EPOCH), Ok(kept));
    });
}
