//! `members renew --every`: renews a lease again and again, for a process that cannot do so itself.

use super::refused;
use super::requests::token;
use crate::command::Failure;
use crate::spawn::obey_signals_as_first_process;
use crate::terminal::warn;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use poolcounter_client::{Error, Members};
use poolcounter_service::options::seconds;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the process, and between two attempts while no server replies.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Renews the lease of `POOL TOKEN [SECONDS]` until it is lost, or the process has ended.
///
/// # Errors
///
/// Fails if the parameters are wrong, or the lease is lost.
pub fn run(members: &Members, words: &[&[u8]], every: Duration, process: Option<i32>) -> Result<ExitCode, Failure> {
    let (pool, name, span) = match words {
        [pool, name] => (pool, name, None),
        [pool, name, span] => {
            let span = seconds(&String::from_utf8_lossy(span));
            (pool, name, Some(span.map_err(|wanted| Failure::misuse(format!("SECONDS is {wanted}")))?))
        }
        _ => return Err(Failure::misuse("renew needs POOL TOKEN [SECONDS]")),
    };
    let token = token(name).map_err(|_| Failure::misuse("TOKEN is 32 hexadecimal digits, as in POOL_TOKEN"))?;
    obey_signals_as_first_process().map_err(Failure::no_commands)?;
    let mut is_told = false;
    loop {
        let pause = match members.renew(pool, token, span) {
            Ok(()) => {
                is_told = false;
                every
            }
            Err(error @ (Error::Unavailable(_) | Error::Lost)) => {
                if !std::mem::replace(&mut is_told, true) {
                    warn(&format!("{}; it is tried again", refused(&[*pool], &error).sentence));
                }
                LOOK_EVERY.min(every)
            }
            Err(error) => return Err(refused(&[*pool], &error)),
        };
        let next = Instant::now() + pause;
        loop {
            if process.is_some_and(has_ended) {
                return Ok(ExitCode::SUCCESS);
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(LOOK_EVERY));
        }
    }
}

fn has_ended(process: i32) -> bool {
    kill(Pid::from_raw(process), None) == Err(Errno::ESRCH)
}
