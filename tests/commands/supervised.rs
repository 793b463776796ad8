//! The program under a supervisor such as systemd: its notifications, and the sockets that it inherits.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, install, install_program};
use poolcounter_testkit::running::end_of;
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{self, UnixDatagram};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Socket of a supervisor for notifications.
struct Ears(UnixDatagram);

impl Ears {
    fn at(socket: UnixDatagram) -> Ears {
        socket.set_read_timeout(Some(PATIENCE)).expect("an option");
        Ears(socket)
    }

    fn next(&self) -> String {
        let mut bytes = [0; 100];
        let len = self.0.recv(&mut bytes).expect("it says something");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    /// Returns the next notification that is not of the watchdog.
    fn news(&self) -> String {
        loop {
            let word = self.next();
            if word != "WATCHDOG=1" {
                return word;
            }
        }
    }
}

fn daemon(variables: &[(&str, &str)]) -> Daemon {
    let variables = variables.iter().copied();
    Daemon::run(Command::new(Daemon::program()).args(["-l", "127.0.0.1:0"]).envs(variables).stdin(Stdio::null()))
}

// Notifications

#[test]
fn supervisor_hears_of_readiness_life_and_stop() {
    let scratch = Scratch::new();
    let path = scratch.file("notify");
    let ears = Ears::at(UnixDatagram::bind(&path).expect("a new file"));
    let begun = Instant::now();
    let mut daemon = daemon(&[("NOTIFY_SOCKET", &path.display().to_string()), ("WATCHDOG_USEC", "200000")]);
    assert_eq!(ears.next(), "READY=1");
    // A client can connect from this notification on.
    assert_eq!(daemon.connect().ask("RELEASE"), "NOT_LOCKED");
    // One is sent at the start, and one each 100 ms. No delay makes this time shorter.
    for _ in 0..21 {
        assert_eq!(ears.next(), "WATCHDOG=1");
    }
    let elapsed = begun.elapsed();
    assert!(elapsed >= Duration::from_secs(2), "21 signs of life within {elapsed:?} are too many");
    for _ in 0..2 {
        daemon.upgrade();
        assert_eq!((ears.news(), ears.news()), ("RELOADING=1".into(), "READY=1".into()));
        assert_eq!(ears.next(), "WATCHDOG=1", "the new program goes on with it");
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(ears.news(), "STOPPING=1");
    assert!(daemon.wait().success());
}

#[test]
fn socket_without_a_file_will_do() {
    let name = format!("poolcounter-supervised-{}", std::process::id());
    let address = net::SocketAddr::from_abstract_name(&name).expect("a name");
    let ears = Ears::at(UnixDatagram::bind_addr(&address).expect("nobody else has it"));
    let daemon = daemon(&[("NOTIFY_SOCKET", &format!("@{name}"))]);
    assert_eq!(ears.next(), "READY=1");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(ears.next(), "STOPPING=1", "and no sign of life that nobody wants");
}

/// A supervisor that waits for the end of a reload must not wait for ever.
#[test]
fn failed_upgrade_leaves_the_daemon_ready() {
    let scratch = Scratch::new();
    let (path, program) = (scratch.file("notify"), scratch.file("poolcounter"));
    install_program(&program);
    let ears = Ears::at(UnixDatagram::bind(&path).expect("a new file"));
    let mut daemon = Daemon::run(Command::new(&program).args(["-l", "127.0.0.1:0"]).env("NOTIFY_SOCKET", &path));
    assert_eq!(ears.next(), "READY=1");
    install(&program, b"#!/bin/sh\nexit 1\n");
    daemon.signal(Signal::SIGUSR1);
    assert_eq!((ears.next(), ears.next()), ("RELOADING=1".into(), "READY=1".into()));
    daemon.wait_for_log("no upgrade: ");
}

/// `WATCHDOG_PID` names the process of the watchdog; a missing supervisor does no harm.
#[test]
fn variables_meant_for_other_processes_are_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.file("notify");
    let ears = Ears::at(UnixDatagram::bind(&path).expect("a new file"));
    let notify = path.display().to_string();
    let daemon_of_another =
        daemon(&[("NOTIFY_SOCKET", &notify), ("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", "1"), ("LISTEN_PID", "1")]);
    assert_eq!(ears.next(), "READY=1");
    daemon_of_another.signal(Signal::SIGTERM);
    assert_eq!(ears.next(), "STOPPING=1");
    drop(ears);
    for notify in [&notify, "/nowhere", "", "relative", "@"] {
        let daemon = daemon(&[("NOTIFY_SOCKET", notify), ("WATCHDOG_USEC", "20000")]);
        assert_eq!(daemon.connect().ask("RELEASE"), "NOT_LOCKED", "{notify:?}");
    }
}

// Inherited sockets

/// Runs the program with these sockets from descriptor 3 on, and with their names.
fn activated(sockets: [TcpListener; 2], names: &str, arguments: &[&str]) -> Command {
    let [first, second] = sockets.map(|socket| Stdio::from(OwnedFd::from(socket)));
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "exec 3<&0 4<&1 0</dev/null 1>&2; LISTEN_PID=$$ exec \"$0\" \"$@\"", Daemon::program()])
        .args(arguments)
        .envs([("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", names)])
        .stdin(first)
        .stdout(second);
    shell
}

fn listeners() -> ([TcpListener; 2], [SocketAddr; 2]) {
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let addresses = sockets.each_ref().map(|socket| socket.local_addr().expect("an address"));
    (sockets, addresses)
}

/// Returns the number of descriptors of a process for listening TCP sockets.
fn listening_descriptors(daemon: &Daemon) -> usize {
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", daemon.pid())).expect("the process is there");
    // The fourth field is the state, 0A for a socket that listens; the tenth is the inode.
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let sockets: Vec<String> = rows.filter(|row| row[3] == "0A").map(|row| format!("socket:[{}]", row[9])).collect();
    let descriptors = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the process is there");
    let targets = descriptors.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| sockets.iter().any(|socket| target.to_string_lossy() == **socket)).count()
}

#[test]
fn sockets_are_taken_by_their_names() {
    let (sockets, [counters, pools]) = listeners();
    let mut daemon =
        Daemon::run(&mut activated(sockets, "counter:pools", &["-l", "192.0.2.1", "--counter-buckets", "9"]));
    let log = daemon.lines.join("\n");
    assert!(log.contains("the addresses set for the pools are ignored"), "{log}");
    assert!(log.contains(&format!("listens on {pools}")), "{log}");
    let mut holder = Client::to(pools);
    assert_eq!(holder.ask("ACQ4ME k 1 9 9"), "LOCKED");
    noop_at(counters);

    // A socket of the supervisor is handed over, and not taken a second time from the environment.
    assert_eq!(listening_descriptors(&daemon), 2);
    for _ in 0..2 {
        daemon.upgrade();
        assert_eq!(Client::to(pools).ask("ACQ4ME k 1 9 0"), "TIMEOUT");
        noop_at(counters);
        assert_eq!(listening_descriptors(&daemon), 2);
    }
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    let log = daemon.lines.join("\n");
    assert!(!log.contains("counter.buckets is set"), "the counters are on: {log}");
}

/// Sends a Noop to the counters, which must answer.
fn noop_at(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream.write_all(b"\x90\x00\x00\x00\x00\x00\x00\x00echo").expect("is sent");
    let mut response = [0; 12];
    stream.read_exact(&mut response).expect("an answer");
    assert_eq!(&response, b"\x91\x00\x00\x00\x00\x00\x00\x00echo");
}

#[test]
fn unnamed_sockets_are_for_the_pools() {
    let (sockets, addresses) = listeners();
    let daemon = Daemon::run(&mut activated(sockets, "poolcounter.socket:unknown", &[]));
    for address in addresses {
        assert_eq!(Client::to(address).ask("RELEASE"), "NOT_LOCKED");
    }
    drop(daemon);
}

#[test]
fn sockets_that_are_of_no_use_are_named() {
    let (sockets, _) = listeners();
    let output = activated(sockets, "pools:cuonter", &[]).output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the socket \"cuonter\" of LISTEN_FDS is for no service"), "{said}");

    let mut deaf = Command::new("sh");
    deaf.args(["-c", "exec 3</dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\"", Daemon::program()]);
    let said = end_of(&mut deaf).stderr;
    assert!(said.contains("the socket \"unknown\" of LISTEN_FDS does not listen"), "{said}");
}

// As the first process of a container

/// The first process gets no signal that it does not handle, and adopts orphans. It is upgraded like any other.
#[test]
fn first_process_obeys_signals() {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    if !command.args(["true"]).status().is_ok_and(|status| status.success()) {
        return poolcounter_testkit::skipped(
            "the first process of a container, because this system gives no new namespaces",
        );
    }
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    let mut unshare = Daemon::run(command.args([Daemon::program(), "-l", "127.0.0.1:0"]).stdin(Stdio::null()));
    let children = format!("/proc/{0}/task/{0}/children", unshare.pid());
    let pid = fs::read_to_string(children).expect("is there").trim().parse().expect("one child");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("is there");
    assert!(status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1")), "{status}");
    let mut holder = unshare.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 9 9"), "LOCKED");
    kill(Pid::from_raw(pid), Signal::SIGUSR1).expect("is there");
    unshare.wait_for_log("has taken over");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    kill(Pid::from_raw(pid), Signal::SIGTERM).expect("is there");
    assert_eq!(unshare.wait().code(), Some(0));
}

// Its name

#[test]
fn process_started_by_a_link_keeps_its_name() {
    let scratch = Scratch::new();
    let (program, link) = (scratch.file("poolcounter"), scratch.file("poolcounterd"));
    install_program(&program);
    symlink(&program, &link).expect("a new file");
    let mut daemon = Daemon::run(Command::new(&link).args(["-l", "127.0.0.1:0"]));
    let name = |daemon: &Daemon| fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).expect("is there");
    assert_eq!(name(&daemon), "poolcounterd\n");
    daemon.upgrade();
    assert_eq!(name(&daemon), "poolcounterd\n");
    // The link has another target now, and the old file is removed.
    let other = scratch.file("poolcounter-2");
    install_program(&other);
    fs::remove_file(&program).expect("is there");
    fs::remove_file(&link).expect("is there");
    symlink(&other, &link).expect("a new file");
    daemon.upgrade();
    let running = fs::read_link(format!("/proc/{}/exe", daemon.pid())).expect("is there");
    assert_eq!(running, other);
}
