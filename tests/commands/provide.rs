//! `poolcounter provide` that drains, is killed, is cut off, or whose commands print nonsense.

use super::members_shell::{Server, lines_of, provide, server, start_program, states, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::cut::CutProxy;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, until, wait};
use poolcounter_testkit::running::Running;
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Command of a member that is a process, which writes its number to a file of its own name.
const PROCESS: &str = "echo $$ > pid$POOL_START_ID; echo m$POOL_START_ID; exec sleep 1000";

fn lives(scratch: &Scratch, member: u32) -> bool {
    let pid = lines_of(&scratch.file(&format!("pid{member}"))).first().and_then(|pid| pid.parse().ok());
    pid.is_some_and(|pid| kill(Pid::from_raw(pid), None).is_ok())
}

#[test]
fn a_provider_that_drains_waits_for_members_in_use() {
    let (server, mut operator) = server("2 3");
    let scratch = Scratch::new();
    let mut provider = provide(&server, &scratch, PROCESS, &[]);
    wait_for(&mut operator, "m1 free m2 free");
    let taken = operator.ask("TAKE p 0 member=m1");
    let lease = taken.split(' ').nth(1).expect("it is free");
    provider.signal(Signal::SIGUSR2);
    wait_for(&mut operator, "m1 in_use");
    until("the end of m2", || !lives(&scratch, 2));
    assert!(operator.ask("TAKE p 0").starts_with("NO_MEMBERS "), "nothing is started");
    thread::sleep(Duration::from_millis(1500));
    assert!(lives(&scratch, 1) && provider.child.try_wait().expect("is ours").is_none());
    assert_eq!(operator.ask(&format!("RETURN {lease}")), "RETURNED");
    let ended = provider.finish();
    assert_eq!((ended.status, &*ended.stderr), (Some(0), ""));
    assert!(!lives(&scratch, 1) && !scratch.file("pid3").exists());
    assert_eq!(states(&mut operator), "");
}

/// It has the right to provide only, and cannot list members.
#[test]
fn a_provider_without_the_right_to_list_members_drains() {
    let scratch = Scratch::new();
    let config = scratch.file("toml");
    let rule = "[[access]]\nwho = [\"all\"]\nmay = [\"members:provide\", \"members:take\"]\n";
    fs::write(&config, format!("[[members.pool]]\nname = \"p\"\nmax = 1\n\n{rule}")).expect("can be written");
    let daemon = Daemon::start_with_members(&["--config", config.to_str().expect("is text")]);
    let server = Server { address: daemon.members().to_string(), daemon };
    let mut consumer = Client::to(server.address.parse().expect("is an address"));
    let mut provider = provide(&server, &scratch, PROCESS, &[]);
    let taken = consumer.ask("TAKE p 30");
    let lease = taken.split(' ').nth(1).expect("it is started");
    provider.signal(Signal::SIGUSR2);
    thread::sleep(Duration::from_millis(1500));
    assert!(lives(&scratch, 1) && provider.child.try_wait().expect("is ours").is_none());
    assert_eq!(consumer.ask(&format!("RETURN {lease}")), "RETURNED");
    let ended = provider.finish();
    assert_eq!((ended.status, &*ended.stderr), (Some(0), ""));
    assert!(!lives(&scratch, 1));
}

/// A second signal ends the wait; a drain with no member in use ends at once.
#[test]
fn a_drain_can_be_cut_short() {
    let (server, mut operator) = server("1 1");
    let scratch = Scratch::new();
    let provider = provide(&server, &scratch, PROCESS, &[]);
    wait_for(&mut operator, "m1 free");
    assert!(operator.ask("TAKE p").starts_with("MEMBER "));
    provider.signal(Signal::SIGUSR2);
    thread::sleep(Duration::from_millis(300));
    provider.signal(Signal::SIGTERM);
    assert_eq!(provider.finish().status, Some(0));
    assert!(operator.line().ends_with(" withdrawn"));
    let provider = provide(&server, &scratch, PROCESS, &[]);
    until("a member", || states(&mut operator).ends_with(" free"));
    provider.signal(Signal::SIGUSR2);
    assert_eq!(provider.finish().status, Some(0));
}

#[test]
fn processes_of_members_end_with_a_provider_that_is_killed() {
    let (server, mut operator) = server("2 2");
    let scratch = Scratch::new();
    let start = "test $POOL_START_ID = 1 || trap '' TERM
        sleep 1000 & echo $! > child$POOL_START_ID
        echo $$ > pid$POOL_START_ID; echo m$POOL_START_ID; while :; do sleep 0.1; done";
    let provider = provide(&server, &scratch, start, &[]);
    wait_for(&mut operator, "m1 free m2 free");
    assert!(lives(&scratch, 1) && lives(&scratch, 2));
    let children: Vec<i32> =
        [1, 2].map(|n| lines_of(&scratch.file(&format!("child{n}")))[0].parse().expect("is a number")).into();
    provider.signal(Signal::SIGKILL);
    until("the end of both", || !lives(&scratch, 1) && !lives(&scratch, 2));
    until("the end of what they have started", || {
        children.iter().all(|child| kill(Pid::from_raw(*child), None).is_err())
    });
}

#[test]
fn a_wrong_line_is_shown_with_its_fault() {
    let (server, mut operator) = server("5 5");
    let scratch = Scratch::new();
    let start = "case $POOL_START_ID in
        1) echo 'm b=';;
        2) echo 'm n=5';;
        3) echo m $(seq -f 'a%g=1' 17);;
        4) printf 'm\\033 Starting up\\n';;
        *) echo m$POOL_START_ID;;
    esac";
    let provider = provide(&server, &scratch, start, &[]);
    until("the others are there", || states(&mut operator).matches(" free").count() == 5);
    provider.signal(Signal::SIGTERM);
    let said = provider.finish().stderr;
    for (line, rule) in [
        ("\"m b=\"", "empty"),
        ("\"m n=5\"", "an attribute has the name of an option"),
        ("\"m a1=1 a2=1 ", "a member has at most 16 attributes, of 1 KiB together"),
        ("\"m\\u{1b} Starting up\"", "attributes are name=value"),
    ] {
        let is_it = |said: &&str| said.contains(line) && said.contains(rule);
        assert!(said.lines().any(|line| is_it(&line)), "{line} {rule}: {said}");
    }
}

/// Starts a provider whose connection to the server can be cut.
fn provide_through(proxy: &CutProxy, scratch: &Scratch, options: &[&str]) -> Running {
    let command = format!("cd {}; {PROCESS}", scratch.file("").display());
    start_program(&[&["provide", "p", "-s", &proxy.address.to_string(), "--start", &command], options].concat())
}

/// A member may die during a cut: its death is reported after it.
#[test]
fn a_member_that_dies_during_a_cut_is_reported() {
    let (server, mut operator) = server("2 4 provider_grace=60");
    let scratch = Scratch::new();
    let proxy = CutProxy::to(server.address.parse().expect("is an address"));
    let _provider = provide_through(&proxy, &scratch, &[]);
    wait_for(&mut operator, "m1 free m2 free");
    server.daemon.signal(Signal::SIGSTOP);
    proxy.cut();
    let pid: i32 = lines_of(&scratch.file("pid2"))[0].parse().expect("is a number");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("is ours");
    thread::sleep(Duration::from_millis(500));
    proxy.forget();
    server.daemon.signal(Signal::SIGCONT);
    until("m2 is replaced", || states(&mut operator) == "m1 free m3 free");
    assert!(lives(&scratch, 1));
}

/// A pause of the daemon is no loss, although the provider has a message to send meanwhile.
#[test]
fn a_provider_is_patient_with_a_pause() {
    let (server, mut operator) = server("2 2");
    let scratch = Scratch::new();
    let provider = provide(&server, &scratch, PROCESS, &[]);
    wait_for(&mut operator, "m1 free m2 free");
    server.daemon.signal(Signal::SIGSTOP);
    let pid: i32 = lines_of(&scratch.file("pid2"))[0].parse().expect("is a number");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("is ours");
    thread::sleep(Duration::from_secs(7));
    server.daemon.signal(Signal::SIGCONT);
    wait_for(&mut operator, "m1 free m3 free");
    assert!(lives(&scratch, 1));
    provider.signal(Signal::SIGTERM);
    let said = provider.finish().stderr;
    assert!(!said.contains("the connection is lost"), "{said}");
}

/// The restarted server lists no member, so the processes are stopped, and others started.
#[test]
fn a_drain_goes_on_after_a_restart() {
    let (first, mut operator) = server("1 1");
    let scratch = Scratch::new();
    let mut provider = provide(&first, &scratch, PROCESS, &[]);
    wait_for(&mut operator, "m1 free");
    assert!(operator.ask("TAKE p").starts_with("MEMBER "));
    provider.signal(Signal::SIGUSR2);
    thread::sleep(Duration::from_millis(300));
    let address = first.address.clone();
    drop((first, operator));
    let _second = Server::start_on(&address);
    let mut operator = Client::to(address.parse().expect("is an address"));
    assert_eq!(operator.ask("POOL p 1 1"), "OK");
    wait(&mut provider.child);
    assert_eq!(provider.finish().status, Some(0));
    assert!(!lives(&scratch, 1));
    assert_eq!(states(&mut operator), "");
}

/// Starts a server that reads two lines of each connection, answers them, and then closes it.
fn listening(answers: Vec<[&'static str; 2]>) -> (String, Receiver<[String; 2]>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("is bound").to_string();
    let (sender, heard) = channel();
    thread::spawn(move || {
        for (answers, stream) in answers.into_iter().zip(listener.incoming().map_while(Result::ok)) {
            let mut lines = BufReader::new(&stream).lines();
            let said = answers.map(|answer| {
                let line = lines.next().and_then(Result::ok).unwrap_or_default();
                (&stream).write_all(answer.as_bytes()).expect("it reads");
                line
            });
            sender.send(said).expect("the test waits");
        }
    });
    (address, heard)
}

#[test]
fn a_session_is_kept_over_connections() {
    let (address, heard) = listening(vec![["OK\n!START p 1\n", "OK\n"], ["OK\n", "\n"]]);
    let _provider = start_program(&["provide", "p", "-s", &address, "--start", "echo m1", "--capacity", "3"]);
    let next = || heard.recv_timeout(PATIENCE).expect("it connects again");
    let [first, started] = next();
    let name = first.strip_prefix("PROVIDE p 3 session=").expect("it names a session");
    assert!(name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    assert_eq!(started, "STARTED 1 m1");
    assert_eq!(next(), [&*first, "MEMBERS p"]);
}
