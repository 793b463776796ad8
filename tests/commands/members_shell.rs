//! `poolcounter take`, `provide` and `members` as processes, with the real daemon: when they run commands, how they
//! end, and the fate of the members.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::{Client, Daemon, until, wait};
use poolcounter_testkit::original::nowhere;
use poolcounter_testkit::running::{Ended, Running};
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Command that prints a line, and ends when its standard input does.
pub const UNTIL_EOF: &str = "echo runs; cat";

pub fn start_program(arguments: &[&str]) -> Running {
    Running::start(Command::new(Daemon::program()).args(arguments).env("POOL_ATTR_stale", "of another member"))
}

pub fn take(server: &Server, options: &[&str], script: &str) -> Running {
    let start_of = ["take", "p", "-s", &server.address];
    start_program(&[&start_of, options, &["--", "sh", "-c", script]].concat())
}

/// Starts a provider for the pool p, whose commands run in the directory.
pub fn provide(server: &Server, scratch: &Scratch, command: &str, options: &[&str]) -> Running {
    let command = format!("cd {}; {command}", scratch.file("").display());
    start_program(&[&["provide", "p", "-s", &server.address, "--start", &command], options].concat())
}

/// Daemon with members, which is killed when this is dropped.
pub struct Server {
    pub daemon: Daemon,
    /// Address of its members.
    pub address: String,
}

impl Server {
    pub fn start_on(address: &str) -> Server {
        let daemon = Daemon::start(&["--members", "--members-listen", address]);
        Server { address: daemon.members().to_string(), daemon }
    }
}

/// Returns a server with the pool p of these settings, and an operator's connection.
pub fn server(settings: &str) -> (Server, Client) {
    let server = Server::start_on("127.0.0.1:0");
    let mut operator = Client::to(server.address.parse().expect("is an address"));
    assert_eq!(operator.ask(&format!("POOL p {settings}")), "OK");
    (server, operator)
}

/// Returns such a server, with fixed members.
pub fn server_with(settings: &str, members: &[&str]) -> (Server, Client) {
    let (server, mut operator) = server(settings);
    members.iter().for_each(|member| assert_eq!(operator.ask(&format!("ADD p {member}")), "OK"));
    (server, operator)
}

/// Returns the states of the pool's members, by name: `a free b in_use`.
pub fn states(operator: &mut Client) -> String {
    operator.send(b"MEMBERS p\n");
    let mut states = Vec::new();
    loop {
        let line = operator.line();
        if line.is_empty() {
            return states.join(" ");
        }
        states.extend(line.split(' ').take(2).map(String::from));
    }
}

pub fn wait_for(operator: &mut Client, wanted: &str) {
    until(&format!("{wanted:?}"), || states(operator) == wanted);
}

pub fn lines_of(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(String::from).collect()
}

// take

#[test]
fn the_command_knows_its_member_and_returns_it() {
    let (server, mut operator) = server_with("0 2", &["phone-1 os=android serial.no=%20x"]);
    let show = "echo $POOL_NAME $POOL_MEMBER $POOL_ATTR_os $POOL_ATTR_serial_no [$POOL_ATTR_stale$POOL_TOKEN]; cat";
    let mut run = take(&server, &["--attr", "os=android"], show);
    assert_eq!(run.line(), "p phone-1 android %20x []");
    assert_eq!(states(&mut operator), "phone-1 in_use");
    assert_eq!(run.finish(), Ended::silent(0));
    wait_for(&mut operator, "phone-1 free");
}

#[test]
fn the_exit_status_decides_how_the_member_is_returned() {
    let (server, mut operator) = server_with("0 1", &["m"]);
    for (options, script, status, state) in [
        (&[][..], "exit 3", 3, "m quarantined"),
        (&["--fail-on", "9"], "exit 3", 3, "m free"),
        (&["--fail-on", "9", "--fail-on", "3"], "exit 3", 3, "m quarantined"),
        (&["--fail-on", "3"], "exit 0", 0, "m free"),
        (&[], "kill -KILL $$", 137, "m quarantined"),
    ] {
        assert_eq!(take(&server, options, script).finish().status, Some(status), "{script}");
        wait_for(&mut operator, state);
        assert_eq!(operator.ask("REPAIR p m"), "OK");
    }
    let missing = start_program(&["take", "p", "-s", &server.address, "--", "/no/such/command"]).finish();
    assert_eq!(missing.status, Some(127));
    assert_eq!(states(&mut operator), "m free", "nothing has touched it");
}

#[test]
fn several_members_have_numbers() {
    let (server, mut operator) = server_with("0 3 order=fifo", &["a x=1", "b x=2", "c"]);
    let script = "echo $POOL_MEMBERS: $POOL_MEMBER_1 $POOL_ATTR_1_x, $POOL_MEMBER_2 $POOL_ATTR_2_x; cat";
    let mut run = take(&server, &["-n", "2"], script);
    assert_eq!(run.line(), "a b: a 1, b 2");
    assert_eq!(states(&mut operator), "a in_use b in_use c free");
    let too_many = take(&server, &["-n", "4"], "true").finish();
    assert_eq!(too_many.status, Some(76));
    assert_eq!(too_many.stderr, "poolcounter: p: this is more than the pool or the server can have (TOO_MANY)\n");
    assert_eq!(run.finish().status, Some(0));
    wait_for(&mut operator, "a free b free c free");
}

#[test]
fn without_a_member_the_status_says_to_try_later() {
    let (server, mut operator) = server_with("0 1", &["m"]);
    assert!(operator.ask("TAKE p").starts_with("MEMBER "));
    for (timeout, sentence) in [("0", "all members are in use"), ("0.05", "no member came free in time")] {
        let ended = take(&server, &["--timeout", timeout], "true").finish();
        assert_eq!((ended.status, ended.stderr), (Some(75), format!("poolcounter: p: {sentence}\n")));
    }
    let (empty, _operator) = server_with("0 1", &[]);
    let ended = take(&empty, &["--timeout", "0.05"], "true").finish();
    assert_eq!(ended.stderr, "poolcounter: p: no member came: is there a provider, and do its starts succeed?\n");
    let nowhere = nowhere();
    assert_eq!(start_program(&["take", "p", "-s", &nowhere, "--", "true"]).finish().status, Some(69));
    assert_eq!(start_program(&["take", "q", "-s", &server.address, "--", "true"]).finish().status, Some(76));
    for words in [&["p"][..], &["--", "true"], &["p", "q", "--", "true"], &["p", "--attr", "x", "--", "true"]] {
        assert_eq!(
            start_program(&[&["take", "-s", &server.address], words].concat()).finish().status,
            Some(64),
            "{words:?}"
        );
    }
}

/// A take with a time to wait asks again while the queue is full; one without is refused at once.
#[test]
fn a_full_queue_is_waited_for() {
    let (server, mut operator) = server_with("0 1 queue=0", &["m"]);
    let taken = operator.ask("TAKE p");
    let lease = taken.split(' ').nth(1).expect("it is free");
    let refused = take(&server, &[], "true").finish();
    assert_eq!((refused.status, &*refused.stderr), (Some(79), "poolcounter: p: too many wait already\n"));
    assert_eq!(take(&server, &["--timeout", "0.2"], "true").finish().status, Some(75));
    let waits = take(&server, &["--timeout", "60"], "true");
    assert_eq!(operator.ask(&format!("RETURN {lease}")), "RETURNED");
    assert_eq!(waits.finish().status, Some(0));
}

#[test]
fn a_member_that_is_taken_back_is_lost_to_the_command() {
    let (server, mut operator) = server_with("0 1", &["m"]);
    assert_eq!(operator.ask("IDENTIFY ann@desk"), "OK");
    let reason = "poolcounter: the member m is lost, because an operator took it back (ann@desk: urgent)";
    for (choice, status, consequence) in [
        ("warn", 0, "the command runs on without it"),
        ("term", 143, "the command is terminated"),
        ("kill", 137, "the command is killed"),
    ] {
        let mut run = take(&server, &["--on-lost", choice], "echo $POOL_LEASE; exec cat");
        let lease = run.line();
        assert_eq!(operator.ask(&format!("TAKEBACK {lease} urgent")), "OK");
        if choice == "warn" {
            // The holder is notified before the command ends, which happens when its input does.
            wait_for(&mut operator, "m quarantined");
            thread::sleep(Duration::from_millis(100));
        } else {
            wait(&mut run.child);
        }
        let ended = run.finish();
        assert_eq!((ended.status, ended.stderr), (Some(status), format!("{reason}; {consequence}\n")));
        assert_eq!(operator.ask("REPAIR p m"), "OK");
    }
}

#[test]
fn a_lease_is_renewed_while_the_command_runs_and_outlives_a_kill() {
    let (server, mut operator) = server_with("0 1 on_loss=ok", &["m"]);
    let mut run = take(&server, &["--lease", "6"], "echo $POOL_TOKEN; cat");
    let token = run.line();
    assert_eq!(token.len(), 32, "{token}");
    thread::sleep(Duration::from_secs(8));
    assert_eq!(states(&mut operator), "m in_use");
    assert_eq!(run.finish(), Ended::silent(0));
    wait_for(&mut operator, "m free");
    let mut run = take(&server, &["--lease", "600"], "echo $POOL_TOKEN; cat");
    let token = run.line();
    run.signal(Signal::SIGKILL);
    wait(&mut run.child);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(states(&mut operator), "m in_use");
    assert_eq!(operator.ask(&format!("RETURN {token}")), "RETURNED");
}

/// The server is restarted on the same address, without its leases.
#[test]
fn a_take_notices_that_the_server_has_ended() {
    let (server, _operator) = server_with("0 1", &["m"]);
    let mut run = take(&server, &["--on-lost", "term"], "echo runs; exec cat");
    assert_eq!(run.line(), "runs");
    let address = server.address.clone();
    drop(server);
    let _server = Server::start_on(&address);
    wait(&mut run.child);
    let ended = run.finish();
    assert_eq!(ended.status, Some(143));
    assert!(ended.stderr.contains("m is lost, because the connection is gone; the command is terminated"), "{ended:?}");
}

#[test]
fn a_take_names_its_member_and_its_holder() {
    let (server, mut operator) = server("0 3 group=g");
    for (name, system) in [("a", "android"), ("b", "ios"), ("c", "ios")] {
        assert_eq!(operator.ask(&format!("ADD p {name} os={system}")), "OK");
    }
    let take = |words: &[&str]| start_program(&[&["take", "-s", &server.address], words].concat());
    let print = ["--", "sh", "-c", "echo $POOL_NAME $POOL_MEMBER"];
    for (words, printed) in [
        (&["p", "--member", "b"][..], "p b\n"),
        (&["--group", "g", "--attr", "os=android"], "p a\n"),
        (&["-g", "g", "--member", "c"], "p c\n"),
    ] {
        let ended = take(&[words, &print].concat()).finish();
        assert_eq!((ended.status, &*ended.stdout, &*ended.stderr), (Some(0), printed, ""), "{words:?}");
    }
    for words in [&["p", "--group", "g", "--", "true"][..], &["p", "--pri", "10", "--", "true"], &["p", "--name", ""]] {
        assert_eq!(take(words).finish().status, Some(64), "{words:?}");
    }
    let unknown = take(&["--group", "h", "--", "true"]).finish();
    assert_eq!((unknown.status, &*unknown.stderr), (Some(76), "poolcounter: h: there is no such pool (NO_POOL)\n"));

    let mut holder = take(&["p", "-n", "3", "--name", "ci job 7", "--", "sh", "-c", UNTIL_EOF]);
    assert_eq!(holder.line(), "runs");
    operator.send(b"MEMBERS p limit=1\n");
    assert!(operator.line().starts_with("a in_use ci%20job%207 "));
    assert_eq!(operator.line(), "");
    // The urgent take comes later, and is served before the other.
    let queued = |operator: &mut Client, count: &str| {
        until("they wait", || operator.ask("UTILIZATION p").contains(&format!(" queued {count} ")));
    };
    let mut patient = take(&["p", "--pri", "9", "--member", "a", "--", "sh", "-c", UNTIL_EOF]);
    queued(&mut operator, "1");
    let mut urgent = take(&["p", "--pri", "0", "--member", "a", "--", "sh", "-c", UNTIL_EOF]);
    queued(&mut operator, "2");
    assert_eq!(holder.finish().status, Some(0));
    assert_eq!(urgent.line(), "runs");
    queued(&mut operator, "1");
    assert_eq!(urgent.finish().status, Some(0));
    assert_eq!(patient.line(), "runs");
    assert_eq!(patient.finish().status, Some(0));
}

// provide

/// Fixed members have no provider: a cleaner from the shell cleans them, finishes its work before it ends, and leaves a
/// member in quarantine if the cleaning hangs or fails.
#[test]
fn a_cleaner_cleans_fixed_members() {
    let (server, mut operator) = server_with("0 3 clean_timeout=60 clean_attempts=1", &["a", "b", "c"]);
    let scratch = Scratch::new();
    let clean = format!(
        "cd {}; echo $POOL_NAME $POOL_MEMBER >> cleaned
        case $POOL_MEMBER in
            b) exit 1;;
            c) trap 'exit 0' TERM; sleep 1000 & wait;;
        esac
        until test -e go; do sleep 0.01; done",
        scratch.file("").display()
    );
    let cleaner = || start_program(&["provide", "p", "-s", &server.address, "--clean", &clean, "--timeout", "1"]);
    let returned = |operator: &mut Client, member: &str| {
        let taken = operator.ask(&format!("TAKE p 10 member={member}"));
        let lease = taken.split(' ').nth(1).expect("it is free").to_string();
        assert_eq!(operator.ask(&format!("RETURN {lease}")), "RETURNED");
    };
    ["b", "c"].iter().for_each(|member| returned(&mut operator, member));
    let Ended { status, stderr, .. } = take(&server, &["--member", "b", "--timeout", "0.05"], "true").finish();
    let why = "no member came free in time (2 to be cleaned, and no cleaner is connected)";
    assert_eq!((status, stderr), (Some(75), format!("poolcounter: p: {why}\n")));
    let first = cleaner();
    wait_for(&mut operator, "a free b quarantined c quarantined");
    fs::write(scratch.file("go"), "").expect("there is room");
    returned(&mut operator, "a");
    wait_for(&mut operator, "a free b quarantined c quarantined");
    fs::remove_file(scratch.file("go")).expect("is there");
    returned(&mut operator, "a");
    until("it is begun", || lines_of(&scratch.file("cleaned")).len() == 4);
    first.signal(Signal::SIGTERM);
    let second = cleaner();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(states(&mut operator), "a cleaning b quarantined c quarantined");
    fs::write(scratch.file("go"), "").expect("there is room");
    wait_for(&mut operator, "a free b quarantined c quarantined");
    let ended = first.finish();
    assert_eq!(ended.status, Some(0));
    let mut said: Vec<&str> = ended.stderr.lines().collect();
    said.sort_unstable();
    let late = "poolcounter: p: --clean of c: it took longer than 1 s";
    assert_eq!(said, ["poolcounter: p: --clean of b: it ended with status 1", late]);
    let mut cleaned = lines_of(&scratch.file("cleaned"));
    cleaned.sort();
    assert_eq!(cleaned, ["p a", "p a", "p b", "p c"], "nothing is cleaned twice");
    second.signal(Signal::SIGTERM);
    assert_eq!(second.finish(), Ended::silent(0));
    for words in [&[][..], &["--clean", "true", "--capacity", "2"], &["--clean", "true", "--check", "true"]] {
        let ended = start_program(&[&["provide", "p", "-s", &server.address], words].concat()).finish();
        assert_eq!(ended.status, Some(64), "{words:?}");
    }
}

/// A provider lets a cleaning run to its end before it ends itself, and starts nothing in place of what it withdraws.
#[test]
fn a_provider_that_ends_cleans_to_the_end() {
    let (server, mut operator) = server("1 3 clean_timeout=60");
    let scratch = Scratch::new();
    let log = scratch.file("log");
    let note = |what: &str| format!("echo {what} $POOL_MEMBER >> {}", log.display());
    let start = format!("{}; echo m$POOL_START_ID", note("start"));
    let until_go = format!("until test -e {}; do sleep 0.01; done", scratch.file("go").display());
    let clean = format!("{}; {until_go}; {}", note("clean"), note("cleaned"));
    let first = provide(&server, &scratch, &start, &["--clean", &clean]);
    wait_for(&mut operator, "m1 free");
    let taken = operator.ask("TAKE p 10");
    let lease = taken.split(' ').nth(1).expect("it is free");
    assert_eq!(operator.ask(&format!("RETURN {lease}")), "RETURNED");
    until("it is begun", || lines_of(&log).len() == 2);
    first.signal(Signal::SIGTERM);
    wait_for(&mut operator, "");
    thread::sleep(Duration::from_millis(200));
    assert_eq!(lines_of(&log), ["start", "clean m1"]);
    fs::write(scratch.file("go"), "").expect("there is room");
    assert_eq!(first.finish(), Ended::silent(0));
    assert_eq!(lines_of(&log), ["start", "clean m1", "cleaned m1"]);
    assert_eq!(states(&mut operator), "");
}

#[test]
fn a_provider_starts_checks_cleans_and_stops() {
    let (server, mut operator) = server("0 2 check_on_take=0.001 clean_timeout=9");
    let scratch = Scratch::new();
    let log = scratch.file("log");
    let note = |what: &str| format!("echo {what} $POOL_NAME $POOL_MEMBER >> {}", log.display());
    let start = format!("{}; echo m$POOL_START_ID host=h$POOL_START_ID", note("start"));
    let (stop, check, clean) = (note("stop"), note("check"), note("clean"));
    let provider =
        provide(&server, &scratch, &start, &["--stop", &stop, "--check", &check, "--clean", &clean, "--capacity", "1"]);
    for _ in 0..2 {
        let ended = take(&server, &[], "echo $POOL_MEMBER $POOL_ATTR_host").finish();
        assert_eq!((ended.status, &*ended.stdout, &*ended.stderr), (Some(0), "m1 h1\n", ""));
        wait_for(&mut operator, "m1 free");
    }
    // Longer than a member may be idle without a check. The capacity is 1, so a second is not started.
    thread::sleep(Duration::from_millis(20));
    assert!(operator.ask("TAKE p 5").starts_with("MEMBER "));
    assert_eq!(take(&server, &["-t", "0"], "true").finish().status, Some(75));
    provider.signal(Signal::SIGTERM);
    let lost = operator.line();
    assert!(lost.starts_with("!LOST ") && lost.ends_with(" withdrawn"), "{lost}");
    assert_eq!(provider.finish(), Ended::silent(0));
    assert_eq!(states(&mut operator), "");
    let expected = ["start p", "clean p m1", "check p m1", "clean p m1", "check p m1", "stop p m1"];
    assert_eq!(lines_of(&log), expected);
}

#[test]
fn a_member_that_fails_is_stopped_and_replaced() {
    let (server, mut operator) = server("1 1");
    let scratch = Scratch::new();
    // The member's process stays in the foreground, and there is no --stop.
    let start = "echo $$ > pid; echo m$POOL_START_ID; exec sleep 1000";
    let _provider = provide(&server, &scratch, start, &[]);
    wait_for(&mut operator, "m1 free");
    let process =
        |scratch: &Scratch| lines_of(&scratch.file("pid")).first().and_then(|pid| pid.parse().ok()).map(Pid::from_raw);
    let first = process(&scratch).expect("it has written that");
    assert_eq!(take(&server, &[], "exit 1").finish().status, Some(1));
    wait_for(&mut operator, "m2 free");
    until("the end of the first process", || kill(first, None).is_err());
    // A process that dies by itself is noticed, and its holder notified.
    let mut run = take(&server, &["--on-lost", "term"], "echo runs; exec cat");
    assert_eq!(run.line(), "runs");
    until("the second process", || process(&scratch).is_some_and(|pid| pid != first));
    kill(process(&scratch).expect("is there"), Signal::SIGKILL).expect("is ours");
    wait(&mut run.child);
    let ended = run.finish();
    assert!(ended.stderr.contains("the member m2 is lost, because it died"), "{ended:?}");
    wait_for(&mut operator, "m3 free");
}

#[test]
fn starts_that_hang_flood_or_die_do_not_stop_a_provider() {
    let (server, mut operator) = server("8 8");
    let scratch = Scratch::new();
    let start = "case $POOL_START_ID in
        1) trap 'touch ended; exit 0' TERM; sleep 1000 & wait;;
        2) exec tr '\\0' x < /dev/zero;;
        3) exit 7;;
        4) printf half; exit 7;;
        5) kill -KILL $$;;
        6) echo '!bad name';;
        7) :;;
        *) echo m$POOL_START_ID; exec yes;;
    esac";
    let provider = provide(&server, &scratch, start, &["--timeout", "1"]);
    until("m8 is there", || states(&mut operator).contains("m8 free"));
    // The member still floods, and can be taken and stopped all the same.
    let taken = operator.ask("TAKE p 0 member=m8");
    let lease = taken.split(' ').nth(1).expect("it is free");
    assert_eq!(operator.ask(&format!("RETURN {lease} FAIL")), "RETURNED");
    until("m8 is stopped", || !states(&mut operator).contains("m8 "));
    until("the end of the one that hangs", || scratch.file("ended").exists());
    provider.signal(Signal::SIGTERM);
    let ended = provider.finish();
    assert_eq!(ended.status, Some(0));
    let expected = [
        "it took longer than 1 s",
        "its first line has more than 8192 bytes",
        "it ended with status 7",
        "it ended with status 7",
        "it ended with status 137",
        "its first line, \"!bad name\", is not NAME [ATTRIBUTE=VALUE ...]: a member's name begins with !",
        "it has printed no name",
    ];
    let mut wanted: Vec<String> = expected.iter().map(|reason| format!("poolcounter: p: --start: {reason}")).collect();
    let mut said: Vec<String> = ended.stderr.lines().map(String::from).collect();
    said.sort();
    wanted.sort();
    assert_eq!(said, wanted);
}

/// A provider whose starts fail, and then succeed; and one that has lost its server.
#[test]
fn recovery_of_a_provider_is_logged_once() {
    let (mut server, mut operator) = server("1 1");
    let scratch = Scratch::new();
    let provider = provide(&server, &scratch, "test $POOL_START_ID -gt 1 && echo m$POOL_START_ID", &[]);
    until("a member is there", || states(&mut operator).ends_with(" free"));
    // The member is returned in good state.
    assert_eq!(operator.ask("TAKE p").split(' ').next(), Some("MEMBER"));
    assert_eq!(operator.ask("BYE"), "BYE");
    assert_eq!(take(&server, &[], "true").finish().status, Some(0), "it can be taken again");
    server.daemon.wait_for_log("a start failed in p");
    let address = server.address.clone();
    drop((server, operator));
    thread::sleep(Duration::from_millis(300));
    let server = Server::start_on(&address);
    let mut operator = Client::to(address.parse().expect("is an address"));
    assert_eq!(operator.ask("POOL p 1 1"), "OK");
    until("a member is there", || states(&mut operator).ends_with(" free"));
    provider.signal(Signal::SIGTERM);
    let said = provider.finish().stderr;
    assert_eq!(said.matches(&format!("p: it is connected to {}", server.address)).count(), 1, "{said}");
}

/// The start times out at the server, which asks for a stop of the late member.
#[test]
fn a_member_that_starts_too_late_is_stopped() {
    let (server, mut operator) = server("0 1 start_timeout=0.2");
    let scratch = Scratch::new();
    let start = "test $POOL_START_ID != 1 || sleep 0.6; echo m$POOL_START_ID";
    let stop = format!("echo $POOL_MEMBER >> {}", scratch.file("stopped").display());
    let _provider = provide(&server, &scratch, start, &["--stop", &stop]);
    assert_eq!(take(&server, &[], "echo $POOL_MEMBER").finish().stdout, "m2\n");
    until("m1 is stopped", || lines_of(&scratch.file("stopped")) == ["m1"]);
    assert_eq!(states(&mut operator), "m2 free");
}

#[test]
fn checks_and_stops_that_hang_are_ended() {
    let (server, mut operator) = server("1 1 check_interval=0.1 check_timeout=0.2 stop_timeout=0.2");
    let scratch = Scratch::new();
    let hang = "test $POOL_MEMBER != m1 || sleep 1000";
    let stop = format!("echo $POOL_MEMBER >> {}; {hang}", scratch.file("stopped").display());
    let provider =
        provide(&server, &scratch, "echo m$POOL_START_ID", &["--check", hang, "--stop", &stop, "--timeout", "0.4"]);
    wait_for(&mut operator, "m2 free");
    // The check has timed out at the server before, and does so at the provider now.
    until("m1 is stopped", || lines_of(&scratch.file("stopped")) == ["m1"]);
    provider.signal(Signal::SIGTERM);
    let ended = provider.finish();
    assert_eq!(ended.status, Some(0));
    assert_eq!(lines_of(&scratch.file("stopped")), ["m1", "m2"]);
    let late = |what: &str| format!("poolcounter: p: --{what} of m1: it took longer than 0.4 s\n");
    assert!(ended.stderr.contains(&late("check")), "{}", ended.stderr);
}

#[test]
fn starts_run_at_the_same_time() {
    let (server, mut operator) = server("5 5");
    let scratch = Scratch::new();
    // Each start waits for all others.
    let start = "touch s$POOL_START_ID; until test $(ls s? | wc -l) = 5; do sleep 0.01; done; echo m$POOL_START_ID";
    let _provider = provide(&server, &scratch, start, &[]);
    wait_for(&mut operator, "m1 free m2 free m3 free m4 free m5 free");
}

// members

#[test]
fn pools_and_members_are_printed() {
    let (server, mut operator) = server_with("0 3 group=g", &["b", "a"]);
    assert_eq!(operator.ask("IDENTIFY ci-job-7"), "OK");
    assert!(operator.ask("TAKE p 0 member=b").starts_with("MEMBER "));
    let print = |words: &[&str]| {
        let ended = start_program(&[&["members", "-s", &server.address], words].concat()).finish();
        assert_eq!((ended.status, &*ended.stderr), (Some(0), ""), "{words:?}");
        ended.stdout
    };
    let pools = print(&[]);
    let cells: Vec<Vec<&str>> = pools.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[0][..4], ["POOL", "GROUP", "MAX", "IN_USE"]);
    assert_eq!(cells[1], ["p", "g", "3", "1", "1", "0", "0", "0", "0", "0", "1000"]);
    let members = print(&["p"]);
    let cells: Vec<Vec<&str>> = members.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[0], ["MEMBER", "STATE", "HOLDER", "AGE", "IDLE", "USES", "HELD_FOR", "LEASE", "EXPIRES", "WHY"]);
    assert_eq!((&cells[1][..3], &cells[2][..3]), (&["a", "free", "-"][..], &["b", "in_use", "ci-job-7"][..]));
    let start = format!(
        "[{{\"server\":\"{}\",\"members\":[{{\"member\":\"a\",\"state\":\"free\",\"holder\":null,",
        server.address
    );
    let json = print(&["--json", "p"]);
    assert!(json.starts_with(&start) && json.contains("\"uses\":1,\"is_long\":false,\"held_for\":"), "{json}");
    let json = print(&["--json"]);
    assert!(json.contains("\"pools\":[{\"pool\":\"p\",\"group\":\"g\",\"max\":3,\"in_use\":1,"), "{json}");
    let ended = start_program(&["members", "-s", &server.address, "q"]).finish();
    let said = format!("poolcounter: {}: there is no such pool (NO_POOL)\n", server.address);
    assert_eq!((ended.status, ended.stderr), (Some(76), said));
}
