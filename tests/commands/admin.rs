//! The administration: its commands, in virtual time, and the real program with its socket, its log and its end.

use nix::sys::signal::Signal;
use poolcounter_core::time::Span;
use poolcounter_http::HttpSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_service::operations::{Offered, Operations};
use poolcounter_testkit::daemon::{Client, Daemon, install_program, until};
use poolcounter_testkit::frames;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::running::{Ended, Running, end_of, print};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::seeds::play;
use poolcounter_testkit::world::World;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A server, its administrator and its clients.
struct Stage {
    world: World,
    admin: usize,
}

impl Stage {
    fn new() -> Stage {
        let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES));
        let admin = world.connect_to("admin");
        Stage { world, admin }
    }

    fn connect(&mut self, service: &str) -> usize {
        self.world.connect_to(service)
    }

    /// Sends a text of a client, and returns its output at once.
    fn ask(&mut self, client: usize, text: &str) -> String {
        self.world.send(client, text.as_bytes());
        self.world.settle();
        self.told(client)
    }

    /// Sends a line of the administrator, and returns its output at once.
    fn command(&mut self, line: &str) -> String {
        self.ask(self.admin, &format!("{line}\n"))
    }

    /// Lets this number of seconds pass.
    fn pass(&mut self, seconds: u64) {
        self.world.advance(Span::from_secs(seconds));
    }

    fn told(&mut self, client: usize) -> String {
        String::from_utf8_lossy(&self.world.take_received(client)).into_owned()
    }

    fn may_end(&mut self) -> bool {
        self.world.connections.may_end()
    }
}

#[test]
fn drain_goes_on_after_its_requester_has_left() {
    let mut stage = Stage::new();
    let holder = stage.connect("pools");
    stage.ask(holder, "ACQ4ME k 1 5 60\n");
    stage.command("DRAIN");
    stage.world.reset(stage.admin);
    stage.world.settle();
    stage.world.reset(holder);
    stage.pass(1);
    assert!(stage.may_end());
}

#[test]
fn counters_give_nothing_while_they_are_drained() {
    let mut stage = Stage::new();
    let holder = stage.connect("counters");
    let ask = |stage: &mut Stage, request: Vec<u8>| {
        stage.world.send(holder, &request);
        stage.world.settle();
        stage.world.take_received(holder)[2]
    };
    assert_eq!(ask(&mut stage, frames::acquire(3, 10, b"c")), 0);
    assert_eq!(stage.command("DRAIN"), "LEFT 1 (counters 1)\n");
    assert_eq!(ask(&mut stage, frames::acquire(1, 10, b"c")), 0x21, "ResourceNotAvailable");
    assert_eq!(ask(&mut stage, frames::release(3, b"c")), 0);
    stage.pass(1);
    assert!(stage.may_end());
}

/// Jobs in memory would be lost, so runners get them until none is left; buried jobs are not waited for.
#[test]
fn drain_waits_for_jobs_in_memory() {
    let mut stage = Stage::new();
    let [producer, runner] = [(); 2].map(|()| stage.connect("jobs"));
    stage.ask(producer, "put 1 0 60 1\r\na\r\nput 2 0 60 1\r\nb\r\n");
    assert_eq!(stage.ask(runner, "reserve\r\n"), "RESERVED 1 1\r\na\r\n");
    assert_eq!(stage.command("DRAIN"), "LEFT 2 (jobs 2)\n");
    assert_eq!(stage.ask(producer, "put 1 0 60 1\r\nc\r\n"), "DRAINING\r\n");
    assert_eq!(stage.ask(runner, "bury 1 1\r\nreserve\r\n"), "BURIED\r\nRESERVED 2 1\r\nb\r\n");
    stage.pass(1);
    assert!(!stage.may_end());
    assert_eq!(stage.ask(runner, "delete 2\r\n"), "DELETED\r\n");
    stage.pass(1);
    assert!(stage.may_end());
}

#[test]
fn ceiling_counts_from_now_on() {
    let mut stage = Stage::new();
    let (holder, other) = (stage.connect("pools"), stage.connect("pools"));
    assert_eq!(stage.ask(holder, "ACQ4ME a:k 9 9 0\n"), "LOCKED\n");
    assert_eq!(stage.command("CEILING a:* workers=1,timeout=0"), "OK a ceiling for a:* until the next upgrade\n");
    assert_eq!(stage.ask(other, "ACQ4ME a:k 9 9 60\n"), "TIMEOUT\n");
    assert_eq!(stage.command("CEILING a:* max_queue=1"), "OK a ceiling for a:* until the next upgrade\n");
    assert_eq!(stage.ask(other, "ACQ4ME a:k 9 9 60\n"), "QUEUE_FULL\n");
    assert_eq!(stage.command("CEILING a:* none"), "OK the ceiling is gone\n");
    assert_eq!(stage.ask(other, "ACQ4ME a:k 9 9 60\n"), "LOCKED\n");
    for (line, answer) in [
        ("CEILING a:* none", "ERROR there is no such ceiling\n"),
        ("CEILING a:* workers", "ERROR workers: a number from 1 to 4294967295\n"),
        ("CEILING a:* colour=1", "ERROR colour: there is no such setting\n"),
        ("CEILING a:*", "ERROR usage: CEILING KEYS NAME=VALUE,...|none\n"),
    ] {
        assert_eq!(stage.command(line), answer, "{line}");
    }
}

/// An administrator that does not read gets no more lines, and no memory is kept for it.
#[test]
fn reader_that_never_reads_costs_nothing() {
    let mut stage = Stage::new();
    let holder = stage.connect("pools");
    stage.ask(holder, "ACQ4ME k 1 5 60\n");
    stage.world.set_room(stage.admin, 10);
    assert_eq!(stage.command("DRAIN"), "LEFT 1 (po");
    stage.pass(500);
    stage.world.set_room(stage.admin, 1_000);
    stage.pass(1);
    assert!(stage.told(stage.admin).lines().count() <= 3, "one line waited to be read");
}

/// Bytes of any kind end the connection at worst.
#[test]
fn random_bytes_are_survived() {
    play("admin-bytes", |history| {
        let mut random = Random::new(history.seed);
        let mut stage = Stage::new();
        let holder = stage.connect("pools");
        stage.ask(holder, "ACQ4ME k 1 5 60\n");
        let words: [&[u8]; 10] =
            [b"DRAIN", b"RELOAD", b"UNDRAIN", b"LOG", b" ", b"\n", b"k", b"RELEASE-LOCK", b"\0\xff\r", b"client:1"];
        let bytes: Vec<u8> = (0..random.below(200)).flat_map(|_| random.pick(&words).to_vec()).collect();
        stage.world.send(stage.admin, &bytes);
        stage.pass(3);
        stage.world.finish(stage.admin);
        stage.pass(700);
    });
}

/// The help on the command line lists the commands of the daemon.
#[test]
fn help_has_every_command() {
    let help = print(&["help", "admin"]);
    for (command, Offered { about, .. }) in Operations::of(poolcounter::SERVICES).commands() {
        let usage = [&[command], about.parameters].concat().join(" ");
        let line = help.lines().find(|line| line.trim_start().starts_with(&usage));
        assert!(line.is_some_and(|line| line.ends_with(about.summary)), "{usage} {}: {help}", about.summary);
    }
}

#[test]
fn names_of_operations_are_unique() {
    let mut commands = BTreeSet::new();
    for info in poolcounter::SERVICES {
        let mut names = BTreeSet::new();
        for operation in info.operations {
            assert!(names.insert(operation.name), "{} has {} twice", info.name, operation.name);
            let command = operation.command.into_iter().all(|command| commands.insert(command));
            assert!(command, "{} is a command of another service", operation.name);
            assert!(operation.is_on_pages || operation.command.is_some(), "{} is offered nowhere", operation.name);
        }
    }
}

#[test]
fn pages_run_only_operations_of_their_table() {
    let http = HttpSettings { is_admin: true, ..HttpSettings::default() };
    let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES).with(http));
    for (path, status) in [("/jobs/burn/1", 400), ("/admin/drain/", 400), ("/x/kick/1", 404)] {
        let client = world.connect_to("http");
        let request = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n");
        let told = String::from_utf8_lossy(&world.ask(client, request.as_bytes())).into_owned();
        assert!(told.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {told}");
    }
}

/// Runs `poolcounter admin` with these words.
fn admin(socket: &Path, words: &[&str]) -> Ended {
    let mut command = Command::new(Daemon::program());
    end_of(command.arg("admin").args(words).env("POOLCOUNTER_ADMIN", format!("unix:{}", socket.display())))
}

/// Starts a daemon with an administration socket.
fn start(scratch: &Scratch, options: &[&str]) -> (Daemon, std::path::PathBuf) {
    let socket = scratch.file("admin.sock");
    let address = format!("unix:{}", socket.display());
    let daemon = Daemon::start(&[&["--admin", &address], options].concat());
    (daemon, socket)
}

#[test]
fn socket_is_private_and_its_users_are_logged() {
    let scratch = Scratch::new();
    let (mut daemon, socket) = start(&scratch, &["--socket-mode", "666"]);
    assert_eq!(fs::metadata(&socket).expect("is there").permissions().mode() & 0o777, 0o600);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 5 5"), "LOCKED");
    let address = holder.stream().local_addr().expect("is connected").to_string();
    let released = admin(&socket, &["RELEASE-LOCK", "k", &address]);
    assert_eq!(released, Ended { stdout: "1 lock taken away\n".into(), ..Ended::silent(0) });
    let line = daemon.wait_for_log("asks for RELEASE-LOCK");
    let uid = format!("uid {}, pid ", fs::metadata(&socket).expect("is there").uid());
    assert!(
        line.contains(&uid) && line.ends_with(&format!("asks for RELEASE-LOCK k {address}: 1 lock taken away")),
        "{line}"
    );
    assert_eq!(holder.line(), "NOT_LOCKED");
    assert_eq!(holder.rest(), "");
    let refused = admin(&socket, &["RELEASE-LOCK", "k", &address]);
    assert_eq!(refused.status, Some(1));
    assert!(refused.stderr.ends_with("no client of that address has a lock of that key\n"), "{refused:?}");
    let json = admin(&socket, &["--json", "DRAIN", "all"]);
    assert_eq!(json, Ended { stdout: "{\"error\":\"usage: DRAIN\"}\n".into(), ..Ended::silent(1) });
}

/// A command that runs under a lock is notified at once when the lock is taken away.
#[test]
fn command_loses_the_lock_that_is_taken_away() {
    let scratch = Scratch::new();
    let (daemon, socket) = start(&scratch, &[]);
    let server = daemon.address.to_string();
    let running = Running::program(&["exec", "-k", "k", "--on-lost", "term", "-s", &server, "--", "sleep", "60"]);
    let mut asker = daemon.connect();
    asker.wait_for_stat("processing_workers", 1);
    let client = asker.ask("STATS HOLDERS k").split(' ').next().expect("a holder").to_string();
    assert_eq!(admin(&socket, &["RELEASE-LOCK", "k", &client]).status, Some(0));
    let said = running.finish().stderr;
    assert!(said.contains("the lock is lost"), "{said}");
}

/// Actions of administrators are logged at every level.
#[test]
fn changed_log_level_outlives_an_upgrade() {
    let scratch = Scratch::new();
    let program = scratch.file("poolcounter");
    install_program(&program);
    let socket = scratch.file("admin.sock");
    let address = format!("unix:{}", socket.display());
    let mut daemon = Daemon::run(Command::new(&program).args(["-l", "127.0.0.1:0", "--admin", &address]));
    assert_eq!(admin(&socket, &["LOG", "trace"]).status, Some(0));
    daemon.wait_for_log("asks for LOG trace");
    let mut client = daemon.connect();
    client.ask("STATS uptime");
    daemon.wait_for_log("> STATS uptime");
    daemon.upgrade();
    client.ask("STATS uptime");
    daemon.wait_for_log("> STATS uptime");
    assert_eq!(admin(&socket, &["LOG", "warn"]).status, Some(0));
    daemon.wait_for_log("asks for LOG warn");
    client.ask("STATS uptime");
    assert_eq!(admin(&socket, &["LOG", "default"]).status, Some(0));
    let lines = daemon.lines.len();
    daemon.wait_for_log("asks for LOG default");
    assert_eq!(daemon.lines.len(), lines + 1, "only warnings were logged: {:#?}", daemon.lines);
}

#[test]
fn drain_ends_the_daemon() {
    let scratch = Scratch::new();
    let (mut daemon, socket) = start(&scratch, &[]);
    let (mut holder, mut bystander) = (daemon.connect(), daemon.connect());
    assert_eq!(holder.ask("ACQ4ME k 1 5 5"), "LOCKED");
    let mut operator = Client::at(&socket);
    assert_eq!(operator.ask("DRAIN"), "LEFT 1 (pools 1)");
    let refused = || TcpStream::connect(daemon.address).err().map(|error| error.kind());
    until("a refusal", || refused() == Some(ErrorKind::ConnectionRefused));
    assert_eq!(bystander.ask("ACQ4ME k 1 5 5"), "ERROR DRAINING");
    daemon.upgrade();
    let refused = || TcpStream::connect(daemon.address).err().map(|error| error.kind());
    assert_eq!(refused(), Some(ErrorKind::ConnectionRefused), "an upgrade keeps it closed");
    assert_eq!(bystander.ask("ACQ4ME free 1 5 5"), "ERROR DRAINING");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    let rest = operator.rest();
    assert!(rest.ends_with("OK nothing is left, and the daemon ends\n"), "{rest}");
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!socket.exists(), "the socket's file is removed");
}

#[test]
fn reload_is_answered_with_its_result() {
    let scratch = Scratch::new();
    let config = scratch.file("settings.toml");
    fs::write(&config, "max_locks = 1\n").expect("is written");
    let (mut daemon, socket) = start(&scratch, &["--config", config.to_str().expect("is text")]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME a 1 5 5"), "LOCKED");
    fs::write(&config, "max_locks = 1\nmax_lokcs = 2\n").expect("is written");
    let Ended { status, stdout, stderr: said } = admin(&socket, &["RELOAD"]);
    assert_eq!((&*stdout, status), ("", Some(1)), "{said}");
    let mistake = "settings.toml:2: there is no setting max_lokcs; did you mean max_locks?\n";
    assert!(said.starts_with("poolcounter: no upgrade: ") && said.ends_with(mistake), "{said}");
    fs::write(&config, "max_locks = 2\n").expect("is written");
    let done = format!("poolcounter {} has taken over\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(admin(&socket, &["RELOAD"]), Ended { stdout: done.clone(), ..Ended::silent(0) });
    assert_eq!(holder.ask("ACQ4ME b 1 5 5"), "LOCKED", "the lock is kept, and the new limit counts");
    let json = admin(&socket, &["--json", "RELOAD"]).stdout;
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!(lines, ["{\"wait\":\"for the new program\"}", &format!("{{\"ok\":\"{}\"}}", done.trim_end())]);
    let line = daemon.wait_for_log("asks for RELOAD");
    assert!(line.contains("uid "), "{line}");
}

/// The new program serves, without the address that another process has.
#[test]
fn reload_tells_of_addresses_that_are_taken() {
    let scratch = Scratch::new();
    let config = scratch.file("settings.toml");
    fs::write(&config, "http = []\n").expect("is written");
    let (_daemon, socket) = start(&scratch, &["--config", config.to_str().expect("is text")]);
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let taken = other.local_addr().expect("an address");
    fs::write(&config, format!("http = [\"{taken}\"]\n")).expect("is written");
    let ended = admin(&socket, &["RELOAD"]);
    let reason = "has taken over, but not all of its settings: the log has the reason\n";
    assert!(ended.stdout.is_empty() && ended.stderr.ends_with(reason) && ended.status == Some(1), "{ended:?}");
}

/// Clients with a list of servers go on to the next, and come back.
#[test]
fn next_server_grants_locks_in_a_drain() {
    let scratch = Scratch::new();
    // A port that the system has chosen would be another one when it is opened again.
    let port = (20_000..30_000).find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    let own = format!("127.0.0.1:{}", port.expect("one is free"));
    let socket = scratch.file("admin.sock");
    let address = format!("unix:{}", socket.display());
    let first = Daemon::run(Command::new(Daemon::program()).args(["-l", &own, "--admin", &address]));
    let second = Daemon::start(&[]);
    let mut holder = first.connect();
    assert_eq!(holder.ask("ACQ4ME held 1 5 5"), "LOCKED");
    let granted_by_next = |key: &str| {
        let reached = [&first, &second].map(|daemon| TcpStream::connect(daemon.address).ok());
        let of_next = reached.into_iter().flatten().next().expect("one of them listens");
        Client::of(of_next).ask(&format!("ACQ4ME {key} 1 5 5"))
    };
    let mut operator = Client::at(&socket);
    operator.send(b"DRAIN\n");
    until("a refusal", || TcpStream::connect(first.address).is_err());
    assert_eq!(granted_by_next("k"), "LOCKED");
    assert_eq!(holder.ask("ACQ4ME other 1 5 5"), "ERROR DRAINING");
    assert_eq!(admin(&socket, &["UNDRAIN"]).status, Some(0));
    until("a connection", || TcpStream::connect(first.address).is_ok());
    assert_eq!(first.connect().ask("ACQ4ME k 1 5 5"), "LOCKED");
}

/// A signal stops the daemon at once, also during a drain; and an upgrade by a signal works during one.
#[test]
fn signal_ends_a_drain() {
    let scratch = Scratch::new();
    let (mut daemon, socket) = start(&scratch, &[]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 5 5"), "LOCKED");
    let mut operator = Client::at(&socket);
    operator.send(b"DRAIN\n");
    daemon.wait_for_log("asks for DRAIN");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().code(), Some(0));
}

/// The socket file of a killed daemon is replaced, and a reload moves the socket.
#[test]
fn socket_can_be_moved() {
    let scratch = Scratch::new();
    let (program, config) = (scratch.file("poolcounter"), scratch.file("config"));
    install_program(&program);
    let [one, other] = ["one", "other"].map(|name| scratch.file(name));
    let setting = |path: &Path| format!("listen = '127.0.0.1:0'\nadmin = 'unix:{}'\n", path.display());
    drop(std::os::unix::net::UnixListener::bind(&one).expect("is free"));
    fs::write(&config, setting(&one)).expect("is written");
    let mut daemon = Daemon::run(Command::new(&program).arg("--config").arg(&config));
    assert_eq!(admin(&one, &["LOG", "info"]).status, Some(0));
    fs::write(&config, setting(&other)).expect("is written");
    daemon.upgrade();
    let config = config.to_str().expect("is text");
    let mut command = Command::new(Daemon::program());
    let found = end_of(command.args(["admin", "-c", config, "LOG", "info"]).env_remove("POOLCOUNTER_ADMIN"));
    assert_eq!(found.status, Some(0), "{found:?}");
    assert_eq!(fs::metadata(&other).expect("is there").permissions().mode() & 0o777, 0o600);
    assert_eq!(admin(&one, &["LOG", "info"]).status, Some(1));
}

#[test]
fn daemon_that_does_not_answer_is_named() {
    let scratch = Scratch::new();
    let (daemon, socket) = start(&scratch, &[]);
    daemon.signal(Signal::SIGSTOP);
    let begun = Instant::now();
    let ended = admin(&socket, &["UNDRAIN"]);
    daemon.signal(Signal::SIGCONT);
    let stderr = format!("poolcounter: unix:{}: the daemon does not answer\n", socket.display());
    assert_eq!(ended, Ended { stderr, ..Ended::silent(1) });
    assert!(begun.elapsed() >= Duration::from_secs(5));
}

/// An upgrade may take longer than a reply.
#[test]
fn drain_outlives_a_pause_of_the_daemon() {
    let scratch = Scratch::new();
    let (mut daemon, socket) = start(&scratch, &[]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 5 60"), "LOCKED");
    let mut drain = Running::program(&["admin", "-a", &format!("unix:{}", socket.display()), "DRAIN"]);
    assert_eq!(drain.line(), "left: 1 (pools 1)");
    daemon.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(6));
    daemon.signal(Signal::SIGCONT);
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    let ended = drain.finish();
    assert!(ended.stdout.ends_with("nothing is left, and the daemon ends\n"), "{ended:?}");
    assert!(ended.status == Some(0) && daemon.wait().success());
}
