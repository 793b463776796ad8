//! The commands that ask servers, as processes: what they print, and with which status they end.

mod support;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;
use support::daemon::{Client, Daemon, PATIENCE, wait};

/// What a run came to.
#[derive(PartialEq, Debug)]
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(arguments: &[&str]) -> Ended {
    let output = Command::new(Daemon::PROGRAM).args(arguments).stdin(Stdio::null()).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("is text");
    Ended { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A run that goes well.
fn print(arguments: &[&str]) -> String {
    let Ended { status, stdout, stderr } = run(arguments);
    assert_eq!((status, &*stderr), (Some(0), ""), "{arguments:?}");
    stdout
}

/// A daemon with a key that is held, and how to name it.
fn busy_daemon() -> (Daemon, String, Client) {
    let daemon = Daemon::start(&[]);
    let (server, mut holder) = (daemon.address.to_string(), daemon.connect());
    assert_eq!(holder.ask("ACQ4ME Article:a%20b 1 9 0"), "LOCKED");
    assert_eq!(daemon.connect().ask("ACQ4ME Article:a%20b 1 1 0"), "QUEUE_FULL");
    (daemon, server, holder)
}

// stats

#[test]
fn statistics_are_printed_as_the_server_tells_them() {
    let (daemon, server, _holder) = busy_daemon();
    assert_eq!(print(&["stats", "-s", &server, "full_queues"]), "full_queues: 1\n");
    let full = print(&["stats", "-s", &server]);
    assert_eq!(full.lines().count(), 21, "{full}");
    assert_eq!(full.lines().nth(9), Some("total_acquired: 1"));
    assert!(print(&["stats", "--server", &server, "UPTIME"]).starts_with("uptime: 0 days, "));
    let keys = print(&["stats", "-s", &server, "KEYS", "5"]);
    assert!(keys.starts_with("Article:a%20b: 1 working, 0 waiting, oldest ") && keys.lines().count() == 1, "{keys}");
    assert!(print(&["stats", "-s", &server, "types"]).starts_with("Article: 1 working, 0 waiting, 1 acquired, "));
    let holders = print(&["stats", "-s", &server, "HOLDERS", "Article:a b"]);
    assert!(holders.starts_with("127.0.0.1:") && holders.contains(" working "), "{holders}");
    assert_eq!(print(&["stats", "-s", &server, "HOLDERS", "nothing"]), "");
    drop(daemon);
}

#[test]
fn statistics_are_printed_as_json() {
    let (_daemon, server, _holder) = busy_daemon();
    let start = format!("[{{\"server\":\"{server}\",");
    let json = |words: &[&str]| {
        let text = print(&[&["stats", "--json", "-s", &server], words].concat());
        text.strip_prefix(&start).unwrap_or_else(|| panic!("{text}")).to_string()
    };
    assert_eq!(json(&["total_acquired"]), "\"stats\":{\"total_acquired\":1}}]\n");
    assert!(json(&[]).starts_with("\"stats\":{\"uptime\":"));
    let keys = json(&["KEYS"]);
    assert!(keys.starts_with("\"keys\":[{\"key\":\"Article:a%20b\",\"working\":1,\"waiting\":0,\"oldest\":"), "{keys}");
    assert!(keys.ends_with("}],\"more\":0}]\n"), "{keys}");
    let types = json(&["TYPES"]);
    assert!(types.starts_with("\"types\":[{\"type\":\"Article\",\"working\":1,"), "{types}");
    let holders = json(&["HOLDERS", "Article:a%20b"]);
    assert!(holders.starts_with("\"clients\":[{\"peer\":\"127.0.0.1:"), "{holders}");
    assert!(holders.contains("\"state\":\"working\",\"age\":"), "{holders}");
}

#[test]
fn a_server_that_does_not_answer_shows_in_the_status() {
    let (_daemon, server, _holder) = busy_daemon();
    let dead = "127.0.0.1:1";
    let Ended { status, stdout, stderr } = run(&["stats", "-s", &server, "-s", dead, "total_acquired"]);
    assert_eq!((status, stdout), (Some(1), format!("{server}: total_acquired: 1\n")));
    assert_eq!(stderr, format!("poolcounter: {dead}: connection refused\n"));
    let Ended { status, stdout, stderr } = run(&["stats", "-j", "-s", &server, "-s", dead, "total_acquired"]);
    assert_eq!((status, &*stderr), (Some(1), ""));
    assert!(stdout.ends_with(&format!("{{\"server\":\"{dead}\",\"error\":\"connection refused\"}}]\n")), "{stdout}");
    let Ended { status, stderr, .. } = run(&["stats", "-s", &server, "nonsense"]);
    assert_eq!((status, stderr), (Some(1), format!("poolcounter: {server}: the server refuses: WRONG_STAT\n")));
    assert_eq!(run(&["stats", "-s", &server, "UPTIME\nACQ4ME k 1 1 0"]).status, Some(1));
    assert_eq!(print(&["stats", "-s", &server, "total_acquired"]), "total_acquired: 1\n", "nothing else was asked");
}

/// A key can hold what a terminal would obey.
#[test]
fn what_peers_say_is_made_harmless() {
    let (daemon, server, _) = busy_daemon();
    let mut evil = daemon.connect();
    assert_eq!(evil.ask("ACQ4ME \x1b[2J\u{9b}1m 9 9 0"), "LOCKED");
    let keys = print(&["stats", "-s", &server, "KEYS"]);
    assert!(keys.contains("\\u{1b}[2J\\u{9b}1m: 1 working") && !keys.contains('\x1b'), "{keys}");
}

// counter

#[test]
fn counters_are_got_acquired_and_dumped() {
    let daemon = Daemon::start(&["--counter", "--counter-listen", "127.0.0.1:0"]);
    let server = counter_address(&daemon);
    let counter = |words: &[&str]| run(&[&["counter", "-s", &server], words].concat());
    let ended = |status, stdout: &str, stderr: &str| Ended {
        status: Some(status),
        stdout: stdout.into(),
        stderr: stderr.into(),
    };
    let program = Daemon::PROGRAM;
    assert_eq!(counter(&["noop"]), ended(0, "", ""));
    assert_eq!(counter(&["get", "a"]), ended(2, "", "ERROR: 01 Not found\n"));
    assert_eq!(counter(&["acquire", "a", "3", "10"]), ended(0, "", ""));
    assert_eq!(counter(&["get", "a"]), ended(0, "0\n", ""));
    let script = format!("{program} counter -s {server} get a; exit 7");
    assert_eq!(counter(&["acquire", "a", "3", "10", "--", "sh", "-c", &script]), ended(7, "3\n", ""));
    let script = format!("{program} counter -s {server} acquire a 8 10");
    let refused = "ERROR: 21 Resource not available\n";
    assert_eq!(counter(&["acquire", "a", "3", "10", "--", "sh", "-c", &script]), ended(2, "", refused));
    assert_eq!(counter(&["release", "a", "1"]), ended(2, "", "ERROR: 22 Not acquired\n"));
    assert_eq!(counter(&["release", "b", "1"]), ended(2, "", "ERROR: 01 Not found\n"));
    assert_eq!(counter(&["acquire", "a", "0", "1"]), ended(2, "", "ERROR: 04 Invalid arguments\n"));
    assert_eq!(counter(&["dump"]), ended(0, "a 0 3\n", ""));
    let Ended { status, stdout, .. } = counter(&["stats"]);
    assert!(status == Some(0) && stdout.starts_with("objects: 1\n") && stdout.lines().count() == 15, "{stdout}");
}

#[test]
fn units_that_are_lost_are_told_of() {
    let mut daemon = Daemon::start(&["--counter", "--counter-listen", "127.0.0.1:0"]);
    let server = counter_address(&daemon);
    let mut child = Command::new(Daemon::PROGRAM)
        .args(["counter", "-s", &server, "--on-lost", "term", "acquire", "a", "1", "1", "--", "sleep", "60"])
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let deadline = Instant::now() + PATIENCE;
    while run(&["counter", "-s", &server, "get", "a"]).stdout != "1\n" {
        assert!(Instant::now() < deadline, "it is not acquired");
    }
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert_eq!(wait(&mut child).code(), Some(143));
    let mut said = String::new();
    child.stderr.take().expect("is piped").read_to_string(&mut said).expect("is text");
    assert_eq!(said, "poolcounter: the units are lost, because the connection is gone; the command is terminated\n");
}

#[test]
fn what_is_no_request_is_named() {
    for (arguments, named) in [
        (&["counter"][..], "no request"),
        (&["counter", "get"], "no request"),
        (&["counter", "acquire", "a", "many", "10"], "\"many\" is not a number"),
        (&["counter", "noop", "--", "true"], "runs a command"),
        (&["top", "-i", "0"], "--interval: \"0\" is not a number of seconds from 0.1"),
        (&["completions", "tcsh"], "\"tcsh\" is not bash, zsh or fish"),
        (&["stats", "-s", ""], "--server: \"\" is not a host"),
    ] {
        let Ended { status, stderr, .. } = run(arguments);
        assert!(stderr.contains(named) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
        assert_eq!(status, Some(1), "{arguments:?}");
    }
    let Ended { status, stderr, .. } = run(&["counter", "-s", "127.0.0.1:1", "noop"]);
    assert_eq!((status, &*stderr), (Some(1), "poolcounter: 127.0.0.1:1: connection refused\n"));
}

/// Where a daemon listens for counters, which it tells in its log.
fn counter_address(daemon: &Daemon) -> String {
    let told = daemon.lines.iter().find_map(|line| line.rsplit_once("the counters are at "));
    told.map(|(_, address)| address.to_string()).unwrap_or_else(|| panic!("{:#?}", daemon.lines))
}

// top

#[test]
fn top_is_printed_where_there_is_no_terminal() {
    let (_daemon, server, _holder) = busy_daemon();
    let text = print(&["top", "-s", &server, "-i", "0.1", "--count", "2"]);
    let looks: Vec<&str> = text.split(&format!("{server}: up ")).collect();
    assert_eq!(looks.len(), 3, "{text}");
    for look in &looks[1..] {
        let lines: Vec<&str> = look.lines().collect();
        assert_eq!(lines[1], "1 working, 0 waiting, 1 keys, 0 locked/s, 0 done/s, 0 full/s, 0 timeout/s");
        assert!(lines[3].starts_with("TYPE ") && lines[4].starts_with("Article "), "{text}");
        assert!(lines[6].starts_with("KEY ") && lines[7].starts_with("Article:a%20b  1 "), "{text}");
        assert!(lines[9].starts_with("HELD KEY ") && lines[10].contains("127.0.0.1:"), "{text}");
    }
}

#[test]
fn top_fills_a_terminal_and_leaves_it_as_it_was() {
    let (_daemon, server, _holder) = busy_daemon();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    for end in [&b"q"[..], b"\x03"] {
        let terminal = openpty(Some(&size), None).expect("a pseudo terminal");
        let mut screen = File::from(terminal.master);
        let mut child = Command::new(Daemon::PROGRAM)
            .args(["top", "-s", &server])
            .env("TERM", "xterm")
            .stdin(Stdio::from(terminal.slave.try_clone().expect("a second handle")))
            .stdout(Stdio::from(terminal.slave))
            .spawn()
            .expect("the program runs");
        let mut shown = String::new();
        while !shown.contains("Article:a%20b") {
            let mut bytes = [0; 4096];
            let len = screen.read(&mut bytes).expect("it shows something");
            shown += &String::from_utf8_lossy(&bytes[..len]);
        }
        assert!(shown.contains("\x1b[?1049h"), "it has a screen of its own: {shown:?}");
        screen.write_all(end).expect("keys are read");
        assert_eq!(wait(&mut child).code(), Some(0), "{end:?}");
        // The last that had it open is gone, which a pseudo terminal tells with an error.
        let mut rest = Vec::new();
        let _ = screen.read_to_end(&mut rest);
        assert!(String::from_utf8_lossy(&rest).contains("\x1b[?1049l"), "the screen is as it was before");
    }
}
