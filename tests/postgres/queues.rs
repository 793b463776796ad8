//! A daemon whose settings are changed to another queue: no job of either queue is lost.

use super::proxy::Proxy;
use super::{answer, is_serving, page, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::postgres::{Cluster, own, shared};
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Daemon with its settings in a file.
struct Configured {
    daemon: Daemon,
    path: PathBuf,
    _scratch: Scratch,
}

impl Configured {
    fn start(url: &str) -> Configured {
        let configured = Configured::begin(url);
        configured.await_service();
        configured
    }

    /// Starts a daemon that may have to stand by.
    fn begin(url: &str) -> Configured {
        let scratch = Scratch::new();
        let path = scratch.file("conf");
        fs::write(&path, settings(url)).expect("can be written");
        let daemon = Daemon::run(Command::new(Daemon::program()).arg("--config").arg(&path));
        Configured { daemon, path, _scratch: scratch }
    }

    /// Changes the place in the settings, and waits until the new process has taken over.
    fn reload(&mut self, url: &str) {
        fs::write(&self.path, settings(url)).expect("can be written");
        self.daemon.signal(Signal::SIGUSR1);
        self.daemon.wait_for_log("has taken over");
    }

    /// Changes the place to another one, and waits for the refusal in the log.
    fn reload_in_vain(&mut self, url: &str) {
        fs::write(&self.path, settings(url)).expect("can be written");
        self.daemon.signal(Signal::SIGUSR1);
        let line = self.daemon.wait_for_log("no upgrade: ");
        assert!(line.contains("a running daemon does not move them"), "{line}");
    }

    fn await_service(&self) {
        until(|| is_serving(self.daemon.jobs()), "the daemon serves");
        until(|| answer(self.daemon.jobs(), "put 0 0 9 4\r\nkept").starts_with("INSERTED"), "it commits");
    }

    fn put(&self, count: usize) {
        for _ in 0..count {
            let told = answer(self.daemon.jobs(), "put 0 0 60 1\r\nx");
            assert!(told.starts_with("INSERTED"), "{told}");
        }
    }
}

fn settings(url: &str) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\n[jobs]\nenable = true\nlisten = [\"127.0.0.1:0\"]\nstore = \"postgres:{url}\"\n"
    )
}

/// Returns the number of jobs of a queue.
fn jobs(cluster: &Cluster, schema: &str) -> usize {
    cluster.query(schema, "SELECT count(*) FROM job")[0].parse().expect("a number")
}

/// Another schema has another queue.
#[test]
fn reload_that_names_another_queue_is_refused() {
    let Some(cluster) = shared() else { return };
    let (one, other) = (cluster.url("queue_one"), cluster.url("queue_other"));
    let mut a = Configured::start(&one);
    let b = Configured::start(&other);
    a.put(5);
    b.put(9);
    a.reload_in_vain(&other);
    a.put(1);
    b.put(1);
    assert_eq!((jobs(cluster, "queue_one"), jobs(cluster, "queue_other")), (7, 11));
    // A standby may own the queue by the time of the takeover.
    let mut standby = Configured::begin(&one);
    standby.daemon.wait_for_log("this daemon stands by");
    standby.reload_in_vain(&other);
}

/// Another server has a schema of the same name. A copy of a queue has the same id and, as here, the same owner.
#[test]
fn reload_that_names_another_server_with_other_jobs_changes_neither() {
    let Some(cluster) = shared() else { return };
    let Some(foreign) = own(&["fsync=off"]) else { return };
    let (one, other) = (cluster.url("queue_left"), foreign.url("queue_left"));
    let mut a = Configured::start(&one);
    a.put(3);
    let b = Configured::start(&other);
    b.put(1);
    for (job, is_copy) in [(1, false), (2, true)] {
        if is_copy {
            let id = &cluster.query("queue_left", "SELECT queue || ' ' || epoch FROM meta, owner")[0];
            let (queue, epoch) = id.split_once(' ').expect("two words");
            foreign
                .query("queue_left", &format!("UPDATE meta SET queue = '{queue}'; UPDATE owner SET epoch = {epoch}"));
        }
        a.reload(&other);
        a.daemon.wait_for_log("has other jobs than this daemon");
        // A change that waits for its commit is promised to no client, and delays nothing.
        let mut client = Client::to(a.daemon.jobs());
        client.send(format!("delete {job}\r\n").as_bytes());
        thread::sleep(Duration::from_secs(3));
        a.reload(&one);
        assert_eq!(client.line().trim_end(), "INTERNAL_ERROR");
        a.await_service();
        // The deletion without a promise has taken effect in the daemon, and so in the database.
        assert!(answer(a.daemon.jobs(), &format!("peek {job}")).starts_with("NOT_FOUND"));
    }
    assert!(answer(a.daemon.jobs(), "peek 3").starts_with("FOUND"));
    assert_eq!((jobs(cluster, "queue_left"), jobs(&foreign, "queue_left")), (4, 2));
}

#[test]
fn reload_back_to_a_queue_that_another_has_taken_stands_by() {
    let Some(cluster) = shared() else { return };
    let Some(foreign) = own(&["fsync=off"]) else { return };
    let (one, other) = (cluster.url("queue_taken"), foreign.url("queue_taken"));
    let mut a = Configured::start(&one);
    a.put(3);
    let b = Configured::start(&other);
    b.put(1);
    a.reload(&other);
    a.daemon.wait_for_log("has other jobs than this daemon");
    let heir = Configured::start(&one);
    heir.put(2);
    a.reload(&one);
    a.daemon.wait_for_log("this daemon stands by");
    assert_eq!(answer(a.daemon.jobs(), "list-tube-used"), "INTERNAL_ERROR");
    heir.put(1);
    assert_eq!((jobs(cluster, "queue_taken"), jobs(&foreign, "queue_taken")), (8, 2));
}

/// The name of the database leads to another one, which knows only earlier take-overs than the daemon has made.
#[test]
fn another_queue_behind_the_same_name_is_left_alone() {
    let Some(cluster) = own(&["fsync=off"]) else { return };
    let Some(foreign) = own(&["fsync=off"]) else { return };
    cluster.url("named");
    foreign.url("named");
    foreign
        .query("named", "INSERT INTO job (id, tube, pri, delay, ttr, created, body) VALUES (1, 'x', 0, 0, 9, 0, 'x')");
    foreign.query("named", "UPDATE owner SET next_id = 2, batch = 1");
    let proxy = Proxy::to(cluster.port);
    let mut a = Configured::start(&cluster.url_at("named", proxy.port));
    a.put(2);
    proxy.turn_to(foreign.port);
    a.daemon.wait_for_log("has other jobs than this daemon");
    // Longer than the lease of a dead owner.
    thread::sleep(Duration::from_secs(7));
    assert_eq!((jobs(&cluster, "named"), jobs(&foreign, "named")), (3, 1));
    proxy.turn_to(cluster.port);
    a.await_service();
    assert_eq!(jobs(&foreign, "named"), 1);
}

/// The database is gone for good, and the settings name another server with its jobs.
#[test]
fn reload_leads_a_daemon_away_from_a_database_that_fails() {
    let Some(cluster) = own(&["fsync=off"]) else { return };
    let url = cluster.url("moved");
    let proxy = Proxy::to(cluster.port);
    let mut a = Configured::start(&cluster.url_at("moved", proxy.port));
    a.put(3);
    proxy.turn_to(1);
    let [mut client, mut other] = [(); 2].map(|()| Client::to(a.daemon.jobs()));
    client.send(b"delete 1\r\n");
    // The last request waits for the job of its connection.
    other.send(b"put 0 0 9 1\r\nx\r\npeek-ready\r\n");
    a.daemon.wait_for_log("the jobs cannot be kept in");
    thread::sleep(Duration::from_secs(3));
    a.reload(&url);
    assert_eq!(client.line().trim_end(), "INTERNAL_ERROR");
    assert!(["INTERNAL_ERROR", "OUT_OF_MEMORY"].contains(&other.line().trim_end()));
    assert!(other.line().starts_with("FOUND "));
    a.await_service();
    assert!((4..=5).contains(&jobs(&cluster, "moved")));
}

/// Two queues in two schemas of one database, with three daemons: each queue has one owner, and one has a standby, too.
#[test]
fn queues_of_one_database_have_names_and_owners_of_their_own() {
    let Some(cluster) = shared() else { return };
    let start = |name: &str| {
        let url = cluster.url(&format!("shard_{name}"));
        Daemon::start_with_jobs(&["--jobs-store", &url, "--jobs-name", name, "--http", "127.0.0.1:0"])
    };
    let mut owners = ["a", "b"].map(start);
    for (daemon, name) in owners.iter_mut().zip(["a", "b"]) {
        until(|| is_serving(daemon.jobs()), "each serves");
        assert_eq!(answer(daemon.jobs(), "put 0 0 60 1\r\nx"), "INSERTED 1");
        let owns = format!("the jobs in {name} (postgres://127.0.0.1:{}/postgres?schema=shard_{name})", cluster.port);
        let log = [daemon.lines.clone(), daemon.new_log()].concat();
        assert!(log.iter().any(|line| line.contains(&owns) && line.contains("are this daemon's now")), "{log:#?}");
    }
    let standby = start("a");
    let says = |daemon: &Daemon, name: &str| {
        let text = page(daemon, "/metrics").1;
        let start = format!("poolcounter_jobs_queue_owner{{queue=\"{name}\",store=");
        let line = text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{text}"));
        line.ends_with(" 1")
    };
    assert!(says(&owners[0], "a") && says(&owners[1], "b") && !says(&standby, "a"));
    until(|| page(&standby, "/status.json").1.contains("serves the jobs of a"), "its status names the queue");
}
