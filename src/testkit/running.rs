//! A command of the program as a process, with its output and its status.

use super::daemon::{Daemon, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Running command, with pipes to its input and outputs. It is killed when this is dropped.
pub struct Running {
    pub child: Child,
    pub stdout: BufReader<ChildStdout>,
}

/// Result of a run.
#[derive(PartialEq, Debug)]
pub struct Ended {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Returns the result of a run with this exit status that has printed nothing.
    pub fn silent(status: i32) -> Ended {
        Ended { status: Some(status), stdout: String::new(), stderr: String::new() }
    }
}

/// Tells the threads of a test that it is over when it goes on, or fails: a failed test would wait for them.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Running {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Running {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program runs");
        let stdout = BufReader::new(child.stdout.take().expect("is piped"));
        Running { child, stdout }
    }

    /// Starts the program with these arguments.
    pub fn program(arguments: &[&str]) -> Running {
        Running::start(Command::new(Daemon::program()).args(arguments))
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line that it prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("is text");
        line.trim_end().to_string()
    }

    /// Returns the next line that it prints on its standard error. Nothing else reads that after this.
    pub fn error_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stderr.as_mut().expect("is piped")).read_line(&mut line).expect("is text");
        line.trim_end().to_string()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid() as i32), signal).expect("the process is there");
    }

    /// Closes its standard input, and waits for it.
    pub fn finish(mut self) -> Ended {
        drop(self.child.stdin.take());
        let status = wait(&mut self.child);
        let (mut stdout, mut stderr) = (String::new(), String::new());
        self.stdout.read_to_string(&mut stdout).expect("is text");
        self.child.stderr.take().expect("is piped").read_to_string(&mut stderr).expect("is text");
        Ended { status: status.code(), stdout, stderr }
    }
}

/// Runs a command to its end, with an empty input.
pub fn end_of(command: &mut Command) -> Ended {
    end_with(command, Stdio::null())
}

/// Runs a command to its end, with this input.
pub fn end_with(command: &mut Command, input: impl Into<Stdio>) -> Ended {
    let Output { status, stdout, stderr } = command.stdin(input).output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("is text");
    Ended { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// Runs the program with these arguments to its end, with an empty input.
pub fn run(arguments: &[&str]) -> Ended {
    end_of(Command::new(Daemon::program()).args(arguments))
}

/// Runs the program, which must succeed without complaints, and returns its standard output.
pub fn print(arguments: &[&str]) -> String {
    let Ended { status, stdout, stderr } = run(arguments);
    assert_eq!((status, &*stderr), (Some(0), ""), "{arguments:?}");
    stdout
}

/// Starts a daemon with this store of jobs and these options, which must fail, and returns its complaints.
pub fn refusal_of_store(store: &str, options: &[&str]) -> String {
    let words = ["-l", "127.0.0.1:0", "--jobs", "--jobs-listen", "127.0.0.1:0", "--jobs-store", store];
    let Ended { status, stderr, .. } = run(&[&words, options].concat());
    assert_eq!(status, Some(1), "{stderr}");
    stderr
}

/// Returns the state of a process, such as T if it is stopped; None if it has ended.
pub fn process_state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit(')').next()?.trim_start().chars().next()?;
    (!matches!(state, 'Z' | 'X')).then_some(state)
}

/// Returns the processor time that a process has used.
pub fn cpu_time(pid: u32) -> std::time::Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process is there");
    // After the name in brackets: user and system time are the 12th and 13th field, in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
    std::time::Duration::from_millis(ticks * 10)
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
