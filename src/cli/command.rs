//! Row of the table of commands. Independent of any particular command.

pub use super::failure::{FAILURE, Failure, MISUSE};

use super::table::{Given, WordsAllowed};
use poolcounter_service::options::Opt;
use std::ffi::OsStr;
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
    /// Requests that are commands with options of their own; the name of each ends in the request.
    pub requests: &'static [Command],
    /// Runs the command.
    pub run: fn(&Given) -> Result<ExitCode, Failure>,
}

impl Command {
    /// Defaults of most commands: no words beside the options.
    pub const BLANK: Command = Command {
        name: "",
        usage: "[options]",
        summary: "",
        options: Vec::new,
        words: WordsAllowed::None,
        first_words: Vec::new,
        list: String::new,
        requests: &[],
        run: |_| Ok(ExitCode::SUCCESS),
    };

    /// Returns the options that are not hidden, of the command and its requests.
    pub fn shown_options(&self) -> Vec<Opt<()>> {
        let mut shown = self.all_options();
        shown.retain(|option| !option.is_hidden);
        shown
    }

    /// Returns the options of the command and its requests, each name once.
    pub fn all_options(&self) -> Vec<Opt<()>> {
        let mut all: Vec<Opt<()>> = Vec::new();
        for option in (self.options)().into_iter().chain(self.requests.iter().flat_map(|request| (request.options)())) {
            if all.iter().all(|known| known.long != option.long) {
                all.push(option);
            }
        }
        all
    }

    /// Returns the request that is a command, if this word names one.
    pub fn request(&self, word: &OsStr) -> Option<&'static Command> {
        self.requests.iter().find(|request| request.name.rsplit(' ').next().is_some_and(|name| word == name))
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
