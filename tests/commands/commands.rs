//! The commands that query servers, as processes: their output and their exit statuses.

use crate::pty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_cli::COMMANDS;
use poolcounter_testkit::daemon::{Client, Daemon, until, wait};
use poolcounter_testkit::original::{Original, nowhere};
use poolcounter_testkit::running::{Ended, Running, print, run};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use poolcounter_testkit::strange::Strange;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Starts a daemon with a key that is held; returns it with its address and the holder.
fn busy_daemon() -> (Daemon, String, Client) {
    let daemon = Daemon::start(&[]);
    let (server, mut holder) = (daemon.address.to_string(), daemon.connect());
    assert_eq!(holder.ask("ACQ4ME Article:a%20b 1 9 0"), "LOCKED");
    assert_eq!(daemon.connect().ask("ACQ4ME Article:a%20b 1 1 0"), "QUEUE_FULL");
    (daemon, server, holder)
}

// stats

#[test]
fn statistics_are_printed_as_the_server_sends_them() {
    let (daemon, server, _holder) = busy_daemon();
    assert_eq!(print(&["stats", "-s", &server, "full_queues"]), "full_queues: 1\n");
    let full = print(&["stats", "-s", &server, "FULL"]);
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
    assert_eq!(json(&["total_acquired"]), "\"lines\":[\"total_acquired: 1\"]}]\n");
    let whole = json(&[]);
    assert!(whole.starts_with("\"report\":{") && whole.contains("\"name\":\"members\""), "{whole}");
    let report: serde_json::Value = serde_json::from_str(&format!("[{{{whole}")).expect("is JSON");
    assert_eq!(report[0]["report"]["pools"]["busiest"][0]["key"], "Article:a%20b");
    let pools = json(&["pools"]);
    assert!(pools.contains("\"busiest\":[{\"key\":\"Article:a%20b\"") && !pools.contains("members"), "{pools}");
}

/// All services that are in use, with their figures.
#[test]
fn report_is_printed() {
    let daemon = Daemon::start_with_counters(&[]);
    let (server, counters) = (daemon.address.to_string(), daemon.counters().to_string());
    let _holders: Vec<Client> = (0..3)
        .map(|n| {
            let mut holder = daemon.connect();
            assert_eq!(holder.ask(&format!("ACQ4ME Article:{n}%20\u{202e} 1 9 0")), "LOCKED");
            holder
        })
        .collect();
    let report = print(&["stats", "-s", &server, "--rows", "2"]);
    let lines: Vec<&str> = report.lines().collect();
    assert!(lines[0].starts_with("poolcounter ") && lines[0].contains(", up "), "{report}");
    assert!(lines[2].starts_with("pools: 4 connections, "), "{report}");
    assert!(lines.contains(&"total_acquired: 3") && lines.contains(&"First parts of keys"), "{report}");
    let busiest = lines.iter().position(|line| *line == "Busiest keys now").expect("is there");
    assert!(
        lines[busiest + 1].starts_with("key ") && lines[busiest + 1].ends_with("working  waiting  oldest"),
        "{report}"
    );
    assert!(lines[busiest + 2].starts_with("Article:0%20\\u{202e}  1 "), "{report}");
    assert_eq!(lines[busiest + 4], "and 1 more", "{report}");
    assert!(!report.contains("counters: ") && !report.contains("members: "), "nobody has used these: {report}");
    assert_eq!(print(&["counter", "-s", &counters, "acquire", "a", "1", "1", "--", "true"]), "");
    assert!(print(&["stats", "-s", &server]).contains("\ncounters: 0 connections, 1 since the start\n"));
    let members = print(&["stats", "-s", &server, "members"]);
    assert!(members.ends_with("\nmembers: not enabled\n"), "{members}");
}

/// The C daemon does not know the request, and does not even end the line of its error.
#[test]
fn server_without_reports_is_asked_for_its_statistics() {
    let fake = Strange::answering(|request| match request {
        b"STATS FULL\n" => b"uptime: 1 days, 0h 0m 1s\ntotal_acquired: 7\n\n".into(),
        _ => b"ERROR WRONG_STAT".into(),
    });
    let original = Original::program().map(|program| Original::start(&program));
    if original.is_none() {
        skipped("stats of the C daemon: it is not installed");
    }
    for server in [fake.address].into_iter().chain(original.as_ref().map(|original| original.address.to_string())) {
        let begun = Instant::now();
        let Ended { stderr, .. } = run(&["stats", "-s", &server]);
        assert!(stderr.ends_with(": it knows no reports: poolcounter stats FULL asks for its figures\n"), "{stderr}");
        let lines = print(&["stats", "-s", &server, "FULL"]);
        assert!(lines.starts_with("uptime: ") && lines.contains("\ntotal_acquired: "), "{lines}");
        assert!(print(&["stats", "--json", "-s", &server, "FULL"]).contains("\"lines\":[\"uptime: "));
        assert!(begun.elapsed() < Duration::from_secs(5), "it was not taken for silent: {:?}", begun.elapsed());
    }
}

#[test]
fn status_shows_a_silent_server() {
    let (_daemon, server, _holder) = busy_daemon();
    let dead = "127.0.0.1:1";
    let Ended { status, stdout, stderr } = run(&["stats", "-s", &server, "-s", dead, "total_acquired"]);
    assert_eq!((status, stdout), (Some(1), format!("{server}: total_acquired: 1\n")));
    assert_eq!(stderr, format!("poolcounter: {dead}: nothing listens there\n"));
    let Ended { status, stdout, stderr } = run(&["stats", "-j", "-s", &server, "-s", dead, "total_acquired"]);
    assert_eq!((status, &*stderr), (Some(1), ""));
    assert!(stdout.ends_with(&format!("{{\"server\":\"{dead}\",\"error\":\"nothing listens there\"}}]\n")), "{stdout}");
    let Ended { status, stderr, .. } = run(&["stats", "-s", &server, "nonsense"]);
    let sentence = "poolcounter: there is no statistic \"nonsense\"; a service or a list is one of ";
    assert!(status == Some(64) && stderr.starts_with(sentence), "{stderr}");
    assert_eq!(run(&["stats", "-s", &server, "UPTIME\nACQ4ME k 1 1 0"]).status, Some(64));
    assert_eq!(print(&["stats", "-s", &server, "total_acquired"]), "total_acquired: 1\n", "nothing else was asked");
}

/// A key can contain control sequences of a terminal.
#[test]
fn text_of_peers_is_made_harmless() {
    let (daemon, server, _) = busy_daemon();
    let mut evil = daemon.connect();
    assert_eq!(evil.ask("ACQ4ME \x1b[2J\u{9b}1m 9 9 0"), "LOCKED");
    for words in [&["KEYS"][..], &[], &["--json"], &["pools"]] {
        let text = print(&[&["stats", "-s", &server], words].concat());
        assert!(text.contains("[2J") && !text.contains(['\x1b', '\u{9b}']), "{text}");
    }
}

/// JSON must not contain control characters beyond ASCII, and no output may contain characters that hide or reverse
/// text.
#[test]
fn invisible_text_is_escaped_everywhere() {
    let daemon = Daemon::start(&["-vv"]);
    let server = daemon.address.to_string();
    let mut evil = daemon.connect();
    assert_eq!(evil.ask("ACQ4ME a\u{9b}1m\u{202e}b\u{200b}c\u{e0041}d 9 9 0"), "LOCKED");
    let plain = "a\\u{9b}1m\\u{202e}b\\u{200b}c\\u{e0041}d";
    assert!(print(&["stats", "-s", &server, "KEYS"]).starts_with(&format!("{plain}: 1 working")));
    let json = print(&["stats", "-j", "-s", &server, "KEYS"]);
    assert!(json.contains("\"a\\u009b1m\\u202eb\\u200bc\\udb40\\udc41d: 1 working, "), "{json}");
    let read: serde_json::Value = serde_json::from_str(&json).expect("is JSON");
    let line = read[0]["lines"][0].as_str().expect("is text");
    assert!(line.starts_with("a\u{9b}1m\u{202e}b\u{200b}c\u{e0041}d: 1 working, "), "{line}");
    let mut daemon = daemon;
    daemon.wait_for_log(&format!("> ACQ4ME {plain} 9 9 0"));
}

/// Error texts of a server are untrusted, too.
#[test]
fn refusals_of_servers_are_made_harmless() {
    let server = Strange::start(b"ERROR \x1b[2J\xc2\x9b\n").address;
    for arguments in [&["stats", "-s", &server, "UPTIME"][..], &["exec", "-s", &server, "-k", "k", "true"]] {
        let Ended { stderr, .. } = run(arguments);
        assert!(stderr.ends_with("the server refuses: \\u{1b}[2J\\u{9b}\n"), "{arguments:?}: {stderr:?}");
    }
}

// Servers

#[test]
fn every_command_asks_at_a_path_too() {
    let scratch = Scratch::new();
    let (pools, counters) =
        (scratch.file("pools").display().to_string(), scratch.file("counters").display().to_string());
    let (pools, counters) = (format!("unix:{pools}"), format!("unix:{counters}"));
    let mut daemon = Daemon::start(&["-l", &pools, "--counter", "--counter-listen", &counters]);
    let dead = format!("{pools}.gone");
    assert_eq!(print(&["stats", "-s", &pools, "total_acquired"]), "total_acquired: 0\n");
    assert_eq!(print(&["exec", "-s", &pools, "-k", "k", "echo", "runs"]), "runs\n");
    assert_eq!(print(&["counter", "-s", &counters, "noop"]), "");
    assert_eq!(print(&["counter", "-s", &counters, "acquire", "a", "1", "1", "--", "echo", "runs"]), "runs\n");
    let Ended { status, stderr, .. } = run(&["stats", "-s", &dead]);
    assert_eq!((status, stderr), (Some(69), format!("poolcounter: {dead}: No such file or directory\n")));
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert_eq!(run(&["stats", "-s", &pools]).status, Some(69));
}

#[test]
fn failures_of_a_server_name_its_address() {
    let port = nowhere().rsplit_once(':').expect("has a port").1.to_string();
    let Ended { status, stderr, .. } = run(&["stats", "-s", &format!("localhost:{port}")]);
    assert_eq!(status, Some(69));
    let at_each =
        ["127.0.0.1", "[::1]"].map(|ip| format!("poolcounter: localhost:{port}: {ip}:{port}: nothing listens there\n"));
    assert!(at_each.contains(&stderr), "{stderr}");
    // A name that no resolver asks the network for.
    let Ended { status, stderr, .. } = run(&["stats", "-s", "no..name"]);
    assert_eq!(status, Some(69));
    let resolver = "poolcounter: no..name: no..name:7531: failed to lookup address information: ";
    assert!(stderr.starts_with(resolver) && stderr.len() > resolver.len() + 5, "{stderr}");
    let Ended { status, stderr, .. } = run(&["exec", "-s", "no..name", "-k", "k", "true"]);
    assert_eq!(status, Some(69));
    assert!(stderr.starts_with("poolcounter: k: no server answers; no..name: no..name:7531: failed to"), "{stderr}");
}

// counter

#[test]
fn holders_of_a_key_are_printed() {
    let daemon = Daemon::start(&[]);
    let server = daemon.address.to_string();
    let [mut holder, mut waiter] = [(); 2].map(|()| daemon.connect());
    assert_eq!(holder.ask("ACQ4ME a%20b 1 9 9 who=web1:7"), "LOCKED");
    waiter.send(b"ACQ4ANY a%20b 1 9 30\n");
    daemon.connect().wait_for_stat("waiting_workers", 1);
    let table = print(&["holders", "-s", &server, "a b"]);
    let rows: Vec<Vec<&str>> =
        table.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(rows[0], ["STATE", "FOR", "CLIENT", "WHO"]);
    assert!(rows[1][0] == "working" && rows[1][3] == "web1:7", "{table}");
    assert!(rows[2][0] == "waiting for anyone" && rows[2][3] == "-" && rows.len() == 3, "{table}");
    let objects = print(&["holders", "-s", &server, "--json", "a b"]);
    assert!(objects.contains(r#""claims":[{"state":"working","age":"#), "{objects}");
    let Ended { status, stderr, .. } = run(&["holders", "-s", &server]);
    assert_eq!((status, stderr.contains("needs one KEY")), (Some(64), true), "{stderr}");
    let nobody = run(&["holders", "-s", &server, "other"]);
    let said = "poolcounter: no holders or waiters of other\n";
    assert_eq!(nobody, Ended { stderr: said.into(), ..Ended::silent(0) });
    let second = Daemon::start(&[]);
    let other = second.address.to_string();
    let mut holder = second.connect();
    assert_eq!(holder.ask("ACQ4ME one 1 5 60"), "LOCKED");
    let Ended { status, stdout, stderr } = run(&["holders", "-s", &server, "-s", &other, "one"]);
    assert_eq!((status, stderr), (Some(0), format!("poolcounter: {server}: no holders or waiters of one\n")));
    assert!(stdout.lines().count() == 2 && stdout.lines().all(|line| line.starts_with(&other)), "{stdout}");
    assert_eq!(
        print(&["holders", "-s", &server, "--json", "other"]),
        format!("[{{\"server\":\"{server}\",\"claims\":[]}}]\n")
    );
    assert_eq!(run(&["holders", "-s", &server, ""]).status, Some(64));
}

#[test]
fn units_of_a_counter_are_waited_for() {
    let daemon = Daemon::start_with_counters(&[]);
    let counters = daemon.counters().to_string();
    let acquire = |wait: &'static str| {
        let held = ["acquire", "c", "1", "1", "--", "sh", "-c", "echo runs; cat"];
        Running::program(&[&["counter", "-s", &counters, "--wait", wait], &held[..]].concat())
    };
    let mut first = acquire("0");
    assert_eq!(first.line(), "runs");
    assert_eq!(acquire("0.05").finish().status, Some(75), "not so soon");
    let mut second = acquire("30");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(first.finish().status, Some(0));
    assert_eq!(second.line(), "runs");
    assert_eq!(second.finish().status, Some(0));
}

#[test]
fn counters_are_got_acquired_and_dumped() {
    let daemon = Daemon::start_with_counters(&[]);
    let server = daemon.counters().to_string();
    let counter = |words: &[&str]| run(&[&["counter", "-s", &server], words].concat());
    let ended = |status, stdout: &str, stderr: &str| Ended {
        status: Some(status),
        stdout: stdout.into(),
        stderr: stderr.into(),
    };
    let program = Daemon::program();
    assert_eq!(counter(&["noop"]), ended(0, "", ""));
    assert_eq!(counter(&["get", "a"]), ended(76, "", "poolcounter: a: the server refuses: 01 Not found\n"));
    assert_eq!(counter(&["acquire", "a", "3", "10"]), ended(0, "", ""));
    assert_eq!(counter(&["get", "a"]), ended(0, "0\n", ""));
    let script = format!("{program} counter -s {server} get a; exit 7");
    assert_eq!(counter(&["acquire", "a", "3", "10", "--", "sh", "-c", &script]), ended(7, "3\n", ""));
    let script = format!("{program} counter -s {server} acquire a 8 10");
    let refused = "poolcounter: a: the server refuses: 21 Resource not available\n";
    assert_eq!(counter(&["acquire", "a", "3", "10", "--", "sh", "-c", &script]), ended(75, "", refused));
    assert_eq!(counter(&["release", "a", "1"]), ended(76, "", "poolcounter: a: the server refuses: 22 Not acquired\n"));
    assert_eq!(counter(&["release", "b", "1"]), ended(76, "", "poolcounter: b: the server refuses: 01 Not found\n"));
    assert_eq!(counter(&["dump"]), ended(0, "COUNTER  UNITS  MOST\na        0      3\n", ""));
    let Ended { status, stdout, .. } = counter(&["stats"]);
    assert!(status == Some(0) && stdout.starts_with("objects: 1\n") && stdout.lines().count() == 15, "{stdout}");
}

#[test]
fn lost_units_are_reported() {
    let mut daemon = Daemon::start_with_counters(&[]);
    let server = daemon.counters().to_string();
    let acquire = ["acquire", "a", "1", "1", "--", "sleep", "60"];
    let running = Running::program(&[&["counter", "-s", &server, "--on-lost", "term"], &acquire[..]].concat());
    until("a unit is acquired", || run(&["counter", "-s", &server, "get", "a"]).stdout == "1\n");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let Ended { status, stderr, .. } = running.finish();
    assert_eq!(status, Some(143));
    assert_eq!(
        stderr,
        "poolcounter: a: the units are lost, because the connection is gone; the command is terminated\n"
    );
}

#[test]
fn misuse_has_one_status_and_a_correction() {
    for (arguments, named) in [
        (&["counter"][..], "no request"),
        (&["counter", "get"], "usage: poolcounter counter get NAME (see poolcounter help counter get)"),
        (
            &["counter", "acquire", "a", "11", "10"],
            "RESOURCES is a number from 1 to MAXIMUM (see poolcounter help counter acquire)",
        ),
        (&["counter", "acquire", "a", "0", "1"], "RESOURCES is a number from 1 to MAXIMUM"),
        (&["take", "--", "true"], "take needs one POOL, or --group GROUP, before \"--\" (see poolcounter help take)"),
        (&["jobs", "list", "*/mail"], "\"*/mail\" is a pattern, and list takes one tube: jobs summary tube prints"),
        (&["counter", "gett"], "unknown request \"gett\"; did you mean get?"),
        (&["serv"], "unknown command \"serv\"; did you mean serve?"),
        (&["holdrs", "k"], "unknown command \"holdrs\"; did you mean holders?"),
        (&["help", "serv"], "unknown command \"serv\"; did you mean serve?"),
        (&["stats", "--jsn"], "unknown option --jsn; did you mean --json?"),
        (&["--lisen", "x"], "unknown option --lisen; did you mean --listen?"),
        (&["members", "repear", "b"], "unknown request \"repear\"; did you mean repair?"),
        (&["page"], "no --server is named"),
        (&["tls"], "--to is needed"),
        (&["admin"], "admin needs a command"),
        (&["admin", "-a", "/run/a", "UNDRAIN"], "\"/run/a\" is not an address; use unix:/run/a"),
        (&["holders"], "holders needs one KEY"),
        (&["exec", "true"], "--key is missing"),
        (&["exec", "-k", "k"], "no command"),
        (&["exec", "-k", "", "true"], "--key: \"\" is not a key"),
        (&["exec", "-k", "k", "--workers", "0", "true"], "--workers: \"0\" is not a number"),
        (&["exec", "-k", "k", "--also", "k:2", "true"], "--also k: the key is given twice"),
        (&["exec", "-k", "k", "--also", "a:2", "--also", "a:1", "true"], "--also a: the key is given twice"),
        (&["exec", "-k", "k", "-s", "::1:7531", "true"], "is not clear: write [::1]:PORT"),
        (&["exec", "-k", "k", "--process-group", "any", "true"], "--process-group: \"any\" is not own or shared"),
        (&["exec", "-k", "k", "--on-lost", "cry", "true"], "--on-lost: \"cry\" is not warn, term or kill"),
        (&["exec", "--frobnicate", "true"], "frobnicate"),
        (&["counter", "acquire", "a", "many", "10"], "\"many\" is not a number"),
        (&["counter", "noop", "--", "true"], "runs a command"),
        (&["top"], "top needs a terminal: poolcounter stats prints the reports"),
        (&["top", "-i", "0"], "--interval: \"0\" is not a number of seconds from 0.1"),
        (&["completions", "tcsh"], "\"tcsh\" is not bash, zsh or fish"),
        (&["completions"], "completions needs a shell"),
        (&["stats", "-s", ""], "--server: \"\" is not a host"),
        (&["exec", "-s", "host:99999", "--key", "a", "true"], "--server: \"host:99999\" is not a host"),
        (&["stats", "-s", "tls:host:x"], "--server: \"tls:host:x\" is not a host"),
        (&["counter", "get", ""], "a name cannot be sent"),
        (&["admin", "DRAN"], "unknown command \"DRAN\"; did you mean DRAIN?"),
        (&["help", "jobs", "fly"], "unexpected argument \"fly\" (see poolcounter help)"),
    ] {
        let Ended { status, stderr, .. } = run(arguments);
        assert!(stderr.contains(named) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
        assert_eq!(status, Some(64), "{arguments:?}");
    }
    for command in ["serve", "status", "doctor", "config", "top", "page", "demo", "tls"] {
        let Ended { status, stderr, .. } = run(&[command, "surplus"]);
        assert!(status == Some(64) && stderr.contains("unexpected argument \"surplus\""), "{command}: {stderr}");
    }
    let Ended { status, stderr, .. } = run(&["counter", "-s", "127.0.0.1:1", "noop"]);
    assert_eq!(
        (status, &*stderr),
        (Some(69), "poolcounter: 127.0.0.1:1: nothing listens there (is the daemon started with --counter?)\n")
    );
    for (arguments, option) in [
        (&["jobs", "-s", "127.0.0.1:1", "put", "t", "body"][..], "--jobs"),
        (&["members", "-s", "127.0.0.1:1"], "--members"),
        (&["take", "-s", "127.0.0.1:1", "p", "--", "true"], "--members"),
    ] {
        let Ended { stderr, .. } = run(arguments);
        let hint = format!("127.0.0.1:1: nothing listens there (is the daemon started with {option}?)\n");
        assert!(stderr.ends_with(&hint), "{arguments:?}: {stderr}");
    }
}

#[test]
fn server_of_another_service_is_named_as_such() {
    let daemon = Daemon::start_with_members(&[]);
    let Ended { status, stderr, .. } = run(&["exec", "-s", &daemon.members().to_string(), "-k", "k", "true"]);
    let said = "poolcounter: k: the server does not know the request (BAD_COMMAND): another service answers there, ";
    assert!(status == Some(76) && stderr.starts_with(said), "{stderr}");
}

#[test]
fn help_begins_with_what_a_command_does() {
    for command in COMMANDS {
        let help = print(&["help", command.name]);
        let lines: Vec<&str> = help.lines().take(3).collect();
        assert!(lines[0].ends_with('.') && lines[1].is_empty(), "{help}");
        assert!(lines[2].starts_with(&format!("Usage: poolcounter {}", command.name)), "{help}");
    }
}

#[test]
fn help_of_a_request_is_about_that_request_alone() {
    for (words, usage, has, lacks) in [
        (&["help", "jobs", "summary"][..], "jobs [options] summary [wiki | type | tube | runner]", "--json", "--after"),
        (&["jobs", "list", "--help"], "jobs [options] list TUBE [STATE]", "--after", "--run"),
        (&["help", "jobs", "run"], "jobs run [options] PATTERN[:WEIGHT] ... -- COMMAND", "--batch", "--root"),
        (&["help", "members", "repair"], "members [options] repair POOL MEMBER", "--as-is", "--waiting"),
        (&["help", "counter", "get"], "counter [options] get NAME", "--tls", "--wait"),
        (&["help", "admin", "drain"], "admin [options] DRAIN", "--json", "UNDRAIN"),
    ] {
        let help = print(words);
        assert_eq!(help.matches("Usage: ").count(), 1, "{words:?}: {help}");
        assert!(help.contains(&format!("Usage: poolcounter {usage}")), "{words:?}: {help}");
        assert!(help.contains(has) && !help.contains(lacks) && !help.contains("Requests:"), "{words:?}: {help}");
    }
}

// top

#[test]
fn top_fills_and_restores_the_terminal() {
    let (_daemon, server, _holder) = busy_daemon();
    for end in [&b"q"[..], b"\x03"] {
        let (mut child, mut screen) = top_on_terminal(&server);
        screen.write_all(end).expect("keys are read");
        assert_eq!(wait(&mut child).code(), Some(0), "{end:?}");
        assert_restored(screen);
    }
}

/// Starts `top` on a terminal.
fn start_top(server: &str) -> (Child, File) {
    let terminal = pty::open();
    let slave = || Stdio::from(terminal.slave.try_clone().expect("another handle"));
    let mut top = Command::new(Daemon::program());
    top.args(["top", "-s", server, "-i", "60"]).env("TERM", "xterm").stdin(slave()).stdout(slave()).stderr(slave());
    (top.spawn().expect("the program runs"), File::from(terminal.master))
}

/// Starts `top`, and waits until it shows something, on a screen of its own.
fn top_on_terminal(server: &str) -> (Child, File) {
    let (child, mut screen) = start_top(server);
    let mut shown = String::new();
    while !shown.contains("Article:a%20b") {
        let mut bytes = [0; 4096];
        let len = screen.read(&mut bytes).expect("it shows something");
        shown += &String::from_utf8_lossy(&bytes[..len]);
    }
    assert!(shown.contains("\x1b[?1049h"), "it has a screen of its own: {shown:?}");
    (child, screen)
}

fn assert_restored(mut screen: File) {
    let mut rest = Vec::new();
    // After the last close of the other side, a pseudo terminal returns an error.
    let _ = screen.read_to_end(&mut rest);
    assert!(String::from_utf8_lossy(&rest).contains("\x1b[?1049l"), "the screen is as it was before");
}

#[test]
fn top_ends_with_its_terminal() {
    let (_daemon, server, _holder) = busy_daemon();
    let (mut child, screen) = top_on_terminal(&server);
    drop(screen);
    assert!(wait(&mut child).code().is_some(), "it has not crashed");
}

#[test]
fn top_restores_the_terminal_after_a_signal() {
    let (_daemon, server, _holder) = busy_daemon();
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let (mut child, screen) = top_on_terminal(&server);
        kill(Pid::from_raw(child.id() as i32), signal).expect("the process is there");
        assert_eq!(wait(&mut child).code(), Some(0), "{signal}");
        assert_restored(screen);
    }
}

/// Half a key sequence does not delay the reaction to a signal.
#[test]
fn signal_within_a_key_ends_top() {
    let (_daemon, server, _holder) = busy_daemon();
    let (mut child, mut screen) = top_on_terminal(&server);
    screen.write_all(b"\x1b[1").expect("keys are read");
    // The state of `top` cannot be observed from here.
    thread::sleep(Duration::from_millis(300));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("the process is there");
    assert_eq!(wait(&mut child).code(), Some(0));
}

/// A server that does not answer delays the check for signals for a while.
#[test]
fn second_signal_ends_top_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let server = listener.local_addr().expect("is bound").to_string();
    let (mut child, _screen) = start_top(&server);
    let (_connection, _) = listener.accept().expect("it asks");
    let begun = Instant::now();
    for _ in 0..2 {
        kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).expect("the process is there");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(wait(&mut child).signal(), Some(15));
    assert!(begun.elapsed() < Duration::from_secs(2), "it has not waited for the answer: {:?}", begun.elapsed());
}

#[test]
fn stats_name_a_disabled_service() {
    let daemon = Daemon::start(&[]);
    let server = daemon.address.to_string();
    for service in ["jobs", "members", "counters", "http"] {
        let lines: Vec<String> = print(&["stats", "-s", &server, service]).lines().map(String::from).collect();
        assert_eq!(lines[1..], [format!("{service}: not enabled")]);
        let json = print(&["stats", "-j", "-s", &server, service]);
        assert!(json.contains(&format!("\"{service}\":null")) && json.contains("\"services\":[]"), "{json}");
    }
    assert!(print(&["stats", "-s", &server, "pools"]).contains("total_acquired: 0"));
    let daemon = Daemon::start_with_jobs(&["--jobs-store", "memory"]);
    assert!(print(&["stats", "-s", &daemon.address.to_string(), "jobs"]).contains("current-jobs-ready: 0"));
}

#[test]
fn unknown_service_is_named_with_the_known_services() {
    let daemon = Daemon::start(&[]);
    let server = daemon.address.to_string();
    let Ended { status, stderr, .. } = run(&["stats", "job", "-s", &server]);
    assert_eq!(status, Some(64), "{stderr}");
    let wanted =
        "poolcounter: there is no statistic \"job\"; a service or a list is one of pools, counters, members, jobs, ";
    assert!(stderr.starts_with(wanted), "{stderr}");
    assert!(stderr.ends_with("; did you mean jobs? (see poolcounter help stats)\n"), "{stderr}");
}
