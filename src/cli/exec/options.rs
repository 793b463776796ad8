//! The options of `exec`: one table.

use crate::cli::servers::Servers;
use crate::cli::supervise::OnLost;
use crate::options::{Opt, assign, number, seconds};
use std::time::Duration;

/// What the options say.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The pool; empty until it is named.
    pub key: Vec<u8>,
    /// So many may run at a time.
    pub workers: u32,
    /// So many may run or wait.
    pub queue: u32,
    /// How long to wait for a place.
    pub timeout: Duration,
    /// The longest to hold it; None is without limit.
    pub hold: Option<Duration>,
    /// Whether it is enough that somebody else does the work.
    pub is_for_anyone: bool,
    /// The exit status when somebody else has done it.
    pub done_exit: u8,
    /// Where to ask.
    pub servers: Servers,
    /// Whether to run without a place if no server answers.
    pub fails_open: bool,
    /// What to do when the place is lost.
    pub on_lost: OnLost,
    /// Whether to tell how long it waited.
    pub prints_wait: bool,
}

/// The longest that the protocol can wait, in seconds: 136 years.
const NO_LIMIT_S: u32 = u32::MAX;

/// The table.
pub const OPTIONS: &[Opt<Settings>] = &[
    Opt {
        short: "k",
        long: "key",
        hint: "KEY",
        help: "the pool that the command belongs to; all that name it share its places",
        set_bytes: Some(|settings, value| {
            let is_sendable = !value.is_empty() && !value.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0));
            assign(&mut settings.key, is_sendable.then(|| value.into()).ok_or("a key: bytes in one line".into()))
        }),
        ..Opt::BLANK
    },
    Opt {
        short: "w",
        long: "workers",
        hint: "N",
        help: "how many may run at a time (default: 1)",
        set: |settings, value| assign(&mut settings.workers, number(value, 1..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        short: "q",
        long: "queue",
        hint: "N",
        help: "how many may run or wait; more are turned away at once (default: without limit)",
        set: |settings, value| assign(&mut settings.queue, number(value, 1..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        short: "t",
        long: "timeout",
        hint: "SECONDS",
        help: "how long to wait for a place; 0: not at all (default: without limit)",
        set: |settings, value| assign(&mut settings.timeout, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "hold",
        hint: "SECONDS",
        help: "the longest to hold the place; the server takes it back then (default: without limit)",
        set: |settings, value| {
            assign(&mut settings.hold, seconds(value).map(|hold| Some(hold).filter(|hold| !hold.is_zero())))
        },
        ..Opt::BLANK
    },
    Opt {
        short: "a",
        long: "any",
        help: "it is enough that one does the work: whoever waits until then does not run the command",
        set: |settings, _| assign(&mut settings.is_for_anyone, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "done-exit",
        hint: "STATUS",
        help: "the exit status when somebody else has done the work (default: 0)",
        set: |settings, value| assign(&mut settings.done_exit, number(value, 0..=u8::MAX)),
        ..Opt::BLANK
    },
    Opt::SERVER,
    Opt {
        long: "fail-open",
        help: "when no server answers, run the command without a place",
        set: |settings, _| assign(&mut settings.fails_open, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "on-lost",
        hint: "warn|term|kill",
        help: "when the place is lost while the command runs: only say so, or also terminate or kill it (default: warn)",
        set: |settings, value| assign(&mut settings.on_lost, OnLost::parse(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "print-wait",
        help: "tell how long it waited",
        set: |settings, _| assign(&mut settings.prints_wait, Ok(true)),
        ..Opt::BLANK
    },
    Opt::VERSION,
    Opt::HELP,
];

impl Default for Settings {
    fn default() -> Self {
        Settings {
            key: Vec::new(),
            workers: 1,
            queue: u32::MAX,
            timeout: Duration::from_secs(u64::from(NO_LIMIT_S)),
            hold: None,
            is_for_anyone: false,
            done_exit: 0,
            servers: Servers::default(),
            fails_open: false,
            on_lost: OnLost::default(),
            prints_wait: false,
        }
    }
}

impl Settings {
    /// Whether it waits for as long as it takes.
    pub fn waits_without_limit(&self) -> bool {
        self.timeout.as_secs() >= u64::from(NO_LIMIT_S)
    }
}

impl AsMut<Servers> for Settings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}
