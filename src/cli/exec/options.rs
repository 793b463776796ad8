//! The options of `exec`: one table.

use super::TRY_LATER;
use crate::run_child::OnLost;
use crate::servers::{ServerOptions, Servers};
use poolcounter_client::MOST_LIMITS;
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::time::Duration;

/// Settings that the options make.
#[derive(Clone, PartialEq, Debug)]
pub struct ExecSettings {
    /// The pool; empty until it is named.
    pub key: Vec<u8>,
    /// So many may run at a time.
    pub workers: u32,
    /// So many may run or wait.
    pub queue: u32,
    /// The further keys that it needs a lock of, with how many may hold one, and hold or wait.
    pub also: Vec<(Vec<u8>, u32, u32)>,
    /// How long to wait for a lock.
    pub timeout: Duration,
    /// The longest to hold it; None is without limit.
    pub hold: Option<Duration>,
    /// Whether it is enough that somebody else does the work.
    pub is_for_anyone: bool,
    /// The exit status when somebody else has done it.
    pub done_exit: u8,
    /// Where to ask.
    pub servers: Servers,
    /// Whether to ask again if no server answers, for as long as a lock is waited for.
    pub retries: bool,
    /// Whether to run without a lock if no server answers.
    pub fails_open: bool,
    /// The exit status when there is no lock.
    pub conflict_exit: u8,
    /// Whether to say nothing about locks that it does not get.
    pub is_quiet: bool,
    /// What to do when the lock is lost.
    pub on_lost: OnLost,
    /// Whether to tell how long it waited.
    pub prints_wait: bool,
    /// Who it says to be, if that is not what it is.
    pub who: Option<String>,
}

/// The longest that the protocol can wait, in seconds: 136 years.
const NO_LIMIT_S: u32 = u32::MAX;

/// The table.
pub const OPTIONS: &[Opt<ExecSettings>] = &[
    Opt {
        short: "k",
        long: "key",
        hint: "KEY",
        doc_short: "the pool that the command belongs to; all that name it share its locks",
        doc_long: "
            The pool; it must be given, here or in the environment as
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
        doc_short: "how many may run at a time (default: 1)",
        doc_long: "
            How many may run at a time.
            The default is 1.",
        set: |settings, value| assign(&mut settings.workers, number(value, 1..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        short: "q",
        long: "queue",
        hint: "N",
        doc_short: "how many may run or wait; more are turned away at once (default: without limit)",
        doc_long: "
            How many may run or wait.
            Who comes then is turned away at once.
            The default is no limit.",
        set: |settings, value| assign(&mut settings.queue, number(value, 1..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        long: "also",
        hint: "KEY:N[:QUEUE]",
        doc_short: "a further pool that it needs a lock of at the same time, for N at a time; repeatable",
        doc_long: "
            A further pool that the command needs a lock of, with how many may run at a time and how many may run or wait.
            It gets all of its locks at once or none, and holds none while it waits for another.
            May be given up to four times.
            The C daemon does not know of further pools.",
        repeats: true,
        set_bytes: Some(|settings, value| {
            if settings.also.len() == MOST_LIMITS {
                return Err(format!("{MOST_LIMITS} of them at most"));
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
        doc_short: "how long to wait for a lock; 0: not at all (default: without limit)",
        doc_long: "
            How long to wait for a lock.
            With 0 nothing waits.
            Decimals are allowed.
            The default is no limit.",
        set: |settings, value| assign(&mut settings.timeout, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "hold",
        hint: "SECONDS",
        doc_short: "the longest to hold the lock; the server takes it back then (default: without limit)",
        doc_long: "
            The longest to hold the lock.
            The server gives it to somebody else then; see
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
        doc_short: "it is enough that one does the work: whoever waits until then does not run the command",
        doc_long: "
            Runs the command only once: if another client finishes it successfully while this one waits, it is skipped.
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
        doc_short: "the exit status when somebody else has done the work (default: 0)",
        doc_long: "
            The exit status when somebody else has done the work.
            The default is 0.",
        set: |settings, value| assign(&mut settings.done_exit, number(value, 0..=u8::MAX)),
        ..Opt::BLANK
    },
    Opt {
        long: "conflict-exit",
        hint: "STATUS",
        doc_short: "the exit status when there is no lock: the queue is full, or the time is over (default: 75)",
        doc_long: "
            The exit status when there is no lock, because too many run or wait already, or none came free in time.
            The default is 75.",
        set: |settings, value| assign(&mut settings.conflict_exit, number(value, 0..=u8::MAX)),
        ..Opt::BLANK
    },
    Opt {
        doc_long: "
            A server.
            May be given several times.
            The default is what
            .Ev POOLCOUNTER_SERVERS
            names in the environment, with commas or spaces between them, else this machine.",
        ..Opt::SERVER
    },
    Opt::TLS,
    Opt {
        long: "retry",
        doc_short: "while no server answers, ask again, until the time to wait for a lock is over",
        doc_long: "
            While no server answers, ask again, twice a second at first and every four seconds in the end, until the time of
            .Fl -timeout
            is over.",
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
        doc_short: "when the lock is lost while the command runs: only say so, or also terminate or kill it (default: warn)",
        doc_long: "
            What to do when the lock is lost while the command runs, because the connection is gone or the time of
            .Fl -hold
            is over:
            .Cm warn ,
            which is the default, only says so;
            .Cm term
            sends
            .Dv SIGTERM
            as well, and
            .Cm kill
            .Dv SIGKILL .
            A server whose machine died is noticed after 30 seconds.",
        set: |settings, value| assign(&mut settings.on_lost, OnLost::parse(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "quiet",
        doc_short: "when there is no lock, say so by the exit status only",
        doc_long: "
            When there is no lock, say so by the exit status only, and do not show on a terminal that one is waited for.",
        set: |settings, _| assign(&mut settings.is_quiet, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "print-wait",
        doc_short: "tell how long it waited",
        doc_long: "
            Tell on the standard error how long it waited.",
        set: |settings, _| assign(&mut settings.prints_wait, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "who",
        hint: "NAME",
        doc_short: "who it says to be to the server, for people who look (default: USER@HOST:PID)",
        doc_long: "
            Who it says to be, in 64 characters, for the people who look at what the server holds.
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

/// Reads the name of a pool.
///
/// # Errors
///
/// What it should be, when no request can carry it.
pub fn key(value: &[u8]) -> Result<Vec<u8>, String> {
    let is_sendable = !value.is_empty() && !value.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0));
    is_sendable.then(|| value.into()).ok_or("a key: bytes in one line".into())
}

/// Reads `KEY:N` or `KEY:N:QUEUE`: the numbers are what stands last, as far as there are any.
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
    /// Whether it waits for as long as it takes.
    pub fn waits_without_limit(&self) -> bool {
        self.timeout.as_secs() >= u64::from(NO_LIMIT_S)
    }
}

impl AsMut<Servers> for ExecSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
