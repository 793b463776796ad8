//! Durability of promised commits: each is on the replica that would take the server's place, and on the server's disk.

use super::{Stage, answer, is_serving, page, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::postgres::{Cluster, own, shared};
use std::io::Read;
use std::thread;
use std::time::Duration;

/// Time for which no reply may come after an interrupted wait for the replica: the commit is visible, but not
/// replicated.
const SILENCE: Duration = Duration::from_secs(2);
/// Number of puts, one after the other, so that the last commits are only in the server's memory if it does not sync.
const PUTS: u64 = 200;

/// A server, and a replica, for which its commits wait if it has one of these names (`*` for all).
pub fn pair(names: &str) -> Option<(Cluster, Cluster)> {
    let cluster = own(&[&format!("synchronous_standby_names={names}"), "wal_level=replica"])?;
    let replica = Cluster::replica(&cluster, &[]);
    let state = if names.is_empty() { "async" } else { "sync" };
    let follows = || cluster.query("postgres", "SELECT sync_state FROM pg_stat_replication") == [state];
    until(follows, "the replica follows");
    Some((cluster, replica))
}

/// Sends a signal to the process that receives changes for a replica.
pub fn signal_receiver(replica: &Cluster, signal: Signal) {
    let pid = replica.query("postgres", "SELECT pid FROM pg_stat_wal_receiver");
    let pid = pid.first().and_then(|pid| pid.parse().ok()).expect("it follows");
    kill(Pid::from_raw(pid), signal).expect("it is there");
}

/// Waits until the daemon waits for the replica. If it waits for a batch, ends that wait by a function of the server
/// and returns true.
fn interrupt(cluster: &Cluster, function: &str) -> bool {
    let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'poolcounter'";
    let ask = |what: &str| cluster.query("postgres", &format!("SELECT {what} {waits}"));
    until(|| !ask("pid").is_empty(), "something waits for the replica");
    ask("query = 'COMMIT' OR query LIKE 'WITH done AS %'") == ["t"] && ask(&format!("{function}(pid)")) == ["t"]
}

fn put(client: &mut Client, body: &str) {
    client.send(format!("put 0 0 60 {}\r\n{body}\r\n", body.len()).as_bytes());
}

/// Puts jobs until the commit of one waits for the replica, ends that wait, and checks that no reply comes. Returns the
/// number of puts.
fn put_unreplicated(cluster: &Cluster, replica: &Cluster, client: &mut Client, function: &str) -> usize {
    let mut told = 0;
    loop {
        // A reply now means that the lease was just renewed: no renewal comes before the next put.
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
fn commit_is_replied_once_the_replica_has_it() {
    let Some((cluster, replica)) = pair("*") else { return };
    // The daemon must get warnings whatever the settings of its role.
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
    // No daemon is left that could write the job again.
    stage.daemons.clear();
    cluster.kill();
    // The last job may be on its way to the replica.
    signal_receiver(&replica, Signal::SIGCONT);
    replica.promote();
    let kept = format!("SELECT count(*) FROM job WHERE id <= {told}");
    assert_eq!(replica.query(&stage.schema, &kept), [told.to_string()]);
}

#[test]
fn commits_wait_for_the_disk_whatever_the_database_is_set_to() {
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

/// Sessions of these roles begin in another isolation level, in which a renewal beside a batch would be a conflict.
#[test]
fn batches_are_read_committed_whatever_a_role_has_set() {
    let Some(cluster) = shared() else { return };
    for level in ["repeatable read", "serializable"] {
        let name = format!("of_{}", level.replace(' ', "_"));
        let url = cluster.url(&name).replace("//postgres@", &format!("//{name}@"));
        cluster.query(
            &name,
            &format!(
                "CREATE ROLE {name} LOGIN SUPERUSER; ALTER ROLE {name} SET default_transaction_isolation = '{level}'; \
                 CREATE TABLE levels (level text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 INSERT INTO levels VALUES (TG_TABLE_NAME || ' ' || current_setting('transaction_isolation')); RETURN NULL; \
                 END $$; CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON job FOR EACH STATEMENT EXECUTE FUNCTION note(); \
                 CREATE TRIGGER note AFTER UPDATE ON owner FOR EACH STATEMENT EXECUTE FUNCTION note()"
            ),
        );
        let daemon = Daemon::start_with_jobs(&["--jobs-store", &url]);
        until(|| is_serving(daemon.jobs()), "the daemon serves");
        let told = ["put 0 0 60 1\r\nx", "reserve-job 1", "delete 1"].map(|request| answer(daemon.jobs(), request));
        assert_eq!(told, ["INSERTED 1", "RESERVED 1 1", "DELETED"]);
        let levels = |table: &str| {
            cluster.query(&name, &format!("SELECT DISTINCT level FROM levels WHERE level LIKE '{table} %' ORDER BY 1"))
        };
        assert_eq!(levels("job"), ["job read committed"]);
        assert_eq!(levels("owner"), ["owner read committed"]);
        let of_role = "SELECT setconfig[1] FROM pg_db_role_setting JOIN pg_roles ON setrole = oid WHERE rolname";
        let set = cluster.query(&name, &format!("{of_role} = '{name}'"));
        assert_eq!(set, [format!("default_transaction_isolation={level}")]);
    }
}

/// A reply that a take-over cuts in the middle of its body ends with the connection, and nothing follows the cut.
#[test]
fn body_that_a_take_over_cuts_is_followed_by_nothing() {
    let Some(cluster) = shared() else { return };
    let url = cluster.url("torn");
    let mut daemon = Daemon::start_with_jobs(&["--jobs-store", &url, "--jobs-max-size", "1000000"]);
    until(|| is_serving(daemon.jobs()), "the daemon serves");
    let body = "x".repeat(300_000);
    let mut client = Client::to(daemon.jobs());
    client.send(format!("put 0 0 60 {}\r\n{body}\r\n", body.len()).as_bytes());
    assert_eq!(client.line().trim_end(), "INSERTED 1");
    // The replies are longer than the buffers of both ends.
    client.send("peek 1\r\n".repeat(100).as_bytes());
    thread::sleep(Duration::from_millis(500));
    let taken = "UPDATE owner SET epoch = epoch + 1, address = 'another', until = clock_timestamp() + interval '60 s'";
    cluster.query("torn", taken);
    daemon.wait_for_log("not this daemon's any more");
    let text = client.rest();
    let reply = format!("FOUND 1 {}\r\n{body}\r\n", body.len());
    let mut rest = &text[..];
    while let Some(next) = rest.strip_prefix(&reply) {
        rest = next;
    }
    assert!(text.len() < 100 * reply.len(), "nothing was cut");
    assert!(reply.starts_with(rest), "the end is {:?}", &rest[rest.len().saturating_sub(40)..]);
}

/// A standby keeps no jobs: an unreachable database is a warning, which names the lost protection.
#[test]
fn standby_that_does_not_reach_the_database_warns() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 2);
    let is_told = |daemon: &mut Daemon| {
        let new = daemon.new_log();
        daemon.lines.extend(new);
        daemon.lines.iter().any(|line| line.contains("this daemon stands by"))
    };
    until(|| is_told(&mut stage.daemons[1]), "it stands by");
    stage.proxies[1].turn_to(1);
    let line = stage.daemons[1].wait_for_log("the standby does not reach");
    assert!(line.contains("it could not take over from"), "{line}");
    assert!(!stage.daemons[1].new_log().iter().any(|line| line.contains("cannot be kept")));
}

/// A batch that waits for the lock on the owner's row goes on with the changed row: that of a renewal, or of a
/// take-over.
#[test]
fn batches_see_the_row_of_a_renewal_or_take_over_for_which_they_have_waited() {
    let Some(cluster) = shared() else { return };
    let url = cluster.url("beside");
    let mut daemon = Daemon::start_with_jobs(&["--jobs-store", &url]);
    until(|| is_serving(daemon.jobs()), "the daemon serves");
    let change = |set: &str| format!("BEGIN; UPDATE owner SET {set}; SELECT pg_sleep(1.5); COMMIT");
    thread::scope(|scope| {
        scope.spawn(|| cluster.query("beside", &change("until = clock_timestamp() + interval '5 s'")));
        thread::sleep(Duration::from_millis(500));
        assert_eq!(answer(daemon.jobs(), "put 0 0 60 1\r\nx"), "INSERTED 1");
        assert_eq!(answer(daemon.jobs(), "delete 1"), "DELETED");
    });
    thread::scope(|scope| {
        let taken = change("epoch = epoch + 1, address = 'another', until = clock_timestamp() + interval '60 s'");
        scope.spawn(move || cluster.query("beside", &taken));
        thread::sleep(Duration::from_millis(500));
        let mut client = Client::to(daemon.jobs());
        client.send(b"put 0 0 60 1\r\ny\r\n");
        daemon.wait_for_log("not this daemon's any more");
        assert!(!client.rest().contains("INSERTED"));
    });
    assert_eq!(cluster.query("beside", "SELECT count(*) FROM job"), ["0"]);
}
