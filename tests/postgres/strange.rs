//! Tables in which operators have added constraints, or written numbers that no daemon writes.

use super::{Stage, answer, is_serving, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::postgres::{Cluster, shared};
use poolcounter_testkit::running::refusal_of_store;

fn line(client: &mut Client) -> String {
    client.line().trim_end().to_string()
}

/// Returns the first words of the next `count` replies.
fn words(client: &mut Client, count: usize) -> Vec<String> {
    (0..count).map(|_| line(client).split(' ').next().unwrap_or_default().to_string()).collect()
}

fn count(cluster: &Cluster, schema: &str, what: &str) -> String {
    cluster.query(schema, &format!("SELECT count(*) FROM job WHERE {what}")).remove(0)
}

/// The log names the constraint, and everything waits for its end.
#[test]
fn constraint_of_others_holds_up_commits_and_loses_nothing() {
    let Some(cluster) = shared() else { return };
    let constraint = "ALTER TABLE job ADD CONSTRAINT pri_is_low CHECK (pri < 4000)";
    let mut stage = Stage::with(cluster, 1, |schema| _ = cluster.query(schema, constraint));
    let mut client = Client::to(stage.daemons[0].jobs());
    client.send(b"put 10 0 60 1\r\na\r\n");
    assert_eq!(words(&mut client, 1), ["INSERTED"]);
    client.send(b"put 4242 0 60 1\r\nb\r\nput 10 0 60 1\r\nc\r\n");
    stage.daemons[0].wait_for_log("pri_is_low");
    until(|| answer(stage.daemons[0].jobs(), "put 10 0 60 1\r\nd") == "OUT_OF_MEMORY", "puts are refused");
    assert_eq!(count(cluster, &stage.schema, "true"), "1");
    cluster.query(&stage.schema, "ALTER TABLE job DROP CONSTRAINT pri_is_low");
    let told = words(&mut client, 2);
    let later = told.iter().filter(|word| *word == "INSERTED").count();
    assert!(told[0] == "INSERTED" && ["INSERTED", "OUT_OF_MEMORY"].contains(&&*told[1]), "{told:?}");
    assert_eq!(count(cluster, &stage.schema, "true"), (1 + later).to_string());
}

/// Statements that write an invalid number, each with the line of the log about it.
const NUMBERS: &[(&str, &str)] = &[
    ("UPDATE owner SET epoch = -2", "the epoch of the owner makes no sense: it is -"),
    ("UPDATE owner SET batch = -1", "the batch of the owner makes no sense: it is -1"),
    (
        "UPDATE owner SET next_id = -9223372036854775808",
        "the next_id of the owner makes no sense: it is -9223372036854775808",
    ),
    ("UPDATE owner SET attempt = -1", "the attempt of the owner makes no sense: it is -1"),
    ("UPDATE meta SET format = -9223372036854775808", "its format is -9223372036854775808, and this program knows 1"),
];

#[test]
fn number_that_no_daemon_writes_is_refused_with_a_sentence() {
    let Some(cluster) = shared() else { return };
    for (number, (change, sentence)) in NUMBERS.iter().enumerate() {
        let schema = format!("strange_{number}");
        let url = cluster.url(&schema);
        cluster.query(&schema, change);
        let said = refusal_of_store(&url, &[]);
        assert!(said.contains(sentence), "{change}: {said}");
    }
}

#[test]
fn number_of_a_job_that_no_daemon_writes_is_refused_with_a_sentence() {
    let Some(cluster) = shared() else { return };
    let job = |id: i64| {
        format!("INSERT INTO job (id, tube, pri, delay, ttr, created, body) VALUES ({id}, 'x', 0, 0, 9, 0, 'x')")
    };
    for (schema, id, sentence) in [
        ("strange_low", -5, "the number of a job makes no sense: it is -5"),
        ("strange_high", i64::MAX, "job 9223372036854775807: "),
    ] {
        let url = cluster.url(schema);
        cluster.query(schema, &job(id));
        let mut daemon = Daemon::start_with_jobs(&["--jobs-store", &url]);
        daemon.wait_for_log(sentence);
        // The daemon reads again and again. A connection that is open when a reading fails may be closed in silence.
        until(|| answer(daemon.jobs(), "list-tube-used") == "INTERNAL_ERROR", "it is refused");
    }
    // Other numbers have their largest valid values.
    let url = cluster.url("strange_large");
    cluster.query("strange_large", &job(7));
    cluster.query("strange_large", "UPDATE job SET pri = -1, delay = 9223372036854775807, ttr = -9223372036854775808, created = 9223372036854775807, \
         delayed_until = -9223372036854775808, reserves = -1, timeouts = 9223372036854775807, root_timestamp = -1, root = 'S'");
    let daemon = Daemon::start_with_jobs(&["--jobs-store", &url]);
    until(|| answer(daemon.jobs(), "put 0 0 9 1\r\nx").starts_with("INSERTED"), "the daemon serves");
    assert!(answer(daemon.jobs(), "stats-job 7").starts_with("OK "));
}

/// A tube may have the name of the mark that a copy leaves until it is complete.
#[test]
fn root_job_in_a_tube_named_as_a_mark_is_read() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    let put = "put-job 0 0 60 1 tube=unfinished-copy root=s root-ts=7\r\nx";
    assert!(answer(stage.daemons[0].jobs(), put).starts_with("INSERTED"));
    stage.daemons[0].signal(Signal::SIGKILL);
    stage.daemons.clear();
    let daemon = stage.start(0, "127.0.0.1:0");
    until(|| is_serving(daemon.jobs()), "the jobs are read");
    assert!(answer(daemon.jobs(), "peek 1").starts_with("FOUND 1 1"));
}
