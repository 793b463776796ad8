//! `poolcounter exec` as a process, with the real daemon: when it runs the command, how it ends, and the state of the
//! lock.

use crate::pty;
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon, install, until, wait};
use poolcounter_testkit::original::nowhere;
use poolcounter_testkit::running::{self, Ended, Running};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use poolcounter_testkit::strange::Strange;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Command that prints a line, and ends when its standard input does.
const UNTIL_EOF: [&str; 3] = ["sh", "-c", "echo runs; cat"];

/// Returns `exec` as a terminal starts it: a test runner in the background, or under nohup, ignores some signals, and
/// its children would, too.
fn exec(options: &[&str], command: &[&str]) -> Command {
    let mut exec = Command::new("env");
    exec.args(["--default-signal=HUP,INT,QUIT", Daemon::program(), "exec"]).args(options).arg("--").args(command);
    exec
}

/// Starts `exec` with these options, for the key `k`.
fn start(server: &str, options: &[&str], command: &[&str]) -> Running {
    Running::start(&mut exec(&[&["-s", server, "-k", "k"], options].concat(), command))
}

fn run(server: &str, options: &[&str], command: &[&str]) -> Ended {
    start(server, options, command).finish()
}

/// Starts a daemon; returns it with its address and an observing client.
fn daemon() -> (Daemon, String, Client) {
    let daemon = Daemon::start(&[]);
    let (server, client) = (daemon.address.to_string(), daemon.connect());
    (daemon, server, client)
}

/// Waits until the key has no holder any more.
fn assert_given_back(observer: &mut Client) {
    observer.wait_for_stat("processing_workers", 0);
    observer.wait_for_stat("hashtable_entries", 0);
}

// The command

#[test]
fn the_command_runs_while_the_place_is_held() {
    let (_daemon, server, mut observer) = daemon();
    let mut exec = start(&server, &[], &UNTIL_EOF);
    assert_eq!(exec.line(), "runs");
    assert_eq!(observer.ask("ACQ4ME k 1 9 0"), "TIMEOUT");
    assert_eq!(exec.finish(), Ended::silent(0));
    assert_given_back(&mut observer);
    assert_eq!(observer.stat("total_releases"), 1);
}

#[test]
fn its_status_is_that_of_the_command() {
    let (_daemon, server, mut observer) = daemon();
    for (script, status) in
        [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("kill -40 $$", 168)]
    {
        assert_eq!(run(&server, &[], &["sh", "-c", script]).status, Some(status), "{script}");
    }
    let Ended { status, stderr, .. } = run(&server, &[], &["/no/such/command"]);
    assert_eq!(status, Some(127));
    assert!(stderr.starts_with("poolcounter: /no/such/command: "), "{stderr}");
    let scratch = Scratch::new();
    let file = scratch.file("file");
    fs::write(&file, "no program").expect("can be written");
    assert_eq!(run(&server, &[], &[&file.display().to_string()]).status, Some(126));
    install(&file, b"#!/no/such/interpreter");
    let Ended { status, stderr, .. } = run(&server, &[], &[&file.display().to_string()]);
    assert_eq!(status, Some(127));
    assert!(stderr.ends_with(": the interpreter that its first line names was not found\n"), "{stderr}");
    install(&file, b"echo $0 $1; exit 7");
    let program = file.display().to_string();
    let Ended { status, stdout, .. } = run(&server, &[], &[&program, "a b"]);
    assert_eq!((status, stdout), (Some(7), format!("{program} a b\n")), "the shell runs a script without interpreter");
    let path = format!("{}:{}", scratch.file("").display(), std::env::var("PATH").expect("is set"));
    let by_name = running::end_of(exec(&["-s", &server, "-k", "k"], &["file", "x"]).env("PATH", path));
    assert_eq!((by_name.status, by_name.stdout), (Some(7), format!("{program} x\n")));
    assert_given_back(&mut observer);
}

#[test]
fn arguments_input_and_output_are_those_of_the_command() {
    let (_daemon, server, _) = daemon();
    let mut exec =
        start(&server, &[], &["sh", "-c", "printf '<%s>' \"$@\"; cat; echo oops >&2", "-", "-k", "a b", "--", ""]);
    exec.child.stdin.as_mut().expect("is piped").write_all(b"input").expect("is read");
    assert_eq!(
        exec.finish(),
        Ended { status: Some(0), stdout: "<-k><a b><--><>input".into(), stderr: "oops\n".into() }
    );
    // Without the dashes, the first word that is not an option begins the command.
    assert_eq!(running::run(&["exec", "-s", &server, "-k", "k", "echo", "-k", "--help"]).stdout, "-k --help\n");
}

#[test]
fn the_command_has_no_socket() {
    let (_daemon, server, _) = daemon();
    let Ended { stdout, .. } = run(&server, &[], &["sh", "-c", "ls -l /proc/self/fd"]);
    assert!(stdout.contains("pipe:") && !stdout.contains("socket:") && !stdout.contains("signalfd"), "{stdout}");
}

#[test]
fn a_key_is_bytes() {
    let (_daemon, server, mut holder) = daemon();
    holder.send(b"ACQ4ME k\xff\xc3 1 9 0\n");
    assert_eq!(holder.line(), "LOCKED");
    let with_key = |key: &[u8]| {
        let mut command = Command::new(Daemon::program());
        command.args(["exec", "-s", &server, "-t", "0", "-k"]).arg(OsStr::from_bytes(key)).arg("true");
        running::end_of(&mut command).status
    };
    assert_eq!(with_key(b"k\xff\xc3"), Some(75), "the same bytes are the same pool");
    assert_eq!(with_key(b"k\xff\xc4"), Some(0));
    assert_eq!(with_key("k\u{fffd}\u{fffd}".as_bytes()), Some(0));
    assert_eq!(with_key(b"k\xff\n"), Some(64));
}

// No place

#[test]
fn a_refusal_says_why() {
    let (_daemon, server, mut holder) = daemon();
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    for (options, why) in [
        (["--timeout", "0"], "TIMEOUT, as no lock came free within 0 s"),
        (["--timeout", "0.2"], "TIMEOUT, as no lock came free within 0.2 s"),
        (["--queue", "1"], "QUEUE_FULL, as 1 run or wait already"),
    ] {
        let Ended { status, stdout, stderr } = run(&server, &options, &["echo", "runs"]);
        assert_eq!((status, &*stdout), (Some(75), ""));
        let (said, holder) = stderr.split_once("; ").expect("why, and who");
        assert_eq!(said, format!("poolcounter: k: {why}"));
        assert!(holder.starts_with("127.0.0.1:") && holder.contains(" has held it for "), "{holder}");
    }
    assert_eq!(holder.ask("ACQ4ME k 9 9 0"), "LOCKED");
    let Ended { stderr, .. } = run(&server, &["--timeout", "0", "-w", "2"], &["echo", "runs"]);
    assert!(stderr.ends_with(" s, another for less\n"), "{stderr}");
}

#[test]
fn a_refusal_may_be_a_status_only() {
    let (_daemon, server, mut holder) = daemon();
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    let options = ["--timeout", "0", "--quiet", "--conflict-exit", "7"];
    assert_eq!(run(&server, &options, &["echo", "runs"]), Ended::silent(7));
}

#[test]
fn key_and_servers_may_be_in_the_environment() {
    let (_daemon, server, mut observer) = daemon();
    let nowhere = nowhere();
    let mut started = exec(&[], &UNTIL_EOF);
    started.env("POOLCOUNTER_SERVERS", format!("{nowhere}, {server}")).env("POOLCOUNTER_KEY", "from env");
    let mut running = Running::start(&mut started);
    assert_eq!(running.line(), "runs");
    assert_eq!(observer.ask("ACQ4ME from%20env 1 9 0"), "TIMEOUT");
    let mut stats = Command::new(Daemon::program());
    stats.args(["stats", "total_acquired"]).env("POOLCOUNTER_SERVERS", &server);
    assert_eq!(running::end_of(&mut stats).stdout, "total_acquired: 1\n");
    // Options override the environment.
    let mut named = exec(&["-s", &server, "-k", "k"], &["true"]);
    named.env("POOLCOUNTER_SERVERS", &nowhere).env("POOLCOUNTER_KEY", "a\nb");
    assert_eq!(Running::start(&mut named).finish().status, Some(0));
    let ended = Running::start(exec(&[], &["true"]).env("POOLCOUNTER_KEY", "a\nb")).finish();
    assert_eq!((ended.status, ended.stderr.contains("POOLCOUNTER_KEY is not a key")), (Some(64), true), "{ended:?}");
}

#[test]
fn one_does_the_work_for_all_waiters() {
    let (_daemon, server, mut observer) = daemon();
    let mut first = start(&server, &["--any"], &UNTIL_EOF);
    assert_eq!(first.line(), "runs");
    let second = start(&server, &["--any"], &UNTIL_EOF);
    let third = start(&server, &["--any", "--done-exit", "9"], &UNTIL_EOF);
    observer.wait_for_stat("waiting_workers", 2);
    assert_eq!(first.finish().status, Some(0));
    assert_eq!(second.finish(), Ended::silent(0));
    assert_eq!(third.finish(), Ended::silent(9));
}

#[test]
fn work_that_failed_is_done_by_the_next() {
    let (_daemon, server, mut observer) = daemon();
    let mut first = start(&server, &["--any"], &["sh", "-c", "echo runs; read line; exit 1"]);
    assert_eq!(first.line(), "runs");
    let second = start(&server, &["--any"], &["echo", "runs too"]);
    observer.wait_for_stat("waiting_workers", 1);
    assert_eq!(first.finish().status, Some(1));
    assert_eq!(second.finish().stdout, "runs too\n");
}

/// All commands wait at the same time, and one of them runs, however it ends.
#[test]
fn one_attempt_is_enough_for_all() {
    let (_daemon, server, mut observer) = daemon();
    let mut first = start(&server, &["--any", "--one-attempt"], &["sh", "-c", "echo runs; read line; exit 1"]);
    assert_eq!(first.line(), "runs");
    let others: Vec<_> = (0..3)
        .map(|_| start(&server, &["--any", "--one-attempt", "--done-exit", "9", "-t", "60"], &["echo", "runs too"]))
        .collect();
    observer.wait_for_stat("waiting_workers", 3);
    assert_eq!(first.finish().status, Some(1));
    for other in others {
        assert_eq!(other.finish(), Ended::silent(9));
    }
    let Ended { status, stderr, .. } = run(&server, &["--one-attempt"], &["true"]);
    assert!(status == Some(64) && stderr.contains("--one-attempt needs --any"), "{stderr}");
}

// Servers

#[test]
fn without_a_server_only_fail_open_runs_the_command() {
    let (first, second) = (nowhere(), nowhere());
    let Ended { status, stdout, stderr } = run(&first, &["-s", &second], &["echo", "runs"]);
    assert_eq!((status, &*stdout), (Some(69), ""));
    assert!(stderr.starts_with("poolcounter: k: no server answers; ") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains(&first) && stderr.contains(&second), "{stderr}");
    let Ended { status, stdout, stderr } = run(&first, &["--fail-open"], &["sh", "-c", "echo runs; exit 3"]);
    assert_eq!((status, &*stdout), (Some(3), "runs\n"));
    assert!(stderr.contains("no server answers") && stderr.contains("runs without a lock"), "{stderr}");
}

#[test]
fn a_server_that_comes_late_is_waited_for() {
    let free = nowhere();
    let waiting = start(&free, &["--retry", "--timeout", "30"], &["echo", "runs"]);
    thread::sleep(Duration::from_millis(700));
    let _daemon = Daemon::start(&["-l", &free]);
    assert_eq!(waiting.finish(), Ended { status: Some(0), stdout: "runs\n".into(), stderr: String::new() });
    let begun = Instant::now();
    let ended = run(&nowhere(), &["--retry", "--timeout", "0.6", "--fail-open"], &["echo", "runs"]);
    assert_eq!((ended.status, &*ended.stdout), (Some(0), "runs\n"));
    assert!(begun.elapsed() >= Duration::from_millis(600));
}

#[test]
fn a_server_that_drains_is_like_a_dead_one() {
    let draining = Strange::start(b"ERROR DRAINING\n").address;
    let (_daemon, server, _) = daemon();
    let run = |options: &[&str]| run(&draining, options, &["echo", "runs"]);
    for n in 0..4 {
        let key = format!("k{n}");
        assert_eq!(run(&["-s", &server, "-k", &key]).status, Some(0), "the next server is asked");
    }
    let Ended { status, stderr, .. } = run(&["--retry", "-t", "0.7"]);
    assert_eq!((status, stderr.contains("it drains")), (Some(69), true), "{stderr}");
    let Ended { status, stdout, .. } = run(&["--fail-open"]);
    assert_eq!((status, &*stdout), (Some(0), "runs\n"));
}

// Signals

#[test]
fn signals_are_passed_on() {
    let (_daemon, server, mut observer) = daemon();
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGALRM, "ALRM"),
    ] {
        let script = format!("trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.02; done");
        let mut exec = start(&server, &[], &["sh", "-c", &script]);
        assert_eq!(exec.line(), "ready");
        exec.signal(signal);
        let Ended { status, stdout, .. } = exec.finish();
        assert_eq!((status, stdout), (Some(5), format!("got {name}\n")));
    }
    // A command without a handler of its own ends, and so does `exec`, with the shells' status.
    let mut exec = start(&server, &[], &["sh", "-c", "echo ready; exec sleep 60"]);
    assert_eq!(exec.line(), "ready");
    exec.signal(Signal::SIGTERM);
    assert_eq!(exec.finish().status, Some(143));
    assert_given_back(&mut observer);
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let (_daemon, server, _) = daemon();
    let script = format!(
        "trap '' HUP; exec {} exec -s {server} -k k -- sh -c 'kill -HUP $PPID; sleep 0.2; kill -HUP $$; echo alive'",
        Daemon::program()
    );
    let ended = running::end_of(Command::new("sh").args(["-c", &script]));
    assert_eq!((ended.status, &*ended.stdout), (Some(0), "alive\n"));
}

#[test]
fn a_parent_that_ignores_its_children_does_no_harm() {
    let (_daemon, server, _) = daemon();
    let script = format!("trap '' CHLD; exec {} exec -s {server} -k k -- sh -c 'sleep 0.1; exit 7'", Daemon::program());
    let status = Command::new("sh").args(["-c", &script]).status().expect("a shell");
    assert_eq!(status.code(), Some(7));
}

#[test]
fn a_signal_ends_the_wait() {
    let (_daemon, server, mut holder) = daemon();
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    let mut exec = start(&server, &[], &["echo", "runs"]);
    holder.wait_for_stat("waiting_workers", 1);
    exec.signal(Signal::SIGINT);
    assert!(!wait(&mut exec.child).success());
    holder.wait_for_stat("waiting_workers", 0);
}

#[test]
fn signals_end_the_wait_of_process_one() {
    let (_daemon, server, mut holder) = daemon();
    let within = ["--pid", "--fork", "--kill-child"];
    if !Command::new("unshare").args(within).arg("true").status().is_ok_and(|status| status.success()) {
        return skipped("the first process of a container, because unshare may not make one");
    }
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    // The script is process 1, and then `exec` is.
    let script = "(sleep 0.3; kill -TERM 1) & exec \"$0\" exec -s \"$1\" -k k -- echo runs";
    let mut unshare = Command::new("unshare");
    let ended = Running::start(unshare.args(within).args(["sh", "-c", script, Daemon::program(), &server])).finish();
    assert_eq!((ended.status, ended.stdout), (Some(143), String::new()));
}

#[test]
fn a_key_that_the_caller_holds_is_refused() {
    let (_daemon, server, _) = daemon();
    let nested = |workers: &str, key: &str, other: &str| {
        let program = Daemon::program();
        let script = format!("{program} exec -s {server} -k {key} -w {workers} {other} -- echo runs; exit $?");
        run(&server, &[], &["sh", "-c", &script])
    };
    for (workers, key, other) in [("1", "k", ""), ("1", "other", "--also k:1")] {
        let Ended { status, stdout, stderr } = nested(workers, key, other);
        assert_eq!((status, stdout), (Some(64), String::new()));
        let said = "poolcounter: k: this runs in a command that holds the key, and would wait for itself (see ";
        assert!(stderr.starts_with(said), "{stderr}");
    }
    for (workers, key) in [("2", "k"), ("1", "other")] {
        assert_eq!(nested(workers, key, "").status, Some(0));
    }
    // A process that has outlived `exec` is no part of its command.
    let scratch = Scratch::new();
    let script = format!(
        "(sleep 0.3; {} exec -s {server} -k k -- true; echo $? >{}) >/dev/null 2>&1 &",
        Daemon::program(),
        scratch.file("status").display()
    );
    assert_eq!(run(&server, &[], &["sh", "-c", &script]).status, Some(0));
    until("status 0", || fs::read_to_string(scratch.file("status")).is_ok_and(|status| status == "0\n"));
}

// Losses

#[test]
fn a_lost_lock_is_reported_and_ends_the_command_if_wanted() {
    for (action, status, told) in [
        ("warn", 3, "the command runs on without it"),
        ("term", 143, "the command is terminated"),
        ("kill", 137, "the command is killed"),
    ] {
        let (mut daemon, server, _) = daemon();
        let script = "echo runs; read line; exit 3";
        let mut exec = start(&server, &["--on-lost", action], &["sh", "-c", script]);
        assert_eq!(exec.line(), "runs");
        daemon.signal(Signal::SIGTERM);
        daemon.wait();
        let line = exec.error_line();
        assert_eq!(line, format!("poolcounter: k: the lock is lost, because the connection is gone; {told}"));
        if action == "warn" {
            drop(exec.child.stdin.take());
        }
        assert_eq!(wait(&mut exec.child).code(), Some(status), "{action}");
    }
}

#[test]
fn a_hold_that_is_over_is_a_lock_that_is_lost() {
    let (_daemon, server, mut observer) = daemon();
    let begun = Instant::now();
    let exec = start(&server, &["--hold", "0.3", "--on-lost", "term"], &["sleep", "60"]);
    observer.wait_for_stat("total_acquired", 1);
    assert_eq!(observer.ask("ACQ4ME k 1 9 60"), "LOCKED");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    let Ended { status, stderr, .. } = exec.finish();
    assert_eq!(status, Some(143));
    assert!(stderr.contains("the lock is lost, because its time is over"), "{stderr}");
}

/// The server has a shorter limit, which it does not announce.
#[test]
fn the_key_is_kept_for_the_least_time() {
    let (_daemon, server, mut observer) = daemon();
    let least = ["--at-least", "60", "--who", "db1"];
    for (command, status) in [("true", 0), ("exit 3", 3)] {
        let key = ["-k", command];
        let ended = run(&server, &[&least[..], &key].concat(), &["sh", "-c", command]);
        assert_eq!(ended, Ended::silent(status));
        let Ended { status, stderr, .. } = run(&server, &[&key[..], &["-t", "0"]].concat(), &["true"]);
        assert_eq!(status, Some(75));
        assert!(stderr.contains("; db1 has ended, and the key is kept for "), "{stderr}");
    }
    assert_eq!(observer.stat("kept_locks"), 2);
    for options in [&["--also", "u:1"][..], &["--hold", "59"]] {
        let Ended { status, stderr, .. } = run(&server, &[&least[..], options].concat(), &["true"]);
        assert!(status == Some(64) && stderr.contains("--at-least "), "{stderr}");
    }
}

#[test]
fn a_hold_that_the_server_limits_is_a_lock_that_is_lost() {
    let daemon = Daemon::start(&["--max-hold", "0.1"]);
    let server = daemon.address.to_string();
    let Ended { status, stderr, .. } = run(&server, &["--hold", "60", "--on-lost", "kill"], &["sleep", "60"]);
    assert_eq!(status, Some(137));
    assert!(stderr.contains("the lock is lost, because an operator or a limit of the "), "{stderr}");
}

// Messages

#[test]
fn a_terminal_shows_the_wait() {
    let (_daemon, server, mut holder) = daemon();
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    let terminal = pty::open();
    let mut child = exec(&["-s", &server, "-k", "k", "--timeout", "2.5"], &["true"])
        .stderr(Stdio::from(terminal.slave))
        .spawn()
        .expect("the program runs");
    assert_eq!(wait(&mut child).code(), Some(75));
    let mut shown = Vec::new();
    // After the last close of the other side, a pseudo terminal returns an error.
    let _ = File::from(terminal.master).read_to_end(&mut shown);
    let shown = String::from_utf8(shown).expect("is text");
    let (said, holder) = shown.split_once("; ").expect("why, and who");
    assert_eq!(
        said,
        "\r\x1b[Kwaiting for k, 1 s of 2.5\r\x1b[Kwaiting for k, 2 s of 2.5\r\x1b[K\
         poolcounter: k: TIMEOUT, as no lock came free within 2.5 s"
    );
    assert!(holder.ends_with(" s\r\n"), "{holder:?}");
}
