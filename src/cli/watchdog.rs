//! Child that ends process groups after this process is gone, even if it was killed, which no handler can notice.
//!
//! It reads the groups from a pipe, and acts at the end of the pipe. It has its own group and blocks all signals, so
//! that a signal that ends this process does not end it as well.

use crate::spawn::{Spawn, Stdio, shell};
use nix::sys::signal::SigSet;
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, PipeWriter, Write};
use std::os::fd::AsRawFd;

/// Records the groups that start and end. At the end of the input it terminates each group that is left, and kills it 5
/// seconds later if it still exists.
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

/// Watchdog child. It acts once this is dropped.
pub struct Watchdog {
    pipe: PipeWriter,
}

impl Watchdog {
    /// Starts the child.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start it.
    pub fn start(null: &File) -> io::Result<Watchdog> {
        let (reader, pipe) = io::pipe()?;
        let (input, output) = (reader.as_raw_fd(), null.as_raw_fd());
        let stdio = Stdio::Apart { input, output, errors: None, answers: None };
        Spawn { mask: &SigSet::all(), variables: &[], stdio }.spawn(&shell(SCRIPT))?;
        Ok(Watchdog { pipe })
    }

    /// Adds a group to be ended with this process.
    pub fn add(&self, group: Pid) {
        self.say('+', group);
    }

    /// Removes a group, whose id may be reused.
    pub fn remove(&self, group: Pid) {
        self.say('-', group);
    }

    fn say(&self, sign: char, group: Pid) {
        // Without the child, groups are left running, which cannot be helped.
        let _ = (&self.pipe).write_all(format!("{sign} {group}\n").as_bytes());
    }
}
