//! `poolcounter jobs` as a process, and the requests of its tests to the daemon.

pub use super::daemon::until;
use super::daemon::{Daemon, PATIENCE, wait};
pub use super::running::Ended;
use super::scratch::Scratch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_client::{JobState, Producer, Timeouts};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;

/// Long timeouts: a server on a busy machine is not dead.
pub const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE };

pub fn jobs_with_input(address: &str, arguments: &[&str], input: &[u8]) -> Ended {
    let mut child = Command::new(Daemon::program())
        .args(["jobs", "-s", address])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("is piped");
    let input = input.to_vec();
    let writer = thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("is our child");
    writer.join().expect("does not panic");
    let text = |bytes| String::from_utf8(bytes).expect("is text");
    Ended { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the command, which must succeed, and returns its standard output.
pub fn jobs(address: &str, arguments: &[&str]) -> String {
    let Ended { status, stdout, stderr } = jobs_with_input(address, arguments, b"");
    assert_eq!((status, &*stderr), (Some(0), ""), "{arguments:?}");
    stdout
}

/// A runner of the tubes `*/t` whose script finds its files in a scratch directory.
pub struct Running {
    pub child: Child,
    pub scratch: Scratch,
}

impl Running {
    pub fn start(address: &str, options: &[&str], script: &str) -> Running {
        Running::watching("a/t", address, options, script)
    }

    pub fn watching(pattern: &str, address: &str, options: &[&str], script: &str) -> Running {
        let scratch = Scratch::new();
        let child = Command::new(Daemon::program())
            .args(["jobs", "-s", address, "run", pattern])
            .args(options)
            .args(["--", "sh", "-c", script])
            .current_dir(scratch.file(""))
            .env("JOB_ID", "of another job")
            .env("POOL_MEMBER", "kept")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        Running { child, scratch }
    }

    pub fn signal(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).expect("the process is there");
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
    pub fn finish(mut self) -> String {
        assert_eq!(wait(&mut self.child).code(), Some(0));
        let mut stderr = String::new();
        self.child.stderr.take().expect("is piped").read_to_string(&mut stderr).expect("is text");
        stderr
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a daemon, and returns it with the address of its jobs and a producer of the tube `a/t`.
pub fn server(options: &[&str]) -> (Daemon, String, Producer) {
    let daemon = Daemon::start_with_jobs(options);
    let address = daemon.jobs().to_string();
    let producer = Producer::new([&*address], TIMEOUTS);
    producer.use_tube("a/t").expect("is used");
    (daemon, address, producer)
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
