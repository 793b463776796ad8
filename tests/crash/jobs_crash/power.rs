//! Failures of the power, or of the disk, at any moment: SQLite's own code and the store's, on a disk that buffers
//! unsynced writes.

use crate::jobs_crash::disk::{Faults, FaultyDisk};
use crate::jobs_crash::vfs;
use crate::jobs_store::kept::{Change, commit, load};
use crate::sim::{Disk, Sim, step};
use crate::stored;
use poolcounter_core::time::Span;
use poolcounter_jobs::sqlite::{DatabaseFile, Sqlite};
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Info;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::seeds::play;
use poolcounter_testkit::world::World;
use std::thread;
use std::time::Duration;

const LIVES: usize = 5;
const STEPS: usize = 150;
const ACTORS: usize = 3;
/// Time that the store's thread gets before the next check.
const MOMENT: Duration = Duration::from_micros(100);

const SERVICES: &[&Info] = &[&stored::INFO];

/// SQLite on the disk.
struct OnDisk(FaultyDisk);

impl OnDisk {
    fn try_server(&mut self, epoch: Span) -> Result<World, String> {
        let mut world = World::at(SERVICES, AllSettings::defaults(SERVICES), epoch);
        world.begin().map(|()| world)
    }
}

impl Disk for OnDisk {
    fn server(&mut self, epoch: Span) -> World {
        self.0.power_on();
        self.try_server(epoch).unwrap_or_else(|sentence| panic!("{sentence}"))
    }

    fn work(&mut self) {
        thread::sleep(MOMENT);
    }
}

#[test]
fn random_failures_of_the_power_lose_nothing() {
    play_all("jobs-power", |sim, random| {
        if random.once_in(40) {
            sim.disk.0.cut_after(random.below(60));
        }
    });
}

/// The device fails in some of the ways for a while.
#[test]
fn random_failures_of_the_disk_lose_nothing() {
    play_all("jobs-disk", |sim, random| {
        if random.once_in(6) {
            sim.disk.0.fail(Faults {
                read: random.pick(&[0, 0, 9]),
                write: random.pick(&[0, 30]),
                full: random.pick(&[0, 20]),
                sync: random.pick(&[0, 4]),
                ..Faults::default()
            });
        } else if random.once_in(4) {
            sim.disk.0.fail(Faults::default());
        }
    });
}

/// Test of the check: on a disk that only pretends to sync, jobs are lost, and the check notices it.
#[test]
fn a_disk_that_lies_is_found_out() {
    let is_found_out = (1..=12).any(|seed| {
        let (disk, vfs) = vfs::new_disk(seed);
        let lie = |sim: &mut Sim<OnDisk>, _: &mut Random| sim.disk.0.fail(Faults { lies: true, ..Faults::default() });
        // If too much of a file is lost, it cannot even be opened, which counts as noticed, too.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play_one(&disk, &vfs, seed, &lie)));
        !matches!(result, Ok(Ok(_)))
    });
    assert!(is_found_out, "nothing was lost, though nothing was synced");
}

/// At the end of the daemon, a slow disk gets no more syncs than needed: the log stays beside the file.
#[test]
fn a_slow_disk_gets_no_checkpoint_at_the_end() {
    let (disk, vfs) = vfs::new_disk(1);
    for (sync_takes, has_log) in [(Duration::ZERO, false), (Duration::from_millis(1100), true)] {
        let scratch = Scratch::new();
        let place = DatabaseFile { path: scratch.file("jobs.db"), vfs: Some(vfs.clone()) };
        let open = || Box::new(Sqlite::new(place.clone()));
        let mut store = open();
        let mut kept = load(&mut *store, Span::ZERO).expect("is new");
        disk.fail(Faults { sync_takes, ..Faults::default() });
        kept.add(&mut *store, Change::Put(1, b"a".to_vec()));
        commit(&mut *store, &mut kept, 1);
        let syncs = disk.counts().0;
        drop(store);
        assert_eq!((scratch.file("jobs.db-wal").exists(), disk.counts().0 == syncs), (has_log, has_log));
        disk.heal();
        assert_eq!(load(&mut *open(), Span::ZERO), Ok(kept));
    }
}

/// Plays the seeds of a test. The threads of the store have their own pace, so that a seed repeats the requests, and not
/// the times of their commits.
fn play_all(test: &str, disturb: impl Fn(&mut Sim<OnDisk>, &mut Random) + Sync) {
    let played = play(test, |history| {
        let (disk, vfs) = vfs::new_disk(history.seed);
        let replies = play_one(&disk, &vfs, history.seed, &disturb).unwrap_or_else(|error| panic!("{error}"));
        (replies, disk.counts().1)
    });
    let (replies, failures) = played.iter().fold((0, 0), |sums, one| (sums.0 + one.0, sums.1 + one.1));
    println!("{replies} replies, {failures} failures");
    assert!(replies > 100 * played.len(), "there was no load: {replies} replies");
    assert!(played.len() < 5 || failures > 0, "nothing failed");
}

fn play_one(
    disk: &FaultyDisk,
    vfs: &str,
    seed: u64,
    disturb: &impl Fn(&mut Sim<OnDisk>, &mut Random),
) -> Result<usize, String> {
    let (scratch, mut random) = (Scratch::new(), Random::new(seed));
    let place = DatabaseFile { path: scratch.file("jobs.db"), vfs: Some(vfs.into()) };
    stored::install(move || Box::new(Sqlite::new(place.clone())));
    let mut sim = Sim::new(OnDisk(disk.clone()), ACTORS, seed);
    for _ in 0..LIVES {
        for _ in 0..random.below(STEPS) {
            step(&mut sim, &mut random, ACTORS, |sim, random| {
                disturb(sim, random);
                (0..random.below(4)).for_each(|_| sim.disk.work());
                sim.settle();
            });
        }
        if random.once_in(3) && disk.is_on() {
            disk.heal();
            sim.finish();
        }
        sim.crash(Span::from_millis(random.pick(&[0, 300])), |disk| disk.0.cut())?;
    }
    Ok(sim.replies())
}
