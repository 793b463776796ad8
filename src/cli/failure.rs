//! Failures of commands: one sentence and an exit status.

use poolcounter_service::options::did_you_mean;

/// Failure of a command.
#[derive(PartialEq, Eq, Debug)]
pub struct Failure {
    /// Exit status.
    pub status: u8,
    /// One sentence for the standard error.
    pub sentence: String,
}

/// The exit status of a command that has none of its own for what went wrong.
pub const FAILURE: u8 = 1;
/// The exit status of every command, and of the daemon, when the command line is wrong: `EX_USAGE`.
pub const MISUSE: u8 = 64;

impl Failure {
    /// Returns the failure of a command line that is wrong.
    pub fn misuse(sentence: impl Into<String>) -> Failure {
        Failure { status: MISUSE, sentence: sentence.into() }
    }

    /// Returns the failure of a command line with a word that is none of those known.
    pub fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>, help: &str) -> Failure {
        let near = did_you_mean(word, known);
        Failure::misuse(format!("unknown {what} \"{word}\"{near} (see {help})"))
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Failure { status: FAILURE, sentence }
    }
}
