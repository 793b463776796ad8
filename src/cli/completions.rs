//! `completions`: prints the completion script of a shell, made from the tables of commands and options.

mod names;
mod parameters;
mod scripts;

use super::command::{Command, Failure};
use super::table::{Given, WordsAllowed};
use super::terminal::print;
use names::{KEYS, MEMBERS, POOLS, TUBES, print_names};
use parameters::{Completed, Parameter, parameters_of};
use poolcounter_core::text::shell_word;
use poolcounter_service::options::Opt;
use scripts::{BASH, FISH, ZSH, ZSH_DASHES};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Shell, with the function that writes its script.
type Shell = (&'static str, fn(&[Command]) -> String);

const SHELLS: [Shell; 3] = [("bash", bash), ("zsh", zsh), ("fish", fish)];

/// Runs the command.
///
/// # Errors
///
/// Fails if the shell is not known.
pub fn run(given: &Given, commands: &[Command]) -> Result<ExitCode, Failure> {
    let named = given.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let mut words = named.split(' ');
    let kind = words.next().and_then(|word| [KEYS, POOLS, MEMBERS, TUBES].into_iter().find(|kind| word == *kind));
    if let Some(kind) = kind {
        return print_names(kind, words.next().unwrap_or_default());
    }
    if named.is_empty() {
        return Err(Failure::misuse("completions needs a shell: bash, zsh or fish"));
    }
    let shell = SHELLS.iter().find(|(shell, _)| *shell == named);
    let (_, write) = shell.ok_or_else(|| Failure::misuse(format!("\"{named}\" is not bash, zsh or fish")))?;
    print(&write(commands))
}

/// Returns the names of the shells.
pub fn first_words() -> Vec<&'static str> {
    SHELLS.iter().map(|(shell, _)| *shell).collect()
}

fn bash(commands: &[Command]) -> String {
    let (mut values, mut words, mut parameters) = (String::new(), String::new(), String::new());
    for command in commands {
        for Parameter { word, place, completed } in parameters_of(command) {
            let action = match completed {
                Completed::OneOf(words) => format!("words+=\" {words}\""),
                Completed::Names(MEMBERS) => format!("names=\"{MEMBERS} ${{rest[1]}}\""),
                Completed::Names(kind) => format!("names={kind}"),
                Completed::File | Completed::Anything => continue,
            };
            let pattern = |word: &str| format!("\"{} {place} {word}\"", command.name);
            let (pattern, lower) = (pattern(&word), pattern(&word.to_lowercase()));
            let patterns = if pattern == lower { pattern } else { format!("{pattern}|{lower}") };
            parameters += &format!("            {patterns}) {action} ;;\n");
        }
        let options = command.shown_options();
        for option in options.iter().filter(|option| !option.hint.is_empty()) {
            let patterns: Vec<String> = names_of(option).map(|name| format!("\"{} {name}\"", command.name)).collect();
            let action = match Completed::of(option) {
                // Only readline's own completion quotes file names correctly.
                Completed::File => "compopt -o default 2>/dev/null; return".to_string(),
                Completed::OneOf(words) => format!("words=\"{words}\""),
                Completed::Names(kind) => format!("words= names={kind}"),
                Completed::Anything => "return".to_string(),
            };
            values += &format!("            {}) {action} ;;\n", patterns.join("|"));
        }
        let names: Vec<String> = options.iter().flat_map(names_of).collect();
        words += &format!(
            "        {}) options=\"{}\" words=\"{}\" valued=\"{}\" runs={} ;;\n",
            command.name,
            names.join(" "),
            (command.first_words)().join(" "),
            valued(command).join(" "),
            command.runs()
        );
    }
    BASH.replace("VALUES    ", &format!("{values}    "))
        .replace("PARAMETERS    ", &format!("{parameters}    "))
        .replace("WORDS    ", &format!("{words}    "))
        .replace("COMMANDS", &all_commands(commands).join(" "))
}

fn zsh(commands: &[Command]) -> String {
    let (mut names, mut arguments, mut parameters) = (String::new(), String::new(), String::new());
    for command in commands {
        names += &format!("        {}\n", quoted(&format!("{}:{}", command.name, command.summary)));
        let mut specs: Vec<String> = command.shown_options().iter().flat_map(zsh_specs).collect();
        let first_words = (command.first_words)().join(" ");
        let mut places = BTreeSet::new();
        for Parameter { word, place, completed } in parameters_of(command) {
            let action = match completed {
                Completed::OneOf(words) => format!("compadd {words}"),
                Completed::Names(MEMBERS) => format!("_poolcounter_names {MEMBERS} ${{words[at+1]}}"),
                Completed::Names(kind) if place == 0 => format!("compadd -- {first_words}; _poolcounter_names {kind}"),
                Completed::Names(kind) => format!("_poolcounter_names {kind}"),
                Completed::File | Completed::Anything => continue,
            };
            places.insert(place);
            // Without a request, the name of the command is the word that matches.
            let word = if word.is_empty() { command.name.to_string() } else { format!("(#i){word}") };
            parameters += &format!("            \"{place} {} \"{word}) {action}; return ;;\n", command.name);
        }
        if !first_words.is_empty() && !places.contains(&0) {
            specs.push(quoted(&format!("1:word:({first_words})")));
        }
        specs.extend(places.iter().map(|place| format!("'{}:word:_poolcounter_parameter {place}'", place + 1)));
        let (before, ends) = match command.runs() {
            LAST => ("", " -A '-*'"),
            DASHES => (ZSH_DASHES, ""),
            _ => ("", ""),
        };
        if command.runs() == LAST {
            specs.push(quoted("*::command:_normal"));
        }
        let (name, specs) = (command.name, specs.join(" \\\n            "));
        arguments += &format!("        {name}) {before}_arguments -s -S{ends} \\\n            {specs} ;;\n");
    }
    ZSH.replace("COMMANDS", &names).replace("ARGUMENTS", &arguments).replace("PARAMETERS", &parameters)
}

fn zsh_specs(option: &Opt<()>) -> Vec<String> {
    let escape = |text: &str| text.replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    let value = match Completed::of(option) {
        _ if option.hint.is_empty() => String::new(),
        Completed::File => ":file:_files".into(),
        Completed::OneOf(words) => format!(":value:({words})"),
        Completed::Names(kind) => format!(":name:_poolcounter_names {kind}"),
        Completed::Anything => format!(":{}: ", escape(option.hint)),
    };
    let repeats = if option.repeats { "*" } else { "" };
    let spec = |name: String| {
        // The value may be in the same word: -kKEY, --key=KEY.
        let joint = match name.starts_with("--") {
            _ if option.hint.is_empty() => "",
            true => "=",
            false => "+",
        };
        quoted(&format!("{repeats}{name}{joint}[{}]{value}", escape(option.summary())))
    };
    names_of(option).map(spec).collect()
}

fn fish(commands: &[Command]) -> String {
    let mut text = FISH.to_string();
    for command in commands {
        let (name, summary) = (command.name, quoted(command.summary));
        text += &format!("complete -c poolcounter -n 'test (count (commandline -opc)) = 1' -a {name} -d {summary}\n");
        let other = format!("{} {}", command.runs(), valued(command).join(" "));
        let mut add = |condition: &str, rest: String| {
            let condition = quoted(&format!("test (__poolcounter_command) = {name}{condition}"));
            text += &format!("complete -c poolcounter -n {condition} {rest}\n");
        };
        let not_begun = match command.runs() {
            "" => String::new(),
            _ => format!("; and not __poolcounter_other {other} >/dev/null"),
        };
        for option in command.shown_options() {
            let short = if option.short.is_empty() { String::new() } else { format!("-s {} ", option.short) };
            let value = match Completed::of(&option) {
                _ if option.hint.is_empty() => String::new(),
                Completed::File => " -r -F".into(),
                Completed::OneOf(words) => format!(" -x -a {}", quoted(&words)),
                Completed::Names(kind) => format!(" -x -a '(__poolcounter_names {kind})'"),
                Completed::Anything => " -x".into(),
            };
            add(&not_begun, format!("{short}-l {}{value} -d {}", option.long, quoted(option.summary())));
        }
        let at = |place: usize, word: &str| {
            format!("{not_begun}; and __poolcounter_at {place} {} {}", quoted(word), valued(command).join(" "))
        };
        let first_words = (command.first_words)().join(" ");
        if !first_words.is_empty() {
            add(&at(0, ""), format!("-a {}", quoted(&first_words)));
        }
        for Parameter { word, place, completed } in parameters_of(command) {
            let words = match completed {
                Completed::OneOf(words) => words,
                Completed::Names(MEMBERS) => format!("(__poolcounter_names {MEMBERS} $__poolcounter_rest[2])"),
                Completed::Names(kind) => format!("(__poolcounter_names {kind})"),
                Completed::File | Completed::Anything => continue,
            };
            add(&at(place, &word), format!("-a {}", quoted(&words)));
        }
        if !command.runs().is_empty() {
            let may_begin = format!("; and begin; __poolcounter_other {other} >/dev/null; or test $status = 1; end");
            add(&may_begin, format!("-a {}", quoted(&format!("(__poolcounter_complete_other {other})"))));
        }
    }
    text
}

/// Returns the names of the options that have a value.
fn valued(command: &Command) -> Vec<String> {
    command.shown_options().iter().filter(|option| !option.hint.is_empty()).flat_map(names_of).collect()
}

/// Argument of the scripts for a command whose first word that is not an option starts another command.
const LAST: &str = "last";
/// Argument of the scripts for a command that runs another one after `--`.
const DASHES: &str = "dashes";

impl Command {
    /// Returns the argument for the position of another command in its words; empty if it runs none.
    fn runs(&self) -> &'static str {
        match self.words {
            WordsAllowed::Last => LAST,
            _ if self.usage.contains("-- COMMAND") => DASHES,
            _ => "",
        }
    }
}

fn names_of(option: &Opt<()>) -> impl Iterator<Item = String> + use<> {
    let short = (!option.short.is_empty()).then(|| format!("-{}", option.short));
    short.into_iter().chain([format!("--{}", option.long)])
}

fn all_commands(commands: &[Command]) -> Vec<&'static str> {
    commands.iter().map(|command| command.name).collect()
}

/// Returns a text as one word of every shell.
fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&shell_word(text.as_bytes())).into_owned()
}
