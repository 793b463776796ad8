//! Links that are slow and long: what is sent takes longer than a lease, and each round trip a part of it.

use super::proxy::{Fate, Proxy};
use super::slow::takeovers;
use super::{LONGEST, Stage, answer, is_serving, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::postgres::{Cluster, shared};
use std::thread;
use std::time::Duration;

/// Bytes a second of a link, and the time of its bytes in each direction.
const RATE: u64 = 120_000;
const DELAY: Duration = Duration::from_millis(100);
/// Bytes of a job.
const LARGE: usize = 60_000;

/// Starts an owner and a standby, whose clients wait for longer than the commits take.
fn patient<'a>(cluster: &'a Cluster, prepare: impl FnOnce(&str)) -> Stage<'a> {
    let mut stage = Stage::with(cluster, 0, prepare);
    for _ in 0..2 {
        let proxy = Proxy::to(cluster.port);
        let url = cluster.url_at(&stage.schema, proxy.port);
        stage.proxies.push(proxy);
        stage.daemons.push(Daemon::start_with_jobs(&["--jobs-store", &url, "--jobs-store-timeout", "120"]));
        until(|| is_serving(stage.daemons[0].jobs()), "the first daemon serves");
    }
    stage
}

/// Makes the link of the owner slow and long.
fn slow_down(stage: &Stage<'_>) {
    stage.proxies[0].limit(RATE);
    stage.proxies[0].delay(DELAY);
}

/// Puts large jobs with these priorities, and returns the first word of each reply.
fn put(stage: &Stage<'_>, pris: &[u32]) -> Vec<String> {
    let mut client = Client::to(stage.daemons[0].jobs());
    client.stream().set_read_timeout(Some(LONGEST * 2)).expect("an option");
    let body = "x".repeat(LARGE);
    let puts: Vec<String> = pris.iter().map(|pri| format!("put {pri} 0 60 {LARGE}\r\n{body}\r\n")).collect();
    client.send(puts.concat().as_bytes());
    pris.iter().map(|_| client.line().split(' ').next().unwrap_or_default().trim_end().to_string()).collect()
}

fn count(stage: &Stage<'_>) -> String {
    stage.cluster.query(&stage.schema, "SELECT count(*) FROM job").remove(0)
}

/// Each renewal makes the next one due at once. The owner commits all the same, and another reads the jobs.
#[test]
fn renewals_that_take_long_leave_time_for_commits_and_pages() {
    let Some(cluster) = shared() else { return };
    let stage = Stage::new(cluster, 2);
    stage.proxies.iter().for_each(|proxy| proxy.set(Some(Fate::DelaysRenewals(Duration::from_millis(1300)))));
    thread::sleep(Duration::from_secs(3));
    let [owner, other] = [0, 1].map(|daemon: usize| stage.daemons[daemon].jobs());
    until(|| answer(owner, "put 0 0 60 1\r\nx").starts_with("INSERTED"), "a job is committed");
    stage.daemons[0].signal(Signal::SIGKILL);
    until(|| answer(other, "peek-ready").starts_with("FOUND"), "the standby has read the job");
}

/// A batch takes longer than the lease and the time limit of an answer.
#[test]
#[ignore = "it takes a minute: make test-postgres"]
fn batch_by_a_long_link_does_not_cost_the_queue() {
    let Some(cluster) = shared() else { return };
    let stage = patient(cluster, |_| {});
    slow_down(&stage);
    let before = takeovers(cluster, &stage.schema);
    assert_eq!(put(&stage, &[9; 35]), ["INSERTED"; 35]);
    assert_eq!(takeovers(cluster, &stage.schema), before);
    assert_eq!(count(&stage), "35");
}

/// A part of the jobs takes longer than a transaction may be idle.
#[test]
#[ignore = "it takes a minute: make test-postgres"]
fn everything_is_written_anew_by_a_slow_link() {
    let Some(cluster) = shared() else { return };
    let mut stage = patient(cluster, |_| {});
    assert_eq!(put(&stage, &[9; 50]), ["INSERTED"; 50]);
    let before = takeovers(cluster, &stage.schema);
    slow_down(&stage);
    // The database has lost a commit, and a job.
    cluster.query(&stage.schema, "UPDATE owner SET batch = batch - 1; DELETE FROM job WHERE id = 7");
    assert_eq!(put(&stage, &[9]), ["INSERTED"]);
    stage.daemons[0].wait_for_log("all jobs are written anew");
    assert_eq!(count(&stage), "51");
    assert_eq!(takeovers(cluster, &stage.schema), before);
}

/// A standby at a long link reads what an owner that is near has committed.
#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn standby_that_is_far_away_takes_over() {
    let Some(cluster) = shared() else { return };
    let stage = Stage::new(cluster, 2);
    stage.proxies[1].delay(DELAY);
    let mut client = Client::to(stage.daemons[0].jobs());
    let puts = "put 9 0 60 1\r\nx\r\n".repeat(1000);
    for _ in 0..10 {
        client.send(puts.as_bytes());
        (0..1000).for_each(|_| assert!(client.line().starts_with("INSERTED")));
    }
    stage.daemons[0].signal(Signal::SIGKILL);
    let other = stage.daemons[1].jobs();
    until(|| is_serving(other), "the standby serves");
    assert!(answer(other, "peek 1").starts_with("FOUND") && answer(other, "peek 10000").starts_with("FOUND"));
}
