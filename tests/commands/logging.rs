//! The log of the daemon: on an unread standard error, for the journal, and its contents.

use crate::pty;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, wait};
use poolcounter_testkit::running::Running;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::iter;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Number of requests whose log fills a pipe, a socket and a terminal.
const REQUESTS: usize = 2_000;

/// Daemon that logs every line, and the two sides of its log.
struct Logging {
    child: Child,
    address: SocketAddr,
    /// Side for reading.
    reader: BufReader<File>,
    /// Another handle of the side to which the daemon writes.
    writer: OwnedFd,
}

impl Logging {
    fn start(reader: impl Into<OwnedFd>, writer: impl Into<OwnedFd>) -> Logging {
        let writer = writer.into();
        let child = Command::new(Daemon::program())
            .args(["-l", "127.0.0.1:0", "-vv"])
            .env_remove("RUST_LOG")
            .env("RUST_LOG_STYLE", "never")
            .stderr(Stdio::from(writer.try_clone().expect("a second handle")))
            .spawn()
            .expect("the program runs");
        let mut reader = BufReader::new(File::from(reader.into()));
        let mut line = String::new();
        while !line.contains(" listens on ") {
            line.clear();
            reader.read_line(&mut line).expect("it tells where it listens");
        }
        let address = line.trim_end().rsplit(' ').next().and_then(|word| word.parse().ok()).expect("an address");
        Logging { child, address, reader, writer }
    }

    /// Starts a daemon on each kind of standard error that can be full.
    fn on_each_kind() -> [Logging; 3] {
        let pipe = std::io::pipe().expect("a pipe");
        let sockets = UnixStream::pair().expect("a pair of sockets");
        let terminal = pty::open();
        [
            Logging::start(pipe.0, pipe.1),
            Logging::start(sockets.0, sockets.1),
            Logging::start(terminal.master, terminal.slave),
        ]
    }

    /// Sends so many requests that the log has no room for them.
    fn flood(&self) -> Client {
        let mut client = Client::to(self.address);
        for _ in 0..REQUESTS {
            assert_eq!(client.ask("RELEASE k"), "NOT_LOCKED");
        }
        client
    }

    fn terminate(&mut self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).expect("the process is there");
        assert_eq!(wait(&mut self.child).code(), Some(0));
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn unread_log_does_not_block_the_daemon() {
    for mut daemon in Logging::on_each_kind() {
        daemon.flood();
        let flags = fcntl(&daemon.writer, FcntlArg::F_GETFL).expect("is open");
        assert!(!OFlag::from_bits_retain(flags).contains(OFlag::O_NONBLOCK), "others write there, too");
        daemon.terminate();
    }
}

#[test]
fn lines_that_are_lost_are_counted() {
    for mut daemon in Logging::on_each_kind() {
        let mut client = daemon.flood();
        let (fresh, _) = std::io::pipe().expect("a pipe");
        let mut reader = std::mem::replace(&mut daemon.reader, BufReader::new(File::from(OwnedFd::from(fresh))));
        let (sender, log) = channel();
        // The thread ends with the daemon's last line, or with the process.
        thread::spawn(move || {
            let lines = reader.by_ref().lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        // These requests are lost as well until some of the log was read.
        let mut lines: Vec<String> = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while !lines.iter().any(|line| line.contains(" > RELEASE last")) {
            assert!(Instant::now() < deadline, "nothing is logged any more");
            assert_eq!(client.ask("RELEASE last"), "NOT_LOCKED");
            // Reading on until the log is empty makes room for the next lines.
            lines.extend(iter::from_fn(|| log.recv_timeout(Duration::from_millis(200)).ok()));
        }
        daemon.terminate();
        while !lines.last().is_some_and(|line| line.contains("poolcounter stops")) {
            lines.push(log.recv_timeout(PATIENCE).expect("it says so"));
        }
        let of =
            |line: &String| line.split(" lines of the log were lost").next()?.rsplit(' ').next()?.parse::<usize>().ok();
        let notices = lines.iter().filter(|line| line.contains(" lines of the log were lost: nothing read it"));
        let lost: usize = notices.clone().filter_map(of).sum();
        let requests =
            lines.iter().filter(|line| line.contains(" > RELEASE k") || line.contains(" < NOT_LOCKED")).count();
        assert!(lost > 0 && requests > 0 && requests + lost >= 2 * REQUESTS, "{requests} and {lost}");
        assert!(lines.iter().all(|line| line.starts_with("[20")), "a line begins where one has ended");
    }
}

#[test]
fn few_descriptors_are_a_warning_only_if_the_settings_allow_more_connections() {
    for (most, level) in [("0", "INFO "), ("5000", "WARN ")] {
        let script = format!("ulimit -n 1000; exec {} -l 127.0.0.1:0 --max-connections {most}", Daemon::program());
        let mut daemon = Running::start(Command::new("sh").args(["-c", &script]).env_remove("RUST_LOG"));
        let line = daemon.error_line();
        assert!(line.contains("at most 1000 files may be open, ") && line.contains(level), "{line}");
    }
}

/// Starts the daemon with the standard error named as the journal's, or with another file so named, and returns the
/// first line there that is not about the descriptors of this machine.
fn first_line(is_named: bool, arguments: &[&str]) -> String {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let writer = OwnedFd::from(writer);
    let stderr = File::from(writer.try_clone().expect("a second handle")).metadata().expect("is open");
    let inode = if is_named { stderr.ino() } else { stderr.ino() + 1 };
    let mut child = Command::new(Daemon::program())
        .args(arguments)
        .env_remove("RUST_LOG")
        .env("JOURNAL_STREAM", format!("{}:{inode}", stderr.dev()))
        .stderr(Stdio::from(writer))
        .spawn()
        .expect("the program runs");
    let mut lines = BufReader::new(&mut reader).lines().map(|line| line.expect("is text"));
    let line = lines.find(|line| !line.contains("files may be open")).unwrap_or_default();
    // The process may have ended already.
    let _ = child.kill();
    let _ = child.wait();
    line
}

#[test]
fn journal_has_priorities_and_no_dates() {
    let start = concat!("poolcounter ", env!("CARGO_PKG_VERSION"), " listens on 127.0.0.1:");
    let serve = &["-l", "127.0.0.1:0"][..];
    assert!(first_line(true, serve).starts_with(&format!("<6>{start}")), "{}", first_line(true, serve));
    let line = first_line(false, serve);
    assert!(line.starts_with("[20") && line.contains(&format!("Z INFO ] {start}")), "{line}");
    let wrong = &["-l", "192.0.2.1:0"][..];
    assert!(first_line(true, wrong).starts_with("<3>poolcounter: cannot listen on "), "{}", first_line(true, wrong));
    assert!(first_line(false, wrong).starts_with("poolcounter: cannot listen on "));
    let lost = &["exec", "-s", "127.0.0.1:1", "--fail-open", "-k", "k", "true"][..];
    assert!(first_line(true, lost).starts_with("<4>poolcounter: k: no server answers; "), "{}", first_line(true, lost));
}

#[test]
fn connections_are_logged_with_peer_and_service() {
    let mut daemon = Daemon::start_with_counters(&["-v"]);
    for (address, service) in [(daemon.address, "pools"), (daemon.counters(), "counters")] {
        let client = Client::to(address);
        let peer = client.stream().local_addr().expect("is connected");
        let opened = daemon.wait_for_log(" opened: ");
        assert!(opened.ends_with(&format!("connection 0 opened: {peer} ({service})")), "{opened}");
        drop(client);
        let closed = daemon.wait_for_log(" closed: ");
        assert!(closed.ends_with(&format!("connection 0 closed: {peer} ({service})")), "{closed}");
    }
    assert!(!daemon.lines.iter().any(|line| line.contains(" > ")), "{:#?}", daemon.lines);
}

#[test]
fn every_line_is_logged_in_both_directions() {
    let mut daemon = Daemon::start_with_counters(&["-vv", "--http", "127.0.0.1:0"]);
    let mut client = daemon.connect();
    assert_eq!(client.ask("ACQ4ME ß\u{200b} 1 9 0"), "LOCKED");
    daemon.wait_for_log("connection 0 > ACQ4ME ß\\u{200b} 1 9 0");
    daemon.wait_for_log("connection 0 < LOCKED");
    client.send(b"STATS FULL\nnonsense\n");
    daemon.wait_for_log("connection 0 > STATS FULL");
    daemon.wait_for_log("connection 0 < uptime: ");
    daemon.wait_for_log("connection 0 < total_acquired: 1");
    daemon.wait_for_log("connection 0 > nonsense");
    daemon.wait_for_log("connection 0 < ERROR BAD_COMMAND");
    let mut counters = Client::to(daemon.counters());
    // Get, then Stats, then an invalid command.
    counters.send(b"\x90\x01\0\0\0\0\0\x03\0\0\0\0\0\x01a");
    daemon.wait_for_log("connection 1 > 0x01 ");
    daemon.wait_for_log("connection 1 < 0x01 Not found");
    counters.send(b"\x90\x10\0\0\0\0\0\0\0\0\0\0");
    daemon.wait_for_log("connection 1 > 0x10 ");
    let stats = daemon.wait_for_log("connection 1 < 0x00 ");
    assert!(stats.contains("objects"), "{stats}");
    counters.send(b"\x90\x77\0\0\0\0\0\0\0\0\0\0");
    daemon.wait_for_log("connection 1 < 0x81 Unknown command");
    let page = daemon.lines.iter().find_map(|line| line.rsplit_once("the status page are at "));
    let mut page = Client::to(page.and_then(|(_, address)| address.parse().ok()).expect("an address"));
    page.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    daemon.wait_for_log("connection 2 > Get \"/healthz\"");
    daemon.wait_for_log("connection 2 < 200 OK, 3 bytes");
    let ours = |line: &String| {
        ["files may be open", "listens on", " are at ", "connection "].iter().any(|words| line.contains(words))
    };
    assert!(daemon.lines.iter().all(ours), "{:#?}", daemon.lines);
}
