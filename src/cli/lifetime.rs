//! Lifetime of a command: its process group, its end when the resource that is held for it is lost, and the options for
//! both.

use crate::table::one_of;
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;

/// Settings of the lifetime of a command.
#[derive(Clone, PartialEq, Debug)]
pub struct Lifetime {
    /// True if the command gets a process group of its own; None for the default: only without a terminal.
    group: Option<bool>,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Effect of the loss of the resource.
    pub on_lost: OnLost,
    /// Exit status after a loss; None for that of the command.
    lost_exit: Option<u8>,
}

/// Effect on the command when its resource is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnLost {
    /// The command runs on.
    #[default]
    Warn,
    /// SIGTERM is sent to the command, and SIGKILL after a time.
    Term,
    /// SIGKILL is sent to the command.
    Kill,
}

/// End of the command.
pub struct Ended {
    /// Exit status, or 128 plus the number of the signal that ended it.
    pub status: u8,
    /// True if the resource was lost before the end.
    pub was_lost: bool,
}

impl OnLost {
    /// Parses the value of an option; the error describes valid values.
    pub fn parse(text: &str) -> Result<OnLost, String> {
        one_of(text, &[("warn", OnLost::Warn), ("term", OnLost::Term), ("kill", OnLost::Kill)])
    }
}

impl Lifetime {
    /// Returns true if the command gets a process group of its own. In another group than that of this process, it
    /// could not read from their terminal.
    pub fn has_group(&self) -> bool {
        self.group.unwrap_or_else(|| File::open("/dev/tty").is_err())
    }

    /// Returns the exit status of this program after the end of the command.
    pub fn exit(&self, ended: &Ended) -> ExitCode {
        ExitCode::from(self.lost_exit.filter(|_| ended.was_lost).unwrap_or(ended.status))
    }
}

impl Default for Lifetime {
    fn default() -> Self {
        Lifetime { group: None, grace: Duration::from_secs(10), on_lost: OnLost::default(), lost_exit: None }
    }
}

/// Returns the option for the effect of a loss. Its text is that of the command.
pub const fn on_lost<S: AsMut<Lifetime>>(doc: &'static str) -> Opt<S> {
    Opt::new("--on-lost warn|term|kill", doc, |settings, value| {
        assign(&mut settings.as_mut().on_lost, OnLost::parse(value))
    })
}

/// Returns the option for the exit status after a loss.
pub const fn lost_exit<S: AsMut<Lifetime>>() -> Opt<S> {
    Opt::new(
        "--lost-exit STATUS",
        "Exit status when --on-lost has acted or warned (default: that of the command).",
        |settings, value| assign(&mut settings.as_mut().lost_exit, number(value, 0..=u8::MAX).map(Some)),
    )
}

/// Returns the option for the process group.
pub const fn process_group<S: AsMut<Lifetime>>() -> Opt<S> {
    Opt::new(
        "--process-group own|shared",
        "Process group of the command: its own, or that of this process (default: shared on a terminal, else own). In \
         a group of its own, the processes that the command starts get the signals and end with it; see \
         poolcounter-exec(1), SIGNALS. A command in a group of its own cannot read from the terminal.",
        |settings, value| {
            assign(&mut settings.as_mut().group, one_of(value, &[("own", true), ("shared", false)]).map(Some))
        },
    )
}

/// Returns the option for the time between SIGTERM and SIGKILL.
pub const fn grace<S: AsMut<Lifetime>>() -> Opt<S> {
    Opt::new(
        "--grace SECONDS",
        "Time between SIGTERM and SIGKILL (default: 10). It counts when --on-lost is term, when this process is \
         killed, and for processes that are left in the group of the command after a signal has ended that one.",
        |settings, value| assign(&mut settings.as_mut().grace, seconds(value)),
    )
}
