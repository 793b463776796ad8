//! `poolcounter jobs` as a process, and the requests of its tests to the daemon.

pub use super::daemon::until;
use super::daemon::{Daemon, PATIENCE};
pub use super::running::Ended;
use super::running::{self, print};
use super::scratch::Scratch;
use nix::sys::signal::Signal;
use poolcounter_client::{JobState, Producer, Timeouts};
use std::fs;
use std::io::Write;
use std::process::Command;
use std::thread;

/// Long timeouts: a server on a busy machine is not dead.
pub const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE };

pub fn jobs_with_input(address: &str, arguments: &[&str], input: &[u8]) -> Ended {
    let (reader, mut writer) = std::io::pipe().expect("there are descriptors");
    let input = input.to_vec();
    let writer = thread::spawn(move || drop(writer.write_all(&input)));
    let mut command = Command::new(Daemon::program());
    let ended = running::end_with(command.args(["jobs", "-s", address]).args(arguments), reader);
    // Its handle of the pipe would keep the thread waiting for a reader.
    drop(command);
    writer.join().expect("does not panic");
    ended
}

/// Runs the command, which must succeed, and returns its standard output.
pub fn jobs(address: &str, arguments: &[&str]) -> String {
    print(&[&["jobs", "-s", address], arguments].concat())
}

/// A runner whose command finds its files in a scratch directory.
pub struct Running {
    pub running: running::Running,
    pub scratch: Scratch,
}

impl Running {
    pub fn start(address: &str, options: &[&str], script: &str) -> Running {
        Running::watching("a/t", address, options, script)
    }

    pub fn watching(pattern: &str, address: &str, options: &[&str], script: &str) -> Running {
        Running::of(address, &[&[pattern], options, &["--", "sh", "-c", script]].concat())
    }

    /// Starts a runner with these words.
    pub fn of(address: &str, words: &[&str]) -> Running {
        let scratch = Scratch::new();
        let mut command = Command::new(Daemon::program());
        command.args(["jobs", "-s", address, "run"]).args(words).current_dir(scratch.file(""));
        command.env("JOB_ID", "of another job").env("POOL_MEMBER", "kept");
        Running { running: running::Running::start(&mut command), scratch }
    }

    pub fn signal(&self) {
        self.running.signal(Signal::SIGTERM);
    }

    /// Waits until a file has these lines, in any order.
    pub fn expect_lines(&self, file: &str, wanted: &[&str]) {
        let sorted = || {
            let text = fs::read_to_string(self.scratch.file(file)).unwrap_or_default();
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort();
            lines
        };
        until(&format!("{file}: {wanted:?}"), || sorted() == wanted);
    }

    /// Waits for its end, and returns its standard error.
    pub fn finish(self) -> String {
        let Ended { status, stderr, .. } = self.running.finish();
        assert_eq!(status, Some(0));
        stderr
    }
}

/// Starts a daemon, and returns it with the address of its jobs and a producer of the tube `a/t`.
pub fn server(options: &[&str]) -> (Daemon, String, Producer) {
    let daemon = Daemon::start_with_jobs(options);
    let address = daemon.jobs().to_string();
    let producer = producer_at(&address);
    (daemon, address, producer)
}

/// Returns a producer of the tube `a/t`.
pub fn producer_at(address: &str) -> Producer {
    let producer = Producer::new([address], TIMEOUTS);
    producer.use_tube("a/t").expect("is used");
    producer
}

pub fn counts(producer: &Producer) -> [u64; 4] {
    let stats = producer.stats_tube("a/t").expect("is asked").unwrap_or_default();
    ["ready", "reserved", "delayed", "buried"].map(|state| {
        let name = format!("current-jobs-{state}");
        let value = stats.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value);
        value.unwrap_or("0").parse().expect("is a number")
    })
}

pub fn wait_for(producer: &Producer, wanted: [u64; 4]) {
    until(&format!("{wanted:?}"), || counts(producer) == wanted);
}

pub fn errors(producer: &Producer, state: JobState) -> Vec<String> {
    let listed = producer.list_jobs("a/t", state, 100, None).expect("is asked").unwrap_or_default();
    listed.into_iter().map(|job| job.error).collect()
}

/// Returns a line of the log with `T` in place of a duration.
pub fn without_time(line: &str) -> String {
    let is_time = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    let (head, rest) = [" in ", " after "]
        .iter()
        .find_map(|word| line.split_once(word).map(|(head, rest)| (format!("{head}{word}"), rest)))
        .unwrap_or((line.into(), ""));
    match rest.split_once(' ') {
        Some((time, rest)) if is_time(time) => format!("{head}T {rest}"),
        _ => line.into(),
    }
}
