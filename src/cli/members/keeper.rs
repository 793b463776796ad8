//! `members renew --every`: renews a lease again and again, for a process that cannot do so itself.

use super::refused;
use crate::terminal::warn;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use poolcounter_client::{Error, LeaseToken, Members};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the process, and between two attempts while no server replies.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Renews a lease for `span` each time that `every` is over, until it is lost, or the process has ended.
///
/// # Errors
///
/// [`Error::NotTaken`] if the lease is lost; [`Error::Refused`].
pub fn run(
    members: &Members,
    (pool, token, span): (&[u8], LeaseToken, Option<Duration>),
    every: Duration,
    process: Option<i32>,
) -> Result<(), Error> {
    let mut is_told = false;
    loop {
        let pause = match members.renew(pool, token, span) {
            Ok(()) => {
                is_told = false;
                every
            }
            Err(error @ (Error::Unavailable(_) | Error::Lost)) => {
                if !std::mem::replace(&mut is_told, true) {
                    warn(&format!("{}; it is tried again", refused(&[pool], &error).sentence));
                }
                LOOK_EVERY.min(every)
            }
            Err(error) => return Err(error),
        };
        let next = Instant::now() + pause;
        loop {
            if process.is_some_and(|process| kill(Pid::from_raw(process), None) == Err(Errno::ESRCH)) {
                return Ok(());
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }
}
