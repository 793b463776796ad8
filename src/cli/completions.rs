//! `completions`: prints the completion script of a shell, and the words that such a script asks for.
//!
//! A script passes the words before the cursor to `poolcounter completions of -- WORD...`. The first line of the reply
//! is `words`, `file`, or `command N` if the words from N on are another command. Behind `words` there is one line for
//! each possible word: the word, a tabulator, a description.

mod parameters;

use super::command::{Command, Exit, Failure};
use super::servers::Servers;
use super::table::{Given, WordsAllowed};
use super::terminal::print;
use parameters::{Completed, completed_behind, names_at};
use poolcounter_service::options::Opt;

/// Shells with their scripts. Each script asks the program for the words, and completes files and other commands by the
/// means of its shell.
const SHELLS: [(&str, &str); 3] = [
    ("bash", include_str!("completions/poolcounter.bash")),
    ("zsh", include_str!("completions/poolcounter.zsh")),
    ("fish", include_str!("completions/poolcounter.fish")),
];
/// Word with which scripts ask.
const OF: &str = "of";

/// Runs the command.
///
/// # Errors
///
/// Fails if the shell is not known.
pub fn run(given: &Given, commands: &[Command]) -> Exit {
    let words: Vec<String> = given.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let shell = match words.split_first() {
        None => return Err(Failure::misuse("completions needs a shell: bash, zsh or fish")),
        Some((first, rest)) if first == OF => return print(&answer(rest, commands)),
        Some(_) => words.join(" "),
    };
    let script = SHELLS.iter().find(|(name, _)| *name == shell);
    print(script.ok_or_else(|| Failure::misuse(format!("\"{shell}\" is not bash, zsh or fish")))?.1)
}

/// Returns the names of the shells.
pub fn first_words() -> Vec<&'static str> {
    SHELLS.iter().map(|(shell, _)| *shell).collect()
}

/// Returns the reply to a script. The last of the words is the one at the cursor, perhaps empty.
fn answer(words: &[String], commands: &[Command]) -> String {
    let Some((current, before)) = words.split_last() else { return String::new() };
    match before.first() {
        None if !current.starts_with('-') => {
            offer(current, "", commands.iter().map(|command| (command.name.into(), command.summary.into())).collect())
        }
        Some(name) if !name.starts_with('-') => match commands.iter().find(|command| command.name == name) {
            Some(command) => Line::read(command, before, 1).complete(current),
            None => String::new(),
        },
        _ => Line::read(&commands[0], before, 0).complete(current),
    }
}

/// Returns the reply with the words that begin as the word at the cursor, each behind a prefix.
fn offer(current: &str, prefix: &str, words: Vec<(String, String)>) -> String {
    let lines = words.into_iter().map(|(word, description)| format!("{prefix}{word}\t{description}\n"));
    "words\n".to_string() + &lines.filter(|line| line.starts_with(current)).collect::<String>()
}

/// Words before the cursor.
struct Line<'a> {
    command: &'a Command,
    options: Vec<Opt<()>>,
    /// Words that are no options.
    positional: Vec<&'a str>,
    servers: Servers,
    /// Option whose value is at the cursor.
    open: Option<Opt<()>>,
    /// True behind `--`.
    has_dashes: bool,
    /// Number of words before the cursor.
    len: usize,
    /// Index of the first word of another command.
    other: Option<usize>,
}

impl<'a> Line<'a> {
    fn read(command: &'a Command, words: &'a [String], begin: usize) -> Line<'a> {
        let options = command.shown_options();
        let mut line = Line {
            command,
            options,
            positional: Vec::new(),
            servers: Servers::default(),
            open: None,
            has_dashes: false,
            len: words.len(),
            other: None,
        };
        for (at, word) in words.iter().enumerate().skip(begin) {
            if let Some(option) = line.open.take() {
                line.note(&option, word);
            } else if line.has_dashes {
                line.positional.push(word);
            } else if word == "--" {
                line.has_dashes = true;
                if line.runs_another() {
                    line.other = Some(at + 1);
                    break;
                }
            } else if let Some((name, value)) = word.split_once('=').filter(|(name, _)| name.starts_with("--")) {
                if let Some(option) = line.option(name) {
                    line.note(&option, value);
                }
            } else if word.starts_with('-') {
                line.open = line.option(word).filter(|option| !option.hint.is_empty());
            } else if command.words == WordsAllowed::Last {
                line.other = Some(at);
                break;
            } else {
                line.positional.push(word);
            }
        }
        line
    }

    /// Returns whether another command follows `--`, or the options.
    fn runs_another(&self) -> bool {
        let has_command = |usage: &str| usage.contains("-- COMMAND");
        self.command.words == WordsAllowed::Last
            || has_command(self.command.usage)
            || (self.command.list)().iter().any(|(usage, _)| has_command(usage))
    }

    fn option(&self, name: &str) -> Option<Opt<()>> {
        let is_named = |option: &&Opt<()>| names_of(option).any(|known| known == name);
        self.options.iter().find(is_named).map(Opt::describe)
    }

    fn note(&mut self, option: &Opt<()>, value: &str) {
        if option.long == "server" {
            self.servers.add(value);
        }
    }

    fn complete(&self, current: &str) -> String {
        if let Some(option) = &self.open {
            return self.values(&Completed::of(option), current, "");
        }
        if let Some((name, _)) = current.split_once('=').filter(|(name, _)| name.starts_with("--"))
            && !self.has_dashes
            && self.other.is_none()
        {
            return self
                .option(name)
                .map_or(String::new(), |option| self.values(&Completed::of(&option), current, &format!("{name}=")));
        }
        match self.other {
            Some(at) => format!("command {at}\n"),
            None if current.starts_with('-') && !self.has_dashes => {
                let named = |option: &Opt<()>| names_of(option).map(|name| (name, option.summary().into())).collect();
                offer(current, "", self.options.iter().flat_map(|option| -> Vec<_> { named(option) }).collect())
            }
            None if self.command.words == WordsAllowed::Last => format!("command {}\n", self.len),
            None => self.parameters(current),
        }
    }

    /// Returns the reply for a word that is no option.
    fn parameters(&self, current: &str) -> String {
        let known = if self.positional.is_empty() { self.command.known_words() } else { Vec::new() };
        let known = known.into_iter().map(|word| (word, String::new()));
        let completed = completed_behind(self.command, &self.positional);
        offer(current, "", known.chain(completed.iter().flat_map(|completed| self.words_of(completed))).collect())
    }

    /// Returns the reply for the value of an option, behind a prefix.
    fn values(&self, completed: &Completed, current: &str, prefix: &str) -> String {
        match completed {
            Completed::File => "file\n".into(),
            _ => offer(current, prefix, self.words_of(completed)),
        }
    }

    fn words_of(&self, completed: &Completed) -> Vec<(String, String)> {
        let words = match completed {
            Completed::OneOf(words) => words.split(' ').map(String::from).collect(),
            Completed::Names(kind) => names_at(&self.servers, *kind, self.positional.get(1).copied()),
            Completed::File | Completed::Anything => Vec::new(),
        };
        words.into_iter().map(|word| (word, String::new())).collect()
    }
}

fn names_of(option: &Opt<()>) -> impl Iterator<Item = String> + use<> {
    let short = (!option.short.is_empty()).then(|| format!("-{}", option.short));
    short.into_iter().chain([format!("--{}", option.long)])
}
