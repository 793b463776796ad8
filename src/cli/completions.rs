//! `completions`: what shells complete behind `poolcounter`, made from the tables of commands and options.

use super::commands::{COMMANDS, Command, Failure};
use super::print;
use super::table::{Given, Opt, Words};
use std::process::ExitCode;

/// A shell, and who writes for it.
type Shell = (&'static str, fn() -> String);

const SHELLS: [Shell; 3] = [("bash", bash), ("zsh", zsh), ("fish", fish)];

/// The hint of options whose value is a file.
const FILE: &str = "FILE";

/// The command.
///
/// # Errors
///
/// When the shell is not known.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let named = given.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let shell = SHELLS.iter().find(|(shell, _)| *shell == named);
    let (_, write) = shell.ok_or_else(|| format!("\"{named}\" is not bash, zsh or fish"))?;
    print(&write())
}

/// The options.
pub fn described() -> Vec<Opt<()>> {
    vec![Opt::VERSION, Opt::HELP]
}

/// The shells.
pub fn first_words() -> Vec<&'static str> {
    SHELLS.iter().map(|(shell, _)| *shell).collect()
}

const BASH: &str = r#"# What bash completes behind poolcounter; made by "poolcounter completions bash".
_poolcounter() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=serve words= word
    COMPREPLY=()
    case "${COMP_WORDS[1]}" in
        -*|"") ;;
        *) [ "$COMP_CWORD" -gt 1 ] && command=${COMP_WORDS[1]} ;;
    esac
    case "$command" in
        RUNNERS)
            for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
                [ "$word" = -- ] && { COMPREPLY=($(compgen -c -f -- "$current")); return; }
            done ;;
    esac
    case "$command $previous" in
VALUES    esac
    case "$command" in
WORDS    esac
    [ "$COMP_CWORD" = 1 ] && words="$words COMMANDS"
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _poolcounter poolcounter poolcounterd
"#;

fn bash() -> String {
    let (mut values, mut words) = (String::new(), String::new());
    for command in COMMANDS {
        let options = (command.options)();
        let mut others = Vec::new();
        for option in options.iter().filter(|option| !option.hint.is_empty()) {
            let patterns = names_of(option).map(|name| format!("\"{} {name}\"", command.name));
            let reply = match Value::of(option) {
                Value::File => "-f".to_string(),
                Value::OneOf(words) => format!("-W \"{words}\""),
                Value::Anything => {
                    others.extend(patterns);
                    continue;
                }
            };
            let patterns = patterns.collect::<Vec<_>>().join("|");
            values += &format!("        {patterns}) COMPREPLY=($(compgen {reply} -- \"$current\")); return ;;\n");
        }
        if !others.is_empty() {
            values += &format!("        {}) return ;;\n", others.join("|"));
        }
        let first_words = (command.first_words)().into_iter().map(String::from);
        let all: Vec<String> = options.iter().flat_map(names_of).chain(first_words).collect();
        words += &format!("        {}) words=\"{}\" ;;\n", command.name, all.join(" "));
    }
    let runners: Vec<&str> =
        COMMANDS.iter().filter(|command| command.runs_another()).map(|command| command.name).collect();
    BASH.replace("RUNNERS", &runners.join("|"))
        .replace("VALUES", &values)
        .replace("WORDS    ", &format!("{words}    "))
        .replace("COMMANDS", &all_commands().join(" "))
}

const ZSH: &str = r#"#compdef poolcounter poolcounterd
# What zsh completes behind poolcounter; made by "poolcounter completions zsh".
_poolcounter() {
    local -a commands
    local command=serve
    commands=(
COMMANDS    )
    if (( CURRENT > 2 )) && [[ ${words[2]} != -* ]]; then
        command=${words[2]}
        shift words
        (( CURRENT-- ))
    elif (( CURRENT == 2 )) && [[ ${words[2]} != -* ]]; then
        _describe command commands
        return
    fi
    case $command in
ARGUMENTS    esac
}
_poolcounter "$@"
"#;

fn zsh() -> String {
    let (mut commands, mut arguments) = (String::new(), String::new());
    for command in COMMANDS {
        commands += &format!("        {}\n", quoted(&format!("{}:{}", command.name, command.summary)));
        let mut specs: Vec<String> = (command.options)().iter().flat_map(zsh_specs).collect();
        let first_words = (command.first_words)();
        if !first_words.is_empty() {
            specs.push(quoted(&format!("1:word:({})", first_words.join(" "))));
        }
        if command.words == Words::Last {
            specs.push(quoted("*::command:_normal"));
        }
        let specs = specs.join(" \\\n            ");
        arguments += &format!("        {}) _arguments -s \\\n            {specs} ;;\n", command.name);
    }
    ZSH.replace("COMMANDS", &commands).replace("ARGUMENTS", &arguments)
}

fn zsh_specs(option: &Opt<()>) -> Vec<String> {
    let escape = |text: &str| text.replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    let value = match Value::of(option) {
        _ if option.hint.is_empty() => String::new(),
        Value::File => ":file:_files".into(),
        Value::OneOf(words) => format!(":value:({words})"),
        Value::Anything => format!(":{}: ", escape(option.hint)),
    };
    let repeats = if option.repeats { "*" } else { "" };
    names_of(option).map(|name| quoted(&format!("{repeats}{name}[{}]{value}", escape(option.help)))).collect()
}

const FISH: &str = r#"# What fish completes behind poolcounter; made by "poolcounter completions fish".
function __poolcounter_command
    set -l words (commandline -opc)
    if set -q words[2]; and not string match -q -- '-*' $words[2]
        echo $words[2]
    else
        echo serve
    end
end
complete -c poolcounter -f
"#;

fn fish() -> String {
    let mut text = FISH.to_string();
    for command in COMMANDS {
        let (name, summary) = (command.name, quoted(command.summary));
        text += &format!("complete -c poolcounter -n 'test (count (commandline -opc)) = 1' -a {name} -d {summary}\n");
        let mut add = |rest: String| {
            text += &format!("complete -c poolcounter -n 'test (__poolcounter_command) = {name}' {rest}\n");
        };
        for option in (command.options)() {
            let short = if option.short.is_empty() { String::new() } else { format!("-s {} ", option.short) };
            let value = match Value::of(&option) {
                _ if option.hint.is_empty() => String::new(),
                Value::File => " -r -F".into(),
                Value::OneOf(words) => format!(" -x -a {}", quoted(&words)),
                Value::Anything => " -x".into(),
            };
            add(format!("{short}-l {}{value} -d {}", option.long, quoted(option.help)));
        }
        let first_words = (command.first_words)().join(" ");
        if !first_words.is_empty() {
            add(format!("-a {}", quoted(&first_words)));
        }
        if command.runs_another() {
            add(format!("-a {}", quoted("(__fish_complete_subcommand)")));
        }
    }
    text
}

/// What the value of an option can be.
enum Value {
    File,
    /// One of these, with blanks between them.
    OneOf(String),
    Anything,
}

impl Value {
    fn of(option: &Opt<()>) -> Value {
        match option.hint {
            FILE => Value::File,
            hint if hint.contains('|') => Value::OneOf(hint.replace('|', " ")),
            _ => Value::Anything,
        }
    }
}

impl Command {
    /// Whether another command may stand in its words.
    fn runs_another(&self) -> bool {
        self.usage.contains("COMMAND")
    }
}

fn names_of(option: &Opt<()>) -> impl Iterator<Item = String> + use<> {
    let short = (!option.short.is_empty()).then(|| format!("-{}", option.short));
    short.into_iter().chain([format!("--{}", option.long)])
}

fn all_commands() -> Vec<&'static str> {
    COMMANDS.iter().map(|command| command.name).collect()
}

/// In quotes, for every shell: single ones within are left and entered again.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
