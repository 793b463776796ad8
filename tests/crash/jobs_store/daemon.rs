//! Jobs in a file, with the real daemon: restarts, upgrades, refusals, copies; and a slow store, beside other services.

use crate::jobs_store::store::SlowStore;
use crate::stored;
use ::{poolcounter_counters as counters, poolcounter_members as members, poolcounter_pools as pools};
use nix::sys::signal::Signal;
use poolcounter_server::{Address, Listener, Options, Policy, Server, Stopper};
use poolcounter_service::container::{AllSettings, Services};
use poolcounter_service::contract::Info;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::running::refusal_of_store;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::web;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub fn start(path: &Path, options: &[&str]) -> Daemon {
    let store = format!("sqlite:{}", path.display());
    Daemon::start_with_jobs(&[&["--jobs-store", &store], options].concat())
}

#[test]
fn promises_hold_after_a_crash_and_after_an_upgrade() {
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    let mut daemon = start(&path, &[]);
    daemon.wait_for_log(&format!("the jobs are kept in {}", path.display()));
    let mut one = JobsClient::to(daemon.jobs());
    assert_eq!(one.ask("put-job 7 0 99 3 key=k\r\none"), "INSERTED 1");
    assert_eq!(one.ask("put-job 0 0 99 3 key=day for=86400\r\ntwo"), "INSERTED 2");
    assert_eq!((one.ask("reserve"), one.line()), ("RESERVED 2 3".into(), "two".into()));
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_log("has taken over");
    // The client still has its job reserved, and the file continues with the changes of the process before.
    assert_eq!(one.ask("put 0 0 99 5\r\nthree"), "INSERTED 3");
    assert_eq!((one.ask("delete 2"), one.ask("bury 3 5")), ("DELETED".into(), "NOT_FOUND".into()));
    assert_eq!(one.ask("put-job 0 0 99 3 key=day\r\ntwo"), "DUPLICATE 2");
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let daemon = start(&path, &[]);
    let mut one = JobsClient::to(daemon.jobs());
    assert_eq!(
        (one.ask("peek 2"), one.ask("peek 3"), one.line()),
        ("NOT_FOUND".into(), "FOUND 3 5".into(), "three".into())
    );
    assert_eq!(one.ask("put-job 7 0 99 3 key=k\r\none"), "DUPLICATE 1");
    assert_eq!(one.ask("put-job 0 0 99 3 key=day\r\ntwo"), "DUPLICATE 2");
    // A number is never used again.
    assert_eq!((one.ask("delete 1"), one.ask("delete 3")), ("DELETED".into(), "DELETED".into()));
    drop(daemon);
    let daemon = start(&path, &[]);
    assert_eq!(JobsClient::to(daemon.jobs()).ask("put 0 0 99 3\r\nnew"), "INSERTED 4");
}

#[test]
fn since_when_a_job_is_buried_is_known_after_a_crash() {
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    let buried_for = |daemon: &Daemon| {
        // It is answered once the file is read.
        assert_eq!(JobsClient::to(daemon.jobs()).ask("peek 1"), "FOUND 1 1");
        let line = daemon.lines.iter().find(|line| line.contains("the status page are at ")).expect("it is said");
        let address = line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("an address");
        let status = web::fetch(address, "/status.json");
        let status: serde_json::Value = serde_json::from_str(status.text()).expect("is JSON");
        status["jobs"]["buried"][0]["buried"].as_f64().expect("a job is buried")
    };
    let daemon = start(&path, &["--http", "127.0.0.1:0"]);
    let mut one = JobsClient::to(daemon.jobs());
    assert_eq!(one.ask("put 0 0 99 1\r\na"), "INSERTED 1");
    assert_eq!(
        (one.ask("reserve"), one.line(), one.ask("bury 1 0")),
        ("RESERVED 1 1".into(), "a".into(), "BURIED".into())
    );
    thread::sleep(Duration::from_millis(1200));
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let mut daemon = start(&path, &["--http", "127.0.0.1:0"]);
    assert!(buried_for(&daemon) >= 1.2, "after a crash");
    daemon.upgrade();
    assert!(buried_for(&daemon) >= 1.2, "after an upgrade");
}

/// The log of the file is lost while the daemon runs: it writes all jobs anew, and serves meanwhile.
#[test]
fn changes_that_the_disk_lost_are_written_from_memory() {
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    let mut daemon = start(&path, &[]);
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!((client.ask("limit */x 3"), client.ask("root t S 9")), ("LIMIT 3".into(), "ROOT 9".into()));
    let put = format!("put-job 0 0 99 2000 group=g\r\n{}\r\n", "b".repeat(2000));
    (0..3000).for_each(|_| client.send(put.as_bytes()));
    (1..=3000).for_each(|id| assert_eq!(client.line(), format!("INSERTED {id}")));
    assert_eq!(client.ask("delete 77"), "DELETED");
    assert_eq!(client.ask("put-job 5 0 99 1 key=k\r\nx"), "INSERTED 3001");
    assert_eq!(client.ask("delete 78"), "DELETED");
    let mut puts = 0;
    while client.stat("stats", "store-rewrites") == "0" {
        puts += 1;
        // If the log was checkpointed before it was cut, nothing was lost.
        assert!(puts < 100, "it is never found out");
        assert_eq!(client.ask("put 0 0 99 1\r\ny"), format!("INSERTED {}", 3001 + puts));
        let log = fs::File::options().write(true).open(scratch.file("jobs.db-wal")).expect("is there");
        log.set_len(0).expect("can be cut");
        thread::sleep(Duration::from_millis(250));
    }
    daemon.wait_for_log("all jobs are written anew");
    let last = format!("{}", 3002 + puts);
    // The new file may be complete already or not.
    let mut told = client.ask("put 0 0 99 1\r\nw");
    while told == "OUT_OF_MEMORY" {
        thread::sleep(Duration::from_millis(10));
        told = client.ask("put 0 0 99 1\r\nw");
    }
    assert_eq!(told, format!("INSERTED {last}"));
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let daemon = start(&path, &[]);
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!((client.ask("peek 77"), client.ask("peek 78")), ("NOT_FOUND".into(), "NOT_FOUND".into()));
    assert_eq!((client.ask(&format!("peek {last}")), client.line()), (format!("FOUND {last} 1"), "w".into()));
    assert_eq!((client.ask("peek 3002"), client.line()), ("FOUND 3002 1".into(), "y".into()));
    assert_eq!(client.ask("put-job 5 0 99 1 key=k\r\nx"), "DUPLICATE 3001");
    assert_eq!((client.ask("peek 3000"), client.line().len()), ("FOUND 3000 2000".into(), 2000));
    assert_eq!(client.ask("put-job 0 0 9 1 tube=t root=S root-ts=8\r\nx"), "SUPERSEDED");
    assert_eq!(client.ask("put 0 0 99 1\r\nz"), format!("INSERTED {}", 3003 + puts));
}

/// Several reloads follow each other at once, as when an operator changes his mind.
#[test]
fn reloads_with_other_stores_are_refused() {
    for from in ["memory", "sqlite:a.db", "sqlite:link/a.db"] {
        let scratch = Scratch::new();
        let config = scratch.file("poolcounter.toml");
        std::os::unix::fs::symlink(scratch.file(""), scratch.file("link")).expect("can be made");
        let place = |store: &str| store.replace("sqlite:", &format!("sqlite:{}/", scratch.file("").display()));
        let set = |store: &str| {
            let store = place(store);
            let settings = format!("[jobs]\nenable = true\nlisten = \"127.0.0.1:0\"\nstore = \"{store}\"\n");
            fs::write(&config, settings).expect("can be written");
        };
        set(from);
        let mut daemon = Daemon::start(&["--config", config.to_str().expect("is text")]);
        let mut client = JobsClient::to(daemon.jobs());
        (1..=10).for_each(|id| assert_eq!(client.ask("put 0 0 99 3\r\none"), format!("INSERTED {id}")));
        assert_eq!((client.ask("reserve"), client.line()), ("RESERVED 1 3".into(), "one".into()));
        set("sqlite:b.db");
        daemon.signal(Signal::SIGUSR1);
        daemon.wait_for_log("an upgrade begins");
        set("sqlite:c.db");
        daemon.signal(Signal::SIGUSR1);
        for _ in 0..2 {
            let line = daemon.wait_for_log("no upgrade: ");
            assert!(
                line.contains("the jobs are in ") && line.contains(".db: a running daemon does not move"),
                "{line}"
            );
        }
        if from != "memory" {
            set("memory");
            daemon.signal(Signal::SIGUSR1);
            let line = daemon.wait_for_log("no upgrade: ");
            assert!(line.contains("a.db, and jobs.store names memory"), "{line}");
        }
        assert_eq!(
            (client.ask("delete 1"), client.ask("put 0 0 99 3\r\ntwo")),
            ("DELETED".into(), "INSERTED 11".into())
        );
        assert!(!scratch.file("b.db").exists() && !scratch.file("c.db").exists(), "no other file was made");
        set(from);
        daemon.upgrade();
        assert_eq!((client.ask("peek 11"), client.line()), ("FOUND 11 3".into(), "two".into()));
    }
}

/// Makes files that hold no jobs that can be read, and returns each with the reason.
fn unusable_files(scratch: &Scratch) -> [(PathBuf, &'static str); 5] {
    let text = scratch.file("text");
    fs::write(&text, "x".repeat(9000)).expect("can be written");
    let newer = scratch.file("newer");
    drop(start(&newer, &[]));
    let set = |path: &Path, sql: &str| rusqlite::Connection::open(path).and_then(|file| file.execute_batch(sql));
    set(&newer, "UPDATE meta SET format = 99").expect("can be written");
    fs::copy(&newer, scratch.file("damaged")).expect("can be copied");
    let damaged = scratch.file("damaged");
    set(&damaged, "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'meta'").expect("can be done");
    let foreign = scratch.file("foreign");
    set(&foreign, "CREATE TABLE t (x)").expect("can be made");
    let cut = scratch.file("cut");
    let whole = fs::read(&newer).expect("is readable");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("can be written");
    [
        (text, "file is not a database"),
        (newer, "its format is 99, and this program knows 1"),
        (damaged, "no such table: meta"),
        (foreign, "it is the file of another program"),
        (cut, "database disk image is malformed"),
    ]
}

#[test]
fn a_file_that_cannot_be_read_closes_the_jobs_alone_and_stays_as_it_is() {
    let scratch = Scratch::new();
    for (path, reason) in unusable_files(&scratch) {
        println!("{}", path.display());
        let before = fs::read(&path).expect("is readable");
        let mut daemon = start(&path, &["--http", "127.0.0.1:0"]);
        let said = format!("the jobs in {} cannot be read, and are not served: {reason}", path.display());
        assert!(daemon.lines.iter().any(|line| line.ends_with(&said)), "{said:?} is not in {:#?}", daemon.lines);
        let line = daemon.lines.iter().find(|line| line.contains("the status page are at ")).expect("it is said");
        let http = line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("an address");
        let mut holder = daemon.connect();
        assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
        for request in ["put 0 0 9 1\r\nx", "reserve-with-timeout 0", "list-tube-used", "stats"] {
            assert_eq!(JobsClient::to(daemon.jobs()).ask(request), "INTERNAL_ERROR", "{request}");
        }
        for query in ["", "?service=jobs"] {
            let health = web::fetch(http, &format!("/healthz{query}"));
            assert_eq!((health.status, health.text().trim()), (503, "the jobs cannot be read"), "{query}");
        }
        assert_eq!(web::fetch(http, "/healthz?service=pools").status, 200);
        assert!(web::fetch(http, "/status.json").text().contains(reason), "{reason}");
        daemon.upgrade();
        assert_eq!(JobsClient::to(daemon.jobs()).ask("put 0 0 9 1\r\nx"), "INTERNAL_ERROR");
        assert_eq!(holder.ask("RELEASE"), "RELEASED");
        daemon.signal(Signal::SIGTERM);
        daemon.wait();
        assert!(fs::read(&path).expect("is readable") == before, "{} has changed", path.display());
    }
}

#[test]
fn a_daemon_does_not_start_without_a_place_for_its_jobs_or_without_jobs_that_are_required() {
    let scratch = Scratch::new();
    let refusal = |path: &Path, more: &[&str]| {
        let store = format!("sqlite:{}", path.display());
        refusal_of_store(&store, more).lines().last().unwrap_or_default().to_string()
    };
    let missing = scratch.file("no/such/place");
    assert!(refusal(&missing, &[]).contains("cannot be opened: No such file or directory"));
    for (path, reason) in unusable_files(&scratch) {
        let before = fs::read(&path).expect("is readable");
        let refusal = refusal(&path, &["--jobs-required"]);
        assert!(refusal.contains("are required") && refusal.ends_with(reason), "{refusal}");
        assert!(fs::read(&path).expect("is readable") == before, "{} has changed", path.display());
    }
}

/// Returns the id of the queue in a file that no daemon has open.
fn queue_of(path: &Path) -> String {
    let file = rusqlite::Connection::open(path).expect("is a file of SQLite");
    file.query_row("SELECT queue FROM meta", [], |row| row.get(0)).expect("it has one")
}

/// A store of each released format, as SQL: it is read, and converted to the present format.
#[test]
fn every_format_that_was_released_is_read() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores");
    let files: Vec<_> =
        fs::read_dir(&directory).expect("is there").map(|file| file.expect("is readable").path()).collect();
    assert!(!files.is_empty());
    for sql in files {
        let scratch = Scratch::new();
        let path = scratch.file("jobs.db");
        let text = fs::read_to_string(&sql).expect("is text");
        rusqlite::Connection::open(&path).and_then(|file| file.execute_batch(&text)).expect("is a store");
        let daemon = start(&path, &[]);
        let mut client = JobsClient::to(daemon.jobs());
        assert_eq!((client.ask("peek 1"), client.line()), ("FOUND 1 1".into(), "a".into()), "{}", sql.display());
        assert_eq!(client.ask("put-job 0 0 9 1 key=k\r\nx"), "DUPLICATE 2");
        assert_eq!(client.ask("put-job 0 0 9 1 tube=t root=S root-ts=6\r\nx"), "SUPERSEDED");
        assert_eq!((client.ask("peek-buried"), client.line()), ("FOUND 3 2".into(), "cc".into()));
        assert_eq!(client.ask("put 0 0 9 1\r\nx"), "INSERTED 6");
        drop(daemon);
        assert_eq!(queue_of(&path).len(), 32);
    }
}

/// While a commit takes seconds, requests that do not wait for it are served as usual.
#[test]
fn a_slow_commit_slows_nothing_else_down() {
    const LIST: &[&Info] = &[&pools::INFO, &counters::INFO, &members::INFO, &stored::INFO];
    let (slow, [pools, counters, members, jobs], stopper, serving) =
        serve(LIST, ["pools", "counters", "members", "jobs"]);
    let mut waits = JobsClient::to(jobs);
    waits.send(b"put 0 0 9 1\r\na\r\n");
    let [mut pools, mut members] = [pools, members].map(Client::to);
    let mut others = JobsClient::to(jobs);
    let mut counters = TcpStream::connect(counters).expect("it listens");
    let until = Instant::now() + Duration::from_secs(2);
    let mut slowest = Duration::ZERO;
    while Instant::now() < until {
        let begun = Instant::now();
        assert_eq!((pools.ask("ACQ4ME k 1 5 5"), pools.ask("RELEASE")), ("LOCKED".into(), "RELEASED".into()));
        assert_eq!(members.ask("UTILIZATION p"), "ERROR NO_POOL");
        assert_eq!(others.ask("reserve-with-timeout 0"), "TIMED_OUT");
        // Noop of the counters' protocol: a header without a body.
        counters.write_all(&[0x90, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]).expect("is sent");
        counters.read_exact(&mut [0; 12]).expect("is answered");
        slowest = slowest.max(begun.elapsed());
    }
    assert!(slow.commit_one(), "the commit was under way all the time");
    assert_eq!(waits.line(), "INSERTED 1");
    assert!(slowest < Duration::from_secs(2), "one round took {slowest:?}");
    stopper.stop().expect("it can be woken");
    serving.join().expect("it does not panic").expect("it can wait");
}

/// Running server: its store, the addresses of its services, and what ends it.
type Serving<const N: usize> = (SlowStore, [SocketAddr; N], Stopper, JoinHandle<std::io::Result<()>>);

/// Starts a server of these services, which have these names.
fn serve<const N: usize>(list: &[&'static Info], names: [&str; N]) -> Serving<N> {
    let slow = SlowStore::install();
    let services = Services::of(list, &AllSettings::defaults(list));
    let ids = names.map(|name| services.named(name).expect("is there"));
    let mut server = Server::new(services, Policy::of(list)).expect("the system has an event queue");
    for id in ids {
        let address = Address::parse("127.0.0.1:0", 0).expect("is an address");
        server.listen(Listener::bind(&address, &Options::default()).expect("is free"), id).expect("can be polled");
    }
    let at = |name: &str| server.addresses(name)[0].to_string().parse().expect("is an address");
    let (addresses, stopper) = (names.map(at), server.stopper());
    (slow, addresses, stopper, thread::spawn(move || server.run()))
}

/// Stops a server while a put is being committed, and returns its store, that client, one of the pools, and its thread.
fn stop_in_a_commit() -> (SlowStore, JobsClient, Client, JoinHandle<std::io::Result<()>>) {
    let (slow, [pools, jobs], stopper, serving) = serve(&[&pools::INFO, &stored::INFO], ["pools", "jobs"]);
    let (mut waits, mut pools) = (JobsClient::to(jobs), Client::to(pools));
    waits.send(b"put 0 0 9 1\r\na\r\n");
    while slow.take_happened().is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    stopper.stop().expect("it can be woken");
    assert_eq!(pools.ask("ACQ4ME k 1 5 5"), "LOCKED");
    waits.send(b"put 0 0 9 1\r\nb\r\n");
    (slow, waits, pools, serving)
}

#[test]
fn a_stop_awaits_the_commit_under_way_and_reads_nothing_more() {
    let (slow, mut waits, mut pools, serving) = stop_in_a_commit();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(pools.ask("RELEASE"), "RELEASED");
    assert!(slow.commit_one());
    assert_eq!(waits.line(), "INSERTED 1");
    serving.join().expect("it does not panic").expect("it can wait");
    assert_eq!(slow.batches().len(), 1);
    assert!(slow.take_happened().len() == 1, "nothing was handed over after the stop");
}

#[test]
fn a_stop_awaits_no_commit_for_more_than_five_seconds() {
    let begun = Instant::now();
    let (_slow, _waits, mut pools, serving) = stop_in_a_commit();
    thread::sleep(Duration::from_secs(4));
    assert_eq!(pools.ask("RELEASE"), "RELEASED");
    serving.join().expect("it does not panic").expect("it can wait");
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
}

/// Only administrators may copy, and a copy is a store.
#[test]
fn a_copy_is_made_while_others_are_served() {
    let scratch = Scratch::new();
    let daemon = start(&scratch.file("jobs.db"), &[]);
    let [mut one, mut other] = [daemon.jobs(), daemon.jobs()].map(JobsClient::to);
    (0..5000).for_each(|_| one.send(b"put 0 0 99 9\r\nsome body\r\n"));
    (1..=5000).for_each(|id| assert_eq!(one.line(), format!("INSERTED {id}")));
    let copy = scratch.file("copy.db");
    one.send(b"store-copy copy.db\r\nlist-tube-used\r\n");
    assert_eq!(other.ask("delete 1"), "DELETED");
    let copied = one.line();
    assert!(copied.starts_with("COPIED "), "{copied}");
    assert_eq!(one.line(), "USING default");
    let jobs = rusqlite::Connection::open(&copy).expect("is a file of SQLite");
    let count: i64 = jobs.query_row("SELECT count(*) FROM job", [], |row| row.get(0)).expect("has jobs");
    assert!((4999..=5000).contains(&count), "{count}");
    assert_eq!(one.ask("store-copy copy.db"), "INTERNAL_ERROR");
    for name in [".", "..", ".hidden", "/tmp/copy.db", "sub/copy.db", "../copy.db", "jobs.db", "jobs.db-whole", ""] {
        assert_eq!(one.ask(&format!("store-copy {name}")), "BAD_FORMAT store-copy <name>", "{name}");
    }
}

/// A file that refuses a row because of a trigger is written anew, which ends the trigger.
#[test]
fn file_with_a_trigger_of_others_is_written_anew() {
    let scratch = Scratch::new();
    let path = scratch.file("jobs.db");
    drop(start(&path, &[]));
    let file = rusqlite::Connection::open(&path).expect("is a file of SQLite");
    let trigger = "CREATE TRIGGER large BEFORE INSERT ON job WHEN NEW.pri = 4242
        BEGIN SELECT length(zeroblob(1500000000)); END";
    file.execute(trigger, []).expect("can be made");
    drop(file);
    let mut daemon = start(&path, &[]);
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!(client.ask("put 1 0 9 1\r\na"), "INSERTED 1");
    assert_eq!(client.ask("put 4242 0 9 1\r\nb"), "INSERTED 2");
    daemon.wait_for_log("is not used any more: string or blob too big");
    daemon.signal(Signal::SIGKILL);
    drop(daemon);
    let daemon = start(&path, &[]);
    assert_eq!(JobsClient::to(daemon.jobs()).stat("stats", "current-jobs-ready"), "2");
    drop(daemon);
    let file = rusqlite::Connection::open(&path).expect("is a file of SQLite");
    let query = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
    assert_eq!(file.query_row(query, [], |row| row.get::<_, i64>(0)).ok(), Some(0));
}

/// The bound applies to requests: more tubes than it allows are taken over and loaded, and only new ones are refused.
#[test]
fn fewer_tubes_than_there_are_may_be_allowed_at_an_upgrade_and_at_a_start() {
    let scratch = Scratch::new();
    let (path, config) = (scratch.file("jobs.db"), scratch.file("poolcounter.toml"));
    let options = ["--config", config.to_str().expect("is text")];
    fs::write(&config, "").expect("can be written");
    let mut daemon = start(&path, &options);
    let mut client = JobsClient::to(daemon.jobs());
    for tube in 0..10 {
        assert_eq!(client.ask(&format!("use t{tube}")), format!("USING t{tube}"));
        assert!(client.ask("put 0 0 99 1\r\nx").starts_with("INSERTED "));
    }
    fs::write(&config, "jobs.max_tubes = 5\n").expect("can be written");
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_log("an upgrade begins");
    // The rehearsal cannot know of these.
    (0..100).for_each(|tube| client.send(format!("watch w{tube}\r\n").as_bytes()));
    daemon.wait_for_log("has taken over");
    (0..100).for_each(|_| drop(client.line()));
    assert_eq!(client.stat("stats", "current-jobs-ready"), "10");
    assert_eq!(client.ask("use new"), "OUT_OF_MEMORY");
    assert_eq!((client.ask("use t9"), client.ask("put 0 0 99 1\r\nx")), ("USING t9".into(), "INSERTED 11".into()));
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let daemon = start(&path, &options);
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!(client.stat("stats", "current-jobs-ready"), "11");
    assert_eq!(client.ask("use new"), "OUT_OF_MEMORY");
    assert_eq!((client.ask("peek 6"), client.line()), ("FOUND 6 1".into(), "x".into()));
}

/// Stored jobs are not given out while the daemon drains, so a reserve waits although there are jobs.
#[test]
fn an_upgrade_hands_a_drain_over_while_clients_wait() {
    let scratch = Scratch::new();
    let admin = scratch.file("admin");
    let mut daemon = start(&scratch.file("jobs.db"), &["--admin", &format!("unix:{}", admin.display())]);
    let say = |command: &[u8]| {
        let mut socket = UnixStream::connect(&admin).expect("it listens");
        socket.write_all(command).expect("is sent");
        socket
    };
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!(client.ask("put 0 0 99 1\r\nx"), "INSERTED 1");
    let drain = say(b"DRAIN\n");
    let mut runner = JobsClient::to(daemon.jobs());
    while client.ask("put 0 0 99 1\r\ny") != "DRAINING" {
        thread::sleep(Duration::from_millis(2));
    }
    runner.send(b"reserve\r\n");
    while client.stat("stats", "current-waiting") == "0" {
        thread::sleep(Duration::from_millis(2));
    }
    daemon.upgrade();
    assert_eq!(client.stat("stats", "current-waiting"), "1");
    assert_eq!(client.ask("put 0 0 99 1\r\nz"), "DRAINING");
    let undrain = say(b"UNDRAIN\n");
    assert_eq!((runner.line(), runner.line()), ("RESERVED 1 1".into(), "x".into()));
    drop((drain, undrain));
}
