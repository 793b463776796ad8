//! `doctor` and `config`: their output, and their exit statuses.

use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Daemon, PATIENCE, until};
use poolcounter_testkit::running::{Ended, Running, end_of, run};
use poolcounter_testkit::scratch::Scratch;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;

#[test]
fn healthy_and_unreachable_daemons_are_distinguished() {
    let daemon = Daemon::start(&[]);
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    let jobs = scratch.file("jobs.db");
    let text = format!("listen = [\"{}\"]\njobs.store = \"sqlite:{}\"\n", daemon.address, jobs.display());
    fs::write(&file, text).expect("can be written");
    let path = file.to_str().expect("is text");
    let Ended { status, stdout: told, .. } = run(&["doctor", "-c", path]);
    assert!(matches!(status, Some(0 | 1)), "{told}");
    let lines: Vec<_> = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        format!("ok settings {path} has no mistake"),
        format!("ok port pools listen at {}", daemon.address),
        format!("ok version daemon and commands are of version {}", env!("CARGO_PKG_VERSION")),
        "ok clock the daemon's clock is right".into(),
    ] {
        assert!(lines.contains(&line), "{line} is not in {told}");
    }
    assert!(!told.contains("space"), "the jobs are off: {told}");
    drop(daemon);
    let more = format!("{}jobs.enable = true\n", fs::read_to_string(&file).expect("is there"));
    fs::write(&file, more).expect("can be written");
    let Ended { status, stdout: told, .. } = run(&["doctor", "-c", path]);
    assert!(status == Some(2) && told.contains("pools cannot be reached at "), "{told}");
    assert!(told.contains(" MiB are free in "), "{told}");
    fs::write(&file, "listn = 1\n").expect("can be written");
    let Ended { status, stdout: told, .. } = run(&["doctor", "-c", path]);
    assert!(status == Some(2) && told.contains("did you mean listen?"), "{told}");
    let checks: Vec<_> = told.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(checks, ["settings", "settings"], "the defaults are not checked: {told}");
}

/// Without a file on its own command line, `doctor` looks at what the daemon was started with.
#[test]
fn settings_of_the_running_daemon_are_checked() {
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    fs::write(&file, "keepalive = \"10,5,3\"\n").expect("can be written");
    let pools = format!("unix:{}", scratch.file("pools.sock").display());
    let daemon = Daemon::start(&["--config", file.to_str().expect("is text"), "--listen", &pools]);
    let mut doctor = Command::new(Daemon::program());
    let told = end_of(doctor.arg("doctor").env("POOLCOUNTER_SERVERS", &pools)).stdout;
    for line in [
        format!("the daemon is process {}, and its options and file have no mistake", daemon.pid()),
        format!("pools listen at {pools}"),
        "locks are given back after 25 s of silence".into(),
    ] {
        assert!(told.contains(&line), "{line} is not in {told}");
    }
}

/// The daemon keeps jobs where its supervisor says, or in its own directory, which are not those of `doctor`.
#[test]
fn disk_of_the_default_store_is_checked() {
    for has_supervisor in [true, false] {
        let (own, other) = (Scratch::new(), Scratch::new());
        let pools = format!("unix:{}", own.file("pools.sock").display());
        let mut command = Command::new(Daemon::program());
        command.args(["--listen", "127.0.0.1:0", "--listen", &pools, "--jobs", "--jobs-listen", "127.0.0.1:0"]);
        command.current_dir(own.file("")).env_remove("STATE_DIRECTORY");
        let place = if has_supervisor { &other } else { &own };
        if has_supervisor {
            command.env("STATE_DIRECTORY", format!("{}:/nowhere", other.file("").display()));
        }
        let _daemon = Daemon::run(&mut command);
        assert!(place.file("jobs.db").exists());
        let mut doctor = Command::new(Daemon::program());
        let told = end_of(doctor.arg("doctor").env("POOLCOUNTER_SERVERS", &pools)).stdout;
        let place = place.file("jobs.db");
        let place = place.parent().expect("a directory").display();
        assert!(told.contains(&format!(" MiB are free in {place}")), "{told}");
    }
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    fs::write(&file, "listen = [\"127.0.0.1:1\"]\njobs.enable = true\n").expect("can be written");
    let told = run(&["doctor", "-c", file.to_str().expect("is text")]).stdout;
    assert!(told.contains("the place of jobs.db is known while the daemon runs"), "{told}");
}

#[test]
fn daemon_that_does_not_answer_is_critical() {
    let scratch = Scratch::new();
    let (file, socket) = (scratch.file("settings.toml"), scratch.file("pools.sock"));
    let unix = format!("unix:{}", socket.display());
    let daemon = Daemon::start(&["--listen", &unix]);
    fs::write(&file, format!("listen = [\"127.0.0.1:1\", \"{unix}\"]\n")).expect("can be written");
    let path = file.to_str().expect("is text");
    let Ended { stdout: told, .. } = run(&["doctor", "-c", path]);
    assert!(told.contains("daemon and commands are of version"), "the second address is asked: {told}");
    daemon.signal(Signal::SIGSTOP);
    let Ended { status, stdout: told, .. } = run(&["doctor", "-c", path]);
    daemon.signal(Signal::SIGCONT);
    assert_eq!(status, Some(2), "{told}");
    let lines: Vec<_> = told.lines().filter(|line| line.split_whitespace().nth(1) == Some("daemon")).collect();
    assert!(lines.len() == 1 && lines[0].ends_with(&format!("it does not answer at {unix}")), "{told}");
}

/// Neither command waits without limit for a daemon that accepts no connections.
#[test]
fn full_backlog_is_reported() {
    let scratch = Scratch::new();
    let (file, path) = (scratch.file("settings.toml"), scratch.file("full.sock"));
    let address = SockAddr::unix(&path).expect("is short");
    let new_socket = || Socket::new(Domain::UNIX, Type::STREAM, None).expect("there are sockets");
    let listener = new_socket();
    listener.bind(&address).and_then(|()| listener.listen(0)).expect("is free");
    let is_waiting = |socket: &Socket| {
        socket.set_nonblocking(true).expect("is open");
        socket.connect(&address).is_ok()
    };
    let _waiting: Vec<Socket> = std::iter::repeat_with(new_socket).take_while(is_waiting).collect();
    let unix = format!("unix:{}", path.display());
    fs::write(&file, format!("listen = [\"{unix}\"]\n")).expect("can be written");
    let begun = Instant::now();
    let Ended { status, stdout: told, .. } = run(&["doctor", "-c", file.to_str().expect("is text")]);
    let full = format!("pools cannot be reached at {unix}: it accepts no connections: its backlog is full");
    assert!(status == Some(2) && told.contains(&full), "{told}");
    for words in [&["admin", "-a", &unix, "UNDRAIN"][..], &["stats", "-s", &unix]] {
        let Ended { status, stderr: error, .. } = run(words);
        assert!(status != Some(0) && error.contains("its backlog is full"), "{words:?}: {error}");
    }
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn drain_is_the_reason_for_a_closed_port() {
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    let [admin, pools] = ["admin.sock", "pools.sock"].map(|name| format!("unix:{}", scratch.file(name).display()));
    let daemon = Daemon::start(&["--listen", &pools, "--admin", &admin]);
    let text = format!("listen = [\"{}\", \"{pools}\"]\nadmin = [\"{admin}\"]\n", daemon.address);
    fs::write(&file, text).expect("can be written");
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 5 60"), "LOCKED");
    let mut drain = Running::program(&["admin", "-a", &admin, "DRAIN"]);
    drain.line();
    until("a closed port", || TcpStream::connect(daemon.address).is_err());
    let Ended { status, stdout: told, .. } = run(&["doctor", "-c", file.to_str().expect("is text")]);
    assert!(status == Some(2) && told.contains("it drains: new requests are refused"), "{told}");
    let closed = format!("pools cannot be reached at {}: Connection refused: the daemon drains\n", daemon.address);
    assert!(told.contains(&closed), "{told}");
}

#[test]
fn settings_are_printed_with_their_origin() {
    let scratch = Scratch::new();
    let file = scratch.file("settings.toml");
    fs::write(&file, "# mine\nmax_hold = 7\n").expect("can be written");
    let path = file.to_str().expect("is text");
    let Ended { status, stdout: told, .. } = run(&["config", "--changed", "-c", path]);
    assert_eq!(
        (status, told.split_whitespace().collect::<Vec<_>>().join(" ")),
        (Some(0), format!("max_hold = 7 # {path}:2"))
    );
    // The output is a file of the same settings.
    let Ended { stdout: all, .. } = run(&["config", "-c", path]);
    fs::write(&file, all).expect("can be written");
    assert_eq!(run(&["--check", "-c", path]).status, Some(0));
    fs::write(&file, "max_hold = 'x'\n").expect("can be written");
    let Ended { status, stdout: told, stderr: error } = run(&["config", "-c", path]);
    assert!(status == Some(1) && told.is_empty() && error.contains("settings.toml:1: max_hold"), "{error}");
}
