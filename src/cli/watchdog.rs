//! A child that ends process groups when this process is gone, in whatever way: even if it is killed, which no handler notices.
//!
//! It reads the groups from a pipe, and acts when the pipe ends. It has a group of its own and blocks all signals, so that what ends
//! this process does not end it as well.

use crate::process::shell;
use crate::spawn::{Spawn, Stdio};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::fd::AsRawFd;

/// Notes the groups that begin and end. When there is no more to read, each that is left is terminated, and killed 5 seconds later if
/// it has been there all the time.
const SCRIPT: &[u8] = br#"
groups=
while read -r sign group; do
    case $sign in
        +) groups="$groups $group " ;;
        -) groups="${groups%%" $group "*}${groups#*" $group "}" ;;
    esac
done
for group in $groups; do kill -TERM "-$group" 2>/dev/null; done
tries=50
while [ -n "$groups" ]; do
    left=
    for group in $groups; do
        if [ $tries = 0 ]; then kill -KILL "-$group" 2>/dev/null
        elif kill -0 "-$group" 2>/dev/null; then left="$left $group"
        fi
    done
    groups=$left tries=$((tries - 1))
    [ -z "$groups" ] || sleep 0.1
done
"#;

/// The child, which ends with this.
pub struct Watchdog {
    pipe: PipeWriter,
}

impl Watchdog {
    /// Starts the child.
    ///
    /// # Errors
    ///
    /// When the system lets none be started.
    pub fn start(null: &File) -> io::Result<Watchdog> {
        let (reader, pipe) = io::pipe()?;
        let (input, output) = (reader.as_raw_fd(), null.as_raw_fd());
        let stdio = Stdio::Apart { input, output, errors: None, answers: None };
        Spawn { mask: &SigSet::all(), variables: &[], stdio }.spawn(&shell(SCRIPT))?;
        Ok(Watchdog { pipe })
    }

    /// Lets a group be ended when this process is gone.
    pub fn add(&self, group: Pid) {
        self.say('+', group);
    }

    /// Forgets a group: its number may be given to another.
    pub fn remove(&self, group: Pid) {
        self.say('-', group);
    }

    fn say(&self, sign: char, group: Pid) {
        // Without the child, groups are as they are without this process: there is nothing better to do.
        let _ = (&self.pipe).write_all(format!("{sign} {group}\n").as_bytes());
    }
}
