//! A small file system of a daemon's own, which a test fills.

use crate::daemon::Daemon;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Size of the file system: enough for the jobs of a test, and soon filled.
const BYTES: &str = "8m";
/// Script that runs a program in a file system of its own: its arguments are the size, the directory, then the program
/// and its arguments.
const MOUNT: &str = r#"mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@""#;

/// Returns a command in a name space in which a small file system is mounted on `directory`; None where that is not
/// allowed. The program and its arguments are to be added.
pub fn command_in(directory: &Path) -> Option<Command> {
    let command = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh", BYTES]).arg(directory);
        command
    };
    let tried = command().arg("true").stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success()).then(command)
}

/// Returns the path by which this process reaches a directory of the daemon.
pub fn seen_by(daemon: &Daemon, directory: &Path) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}", daemon.pid(), directory.display()))
}

/// Writes a file until the file system is full.
pub fn fill(path: &Path) {
    let mut file = File::create(path).expect("can be made");
    for len in [1 << 16, 1 << 12, 1] {
        let piece = vec![0; len];
        while file.write_all(&piece).is_ok() {}
    }
}
