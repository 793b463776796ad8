//! A command of the program as a process, with its output and its status.

use super::daemon::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
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

/// Returns the state of a process, such as T if it is stopped; None if it has ended.
pub fn process_state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit(')').next()?.trim_start().chars().next()?;
    (!matches!(state, 'Z' | 'X')).then_some(state)
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
