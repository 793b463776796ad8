//! Jobs in a real database of PostgreSQL with all kinds of faults: at the end each promised job is there, once, and
//! each deleted one is gone. Slow cases run with `make test-postgres`.

mod access;
mod crowd;
mod cut;
mod far;
mod inbox;
mod kept;
mod long;
mod proxy;
mod queues;
mod slow;
mod soak;
mod strange;
mod takeovers;

use crowd::{Crowd, Heard};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::postgres::{Cluster, as_server, own, shared};
use poolcounter_testkit::random::Random;
use proxy::{Fate, Proxy};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait: for a million jobs to be read on a busy machine.
const LONGEST: Duration = Duration::from_secs(120);
/// Time for which each case has load before and after its fault.
const LOAD: Duration = Duration::from_millis(1500);

/// Daemons at a database, behind a proxy each, and their clients.
struct Stage<'a> {
    cluster: &'a Cluster,
    schema: String,
    proxies: Vec<Proxy>,
    daemons: Vec<Daemon>,
    /// Further options of daemons that are started from now on.
    options: &'static [&'static str],
    /// Longest wait of a reply for a failing store, in seconds.
    store_timeout: &'static str,
}

impl<'a> Stage<'a> {
    /// Starts daemons, and waits until the first of them serves.
    fn new(cluster: &'a Cluster, daemons: usize) -> Stage<'a> {
        Stage::with(cluster, daemons, |_| {})
    }

    /// Starts daemons after `prepare` has changed the schema.
    fn with(cluster: &'a Cluster, daemons: usize, prepare: impl FnOnce(&str)) -> Stage<'a> {
        let mut stage = Stage::empty(cluster, prepare);
        (0..daemons).for_each(|_| stage.add());
        stage
    }

    /// Makes a schema, which `prepare` changes, and no daemons yet.
    fn empty(cluster: &'a Cluster, prepare: impl FnOnce(&str)) -> Stage<'a> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let schema = format!("case_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        cluster.url(&schema);
        prepare(&schema);
        Stage { cluster, schema, proxies: Vec::new(), daemons: Vec::new(), options: &[], store_timeout: "5" }
    }

    /// Adds a daemon with its proxy.
    fn add(&mut self) {
        self.proxies.push(Proxy::to(self.cluster.port));
        let daemon = self.start(self.daemons.len(), "127.0.0.1:0");
        if self.daemons.is_empty() {
            until(|| is_serving(daemon.jobs()), "the first daemon serves");
        }
        self.daemons.push(daemon);
    }

    /// Starts a daemon behind its proxy, with its jobs at this address.
    fn start(&self, place: usize, address: &str) -> Daemon {
        let url = self.cluster.url_at(&self.schema, self.proxies[place].port);
        let jobs =
            ["--jobs", "--jobs-listen", address, "--jobs-store", &url, "--jobs-store-timeout", self.store_timeout];
        Daemon::start(&[&jobs[..], &["--http", "127.0.0.1:0"], self.options].concat())
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.daemons.iter().map(Daemon::jobs).collect()
    }

    /// Runs clients while `happen` causes a fault, and compares the replies with the database at the end.
    fn play(&mut self, happen: impl FnOnce(&mut Stage<'a>)) -> Heard {
        let crowd = Crowd::at(&self.addresses());
        thread::sleep(LOAD);
        happen(self);
        let serves = || self.addresses().iter().any(|address| is_serving(*address));
        until(serves, "a daemon serves again");
        thread::sleep(LOAD);
        let heard = crowd.end();
        assert!(heard.inserted.len() > 50 && heard.deleted.len() > 20, "there was no load");
        // Requests under way end with the daemons.
        self.daemons.clear();
        let found = self.found();
        heard.check(&found);
        println!("{} jobs put, {} deleted, {} there", heard.inserted.len(), heard.deleted.len(), found.len());
        heard
    }

    /// Returns the clients' jobs in the database; jobs of other sources have the priority 9.
    fn found(&self) -> BTreeMap<u64, String> {
        let rows =
            self.cluster.query(&self.schema, "SELECT id || ' ' || convert_from(body, 'UTF8') FROM job WHERE pri <> 9");
        let split =
            |row: &String| row.split_once(' ').map(|(id, body)| (id.parse().expect("a number"), body.to_string()));
        let found: Vec<(u64, String)> = rows.iter().map(|row| split(row).expect("two words")).collect();
        let count = found.len();
        let found: BTreeMap<u64, String> = found.into_iter().collect();
        assert_eq!(found.len(), count, "a number is there twice");
        found
    }
}

/// Waits until the condition is true.
fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + LONGEST;
    while !is_so() {
        assert!(Instant::now() < deadline, "it does not come to this: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the first line of the reply to a request on a new connection; empty if there is none.
fn answer(address: SocketAddr, request: &str) -> String {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(format!("{request}\r\n").as_bytes())?;
        let mut bytes = [0; 1000];
        let len = stream.read(&mut bytes)?;
        std::io::Result::Ok(String::from_utf8_lossy(&bytes[..len]).lines().next().unwrap_or_default().to_string())
    };
    ask().unwrap_or_default()
}

/// Returns whether a daemon has its jobs and serves them.
fn is_serving(address: SocketAddr) -> bool {
    answer(address, "peek 9000000000000000000") == "NOT_FOUND"
}

/// Returns the first line of the answer to a page's request, and its text.
fn page(daemon: &Daemon, path: &str) -> (String, String) {
    let line = daemon.lines.iter().find_map(|line| line.split_once("metrics and the status page are at "));
    let address = line.map(|(_, address)| address.trim().to_string()).expect("it has one");
    let mut stream =
        TcpStream::connect(address.trim_start_matches("http://").trim_end_matches('/')).expect("it listens");
    let mut request = String::new();
    write!(request, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("fits");
    stream.write_all(request.as_bytes()).expect("is sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("comes");
    (text.lines().next().unwrap_or_default().to_string(), text)
}

#[test]
fn a_commit_that_did_not_reach_the_database_is_made_again() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    stage.play(|stage| {
        for _ in 0..5 {
            let met = stage.proxies[0].met();
            stage.proxies[0].set(Some(Fate::DropsBefore));
            until(|| stage.proxies[0].met() > met, "a commit is dropped");
            thread::sleep(Duration::from_millis(300));
        }
    });
}

#[test]
fn a_commit_whose_answer_is_lost_is_made_once() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    stage.play(|stage| {
        for _ in 0..5 {
            let met = stage.proxies[0].met();
            stage.proxies[0].set(Some(Fate::DropsAfter));
            until(|| stage.proxies[0].met() > met, "an answer is dropped");
            thread::sleep(Duration::from_millis(300));
        }
    });
}

#[test]
fn a_session_that_is_terminated_in_a_batch_costs_nothing() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    // A batch lasts for less than a millisecond.
    let terminate = "CREATE FUNCTION terminate() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN FOR n IN 1..1000 LOOP \
                     PERFORM pg_terminate_backend(pid) FROM pg_locks \
                     WHERE relation = 'job'::regclass AND mode = 'RowExclusiveLock'; \
                     IF FOUND THEN RETURN true; END IF; END LOOP; RETURN false; END $$";
    cluster.query(&stage.schema, terminate);
    stage.play(|stage| {
        for _ in 0..10 {
            let is_met = || stage.cluster.query(&stage.schema, "SELECT terminate()") == ["t"];
            until(is_met, "a session is in the middle of a batch");
            thread::sleep(Duration::from_millis(200));
        }
    });
}

/// A daemon that was suspended past its lease gives out no jobs, and promises nothing.
#[test]
fn an_owner_that_was_stopped_is_taken_over_from_and_does_no_harm() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 2);
    assert_eq!(answer(stage.daemons[1].jobs(), "list-tube-used"), "INTERNAL_ERROR");
    assert!(page(&stage.daemons[0], "/healthz").0.contains("200"));
    assert!(page(&stage.daemons[1], "/healthz").0.contains("503"));
    let text = page(&stage.daemons[0], "/metrics").1;
    assert!(text.lines().any(|line| line.contains("store_owner") && line.ends_with(" 1")), "{text}");
    stage.play(|stage| {
        let mut holder = Client::to(stage.daemons[0].jobs());
        holder.send(b"use kept\r\nput 0 0 60 1\r\nx\r\nwatch kept\r\nignore default\r\n");
        let said: Vec<String> = (0..4).map(|_| holder.line()).collect();
        assert!(said[1].starts_with("INSERTED"), "{said:?}");
        stage.daemons[0].signal(Signal::SIGSTOP);
        let others = stage.daemons[1].jobs();
        until(|| is_serving(others), "the standby serves");
        assert!(page(&stage.daemons[1], "/healthz").0.contains("200"));
        holder.send(b"reserve-with-timeout 0\r\nput 0 0 60 1\r\ny\r\n");
        stage.daemons[0].signal(Signal::SIGCONT);
        let told = holder.rest();
        let is_harmless = |line: &str| ["INTERNAL_ERROR", "TIMED_OUT", "OUT_OF_MEMORY"].contains(&line);
        assert!(told.lines().all(is_harmless), "{told}");
        until(|| page(&stage.daemons[0], "/healthz").0.contains("503"), "the first stands by");
        // This job is not one of the clients'.
        answer(others, "clear kept");
    });
}

#[test]
fn statements_that_take_too_long_for_the_server_are_said_again() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    stage.play(|stage| {
        let lock = format!("BEGIN; LOCK TABLE {}.job; SELECT pg_sleep(1.5); COMMIT", stage.schema);
        stage.cluster.query("postgres", "ALTER ROLE postgres SET statement_timeout = 300");
        stage.proxies[0].turn_to(stage.cluster.port);
        thread::sleep(Duration::from_millis(500));
        stage.cluster.query("postgres", "ALTER ROLE postgres RESET statement_timeout");
        stage.cluster.query("postgres", &format!("SET statement_timeout = 0; {lock}"));
        stage.proxies[0].turn_to(stage.cluster.port);
    });
}

#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn a_server_that_is_restarted_has_everything() {
    let Some(cluster) = own(&[]) else { return };
    let mut stage = Stage::new(&cluster, 2);
    stage.play(|stage| {
        for _ in 0..3 {
            stage.cluster.kill();
            thread::sleep(Duration::from_secs(1));
            stage.cluster.run();
            thread::sleep(Duration::from_secs(2));
        }
    });
}

#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn a_synchronous_replica_has_everything() {
    let Some(cluster) = own(&["synchronous_standby_names=*", "synchronous_commit=local", "wal_level=replica"]) else {
        return;
    };
    let replica = Cluster::replica(&cluster, &[]);
    cluster.query("postgres", "ALTER SYSTEM SET synchronous_commit = on");
    let mut stage = Stage::new(&cluster, 2);
    until(|| cluster.query("postgres", "SELECT sync_state FROM pg_stat_replication") == ["sync"], "it follows");
    cluster.query("postgres", "ALTER ROLE postgres SET synchronous_commit = on");
    stage.proxies.iter().for_each(|proxy| proxy.turn_to(cluster.port));
    let crowd = Crowd::at(&stage.addresses());
    thread::sleep(LOAD * 2);
    cluster.kill();
    replica.promote();
    replica.query("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''");
    replica.query("postgres", "SELECT pg_reload_conf()");
    stage.proxies.iter().for_each(|proxy| proxy.turn_to(replica.port));
    let serves = || stage.addresses().iter().any(|address| is_serving(*address));
    until(serves, "a daemon serves again");
    thread::sleep(LOAD * 4);
    let heard = crowd.end();
    assert!(heard.inserted.len() > 50, "there was no load");
    stage.daemons.clear();
    let stage = Stage {
        cluster: &replica,
        schema: stage.schema,
        proxies: Vec::new(),
        daemons: Vec::new(),
        options: &[],
        store_timeout: "5",
    };
    heard.check(&stage.found());
}

/// A daemon of a server that takes no commits waits for one that does, and logs the reason.
#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn a_server_that_is_read_only_is_not_written_to() {
    let Some(cluster) = own(&["wal_level=replica"]) else { return };
    let replica = Cluster::replica(&cluster, &[]);
    let mut stage = Stage::new(&cluster, 2);
    stage.play(|stage| {
        stage.proxies[1].turn_to(replica.port);
        stage.daemons[0].signal(Signal::SIGSTOP);
        thread::sleep(Duration::from_secs(8));
        assert_eq!(answer(stage.daemons[1].jobs(), "list-tube-used"), "INTERNAL_ERROR");
        let log = stage.daemons[1].new_log();
        assert!(log.iter().any(|line| line.contains("does not allow writes")), "{log:#?}");
        stage.daemons[0].signal(Signal::SIGCONT);
        // The one that serves is moved to a server that takes no commits, and back.
        until(|| is_serving(stage.daemons[0].jobs()), "the first goes on");
        stage.proxies[0].turn_to(replica.port);
        thread::sleep(Duration::from_secs(2));
        stage.proxies.iter().for_each(|proxy| proxy.turn_to(stage.cluster.port));
    });
}

#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn a_disk_that_is_full_is_waited_for() {
    let Some(cluster) = own(&[]) else { return };
    let mut stage = Stage::new(&cluster, 1);
    stage.play(|stage| {
        // No file of the server can grow, except its log, whose files have their full length already.
        set_file_limit(stage.cluster, "16777216");
        let mut client = Client::to(stage.daemons[0].jobs());
        let mut random = Random::new(1);
        let mut was_refused = false;
        for _ in 0..2000 {
            // The server cannot compress it.
            let body: String = (0..3750).map(|_| format!("{:016x}", random.next())).collect();
            client.send(format!("put 9 900 9 {}\r\n{body}\r\n", body.len()).as_bytes());
            let told = client.line();
            was_refused = told.starts_with("OUT_OF_MEMORY") || told.starts_with("INTERNAL_ERROR");
            if was_refused {
                break;
            }
        }
        assert!(was_refused, "it was never full");
        thread::sleep(Duration::from_secs(2));
        set_file_limit(stage.cluster, "unlimited");
        until(|| answer(stage.daemons[0].jobs(), "stats").starts_with("OK"), "it goes on");
    });
}

/// Sets the largest size of a file that the server and its processes may write.
fn set_file_limit(cluster: &Cluster, limit: &str) {
    for pid in processes(cluster) {
        // The process may have ended meanwhile.
        let mut prlimit = as_server(Path::new("prlimit"));
        let _ = prlimit.args([&format!("--pid={pid}"), &format!("--fsize={limit}:")]).status();
    }
}

/// Returns the processes of a server, the first of all first.
fn processes(cluster: &Cluster) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").expect("there is one").flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
        parent == Some(cluster.pid())
    };
    [cluster.pid()].into_iter().chain(pids.filter(is_child)).collect()
}
