//! `jobs copy`: another store has everything, or is refused.

use crate::jobs_store::daemon::start;
use crate::jobs_store::kept::{Change, EPOCH, Kept, commit, load};
use crate::jobs_store::suite::{Open, postgres, sqlite, url_of};
use poolcounter_core::time::Time;
use poolcounter_testkit::daemon::{Daemon, PATIENCE};
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::postgres::shared;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::running::{Ended, refusal_of_store, run};
use poolcounter_testkit::scratch::Scratch;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A store, and the function that names its place.
type Named = (Open, fn(&Scratch) -> String);

const STORES: [Named; 2] = [(sqlite, path_of), (postgres, url_of)];
/// Number of jobs that take a second or so to copy.
const MANY: u32 = 300_000;

fn path_of(scratch: &Scratch) -> String {
    format!("sqlite:{}", scratch.file("jobs.db").display())
}

/// Returns the stores that are there.
fn stores() -> &'static [Named] {
    if shared().is_some() { &STORES } else { &STORES[..1] }
}

fn copy(from: &str, to: &str) -> Ended {
    run(&["jobs", "copy", from, to])
}

/// Copies in vain, and returns the reason.
fn refusal(from: &str, to: &str) -> String {
    let Ended { status, stderr, .. } = copy(from, to);
    assert_ne!(status, Some(0), "{from} was copied to {to}");
    stderr
}

/// Fills a store with everything that it can have. The last job is gone, and its number is not used again.
fn fill(open: Open, scratch: &Scratch) -> Kept {
    let (mut random, mut next) = (Random::new(7), 1);
    let mut store = open(scratch);
    let mut kept = load(&mut *store, EPOCH).expect("is new");
    for batch in 1..=20 {
        (0..30).for_each(|_| kept.add_any(&mut *store, &mut random, &mut next));
        commit(&mut *store, &mut kept, batch);
    }
    (0..5).for_each(|kind| kept.add(&mut *store, Change::Setting(kind, true)));
    (0..3).for_each(|n| kept.add(&mut *store, Change::Put(next + n, vec![n as u8; 3_000_000])));
    kept.add(&mut *store, Change::Delayed(next + 3, Time::from_micros(90_000_000)));
    kept.add(&mut *store, Change::NextId(next + 9));
    commit(&mut *store, &mut kept, 21);
    kept
}

#[test]
fn a_copy_has_everything() {
    for (open, place) in stores() {
        for (open_target, place_of_target) in stores() {
            let (from, to) = (Scratch::new(), Scratch::new());
            let kept = fill(*open, &from);
            let target = place_of_target(&to);
            let output = copy(&place(&from), &target);
            assert_eq!(output.status, Some(0), "{}", output.stderr);
            let again = refusal(&place(&from), &target);
            assert!(again.contains("it has jobs or settings already, and was not changed"), "{again}");
            let mut copied = load(&mut *open_target(&to), EPOCH).expect("is readable");
            copied.batch = kept.batch;
            assert!(copied == kept, "{} and {target} differ", place(&from));
            assert_eq!(load(&mut *open(&from), EPOCH).expect("is readable"), kept);
        }
    }
}

/// Returns the directory of a store with so many jobs.
fn with_jobs(many: u32) -> Scratch {
    let from = Scratch::new();
    drop(load(&mut *sqlite(&from), EPOCH));
    let rows = format!(
        "INSERT INTO job (id, tube, pri, delay, ttr, created, body) WITH RECURSIVE n (id) AS \
         (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < {many}) SELECT id, 't', 1, 0, 60, 5, zeroblob(300) FROM n"
    );
    let file = rusqlite::Connection::open(from.file("jobs.db")).expect("is there");
    file.execute_batch(&format!("{rows}; UPDATE meta SET next_id = {many} + 1")).expect("there is room");
    file.close().expect("can be closed");
    from
}

/// The file has the mark of a part from its first moment on.
#[test]
fn copy_that_was_killed_early_is_refused() {
    let from = with_jobs(MANY / 5);
    for early_ms in 0..10 {
        let to = Scratch::new();
        let target = path_of(&to);
        let mut command = Command::new(Daemon::program());
        let mut child = command.args(["jobs", "copy", &path_of(&from), &target]).spawn().expect("it runs");
        let deadline = Instant::now() + PATIENCE;
        while !to.file("jobs.db").exists() {
            assert!(Instant::now() < deadline, "it makes no file");
        }
        thread::sleep(Duration::from_millis(early_ms));
        child.kill().expect("it is ours");
        assert!(!child.wait().expect("is ours").success(), "it was too quick");
        let told = refusal(&target, &path_of(&Scratch::new()));
        assert!(told.contains("a copy to it was not completed"), "after {early_ms} ms: {told}");
    }
}

/// The part that was copied is not served, and is not copied again.
#[test]
fn a_copy_that_was_killed_is_refused() {
    let from = with_jobs(MANY);
    for (_, place) in stores() {
        let to = Scratch::new();
        let target = place(&to);
        let mut command = Command::new(Daemon::program());
        let command = command.args(["jobs", "copy", &path_of(&from), &target]).stderr(Stdio::null());
        let mut child = command.spawn().expect("it runs");
        let has_part = || match target.starts_with("sqlite:") {
            true => to.file("jobs.db-wal").metadata().is_ok_and(|log| log.len() > 1 << 20),
            false => {
                let schema = target.rsplit("%3D").next().expect("is named");
                let count = shared().expect("is there").query(schema, "SELECT count(*) FROM job");
                count[0] != "0"
            }
        };
        let deadline = Instant::now() + PATIENCE;
        while !has_part() {
            assert!(Instant::now() < deadline && child.try_wait().expect("is ours").is_none(), "it was too quick");
            thread::sleep(Duration::from_millis(1));
        }
        child.kill().expect("it runs");
        assert!(!child.wait().expect("is ours").success(), "it was too quick");
        let said = "a copy to it was not completed";
        let started = refusal_of_store(&target, &[]);
        assert!(started.contains(said), "{started}");
        assert!(refusal(&target, &path_of(&Scratch::new())).contains(said));
        assert!(refusal(&path_of(&from), &target).contains(said));
        match target.starts_with("sqlite:") {
            true => ["jobs.db", "jobs.db-wal"].iter().for_each(|name| drop(std::fs::remove_file(to.file(name)))),
            false => {
                let empty = "TRUNCATE job, root, setting; UPDATE owner SET batch = 0, next_id = 1";
                shared().expect("is there").query(target.rsplit("%3D").next().expect("is named"), empty);
            }
        }
        let output = copy(&path_of(&from), &target);
        assert!(output.stdout.ends_with(&format!(" has {MANY} jobs now\n")), "{output:?}");
    }
}

#[test]
fn the_copy_of_a_running_daemon_moves_its_jobs() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let daemon = start(&from.file("jobs.db"), &[]);
    let mut client = JobsClient::to(daemon.jobs());
    (1..=3).for_each(|id| assert_eq!(client.ask("put-job 0 0 99 4 tube=x\r\nbody"), format!("INSERTED {id}")));
    assert_eq!((client.ask("limit x 2"), client.ask("delete 3")), ("LIMIT 2".into(), "DELETED".into()));
    let busy = refusal(&path_of(&from), &path_of(&to));
    assert!(busy.contains("another daemon keeps its jobs there, the process"), "{busy}");
    assert!(client.ask("store-copy copy.db").starts_with("COPIED "));
    let said = copy(&format!("sqlite:{}", from.file("copy.db").display()), &path_of(&to)).stdout;
    assert_eq!(said, format!("{} has 2 jobs now\n", to.file("jobs.db").display()));
    let successor = start(&to.file("jobs.db"), &[]);
    let mut client = JobsClient::to(successor.jobs());
    assert_eq!((client.ask("peek 2"), client.line()), ("FOUND 2 4".into(), "body".into()));
    assert_eq!((client.ask("put 0 0 99 3\r\nnew"), client.ask("limit x 2")), ("INSERTED 4".into(), "LIMIT 2".into()));
}

#[test]
fn wrong_places_are_named() {
    let scratch = Scratch::new();
    let place = path_of(&scratch);
    for (from, to, reason) in [
        ("memory", &*place, "jobs in memory end with the daemon, and are not copied"),
        (&place, "memory", "jobs in memory end with the daemon, and are not copied"),
        ("jobs.db", &place, "\"jobs.db\" is not sqlite:PATH, postgres:URL or memory"),
        (&place, "sqlite:other.db", "jobs.db: there is no such file"),
        (&place, &place, "cannot be copied to itself"),
    ] {
        let told = refusal(from, to);
        assert!(told.contains(reason), "{told}");
    }
    assert!(!scratch.file("jobs.db").exists());
}

#[test]
fn a_database_that_a_daemon_serves_is_not_copied() {
    let Some(_) = shared() else { return };
    let scratch = Scratch::new();
    let url = url_of(&scratch);
    let daemon = Daemon::start_with_jobs(&["--jobs-store", &url]);
    let mut client = JobsClient::to(daemon.jobs());
    let deadline = Instant::now() + PATIENCE;
    while !client.ask("put 0 0 9 1\r\nx").starts_with("INSERTED") {
        assert!(Instant::now() < deadline, "it does not serve");
        client = JobsClient::to(daemon.jobs());
    }
    let told = refusal(&url, &path_of(&scratch));
    assert!(told.contains("serves its jobs; stop it first"), "{told}");
    assert!(!scratch.file("jobs.db").exists());
}
