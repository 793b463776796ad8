//! The program as a process: its start, its addresses, its log, and its end.

use nix::sys::signal::Signal;
use poolcounter_cli::COMMANDS;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, PROMPT, until};
use poolcounter_testkit::original::installed;
use poolcounter_testkit::running::{Ended, cpu_time, print, run};
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Returns the one sentence with which the program refuses to start.
fn refusal(arguments: &[&str]) -> String {
    refusal_with(1, arguments)
}

fn refusal_with(code: i32, arguments: &[&str]) -> String {
    let Ended { status, stdout, stderr: sentence } = run(arguments);
    assert_eq!(status, Some(code), "{arguments:?}: {sentence}");
    assert!(stdout.is_empty(), "{arguments:?} prints");
    assert_eq!(sentence.lines().count(), 1, "{arguments:?}: {sentence}");
    let sentence = sentence.trim_end().strip_prefix("poolcounter: ").expect("the sentence says who speaks");
    sentence.to_string()
}

fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// Requests a lock on `key` at a local socket, and returns the reply and the connection.
fn lock_at(path: &Path, key: &str) -> (String, UnixStream) {
    let mut stream = UnixStream::connect(path).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    writeln!(stream, "ACQ4ME {key} 1 9 0").expect("is sent");
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).expect("a line comes");
    (line, stream)
}

/// Returns whether the connection ends, in any way.
fn is_closed(stream: &mut impl Read) -> bool {
    !matches!(stream.read(&mut [0; 64]), Ok(len) if len > 0)
}

/// Returns whether this machine has a tool; reports if it does not.
fn has(tool: &str) -> bool {
    let found = installed(&[tool]).is_some();
    if !found {
        poolcounter_testkit::skipped(&format!("what needs {tool}, because it is not installed"));
    }
    found
}

// Starting

#[test]
fn daemon_logs_its_addresses() {
    let mut daemon = Daemon::start(&[]);
    let start = daemon.lines.last().expect("it has said so").clone();
    let address = daemon.address;
    assert_ne!(address.port(), 0, "{start}");
    let version = env!("CARGO_PKG_VERSION");
    assert!(start.ends_with(&format!(" INFO ] poolcounter {version} listens on {address}")), "{start}");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
}

#[test]
fn default_addresses_are_local() {
    let daemon = Daemon::run(Command::new(Daemon::program()).args(["-p", "0"]).stdin(Stdio::null()));
    let start = daemon.lines.last().expect("it has said so");
    let addresses: Vec<&str> =
        start.split(" listens on ").nth(1).unwrap_or_default().split(" and ").map(str::trim).collect();
    assert!(addresses[0].starts_with("127.0.0.1:"), "{start}");
    // A machine may lack IPv6.
    assert!(addresses[1..].iter().all(|address| address.starts_with("[::1]:")), "{start}");
    for address in addresses {
        let mut client = Client::to(address.parse().expect("an address"));
        assert_eq!(client.ask("RELEASE"), "NOT_LOCKED", "{address}");
    }
}

#[test]
fn daemon_listens_on_given_addresses() {
    let scratch = Scratch::new();
    let path = scratch.file("socket");
    let listen = ["-l", "127.0.0.2:0", "--listen", &unix(&path), "-l", "127.0.0.3:0"];
    let daemon = Daemon::run(Command::new(Daemon::program()).args(listen).stdin(Stdio::null()));
    let start = daemon.lines.last().expect("it has said so");
    let last: SocketAddr = start.rsplit(' ').next().expect("a word").parse().expect("an address");
    assert_eq!(
        (daemon.address.ip(), last.ip()),
        (Ipv4Addr::new(127, 0, 0, 2).into(), Ipv4Addr::new(127, 0, 0, 3).into())
    );
    assert!(start.contains(&format!(", {} and ", unix(&path))), "{start}");
    // All addresses lead to the same pools.
    let (first, _holder) = lock_at(&path, "k");
    assert_eq!(first, "LOCKED\n");
    assert_eq!(daemon.connect().ask("ACQ4ME k 1 9 0"), "TIMEOUT");
    assert_eq!(Client::to(last).ask("ACQ4ME k 1 9 0"), "TIMEOUT");
}

#[test]
fn unusable_addresses_are_named() {
    let scratch = Scratch::new();
    let nowhere = unix(&scratch.file("no/socket"));
    for (arguments, named) in [
        (["-l", "nowhere"], "nowhere"),
        (["-l", "127.0.0.1:99999"], "127.0.0.1:99999"),
        (["-l", "192.0.2.1:0"], "192.0.2.1:0"),
        (["-l", &nowhere], &nowhere),
        (["--port", "many"], "many"),
        (["--max-line", "1"], "--max-line"),
        (["--socket-mode", "rw"], "--socket-mode"),
        (["--frobnicate", "1"], "frobnicate"),
        (["-l", "127.0.0.1:0"], "surplus"),
    ] {
        let mut all = arguments.to_vec();
        all.extend((named == "surplus").then_some("surplus"));
        // Well-formed addresses that cannot be opened are not an error of usage.
        let code = if ["192.0.2.1:0", &nowhere].contains(&named) { 1 } else { 64 };
        let sentence = refusal_with(code, &all);
        assert!(sentence.contains(named), "{all:?}: {sentence}");
    }
}

#[test]
fn port_in_use_is_named() {
    let first = Daemon::start(&[]);
    let sentence = refusal(&["-l", &first.address.to_string()]);
    assert!(sentence.starts_with(&format!("cannot listen on {}: ", first.address)), "{sentence}");
    assert_eq!(first.connect().ask("RELEASE"), "NOT_LOCKED");
}

#[test]
fn help_and_version_are_printed() {
    let help = print(&["serve", "--help"]);
    for heading in ["Locks", "Counters", "Members", "Jobs", "Pages", "Administration"] {
        assert!(help.contains(&format!("\n{heading}:\n    ")), "{heading}");
    }
    for option in (COMMANDS[0].options)() {
        assert_ne!(help.contains(&format!("--{} ", option.long)), option.is_hidden, "--{}", option.long);
    }
    assert_eq!(print(&["serve", "-h"]), help);
    assert_eq!(print(&["-h"]), print(&["help"]));
    for option in ["--version", "-V"] {
        assert_eq!(print(&[option]), concat!("poolcounter ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}

// Commands

#[test]
fn daemon_is_a_command_among_others() {
    let named = Daemon::run(Command::new(Daemon::program()).args(["serve", "-l", "127.0.0.1:0"]).stdin(Stdio::null()));
    assert_eq!(named.connect().ask("RELEASE"), "NOT_LOCKED");

    let overview = print(&["help"]);
    assert_eq!(overview, print(&["--help"]));
    assert!(overview.lines().count() <= 40, "{overview}");
    for command in COMMANDS {
        let times = overview.matches(&format!("\n    {} ", command.name)).count();
        assert_eq!(times, 1, "{} stands once in a group", command.name);
        let help = print(&["help", command.name]);
        assert_eq!(help, print(&[command.name, "--help"]), "{}", command.name);
        for option in (command.options)() {
            let is_told = help.contains(&format!("--{} ", option.long));
            assert_ne!(is_told, option.is_hidden, "{}: --{}", command.name, option.long);
        }
        assert_eq!(print(&[command.name, "--version"]), print(&["--version"]));
    }
}

#[test]
fn unknown_commands_are_named() {
    for arguments in
        [&["frobnicate"][..], &["frobnicate", "--help"], &["help", "frobnicate"], &["help", "serve", "frobnicate"]]
    {
        let sentence = refusal_with(64, arguments);
        assert!(sentence.contains("\"frobnicate\""), "{arguments:?}: {sentence}");
    }
    assert!(refusal_with(64, &["serve", "--frobnicate"]).contains("frobnicate"));
}

// The configuration file

#[test]
fn settings_can_stand_in_a_file() {
    let scratch = Scratch::new();
    let (path, socket) = (scratch.file("conf"), scratch.file("socket"));
    fs::write(&path, format!("listen = ['127.0.0.1:0', '{}']\nmax_locks = 1\nmax_line = 100\n", unix(&socket)))
        .expect("can be written");
    let config = path.display().to_string();
    let start = |arguments: &[&str]| {
        Daemon::run(Command::new(Daemon::program()).args(["-c", &config]).args(arguments).stdin(Stdio::null()))
    };
    let daemon = start(&[]);
    assert_eq!(lock_at(&socket, "k").0, "LOCKED\n");
    let mut client = daemon.connect();
    assert_eq!(client.ask("ACQ4ME a 1 1 0"), "LOCKED");
    assert_eq!(client.ask("ACQ4ME b 1 1 0"), "LOCK_HELD");
    assert_eq!(client.ask(&"x".repeat(200)), "ERROR LINE_TOO_LONG");

    // The addresses of the command line replace the addresses of the file, one of which is in use.
    let other = start(&["-l", "127.0.0.1:0", "--max-line", "300"]);
    let mut client = other.connect();
    assert_eq!(client.ask(&"x".repeat(200)), "ERROR BAD_COMMAND");
    assert_eq!(client.ask("ACQ4ME a 1 1 0"), "LOCKED");
    assert_eq!(client.ask("ACQ4ME b 1 1 0"), "LOCK_HELD", "what the command line leaves alone is as in the file");
}

#[test]
fn faults_in_the_file_are_named() {
    let scratch = Scratch::new();
    let path = scratch.file("conf");
    let config = path.display().to_string();
    for (text, named) in [
        ("port = 0\nvirtual_ip = '10.0.0.1'\n", ":2: there is no setting virtual_ip"),
        ("\n\nlisten = ['127.0.0.1:0', 'nowhere']\n", ":3: listen: \"nowhere\" is not an address"),
        ("max_locks = 0\n", ":1: max_locks: \"0\" is not a number from 1 to 1024"),
        ("max_locks\n", ":1: "),
    ] {
        fs::write(&path, text).expect("can be written");
        let sentence = refusal(&["-c", &config]);
        assert!(sentence.starts_with(&format!("{config}{named}")), "{text:?}: {sentence}");
    }
    fs::write(&path, b"# \xff\n").expect("can be written");
    assert!(refusal(&["-c", &config]).starts_with(&format!("{config}: cannot be read: ")));
    fs::write(&path, vec![b'\n'; (1 << 20) + 1]).expect("can be written");
    assert!(refusal(&["-c", &config]).contains("longer than"));
    assert!(refusal(&["-c", "/nowhere"]).starts_with("/nowhere: cannot be read: "));
    assert_eq!(run(&["-c", "/nowhere", "--help"]).status, Some(0), "whoever asks for help gets it");
}

#[test]
fn check_names_mistakes_with_lines_and_corrections() {
    let scratch = Scratch::new();
    let path = scratch.file("conf");
    let config = path.display().to_string();
    let said_of = |text: &str, options: &[&str]| {
        fs::write(&path, text).expect("can be written");
        let Ended { status, stderr, .. } = run(&[&["--check", "-c", &config], options].concat());
        let said = stderr.lines().map(|line| line.replace("poolcounter: ", "").replace(&*config, "F"));
        (status, said.collect::<Vec<String>>())
    };
    let lines = |lines: &[&str]| lines.iter().map(ToString::to_string).collect::<Vec<_>>();
    let text = "listn = ['1.2.3.4']\nmax_hodl = 3\nhttp = 7580\njobs = true\njobs_port = 1\n[[access]]\nwho = ['al']\nmya = []\n";
    let named = [
        "F:1: there is no setting listn; did you mean listen?",
        "F:2: there is no setting max_hodl; did you mean max_hold?",
        "F:3: http: \"7580\" is not an address; use 127.0.0.1:7580",
        "F:4: jobs is a section; jobs.enable = true turns the service on",
        "F:5: there is no setting jobs_port; did you mean jobs.port?",
        "F:7: access: who: \"al\" is not all, net:, user:, group: or cn: and a name",
        "F: 6 mistakes",
    ];
    assert_eq!(said_of(text, &[]), (Some(1), lines(&named)));
    let (code, said) = said_of(text, &["--port", "x", "--jobs-store", "disk"]);
    assert_eq!((code, said.len()), (Some(64), named.len() + 2), "{said:?}");
    for text in ["members = true\n[[members.pool]]\nname = 'a'\nmax = 1\n", "members = true\nmembers.port = 1\n"] {
        let said = said_of(text, &[]);
        assert_eq!(said, (Some(1), lines(&["F:1: members is a section; members.enable = true turns the service on"])));
    }
    assert_eq!(said_of("jobs.enable = true\njobs.store = 'memory:'\n", &[]), (Some(0), Vec::new()));
}

// Local sockets

#[test]
fn socket_left_behind_is_replaced() {
    let scratch = Scratch::new();
    let path = scratch.file("socket");
    drop(UnixListener::bind(&path).expect("can be made"));
    assert!(path.exists());
    let _daemon = Daemon::start(&["-l", &unix(&path)]);
    assert_eq!(lock_at(&path, "k").0, "LOCKED\n");
}

#[test]
fn socket_in_use_is_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.file("socket");
    let _first = Daemon::start(&["-l", &unix(&path)]);
    let sentence = refusal(&["-l", &unix(&path)]);
    assert!(sentence.starts_with(&format!("cannot listen on {}: ", unix(&path))), "{sentence}");
    assert_eq!(lock_at(&path, "k").0, "LOCKED\n");
}

#[test]
fn file_that_is_no_socket_is_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.file("precious");
    fs::write(&path, "data").expect("can be written");
    let sentence = refusal(&["-l", &unix(&path)]);
    assert!(sentence.contains(&unix(&path)), "{sentence}");
    assert_eq!(fs::read_to_string(&path).expect("is there"), "data");
}

#[test]
fn socket_has_the_permissions_asked_for() {
    let scratch = Scratch::new();
    for (mode, bits) in [("600", 0o600), ("666", 0o666), ("0660", 0o660)] {
        let path = scratch.file(mode);
        let _daemon = Daemon::start(&["-l", &unix(&path), "--socket-mode", mode]);
        let permissions = fs::metadata(&path).expect("is there").permissions();
        assert_eq!(permissions.mode() & 0o777, bits, "{mode}");
    }
}

// Sockets from elsewhere

#[test]
fn tcp_socket_on_standard_input_is_a_listener() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let stdin = Stdio::from(OwnedFd::from(listener));
    let mut daemon = Daemon::run(Command::new(Daemon::program()).args(["-l", "127.0.0.1:0"]).stdin(stdin));
    assert!(
        daemon.lines.iter().any(|line| line.contains("the addresses set for the pools are ignored")),
        "{:?}",
        daemon.lines
    );
    assert!(daemon.lines.last().expect("a line").ends_with(&format!("listens on {address}")), "{:?}", daemon.lines);
    assert_eq!(Client::to(address).ask("RELEASE"), "NOT_LOCKED");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
}

#[test]
fn local_socket_on_standard_input_keeps_its_file() {
    let scratch = Scratch::new();
    let path = scratch.file("socket");
    let listener = UnixListener::bind(&path).expect("can be made");
    let mut daemon = Daemon::run(Command::new(Daemon::program()).stdin(Stdio::from(OwnedFd::from(listener))));
    assert!(daemon.lines.last().expect("a line").ends_with(&format!("listens on {}", unix(&path))));
    daemon.upgrade();
    assert_eq!(lock_at(&path, "k").0, "LOCKED\n");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert!(path.exists(), "whoever made it removes it");
}

#[test]
fn connection_on_the_standard_input_is_no_listener() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let stdin = Stdio::from(OwnedFd::from(theirs));
    let daemon = Daemon::run(Command::new(Daemon::program()).args(["-l", "127.0.0.1:0"]).stdin(stdin));
    assert_eq!(daemon.connect().ask("RELEASE"), "NOT_LOCKED");
    drop(ours);
    assert_eq!(daemon.connect().ask("RELEASE"), "NOT_LOCKED");
}

// Ending

fn stops_at_once(signal: Signal, is_upgraded: bool) {
    let scratch = Scratch::new();
    let path = scratch.file("socket");
    let mut daemon = Daemon::start(&["-l", &unix(&path)]);
    let (mut holder, mut waiter) = (daemon.connect(), daemon.connect());
    assert_eq!(holder.ask("ACQ4ME k 1 9 60"), "LOCKED");
    waiter.send(b"ACQ4ME k 1 9 60\n");
    holder.wait_for_stat("waiting_workers", 1);
    if is_upgraded {
        daemon.upgrade();
    }
    let asked = Instant::now();
    daemon.signal(signal);
    let status: ExitStatus = daemon.wait();
    assert!(asked.elapsed() < PROMPT, "{signal} took {:?}", asked.elapsed());
    assert_eq!(status.code(), Some(0), "{signal}: {status}");
    assert!(is_closed(&mut holder.stream()) && is_closed(&mut waiter.stream()));
    assert!(!path.exists(), "its socket goes with it");
    daemon.wait_for_log("poolcounter stops");
}

#[test]
fn sigterm_and_sigint_end_it_at_once() {
    stops_at_once(Signal::SIGTERM, false);
    stops_at_once(Signal::SIGINT, false);
    stops_at_once(Signal::SIGTERM, true);
}

#[test]
fn sighup_and_sigpipe_change_nothing() {
    let mut daemon = Daemon::start(&[]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 9 60"), "LOCKED");
    for _ in 0..3 {
        daemon.signal(Signal::SIGHUP);
        daemon.signal(Signal::SIGPIPE);
        assert_eq!(daemon.connect().ask("ACQ4ME k 1 9 0"), "TIMEOUT");
    }
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

// Limits of the process

#[test]
fn connections_beyond_the_limit_are_closed_and_counted() {
    let daemon = Daemon::start(&["--max-connections", "2"]);
    let (mut first, mut second) = (daemon.connect(), daemon.connect());
    assert_eq!(first.ask("ACQ4ME k 1 9 0"), "LOCKED");
    assert_eq!(second.ask("ACQ4ME k 1 9 0"), "TIMEOUT");
    let mut third = daemon.connect();
    assert_eq!(third.rest(), "", "the third is closed without a word");
    assert_eq!(first.stat("connect_errors"), 1);
    // The first connections work as before, and there is room again once one has closed.
    assert_eq!(second.ask("ACQ4ME k 1 9 0"), "TIMEOUT");
    drop(second);
    until("a free place", || !is_turned_away(&daemon));
    assert_eq!(first.ask("RELEASE"), "RELEASED");
}

/// Accepted connections do not count as a recovery while one is refused now and then.
#[test]
fn log_says_once_that_connections_are_accepted_again() {
    let mut daemon = Daemon::start(&["--max-connections", "2"]);
    let (first, _second) = (daemon.connect(), daemon.connect());
    while !is_turned_away(&daemon) {}
    daemon.wait_for_log("cannot accept more than 2 connections now");
    drop(first);
    let deadline = Instant::now() + PATIENCE;
    while !daemon.new_log().iter().any(|line| line.contains("connections are accepted again")) {
        assert!(Instant::now() < deadline, "it is never said");
        let _ = is_turned_away(&daemon);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(!is_turned_away(&daemon));
    thread::sleep(Duration::from_millis(1200));
    assert!(!is_turned_away(&daemon));
    let log = daemon.new_log();
    assert!(!log.iter().any(|line| line.contains("again")), "{log:#?}");
}

fn is_turned_away(daemon: &Daemon) -> bool {
    let client = daemon.connect();
    // The daemon may have closed it already.
    let _ = client.stream().write_all(b"RELEASE\n");
    is_closed(&mut client.stream())
}

// Logs

/// Returns the log of a daemon with these arguments about one connection and its two requests.
fn log_of_a_visit(environment: &str, arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("env");
    command.arg(environment).args([Daemon::program(), "-l", "127.0.0.1:0"]).args(arguments).stdin(Stdio::null());
    let mut daemon = Daemon::run(&mut command);
    let mut client = daemon.connect();
    assert_eq!(client.ask("ACQ4ME key 1 5 5"), "LOCKED");
    assert_eq!(client.ask("RELEASE"), "RELEASED");
    client.finish();
    assert_eq!(client.rest(), "");
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    daemon.wait_for_log("poolcounter stops");
    let others = ["listens on", "stops", "files may be open"];
    let is_of_visit = |line: &&String| !others.iter().any(|other| line.contains(other));
    daemon.lines.iter().filter(is_of_visit).cloned().collect()
}

#[test]
fn log_has_as_much_as_is_asked_for() {
    let connections: &[&str] = &[" opened: 127.0.0.1:", " closed: 127.0.0.1:"];
    let lines = [connections, &["> ACQ4ME key 1 5 5", "< LOCKED", "> RELEASE", "< RELEASED"]].concat();
    for (environment, arguments, wanted) in [
        ("RUST_LOG=", &[][..], &[][..]),
        ("RUST_LOG=info", &["-vv"], &[]),
        ("RUST_LOG=", &["-v"], connections),
        ("RUST_LOG=debug", &[], connections),
        ("RUST_LOG=", &["-vv"], &lines),
        ("RUST_LOG=", &["-v", "--verbose"], &lines),
        ("RUST_LOG=trace", &[], &lines),
    ] {
        let log = log_of_a_visit(environment, arguments);
        let has = |text: &str| log.iter().any(|line| line.contains(text));
        let missing: Vec<&&str> = wanted.iter().filter(|text| !has(text)).collect();
        assert!(missing.is_empty(), "{environment} {arguments:?}: {missing:?} in {log:#?}");
        assert_eq!(log.is_empty(), wanted.is_empty(), "{log:#?}");
        assert_eq!(has("ACQ4ME"), wanted.len() > connections.len(), "{log:#?}");
    }
}

#[test]
fn revoked_lock_is_logged_and_ends_the_command() {
    let mut daemon = Daemon::start(&["--max-hold", "0.5"]);
    let server = daemon.address.to_string();
    let command = ["exec", "-s", &server, "-k", "k", "--who", "db1", "--on-lost", "kill", "--", "sleep", "60"];
    assert_ne!(run(&command).status, Some(0));
    daemon.wait_for_log("a lock is taken back: db1 at 127.0.0.1:");
    assert_eq!(daemon.connect().stat("taken_back"), 1);
}

#[test]
fn holder_at_a_local_socket_is_its_process() {
    let scratch = Scratch::new();
    let path = scratch.file("socket");
    let daemon = Daemon::start(&["-l", "127.0.0.1:0", "-l", &unix(&path)]);
    let (reply, _holder) = lock_at(&path, "k");
    assert_eq!(reply, "LOCKED\n");
    let line = daemon.connect().ask("STATS HOLDERS k");
    assert!(line.starts_with(&format!("unix:{} working ", std::process::id())), "{line}");
}

// Tools

#[test]
fn start_stop_daemon_starts_and_stops_it() {
    if !has("start-stop-daemon") {
        return;
    }
    // It is in a directory that is not in the PATH of every user.
    let program = installed(&["start-stop-daemon"]).expect("is installed");
    let scratch = Scratch::new();
    let (socket, pidfile) = (scratch.file("socket"), scratch.file("pid"));
    let start_stop_daemon = |arguments: &[&str]| {
        let status = Command::new(&program)
            .args(["--quiet", "--pidfile", &pidfile.display().to_string(), "--exec", Daemon::program()])
            .args(arguments)
            .status();
        status.expect("is installed")
    };
    assert!(start_stop_daemon(&["--start", "-b", "--make-pidfile", "--", "-l", &unix(&socket)]).success());
    until("a connection", || UnixStream::connect(&socket).is_ok());
    let (reply, mut holder) = lock_at(&socket, "k");
    assert_eq!(reply, "LOCKED\n");
    assert!(start_stop_daemon(&["--status"]).success());
    assert!(start_stop_daemon(&["--stop", "--retry", "10"]).success());
    assert!(is_closed(&mut holder));
    assert!(!socket.exists(), "it stopped by itself");
    assert!(!start_stop_daemon(&["--status"]).success());
}

/// Returns the system calls of a daemon, a line each, while `play` runs and then until its end; None if they cannot be
/// traced.
fn system_calls(daemon: Daemon, play: impl FnOnce()) -> Option<String> {
    let scratch = Scratch::new();
    let trace = scratch.file("trace");
    let mut strace = Command::new("strace")
        .args(["-f", "-p", &daemon.pid().to_string(), "-o", &trace.display().to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("is installed");
    if !is_traced(&daemon) {
        poolcounter_testkit::skipped("system calls, because strace may not trace here");
        let _ = strace.kill();
        let _ = strace.wait();
        return None;
    }
    play();
    drop(daemon);
    strace.wait().expect("is our child");
    Some(fs::read_to_string(&trace).expect("is written"))
}

/// A put to a store writes one page of the log, and looks at the files four times.
#[test]
fn durable_put_writes_one_page() {
    const PUTS: usize = 100;
    if !has("strace") {
        return;
    }
    let scratch = Scratch::new();
    let daemon = Daemon::start_with_jobs(&["--jobs-store", &format!("sqlite:{}", scratch.file("jobs.db").display())]);
    let mut client = Client::to(daemon.jobs());
    let mut put = || assert!(client.ask("put 1 0 60 1\r\na\r").starts_with("INSERTED "));
    put();
    let Some(calls) = system_calls(daemon, || (0..PUTS).for_each(|_| put())) else { return };
    // Pages that are split and the end of the daemon add a few.
    for (name, each) in [("pwrite64", 2), ("statx", 4), ("fsync", 1)] {
        let count = calls.lines().filter(|line| name_of(line) == name).count();
        assert!((each * PUTS..(each + 1) * PUTS).contains(&count), "{PUTS} puts take {count} {name}");
    }
}

/// A request takes one receive, one send and one wait, and no other system call.
#[test]
fn request_takes_three_system_calls() {
    const REQUESTS: usize = 100;
    /// Number of system calls at the start and the end of a batch.
    const FEW: usize = 5;
    if !has("strace") {
        return;
    }
    let daemon = Daemon::start(&[]);
    let mut client = daemon.connect();
    assert_eq!(client.ask("RELEASE"), "NOT_LOCKED");
    let play = || {
        for n in 0..REQUESTS {
            let (request, reply) = if n % 2 == 0 { ("ACQ4ME k 1 5 5", "LOCKED") } else { ("RELEASE", "RELEASED") };
            assert_eq!(client.ask(request), reply);
        }
    };
    let Some(calls) = system_calls(daemon, play) else { return };
    let count = |names: &[&str]| calls.lines().filter(|line| names.contains(&name_of(line))).count();
    let (receives, sends) = (count(&["recvfrom", "read", "recvmsg", "readv"]), count(&["sendto", "write", "sendmsg"]));
    let waits = count(&["epoll_wait", "epoll_pwait", "epoll_pwait2"]);
    let others = calls.lines().count() - receives - sends - waits;
    println!("{REQUESTS} requests: {receives} receives, {sends} sends, {waits} waits, {others} other calls");
    // The first wait began before the trace, and may be missing there.
    for (what, times, least) in
        [("receives", receives, REQUESTS), ("sends", sends, REQUESTS), ("waits", waits, REQUESTS - 1)]
    {
        assert!((least..=REQUESTS + FEW).contains(&times), "{times} {what}");
    }
    assert_eq!(count(&["epoll_ctl"]), 0, "a connection is registered once");
    assert!(others <= FEW, "{others} other calls:\n{calls}");
}

/// Returns the system call of a line such as `4711 recvfrom(9, ...) = 5`.
fn name_of(line: &str) -> &str {
    line.split_whitespace().nth(1).and_then(|call| call.split('(').next()).unwrap_or_default()
}

fn is_traced(daemon: &Daemon) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("the process is there");
        if status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn busy_polling_serves_and_ends_when_nothing_comes() {
    let daemon = Daemon::start(&["--busy-poll", "20000"]);
    let (mut holder, mut waiter) = (daemon.connect(), daemon.connect());
    assert_eq!(holder.ask("ACQ4ME k 1 5 5"), "LOCKED");
    let begun = Instant::now();
    assert_eq!(waiter.ask("ACQ4ME k 1 5 0.03"), "TIMEOUT");
    assert!(begun.elapsed() >= Duration::from_millis(30), "it ended early");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    let before = cpu_time(daemon.pid());
    thread::sleep(Duration::from_secs(1));
    let used = cpu_time(daemon.pid()) - before;
    assert!(used < Duration::from_millis(200), "it goes on looking: {used:?}");
}
