//! A row of the table of commands. It knows no single command.

pub use super::failure::{FAILURE, Failure, MISUSE};

use super::table::{Given, WordsAllowed};
use poolcounter_service::options::Opt;
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

impl Command {
    /// Returns the options that users are shown.
    pub fn shown_options(&self) -> Vec<Opt<()>> {
        (self.options)().into_iter().filter(|option| !option.is_hidden).collect()
    }
}
