//! Waits of commands for locks, units, members and descriptors: progress on the terminal, and further requests after a
//! pause.

use super::terminal::warn;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, IsTerminal, Write, stderr};
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

/// Timeout of a wait without limit, the longest of the protocols: 136 years.
pub const NO_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);
/// Pause before another request if no server replies.
pub const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Pauses of a command that goes on until it is ended; each is twice as long as the one before, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Outages of a connection: prints each message about them only once, and measures the pauses between attempts.
pub struct Outage {
    /// Text before each message.
    prefix: String,
    /// Last message; empty while the connection works.
    message: String,
    pause: Duration,
}

impl Outage {
    /// Returns no outage yet.
    pub fn new(prefix: String) -> Outage {
        Outage { prefix, message: String::new(), pause: SHORTEST_PAUSE }
    }

    /// Prints a message that is not the last one.
    pub fn complain(&mut self, message: &str) {
        if self.message != message {
            self.message = message.into();
            warn(&format!("{}{message}", self.prefix));
        }
    }

    /// Prints a message, and returns the time of the next attempt.
    pub fn try_later(&mut self, message: &str) -> Instant {
        self.complain(&format!("{message}; it is tried again"));
        Instant::now() + doubled(&mut self.pause, LONGEST_PAUSE)
    }

    /// The same, after the longest pause.
    pub fn try_much_later(&mut self, message: &str) -> Instant {
        self.pause = LONGEST_PAUSE;
        self.try_later(message)
    }

    /// Notes that the connection works, and prints a message if there was another one.
    pub fn recover(&mut self, message: &str) {
        self.pause = SHORTEST_PAUSE;
        if !self.message.is_empty() {
            self.complain(message);
            self.message.clear();
        }
    }
}

/// Line on the terminal with the time waited. Removed on drop.
pub struct WaitProgress {
    name: String,
    /// Time limit of the wait.
    timeout: Duration,
    is_shown: bool,
}

/// Calls `ask` with the time since the start, and again after the pause that `again` returns for its answer, until the
/// timeout.
pub fn repeated<T>(
    timeout: Duration,
    mut ask: impl FnMut(Duration) -> T,
    mut again: impl FnMut(&T) -> Option<Duration>,
) -> T {
    let begun = Instant::now();
    loop {
        let answer = ask(begun.elapsed());
        let left = timeout.saturating_sub(begun.elapsed());
        match again(&answer) {
            Some(pause) if !left.is_zero() => thread::sleep(pause.min(left)),
            _ => return answer,
        }
    }
}

/// Returns a pause, and doubles it for the next time, up to the longest.
pub fn doubled(pause: &mut Duration, longest: Duration) -> Duration {
    std::mem::replace(pause, (2 * *pause).min(longest))
}

impl WaitProgress {
    /// Returns a line, not shown yet, for the wait for the thing of this name.
    pub fn new(name: String, timeout: Duration) -> Self {
        WaitProgress { name, timeout, is_shown: false }
    }

    /// Shows the time waited, from the first second on, if standard error is a terminal.
    pub fn show(&mut self, waited: Duration) {
        if waited < Duration::from_secs(1) || !stderr().is_terminal() {
            return;
        }
        let limit = Some(self.timeout).filter(|timeout| *timeout < NO_LIMIT);
        let of = limit.map_or(String::new(), |timeout| format!(" of {}", timeout.as_secs_f64()));
        self.is_shown = true;
        // Ignores an error: the terminal may be gone.
        let _ = write!(stderr(), "\r\x1b[Kwaiting for {}, {} s{of}", self.name, waited.as_secs());
    }
}

impl Drop for WaitProgress {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// Waits until a descriptor is readable, `writable` takes bytes or the time is over, and returns which are readable.
pub fn poll_until(
    until: Option<Instant>,
    readable: &[BorrowedFd<'_>],
    writable: Option<BorrowedFd<'_>>,
) -> io::Result<Vec<bool>> {
    let timeout = until.map_or(PollTimeout::NONE, |until| {
        // One millisecond more, so that the deadline is past by then.
        let ms = until.saturating_duration_since(Instant::now()).as_millis() + 1;
        PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
    });
    let readers = readable.iter().map(|one| PollFd::new(*one, PollFlags::POLLIN));
    let mut polled: Vec<_> = readers.chain(writable.map(|one| PollFd::new(one, PollFlags::POLLOUT))).collect();
    match poll(&mut polled, timeout) {
        Err(Errno::EINTR) | Ok(_) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(polled.iter().take(readable.len()).map(|polled| polled.any().unwrap_or(false)).collect())
}
