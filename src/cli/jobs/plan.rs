//! Plan shared by the slots of a runner, pauses of wikis, and signals to the slots.

use super::run_options::RunSettings;
use super::tally::RunnerTally;
use crate::process::Launcher;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Plan of a runner, shared by its slots.
pub struct Plan<'a> {
    pub settings: &'a RunSettings,
    /// Watched patterns, each with its weight if one was given.
    pub watches: Vec<(&'a str, Option<u16>)>,
    /// The command and its arguments.
    pub command: &'a [OsString],
    pub launcher: Launcher,
    /// Name of the runner.
    pub name: String,
    pub tally: RunnerTally,
    pub rests: Rests,
}

/// Progress of the end of a runner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ending {
    /// Not ending.
    No,
    /// No more jobs are reserved; running jobs may finish.
    Finish,
    /// Running jobs are released.
    GiveBack,
    /// Running commands are killed.
    Kill,
}

/// Signals to the thread of a slot from the main thread.
pub struct SlotSignals {
    ending: Mutex<Ending>,
    /// True if the slot has a command, so that ends of children concern it.
    pub is_running: AtomicBool,
    /// Rings after the end of a command, or at the next step of the end.
    pub bell: Bell,
}

/// Descriptor that another thread makes readable.
pub struct Bell(EventFd);

impl SlotSignals {
    pub fn new() -> io::Result<SlotSignals> {
        Ok(SlotSignals { ending: Mutex::new(Ending::No), is_running: AtomicBool::new(false), bell: Bell::new()? })
    }

    pub fn go_to(&self, ending: Ending) {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner) = ending;
        self.bell.ring();
    }

    /// Returns the progress of the end.
    pub fn ending(&self) -> Ending {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell {
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    pub fn ring(&self) {
        // The counter is full only if it is readable already.
        let _ = self.0.write(1);
    }

    /// Silences the bell until it is rung again.
    pub fn silence(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Longest pause by doubling.
const LONGEST: Duration = Duration::from_secs(300);

/// Pauses of wikis since their last successful job.
#[derive(Default)]
pub struct Rests {
    wikis: Mutex<HashMap<String, Rest>>,
}

struct Rest {
    time: Duration,
    until: Instant,
}

impl Rests {
    /// Starts a pause of a wiki, and returns its length: `asked` for the first, then twice the previous one. A request
    /// during a pause returns the rest of it.
    pub fn begin(&self, wiki: &str, asked: Duration, now: Instant) -> Duration {
        let mut wikis = self.wikis.lock().unwrap_or_else(PoisonError::into_inner);
        let time = match wikis.get(wiki) {
            Some(rest) if now < rest.until => return rest.until - now,
            Some(rest) => (2 * rest.time).clamp(asked, LONGEST.max(asked)),
            None => asked,
        };
        // After this, the next pause is short again.
        wikis.retain(|_, rest| now < rest.until + 2 * LONGEST);
        let until = now.checked_add(time).unwrap_or(now);
        wikis.insert(wiki.into(), Rest { time, until });
        time
    }

    /// Resets the pause of a wiki after a successful job.
    pub fn end(&self, wiki: &str) {
        self.wikis.lock().unwrap_or_else(PoisonError::into_inner).remove(wiki);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_until_a_job_is_done() {
        let (rests, asked, mut now) = (Rests::default(), Duration::from_secs(30), Instant::now());
        for (n, wanted) in [30, 60, 120, 240, 300, 300].into_iter().enumerate() {
            let time = rests.begin("a", asked, now);
            assert_eq!(time, Duration::from_secs(wanted));
            assert_eq!(rests.begin("a", asked, now + time / 2), time / 2, "it is the same rest");
            assert_eq!(rests.begin(&format!("b{n}"), asked, now), asked, "of another wiki");
            now += time;
        }
        rests.end("a");
        assert_eq!(rests.begin("a", asked, now), asked);
        let long = Duration::from_secs(1000);
        assert_eq!(rests.begin("c", long, now), long);
        assert_eq!(rests.begin("c", long, now + long), long);
    }
}
