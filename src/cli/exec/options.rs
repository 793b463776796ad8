//! Options of `exec`, as one table.

use crate::failure::TRY_LATER;
use crate::run_child::OnLost;
use crate::servers::{ServerOptions, Servers};
use poolcounter_client::MOST_LIMITS;
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::time::Duration;

/// Settings of the command.
#[derive(Clone, PartialEq, Debug)]
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
    /// True if the command need not run after another client has done the work.
    pub is_for_anyone: bool,
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
    /// Reaction to the loss of the lock.
    pub on_lost: OnLost,
    /// True if the time waited is printed.
    pub prints_wait: bool,
    /// Name shown to others; None for the default name.
    pub who: Option<String>,
}

/// Longest timeout of the protocol, in seconds: 136 years.
const NO_LIMIT_S: u32 = u32::MAX;

/// Options of the command.
pub const OPTIONS: &[Opt<ExecSettings>] = &[
    Opt {
        short: "k",
        long: "key",
        hint: "KEY",
        doc_short: "pool of the lock; all commands with the same key share its locks",
        doc_long: "
            Pool of the lock; required, here or in the environment as
            .Ev POOLCOUNTER_KEY .
            It is bytes in one line, which need not be text.
            Spaces in it are sent as
            .Ql %20 .",
        set_bytes: Some(|settings, value| assign(&mut settings.key, key(value))),
        ..Opt::BLANK
    },
    Opt {
        short: "w",
        long: "workers",
        hint: "N",
        doc_short: "maximum number that run at a time (default: 1)",
        doc_long: "
            Maximum number of commands that run at a time.
            The default is 1.",
        set: |settings, value| assign(&mut settings.workers, number(value, 1..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        short: "q",
        long: "queue",
        hint: "N",
        doc_short: "maximum number that run or wait; further ones are refused at once (default: without limit)",
        doc_long: "
            Maximum number that run or wait.
            Further ones are refused at once.
            The default is no limit.",
        set: |settings, value| assign(&mut settings.queue, number(value, 1..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        long: "also",
        hint: "KEY:N[:QUEUE]",
        doc_short: "further pool whose lock is needed at the same time, for N at a time; repeatable",
        doc_long: "
            Further pool of which the command needs a lock, with the maximum number that run at a time and that run or wait.
            All locks are granted together; none is held while the command waits for another.
            May be given up to four times.
            The C daemon does not support this.",
        repeats: true,
        set_bytes: Some(|settings, value| {
            if settings.also.len() == MOST_LIMITS {
                return Err(format!("allowed: the option can be given {MOST_LIMITS} times at most"));
            }
            settings.also.push(further(value)?);
            Ok(())
        }),
        ..Opt::BLANK
    },
    Opt {
        short: "t",
        long: "timeout",
        hint: "SECONDS",
        doc_short: "maximum time to wait for a lock; 0: do not wait (default: without limit)",
        doc_long: "
            Maximum time to wait for a lock.
            With 0 it does not wait.
            Decimals are allowed.
            The default is no limit.
            A server that does not answer is given up 5 seconds after that time, and one that does not accept the connection after 2 seconds.",
        set: |settings, value| assign(&mut settings.timeout, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "hold",
        hint: "SECONDS",
        doc_short: "maximum time to hold the lock, after which the server takes it back (default: without limit)",
        doc_long: "
            Maximum time to hold the lock.
            After that the server may grant it to another client; see
            .Fl -on-lost .
            With 0, which is the default, there is no limit.",
        set: |settings, value| {
            assign(&mut settings.hold, seconds(value).map(|hold| Some(hold).filter(|hold| !hold.is_zero())))
        },
        ..Opt::BLANK
    },
    Opt {
        short: "a",
        long: "any",
        doc_short: "run the command only once: skip it if another client finishes it while this one waits",
        doc_long: "
            Run the command only once: it is skipped if another client finishes it successfully while this one waits.
            The status is that of
            .Fl -done-exit
            then.
            When a command ends with another status than 0, its work counts as not done, and the next one runs.",
        set: |settings, _| assign(&mut settings.is_for_anyone, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "done-exit",
        hint: "STATUS",
        doc_short: "exit status when another client has done the work (default: 0)",
        doc_long: "
            Exit status when another client has done the work.
            The default is 0.",
        set: |settings, value| assign(&mut settings.done_exit, number(value, 0..=u8::MAX)),
        ..Opt::BLANK
    },
    Opt {
        long: "conflict-exit",
        hint: "STATUS",
        doc_short: "exit status when there is no lock: the queue is full, or the timeout is over (default: 75)",
        doc_long: "
            Exit status when there is no lock: the queue is full, or the timeout is over.
            The default is 75.",
        set: |settings, value| assign(&mut settings.conflict_exit, number(value, 0..=u8::MAX)),
        ..Opt::BLANK
    },
    Opt {
        doc_long: "
            A server.
            May be given several times.
            The default is the list in
            .Ev POOLCOUNTER_SERVERS
            in the environment, separated by commas or spaces, or else this machine.",
        ..Opt::SERVER
    },
    Opt::TLS,
    Opt {
        long: "retry",
        doc_short: "while no server answers, ask again until the timeout is over",
        doc_long: "
            While no server answers, ask again, twice a second at first and every four seconds in the end, until the time of
            .Fl -timeout
            is over.
            A server that drains counts as one that does not answer.",
        set: |settings, _| assign(&mut settings.retries, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "fail-open",
        doc_short: "when no server answers, run the command without a lock",
        doc_long: "
            When no server answers, warn and run the command without a lock.
            With
            .Fl -retry
            that is when the time is over.",
        set: |settings, _| assign(&mut settings.fails_open, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "on-lost",
        hint: "warn|term|kill",
        doc_short: "when the lock is lost while the command runs: only warn, or also terminate or kill it (default: warn)",
        doc_long: "
            Action when the lock is lost while the command runs, because the connection is lost, the time of
            .Fl -hold
            is over, or an operator or a limit of the daemon takes it:
            .Cm warn ,
            which is the default, prints a line;
            .Cm term
            sends
            .Dv SIGTERM
            as well, and
            .Cm kill
            .Dv SIGKILL .
            A server whose machine died is detected after 30 seconds.
            The time of the daemon's setting
            .Va keepalive
            should be above that, or the lock is granted to another client before the action.",
        set: |settings, value| assign(&mut settings.on_lost, OnLost::parse(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "quiet",
        doc_short: "print nothing when there is no lock; only set the exit status",
        doc_long: "
            Print nothing when there is no lock, and no line about the wait on a terminal; only set the exit status.",
        set: |settings, _| assign(&mut settings.is_quiet, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "print-wait",
        doc_short: "print the time waited for the lock",
        doc_long: "
            Print on the standard error how long it waited for the lock.",
        set: |settings, _| assign(&mut settings.prints_wait, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "who",
        hint: "NAME",
        doc_short: "name shown to operators as the holder or waiter (default: USER@HOST:PID)",
        doc_long: "
            Name of at most 64 characters that is shown to operators as the holder or waiter.
            The default is
            .Ql user@host:pid .",
        set: |settings, value| assign(&mut settings.who, Ok(Some(value.into()))),
        ..Opt::BLANK
    },
    Opt::VERSION,
    Opt::HELP,
];

impl Default for ExecSettings {
    fn default() -> Self {
        ExecSettings {
            key: Vec::new(),
            workers: 1,
            queue: u32::MAX,
            also: Vec::new(),
            timeout: Duration::from_secs(u64::from(NO_LIMIT_S)),
            hold: None,
            is_for_anyone: false,
            done_exit: 0,
            servers: Servers::default(),
            retries: false,
            fails_open: false,
            conflict_exit: TRY_LATER,
            is_quiet: false,
            on_lost: OnLost::default(),
            prints_wait: false,
            who: None,
        }
    }
}

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
    /// Returns true if it waits without a time limit.
    pub fn waits_without_limit(&self) -> bool {
        self.timeout.as_secs() >= u64::from(NO_LIMIT_S)
    }
}

impl AsMut<Servers> for ExecSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// Returns the options without their setters.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
