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

/// Returns the values of the word behind these words that are no options, from the usage of a command and its requests.
pub fn completed_behind(command: &Command, words: &[&str]) -> Vec<Completed> {
    let is_meant = |word: &str| words.first().is_some_and(|first| word.eq_ignore_ascii_case(first));
    let list = (command.list)();
    let requests = list.iter().map(|(usage, _)| usage.split_once(' ').unwrap_or((usage, "")));
    let requests = requests.chain((command.name == "stats").then_some(("HOLDERS", "KEY")));
    let requests = requests.filter(|(word, _)| is_meant(word)).map(|(_, usage)| (1, usage));
    let own = command.usage.lines().next().unwrap_or_default();
    let completed = [(0, own)].into_iter().chain(requests).filter_map(|(before, usage)| {
        let hint = positional(usage.replace(" | ", "|").split(' ')).into_iter().nth(words.len() - before)?;
        // The first words of a command are known.
        Some(Completed::of_hint(&hint)).filter(|completed| before > 0 || !matches!(completed, Completed::OneOf(_)))
    });
    completed.collect()
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
