//! Waits of commands for locks, units and members: progress on the terminal, and further requests while no server
//! replies.

use poolcounter_client::Error;
use std::io::{IsTerminal, Write, stderr};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout of a wait without limit, the longest of the protocols: 136 years.
pub const NO_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);
/// Pause before another request if no server replies.
pub const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Line on the terminal with the time waited. Removed on drop.
pub struct WaitProgress {
    name: String,
    /// Time limit of the wait, if any.
    timeout: Option<Duration>,
    is_shown: bool,
}

/// Calls `ask` with the time since the start, and if `retries` again while no server replies, until the timeout.
pub fn retrying<T>(
    retries: bool,
    timeout: Duration,
    mut ask: impl FnMut(Duration) -> Result<T, Error>,
) -> Result<T, Error> {
    let begun = Instant::now();
    loop {
        match ask(begun.elapsed()) {
            Err(Error::Unavailable(_)) if retries && begun.elapsed() < timeout => {
                thread::sleep(RETRY_EVERY.min(timeout.saturating_sub(begun.elapsed())));
            }
            answer => return answer,
        }
    }
}

impl WaitProgress {
    /// Returns a line, not shown yet, for the wait for the thing of this name.
    pub fn new(name: String, timeout: Option<Duration>) -> Self {
        WaitProgress { name, timeout, is_shown: false }
    }

    /// Shows the time waited, from the first second on, if standard error is a terminal.
    pub fn show(&mut self, waited: Duration) {
        if waited < Duration::from_secs(1) || !stderr().is_terminal() {
            return;
        }
        let of = self.timeout.map(|timeout| format!(" of {}", timeout.as_secs_f64())).unwrap_or_default();
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
