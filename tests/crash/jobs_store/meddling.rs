//! Files of the store are removed, renamed, replaced or cut while the daemon runs: no promised change is lost, and no
//! file of others.

use crate::jobs_store::daemon::start;
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::running::refusal_of_store;
use poolcounter_testkit::scratch::Scratch;
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Action in the directory of the store.
type Deed = fn(&Path);

/// Name of the action, the action, its line in the log, and the file that is put aside then, if any.
const DEEDS: &[(&str, Deed, &str, Option<&str>)] = &[
    ("rm jobs.db", |place| remove(place, "jobs.db"), "jobs.db was removed or renamed", None),
    ("mv jobs.db other.db", |place| rename(place, "jobs.db", "other.db"), "jobs.db was removed or renamed", None),
    ("mv older jobs.db", |place| rename(place, "older", "jobs.db"), "the file was replaced by another", Some("older")),
    ("mv text jobs.db", |place| rename(place, "text", "jobs.db"), "the file was replaced by another", Some("text")),
    ("rm jobs.db-wal", |place| remove(place, "jobs.db-wal"), "jobs.db-wal was removed or renamed", None),
    ("mv text jobs.db-wal", |place| rename(place, "text", "jobs.db-wal"), "its log was replaced by another", None),
    ("rm jobs.db*", remove_both, "was removed or renamed", None),
    ("truncate jobs.db", |place| cut(place, "jobs.db"), "the file was cut", None),
    ("truncate jobs.db-wal", |place| cut(place, "jobs.db-wal"), "its log was cut", None),
    ("rm -r DIRECTORY", |place| fs::remove_dir_all(place).expect("can be removed"), "was removed or renamed", None),
    ("mv DIRECTORY, mkdir", replace_directory, "was removed or renamed", None),
];

fn remove(place: &Path, name: &str) {
    fs::remove_file(place.join(name)).expect("is there");
}

fn remove_both(place: &Path) {
    remove(place, "jobs.db");
    remove(place, "jobs.db-wal");
}

fn rename(place: &Path, from: &str, to: &str) {
    fs::rename(place.join(from), place.join(to)).expect("is there");
}

fn cut(place: &Path, name: &str) {
    File::options().write(true).open(place.join(name)).and_then(|file| file.set_len(100)).expect("can be cut");
}

fn replace_directory(place: &Path) {
    fs::rename(place, place.with_extension("away")).expect("can be renamed");
    fs::create_dir(place).expect("is free");
}

/// Starts a daemon whose directory has an older copy of its file, with one job, and a file of others.
fn prepare(place: &Path, options: &[&str]) -> Daemon {
    fs::create_dir(place).expect("is free");
    let path = place.join("jobs.db");
    let mut daemon = start(&path, options);
    assert_eq!(JobsClient::to(daemon.jobs()).ask("put 0 0 99 3\r\none"), "INSERTED 1");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    fs::copy(&path, place.join("older")).expect("can be copied");
    fs::write(place.join("text"), "some text").expect("can be written");
    start(&path, options)
}

/// Puts jobs. During a rewrite they are refused, and put again.
fn put(client: &mut JobsClient, ids: std::ops::RangeInclusive<u64>) {
    for id in ids {
        let mut told = client.ask("put-job 7 0 99 4 group=g\r\nbody");
        while told == "OUT_OF_MEMORY" {
            thread::sleep(Duration::from_millis(5));
            told = client.ask("put-job 7 0 99 4 group=g\r\nbody");
        }
        assert_eq!(told, format!("INSERTED {id}"));
    }
}

/// Asserts that a daemon that starts with the files has these jobs.
fn assert_kept(place: &Path, ids: std::ops::RangeInclusive<u64>, what: &str) {
    let daemon = start(&place.join("jobs.db"), &[]);
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!(client.stat("stats", "current-jobs-ready"), ids.clone().count().to_string(), "{what}");
    for id in ids.clone() {
        assert_eq!(client.ask(&format!("peek {id}")).split(' ').next(), Some("FOUND"), "{what}: {id}");
        client.line();
    }
    assert_eq!(client.ask("put 0 0 99 1\r\nx"), format!("INSERTED {}", ids.end() + 1), "{what}");
}

#[test]
fn replies_after_the_files_are_gone_survive_a_crash() {
    for (what, deed, sentence, aside) in DEEDS {
        println!("{what}");
        let scratch = Scratch::new();
        let place = scratch.file("place");
        let mut daemon = prepare(&place, &[]);
        let mut client = JobsClient::to(daemon.jobs());
        put(&mut client, 2..=50);
        let kept = aside.map(|name| fs::read(place.join(name)).expect("is there"));
        deed(&place);
        put(&mut client, 51..=60);
        daemon.wait_for_log(sentence);
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        if let Some(kept) = kept {
            assert_eq!(fs::read(place.join("jobs.db-found")).ok(), Some(kept), "{what}");
        }
        let mut names = fs::read_dir(&place).expect("is there").map(|entry| entry.expect("can be read").file_name());
        let journal = names.find(|name| name.to_string_lossy().ends_with("-journal"));
        assert_eq!(journal, None, "{what}: the log is the only journal");
        assert_kept(&place, 1..=60, what);
    }
}

#[test]
fn an_orderly_stop_after_the_files_are_gone_loses_nothing() {
    for (what, deed, ..) in DEEDS {
        println!("{what}");
        let scratch = Scratch::new();
        let place = scratch.file("place");
        let mut daemon = prepare(&place, &[]);
        put(&mut JobsClient::to(daemon.jobs()), 2..=50);
        deed(&place);
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait().success());
        assert_kept(&place, 1..=50, what);
    }
}

/// An upgrade waits until the daemon has checked the files for its successor. Without their directory it is refused, until
/// the daemon has made that again.
#[test]
fn an_upgrade_after_the_files_are_gone_loses_nothing() {
    for (what, deed, ..) in DEEDS {
        println!("{what}");
        let scratch = Scratch::new();
        let place = scratch.file("place");
        let mut daemon = prepare(&place, &[]);
        put(&mut JobsClient::to(daemon.jobs()), 2..=50);
        deed(&place);
        if !place.exists() {
            daemon.wait_for_log("all jobs are written anew");
            daemon.wait_for_log("the jobs are kept in");
        }
        daemon.signal(Signal::SIGUSR1);
        daemon.wait_for_log("has taken over");
        put(&mut JobsClient::to(daemon.jobs()), 51..=60);
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        assert_kept(&place, 1..=60, what);
    }
}

/// The daemon checks the files without requests, too.
#[test]
fn files_that_are_gone_are_missed_while_nothing_is_put() {
    let scratch = Scratch::new();
    let place = scratch.file("place");
    let mut daemon = prepare(&place, &[]);
    put(&mut JobsClient::to(daemon.jobs()), 2..=50);
    remove(&place, "jobs.db");
    daemon.wait_for_log("all jobs are written anew");
    daemon.wait_for_log("the jobs are kept in");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    assert_kept(&place, 1..=50, "rm jobs.db");
}

#[test]
fn a_place_without_its_lock_file_is_locked_again() {
    let scratch = Scratch::new();
    let place = scratch.file("place");
    let mut daemon = prepare(&place, &[]);
    let mut client = JobsClient::to(daemon.jobs());
    remove(&place, "jobs.db-lock");
    put(&mut client, 2..=5);
    daemon.wait_for_log("jobs.db-lock was removed or replaced, and is there again");
    let store = format!("sqlite:{}", place.join("jobs.db").display());
    assert!(refusal_of_store(&store, &[]).contains("another daemon keeps its jobs there"));
    assert_eq!(client.stat("stats", "store-rewrites"), "0");
}

/// A symbolic link is followed: the check applies to its target.
#[test]
fn a_link_to_the_file_is_followed() {
    let scratch = Scratch::new();
    let place = scratch.file("place");
    drop(prepare(&place, &[]));
    let link = scratch.file("link.db");
    std::os::unix::fs::symlink(place.join("jobs.db"), &link).expect("is free");
    let mut daemon = start(&link, &[]);
    let mut client = JobsClient::to(daemon.jobs());
    put(&mut client, 2..=5);
    assert_eq!(client.stat("stats", "store-rewrites"), "0");
    remove(&place, "jobs.db");
    put(&mut client, 6..=9);
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert_kept(&place, 1..=9, "a link");
}

/// The disk of the target may not be mounted yet.
#[test]
fn a_link_without_its_file_is_refused() {
    let scratch = Scratch::new();
    let link = scratch.file("link.db");
    std::os::unix::fs::symlink(scratch.file("missing/jobs.db"), &link).expect("is free");
    let refusal = refusal_of_store(&format!("sqlite:{}", link.display()), &[]);
    assert!(refusal.contains("it is a link to a file that is missing"), "{refusal}");
    assert!(link.is_symlink(), "the link stays");
}
