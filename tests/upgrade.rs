//! The upgrade that loses nothing, on the real program: what goes on over it, and what happens when it cannot be.

mod support;

use nix::sys::signal::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::daemon::{Client, Daemon, PATIENCE, install, install_program, raise_descriptor_limit};
use support::place::Place;

#[test]
fn everything_goes_on() {
    let mut daemon = Daemon::start(&["--max-hold", "100"]);
    let pid = daemon.pid();
    let (mut holder, mut waiter, mut anyone, mut late) =
        (daemon.connect(), daemon.connect(), daemon.connect(), daemon.connect());
    assert_eq!(holder.ask("ACQ4ME other 1 9 9"), "LOCKED");
    assert_eq!(holder.ask("ACQ4ME k 1 9 9"), "LOCKED");
    waiter.send(b"ACQ4ME k 1 9 60\n");
    anyone.send(b"ACQ4ANY k 1 9 60\nSTATS UP");
    let begun = Instant::now();
    late.send(b"ACQ4ME k 1 9 2\n");
    holder.wait_for_stat("waiting_workers", 3);
    for _ in 0..3 {
        daemon.upgrade();
        assert_eq!(daemon.pid(), pid);
    }
    assert_eq!(holder.stat("waiting_workers"), 3);
    assert_eq!(holder.stat("total_acquired"), 2);
    assert_eq!(late.line(), "TIMEOUT");
    assert!(begun.elapsed() >= Duration::from_secs(2), "it ended early");
    // A new connection finds the pool as it was.
    assert_eq!(daemon.connect().ask("ACQ4ME k 5 3 0"), "QUEUE_FULL");
    assert_eq!(holder.ask("RELEASE"), "RELEASED", "the newest lock is still known as such");
    assert_eq!(waiter.line(), "LOCKED");
    assert_eq!(anyone.line(), "DONE");
    anyone.send(b"TIME\n");
    assert!(anyone.line().starts_with("uptime: "), "half a line was kept");
    drop(waiter);
    assert_eq!(holder.ask("RELEASE k"), "NOT_LOCKED");
    assert_eq!(holder.ask("RELEASE other"), "RELEASED");
    holder.wait_for_stat("hashtable_entries", 0);
}

/// What operators are told goes on: what happened by type, who holds what, and for how long a lock has been watched.
#[test]
fn what_was_seen_is_not_forgotten() {
    let mut daemon = Daemon::start(&["--warn-hold", "2"]);
    let (mut holder, mut other) = (daemon.connect(), daemon.connect());
    assert_eq!(holder.ask("ACQ4ME Article:k 1 1 0"), "LOCKED");
    assert_eq!(other.ask("ACQ4ME Article:k 1 1 0"), "QUEUE_FULL");
    assert_eq!(other.ask("ACQ4ME Thumb:k 1 1 0"), "LOCKED");
    assert_eq!(other.ask("RELEASE"), "RELEASED");
    daemon.upgrade();
    let address = holder.stream().local_addr().expect("is connected");
    let line = other.ask("STATS HOLDERS Article:k");
    assert!(line.starts_with(&format!("{address} working ")), "{line}");
    assert_eq!(other.line(), "");
    let line = other.ask("STATS TYPES");
    assert!(line.starts_with("Article: 1 working, 0 waiting, 1 acquired, 0 done, 1 full, 0 timeouts, "), "{line}");
    let line = other.line();
    assert!(line.starts_with("Thumb: 0 working, 0 waiting, 1 acquired, 0 done, 0 full, 0 timeouts, "), "{line}");
    assert_eq!(other.line(), "");
    let line = daemon.wait_for_log("a lock is overdue: ");
    assert!(line.contains(&format!("{address} has held Article:k for ")), "{line}");
}

#[test]
fn what_was_not_sent_is_sent_afterwards() {
    let mut daemon = Daemon::start(&[]);
    let mut reader = daemon.connect();
    let requests = 20_000;
    let mut writer = reader.stream().try_clone().expect("a second handle");
    let sending = thread::spawn(move || {
        writer.write_all(&b"STATS UPTIME\n".repeat(requests)).expect("is sent in the end");
    });
    // Nobody reads, so both directions fill up.
    let mut observer = daemon.connect();
    thread::sleep(Duration::from_millis(200));
    daemon.upgrade();
    daemon.upgrade();
    assert_eq!(observer.stat("failed_sends"), 0);
    for n in 0..requests {
        assert!(reader.line().starts_with("uptime: "), "reply {n} is missing");
    }
    sending.join().expect("everything was sent");
    assert_eq!(reader.ask("RELEASE"), "NOT_LOCKED", "and there is nothing more");
}

#[test]
fn a_hold_ends_in_time() {
    let mut daemon = Daemon::start(&[]);
    let (mut holder, mut waiter) = (daemon.connect(), daemon.connect());
    let begun = Instant::now();
    assert_eq!(holder.ask("ACQ4ME k 1 9 9 hold=1"), "LOCKED");
    waiter.send(b"ACQ4ME k 1 9 60\n");
    daemon.upgrade();
    assert_eq!(waiter.line(), "LOCKED");
    assert!(begun.elapsed() >= Duration::from_secs(1), "it ended early");
    assert_eq!(holder.ask("RELEASE"), "NOT_LOCKED");
}

#[test]
fn a_local_socket_goes_on() {
    let place = Place::new();
    let path = place.file("socket");
    let mut daemon = Daemon::start(&["-l", &format!("unix:{}", path.display())]);
    let mut client = UnixStream::connect(&path).expect("connects");
    daemon.upgrade();
    client.write_all(b"ACQ4ME k 1 1 0\n").expect("is sent");
    let mut reply = [0; 7];
    client.read_exact(&mut reply).expect("an answer");
    assert_eq!(&reply, b"LOCKED\n");
    drop(UnixStream::connect(&path).expect("still listens"));
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert!(!path.exists(), "the new process removes the file that the old one made");
}

#[test]
fn an_inherited_listener_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("has an address");
    let mut daemon = Daemon::run(Command::new(Daemon::PROGRAM).stdin(Stdio::from(OwnedFd::from(listener))));
    daemon.upgrade();
    daemon.upgrade();
    let mut client = Client::of(TcpStream::connect(address).expect("still listens"));
    assert_eq!(client.ask("ACQ4ME k 1 1 0"), "LOCKED");

    let place = Place::new();
    let path = place.file("socket");
    let listener = UnixListener::bind(&path).expect("a new file");
    let mut daemon = Daemon::run(Command::new(Daemon::PROGRAM).stdin(Stdio::from(OwnedFd::from(listener))));
    daemon.upgrade();
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    assert!(path.exists(), "what somebody else made is not removed");
}

/// Clients acquire and release all the time while the program is replaced ten times. Each key has one place, and each
/// client that has it looks whether another has it too.
#[test]
fn under_load_nobody_notices() {
    const KEYS: usize = 3;
    const CLIENTS: usize = 24;
    let place = Place::new();
    let program = place.file("poolcounter");
    install_program(&program);
    let mut daemon = Daemon::run(Command::new(&program).args(["-l", "127.0.0.1:0"]));
    let holders: [AtomicU32; KEYS] = Default::default();
    let (ended, grants) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for n in 0..CLIENTS {
            let (mut client, holders, ended, grants) = (daemon.connect(), &holders[n % KEYS], &ended, &grants);
            let request = format!("ACQ4ME key{} 1 100 30", n % KEYS);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    assert_eq!(client.ask(&request), "LOCKED");
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "the key was granted twice");
                    grants.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                    assert_eq!(client.ask("RELEASE"), "RELEASED");
                }
            });
        }
        for _ in 0..10 {
            let before = grants.load(Ordering::Relaxed);
            install_program(&program);
            daemon.upgrade();
            let deadline = Instant::now() + PATIENCE;
            while grants.load(Ordering::Relaxed) < before + 100 {
                assert!(Instant::now() < deadline, "the work does not go on");
                thread::sleep(Duration::from_millis(1));
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let mut observer = daemon.connect();
    assert_eq!(
        observer.stat("total_acquired"),
        grants.load(Ordering::Relaxed),
        "none was lost, none was counted twice"
    );
    assert_eq!(observer.stat("failed_sends"), 0);
    observer.wait_for_stat("hashtable_entries", 0);
}

#[test]
fn a_program_that_cannot_take_over_does_not() {
    let place = Place::new();
    let program = place.file("poolcounter");
    install_program(&program);
    let mut daemon = Daemon::run(Command::new(&program).args(["-l", "127.0.0.1:0"]));
    let mut client = daemon.connect();
    assert_eq!(client.ask("ACQ4ME k 1 9 9"), "LOCKED");
    let refuse = |daemon: &mut Daemon, reason: &str| {
        daemon.signal(Signal::SIGUSR1);
        let line = daemon.wait_for_log("no upgrade: ");
        assert!(line.contains(reason), "{line:?} does not tell {reason:?}");
        assert_eq!(daemon.connect().ask("ACQ4ME k 1 9 0"), "TIMEOUT", "the lock is held and the daemon serves");
    };
    fs::remove_file(&program).expect("is there");
    refuse(&mut daemon, "No such file");
    fs::write(&program, "not executable").expect("can be written");
    refuse(&mut daemon, "Permission denied");
    install(&program, b"not a program");
    refuse(&mut daemon, "Exec format error");
    for (script, reason) in [
        ("exit 0", "it said nothing"),
        ("echo out of order >&2; exit 1", "out of order"),
        ("kill -9 $$", "it said nothing"),
        ("echo all is well", "all is well"),
    ] {
        install(&program, format!("#!/bin/sh\n{script}\n").as_bytes());
        refuse(&mut daemon, reason);
    }
    install_program(&program);
    daemon.upgrade();
    assert_eq!(client.ask("RELEASE"), "RELEASED");
}

/// A file that is broken between the rehearsal and the upgrade costs nobody a lock.
#[test]
fn a_configuration_file_may_break_at_the_last_moment() {
    let place = Place::new();
    let (program, settings) = (place.file("program"), place.file("settings"));
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--check-handover*) ;; *) echo 'max_locks = many' >{} ;; esac\nexec {} \"$@\"\n",
        settings.display(),
        Daemon::PROGRAM
    );
    fs::write(&settings, "max_locks = 2\n").expect("can be written");
    install_program(&program);
    let options = ["-l", "127.0.0.1:0", "--config", &settings.display().to_string()];
    let mut daemon = Daemon::run(Command::new(&program).args(options));
    let mut client = daemon.connect();
    assert_eq!(client.ask("ACQ4ME k 1 1 0"), "LOCKED");
    install(&program, script.as_bytes());
    daemon.signal(Signal::SIGUSR1);
    let line = daemon.wait_for_log("counts for nothing");
    assert!(line.contains("settings:1: "), "{line}");
    daemon.wait_for_log("has taken over");
    assert_eq!(client.ask("RELEASE"), "RELEASED");
}

/// The new program reads the configuration file again: new limits are for all, the addresses stay. Nothing is taken over
/// with a file that is wrong.
#[test]
fn the_configuration_file_is_read_again() {
    let place = Place::new();
    let path = place.file("conf");
    let configure = |text: &str| fs::write(&path, text).expect("can be written");
    configure("max_locks = 2\nmax_line = 1000\n");
    let mut daemon = Daemon::start(&["--config", &path.display().to_string()]);
    let (mut client, mut other) = (daemon.connect(), daemon.connect());
    assert_eq!(client.ask("ACQ4ME a 1 1 0"), "LOCKED");
    assert_eq!(client.ask("ACQ4ME b 1 1 0"), "LOCKED");
    other.send("x".repeat(500).as_bytes());
    for (text, reason) in [
        ("max_locks = 2\nmax_lokcs = 3\n", "conf:2: max_lokcs: there is no such setting"),
        ("\nmax_locks = 0\n", "conf:2: max_locks: \"0\" is not a number from 1 to 65535"),
    ] {
        configure(text);
        daemon.signal(Signal::SIGUSR1);
        let line = daemon.wait_for_log("no upgrade: ");
        assert!(line.contains(reason), "{line:?} does not tell {reason:?}");
        assert_eq!(client.ask("ACQ4ME c 1 1 0"), "LOCK_HELD", "the daemon serves on");
    }
    configure("max_locks = 1\nmax_line = 100\nlisten = '127.0.0.1:1'\n");
    daemon.upgrade();
    assert_eq!(client.ask("ACQ4ME c 1 1 0"), "LOCK_HELD", "whoever has more than the new limit keeps them");
    assert_eq!(client.ask("RELEASE"), "RELEASED");
    assert_eq!(client.ask("ACQ4ME c 1 1 0"), "LOCK_HELD", "but one is enough now");
    assert_eq!(daemon.connect().ask("ACQ4ME a 1 1 0"), "QUEUE_FULL");
    other.send(b"\n");
    assert_eq!(other.line(), "ERROR LINE_TOO_LONG", "also for a line that had begun before");
    assert_eq!(client.ask("RELEASE"), "RELEASED");
    client.wait_for_stat("hashtable_entries", 0);
}

/// A program that neither answers nor ends is given up; meanwhile everybody is served.
#[test]
fn a_program_that_hangs_holds_nobody_up() {
    let place = Place::new();
    let program = place.file("poolcounter");
    install_program(&program);
    let mut daemon = Daemon::run(Command::new(&program).args(["-l", "127.0.0.1:0"]));
    let mut client = daemon.connect();
    install(&program, b"#!/bin/sh\nexec sleep 60\n");
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_log("is tried out");
    let begun = Instant::now();
    assert_eq!(client.ask("ACQ4ME k 1 9 9"), "LOCKED");
    assert_eq!(client.ask("RELEASE"), "RELEASED");
    assert!(begun.elapsed() < Duration::from_secs(5), "it was held up");
    let line = daemon.wait_for_log("no upgrade: ");
    assert!(line.contains("it took too long"), "{line}");
}

#[test]
fn a_handover_that_is_none_is_refused() {
    for (input, reason) in [
        (&b""[..], "no handover"),
        (b"GET / HTTP/1.1\r\n\r\n", "no handover"),
        (b"poolcounter\0\0\0", "cut off"),
        (b"poolcounter\0\x00\x00\x03\xe7", "version 999"),
    ] {
        let said = refusal(input);
        assert!(said.contains(reason), "{said:?} does not tell {reason:?}");
    }
    let of_another_version = refusal(b"poolcounter\0\x00\x00\x03\xe7");
    let version = of_another_version.trim_end().rsplit(' ').next().and_then(|word| word.parse::<u32>().ok());
    let header = [b"poolcounter\0", &version.expect("it tells which version it reads").to_be_bytes()[..]].concat();
    assert!(refusal(&header).contains("damaged"));
}

/// What the program says of a handover that it refuses.
fn refusal(handover: &[u8]) -> String {
    let mut command = Command::new(Daemon::PROGRAM);
    command.arg("--check-handover").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    child.stdin.take().expect("is piped").write_all(handover).expect("is read");
    let output = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    said
}

/// Many connections, and one that asks all the time: its longest wait is the gap.
#[test]
fn the_gap_is_short_with_many_connections() {
    let mut daemon = Daemon::start(&[]);
    // Other tests of this process need descriptors too.
    let many = 10_000.min(raise_descriptor_limit() / 2);
    let mut clients: Vec<Client> = (0..many).map(|_| daemon.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(&format!("ACQ4ME key{n} 1 1 0")), "LOCKED");
    }
    let ended = AtomicBool::new(false);
    let mut asking = daemon.connect();
    thread::scope(|scope| {
        let longest = scope.spawn(|| {
            let mut longest = Duration::ZERO;
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                asking.ask("STATS UPTIME");
                longest = longest.max(begun.elapsed());
            }
            longest
        });
        daemon.upgrade();
        ended.store(true, Ordering::Relaxed);
        let longest = longest.join().expect("was answered");
        println!("{many} connections: the longest wait over an upgrade was {longest:?}");
        assert!(longest < Duration::from_secs(5), "{longest:?}");
    });
    assert!(clients.iter_mut().all(|client| client.ask("RELEASE") == "RELEASED"));
}
