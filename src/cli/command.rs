//! Row of the table of commands. Independent of any particular command.

pub use super::failure::{FAILURE, Failure, MISUSE};

use super::table::{Given, WordsAllowed};
use poolcounter_service::options::Opt;
use std::process::ExitCode;

/// Command of the program.
pub struct Command {
    /// Name.
    pub name: &'static str,
    /// Usage after the name, for the first line of its help.
    pub usage: &'static str,
    /// Purpose, in a few words.
    pub summary: &'static str,
    /// Returns its options, including hidden ones.
    pub options: fn() -> Vec<Opt<()>>,
    /// Words allowed beside the options.
    pub words: WordsAllowed,
    /// Returns the possible first words, as far as known; used for completion in shells.
    pub first_words: fn() -> Vec<&'static str>,
    /// Returns the list after the usage, for the help.
    pub list: fn() -> String,
    /// Runs the command.
    pub run: fn(&Given) -> Result<ExitCode, Failure>,
}

impl Command {
    /// Returns the options that are not hidden.
    pub fn shown_options(&self) -> Vec<Opt<()>> {
        (self.options)().into_iter().filter(|option| !option.is_hidden).collect()
    }
}

/// Returns the first words of the requests in the usage of a command.
pub fn requests_of(usage: &'static str) -> Vec<&'static str> {
    let lines = usage.lines().skip_while(|line| *line != "Requests:").skip(1).take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next()).collect()
}

/// Returns the usage of a request of a command, from the command's own.
pub fn usage_of(name: &str, usage: &str, request: &str) -> String {
    let line = usage.lines().map(str::trim).find(|line| line.split(' ').next() == Some(request));
    let usage = line.and_then(|line| line.split("   ").next()).unwrap_or(request);
    format!("usage: poolcounter {name} {usage}")
}
