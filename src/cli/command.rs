//! Row of the table of commands. Independent of any particular command.

pub use super::failure::{Exit, FAILURE, Failure, MISUSE};

use super::table::{Given, WordsAllowed, described};
use poolcounter_service::options::Opt;
use std::ffi::OsStr;
use std::process::ExitCode;

/// Usage and purpose of each request of a command. The usage begins with the word of the request.
pub type Requests = Vec<(String, &'static str)>;

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
    /// Returns the possible first words that are no requests, as far as known; used for completion in shells.
    pub first_words: fn() -> Vec<&'static str>,
    /// Returns its requests: the usage and the purpose of each.
    pub list: fn() -> Requests,
    /// Text of its help after the requests.
    pub notes: &'static str,
    /// Requests that are commands with options of their own; the name of each ends in the request.
    pub requests: &'static [Command],
    /// Runs the command.
    pub run: fn(&Given) -> Exit,
}

impl Command {
    /// Defaults of most commands: words may stand anywhere among the options, which are --help and --version alone.
    pub const BLANK: Command = Command {
        name: "",
        usage: "[options]",
        summary: "",
        options: || described::<()>(&[]),
        words: WordsAllowed::Anywhere,
        first_words: Vec::new,
        list: Vec::new,
        notes: "",
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

    /// Returns the options for one of its requests.
    pub fn options_for(&self, request: &str) -> Vec<Opt<()>> {
        let mut options = (self.options)();
        options.retain(|option| requests_of_option(option).is_none_or(|names| names.contains(&request)));
        options
    }

    /// Returns the possible first words, as far as known.
    pub fn known_words(&self) -> Vec<String> {
        let own = (self.first_words)().into_iter().map(String::from);
        own.chain((self.list)().iter().map(|(usage, _)| first_word(usage).to_string())).collect()
    }

    /// Returns the request that is a command, if this word names one.
    pub fn request(&self, word: &OsStr) -> Option<&'static Command> {
        self.requests.iter().find(|request| request.name.rsplit(' ').next().is_some_and(|name| word == name))
    }
}

/// Row of a command whose module has its `OPTIONS` and its `run`: module, name, usage, purpose, and other fields.
macro_rules! command {
    ($module:ident $name:literal, $usage:literal, $summary:literal $(, $field:ident: $value:expr)*) => {
        $crate::command::Command {
            name: $name,
            usage: $usage,
            summary: $summary,
            options: || $crate::table::described($module::OPTIONS),
            run: $module::run,
            $($field: $value,)*
            ..$crate::command::Command::BLANK
        }
    };
}
pub(crate) use command;

/// Returns the requests of a table.
pub fn requests_of(table: &[(&str, &'static str)]) -> Requests {
    table.iter().map(|(usage, purpose)| (usage.to_string(), *purpose)).collect()
}

/// Returns the requests that an option is for, if its text begins "For list and show: ".
pub fn requests_of_option(option: &Opt<()>) -> Option<Vec<&'static str>> {
    let (names, _) = option.doc.strip_prefix("For ")?.split_once(": ")?;
    Some(names.split([',', ' ']).collect())
}

/// Returns the first word of a usage.
pub fn first_word(usage: &str) -> &str {
    usage.split(' ').next().unwrap_or_default()
}

/// Returns the failure for a request that is missing, does not exist, or has other parameters.
pub fn wrong_request(name: &str, requests: &'static [(&str, &str)], words: &[&str]) -> Failure {
    let usages = || requests.iter().map(|(usage, _)| *usage);
    let Some(word) = words.first() else { return Failure::misuse("no request is named") };
    match usages().find(|usage| first_word(usage) == *word) {
        Some(usage) => Failure::misuse(format!("usage: poolcounter {name} {usage}")),
        None => Failure::unknown("request", word, usages().map(first_word)),
    }
}
