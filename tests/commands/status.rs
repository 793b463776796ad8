//! `status`: its output, and its exit statuses.

use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE};
use poolcounter_testkit::running::{Ended, run};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

fn status(daemon: &Daemon, options: &[&str]) -> Ended {
    run(&[&["status", "-s", &daemon.address.to_string()], options].concat())
}

/// Waits until the command exits with this status, and returns what it prints.
fn wait_for(daemon: &Daemon, code: i32) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let Ended { status, stdout, .. } = status(daemon, &[]);
        if status == Some(code) {
            return stdout;
        }
        assert!(Instant::now() < deadline, "status {code} never comes: {stdout}");
        // The health is checked once a second, when something happens.
        thread::sleep(Duration::from_millis(200));
    }
}

/// Shells take brackets for a pattern of files.
#[test]
fn a_remedy_quotes_the_address_of_a_client() {
    let limits = ["--warn-hold", "0.2", "--status-after", "0.1"];
    let daemon = Daemon::run(Command::new(Daemon::program()).args(["-l", "[::1]:0"]).args(limits));
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME backup 1 9 9"), "LOCKED");
    let text = wait_for(&daemon, 1);
    let own = holder.stream().local_addr().expect("is connected");
    assert!(text.contains(&format!("\n    poolcounter admin RELEASE-LOCK backup '{own}'\n")), "{text}");
}

#[test]
fn the_exit_status_is_that_of_the_worst_condition() {
    let times = ["--warn-hold", "0.5", "--status-after", "0.1", "--status-over", "0.1"];
    let mut daemon = Daemon::start_with_members(&times);
    let text = wait_for(&daemon, 0);
    assert!(text.starts_with("OK: nothing is wrong | critical=0 warning=0\nok  Locks"), "{text}");
    assert!(text.contains("ok  Members") && text.contains("ok  Daemon") && !text.contains("Jobs"), "{text}");
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME backup 1 9 9 who=db1"), "LOCKED");
    let text = wait_for(&daemon, 1);
    assert!(text.starts_with("WARNING: Locks: backup: db1 at 127.0.0.1:"), "{text}");
    let mut waiter = daemon.connect();
    waiter.send(b"ACQ4ME backup 1 9 60\n");
    let text = wait_for(&daemon, 2);
    assert!(text.starts_with("CRITICAL: Locks: backup: db1 at "), "{text}");
    assert!(text.contains("\n    poolcounter admin RELEASE-LOCK backup 127.0.0.1:"), "{text}");
    daemon.wait_for_log("locks: backup: db1 at ");
    let json: serde_json::Value = serde_json::from_str(&status(&daemon, &["--json"]).stdout).expect("is JSON");
    let locks = &json[0]["health"][0];
    assert_eq!((&locks["title"], &locks["level"]), (&"Locks".into(), &"critical".into()), "{json}");
    assert_eq!(locks["conditions"][0]["link"], "/pools/key/backup");
    let [.., command] = [&locks["conditions"][0]["name"], &locks["conditions"][0]["command"]];
    assert!(command.as_str().is_some_and(|it| it.starts_with("admin RELEASE-LOCK backup 127.0.0.1:")), "{json}");
    drop((holder, waiter));
    let text = wait_for(&daemon, 0);
    assert!(text.contains("ok  Locks"), "{text}");
    daemon.wait_for_log("locks: over after ");
}

#[test]
fn an_ended_condition_is_told_in_the_past() {
    let daemon = Daemon::start(&["--warn-hold", "0.5", "--status-after", "0.1"]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME backup 1 9 9 who=db1"), "LOCKED");
    assert!(wait_for(&daemon, 1).contains("admin RELEASE-LOCK backup "));
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    let text = wait_for(&daemon, 0);
    assert!(text.starts_with("OK: nothing is wrong | critical=0 warning=0\n"), "{text}");
    let told = text.lines().find(|line| line.starts_with("over  Locks")).expect("it is told");
    assert!(told.contains("not now; was: backup: db1 at ") && told.ends_with(" ago"), "{text}");
    assert!(!text.contains("RELEASE-LOCK"), "{text}");
}

#[test]
fn all_conditions_are_printed() {
    let daemon = Daemon::start(&["--warn-hold", "0.5", "--status-after", "0.1", "--max-locks", "40"]);
    let mut holder = daemon.connect();
    for n in 0..40 {
        assert_eq!(holder.ask(&format!("ACQ4ME backup{n:02} 1 9 9")), "LOCKED");
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = wait_for(&daemon, 1);
        if (0..40).all(|n| text.contains(&format!("  backup{n:02}: "))) {
            break assert!(!text.contains("\nwarning  Locks  and "), "{text}");
        }
        assert!(Instant::now() < deadline, "{text}");
    }
}

#[test]
fn a_server_that_does_not_answer_is_critical() {
    let daemon = Daemon::start(&[]);
    let address = daemon.address.to_string();
    drop(daemon);
    let ended = run(&["status", "-s", &address]);
    let first = format!("CRITICAL: {address}: Server: nothing listens there | ");
    assert!(ended.status == Some(2) && ended.stdout.starts_with(&first), "{ended:?}");
}

/// Other daemons have no health.
#[test]
fn an_idle_daemon_answers_with_a_line_for_each_service() {
    let daemon = Daemon::start_with_counters(&[]);
    let mut client: Client = daemon.connect();
    assert!(client.ask("STATS UPTIME").starts_with("uptime"));
    let text = wait_for(&daemon, 0);
    assert_eq!(text.lines().count(), 4, "{text}");
}
