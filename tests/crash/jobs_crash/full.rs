//! A file system that is full for a while: what has no room is refused, the rest goes on, and nothing is lost.

use crate::jobs_crash::load::{Log, Over};
use nix::sys::signal::Signal;
use poolcounter_testkit::crash::actor::{Actor, SETUP, retries};
use poolcounter_testkit::crash::history::{Found, History};
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::random::setting;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

const ACTORS: usize = 3;
/// Enough for the jobs of the test, and soon filled.
const BYTES: &str = "8m";
/// Longer than a store waits before it tries again.
const PATIENCE: Duration = Duration::from_secs(20);

/// What runs a program in a file system of its own: the directory, then the program and its arguments.
const MOUNT: &str = r#"mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@""#;

/// A command in a name space in which a small file system is mounted on `directory`; None where that is not allowed.
fn in_small_file_system(directory: &Path) -> Option<Command> {
    let command = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", BYTES]).arg(directory);
        command
    };
    let tried = command().arg("true").stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success()).then(command)
}

#[test]
fn nothing_is_lost_when_there_is_no_room_for_a_while() {
    let (scratch, seed) = (Scratch::new(), setting("SIM_SEED", 1));
    let directory = scratch.file("small");
    fs::create_dir(&directory).expect("a new directory");
    let Some(mut command) = in_small_file_system(&directory) else {
        return skipped("a file system that is full, because this user may not mount one");
    };
    let store = format!("sqlite:{}/jobs.db", directory.display());
    command.arg(Daemon::program()).args(["-l", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0"]);
    let daemon = Daemon::run(command.args(["--jobs-store", &store, "--jobs-store-timeout", "2"]));
    let log = Log::new(History::new(Found::default(), retries()));
    let found = log.check(daemon.jobs(), ACTORS, &SETUP);
    let seen = PathBuf::from(format!("/proc/{}/root{}", daemon.pid(), directory.display()));
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
            fill(&seen.join("filler"));
            wait_until(|| client.put("0 0 9", b"refused?") == "OUT_OF_MEMORY");
            // What needs no room goes on.
            assert_eq!(client.ask("list-tube-used"), "USING aside");
            assert_eq!(client.ask("peek 1000000000"), "NOT_FOUND");
            thread::sleep(Duration::from_millis(200));
            fs::remove_file(seen.join("filler")).expect("it is there");
            wait_until(|| client.put("0 0 9", b"taken?").starts_with("INSERTED "));
        }
        thread::sleep(Duration::from_millis(100));
        let cleared = client.ask("clear aside");
        assert!(cleared.starts_with("CLEARED "), "{cleared}");
    });
    // The file system goes with the process, so its files are taken out of it as they are at some moment.
    daemon.signal(Signal::SIGSTOP);
    for name in ["jobs.db", "jobs.db-wal"] {
        fs::copy(seen.join(name), scratch.file(name)).expect("the daemon has it open");
    }
    drop(daemon);
    let daemon = Daemon::start_with_jobs(&["--jobs-store", &format!("sqlite:{}", scratch.file("jobs.db").display())]);
    log.check(daemon.jobs(), ACTORS, &[]);
    assert!(log.replies() > 100, "there was no load: {} replies", log.replies());
}

/// Writes as much as there is room for.
fn fill(path: &Path) {
    let mut file = File::create(path).expect("can be made");
    for len in [1 << 16, 1 << 12, 1] {
        let piece = vec![0; len];
        while file.write_all(&piece).is_ok() {}
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come to that");
        thread::sleep(Duration::from_millis(5));
    }
}
