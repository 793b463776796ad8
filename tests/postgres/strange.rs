//! Tables in which operators have added constraints, or written numbers that no daemon writes.

use super::{Stage, answer, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::postgres::{Cluster, shared};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bound of the time of replies, far below that of replies that wait for a failing database.
const SOON: Duration = Duration::from_secs(3);

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

#[test]
fn row_that_a_constraint_forbids_is_refused_alone_and_at_once() {
    let Some(cluster) = shared() else { return };
    let constraints = "ALTER TABLE job ADD CONSTRAINT pri_is_low CHECK (pri < 4000), ADD CONSTRAINT buried_once CHECK (buries < 2); \
         CREATE TABLE known (name text PRIMARY KEY); INSERT INTO known VALUES ('default'); \
         ALTER TABLE job ADD CONSTRAINT tube_is_known FOREIGN KEY (tube) REFERENCES known DEFERRABLE INITIALLY DEFERRED";
    let mut stage = Stage::with(cluster, 1, |schema| _ = cluster.query(schema, constraints));
    let mut client = Client::to(stage.daemons[0].jobs());
    let begun = Instant::now();
    for n in 0..300 {
        let (pri, tube) = (if n % 50 == 7 { 4242 } else { 10 }, if n % 50 == 8 { "unknown" } else { "default" });
        client.send(format!("put-job {pri} 0 60 1 tube={tube} key=k{n}\r\nx\r\n").as_bytes());
    }
    let told = words(&mut client, 300);
    for (n, word) in told.iter().enumerate() {
        let is_fit = n % 50 != 7 && n % 50 != 8;
        assert_eq!(word, if is_fit { "INSERTED" } else { "INTERNAL_ERROR" }, "{n}: {told:?}");
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(count(cluster, &stage.schema, "pri = 10 AND tube = 'default'"), "288");
    stage.daemons[0].wait_for_log("pri_is_low");
    // The key of a refused job is free, and a change of a job is refused like a put.
    client.send(b"put-job 10 0 60 1 key=k7\r\nx\r\n");
    assert_eq!(words(&mut client, 1), ["INSERTED"]);
    let told = ["reserve-job 1", "bury 1 10", "kick-job 1", "reserve-job 1", "bury 1 10", "delete 2", "list-tube-used"]
        .map(|request| {
            client.send(format!("{request}\r\n").as_bytes());
            let word = words(&mut client, 1).remove(0);
            if word == "RESERVED" {
                line(&mut client);
            }
            word
        });
    assert_eq!(told, ["RESERVED", "BURIED", "KICKED", "RESERVED", "INTERNAL_ERROR", "DELETED", "USING"]);
    let log = stage.daemons[0].new_log();
    assert!(!log.iter().any(|line| line.contains("the jobs cannot be kept in")), "{log:#?}");
    stage.daemons[0].signal(Signal::SIGKILL);
    stage.daemons.clear();
    assert_eq!(count(cluster, &stage.schema, "true"), "288");
    assert_eq!(count(cluster, &stage.schema, "id = 1 AND buries = 1"), "1");
}

/// All puts are refused, more of them than the owner examines between two renewals.
#[test]
fn queue_that_takes_nothing_is_still_served() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::empty(cluster, |schema| {
        cluster.query(schema, "ALTER TABLE job ADD CHECK (octet_length(body) < 3)");
    });
    // The search for a thousand rows takes a while on a busy machine.
    stage.store_timeout = "120";
    stage.add();
    let mut client = Client::to(stage.daemons[0].jobs());
    let puts = "put 0 0 60 5\r\nlarge\r\n".repeat(1000);
    client.send(format!("{puts}put 0 0 60 1\r\nx\r\n").as_bytes());
    let told = words(&mut client, 1001);
    assert!(told[..1000].iter().all(|word| word == "INTERNAL_ERROR") && told[1000] == "INSERTED", "{:?}", &told[990..]);
    let log = stage.daemons[0].new_log();
    assert!(!log.iter().any(|line| line.contains("not this daemon's any more")), "{log:#?}");
    assert_eq!(count(cluster, &stage.schema, "true"), "1");
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
        let refused = Command::new(Daemon::program())
            .args(["-l", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", &url])
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(sentence), "{change}: {said}");
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
