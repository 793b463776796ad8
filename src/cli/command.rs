//! What a command is, and how it fails. It knows no single command.

use super::table::{Given, WordsAllowed};
use poolcounter_service::options::{Opt, did_you_mean};
use std::process::ExitCode;

/// One command.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// What may follow its name, for the first line of its help.
    pub usage: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Its options, those too that users are not shown.
    pub options: fn() -> Vec<Opt<()>>,
    /// What may stand beside the options.
    pub words: WordsAllowed,
    /// What the first of these words may be, as far as that is known; shells complete it.
    pub first_words: fn() -> Vec<&'static str>,
    /// Returns the list behind the usage, in the help.
    pub list: fn() -> String,
    /// Does it.
    pub run: fn(&Given) -> Result<ExitCode, Failure>,
}

/// Why a command fails.
#[derive(PartialEq, Eq, Debug)]
pub struct Failure {
    /// With which exit status.
    pub status: u8,
    /// One sentence for whoever reads the standard error.
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

impl Command {
    /// Returns the options that users are shown.
    pub fn shown_options(&self) -> Vec<Opt<()>> {
        (self.options)().into_iter().filter(|option| !option.is_hidden).collect()
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Failure { status: FAILURE, sentence }
    }
}
