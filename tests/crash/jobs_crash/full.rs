//! A file system that is full for a while: requests that need room are refused, the others are served, and nothing is
//! lost.

use crate::jobs_crash::disk::Faults;
use crate::jobs_crash::load::Log;
use crate::jobs_crash::vfs;
use crate::jobs_store::kept::{Change, commit, load, verdict_of};
use nix::sys::signal::Signal;
use poolcounter_core::time::Span;
use poolcounter_jobs::sqlite::{DatabaseFile, Sqlite};
use poolcounter_jobs::state::Commit;
use poolcounter_jobs::store::{Store, Verdict};
use poolcounter_testkit::crash::actor::{Actor, SETUP, retries};
use poolcounter_testkit::crash::history::{Found, History};
use poolcounter_testkit::daemon::{Daemon, until};
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::running::Over;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use poolcounter_testkit::small_disk;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

const ACTORS: usize = 3;
/// Longer than a store waits before it tries again.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn nothing_is_lost_when_there_is_no_room_for_a_while() {
    let (scratch, seed) = (Scratch::new(), 1);
    let directory = scratch.file("small");
    fs::create_dir(&directory).expect("a new directory");
    let Some(mut command) = small_disk::command_in(&directory) else {
        return skipped("a file system that is full, because this user may not mount one");
    };
    let store = format!("sqlite:{}/jobs.db", directory.display());
    command.arg(Daemon::program()).args(["-l", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0"]);
    let daemon = Daemon::run(command.args(["--jobs-store", &store, "--jobs-store-timeout", "2"]));
    let log = Log::new(History::new(Found::default(), retries()));
    let found = log.check(daemon.jobs(), ACTORS, &SETUP);
    let seen = small_disk::seen_by(&daemon, &directory);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&is_over);
        for number in 0..ACTORS {
            let actor = Actor::new(number, ACTORS, 0, seed, &found, log.now());
            log.play(scope, daemon.jobs(), (actor, number, seed), &is_over);
        }
        thread::sleep(Duration::from_millis(100));
        let mut client = JobsClient::to(daemon.jobs());
        client.ask("use aside");
        for _ in 0..2 {
            small_disk::fill(&seen.join("filler"));
            until("the reply", || client.put("0 0 9", b"refused?") == "OUT_OF_MEMORY");
            // Requests that need no room are served.
            assert_eq!(client.ask("list-tube-used"), "USING aside");
            assert_eq!(client.ask("peek 1000000000"), "NOT_FOUND");
            thread::sleep(Duration::from_millis(200));
            fs::remove_file(seen.join("filler")).expect("it is there");
            until("the reply", || client.put("0 0 9", b"taken?").starts_with("INSERTED "));
        }
        thread::sleep(Duration::from_millis(100));
        let cleared = client.ask("clear aside");
        assert!(cleared.starts_with("CLEARED "), "{cleared}");
    });
    // The file system ends with the process, so its files are copied out of the stopped process, as at any moment.
    daemon.signal(Signal::SIGSTOP);
    for name in ["jobs.db", "jobs.db-wal"] {
        fs::copy(seen.join(name), scratch.file(name)).expect("the daemon has it open");
    }
    drop(daemon);
    let daemon = Daemon::start_with_jobs(&["--jobs-store", &format!("sqlite:{}", scratch.file("jobs.db").display())]);
    log.check(daemon.jobs(), ACTORS, &[]);
    assert!(log.replies() > 100, "there was no load: {} replies", log.replies());
}

/// Jobs that do not fit are refused at once, and leave no trace. Other changes wait for room.
#[test]
fn a_put_without_room_is_refused_at_once_and_is_never_there() {
    let scratch = Scratch::new();
    let directory = scratch.file("small");
    fs::create_dir(&directory).expect("a new directory");
    let Some(mut command) = small_disk::command_in(&directory) else {
        return skipped("a file system that is full, because this user may not mount one");
    };
    let store = format!("sqlite:{}/jobs.db", directory.display());
    command.arg(Daemon::program()).args(["-l", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0"]);
    let daemon = Daemon::run(command.args(["--jobs-store", &store, "--jobs-max-size", "9000000"]));
    let mut client = JobsClient::to(daemon.jobs());
    let (large, begun) = ("x".repeat(8_900_000), Instant::now());
    assert_eq!(client.ask("put-job 0 0 9 1 key=small\r\na"), "INSERTED 1");
    assert_eq!(client.ask(&format!("put-job 0 0 9 {} key=k\r\n{large}", large.len())), "OUT_OF_MEMORY");
    let puts = format!("put-job 0 0 9 1 key=small\r\nb\r\nput 0 0 9 {}\r\n{large}\r\nput 0 0 9 1\r\nc", large.len());
    assert_eq!(client.ask(&format!("put-many 3\r\n{puts}")), "OUT_OF_MEMORY");
    assert!(begun.elapsed() < PATIENCE, "it took {:?}", begun.elapsed());
    assert_eq!(client.ask("delete 1"), "DELETED");
    until("the reply", || client.ask("put-job 0 0 9 1 key=k\r\nd").starts_with("INSERTED "));
    assert_eq!((client.ask("peek 2"), client.ask("peek-ready")), ("NOT_FOUND".into(), "FOUND 5 1".into()));
}

#[test]
fn a_batch_without_room_is_committed_later_without_its_puts() {
    let (scratch, (disk, vfs)) = (Scratch::new(), vfs::new_disk(1));
    let place = DatabaseFile { path: scratch.file("jobs.db"), vfs: Some(vfs) };
    let mut store = Sqlite::new(place.clone());
    let mut kept = load(&mut store, Span::ZERO).expect("is new");
    kept.add(&mut store, Change::Put(1, b"a".to_vec()));
    commit(&mut store, &mut kept, 1);
    disk.fail(Faults { full: 1, ..Faults::default() });
    kept.clone().add(&mut store, Change::Put(2, b"b".to_vec()));
    kept.add(&mut store, Change::Delete(1));
    kept.add(&mut store, Change::NextId(3));
    store.commit(Commit(2));
    assert_eq!(verdict_of(&mut store), Verdict::RolledBack);
    assert!(store.is_failing() && store.is_busy());
    disk.heal();
    let committed = loop {
        match verdict_of(&mut store) {
            Verdict::RolledBack => {}
            other => break other,
        }
    };
    assert_eq!(committed, Verdict::Committed(Commit(2)));
    kept.batch = 2;
    assert!(!store.is_failing());
    drop(store);
    assert_eq!(load(&mut Sqlite::new(place), Span::ZERO), Ok(kept));
}
