//! Promises of a commit: each is kept on the replica that would take the server's place, and on the server's disk.

use super::{Stage, answer, page, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::Client;
use poolcounter_testkit::postgres::{Cluster, own, shared};
use std::io::Read;
use std::thread;
use std::time::Duration;

/// A wait for the replica that ends too early makes a commit visible; nothing may be told of it for so long.
const SILENCE: Duration = Duration::from_secs(2);
/// Puts, one after the other, so that the last commits are in the server's memory alone if it does not sync.
const PUTS: u64 = 200;

/// A server, and the replica for which its commits wait.
fn pair() -> Option<(Cluster, Cluster)> {
    let cluster = own(&["synchronous_standby_names=*", "wal_level=replica"])?;
    let replica = Cluster::replica(&cluster, &[]);
    let is_sync = || cluster.query("postgres", "SELECT sync_state FROM pg_stat_replication") == ["sync"];
    until(is_sync, "the replica follows");
    Some((cluster, replica))
}

/// Stops what receives for a replica, or has it go on.
fn signal_receiver(replica: &Cluster, signal: Signal) {
    let pid = replica.query("postgres", "SELECT pid FROM pg_stat_wal_receiver");
    let pid = pid.first().and_then(|pid| pid.parse().ok()).expect("it follows");
    kill(Pid::from_raw(pid), signal).expect("it is there");
}

/// Waits until the daemon waits for the replica. If it is with a batch, ends that by a function of the server and returns true.
fn interrupt(cluster: &Cluster, function: &str) -> bool {
    let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'poolcounter'";
    let ask = |what: &str| cluster.query("postgres", &format!("SELECT {what} {waits}"));
    until(|| !ask("pid").is_empty(), "something waits for the replica");
    ask("query") == ["COMMIT"] && ask(&format!("{function}(pid)")) == ["t"]
}

fn put(client: &mut Client, body: &str) {
    client.send(format!("put 0 0 60 {}\r\n{body}\r\n", body.len()).as_bytes());
}

/// Puts jobs until one waits for the replica, ends that wait, and checks that nothing is told. Returns how many are told of.
fn put_unreplicated(cluster: &Cluster, replica: &Cluster, client: &mut Client, function: &str) -> usize {
    let mut told = 0;
    loop {
        // It has said just now that it is alive, and does not do so before the next put.
        put(client, "in time");
        assert!(client.line().starts_with("INSERTED"));
        signal_receiver(replica, Signal::SIGSTOP);
        put(client, "late");
        told += 1;
        if interrupt(cluster, function) {
            break;
        }
        signal_receiver(replica, Signal::SIGCONT);
        assert!(client.line().starts_with("INSERTED"));
        told += 1;
    }
    client.stream().set_read_timeout(Some(SILENCE)).expect("an option");
    let mut bytes = [0; 64];
    let heard = client.stream().read(&mut bytes);
    assert!(heard.is_err(), "{function}: {} is told before the replica has it", String::from_utf8_lossy(&bytes));
    client.stream().set_read_timeout(Some(super::LONGEST)).expect("an option");
    told
}

#[test]
fn commit_that_is_only_visible_is_told_once_the_replica_has_it() {
    let Some((cluster, replica)) = pair() else { return };
    // Warnings must be heard by the daemon whatever the role has.
    cluster.query("postgres", "ALTER ROLE postgres SET client_min_messages = error");
    let mut stage = Stage::new(&cluster, 1);
    let mut client = Client::to(stage.daemons[0].jobs());
    let mut told = 0;
    for function in ["pg_terminate_backend", "pg_cancel_backend"] {
        told += put_unreplicated(&cluster, &replica, &mut client, function);
        signal_receiver(&replica, Signal::SIGCONT);
        assert!(client.line().starts_with("INSERTED"), "{function}");
        told += 1;
    }
    told += put_unreplicated(&cluster, &replica, &mut client, "pg_terminate_backend");
    // Nobody is there any more who could write it again.
    stage.daemons.clear();
    cluster.kill();
    // The last job may be on its way to the replica.
    signal_receiver(&replica, Signal::SIGCONT);
    replica.query("postgres", "SELECT pg_promote(true)");
    let kept = format!("SELECT count(*) FROM job WHERE id <= {told}");
    assert_eq!(replica.query(&stage.schema, &kept), [told.to_string()]);
}

#[test]
fn commits_wait_for_the_disk_whatever_the_server_is_told_meanwhile() {
    for setting in ["off", "local"] {
        let Some(cluster) = own(&["wal_writer_delay=10s"]) else { return };
        let mut stage = Stage::new(&cluster, 1);
        cluster.query("postgres", &format!("ALTER SYSTEM SET synchronous_commit = {setting}"));
        cluster.query("postgres", "SELECT pg_reload_conf()");
        until(|| cluster.query("postgres", "SHOW synchronous_commit") == [setting], "it is read");
        // The session of the daemon has its signal as well.
        thread::sleep(Duration::from_millis(300));
        let mut client = Client::to(stage.daemons[0].jobs());
        for id in 1..=PUTS {
            put(&mut client, "x");
            assert_eq!(client.line().trim_end(), format!("INSERTED {id}"));
        }
        stage.daemons[0].signal(Signal::SIGKILL);
        cluster.kill();
        cluster.run();
        assert_eq!(cluster.query(&stage.schema, "SELECT count(*) FROM job"), [PUTS.to_string()], "{setting}");
        stage.daemons.clear();
    }
}

#[test]
fn log_says_once_that_the_health_check_succeeds_again() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 2);
    until(|| page(&stage.daemons[1], "/healthz").0.contains("503"), "it stands by");
    stage.daemons[1].wait_for_log("the health check fails: the jobs stand by");
    drop(stage.daemons.remove(0));
    until(|| page(&stage.daemons[0], "/healthz").0.contains("200"), "it serves");
    stage.daemons[0].wait_for_log("the health check succeeds again");
    thread::sleep(Duration::from_secs(2));
    assert!(page(&stage.daemons[0], "/healthz").0.contains("200"));
    let log = stage.daemons[0].new_log();
    assert!(!log.iter().any(|line| line.contains("health check")), "{log:#?}");
}

#[test]
fn log_says_once_that_the_database_works_again() {
    let Some(cluster) = own(&["fsync=off"]) else { return };
    let mut stage = Stage::new(&cluster, 1);
    cluster.kill();
    thread::sleep(Duration::from_secs(3));
    let during = stage.daemons[0].new_log();
    assert!(during.iter().any(|line| line.contains("the jobs cannot be kept in")), "{during:#?}");
    cluster.run();
    until(|| answer(stage.daemons[0].jobs(), "put 0 0 9 1\r\nx").starts_with("INSERTED"), "it goes on");
    thread::sleep(Duration::from_secs(2));
    let log = stage.daemons[0].new_log();
    let all = || during.iter().chain(&log);
    assert_eq!(all().filter(|line| line.contains("the database works again")).count(), 1, "{log:#?}");
    assert!(!all().any(|line| line.contains("not this daemon's any more")), "{log:#?}");
}
