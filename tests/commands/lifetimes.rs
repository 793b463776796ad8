//! Lifetimes of a lock and of the work under it: the table of the manual, played with `exec` and beside it with
//! flock(1); and what happens to the processes of a command.

use crate::pages::read;
use crate::pty;
use nix::pty::OpenptyResult;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, install, until, wait};
use poolcounter_testkit::running::{Running, cpu_time, process_state};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::skipped;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a state must last that could still change.
const CALM: Duration = Duration::from_millis(200);

/// Wrapper of a command: a column of the table.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Wrapper {
    Flock,
    Own,
    Shared,
}

/// A wrapper with its work: a process that the command starts.
struct Scene {
    scratch: Scratch,
    wrapper: Wrapper,
    observer: Client,
    key: String,
    /// Process that was started: the wrapper, timeout or the leader of a session.
    child: Child,
    terminal: Option<OpenptyResult>,
    work: i32,
}

/// Event of the table, how the wrapper is started for it, and the act.
type Event = (&'static str, Start, fn(&mut Scene));

#[derive(Clone, Copy, PartialEq)]
enum Start {
    Alone,
    ByTimeout,
    OnTerminal,
}

const EVENTS: &[Event] = &[
    ("SIGTERM to the program", Start::Alone, |scene| scene.signal(1, Signal::SIGTERM)),
    ("SIGTERM to its group", Start::Alone, |scene| scene.signal(-1, Signal::SIGTERM)),
    ("timeout(1)", Start::ByTimeout, |scene| scene.signal(1, Signal::SIGTERM)),
    ("SIGKILL to the program", Start::Alone, |scene| scene.signal(1, Signal::SIGKILL)),
    ("Ctrl-C", Start::OnTerminal, |scene| scene.type_in(b"\x03")),
    ("Ctrl-Z", Start::OnTerminal, |scene| scene.type_in(b"\x1a")),
    ("closed terminal", Start::OnTerminal, |scene| scene.terminal = None),
];

/// Returns a shell command whose child writes its process id into the file, and runs until it is ended.
fn work_in(file: &str) -> String {
    format!("sh -c 'echo $$ >{file}.new; mv {file}.new {file}; exec sleep 1000'; true")
}

/// Waits for the process id in a file.
fn pid_in(file: &std::path::Path) -> i32 {
    until("the work begins", || file.exists());
    fs::read_to_string(file).expect("is readable").trim().parse().expect("is a process id")
}

fn is_running(pid: i32) -> bool {
    process_state(pid).is_some()
}

impl Scene {
    fn start(address: SocketAddr, wrapper: Wrapper, start: Start, key: String) -> Scene {
        let scratch = Scratch::new();
        let (lock, file) = (scratch.file("lock").display().to_string(), scratch.file("work"));
        let (server, work) = (address.to_string(), work_in(&file.display().to_string()));
        let mut words = vec!["env", "--default-signal=HUP,INT,QUIT"];
        if start == Start::ByTimeout {
            words.extend(["timeout", "600"]);
        }
        let group = if wrapper == Wrapper::Own { "own" } else { "shared" };
        match wrapper {
            Wrapper::Flock => words.extend(["flock", &lock]),
            _ => words.extend([Daemon::program(), "exec", "-s", &server, "-k", &key, "--process-group", group, "--"]),
        }
        words.extend(["sh", "-c", &work]);
        let mut terminal = None;
        let mut command = match start {
            Start::OnTerminal => {
                // A shell with job control, which stays while the job is stopped.
                let mut session = Command::new("setsid");
                session.args(["--ctty", "sh", "-mc", "\"$@\"; sleep 1000", "sh"]);
                let pty = terminal.insert(pty::open());
                let slave = || Stdio::from(pty.slave.try_clone().expect("a second handle"));
                session.stdin(slave()).stdout(slave()).stderr(slave());
                session
            }
            _ => {
                let mut command = Command::new("env");
                command.process_group(0).stdin(Stdio::null());
                command
            }
        };
        let child = command.args(&words).spawn().expect("it runs");
        let observer = Client::to(address);
        let mut scene = Scene { scratch, wrapper, observer, key, child, terminal, work: 0 };
        scene.work = pid_in(&file);
        scene
    }

    /// Sends a signal to the process that was started, or with -1 to its group.
    fn signal(&mut self, sign: i32, signal: Signal) {
        kill(Pid::from_raw(sign * self.child.id() as i32), signal).expect("it runs");
    }

    fn type_in(&mut self, key: &[u8]) {
        let terminal = self.terminal.as_ref().expect("has a terminal");
        File::from(terminal.master.try_clone().expect("a second handle")).write_all(key).expect("is open");
    }

    fn is_free(&mut self) -> bool {
        if self.wrapper == Wrapper::Flock {
            let lock = self.scratch.file("lock");
            return Command::new("flock").arg("-n").arg(lock).arg("true").status().expect("it runs").success();
        }
        let is_free = self.observer.ask(&format!("ACQ4ME {} 1 9 0", self.key)) == "LOCKED";
        if is_free {
            assert_eq!(self.observer.ask(&format!("RELEASE {}", self.key)), "RELEASED");
        }
        is_free
    }

    fn look(&mut self) -> String {
        // In this order: a lock that is free before the work has ended is seen.
        let lock = if self.is_free() { "free" } else { "locked" };
        let work = match process_state(self.work) {
            None => "ends",
            Some('T') => "stops",
            Some(_) => "runs on",
        };
        format!("{work}, {lock}")
    }

    /// Waits until this is seen, and that lasts; returns what is seen. With a group of its own, a lock that is free while
    /// the work runs is seen at once, if that is not wanted.
    fn wait_for(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.look();
        let is_own = self.wrapper == Wrapper::Own;
        while seen != wanted && !(is_own && seen == "runs on, free") && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            seen = self.look();
        }
        if wanted != "ends, free" {
            thread::sleep(CALM);
            seen = self.look();
        }
        seen
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.terminal = None;
        let _ = kill(Pid::from_raw(-(self.child.id() as i32)), Signal::SIGKILL);
        let _ = kill(Pid::from_raw(self.work), Signal::SIGKILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the rows of the table in the manual.
fn rows(page: &str) -> Vec<Vec<String>> {
    let table = page.lines().skip_while(|line| !line.starts_with(".Bl -column")).skip(1);
    let rows = table.take_while(|line| *line != ".El").filter_map(|line| line.strip_prefix(".It "));
    rows.map(|row| row.split(" Ta ").map(|cell| cell.replace('"', "")).collect()).collect()
}

/// Plays an event for all wrappers, and returns the row that is seen, if it is not this one.
fn play(address: SocketAddr, (event, start, act): Event, row: &[String]) -> Option<String> {
    let columns = [Wrapper::Flock, Wrapper::Own, Wrapper::Shared].into_iter().zip(&row[1..]);
    let seen = columns.map(|(wrapper, wanted)| {
        let key = format!("{}-{wrapper:?}", event.replace(' ', "-"));
        let mut scene = Scene::start(address, wrapper, start, key);
        act(&mut scene);
        scene.wait_for(wanted)
    });
    let seen: Vec<String> = seen.collect();
    (seen != row[1..]).then(|| format!("{event}: {}", seen.join(" Ta ")))
}

#[test]
fn table_of_the_manual_is_true() {
    if !Command::new("flock").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skipped("exec beside flock, because flock is not installed");
    }
    let daemon = Daemon::start(&[]);
    let address = daemon.address;
    let rows = rows(&read("man/poolcounter-exec.1"));
    let named: Vec<&str> = rows[1..].iter().map(|row| &*row[0]).collect();
    assert_eq!(named, EVENTS.iter().map(|(event, ..)| *event).collect::<Vec<_>>());
    let faults: Vec<String> = thread::scope(|scope| {
        let plays = EVENTS.iter().zip(&rows[1..]).map(|(event, row)| scope.spawn(move || play(address, *event, row)));
        let plays: Vec<_> = plays.collect();
        plays.into_iter().filter_map(|play| play.join().expect("a scene comes to its end")).collect()
    });
    assert!(faults.is_empty(), "this was seen:\n{}", faults.join("\n"));
}

/// Returns `exec` with these options for the key `k`, whose command has a process group of its own.
fn exec(server: &str, options: &[&str], script: &str) -> Command {
    let mut exec = Command::new("env");
    exec.args(["--default-signal=HUP,INT,QUIT", Daemon::program(), "exec", "-s", server, "-k", "k"]);
    exec.args(["--process-group", "own"]).args(options).args(["--", "sh", "-c", script]);
    exec
}

/// As timeout(1) and systemd do: each process of the group gets it.
#[test]
fn signal_of_a_group_reaches_the_command_once() {
    let daemon = Daemon::start(&[]);
    let script = "trap 'echo got' TERM; trap 'echo over; exit 5' USR1; echo ready; while :; do sleep 0.02; done";
    let mut exec = Running::start(exec(&daemon.address.to_string(), &[], script).process_group(0));
    assert_eq!(exec.line(), "ready");
    let pid = exec.pid() as i32;
    for target in [pid, -pid] {
        kill(Pid::from_raw(target), Signal::SIGTERM).expect("it runs");
    }
    assert_eq!(exec.line(), "got");
    exec.signal(Signal::SIGUSR1);
    let ended = exec.finish();
    assert_eq!((ended.status, &*ended.stdout), (Some(5), "over\n"));
}

#[test]
fn what_a_command_leaves_after_a_signal_keeps_the_lock() {
    let daemon = Daemon::start(&[]);
    let scratch = Scratch::new();
    let file = scratch.file("work");
    let script = format!("trap '' TERM; ({})& trap - TERM; echo ready; wait", work_in(&file.display().to_string()));
    let mut exec = Running::start(&mut exec(&daemon.address.to_string(), &["--grace", "0.5"], &script));
    assert_eq!(exec.line(), "ready");
    let work = pid_in(&file);
    let mut observer = daemon.connect();
    exec.signal(Signal::SIGTERM);
    until("the lock is free", || observer.ask("ACQ4ME k 1 9 0") == "LOCKED");
    assert!(!is_running(work));
    assert_eq!(exec.finish().status, Some(143));
}

#[test]
fn lost_lock_ends_the_group() {
    for (options, status) in [
        (&["--on-lost", "kill"][..], 137),
        (&["--on-lost", "term", "--lost-exit", "9"], 9),
        (&["--on-lost", "term", "--grace", "0.2", "--lost-exit", "9"], 9),
    ] {
        let mut daemon = Daemon::start(&[]);
        let scratch = Scratch::new();
        let file = scratch.file("work");
        let ignore = if options.contains(&"--grace") { "trap '' TERM; " } else { "" };
        let script = format!("{ignore}({}); true", work_in(&file.display().to_string()));
        let exec = Running::start(&mut exec(&daemon.address.to_string(), options, &script));
        let work = pid_in(&file);
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        assert_eq!(exec.finish().status, Some(status), "{options:?}");
        until("the work ends", || !is_running(work));
    }
}

#[test]
fn loss_can_have_a_status_of_its_own() {
    let mut daemon = Daemon::start(&[]);
    let script = "echo runs; read line; exit 0";
    let mut exec = Running::start(&mut exec(&daemon.address.to_string(), &["--lost-exit", "3"], script));
    assert_eq!(exec.line(), "runs");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    // The loss is noticed before the end of the command is.
    assert_eq!(
        exec.error_line(),
        "poolcounter: k: the lock is lost, because the connection is gone; the command runs on without it"
    );
    assert_eq!(exec.finish().status, Some(3));
}

/// After a loss nothing reads the connection, whose news stay there as long as the command runs.
#[test]
fn commands_cost_no_processor_time_after_losses() {
    let mut daemon = Daemon::start_with_members(&["--counter", "--counter-listen", "127.0.0.1:0"]);
    let servers = [daemon.counters(), daemon.address, daemon.members()].map(|address| address.to_string());
    let mut operator = Client::to(daemon.members());
    for request in ["POOL p 0 2", "ADD p a", "ADD p b"] {
        assert_eq!(operator.ask(request), "OK");
    }
    let mut commands = [
        &["counter", "-s", &servers[0], "acquire", "u", "1", "1"][..],
        &["exec", "-s", &servers[1], "-k", "k", "--hold", "0.1"],
        &["take", "-s", &servers[2], "p", "--count", "2"],
    ]
    .map(|words| Running::program(&[words, &["--", "sh", "-c", "echo runs; cat"]].concat()));
    commands.iter_mut().for_each(|command| assert_eq!(command.line(), "runs"));
    let assert_lost = |command: &mut Running| {
        let line = command.error_line();
        assert!(line.ends_with("; the command runs on without it"), "{line}");
    };
    assert_eq!(operator.ask("DEL p a NOW"), "OK");
    commands[1..].iter_mut().for_each(assert_lost);
    assert_eq!(operator.ask("DEL p b NOW"), "OK");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    assert_lost(&mut commands[0]);
    let used = || commands.iter().map(|command| cpu_time(command.pid())).sum::<Duration>();
    let before = used();
    thread::sleep(Duration::from_secs(1));
    let used = used() - before;
    assert!(used < Duration::from_millis(200), "{used:?} of a second");
}

#[test]
fn script_locks_itself() {
    let daemon = Daemon::start(&[]);
    let page = read("docs/cron.md");
    let idiom = page.lines().find(|line| line.starts_with("[ \"${BACKUP_LOCKED")).expect("the page has it");
    let scratch = Scratch::new();
    let script = scratch.file("script");
    let idiom = idiom.replace("poolcounter exec", &format!("{} exec", Daemon::program()));
    install(&script, format!("#!/bin/sh\n{idiom}\necho \"runs $1\"; read line; exit 7\n").as_bytes());
    let start = || {
        let mut shell = Command::new("sh");
        Running::start(shell.arg(&script).arg("a b").env("POOLCOUNTER_SERVERS", daemon.address.to_string()))
    };
    let mut first = start();
    assert_eq!(first.line(), "runs a b");
    assert_eq!(start().finish().status, Some(75));
    assert_eq!(first.finish().status, Some(7));
}

/// The clients that wait ask the daemon now and then whether it is there.
#[test]
fn wait_at_a_daemon_that_hangs_ends() {
    let frozen = Daemon::start_with_members(&[]);
    let mut operator = Client::to(frozen.members());
    assert_eq!((operator.ask("POOL p 0 1"), operator.ask("ADD p m")), ("OK".into(), "OK".into()));
    assert!(operator.ask("TAKE p").starts_with("MEMBER "));
    let (other, mut holder) = (Daemon::start(&[]), frozen.connect());
    let servers = [frozen.address.to_string(), other.address.to_string()];
    // The key is one of the frozen server's.
    let digest = |server: &str, key: &str| format!("{:x}", md5::compute(format!("{server}{key}")));
    let key = (0..).map(|n| format!("k{n}")).find(|key| digest(&servers[0], key) < digest(&servers[1], key));
    let key = key.expect("every other key is such");
    assert_eq!(holder.ask(&format!("ACQ4ME {key} 1 9 0")), "LOCKED");
    let program = |words: &[&str]| Running::start(Command::new(Daemon::program()).args(words));
    let next = program(&["exec", "-s", &servers[0], "-s", &servers[1], "-k", &key, "--", "echo", "runs"]);
    let open = program(&["exec", "-s", &servers[0], "-k", &key, "--fail-open", "--", "echo", "runs"]);
    let take = program(&["take", "-s", &frozen.members().to_string(), "p", "--", "echo", "runs"]);
    holder.wait_for_stat("waiting_workers", 2);
    until("a take waits", || operator.ask("UTILIZATION p").contains(" queued 1 "));
    frozen.signal(Signal::SIGSTOP);
    assert_eq!((next.finish().stdout, open.finish().stdout), ("runs\n".into(), "runs\n".into()));
    assert_eq!(take.finish().status, Some(69));
}

/// A daemon that answers keeps its waiters, and the answers of its probes disturb nobody.
#[test]
fn wait_lasts_longer_than_a_probe() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    let mut waiter = Running::start(&mut exec(&daemon.address.to_string(), &[], "echo runs; read line; exit 4"));
    holder.wait_for_stat("waiting_workers", 1);
    thread::sleep(Duration::from_secs(12));
    assert_eq!(holder.ask("RELEASE k"), "RELEASED");
    assert_eq!(waiter.line(), "runs");
    assert_eq!(waiter.finish().status, Some(4));
    holder.wait_for_stat("processing_workers", 0);
}

#[test]
fn wait_of_a_child_leaves_no_process() {
    let daemon = Daemon::start(&[]);
    let mut exec = Running::start(&mut exec(&daemon.address.to_string(), &[], "echo runs; cat"));
    assert_eq!(exec.line(), "runs");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", exec.pid())).unwrap_or_default();
    let children: Vec<i32> = children.split_whitespace().map(|pid| pid.parse().expect("a number")).collect();
    drop(exec.child.stdin.take());
    assert!(wait(&mut exec.child).success());
    assert!(children.iter().all(|child| !is_running(*child)), "{children:?}");
}
