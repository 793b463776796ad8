//! The upgrade that loses nothing, on the real program: the state that survives it, and failed upgrades.

use crate::reload::{at, free_port, last_reload};
use crate::upgrade_release::longest_wait;
use nix::sys::signal::Signal;
use poolcounter_testkit::counter::CounterClient;
use poolcounter_testkit::daemon::{
    Client, Daemon, install, install_program, install_waiting_program, raise_descriptor_limit, until, wait_for_file,
};
use poolcounter_testkit::frames;
use poolcounter_testkit::jobs_client::JobsClient;
use poolcounter_testkit::running::Over;
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Clients acquire and release all the time while the program is replaced ten times. Each key has one lock, and each
/// client that holds it checks whether another holds it too.
#[test]
fn upgrades_under_load_lose_no_request() {
    const KEYS: usize = 3;
    const CLIENTS: usize = 24;
    let scratch = Scratch::new();
    let program = scratch.file("poolcounter");
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
        let _over = Over(&ended);
        for _ in 0..10 {
            let before = grants.load(Ordering::Relaxed);
            install_program(&program);
            daemon.upgrade();
            until("more work", || grants.load(Ordering::Relaxed) >= before + 100);
        }
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
fn program_that_cannot_take_over_does_not() {
    let scratch = Scratch::new();
    let program = scratch.file("poolcounter");
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
        ("exit 0", "it printed nothing"),
        ("echo out of order >&2; exit 1", "out of order"),
        ("kill -9 $$", "it printed nothing"),
        ("echo all is well", "all is well"),
        ("echo can take over", "its rehearsal has not returned the settings"),
    ] {
        install(&program, format!("#!/bin/sh\n{script}\n").as_bytes());
        refuse(&mut daemon, reason);
    }
    install_program(&program);
    daemon.upgrade();
    assert_eq!(client.ask("RELEASE"), "RELEASED");
}

/// Changes of the program's file and of the configuration file during the rehearsal affect the next upgrade only: the
/// rehearsed program takes over, with the rehearsed settings.
#[test]
fn rehearsed_program_takes_over() {
    let scratch = Scratch::new();
    let (program, settings, bad) = (scratch.file("poolcounter"), scratch.file("settings"), scratch.file("bad"));
    fs::write(&settings, "max_locks = 1\n").expect("can be written");
    install_program(&program);
    let options = ["-l", "127.0.0.1:0", "--config", &settings.display().to_string()];
    let mut daemon = Daemon::run(Command::new(&program).args(options));
    let mut client = daemon.connect();
    assert_eq!(client.ask("ACQ4ME k 1 1 0"), "LOCKED");
    install(&bad, b"#!/bin/sh\necho executed unseen >&2\nexit 3\n");
    let script = format!(
        "#!/bin/sh\n{} \"$@\"\nstatus=$?\ncase \"$*\" in *--check-handover*) mv {} {}; echo 'max_locks = many' >{} ;; esac\nexit $status\n",
        Daemon::program(),
        bad.display(),
        program.display(),
        settings.display(),
    );
    // The shell would wait for the program instead of becoming it, so it runs the rehearsal only.
    let script = script.replace(
        "#!/bin/sh\n",
        &format!("#!/bin/sh\ncase \"$*\" in *--check-handover*) ;; *) exec {} \"$@\" ;; esac\n", Daemon::program()),
    );
    install(&program, script.as_bytes());
    fs::write(&settings, "max_locks = 2\n").expect("can be written");
    daemon.upgrade();
    assert!(!daemon.lines.iter().any(|line| line.contains("counts for nothing")), "{:#?}", daemon.lines);
    assert_eq!(client.ask("ACQ4ME l 1 1 0"), "LOCKED", "the new limit is in force");
    assert_eq!(client.ask("ACQ4ME m 1 1 0"), "LOCK_HELD");
    // The next upgrade uses the file that exists by then, at the path by which the first process was started.
    daemon.signal(Signal::SIGUSR1);
    let line = daemon.wait_for_log(" rehearses the takeover");
    assert!(line.contains(&program.display().to_string()), "{line}");
    let line = daemon.wait_for_log("no upgrade: ");
    assert!(line.contains("executed unseen"), "{line}");
    assert_eq!(client.ask("RELEASE"), "RELEASED");
}

/// The program is executed by a descriptor, but operators look for the process by its name.
#[test]
fn process_keeps_its_name() {
    let mut daemon = Daemon::start(&[]);
    let name = |daemon: &Daemon| fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).expect("Linux tells");
    let before = name(&daemon);
    daemon.upgrade();
    daemon.upgrade();
    assert_eq!(name(&daemon), before);
}

/// SIGTERM at any time of an upgrade ends the daemon: the old program or the new one.
#[test]
fn request_to_stop_is_not_lost() {
    for n in 0..12 {
        let mut daemon = Daemon::start_with_counters(&[]);
        let mut counters = CounterClient::to(daemon.counters());
        let requests: Vec<Vec<u8>> =
            (0..20_000).map(|n| frames::acquire(1, 1, format!("counter {n}").as_bytes())).collect();
        counters.pipeline(&requests);
        daemon.signal(Signal::SIGUSR1);
        daemon.wait_for_log("rehearses the takeover");
        thread::sleep(Duration::from_millis(5 * n));
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.wait().success());
    }
}

/// A thread that took a signal would write it where exec throws it away.
#[test]
fn no_thread_takes_a_signal_from_the_loop() {
    let files = Scratch::new();
    let store = format!("sqlite:{}", files.file("jobs.db").display());
    let mut daemon = Daemon::start_with_jobs(&["--jobs-store", &store]);
    for _ in 0..2 {
        assert!(JobsClient::to(daemon.jobs()).put("0 0 60", b"x").starts_with("INSERTED"));
        let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("it runs");
        let blocked: Vec<(String, u64)> = tasks.filter_map(|task| blocked_by(&task.ok()?.path())).collect();
        assert!(blocked.iter().any(|(name, _)| name == "jobs-store"), "{blocked:x?}");
        for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGTERM] {
            let takers: Vec<&String> =
                blocked.iter().filter(|(_, mask)| mask & 1 << (signal as u64 - 1) == 0).map(|(name, _)| name).collect();
            assert!(takers.is_empty(), "{signal} may come to {takers:?}");
        }
        daemon.upgrade();
    }
}

/// Returns the name of a thread and the signals that it blocks; None if it has ended.
fn blocked_by(task: &Path) -> Option<(String, u64)> {
    let status = fs::read_to_string(task.join("status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((field("Name:")?.into(), u64::from_str_radix(field("SigBlk:")?, 16).ok()?))
}

/// A request for an upgrade counts, also while another one is under way: settings that changed since the rehearsal read
/// them are in effect in the end, whether that takes over or fails.
#[test]
fn second_upgrade_follows_the_first() {
    for fails in [false, true] {
        let scratch = Scratch::new();
        let (program, settings) = (scratch.file("poolcounter"), scratch.file("settings"));
        fs::write(&settings, "max_locks = 1\n").expect("can be written");
        install_program(&program);
        let options = ["-l", "127.0.0.1:0", "--config", &settings.display().to_string()];
        let mut daemon = Daemon::run(Command::new(&program).args(options));
        install_waiting_program(&program);
        let mut client = daemon.connect();
        assert_eq!(client.ask("ACQ4ME a 1 1 0"), "LOCKED");
        fs::write(&settings, "max_locks = 2\n").expect("can be written");
        daemon.signal(Signal::SIGUSR1);
        wait_for_file(&program.with_extension("read"));
        fs::write(&settings, "max_locks = 3\n").expect("can be written");
        daemon.signal(Signal::SIGUSR1);
        // The loop has had a turn since the signal.
        assert_eq!(client.ask("ACQ4ME b 1 1 0"), "LOCK_HELD");
        if fails {
            fs::write(program.with_extension("bad"), "").expect("can be written");
        }
        fs::write(program.with_extension("go"), "").expect("can be written");
        daemon.wait_for_log(if fails { "out of order" } else { "has taken over" });
        daemon.wait_for_log("has taken over");
        assert_eq!(client.ask("ACQ4ME b 1 1 0"), "LOCKED");
        assert_eq!(client.ask("ACQ4ME c 1 1 0"), "LOCKED", "the last settings are in effect");
        assert_eq!(client.ask("ACQ4ME d 1 1 0"), "LOCK_HELD");
        // It would have begun before these answers.
        let begins = |line: &&String| line.contains("an upgrade begins");
        daemon.signal(Signal::SIGTERM);
        daemon.wait_for_log("poolcounter stops");
        assert_eq!(daemon.lines.iter().filter(begins).count(), 2, "{:#?}", daemon.lines);
    }
}

/// A signal that comes in the same tick as the end of a rehearsal is handled: by the old program or the new one.
#[test]
fn signals_at_a_rehearsals_end_are_kept() {
    let scratch = Scratch::new();
    let program = scratch.file("poolcounter");
    install_program(&program);
    let arguments = ["-l", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", "memory"];
    let mut daemon = Daemon::run(Command::new(&program).args(arguments));
    install_waiting_program(&program);
    daemon.signal(Signal::SIGUSR1);
    wait_for_file(&program.with_extension("read"));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.pid())).expect("it runs");
    daemon.signal(Signal::SIGSTOP);
    fs::write(program.with_extension("go"), "").expect("can be written");
    let stat = format!("/proc/{}/stat", children.trim());
    until("the end of the rehearsal", || !fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")));
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGCONT] {
        daemon.signal(signal);
    }
    daemon.wait_for_log("has taken over");
    daemon.wait_for_log("has taken over");
    assert!(daemon.lines.iter().any(|line| line.contains("refuse new work")), "{:#?}", daemon.lines);
    assert_eq!(JobsClient::to(daemon.jobs()).put("0 0 60", b"x"), "DRAINING");
}

/// Clients have taken every descriptor, and wait for more: the store of the jobs has its own again after an upgrade.
#[test]
fn upgrade_without_free_descriptors_keeps_the_jobs_file() {
    let files = Scratch::new();
    let store = format!("sqlite:{}", files.file("jobs.db").display());
    let script = "ulimit -n 60; exec \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", Daemon::program(), "-l", "127.0.0.1:0"]);
    command.args(["--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", &store]);
    let mut daemon = Daemon::run(&mut command);
    let mut client = JobsClient::to(daemon.jobs());
    assert_eq!(client.put("0 0 60", b"first"), "INSERTED 1");
    let _many: Vec<Client> = (0..120).map(|_| daemon.connect()).collect();
    daemon.wait_for_log("cannot accept more");
    for id in 2..5 {
        daemon.upgrade();
        assert_eq!(client.put("0 0 60", b"next"), format!("INSERTED {id}"));
    }
    assert_eq!(client.ask("delete 1"), "DELETED");
}

/// Tubes, groups and watches, of which clients may have any number, do not keep a program from taking over: the checks of
/// its rehearsal take time in proportion to their number.
#[test]
fn many_tubes_groups_and_watches_allow_an_upgrade() {
    const TUBES: usize = 20_000;
    const WATCHES: usize = 1_000;
    let mut daemon = Daemon::start_with_jobs(&["--jobs-store", "memory"]);
    let mut producer = JobsClient::to(daemon.jobs());
    for first in (0..TUBES).step_by(WATCHES) {
        let put = |n| format!("put-job 0 0 60 1 tube=wiki{n}/type group=g{n}\r\nx\r\n");
        producer.send((first..first + WATCHES).map(put).collect::<String>().as_bytes());
        (first..first + WATCHES).for_each(|n| assert_eq!(producer.line(), format!("INSERTED {}", n + 1)));
    }
    let watch = |number: usize| {
        let mut watcher = JobsClient::to(daemon.jobs());
        watcher.send((1..WATCHES).map(|n| format!("watch other{number}/{n}\r\n")).collect::<String>().as_bytes());
        (1..WATCHES).for_each(|n| assert_eq!(watcher.line(), format!("WATCHING {}", n + 1)));
        watcher
    };
    let _watchers: Vec<JobsClient> = (0..TUBES / WATCHES).map(watch).collect();
    daemon.upgrade();
    assert_eq!(producer.ask("peek 1"), "FOUND 1 1");
}

/// A handover that cannot be written does no harm.
#[test]
fn daemon_serves_on_under_a_file_limit() {
    let mut command = Command::new("sh");
    let mut daemon =
        Daemon::run(command.args(["-c", "ulimit -f 0; exec \"$@\"", "sh", Daemon::program(), "-l", "127.0.0.1:0"]));
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 1 0"), "LOCKED");
    daemon.signal(Signal::SIGUSR1);
    let line = daemon.wait_for_log("no upgrade: ");
    assert!(line.contains("File too large"), "{line}");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
}

/// The state is never in memory twice. A new program with too little memory for it fails in its rehearsal, without
/// further effect.
#[test]
fn short_memory_costs_no_lock() {
    const KEYS: usize = 4_000;
    let mut command = Command::new("sh");
    let script = "ulimit -v 90000; exec \"$@\"";
    let arguments = ["-c", script, "sh", Daemon::program(), "-l", "127.0.0.1:0", "--max-locks", "1024"];
    let mut daemon = Daemon::run(command.args(arguments));
    let mut holders: Vec<_> = (0..KEYS / 1_000).map(|_| daemon.connect()).collect();
    for n in 0..KEYS {
        assert_eq!(holders[n / 1_000].ask(&format!("ACQ4ME {}{n} 1 1 0", "x".repeat(8_000))), "LOCKED");
    }
    daemon.upgrade();
    let holder = &mut holders[0];
    assert_eq!(holder.stat("processing_workers"), KEYS as u64);
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("the process is there");
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("Linux tells");
    let size: u64 = size.trim_end_matches("kB").trim().parse().expect("a number");
    let limit = format!("--as={}", (size + 1_024) * 1024);
    let set = Command::new("prlimit").args(["--pid", &daemon.pid().to_string(), &limit]).status();
    assert!(set.expect("prlimit is there").success());
    daemon.signal(Signal::SIGUSR1);
    let line = daemon.wait_for_log("no upgrade: ");
    assert!(line.contains("memory"), "{line}");
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    assert_eq!(holder.stat("processing_workers"), KEYS as u64 - 1);
}

/// The system ends the child and not the daemon if memory is short.
#[test]
fn rehearsal_is_expendable() {
    let mut child = Command::new(Daemon::program())
        .arg("--check-handover")
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let path = format!("/proc/{}/oom_score_adj", child.id());
    let score = || fs::read_to_string(&path).expect("the process waits for its input");
    until("a score of 1000", || score().trim() == "1000");
    drop(child.stdin.take());
    assert!(!poolcounter_testkit::daemon::wait(&mut child).success());
}

/// The new program reads the configuration file again: new limits apply to all, the addresses stay. A wrong file
/// prevents the takeover.
#[test]
fn configuration_file_is_read_again() {
    let scratch = Scratch::new();
    let path = scratch.file("conf");
    let configure = |text: &str| fs::write(&path, text).expect("can be written");
    configure("max_locks = 2\nmax_line = 1000\n");
    let mut daemon = Daemon::start(&["--config", &path.display().to_string()]);
    let (mut client, mut other) = (daemon.connect(), daemon.connect());
    assert_eq!(client.ask("ACQ4ME a 1 1 0"), "LOCKED");
    assert_eq!(client.ask("ACQ4ME b 1 1 0"), "LOCKED");
    other.send("x".repeat(500).as_bytes());
    for (text, reason) in [
        ("max_locks = 2\nmax_lokcs = 3\n", "conf:2: there is no setting max_lokcs; did you mean max_locks?"),
        ("\nmax_locks = 0\n", "conf:2: max_locks: \"0\" is not a number from 1 to 1024"),
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

/// A program that neither answers nor ends is killed; all clients are served meanwhile.
#[test]
fn hanging_program_delays_no_client() {
    let scratch = Scratch::new();
    let program = scratch.file("poolcounter");
    install_program(&program);
    let http = at("127.0.0.1", free_port());
    let mut daemon = Daemon::run(Command::new(&program).args(["-l", "127.0.0.1:0", "--http"]).arg(http.to_string()));
    let mut client = daemon.connect();
    install(&program, b"#!/bin/sh\nexec sleep 60\n");
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_log("rehearses the takeover");
    assert_eq!(last_reload(http), (1.0, 0.0), "an upgrade under way has not failed");
    let begun = Instant::now();
    assert_eq!(client.ask("ACQ4ME k 1 9 9"), "LOCKED");
    assert_eq!(client.ask("RELEASE"), "RELEASED");
    assert!(begun.elapsed() < Duration::from_secs(5), "it was held up");
    let line = daemon.wait_for_log("no upgrade: ");
    assert!(line.contains("it took too long"), "{line}");
    assert_eq!(last_reload(http).0, 0.0);
}

#[test]
fn malformed_handover_is_refused() {
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
    let mut of_more_services = include_bytes!("../handovers/1.0.0").to_vec();
    let at = of_more_services.windows(7).position(|bytes| bytes == b"members").expect("it has a port");
    of_more_services[at..at + 7].copy_from_slice(b"friends");
    assert!(refusal(&of_more_services).contains("no service friends"));
}

/// Returns the error of the program about a handover that it refuses.
fn refusal(handover: &[u8]) -> String {
    let mut command = Command::new(Daemon::program());
    command.arg("--check-handover").stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    // It may refuse before it has read all.
    let _ = child.stdin.take().expect("is piped").write_all(handover);
    let output = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    said
}

/// Many connections, one of which sends requests all the time: its longest latency is the gap.
#[test]
fn gap_is_short_with_many_connections() {
    let mut daemon = Daemon::start(&[]);
    // Other tests of this process need descriptors too.
    let many = 10_000.min(raise_descriptor_limit() / 2);
    let mut clients: Vec<Client> = (0..many).map(|_| daemon.connect()).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(&format!("ACQ4ME key{n} 1 1 0")), "LOCKED");
    }
    let longest = longest_wait_over_an_upgrade(&mut daemon);
    println!("{many} connections: the longest wait over an upgrade was {longest:?}");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    assert!(clients.iter_mut().all(|client| client.ask("RELEASE") == "RELEASED"));
}

/// Returns the longest latency of a client that sends requests all the time while the program is replaced.
fn longest_wait_over_an_upgrade(daemon: &mut Daemon) -> Duration {
    let ended = AtomicBool::new(false);
    let mut asking = daemon.connect();
    thread::scope(|scope| {
        let over = Over(&ended);
        let longest = scope.spawn(|| longest_wait(&mut asking, "STATS UPTIME", &ended));
        daemon.upgrade();
        drop(over);
        longest.join().expect("was answered")
    })
}
