//! Cases that take long: take-overs, also of many jobs, and commits that last longer than the lease of a silent owner.

use super::crowd::Heard;
use super::proxy::Fate;
use super::{Stage, is_serving, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::postgres::{Cluster, own, shared};
use std::thread;
use std::time::{Duration, Instant};

const MILLION: u64 = 1_000_000;

#[test]
fn a_standby_takes_over_from_an_owner_that_was_killed() {
    let Some(cluster) = shared() else { return };
    let gap = take_over(&mut Stage::new(cluster, 2)).longest_gap();
    println!("{:.2} s without a promise", gap.as_secs_f64());
    assert!(gap > Duration::from_secs(3), "the lease was not waited for");
}

/// The standby reads all jobs before it serves.
#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn a_standby_takes_a_million_jobs_over() {
    let Some(cluster) = own(&[]) else { return };
    let mut stage = Stage::with(&cluster, 2, |schema| put_a_million(&cluster, schema));
    let gap = take_over(&mut stage).longest_gap();
    println!("{:.2} s without a promise, with a million jobs", gap.as_secs_f64());
    assert!(gap < Duration::from_secs(60), "that is too long on any machine");
    assert_eq!(cluster.query(&stage.schema, "SELECT count(*) FROM job WHERE pri = 9"), [MILLION.to_string()]);
}

/// Kills the daemon that serves, and returns the replies until another has served for a while. The longest time without
/// a promise is from the last reply of the first daemon to the first reply of the second.
fn take_over(stage: &mut Stage<'_>) -> Heard {
    stage.play(|stage| {
        stage.daemons[0].signal(Signal::SIGKILL);
        let others = stage.daemons[1].jobs();
        until(|| is_serving(others), "the standby serves");
    })
}

/// Puts jobs of 300 bytes with a priority of their own, in rows like those of a daemon.
fn put_a_million(cluster: &Cluster, schema: &str) {
    cluster.query(
        schema,
        &format!(
            "INSERT INTO job (id, tube, pri, delay, ttr, created, body) \
             SELECT id, 'wiki' || id % 1000 || '/refreshLinks', 9, 0, 60, 0, convert_to(repeat('x', 300), 'UTF8') \
             FROM generate_series(1, {MILLION}) AS id; UPDATE owner SET next_id = {MILLION} + 1"
        ),
    );
}

/// Commits that take longer than the lease: no job is given out meanwhile, and other requests do not wait.
#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn commits_that_take_long_slow_nothing_else_down() {
    commits_take(Duration::from_secs(8), Duration::from_secs(20));
}

/// Commits that also take longer than the timeout of an answer.
#[test]
#[ignore = "it takes two minutes: make test-postgres"]
fn commits_of_half_a_minute_slow_nothing_else_down() {
    commits_take(Duration::from_secs(30), Duration::from_secs(100));
}

fn commits_take(delay: Duration, time: Duration) {
    let Some(cluster) = own(&[]) else { return };
    let mut stage = Stage::new(&cluster, 1);
    stage.play(|stage| {
        let before = stage.daemons[0].memory();
        stage.proxies[0].set(Some(Fate::Delays(delay)));
        let mut pools = stage.daemons[0].connect();
        let deadline = Instant::now() + time;
        let (mut slowest, mut most) = (Duration::ZERO, 0);
        while Instant::now() < deadline {
            let begun = Instant::now();
            assert_eq!(pools.ask("ACQ4ME k 1 1 1"), "LOCKED");
            assert_eq!(pools.ask("RELEASE"), "RELEASED");
            slowest = slowest.max(begun.elapsed());
            most = most.max(stage.daemons[0].memory());
            thread::sleep(Duration::from_millis(5));
        }
        println!("{} commits took {} s", stage.proxies[0].met(), delay.as_secs());
        stage.proxies[0].set(None);
        println!("the slowest lock took {} ms, memory grew by {} KiB", slowest.as_millis(), (most - before) / 1024);
        assert!(slowest < Duration::from_secs(1), "locks wait for commits");
        assert!(most < before + (64 << 20), "memory grows");
    });
}
