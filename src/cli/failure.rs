//! Failures of commands: one sentence and an exit status.

use poolcounter_client::Error;
use poolcounter_service::options::did_you_mean;
use std::io;
use std::process::ExitCode;

/// Exit status of a command, or its failure.
pub type Exit = Result<ExitCode, Failure>;

/// Failure of a command.
#[derive(PartialEq, Eq, Debug)]
pub struct Failure {
    /// Exit status.
    pub status: u8,
    /// One sentence for the standard error.
    pub sentence: String,
}

/// Exit status of a failure without a status of its own.
pub const FAILURE: u8 = 1;

// These are from sysexits.h, and differ from the statuses of usual commands.

/// The command line, of a command or of the daemon, is wrong: `EX_USAGE`.
pub const MISUSE: u8 = 64;
/// No server replied: `EX_UNAVAILABLE`.
pub const UNAVAILABLE: u8 = 69;
/// The lock, member or job is not available now, but may be later: `EX_TEMPFAIL`.
pub const TRY_LATER: u8 = 75;
/// The server has refused at once what may be available later, and no time to wait was given.
pub const REFUSED_AT_ONCE: u8 = 79;
/// The server violated the protocol: `EX_PROTOCOL`.
pub const PROTOCOL: u8 = 76;

// These are from shells.

/// A command to be run exists but cannot be run.
pub const CANNOT_RUN: u8 = 126;
/// A command to be run does not exist.
pub const NOT_FOUND: u8 = 127;

impl Failure {
    /// Returns the failure for a wrong command line.
    pub fn misuse(sentence: impl Into<String>) -> Failure {
        Failure { status: MISUSE, sentence: sentence.into() }
    }

    /// Returns the failure for a process that can run no commands at all.
    pub fn no_commands(error: impl Into<io::Error>) -> Failure {
        Failure { status: CANNOT_RUN, sentence: format!("cannot run commands: {}", error.into()) }
    }

    /// Returns the failure for an error of a client.
    pub fn of(error: &Error, sentence: String) -> Failure {
        let status = match error {
            Error::Unavailable(_) => UNAVAILABLE,
            Error::BadName | Error::BadArgument(_) => MISUSE,
            _ => PROTOCOL,
        };
        Failure { status, sentence }
    }

    /// Returns the failure for an unknown word on the command line.
    pub fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
        Failure::misuse(format!("unknown {what} \"{word}\"{}", did_you_mean(word, known)))
    }

    /// Adds the command that prints the help, if the command line is wrong.
    pub fn with_help(mut self, command: &str) -> Failure {
        if self.status == MISUSE {
            self.sentence += format!(" (see poolcounter help {command}").trim_end();
            self.sentence.push(')');
        }
        self
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Failure { status: FAILURE, sentence }
    }
}
