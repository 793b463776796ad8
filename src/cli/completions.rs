//! `completions`: what shells complete behind `poolcounter`, made from the tables of commands and options.

use super::command::{Command, Failure};
use super::table::{Given, WordsAllowed};
use super::terminal::print;
use poolcounter_service::options::Opt;
use std::process::ExitCode;

/// A shell, and who writes for it.
type Shell = (&'static str, fn(&[Command]) -> String);

const SHELLS: [Shell; 3] = [("bash", bash), ("zsh", zsh), ("fish", fish)];

/// The hint of options whose value is a file.
const FILE: &str = "FILE";

/// The command.
///
/// # Errors
///
/// When the shell is not known.
pub fn run(given: &Given, commands: &[Command]) -> Result<ExitCode, Failure> {
    let named = given.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let shell = SHELLS.iter().find(|(shell, _)| *shell == named);
    let (_, write) = shell.ok_or_else(|| Failure::misuse(format!("\"{named}\" is not bash, zsh or fish")))?;
    print(&write(commands))
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
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} prefix=
    local command=serve at=1 word words= options= valued= runs= other=
    COMPREPLY=()
    if [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} != -* ]]; then
        command=${COMP_WORDS[1]} at=2
    fi
    case "$command" in
WORDS    esac
    # Where the options end. In some commands, another command begins there.
    for (( ; at < COMP_CWORD; at++ )); do
        word=${COMP_WORDS[at]}
        if [[ $word = -- ]]; then
            other=$(( at + 1 ))
        elif [[ " $valued " = *" $word "* ]]; then
            (( at++ ))
            [[ ${COMP_WORDS[at]} = "=" ]] && (( at++ ))
        elif [[ $runs = last && $word != -* ]]; then
            other=$at
        fi
        [[ $other ]] && break
    done
    [[ ! $other && $runs = last && $at = "$COMP_CWORD" && $current != -* ]] && other=$COMP_CWORD
    if [[ $other && $runs ]]; then
        if declare -F _command_offset >/dev/null; then
            _command_offset "$other"
        elif [[ $other = "$COMP_CWORD" ]]; then
            mapfile -t COMPREPLY < <(compgen -c -- "$current" | sort -u)
        else
            compopt -o default 2>/dev/null
        fi
        return
    fi
    # Most shells take --option=value for three words.
    if [[ $current = "=" ]]; then
        current=
    elif [[ $previous = "=" && $COMP_CWORD -gt 1 ]]; then
        previous=${COMP_WORDS[COMP_CWORD-2]}
    elif [[ $current = --*=* ]]; then
        previous=${current%%=*} current=${current#*=}
        prefix=$previous=
    fi
    if [[ ! $other ]]; then
        words="$options $words"
        case "$command $previous" in
VALUES        esac
    fi
    [[ $COMP_CWORD = 1 ]] && words="$words COMMANDS"
    mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "$current")
}
complete -F _poolcounter poolcounter poolcounterd
"#;

fn bash(commands: &[Command]) -> String {
    let (mut values, mut words) = (String::new(), String::new());
    for command in commands {
        let options = command.shown_options();
        for option in options.iter().filter(|option| !option.hint.is_empty()) {
            let patterns: Vec<String> = names_of(option).map(|name| format!("\"{} {name}\"", command.name)).collect();
            let action = match Completed::of(option) {
                // Only readline's own completion knows how file names are quoted.
                Completed::File => "compopt -o default 2>/dev/null; return".to_string(),
                Completed::OneOf(words) => format!("words=\"{words}\""),
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
        .replace("WORDS    ", &format!("{words}    "))
        .replace("COMMANDS", &all_commands(commands).join(" "))
}

const ZSH: &str = r#"#compdef poolcounter poolcounterd
# What zsh completes behind poolcounter; made by "poolcounter completions zsh".
_poolcounter() {
    local -a subcommands
    local subcommand=serve
    integer dashes
    subcommands=(
COMMANDS    )
    if (( CURRENT > 2 )) && [[ ${words[2]} != -* ]]; then
        subcommand=${words[2]}
        shift words
        (( CURRENT-- ))
    elif (( CURRENT == 2 )) && [[ ${words[2]} != -* ]]; then
        _describe command subcommands
        return
    fi
    case $subcommand in
ARGUMENTS    esac
}
_poolcounter "$@"
"#;

/// In zsh, for a command behind whose `--` another one begins.
const ZSH_DASHES: &str = "dashes=${words[(i)--]}
            if (( dashes < CURRENT )); then
                shift $dashes words
                (( CURRENT -= dashes ))
                _normal
                return
            fi
            ";

fn zsh(commands: &[Command]) -> String {
    let (mut names, mut arguments) = (String::new(), String::new());
    for command in commands {
        names += &format!("        {}\n", quoted(&format!("{}:{}", command.name, command.summary)));
        let mut specs: Vec<String> = command.shown_options().iter().flat_map(zsh_specs).collect();
        let first_words = (command.first_words)();
        if !first_words.is_empty() {
            specs.push(quoted(&format!("1:word:({})", first_words.join(" "))));
        }
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
    ZSH.replace("COMMANDS", &names).replace("ARGUMENTS", &arguments)
}

fn zsh_specs(option: &Opt<()>) -> Vec<String> {
    let escape = |text: &str| text.replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    let value = match Completed::of(option) {
        _ if option.hint.is_empty() => String::new(),
        Completed::File => ":file:_files".into(),
        Completed::OneOf(words) => format!(":value:({words})"),
        Completed::Anything => format!(":{}: ", escape(option.hint)),
    };
    let repeats = if option.repeats { "*" } else { "" };
    let spec = |name: String| {
        // The value may stand in the same word: -kKEY, --key=KEY.
        let joint = match name.starts_with("--") {
            _ if option.hint.is_empty() => "",
            true => "=",
            false => "+",
        };
        quoted(&format!("{repeats}{name}{joint}[{}]{value}", escape(option.doc_short)))
    };
    names_of(option).map(spec).collect()
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
# The words before the cursor of another command, which is to be run. The status is 0 if it has begun and 1 if it may begin
# here. The arguments are "last" if the first word that is no option begins it, and the options that have a value.
function __poolcounter_other
    set -l words (commandline -opc)
    set -e words[1..2]
    while set -q words[1]
        if test "$words[1]" = --
            set -q words[2]; and string join \n -- $words[2..-1]
            return 0
        else if contains -- "$words[1]" $argv[2..-1]
            set -q words[2]; or return 2
            set -e words[1]
        else if test $argv[1] = last; and not string match -q -- '-*' "$words[1]"
            string join \n -- $words
            return 0
        end
        set -e words[1]
    end
    test $argv[1] = last; and return 1
    return 2
end
function __poolcounter_complete_other
    set -l words (string escape -- (__poolcounter_other $argv))
    complete -C (string join ' ' -- $words (commandline -ct))
end
complete -c poolcounterd -w poolcounter
complete -c poolcounter -f
"#;

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
                Completed::Anything => " -x".into(),
            };
            add(&not_begun, format!("{short}-l {}{value} -d {}", option.long, quoted(option.doc_short)));
        }
        let first_words = (command.first_words)().join(" ");
        if !first_words.is_empty() {
            add(&not_begun, format!("-a {}", quoted(&first_words)));
        }
        if !command.runs().is_empty() {
            let may_begin = format!("; and begin; __poolcounter_other {other} >/dev/null; or test $status = 1; end");
            add(&may_begin, format!("-a {}", quoted(&format!("(__poolcounter_complete_other {other})"))));
        }
    }
    text
}

/// The names of the options that have a value.
fn valued(command: &Command) -> Vec<String> {
    command.shown_options().iter().filter(|option| !option.hint.is_empty()).flat_map(names_of).collect()
}

/// What the value of an option can be.
enum Completed {
    File,
    /// One of these, with blanks between them.
    OneOf(String),
    Anything,
}

impl Completed {
    fn of(option: &Opt<()>) -> Completed {
        match option.hint {
            FILE => Completed::File,
            hint if hint.contains('|') => Completed::OneOf(hint.replace('|', " ")),
            _ => Completed::Anything,
        }
    }
}

/// How the scripts call a command whose first word that is no option begins another command.
const LAST: &str = "last";
/// How they call one behind whose `--` another command begins.
const DASHES: &str = "dashes";

impl Command {
    /// Where another command may stand in its words, if it may.
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

/// In quotes, for every shell: single ones within are left and entered again.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
