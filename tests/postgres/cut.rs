//! An owner without a link to the database, while other daemons reach it.

use super::{Stage, answer, is_serving, page, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE};
use poolcounter_testkit::postgres::shared;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Returns whether a daemon is the owner by its metrics.
pub fn says_it_owns(daemon: &Daemon) -> bool {
    let text = page(daemon, "/metrics").1;
    let line = text.lines().find(|line| line.starts_with("poolcounter_jobs_store_owner")).expect("it is there");
    line.ends_with(" 1")
}

/// The health, the metrics and the replies of a daemon follow its lease, so that clients go to the owner.
#[test]
fn owner_that_is_cut_off_says_so_and_sends_clients_away() {
    let Some(cluster) = shared() else { return };
    let stage = Stage::new(cluster, 2);
    let [owner, other] = [&stage.daemons[0], &stage.daemons[1]];
    assert_eq!(answer(owner.jobs(), "put 0 0 60 1\r\nx"), "INSERTED 1");
    let mut holder = Client::to(owner.jobs());
    holder.send(b"reserve\r\n");
    assert_eq!((holder.line().trim_end(), holder.line().trim_end()), ("RESERVED 1 1", "x"));
    let mut waiter = Client::to(owner.jobs());
    waiter.send(b"reserve-with-timeout 60\r\n");
    assert!(says_it_owns(owner));
    let begun = Instant::now();
    stage.proxies[0].hold(true);
    // The end of its lease is its only sign.
    assert_eq!(waiter.line().trim_end(), "INTERNAL_ERROR");
    assert_eq!((waiter.rest(), holder.rest()), (String::new(), String::new()));
    assert!((4..7).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(!says_it_owns(owner));
    let (status, text) = page(owner, "/healthz");
    assert!(status.contains("503") && text.contains("the database does not answer"), "{text}");
    assert_eq!(answer(owner.jobs(), "reserve-with-timeout 9"), "INTERNAL_ERROR");
    assert_eq!(answer(owner.jobs(), "put 0 0 60 1\r\ny"), "INTERNAL_ERROR");
    until(|| is_serving(other.jobs()), "the other serves");
    assert!(says_it_owns(other));
    assert_eq!(answer(other.jobs(), "reserve-job 1"), "RESERVED 1 1");
    stage.proxies[0].hold(false);
    until(|| page(owner, "/healthz").1.contains("stand by"), "it stands by");
}

/// A daemon that waits for the database at its end serves nobody meanwhile.
#[test]
fn owner_that_is_cut_off_ends_soon() {
    let Some(cluster) = shared() else { return };
    // Beside a commit that is under way, the other services are served for 5 seconds first.
    for (request, most) in [("", 4), ("put 0 0 60 1\r\ny\r\n", 9)] {
        let mut stage = Stage::new(cluster, 1);
        stage.proxies[0].hold(true);
        let mut client = Client::to(stage.daemons[0].jobs());
        client.send(request.as_bytes());
        // A renewal is under way.
        thread::sleep(Duration::from_millis(1500));
        stage.daemons[0].signal(Signal::SIGTERM);
        let begun = Instant::now();
        assert!(stage.daemons[0].wait().success());
        let took = begun.elapsed();
        println!("{request:?}: it ended after {took:?}");
        assert!(took.as_secs() < most, "{request:?}: {took:?}");
        let log = stage.daemons[0].new_log();
        assert!(log.iter().any(|line| line.contains("the database was not told")), "{log:#?}");
    }
}

/// A runner with two servers goes on with the one that has taken over.
#[test]
fn runner_of_an_owner_that_is_cut_off_goes_on_at_the_next() {
    run_at_two(|stage| stage.proxies[0].hold(true));
}

/// The owner of the runner is alive when it has lost the queue, and answers the waiting reserve.
#[test]
fn runner_of_an_owner_that_was_stopped_goes_on_at_the_next() {
    run_at_two(|stage| {
        stage.daemons[0].signal(Signal::SIGSTOP);
        until(|| is_serving(stage.daemons[1].jobs()), "the other serves");
        stage.daemons[0].signal(Signal::SIGCONT);
    });
}

/// Runs a runner that waits at the first of two daemons while `happen` takes the queue from it. Each of them has a job
/// for it.
fn run_at_two(happen: impl Fn(&Stage<'_>)) {
    let Some(cluster) = shared() else { return };
    let stage = Stage::new(cluster, 2);
    let [one, two] = [0, 1].map(|n| stage.daemons[n].jobs().to_string());
    let mut command = Command::new(Daemon::program());
    command.args(["jobs", "run", "-s", &one, "-s", &two, "*", "--", "cat"]).stderr(Stdio::piped());
    let mut runner = command.spawn().expect("it runs");
    let output = BufReader::new(runner.stderr.take().expect("it is piped"));
    let (sender, lines) = channel();
    thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    for daemon in [0, 1] {
        until(|| answer(stage.daemons[daemon].jobs(), "put 0 0 60 1\r\nx").starts_with("INSERTED"), "it serves");
        let done = format!("job {} of default: done", daemon + 1);
        while !lines.recv_timeout(PATIENCE).expect("the runner goes on").contains(&done) {}
        if daemon == 0 {
            happen(&stage);
        }
    }
    stage.proxies[0].hold(false);
    runner.kill().expect("it runs");
    runner.wait().expect("it has ended");
}

/// Without a take-over the state is unchanged, and is not read again.
#[test]
fn owner_that_was_cut_off_alone_goes_on_with_what_it_has() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    let address = stage.daemons[0].jobs();
    assert_eq!(answer(address, "put 0 0 60 1\r\nx"), "INSERTED 1");
    let mut holder = Client::to(address);
    holder.send(b"reserve\r\n");
    assert_eq!(holder.line().trim_end(), "RESERVED 1 1");
    stage.daemons[0].new_log();
    stage.proxies[0].hold(true);
    until(|| answer(address, "peek 1") == "INTERNAL_ERROR", "the lease has run out");
    assert!(!says_it_owns(&stage.daemons[0]));
    thread::sleep(Duration::from_secs(1));
    stage.proxies[0].hold(false);
    until(|| is_serving(address), "it serves again");
    assert!(says_it_owns(&stage.daemons[0]) && page(&stage.daemons[0], "/healthz").0.contains("200"));
    // The reservation has ended with its connection.
    assert_eq!(answer(address, "reserve-with-timeout 0"), "RESERVED 1 1");
    let log = stage.daemons[0].new_log();
    assert!(!log.iter().any(|line| line.contains("were read")), "{log:#?}");
}

/// A link that is slower than its traffic costs time, and no promise.
#[test]
fn link_that_is_slow_costs_nothing_but_time() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    stage.play(|stage| {
        stage.proxies[0].limit(40_000);
        thread::sleep(Duration::from_secs(3));
        stage.proxies[0].limit(0);
    });
}
