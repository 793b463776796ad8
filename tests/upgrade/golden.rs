//! What each version hands over, kept for ever in `tests/handovers`: every file there is read by this program. `make golden` writes
//! the file of this program's version, once, when the version is released.

use nix::sys::signal::Signal;
use poolcounter_testkit::counter::CounterClient;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, install, install_program};
use poolcounter_testkit::frames;
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::scratch::Scratch;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/handovers");

#[test]
fn every_handover_that_was_written_is_read() {
    let files: Vec<PathBuf> =
        fs::read_dir(DIRECTORY).expect("is there").map(|file| file.expect("can be listed").path()).collect();
    assert!(["4", "5", "6"].iter().all(|version| files.iter().any(|file| file.ends_with(version))), "{files:?}");
    for path in files {
        let file = File::open(&path).expect("is readable");
        let output = Command::new(Daemon::program()).arg("--check-handover").stdin(file).output().expect("it runs");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{}", path.display());
        assert_eq!(output.stdout, b"can take over\n", "{}", path.display());
    }
}

/// Brings a daemon to hold something of all kinds, and keeps what it writes for the program that is to take over.
#[test]
#[ignore = "writes tests/handovers: make golden"]
fn write_what_this_version_hands_over() {
    let scratch = Scratch::new();
    let (program, written) = (scratch.file("poolcounter"), scratch.file("handover"));
    install_program(&program);
    let mut command = Command::new(&program);
    for name in ["counter", "members", "jobs"] {
        command.args([format!("--{name}"), format!("--{name}-listen"), "127.0.0.1:0".into()]);
    }
    command.args(["--jobs-store", "memory"]);
    let mut daemon = Daemon::run(command.args(["-l", "127.0.0.1:0", "--http", "127.0.0.1:0"]));
    let _pools = hold_pools(&daemon);
    let _counters = hold_counters(&daemon);
    let _members = hold_members(&daemon);
    let _jobs = hold_jobs(&daemon);
    // All that was sent has been served, and a connection that does not read is full.
    thread::sleep(Duration::from_millis(500));
    install(&program, format!("#!/bin/sh\ncat >{0}.part && mv {0}.part {0}\n", written.display()).as_bytes());
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_log("no upgrade: ");
    let deadline = Instant::now() + PATIENCE;
    while !written.exists() {
        assert!(Instant::now() < deadline, "nothing is written");
        thread::sleep(Duration::from_millis(2));
    }
    let handover = fs::read(&written).expect("is readable");
    // The version stands behind the name in the first twelve bytes.
    let version = handover[12..16].try_into().map(u32::from_be_bytes).expect("four bytes");
    let path = Path::new(DIRECTORY).join(version.to_string());
    fs::write(&path, handover).expect("can be written");
    println!("written: {}", path.display());
}

/// Two locks of one connection, three waiters, half a request, and replies that are not read.
fn hold_pools(daemon: &Daemon) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..6).map(|_| daemon.connect()).collect();
    assert_eq!(clients[0].ask("ACQ4ME Article:k 1 9 9 hold=600"), "LOCKED");
    assert_eq!(clients[0].ask("ACQ4ME other 1 9 9"), "LOCKED");
    clients[1].send(b"ACQ4ME Article:k 1 9 60\n");
    clients[2].send(b"ACQ4ANY Article:k 1 9 60\nSTATS UP");
    clients[3].send(b"ACQ4ME other 1 9 2.5\n");
    clients[4].send(b"ACQ4ME half-a-line 1 1");
    clients[5].send(&b"STATS KEYS\n".repeat(100_000)[..400_000]);
    clients
}

/// Units of two counters, a counter of which nobody holds any, half a frame, and half of a long body.
fn hold_counters(daemon: &Daemon) -> Vec<CounterClient> {
    let mut clients: Vec<CounterClient> = (0..3).map(|_| CounterClient::to(daemon.counters())).collect();
    for (name, resources) in [(&b"alpha"[..], 3), (b"a name of more than eighteen bytes", 5), (b"given back", 1)] {
        assert_eq!(clients[0].status(&frames::acquire(resources, 10, name)), 0);
    }
    assert_eq!(clients[0].status(&frames::release(1, b"given back")), 0);
    clients[1].send(&frames::get(b"alpha")[..14]);
    let long = frames::frame(0x02, &[0; 100_000]);
    clients[2].send(&long[..80_000]);
    clients
}

/// A pool with members that are held, free and to be cleaned, a start under way, waiters, and an operator who lists what there is; and
/// a group.
fn hold_members(daemon: &Daemon) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..5).map(|_| Client::to(daemon.members())).collect();
    for pool in ["POOL db 1 4 queue=5 max_age=300 max_lifetime=3000", "POOL web 0 1 group=g"] {
        assert_eq!(clients[0].ask(pool), "OK");
    }
    assert_eq!(clients[0].ask("ADD web fixed"), "OK");
    clients[1].send(b"PROVIDE db\n");
    assert_eq!([clients[1].line(), clients[1].line()], ["OK", "!START db 1"]);
    assert_eq!(clients[1].ask("STARTED 1 m1"), "OK");
    assert_eq!(clients[1].ask("OFFER db m2 size=9"), "OK");
    for _ in 0..2 {
        assert!(clients[2].ask("TAKE db").starts_with("MEMBER "));
    }
    clients[3].send(b"TAKE db 60\n");
    assert!(clients[1].line().starts_with("!START db 2"));
    assert!(clients[4].ask("TAKEGROUP g 9").starts_with("MEMBER "));
    clients[4].send(b"TAKEGROUP g 60\n");
    clients
}

/// Jobs that are ready, delayed, reserved and buried, a limit, a runner that waits, and half a body.
fn hold_jobs(daemon: &Daemon) -> Vec<JobsClient> {
    let mut clients: Vec<JobsClient> = (0..3).map(|_| JobsClient::to(daemon.jobs())).collect();
    for (how, body) in [("7 0 600", "reserved"), ("8 0 600", "buried"), ("9 0 600", "ready"), ("9 500 600", "delayed")]
    {
        assert!(clients[0].put(how, body.as_bytes()).starts_with("INSERTED "), "{body}");
    }
    for _ in 0..2 {
        let reply = clients[1].ask("reserve");
        let len = reply.rsplit(' ').next().and_then(|len| len.parse().ok()).expect("a length");
        clients[1].body(len);
    }
    assert_eq!(clients[1].ask("bury 2 8"), "BURIED");
    assert_eq!(clients[2].ask("watch nothing"), "WATCHING 2");
    assert_eq!(clients[2].ask("ignore default"), "WATCHING 1");
    clients[2].send(b"reserve-with-timeout 600\r\n");
    assert_eq!(clients[0].ask("use other"), "USING other");
    clients[0].send(b"put 5 0 60 100000\r\nhalf of a body");
    clients
}
