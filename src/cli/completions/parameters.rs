//! Values and parameters that shells complete, from the hints of options and the usages of commands.

use super::names::Kind;
use crate::command::Command;
use poolcounter_service::options::Opt;

/// Hint of options whose value is a file.
const FILE: &str = "FILE";

/// Placeholders in usages, and the names that they stand for.
const KINDS: [(&str, Kind); 6] = [
    ("KEY", Kind::Keys),
    ("key", Kind::Keys),
    ("POOL", Kind::Pools),
    ("MEMBER", Kind::Members),
    ("TUBE", Kind::Tubes),
    ("PATTERN", Kind::Tubes),
];

/// States of jobs.
const STATES: &str = "ready reserved delayed buried";

/// Possible values of an option.
pub enum Completed {
    File,
    /// One of these, separated by spaces.
    OneOf(String),
    /// Name of this kind, which is fetched from a server.
    Names(Kind),
    Anything,
}

impl Completed {
    /// Returns the values of an option.
    pub fn of(option: &Opt<()>) -> Completed {
        match option.hint {
            FILE => Completed::File,
            hint => Completed::of_hint(hint),
        }
    }

    /// Parses `warn|kill`, or a placeholder such as `KEY` or `ID|TUBE`.
    fn of_hint(hint: &str) -> Completed {
        let alternatives: Vec<&str> = hint.split('|').collect();
        let is_word = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase());
        if alternatives.len() > 1 && alternatives.iter().all(is_word) {
            return Completed::OneOf(alternatives.join(" "));
        }
        let kind = KINDS.iter().find(|(placeholder, _)| alternatives.contains(placeholder));
        match kind {
            Some(&(_, kind)) => Completed::Names(kind),
            None if alternatives.contains(&"STATE") => Completed::OneOf(STATES.into()),
            None => Completed::Anything,
        }
    }
}

/// Parameter of a command, or of its requests.
pub struct Parameter {
    /// Request; empty for the command itself.
    pub word: String,
    /// Number of words before it that are no options.
    pub place: usize,
    pub completed: Completed,
}

/// Returns the parameters that can be completed, from the usage of a command and its requests.
pub fn parameters_of(command: &Command) -> Vec<Parameter> {
    let list = (command.list)();
    let requests = list.iter().map(|(usage, _)| usage.split_once(' ').unwrap_or((usage, "")));
    let own = command.usage.lines().next().unwrap_or_default();
    let mut found = Vec::new();
    for (word, usage) in [("", own)].into_iter().chain(requests) {
        let usage = usage.replace(" | ", "|");
        let placeholders = positional(usage.split(' '));
        let place_of = |index| index + usize::from(!word.is_empty());
        found.extend(placeholders.iter().enumerate().map(|(index, hint)| Parameter {
            word: word.into(),
            place: place_of(index),
            completed: Completed::of_hint(hint),
        }));
    }
    if command.name == "stats" {
        found.push(Parameter { word: "HOLDERS".into(), place: 1, completed: Completed::Names(Kind::Keys) });
    }
    found.retain(|parameter| match parameter.completed {
        Completed::Names(_) => true,
        Completed::OneOf(_) => !parameter.word.is_empty(),
        Completed::File | Completed::Anything => false,
    });
    found
}

/// Returns the placeholders of a usage that are no options, up to the placeholders of another command.
fn positional<'a>(mut words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut placeholders = Vec::new();
    while let Some(word) = words.next() {
        let inner = word.trim_start_matches('[');
        match inner.split(['[', ']']).next().unwrap_or_default() {
            "--" | "..." => break,
            "options" => {}
            // The value of an option.
            option if option.starts_with("--") => _ = words.next(),
            placeholder => placeholders.push(placeholder.to_string()),
        }
    }
    placeholders
}
