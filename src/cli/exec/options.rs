//! Options of `exec`, as one table.

use crate::failure::TRY_LATER;
use crate::run_child::{Lifetime, grace, lost_exit, on_lost, process_group};
use crate::servers::{A_SERVER, Servers, has_part, server_option, tls_option};
use crate::wait::NO_LIMIT;
use poolcounter_client::MOST_LIMITS;
use poolcounter_service::options::{Opt, assign, number, option_table, seconds};
use std::time::Duration;

/// Settings of the command.
#[derive(Default)]
pub struct ExecSettings {
    /// Key of the pool; empty until set.
    pub key: Vec<u8>,
    /// Limit of commands that run at a time.
    pub workers: u32,
    /// Limit of commands that run or wait.
    pub queue: u32,
    /// Further keys to lock, each with its limits of holders, and of holders and waiters.
    pub also: Vec<(Vec<u8>, u32, u32)>,
    /// Time limit of the wait for a lock.
    pub timeout: Duration,
    /// Time limit of the lock; None for no limit.
    pub hold: Option<Duration>,
    /// Least time for which the key is occupied; zero for none.
    pub at_least: Duration,
    /// True if the command need not run after another client has done the work.
    pub is_for_anyone: bool,
    /// True if the work counts as done whatever the status of the command.
    pub is_one_attempt: bool,
    /// Exit status if another client has done the work.
    pub done_exit: u8,
    /// Servers to ask.
    pub servers: Servers,
    /// True if the request is repeated while no server replies, until the timeout.
    pub retries: bool,
    /// True if the command runs without a lock if no server replies.
    pub fails_open: bool,
    /// Exit status if the lock is not available.
    pub conflict_exit: u8,
    /// True if a lock that is not available is not reported.
    pub is_quiet: bool,
    /// Lifetime of the command.
    pub lifetime: Lifetime,
    /// Name shown to other clients; None for the default name.
    pub who: Option<String>,
}

/// Options of the command.
pub const OPTIONS: &[Opt<ExecSettings>] = option_table!(ExecSettings;
    => Opt::of_bytes("-k, --key KEY",
        "Pool of the lock; all commands with the same key share its locks. The key is required, here or as \
         POOLCOUNTER_KEY in the environment. It is bytes in one line, which need not be text. Spaces in it are sent as \
         %20.",
        |settings, value| assign(&mut settings.key, key(value)));
    "-w, --workers N", "Maximum number of commands that run at a time (default: 1).",
        |settings, value| assign(&mut settings.workers, number(value, 1..=u32::MAX));
    "-q, --queue N",
        "Maximum number of commands that run or wait; further ones are refused at once (default: without limit).",
        |settings, value| assign(&mut settings.queue, number(value, 1..=u32::MAX));
    => Opt::<ExecSettings>::of_bytes("--also KEY:N[:QUEUE]",
        "Further pool whose lock is needed at the same time, for N commands at a time; repeatable. QUEUE is the \
         maximum number that run or wait. All locks are granted together; none is held while the command waits for \
         another. The option can be given four times. The C daemon does not support it.",
        |settings, value| {
            if settings.also.len() == MOST_LIMITS {
                return Err(format!("allowed: the option can be given {MOST_LIMITS} times at most"));
            }
            settings.also.push(further(value)?);
            Ok(())
        }).repeated();
    "-t, --timeout SECONDS",
        "Maximum time to wait for a lock; 0: do not wait (default: without limit). Decimals are allowed. The command \
         gives up a server that does not answer 5 seconds after that time, or for 10 to 20 seconds during it, and a \
         server that does not accept the connection after 2 seconds.",
        |settings, value| assign(&mut settings.timeout, seconds(value));
    "--hold SECONDS",
        "Maximum time to hold the lock, after which the server takes it back; 0: without limit (default: 0). Then the \
         server may grant the lock to another client; see --on-lost.",
        |settings, value| assign(&mut settings.hold, seconds(value).map(|it| Some(it).filter(|it| !it.is_zero())));
    "--at-least SECONDS",
        "Minimum time for which the key is occupied from the grant on, so that the command runs at most once in that \
         time (default: 0). When the command ends earlier, exec ends with its status, and the server keeps the key for \
         the rest, even if the command failed or its machine died. The option cannot be used with --also, nor be \
         longer than --hold or a limit of the daemon. The C daemon does not support it.",
        |settings, value| assign(&mut settings.at_least, seconds(value));
    "-a, --any",
        "Run the command only once: skip it if another client finishes it successfully while this one waits. The exit \
         status is then that of --done-exit. When a command ends with a status other than 0, its work counts as not \
         done, and the next one runs.",
        |settings, _| assign(&mut settings.is_for_anyone, Ok(true));
    "--one-attempt",
        "With --any: count the work as done whatever the exit status of the command, so that there is one attempt for \
         all that wait. They skip the command then, with the status of --done-exit, and do not learn its status. A \
         command that was not run, or whose lock was lost, is no attempt: the next one runs.",
        |settings, _| assign(&mut settings.is_one_attempt, Ok(true));
    "--done-exit STATUS", "Exit status when another client has done the work (default: 0).",
        |settings, value| assign(&mut settings.done_exit, number(value, 0..=u8::MAX));
    "--conflict-exit STATUS",
        "Exit status when there is no lock: the queue is full, or the timeout is over (default: 75).",
        |settings, value| assign(&mut settings.conflict_exit, number(value, 0..=u8::MAX));
    => server_option(A_SERVER); => tls_option();
    "--retry",
        "Ask again until the timeout is over while no server answers. The command asks twice a second at first, and \
         every four seconds in the end, until the time of --timeout is over. A server that drains counts as one that \
         does not answer.",
        |settings, _| assign(&mut settings.retries, Ok(true));
    "--fail-open",
        "Run the command without a lock when no server answers, with a warning. With --retry it does so when the \
         timeout is over.",
        |settings, _| assign(&mut settings.fails_open, Ok(true));
    => on_lost(
        "Action when the lock is lost while the command runs: only warn, or also terminate or kill it (default: \
         warn). A lock is lost when the connection is lost, the time of --hold is over, or an operator or a limit \
         of the daemon takes the lock. warn prints a line; term sends SIGTERM as well, and after the time of \
         --grace SIGKILL; kill sends SIGKILL. The command detects after 30 seconds that the machine of the server has died. The time of the daemon's \
         setting keepalive should be longer, or the lock is granted to another client before the action.",
    );
    => lost_exit(); => process_group(); => grace();
    "--quiet", "Print nothing when there is no lock, and nothing about the wait; only set the exit status.",
        |settings, _| assign(&mut settings.is_quiet, Ok(true));
    "--who NAME", "Name shown to operators as the holder or waiter, 64 bytes at most (default: USER@HOST:PID).",
        |settings, value| assign(&mut settings.who, Ok(Some(value.into())));
);

/// Parses the key of a pool.
///
/// # Errors
///
/// A description of valid keys, if no request can carry it.
pub fn key(value: &[u8]) -> Result<Vec<u8>, String> {
    let is_sendable = !value.is_empty() && !value.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0));
    is_sendable.then(|| value.into()).ok_or("a key: bytes in one line".into())
}

/// Parses `KEY:N` or `KEY:N:QUEUE`. The key may contain colons: up to two numbers are taken from the end.
fn further(value: &[u8]) -> Result<(Vec<u8>, u32, u32), String> {
    let split = |bytes: &[u8]| {
        let at = bytes.iter().rposition(|byte| *byte == b':')?;
        let last = std::str::from_utf8(&bytes[at + 1..]).ok()?;
        Some((bytes[..at].to_vec(), number(last, 1..=u32::MAX).ok()?))
    };
    let (rest, last) = split(value).ok_or("a key, a colon and a number, such as user:7:2")?;
    let (name, workers, queue) = match split(&rest) {
        Some((name, workers)) => (name, workers, last),
        None => (rest, last, u32::MAX),
    };
    Ok((key(&name)?, workers, queue))
}

impl ExecSettings {
    /// Returns the settings without any option.
    pub fn usual() -> ExecSettings {
        ExecSettings {
            workers: 1,
            queue: u32::MAX,
            timeout: NO_LIMIT,
            conflict_exit: TRY_LATER,
            ..ExecSettings::default()
        }
    }
}

has_part!(ExecSettings, servers: Servers);
has_part!(ExecSettings, lifetime: Lifetime);
