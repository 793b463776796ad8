//! A handover of each version, kept in `tests/handovers`: this program reads every file there. `make golden` writes that of
//! the present version.

use nix::sys::signal::Signal;
use poolcounter_testkit::counter::CounterClient;
use poolcounter_testkit::daemon::{Client, Daemon, install, install_program, wait_for_file};
use poolcounter_testkit::frames;
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::running::{Ended, end_with};
use poolcounter_testkit::scratch::Scratch;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/handovers");

#[test]
fn every_handover_that_was_written_is_read() {
    let scratch = Scratch::new();
    let copy = scratch.file("handover");
    for file in fs::read_dir(DIRECTORY).expect("is there") {
        let path = file.expect("can be listed").path();
        fs::copy(&path, &copy).expect("is readable");
        // The program appends its settings.
        let file = File::options().read(true).write(true).open(&copy).expect("is there");
        let mut check = Command::new(Daemon::program());
        let ended =
            end_with(check.args(["--check-handover", "--jobs-store", "memory", "--members-store", "memory"]), file);
        let taken = Ended { stdout: "can take over\n".into(), ..Ended::silent(0) };
        assert_eq!(ended, taken, "{}", path.display());
    }
}

/// Fills a daemon with state of all kinds, and stores the handover that it writes.
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
    // A hold that the daemon makes shorter is written in another form.
    let options = ["-l", "127.0.0.1:0", "--http", "127.0.0.1:0", "--max-hold", "3600"];
    let mut daemon = Daemon::run(command.args(options));
    let _pools = hold_pools(&daemon);
    let _counters = hold_counters(&daemon);
    let _members = hold_members(&daemon);
    let _jobs = hold_jobs(&daemon);
    // All requests have been served, and a connection that does not read is full.
    thread::sleep(Duration::from_millis(500));
    install(&program, format!("#!/bin/sh\ncat >{0}.part && mv {0}.part {0}\n", written.display()).as_bytes());
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_log("no upgrade: ");
    wait_for_file(&written);
    let path = Path::new(DIRECTORY).join(env!("CARGO_PKG_VERSION"));
    fs::copy(&written, &path).expect("can be written");
    println!("written: {}", path.display());
}

/// Makes two locks of one connection, three waiters, half a request, and unread replies.
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

/// Makes units of two counters, a free counter, half a frame, and half of a long body.
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

/// Makes a pool with members that are held, free and to be cleaned, a start under way, waiters, and an operator who
/// lists everything; a group; members that are kept out or will be; and providers with sessions, one in backoff and
/// one lost.
fn hold_members(daemon: &Daemon) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..6).map(|_| Client::to(daemon.members())).collect();
    for pool in ["POOL db 1 4 queue=5 max_age=300 max_lifetime=3000", "POOL web 0 1 group=g"] {
        assert_eq!(clients[0].ask(pool), "OK");
    }
    assert_eq!(clients[0].ask("ADD web fixed"), "OK");
    clients[1].send(b"PROVIDE db\n");
    assert_eq!([clients[1].line(), clients[1].line()], ["OK", "!START db 1"]);
    assert_eq!(clients[1].ask("STARTED 1 m1"), "OK");
    assert_eq!(clients[1].ask("OFFER db m2 size=9"), "OK");
    let lease_of =
        |taken: String| taken.split(' ').nth(1).filter(|_| taken.starts_with("MEMBER ")).expect("a lease").to_string();
    let leases = [0, 1].map(|_| lease_of(clients[2].ask("TAKE db")));
    clients[3].send(b"TAKE db 60\n");
    assert!(clients[1].line().starts_with("!START db 2"));
    assert!(clients[4].ask("TAKEGROUP g 9").starts_with("MEMBER "));
    clients[4].send(b"TAKEGROUP g 60\n");
    let mut lost = Client::to(daemon.members());
    let [operator, provider] = [0, 5];
    for (line, answer) in [
        ("POOL away 0 2 provider_grace=3000", "OK"),
        ("POOL out 0 3", "OK"),
        ("POOL busy 0 3 start_timeout=600", "OK"),
        ("ADD out failed", "OK"),
        ("ADD out held", "OK"),
        ("HOLD out held 3000 a new cable", "OK"),
        ("HOLD db m1 3000", "OK"),
    ] {
        assert_eq!(clients[operator].ask(line), answer, "{line}");
    }
    // One is in quarantine, and one was returned in good state by a young member of a provider.
    let failed = lease_of(clients[operator].ask("TAKE out"));
    assert_eq!(clients[operator].ask(&format!("RETURN {failed} FAIL")), "RETURNED");
    assert_eq!(clients[2].ask(&format!("RETURN {}", leases[0])), "RETURNED");
    for line in ["PROVIDE away session=one", "OFFER away left"] {
        assert_eq!(lost.ask(line), "OK");
    }
    assert_eq!(clients[provider].ask("PROVIDE busy session=two"), "OK");
    assert_eq!(clients[operator].ask("RECONFIGURE busy init=1"), "OK");
    assert_eq!([clients[provider].line(), clients[provider].ask("FAILED 3 no room")], ["!START busy 3", "OK"]);
    clients
}

/// Makes jobs that are ready, delayed, reserved and buried, one that has run and one that has failed, a root job with a
/// leaf, settings of tubes, a waiting runner, and half a body.
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
    for (line, begin) in [("retry w/* 5 600 2 3600", "RETRY"), ("limit w/* 3 all", "LIMIT"), ("root w/t A 9", "ROOT 9")]
    {
        assert!(clients[0].ask(line).starts_with(begin), "{line}");
    }
    for (id, options) in [(5, ""), (6, " group=g"), (7, " key=k root=A root-ts=9")] {
        clients[0].send(format!("put-job 7 0 600 1 tube=w/t{options}\r\nb\r\n").as_bytes());
        assert_eq!(clients[0].line(), format!("INSERTED {id}"));
    }
    for id in [5, 6] {
        assert_eq!(clients[1].ask(&format!("reserve-job {id}")), format!("RESERVED {id} 1"));
        clients[1].body(1);
    }
    assert_eq!(clients[1].ask("delete 5"), "DELETED");
    clients[1].send(b"fail 6 7 0 7\r\nno room\r\n");
    assert_eq!(clients[1].line(), "RELEASED");
    assert_eq!(clients[0].ask("use other"), "USING other");
    clients[0].send(b"put 5 0 60 100000\r\nhalf of a body");
    clients
}
