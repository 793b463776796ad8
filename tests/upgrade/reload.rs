//! Settings that are checked before use, and read again while the daemon runs.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_server::{Address, Listener, Options, Server};
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::original;
use poolcounter_testkit::running::end_of;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::web::fetch;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Daemon whose settings are in a file.
struct Configured {
    daemon: Daemon,
    path: PathBuf,
    scratch: Scratch,
}

impl Configured {
    fn start(text: &str, stdin: Stdio) -> Configured {
        let scratch = Scratch::new();
        let path = scratch.file("conf");
        fs::write(&path, text).expect("can be written");
        let daemon = Daemon::run(Command::new(Daemon::program()).arg("--config").arg(&path).stdin(stdin));
        Configured { daemon, path, scratch }
    }

    /// Applies other settings by a reload, and returns the line of the log with the addresses.
    fn reload(&mut self, text: &str) -> String {
        fs::write(&self.path, text).expect("can be written");
        self.daemon.signal(Signal::SIGUSR1);
        self.daemon.wait_for_log("has taken over")
    }
}

/// Returns a port that was free a moment ago.
pub fn free_port() -> u16 {
    original::free_port(Ipv4Addr::LOCALHOST)
}

pub fn at(ip: &str, port: u16) -> SocketAddr {
    format!("{ip}:{port}").parse().expect("an address")
}

fn is_refused(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Returns the metrics of the last reload: its success, and its time.
pub fn last_reload(http: SocketAddr) -> (f64, f64) {
    let page = fetch(http, "/metrics");
    let value = |name: &str| {
        let line = page.text().lines().find(|line| line.starts_with(name)).expect("is there");
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).expect("a number")
    };
    (value("poolcounter_last_reload_success "), value("poolcounter_last_reload_timestamp_seconds "))
}

// Checked before

#[test]
fn settings_are_checked_without_a_daemon() {
    let scratch = Scratch::new();
    let path = scratch.file("conf");
    let check = |text: &str, arguments: &[&str]| {
        fs::write(&path, text).expect("can be written");
        let ended = end_of(Command::new(Daemon::program()).args(["--check", "--config"]).arg(&path).args(arguments));
        assert_eq!(ended.stdout, "", "{text:?}");
        (ended.status, ended.stderr)
    };
    // The check opens no sockets: another process may listen there, such as the daemon that is to read the file again.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = format!("listen = '{}'", listener.local_addr().expect("an address"));
    for text in ["", "max_locks = 2\nhttp = '127.0.0.1'\n", &taken] {
        assert_eq!(check(text, &["--counter"]), (Some(0), String::new()), "{text:?}");
    }
    let long = format!("listen = 'unix:/{}'", "x".repeat(200));
    for (text, arguments, reason) in [
        ("\nmax_lokcs = 2", &[][..], "conf:2: there is no setting max_lokcs; did you mean max_locks?"),
        ("max_locks = 'many'", &[], "conf:1: max_locks: \"many\" is not a number"),
        ("listen = 'nowhere'", &[], "conf:1: listen: \"nowhere\" is not an address"),
        (&long, &[], "is not a path of at most 107 bytes"),
        ("listen = ['::1', '::1']", &[], "[::1]:7531 is listed twice"),
        ("counter.enable = true", &["--counter-port", "7531"], "127.0.0.1:7531 is listed twice"),
        ("", &["--max-line", "1"], "--max-line: \"1\" is not a number"),
        ("", &["--frobnicate"], "frobnicate"),
        ("", &["--config", "/nowhere"], "/nowhere: cannot be read: No such file"),
    ] {
        let (status, said) = check(text, arguments);
        let is_misuse = ["--max-line", "--frobnicate"].iter().any(|option| arguments.first() == Some(option));
        let expected = if is_misuse { 64 } else { 1 };
        assert_eq!((status, said.lines().count()), (Some(expected), 1), "{text:?}: {said}");
        assert!(said.contains(reason), "{said:?} does not tell {reason:?}");
    }
}

// Addresses

/// An address of a machine overlaps with the wildcard address: the new listener is open before the old one is closed.
#[test]
fn addresses_are_changed_by_a_reload() {
    let (port, counters) = (free_port(), free_port());
    let only = format!("listen = '127.0.0.1:{port}'\n");
    let all = format!("listen = '0.0.0.0:{port}'\ncounter.enable = true\ncounter.listen = '127.0.0.1:{counters}'\n");
    let mut configured = Configured::start(&only, Stdio::null());
    let mut holder = Client::to(at("127.0.0.1", port));
    assert_eq!(holder.ask("ACQ4ME k 1 9 0"), "LOCKED");
    assert!(is_refused(at("127.0.0.2", port)) && is_refused(at("127.0.0.1", counters)));
    for _ in 0..2 {
        let said = configured.reload(&all);
        assert!(said.ends_with(&format!(" listens on 0.0.0.0:{port}")), "{said}");
        let mut other = Client::to(at("127.0.0.2", port));
        assert_eq!(other.ask("ACQ4ME k 1 9 0"), "TIMEOUT", "the lock is held by a connection that lives on");
        drop(TcpStream::connect(at("127.0.0.1", counters)).expect("connects"));
        let said = configured.reload(&only);
        assert!(said.ends_with(&format!(" listens on 127.0.0.1:{port}")), "{said}");
        assert_eq!(other.ask("ACQ4ME k 1 9 0"), "TIMEOUT", "its listener is closed, and it is not");
        assert!(is_refused(at("127.0.0.2", port)) && is_refused(at("127.0.0.1", counters)));
    }
    assert_eq!(Client::to(at("127.0.0.1", port)).ask("ACQ4ME k 1 9 0"), "TIMEOUT");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    // No other socket can share the port.
    let again = TcpListener::bind(at("127.0.0.1", port));
    assert_eq!(again.map(|_| ()).map_err(|error| error.kind()), Err(ErrorKind::AddrInUse));
}

#[test]
fn port_that_the_system_chose_stays() {
    let mut configured = Configured::start("listen = '127.0.0.1:0'\n", Stdio::null());
    let address = configured.daemon.address;
    for text in ["listen = '127.0.0.1:0'\nmax_locks = 2\n", "listen = ['127.0.0.1:0', '127.0.0.1:0']\n"] {
        let said = configured.reload(text);
        assert!(said.contains(&format!(" listens on {address}")), "{said}");
    }
    assert_eq!(Client::to(address).ask("RELEASE"), "NOT_LOCKED");
}

#[test]
fn reload_adds_removes_and_changes_socket_files() {
    let mut configured = Configured::start("listen = '127.0.0.1:0'\n", Stdio::null());
    let [one, two] = ["one", "two"].map(|name| configured.scratch.file(name));
    let settings = |path: &PathBuf, more: &str| format!("listen = ['127.0.0.1:0', 'unix:{}']\n{more}", path.display());
    let mode = |path: &PathBuf| fs::metadata(path).expect("is there").permissions().mode() & 0o777;
    configured.reload(&settings(&one, "socket_mode = 600\n"));
    assert_eq!(mode(&one), 0o600);
    configured.reload(&settings(&one, "socket_mode = 666\n"));
    assert_eq!(mode(&one), 0o666);
    configured.reload(&settings(&one, ""));
    let usual = configured.scratch.file("usual");
    let _listener = UnixListener::bind(&usual).expect("a new file");
    assert_eq!(mode(&one), mode(&usual), "that is the umask's");
    configured.reload(&settings(&two, ""));
    assert!(!one.exists(), "the file goes with its listener");
    drop(UnixStream::connect(&two).expect("connects"));
}

/// A socket whose file was removed or replaced is opened anew, and clients of the old one are served on.
#[test]
fn reload_makes_a_removed_socket_file_again() {
    let scratch = Scratch::new();
    let [pools, admin] = ["pools", "admin"].map(|name| scratch.file(name));
    let text = format!("listen = ['127.0.0.1:0', 'unix:{}']\nadmin = 'unix:{}'\n", pools.display(), admin.display());
    let mut configured = Configured::start(&text, Stdio::null());
    let ask = |stream: &mut UnixStream| {
        let mut answer = String::new();
        stream.write_all(b"RELEASE\n").expect("is open");
        BufReader::new(stream).read_line(&mut answer).expect("is open");
        answer
    };
    let mut before = UnixStream::connect(&pools).expect("connects");
    let mut late = UnixStream::connect(&pools).expect("connects");
    for path in [&pools, &admin] {
        fs::remove_file(path).expect("is there");
    }
    configured.reload(&text);
    for path in [&pools, &admin] {
        UnixStream::connect(path).expect("is made again");
    }
    assert_eq!(fs::metadata(&admin).expect("is there").permissions().mode() & 0o777, 0o600);
    assert!(configured.daemon.lines.iter().any(|line| line.contains("opened anew")), "{:#?}", configured.daemon.lines);
    // A listener of another process is left alone, with its permissions.
    fs::remove_file(&pools).expect("is there");
    let other = UnixListener::bind(&pools).expect("is free");
    fs::set_permissions(&pools, fs::Permissions::from_mode(0o640)).expect("is there");
    configured.reload(&text);
    assert!(configured.daemon.lines.iter().any(|line| line.contains("Address already in use")));
    assert_eq!(fs::metadata(&pools).expect("is there").permissions().mode() & 0o777, 0o640);
    // Its file is left behind, and is replaced.
    drop(other);
    configured.reload(&text);
    let mut after = UnixStream::connect(&pools).expect("is made again");
    for client in [&mut before, &mut late, &mut after] {
        assert_eq!(ask(client), "NOT_LOCKED\n");
    }
    configured.daemon.lines.clear();
    configured.reload(&text);
    assert!(!configured.daemon.lines.iter().any(|line| line.contains("opened anew")), "nothing was missing");
}

/// A reload that begins to serve jobs is refused where no file of jobs can be.
#[test]
fn reload_to_a_missing_jobs_directory_is_refused() {
    let scratch = Scratch::new();
    let without = "listen = '127.0.0.1:0'\n";
    let text = |store: &PathBuf| {
        let jobs = format!("[jobs]\nenable = true\nlisten = '127.0.0.1:0'\nstore = 'sqlite:{}'\n", store.display());
        format!("{without}{jobs}")
    };
    let mut configured = Configured::start(without, Stdio::null());
    fs::write(scratch.file("file"), "").expect("can be written");
    for (place, reason) in [("missing/jobs.db", "No such file or directory"), ("file/jobs.db", "Not a directory")] {
        let place = scratch.file(place);
        fs::write(&configured.path, text(&place)).expect("can be written");
        configured.daemon.signal(Signal::SIGUSR1);
        let line = configured.daemon.wait_for_log("no upgrade: ");
        assert!(line.contains(&format!("the jobs cannot be kept in {}: ", place.display())), "{line}");
        assert!(line.ends_with(reason), "{line}");
        assert_eq!(configured.daemon.connect().ask("RELEASE"), "NOT_LOCKED");
    }
    fs::create_dir(scratch.file("missing")).expect("can be made");
    configured.reload(&text(&scratch.file("missing/jobs.db")));
    assert_eq!(JobsClient::to(configured.daemon.jobs()).ask("put 0 0 60 1\r\nx"), "INSERTED 1");
}

/// A store that another daemon has is read by the next reload, or left for another one.
#[test]
fn reload_after_a_store_was_taken_reads_it() {
    let (own, others) = (Scratch::new(), Scratch::new());
    let without = "listen = '127.0.0.1:0'\n";
    let text = |files: &Scratch| {
        let store = files.file("jobs.db").display().to_string();
        format!("{without}[jobs]\nenable = true\nlisten = '127.0.0.1:0'\nstore = 'sqlite:{store}'\n")
    };
    let other = Configured::start(&text(&others), Stdio::null());
    assert_eq!(JobsClient::to(other.daemon.jobs()).ask("put 0 0 60 1\r\nx"), "INSERTED 1");
    let mut configured = Configured::start(without, Stdio::null());
    configured.reload(&text(&others));
    assert!(configured.daemon.lines.iter().any(|line| line.contains("another daemon keeps its jobs there")));
    assert_eq!(JobsClient::to(configured.daemon.jobs()).ask("stats"), "INTERNAL_ERROR");
    configured.reload(&text(&own));
    assert_eq!(JobsClient::to(configured.daemon.jobs()).ask("peek 1"), "NOT_FOUND");
    let mut configured = Configured::start(without, Stdio::null());
    configured.reload(&text(&others));
    drop(other);
    configured.reload(&text(&others));
    assert_eq!(JobsClient::to(configured.daemon.jobs()).ask("peek 1"), "FOUND 1 1");
}

/// An address that cannot be opened is named, and the service stays where it was. Operators see whether a reload has
/// worked.
#[test]
fn failed_reload_is_reported() {
    let (port, http) = (free_port(), at("127.0.0.1", free_port()));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken_address = taken.local_addr().expect("an address");
    let settings = |listen: SocketAddr, more: &str| format!("listen = '{listen}'\nhttp = '{http}'\n{more}");
    let here = at("127.0.0.1", port);
    let mut configured = Configured::start(&settings(here, ""), Stdio::null());
    assert_eq!(last_reload(http), (1.0, 0.0), "there was none");
    assert!(fetch(http, "/status.json").text().contains("\"last_reload\":null"));

    fs::write(&configured.path, settings(here, "max_locks = 'many'\n")).expect("can be written");
    configured.daemon.signal(Signal::SIGUSR1);
    configured.daemon.wait_for_log("no upgrade: ");
    let (success, first) = last_reload(http);
    assert_eq!(success, 0.0);
    assert!(fetch(http, "/status.json").text().contains("\"has_worked\":false"));
    assert!(fetch(http, "/").text().contains("failed: the log has the reason"));

    fs::write(&configured.path, settings(taken_address, "")).expect("can be written");
    configured.daemon.signal(Signal::SIGUSR1);
    let line = configured.daemon.wait_for_log("cannot listen on");
    assert!(line.contains(&format!("cannot listen on {taken_address}: Address already in use")), "{line}");
    configured.daemon.wait_for_log("has taken over");
    assert_eq!(Client::to(here).ask("RELEASE"), "NOT_LOCKED", "the pools are where they were");
    assert_eq!(last_reload(http).0, 0.0);

    drop(taken);
    configured.daemon.upgrade();
    assert_eq!(Client::to(taken_address).ask("RELEASE"), "NOT_LOCKED");
    assert!(is_refused(here));
    let (success, last) = last_reload(http);
    assert_eq!(success, 1.0);
    assert!(first > 1e9 && last >= first, "{first} and {last} are times of day");
    assert!(fetch(http, "/status.json").text().contains("\"has_worked\":true"));
}

/// The signals are sent as soon as the daemon blocks or catches them.
#[test]
fn signals_during_start_do_not_end_the_daemon() {
    let mut command = Command::new(Daemon::program());
    let mut child = command.args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().expect("starts");
    let status = format!("/proc/{}/status", child.id());
    // The masks of blocked and of caught signals.
    let is_held = |line: &str| {
        let mask = line.strip_prefix("SigBlk:").or(line.strip_prefix("SigCgt:"));
        let bits = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        bits.is_some_and(|bits| bits & 1 << (Signal::SIGUSR2 as u64 - 1) != 0)
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !fs::read_to_string(&status).expect("it runs").lines().any(is_held) {
        assert!(Instant::now() < deadline, "the signals of requests are not held");
    }
    for signal in [Signal::SIGHUP, Signal::SIGUSR2] {
        kill(Pid::from_raw(child.id() as i32), signal).expect("runs");
    }
    let log = BufReader::new(child.stderr.take().expect("is piped"));
    let is_drained = log.lines().map_while(Result::ok).any(|line| line.contains("refuse new work"));
    let _ = child.kill();
    let status = child.wait().expect("ends");
    assert!(is_drained, "{status}");
}

/// A socket that was inherited cannot be moved.
#[test]
fn inherited_socket_stays_and_that_is_said() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut configured = Configured::start("", Stdio::from(OwnedFd::from(listener)));
    for _ in 0..2 {
        configured.reload("listen = '127.0.0.1:1'\n");
        let log = configured.daemon.lines.join("\n");
        assert!(log.contains("the addresses set for the pools are ignored: a socket that was inherited"), "{log}");
        assert_eq!(Client::to(address).ask("RELEASE"), "NOT_LOCKED");
        configured.daemon.lines.clear();
    }
}

/// Clients in the backlog of a listener are served, even if it is closed before it has accepted them.
#[test]
fn backlog_is_served_before_its_listener_is_closed() {
    let mut server = Server::bind(poolcounter::SERVICES, "127.0.0.1:0", "pools").expect("a free port");
    let address: SocketAddr = server.addresses("pools")[0].to_string().parse().expect("an address");
    let mut clients: Vec<Client> = (0..5).map(|_| Client::to(address)).collect();
    let mut listeners = server.take_listeners().expect("can be left alone");
    assert_eq!((listeners.len(), server.connections()), (1, 0));
    let (listener, kind) = listeners.remove(0);
    server.retire(listener, kind);
    assert_eq!(server.connections(), 5);
    // A child of another test may have it open until it runs its program.
    let begun = Instant::now();
    while !is_refused(address) {
        assert!(begun.elapsed().as_secs() < 5, "it still listens");
    }
    let other = Listener::bind(&Address::Tcp(address), &Options::default()).expect("is free again");
    server.listen(other, kind).expect("can be polled");
    let stopper = server.stopper();
    let thread = std::thread::spawn(move || server.run());
    for client in clients.iter_mut().chain([&mut Client::to(address)]) {
        assert_eq!(client.ask("RELEASE"), "NOT_LOCKED");
    }
    stopper.stop().expect("is told");
    thread.join().expect("does not panic").expect("ends well");
}

/// Settings of tubes in the file are valid until a command changes them, also over a restart, and again when the
/// settings in the file change.
#[test]
fn later_commands_override_the_files_tube_settings() {
    let text = |rest: &str, store: &str| {
        let jobs = format!("[jobs]\nenable = true\nlisten = \"127.0.0.1:0\"\nstore = \"sqlite:{store}\"\n");
        format!("listen = \"127.0.0.1:0\"\n{jobs}[[jobs.limit]]\npattern = \"*/a\"\nnumber = {rest}\n")
    };
    let files = Scratch::new();
    let store = files.file("jobs.db").display().to_string();
    let mut configured = Configured::start(&text("2", &store), Stdio::null());
    let most = |configured: &Configured| {
        let mut client = JobsClient::to(configured.daemon.jobs());
        assert_eq!(client.ask("watch */a"), "WATCHING 2");
        let mut reserve = || client.ask("reserve-with-timeout 0").starts_with("RESERVED") && client.body(1) == b"a";
        (1..).take_while(|_| reserve()).last().unwrap_or(0)
    };
    let mut client = JobsClient::to(configured.daemon.jobs());
    for _ in 0..9 {
        assert!(client.ask("put-job 0 0 60 1 tube=x/a\r\na").starts_with("INSERTED"));
    }
    assert_eq!(most(&configured), 2);
    assert_eq!(client.ask("limit */a 3"), "LIMIT 3");
    assert_eq!(most(&configured), 3);
    configured.reload(&text("2", &store));
    assert_eq!(most(&configured), 3);
    drop(configured);
    configured = Configured::start(&text("2", &store), Stdio::null());
    assert_eq!(most(&configured), 3, "after a restart");
    configured.reload(&text("4\nall = true", &store));
    assert_eq!(most(&configured), 4);
    configured.reload(&text("5\n", &store).replace("*/a", "*/b"));
    assert_eq!(most(&configured), 9);
}
